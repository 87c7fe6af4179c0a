"""Selection of the first few elements of rows by cubes that read a row twice.

The first time each unit finds its least key. As many units as elements are asked for have one that
is not greater than some bound, so that the elements up to the bound hold the result, and they are
few unless many are equal. The second time these are gathered in shared memory, where each finds its
place by comparing itself with all others. Where they are too many, the bound is made exact: the key
and the position of the last element asked for, digit by digit.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import cube_max
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.sorting.keys import key_of
from cubepy.kernels.sorting.problem import Order
from cubepy.record import dataclass

DIGIT = 8
"""Bits of a key or position that are decided at a time."""


@dataclass(frozen=True, slots=True)
class SelectTiling:
    """How cubes of `units` units select: `line` elements at a time; `room` for elements up to the
    bound, at least as many as are asked for; `rounds`: units of a plane that the bound is made of.
    """

    line: int
    units: int
    room: int
    rounds: int


@cp.cube
def select_rows(
    x: cp.Tensor,
    values: cp.Tensor,
    indices: cp.Tensor,
    how: cp.Comptime[Order],
    tiling: cp.Comptime[SelectTiling],
) -> None:
    """A cube writes the first elements of one row in order, and where they are."""
    where = unravelled(cp.CUBE_POS, values.shape[:-1])
    row, wanted = x[where], values.shape[-1]
    keys, order = cp.shared(tiling.room, how.key), cp.shared(tiling.room, how.position)
    count = cp.shared(1, cp.u32)
    if cp.UNIT_POS == 0:
        count[0] = 0
    cp.sync_cube()
    bound = rough_bound(least_key(row, how, tiling), how, tiling)
    gather(row, bound, how.position(row.shape[0]), keys, order, count, how, tiling)
    cp.sync_cube()
    if cube_max(count[0]) > tiling.room:
        key, position = exact_bound(row, cp.u32(wanted), how)
        if cp.UNIT_POS == 0:
            count[0] = 0
        cp.sync_cube()
        gather(row, key, position, keys, order, count, how, tiling)
        cp.sync_cube()
    found = count[0]
    for i in range(cp.UNIT_POS, found, cp.CUBE_DIM):
        place = place_of(keys[i], order[i], keys, order, found)
        if place < wanted:
            values[(*where, place)] = x[(*where, order[i])]
            indices[(*where, place)] = order[i]


def least_key(row: Any, how: Any, tiling: Any) -> Any:
    """The least key of a unit's elements."""
    line = tiling.line
    whole = row.shape[0] // line * line
    least = cp.Line[how.key, line](how.last)
    for j in range(cp.UNIT_POS * line, whole, cp.CUBE_DIM * line):
        least = min(least, key_of(cp.load(row, j, line=line, fill=None), how))
    found = least.min()
    for j in range(whole + cp.UNIT_POS, row.shape[0], cp.CUBE_DIM):
        found = min(found, key_of(row[j], how))
    return found


def rough_bound(own: Any, how: Any, tiling: Any) -> Any:
    """A key that so many units of each plane have not exceeded as there are rounds, for the plane
    where it is greatest; the last key where there are not so many."""
    found = cp.plane_min(own)
    for _ in cp.unroll(range(1, tiling.rounds)):
        found = cp.plane_min(cp.where(own > found, own, how.key(how.last)))
    return cube_max(found)


def gather(
    row: Any,
    key: Any,
    position: Any,
    keys: Any,
    order: Any,
    count: Any,
    how: Any,
    tiling: Any,
) -> None:
    """Put all elements up to a key, and of equal ones up to a position, into shared memory in any
    order, as far as there is room, and count them."""
    line = tiling.line
    whole = row.shape[0] // line * line
    for j in range(cp.UNIT_POS * line, whole, cp.CUBE_DIM * line):
        found = key_of(cp.load(row, j, line=line, fill=None), how)
        if found.min() <= key:
            for k in cp.unroll(range(line)):
                put(found[k], how.position(j + k), key, position, keys, order, count, tiling)
    for i in range(whole + cp.UNIT_POS, row.shape[0], cp.CUBE_DIM):
        put(key_of(row[i], how), how.position(i), key, position, keys, order, count, tiling)


def put(
    found: Any, at: Any, key: Any, position: Any, keys: Any, order: Any, count: Any, tiling: Any
) -> None:
    """Gather one element, if it is not behind the bound."""
    if found < key or (found == key and at <= position):
        place = cp.atomic.add(count, 0, 1)
        if place < tiling.room:
            keys[place] = found
            order[place] = at


def place_of(key: Any, position: Any, keys: Any, order: Any, count: Any) -> Any:
    """How many of the gathered elements come before one of them."""
    found = cp.i32(0)
    for k in range(count):
        is_before = keys[k] < key or (keys[k] == key and order[k] < position)
        found += cp.where(is_before, 1, 0)
    return found


# Many equal elements


def exact_bound(row: Any, wanted: Any, how: Any) -> Any:
    """The key and the position of the element that comes `wanted`-th, digit by digit."""
    counts = cp.shared(1 << DIGIT, cp.u32)
    key, known, rest = how.key(0), how.key(0), wanted
    for p in range(how.dtype.bits // DIGIT):
        shift = how.key(how.dtype.bits - DIGIT * (p + 1))
        clear(counts)
        for j in range(cp.UNIT_POS, row.shape[0], cp.CUBE_DIM):
            found = key_of(row[j], how)
            if (found & known) == key:
                cp.atomic.add(counts, cp.i32((found >> shift) & how.key((1 << DIGIT) - 1)), 1)
        cp.sync_cube()
        digit, rest = digit_of(counts, rest)
        key |= how.key(digit) << shift
        known |= how.key((1 << DIGIT) - 1) << shift
    position, settled = how.position(0), how.position(0)
    for p in range(how.position.bits // DIGIT):
        shift = how.position(how.position.bits - DIGIT * (p + 1))
        clear(counts)
        for j in range(cp.UNIT_POS, row.shape[0], cp.CUBE_DIM):
            at = how.position(j)
            if key_of(row[j], how) == key and (at & settled) == position:
                cp.atomic.add(counts, cp.i32((at >> shift) & how.position((1 << DIGIT) - 1)), 1)
        cp.sync_cube()
        digit, rest = digit_of(counts, rest)
        position |= how.position(digit) << shift
        settled |= how.position((1 << DIGIT) - 1) << shift
    return key, position


def clear(counts: Any) -> None:
    """Zeros, when all units have read what was there."""
    cp.sync_cube()
    for k in range(cp.UNIT_POS, 1 << DIGIT, cp.CUBE_DIM):
        counts[k] = 0
    cp.sync_cube()


def digit_of(counts: Any, rest: Any) -> Any:
    """The digit of the element that comes `rest`-th, and its place among those with that digit."""
    digit = cp.i32(0)
    while digit < (1 << DIGIT) - 1 and rest > counts[digit]:
        rest = rest - counts[digit]
        digit = digit + 1
    return digit, rest
