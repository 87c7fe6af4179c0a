"""Sorting long rows by cubes: digit by digit from the lowest on, each stably (Knuth, TAOCP 5.2.5).

For each digit, cubes count the digits of tiles; running sums of all counts, by digits and then by
tiles, say where the elements of a tile with a digit go; and cubes move their tiles. There the units
of a plane find by ballots which of them hold the same digit, so that an element's place among those
is known (Ashkiani et al., "GPU Multisplit", 2016). Tiles are put into order in shared memory first,
so that what goes to one place is written together.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.sorting.keys import key_of, value_of
from cubepy.kernels.sorting.problem import Order
from cubepy.record import dataclass

BITS = 8
"""Bits of a digit."""
DIGITS = 1 << BITS


@dataclass(frozen=True, slots=True)
class DigitTiling:
    """How cubes of `units` units move tiles: `held` elements for each unit. `is_whole`: a tile has
    room for a row, which its cube sorts by all digits."""

    units: int
    held: int
    is_whole: bool = False

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return self.units * self.held

    @property
    def digit(self) -> int:
        """Bits of a digit."""
        return BITS

    def tiles(self, n: int) -> int:
        """For how many cubes a row of `n` elements is."""
        return -(-n // self.tile)


def place_of_cube(n: Any, t: Any) -> Any:
    """The row of a cube, its tile, and how many tiles a row has."""
    tiles = (n + t.tile - 1) // t.tile
    return cp.CUBE_POS // tiles, cp.CUBE_POS % tiles, tiles


def element(x: Any, source: Any, row: Any, j: Any, how: Any) -> Any:
    """The key and the position of element `j` of a row: of the array, before any were moved."""
    if len(source) > 0:
        return source[0][row, j], source[1][row, j]
    where = unravelled(row, x.shape[:-1])
    return key_of(x[(*where, j)], how), how.position(j)


def digit_of(key: Any, shift: Any, how: Any) -> Any:
    """One digit of a key."""
    return cp.i32((key >> how.key(shift)) & how.key(DIGITS - 1))


@cp.cube
def count_digits(
    x: cp.Tensor,
    source: Any,
    counts: cp.Tensor,
    shift: int,
    how: cp.Comptime[Order],
    t: cp.Comptime[DigitTiling],
) -> None:
    """A cube counts the digits of one tile; `counts` is [row, digit and then tile]."""
    n = x.shape[-1]
    row, tile, tiles = place_of_cube(n, t)
    first, found = tile * t.tile, cp.shared(DIGITS, cp.i32)
    for d in range(cp.UNIT_POS, DIGITS, cp.CUBE_DIM):
        found[d] = 0
    cp.sync_cube()
    digits = cp.local(t.held, cp.i32)
    for i in cp.unroll(range(t.held)):
        j = first + i * cp.CUBE_DIM + cp.UNIT_POS
        key, _ = element(x, source, row, min(j, n - 1), how)
        digits[i] = digit_of(key, shift, how)
    for i in cp.unroll(range(t.held)):
        if first + i * cp.CUBE_DIM + cp.UNIT_POS < n:
            cp.atomic.add(found, digits[i], 1)
    cp.sync_cube()
    for d in range(cp.UNIT_POS, DIGITS, cp.CUBE_DIM):
        counts[row, d * tiles + tile] = counts.dtype(found[d])


@cp.cube
def move_digits(
    x: cp.Tensor,
    source: Any,
    sums: cp.Tensor,
    into: Any,
    values: cp.Tensor,
    indices: cp.Tensor,
    shift: int,
    how: cp.Comptime[Order],
    t: cp.Comptime[DigitTiling],
) -> None:
    """A cube moves one tile by a digit, of which `sums` are the running sums of all counts.

    `source` and `into`: keys and positions, [row, element]; the array itself before the first
    digit, and the results after the last one.
    """
    n = x.shape[-1]
    row, tile, tiles = place_of_cube(n, t)
    count = min(t.tile, n - tile * t.tile)
    held = cp.local(t.held, how.key), cp.local(t.held, how.position)
    load_tile(x, source, held, row, tile * t.tile, count, how, t)
    counts, starts = cp.shared((cp.PLANE_COUNT, DIGITS), cp.i32), cp.shared(DIGITS, cp.i32)
    keys, order = cp.shared(t.tile, how.key), cp.shared(t.tile, how.position)
    sort_tile(held, counts, starts, keys, order, shift, how, t)
    bases = cp.shared(DIGITS, how.position)
    for d in range(cp.UNIT_POS, DIGITS, cp.CUBE_DIM):
        at = d * tiles + tile
        before = sums[row, max(at - 1, 0)] if at > 0 else sums.dtype(0)
        bases[d] = how.position(before) - how.position(starts[d])
    cp.sync_cube()
    for k in range(cp.UNIT_POS, count, cp.CUBE_DIM):
        place = bases[digit_of(keys[k], shift, how)] + how.position(k)
        put_element(x, into, values, indices, row, place, keys[k], order[k], how)


@cp.cube
def sort_whole(
    x: cp.Tensor,
    values: cp.Tensor,
    indices: cp.Tensor,
    how: cp.Comptime[Order],
    t: cp.Comptime[DigitTiling],
) -> None:
    """A cube sorts one row, which fits into its tile."""
    n = x.shape[-1]
    held = cp.local(t.held, how.key), cp.local(t.held, how.position)
    load_tile(x, (), held, cp.CUBE_POS, 0, n, how, t)
    counts, starts = cp.shared((cp.PLANE_COUNT, DIGITS), cp.i32), cp.shared(DIGITS, cp.i32)
    keys, order = cp.shared(t.tile, how.key), cp.shared(t.tile, how.position)
    for p in range(how.dtype.bits // BITS):
        sort_tile(held, counts, starts, keys, order, p * BITS, how, t)
        cp.sync_cube()
        for i in cp.unroll(range(t.held)):
            held[0][i], held[1][i] = keys[own_place(i, t)], order[own_place(i, t)]
    for k in range(cp.UNIT_POS, n, cp.CUBE_DIM):
        put_element(x, (), values, indices, cp.CUBE_POS, k, keys[k], order[k], how)


def sort_tile(
    held: Any, counts: Any, starts: Any, keys: Any, order: Any, shift: Any, how: Any, t: Any
) -> None:
    """Put the elements that units hold into the order of a digit, in shared memory."""
    ranks = cp.local(t.held, cp.i32)
    rank_tile(held[0], ranks, counts, shift, how, t)
    add_up(counts, starts)
    for i in cp.unroll(range(t.held)):
        d = digit_of(held[0][i], shift, how)
        place = starts[d] + counts[cp.PLANE_POS, d] + ranks[i]
        keys[place] = held[0][i]
        order[place] = held[1][i]


def own_place(i: Any, t: Any) -> Any:
    """Where in a tile the element `i` of a unit stands: those of a plane follow each other."""
    return cp.PLANE_POS * (cp.PLANE_DIM * t.held) + i * cp.PLANE_DIM + cp.UNIT_POS_PLANE


def load_tile(
    x: Any, source: Any, held: Any, row: Any, first: Any, count: Any, how: Any, t: Any
) -> None:
    """Keys and positions of a tile; behind the last element of a row keys are the greatest."""
    for i in cp.unroll(range(t.held)):
        j = own_place(i, t)
        key, position = element(x, source, row, first + min(j, count - 1), how)
        held[0][i] = cp.where(j < count, key, ~how.key(0))
        held[1][i] = position


def rank_tile(keys: Any, ranks: Any, counts: Any, shift: Any, how: Any, t: Any) -> None:
    """How many elements of the same digit stand before each in its plane, and how many the plane
    has of each."""
    for d in range(cp.UNIT_POS, cp.PLANE_COUNT * DIGITS, cp.CUBE_DIM):
        counts[d // DIGITS, d % DIGITS] = 0
    cp.sync_cube()
    for i in cp.unroll(range(t.held)):
        d = digit_of(keys[i], shift, how)
        same = holders(d)
        below = cp.popcount(same & ((same.dtype(1) << same.dtype(cp.UNIT_POS_PLANE)) - 1))
        before = counts[cp.PLANE_POS, d]
        ranks[i] = before + cp.i32(below)
        cp.sync_plane()
        if below == 0:
            counts[cp.PLANE_POS, d] = before + cp.i32(cp.popcount(same))
        cp.sync_plane()


def holders(digit: Any) -> Any:
    """Bits of the units of the plane that hold the same digit."""
    word = cp.u32 if cp.PLANE_DIM <= 32 else cp.u64
    if cp.PLANE_DIM == 1:
        return word(1)
    found = word((1 << cp.PLANE_DIM) - 1)  # complements of votes have bits that are no unit's
    for b in cp.unroll(range(BITS)):
        is_set = (digit >> b) & 1
        votes = word(cp.plane_ballot(is_set != 0))
        found &= cp.where(is_set != 0, votes, ~votes)
    return found


def add_up(counts: Any, starts: Any) -> None:
    """Counts of planes become what the planes before them have of a digit, and `starts` where a
    digit begins in the tile."""
    cp.sync_cube()
    for d in range(cp.UNIT_POS, DIGITS, cp.CUBE_DIM):
        total = cp.i32(0)
        for p in cp.unroll(range(cp.PLANE_COUNT)):
            own = counts[p, d]
            counts[p, d] = total
            total += own
        starts[d] = total
    cp.sync_cube()
    if cp.PLANE_POS == 0:
        carry = cp.i32(0)
        for k in range(0, DIGITS, cp.PLANE_DIM):
            own = starts[k + cp.UNIT_POS_PLANE]
            starts[k + cp.UNIT_POS_PLANE] = carry + cp.plane_exclusive_sum(own)
            carry += cp.plane_sum(own)
    cp.sync_cube()


def put_element(
    x: Any,
    into: Any,
    values: Any,
    indices: Any,
    row: Any,
    place: Any,
    key: Any,
    position: Any,
    how: Any,
) -> None:
    """Store an element where it goes: its key and position, or at last itself."""
    if len(into) > 0:
        into[0][row, place] = key
        into[1][row, place] = position
    elif place < values.shape[-1]:
        where = unravelled(row, values.shape[:-1])
        values[(*where, place)] = value_of(key, x[unravelled(row, x.shape[:-1])], position, how)
        indices[(*where, place)] = position
