"""Source positions: where a value or an error comes from, with the chain of inlined calls.

Knows nothing of kernels or of the compiler; rendering reads the text through `linecache`, so that
files, notebooks cells and the REPL look alike.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from pathlib import Path

from cubepy.record import dataclass

_LIBRARY = str(Path(__file__).parent / "lang") + os.sep
"""What is written in the kernel language and comes with it."""
_PREBUILT = str(Path(__file__).parent / "kernels") + os.sep
"""The prebuilt kernels, which call functions of the user."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text: lines count from 1, columns from 0, the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str = "<kernel>"
    caller: Span | None = None

    def chain(self) -> Iterator[Span]:
        """This span, then the spans of the calls that led here, innermost first."""
        span: Span | None = self
        while span is not None:
            yield span
            span = span.caller

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"


def in_user_code(span: Span) -> Span:
    """The innermost position outside of the language's own library; `span` if there is none."""
    return next((s for s in span.chain() if not s.file.startswith(_LIBRARY)), span)


def line_text(span: Span) -> str:
    """The first source line of `span` without its newline; empty where no text is known."""
    return linecache.getline(span.file, span.line).rstrip("\n")


def _display_columns(text: str, column: int) -> int:
    """The UTF-8 byte offset `column`, as counted by `ast`, in characters of `text`."""
    return len(text.encode()[:column].decode(errors="ignore"))


def render(span: Span) -> list[str]:
    """The position, the source line and a caret under it: at most four lines."""
    head = f"  --> {span} in {span.function}"
    text = line_text(span)
    if not text.strip():
        return [head]
    start = _display_columns(text, span.column)
    same_line = span.end_line == span.line
    stop = _display_columns(text, span.end_column) if same_line else len(text)
    indent = len(text) - len(text.lstrip())
    number = str(span.line)
    caret = " " * (start - indent) + "^" * max(1, stop - start)
    return [head, f"{number} | {text.strip()}", f"{' ' * len(number)} | {caret}"]


def render_calls(span: Span, limit: int = 3) -> list[str]:
    """One line for each call that led to `span`, outermost calls cut after `limit`; where it is in
    code of the user, without those inside of prebuilt kernels."""
    calls = list(span.chain())[1:]
    if not span.file.startswith(_PREBUILT):
        calls = [call for call in calls if not call.file.startswith(_PREBUILT)]
    lines = [f"  called from {call} in {call.function}" for call in calls[:limit]]
    if len(calls) > limit:
        more = len(calls) - limit
        lines.append(f"  ... and {more} more call{'s' if more > 1 else ''}")
    return lines
