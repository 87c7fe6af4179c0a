"""Directives of C's printf for what `print` writes: `{}` or `{:>8.3f}` for each operand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from string import Formatter

from cubepy.ir.types import DType

SPEC = re.compile(r"([<>]?)([+ ]?)(0?)(\d*)((?:\.\d+)?)([a-zA-Z]?)")
"""Alignment, sign, zeros, width, precision and type of a format, as in Python."""


def directives(text: str, of: Callable[[int, str], str]) -> str:
    """A format of printf: the text, and `of(k, spec)` for the k-th operand."""
    return "".join(_parts(text, of))


def _parts(text: str, of: Callable[[int, str], str]) -> Iterator[str]:
    count = 0
    for plain, field, spec, _ in Formatter().parse(text):
        yield plain.replace("%", "%%")
        if field is not None:
            yield of(count, spec or "")
            count += 1


def directive(spec: str, dtype: DType, plain: str) -> str:
    """The directive of a number; `plain` is that of its type without a format."""
    found = SPEC.fullmatch(spec)
    if not spec or found is None:
        return plain
    align, sign, zeros, width, precision, kind = found.groups()
    flags = ("-" if align == "<" else "") + sign + ("0" if zeros and align != "<" else "")
    if dtype.is_float:
        return f"%{flags}{width}{precision}{kind}" if kind else f"%{flags}{width}{plain[1:]}"
    return f"%{flags}{width}{plain[1:-1]}{kind if kind in 'xXo' and kind else plain[-1]}"
