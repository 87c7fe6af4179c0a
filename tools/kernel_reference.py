"""The page about `cp.kernels`, from signatures and docstrings: docs/guide/kernels.md.

It is committed, so that a clone has it; a test compares it, and `--bless` writes it. So does

python tools/kernel_reference.py > docs/guide/kernels.md
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import cubepy as cp

HEAD = """# Reference of prebuilt functions

The functions of `cp.kernels`, with the text of their docstrings: `help(cp.kernels.conv2d)` prints
the same. This page is generated from them by `tools/kernel_reference.py`.
[Prebuilt functions](pooling-scans-sorting.md) shows how they are called, what an `epilogue` is, and
which names differ from torch's.

`x` is any array that a kernel takes, and results are arrays of its library on its device, or `out`.
"""

FAMILIES = {
    "Products": ("matmul",),
    "Convolutions": ("convolution",),
    "Attention": ("attention",),
    "Pooling": ("pooling",),
    "Reductions": ("reduction", "position"),
    "Scans and sorting": ("scan", "sorting"),
    "Softmax, normalisations, losses": ("normalisation",),
    "Elementwise": ("elementwise",),
    "Indexing and transposition": ("indexing", "transposition"),
    "Quantisation": ("quantisation",),
    "Random numbers": ("random",),
}
"""The folders of `cubepy/kernels` whose functions stand together."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each public function with its name below `cp.kernels`, in alphabetical order."""
    for name in sorted(cp.kernels.__all__, key=str.lower):
        found = getattr(cp.kernels, name)
        if inspect.ismodule(found):
            yield from ((f"{name}.{inner}", getattr(found, inner)) for inner in found.__all__)
        else:
            yield name, found


def page() -> str:
    """The page in Markdown."""
    families: dict[str, dict[str, Callable[..., Any]]] = {title: {} for title in FAMILIES}
    title_of = {folder: title for title, folders in FAMILIES.items() for folder in folders}
    for name, function in functions():
        families[title_of[function.__module__.split(".")[2]]][name] = function
    lines = [HEAD, "| | |\n|---|---|"]
    for title, members in families.items():
        names = " ".join(f"[{name}](#{name.replace('.', '').lower()})" for name in members)
        lines.append(f"| {title} | {names} |")
    for title, members in families.items():
        lines.append(f"\n## {title}")
        lines += [entry(name, function) for name, function in members.items()]
    return "\n".join(lines) + "\n"


def entry(name: str, function: Callable[..., Any]) -> str:
    """The part about one function."""
    call = textwrap.fill(
        f"cp.kernels.{name}{signature(function)}",
        width=100,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"\n### {name}\n\n```text\n{call}\n```\n\n{markdown(inspect.getdoc(function) or '')}"


def signature(function: Callable[..., Any]) -> str:
    """Parameters and defaults; the docstring says of which types they are."""
    found = inspect.signature(function)
    bare = [each.replace(annotation=each.empty) for each in found.parameters.values()]
    text = str(found.replace(parameters=bare, return_annotation=found.empty))
    return text.replace("'", '"')  # as the formatter writes texts


def markdown(text: str) -> str:
    """A docstring, whose stars outside of code are no emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"(?<! )\*|\*(?! )", r"\\*", part) for part in parts[::2]]
    return "".join(parts).replace("docs/accuracy.md", "[docs/accuracy.md](../accuracy.md)")


if __name__ == "__main__":
    print(page(), end="")
