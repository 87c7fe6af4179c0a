"""Sums of products of neighbouring lanes: the typing rule and the meaning of their row."""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir.numbers import wrap
from cubepy.ir.opdef import Attrs, Lanes, require, require_count
from cubepy.ir.types import Line, Type, element_of, i8, i32, u8, width_of

GROUP = 4
"""Products that are added to one sum."""


def dotting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Two lines of 4 n lanes of i8 or u8 each, and i32 or a line of n of it; gives the latter."""
    require_count(types, 3)
    *factors, sums = types
    require(element_of(sums) is i32, f"adds to i32, got {sums!r}")
    for t in factors:
        fits = isinstance(t, Line) and t.width == GROUP * width_of(sums) and t.element in (i8, u8)
        require(fits, f"takes {GROUP * width_of(sums)} lanes of i8 or u8, got {t!r}")
    return (sums,)


def dot(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """To each lane of the sums, the products of its group of lanes; wraps."""
    a, b, sums = values
    products = [int(x) * int(y) for x, y in zip(a, b, strict=True)]
    groups = (products[GROUP * k : GROUP * (k + 1)] for k in range(len(sums)))
    return tuple([wrap(int(c) + sum(group), i32) for c, group in zip(sums, groups, strict=True)])
