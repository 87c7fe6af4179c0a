"""Sums of products of neighbouring lanes: the typing rule and the meaning of their row."""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir.meaning import fma
from cubepy.ir.numbers import Number, wrap
from cubepy.ir.opdef import Attrs, Lanes, require, require_count
from cubepy.ir.types import DType, Line, Type, bf16, element_of, f32, i8, i32, u8, width_of

FACTORS: dict[DType, tuple[DType, ...]] = {i32: (i8, u8), f32: (bf16,)}
"""What is multiplied, by the type of sums."""
_SPELLED = {i32: "i8 or u8", f32: "bf16"}


def group_of(sums: DType) -> int:
    """Products that are added to one sum: as many factors as lie in its bits."""
    return sums.bits // FACTORS[sums][0].bits


def dotting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Two lines of 4 n lanes of i8 or u8 each, and i32 or a line of n of it; or 2 n lanes of bf16,
    and f32. Gives the latter."""
    require_count(types, 3)
    *factors, sums = types
    dtype = element_of(sums)
    require(dtype in FACTORS, f"adds to i32 or f32, got {sums!r}")
    lanes = group_of(dtype) * width_of(sums)
    for t in factors:
        fits = isinstance(t, Line) and t.width == lanes and t.element in FACTORS[dtype]
        require(fits, f"takes {lanes} lanes of {_SPELLED[dtype]}, got {t!r}")
    return (sums,)


def dot(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """To each lane of the sums, the products of its group of lanes: of integers, the sum wraps; of
    floats, each product from the last one on is added in a step that rounds once."""
    a, b, sums = values
    if element_of(types[2]) is f32:
        return tuple([_fused(c, _group(a, k, 2), _group(b, k, 2)) for k, c in enumerate(sums)])
    products = [int(x) * int(y) for x, y in zip(a, b, strict=True)]
    groups = (_group(products, k, 4) for k in range(len(sums)))
    return tuple([wrap(int(c + sum(group)), i32) for c, group in zip(sums, groups, strict=True)])


def _group(lanes: Sequence[Number], k: int, size: int) -> Sequence[Number]:
    return lanes[size * k : size * (k + 1)]


def _fused(total: Number, a: Sequence[Number], b: Sequence[Number]) -> Number:
    for x, y in zip(reversed(a), reversed(b), strict=True):
        total = fma(f32, x, y, total)
    return total
