"""The page about all errors, from the catalogue; mkdocs builds it, and so does

python tools/error_index.py
"""

import re

from cubepy.errors import CATALOGUE, ErrorCode

HEAD = """# Errors

Every message begins with a code. `cubepy explain CODE` prints the same text as this page, which is
generated from the catalogue. Words in braces stand for what the message fills in.
The examples begin with `import numpy as np` and `import cubepy as cp`; the tests run them all.
[Reading errors](debugging.md#reading-errors) shows a whole message.

All classes derive from `cp.Error`. Some are Python's as well, so that ordinary `except` clauses
work.

| class | is also | raised when |
|---|---|---|
| `cp.CompileError` | | the kernel cannot be compiled |
| `cp.UnsupportedError` | `cp.CompileError` | it is valid, but not on this target |
| `cp.LaunchError` | `ValueError` | arguments or grid are refused; nothing was written |
| `LaunchTypeError` | `cp.LaunchError`, `TypeError` | an argument has the wrong type |
| `cp.OutOfBoundsError` | `IndexError` | a checked access left its array |
| `cp.CheckError` | | a checked kernel failed a check of another kind |
| `cp.DeviceError` | | a device failed or is not there |

Classes without `cp.` live in `cubepy.errors`.
"""

PARTS = {
    "E1": "The language",
    "E2": "Types and values",
    "E3": "Tensors, memory and barriers",
    "E4": "Launches",
    "E5": "Devices and settings",
    "E6": "Prebuilt kernels",
    "E7": "Faults of running kernels",
}


def page() -> str:
    """The page in Markdown."""
    lines = [HEAD]
    part = ""
    for code in sorted(CATALOGUE):
        if code[:2] != part:
            part = code[:2]
            lines.append(f"\n## {PARTS.get(part, f'{part}xx')}\n")
        lines.append(entry(CATALOGUE[code]))
    return "\n".join(lines)


def entry(row: ErrorCode) -> str:
    """The part about one code."""
    has_help = row.hint and not re.fullmatch(r"\{\w+\}", row.hint)
    text = f"{row.template}\n  help: {row.hint}" if has_help else row.template
    parts = [f"### {row.code}\n", f"`{row.kind.__name__}`\n", f"```text\n{text}\n```\n"]
    if row.explanation:
        parts.append(f"{row.explanation}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page())
