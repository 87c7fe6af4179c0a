"""Sorting long rows by several cubes of one unit: digit by digit from the lowest on, each stably.

As in `digits`, but each cube walks through its part of a row: it counts the digits of the part;
running sums of all counts, by digits and then by parts, say where the part's elements with a digit
go; and it moves them there in order (Knuth, TAOCP 5.2.5).
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.sorting.digits import element, put_element
from cubepy.kernels.sorting.problem import Order
from cubepy.kernels.sorting.radix import digit_of
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class PartTiling:
    """How cubes sort: `parts` of each row, by digits of `digit` bits."""

    parts: int
    digit: int

    @property
    def units(self) -> int:
        """Of a cube."""
        return 1

    def tiles(self, n: int) -> int:
        """For how many cubes a row of `n` elements is."""
        return self.parts


@cp.cube
def count_part(
    x: cp.Tensor,
    source: Any,
    counts: cp.Tensor,
    shift: int,
    how: cp.Comptime[Order],
    t: cp.Comptime[PartTiling],
) -> None:
    """A cube counts the digits of one part; `counts` is [row, digit and then part]."""
    row, part, first, end = part_of_cube(x.shape[-1], t)
    found = cp.local(1 << t.digit, how.position)
    for d in range(1 << t.digit):
        found[d] = 0
    for j in range(first, end):
        key, _ = element(x, source, row, j, how)
        d = digit_of(key, shift, how, t.digit)
        found[d] = found[d] + 1
    for d in range(1 << t.digit):
        counts[row, d * t.parts + part] = found[d]


@cp.cube
def move_part(
    x: cp.Tensor,
    source: Any,
    sums: cp.Tensor,
    into: Any,
    values: cp.Tensor,
    indices: cp.Tensor,
    shift: int,
    how: cp.Comptime[Order],
    t: cp.Comptime[PartTiling],
) -> None:
    """A cube moves one part by a digit, of which `sums` are the running sums of all counts.
    `source` and `into` are those of `digits.move_digits`."""
    row, part, first, end = part_of_cube(x.shape[-1], t)
    places = cp.local(1 << t.digit, how.position)
    for d in range(1 << t.digit):
        at = d * t.parts + part
        places[d] = sums[row, max(at - 1, 0)] if at > 0 else sums.dtype(0)
    for j in range(first, end):
        key, position = element(x, source, row, j, how)
        d = digit_of(key, shift, how, t.digit)
        place = places[d]
        places[d] = place + 1
        put_element(x, into, values, indices, row, place, key, position, how)


def part_of_cube(n: Any, t: Any) -> Any:
    """The row of a cube, its part, and the part's first element and end."""
    size, part = (n + t.parts - 1) // t.parts, cp.CUBE_POS % t.parts
    return cp.CUBE_POS // t.parts, part, part * size, min((part + 1) * size, n)
