"""The text of code that lies in no file: of `python -c`, and of what was typed at a prompt.

A text is right where it compiles to the very code whose source is asked for. It joins `linecache`
under a name of its own, so that errors show its lines.
"""

from __future__ import annotations
import __future__

import linecache
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

_PROMPTS = ("<stdin>", "<console>")
_NEWEST = 4000
"""Lines of the history that are searched."""
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_REPEATS = 64
"""How many lines of a statement are tried as repeated ones, which the history keeps once."""


def find_text(code: CodeType) -> tuple[str, str] | None:
    """The name and the text of the statements that define `code`; None where they are not known."""
    if code.co_filename == "<string>":
        text = command_text(sys.orig_argv)
        return None if text is None or not _defines(text, "exec", code) else _kept(text, "<-c>")
    if code.co_filename not in _PROMPTS:
        return None
    for text in _typed(code):
        if _defines(text, "single", code):
            return _kept(text, f"<input {len(_names)}>")
    return None


def typed_lines(code: CodeType) -> list[str]:
    """The lines of a statement that was typed at a prompt of Python 3.14 or later, which keeps them
    by their code; they join `linecache` under the statement's name, as in Python 3.13."""
    name, find = code.co_filename, getattr(linecache, "_getlines_from_code", None)
    lines: list[str] = find(code) if find is not None and name.startswith("<stdin-") else []
    if lines:
        linecache.cache[name] = sum(map(len, lines)), None, lines, name
    return lines


def command_text(arguments: list[str]) -> str | None:
    """What follows `-c` on the command line of Python."""
    rest = iter(arguments[1:])
    for argument in rest:
        if not argument.startswith("-") or argument in ("-", "--"):
            return None
        if argument.startswith("--"):
            if argument == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for k, letter in enumerate(argument[1:], 2):
            if letter == "c":
                return argument[k:] or next(rest, None)
            if letter == "m":
                return None
            if letter in "XW":
                if not argument[k:]:
                    next(rest, None)
                break
    return None


def _typed(code: CodeType) -> Iterator[str]:
    """Statements of the history that may define `code`, the newest first."""
    history = _history()
    least = max((line for line in _lines_of(code)), default=1)
    for start in range(len(history) - 1, -1, -1):
        end = start + least
        if end > len(history) or history[start][:1].isspace():
            continue
        if code.co_name.isidentifier() and not any(code.co_name in s for s in history[start:end]):
            continue
        while end < len(history) and history[end][:1] in (" ", "\t", ")", "]", "}", "#"):
            end += 1
        yield "\n".join(history[start:end]) + "\n"
    for start in range(len(history) - 1, -1, -1):  # a line that was typed twice is there once
        if history[start][:1].isspace() or code.co_name not in " ".join(history[start:]):
            continue
        lines = history[start : start + least - 1]
        for k in range(min(len(lines), _REPEATS)):
            yield "\n".join([*lines[: k + 1], *lines[k:]]) + "\n"


def _history() -> list[str]:
    readline: Any = sys.modules.get("readline")  # which a prompt has loaded
    if readline is None:
        return []
    last = readline.get_current_history_length()
    first = max(1, last - _NEWEST + 1)
    return [readline.get_history_item(k) or "" for k in range(first, last + 1)]


def _lines_of(code: CodeType) -> Iterator[int]:
    yield from (end for _, end, _, _ in code.co_positions() if end is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of(constant)


def _defines(text: str, mode: str, code: CodeType) -> bool:
    return code in compiled(text, mode, code.co_filename, code.co_flags)


def compiled(text: str, mode: str, file: str, flags: int) -> list[CodeType]:
    """All code of a text, under the `__future__` that `flags` has; none where it is no Python."""
    try:
        code = compile(text, file, mode, flags=flags & _FUTURE, dont_inherit=True)
    except (SyntaxError, ValueError):
        return []
    return codes_in(code)


def codes_in(code: CodeType) -> list[CodeType]:
    """Code and that of all functions in it."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [code, *(found for c in inner for found in codes_in(c))]


_names: dict[str, str] = {}


def name_of(text: str, name: str) -> str:
    """A name under which `linecache` knows a text, where another one has its name by now."""
    return _kept(text, f"{name} {len(_names)}")[0]


def _kept(text: str, name: str) -> tuple[str, str]:
    """The text under a name that `linecache` knows; the same text under the same name."""
    name = _names.setdefault(text, name)
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    return name, text
