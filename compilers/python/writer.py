"""Python text under construction: lines with the spans they stand for, functions, tables.

Knows no operations. Each generated line carries one position in the user's source.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from cubepy.record import dataclass
from cubepy.span import Span

_OURS = re.compile(r"_\d+_?|_[a-z]\w*")


@dataclass(slots=True)
class Line:
    """One line of generated Python; `span` is an index into the table, -1 for none."""

    indent: int
    text: str
    span: int


@dataclass(slots=True)
class Function:
    """A generated function. `level` is the number of inlined calls around its lines.

    `names` are those that it reads, in order; `assigned` those that it sets.
    """

    name: str
    span: Span | None
    level: int
    lines: list[Line] = field(default_factory=list[Line])
    indent: int = 1
    depth: int = 0
    names: dict[str, None] = field(default_factory=dict[str, None])
    assigned: set[str] = field(default_factory=set[str])

    def free(self) -> list[str]:
        """What must be passed in: read before or without being set here."""
        return [name for name in self.names if name not in self.assigned]


class Tables:
    """Spans and sites by number: what the runtime needs to report where it is."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.sites: list[dict[str, Any]] = []
        self._numbers: dict[Span, int] = {}

    def span(self, span: Span | None) -> int:
        """The number of a span; -1 for none."""
        if span is None:
            return -1
        number = self._numbers.get(span)
        if number is None:
            self.span(span.caller)
            number = self._numbers[span] = len(self.spans)
            self.spans.append(span)
        return number

    def site(self, span: Span | None, row: str, **facts: Any) -> int:
        """A new number for an operation that reports may name, in the order of the program."""
        self.sites.append({"row": row, "span": self.span(span), **facts})
        return len(self.sites) - 1

    def span_rows(self) -> list[list[Any]]:
        """The spans as plain data; the last entry is the number of the caller."""
        return [
            [s.file, s.line, s.column, s.end_line, s.end_column, s.function, self.span(s.caller)]
            for s in self.spans
        ]


def local_name(name: str, reserved: frozenset[str]) -> str:
    """The name of a local of the user; those that are ours get a mark."""
    return f"{name}_" if name in reserved or _OURS.fullmatch(name) else name
