"""Work that the units of a cube share; with cubes of one unit, as on a CPU, these cost nothing."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.jit.classes import alignment_of
from cubepy.targets import Target

ONE_BY_ONE = GROUPS = 16
"""Parts of planes that each unit combines by itself; more are combined in so many groups first."""
EACH_BYTES, GROUPED_UNITS = 64, 128
"""What one unit reads of a short row, at most, and units of a cube that shares such rows out among
groups of them."""
SHARED_UNITS, LEAST_BESIDE, MOST_ROWS = (512, 1024), 8, 64
"""Units of a cube that shares columns, lines of columns of one at least, where there are few, and
rows of a unit at most: for more of them parts of columns come first."""
JOINED, LEAST_JOINING = 8, 64
"""Parts of a result that a unit joins, and the least units that join them."""
MOST_SHARED = 48 << 10
"""Bytes of shared memory that leave room for several cubes."""


def is_wide(target: Target) -> bool:
    """Whether cubes have many units, as on GPUs; on a CPU a cube is one task of one unit."""
    return target.kind not in ("cpu", "interpreter")


def begins_lines(target: Target, x: Memory) -> bool:
    """Whether all rows of an array begin where launches promise that lines do, so that a line is
    one access of memory. Of other rows, lines of more than one element are read by element, and
    what neighbouring units read does not lie side by side."""
    strides = zip(x.shape[:-1], x.strides[:-1], strict=True)
    places = (x.address, *(s for n, s in strides if n > 1))
    return not any(v % alignment_of(target) for v in places)


def units_of_short_row(target: Target, line: int, n: int, size: int) -> int:
    """Units of a plane that share a row of `n` elements of `size` bytes, a power of two; 0 where a
    row is worth a cube. Without lines, a whole plane reads words too slowly."""
    units, each = 1, max(line, EACH_BYTES // size)
    while units * each < n:
        units *= 2
    most = target.plane_dim if line > 1 or size < 4 else target.plane_dim // 2
    return units if units <= most else 0


def joining_units(target: Target, parts: int) -> int:
    """Units of a cube that joins so many parts of one result."""
    units = LEAST_JOINING
    while units < target.max_cube_dim and units * JOINED < parts:
        units *= 2
    return units


def units_above_each_other(
    target: Target, lines: int, rows: int, inner: int, nbytes: int
) -> tuple[int, int]:
    """Lines of columns of a cube, and units that share the rows of each, for so many lines in all,
    with `inner` elements of each of the rows.

    `nbytes`: of shared memory for each unit. (0, 0) where units would have too many elements, and
    where the device has too few units or too little shared memory for a cube.
    """
    beside = target.plane_dim
    while beside > LEAST_BESIDE and lines < beside * target.multiprocessors:
        beside //= 2
    room = min(MOST_SHARED, target.shared_bytes) // nbytes
    for units in SHARED_UNITS:
        is_enough = -(-rows // (units // beside)) * inner <= MOST_ROWS
        if is_enough and units <= min(room, target.max_cube_dim):
            return beside, units // beside
    return 0, 0


def over_cube(v: Any, combine: Any, combine_plane: Any) -> Any:
    """One number of all units of a cube, known to all of them."""
    if cp.CUBE_DIM == 1:
        return v
    v = combine_plane(v)
    if cp.PLANE_COUNT == 1:
        return v
    parts = cp.shared(cp.PLANE_COUNT, v.dtype)
    if cp.plane_elect():
        parts[cp.UNIT_POS // cp.PLANE_DIM] = v
    cp.sync_cube()
    if cp.PLANE_COUNT > ONE_BY_ONE:
        gather_groups(parts, cp.PLANE_COUNT // GROUPS, combine)
    found = parts[0]
    for k in cp.unroll(range(1, min(cp.PLANE_COUNT, ONE_BY_ONE))):
        found = combine(found, parts[k])
    cp.sync_cube()
    return found


def gather_groups(parts: Any, size: Any, combine: Any) -> None:
    """Groups of `size` parts as the first `GROUPS` parts."""
    found = parts[0]
    if cp.UNIT_POS < GROUPS:
        found = parts[cp.UNIT_POS * size]
        for k in range(1, size):
            found = combine(found, parts[cp.UNIT_POS * size + k])
    cp.sync_cube()
    if cp.UNIT_POS < GROUPS:
        parts[cp.UNIT_POS] = found
    cp.sync_cube()


def over_group(v: Any, size: Any, combine: Any) -> Any:
    """One number of `size` units beside each other in a plane, a power of two, known to them."""
    if size == 1:
        return v
    half = size // 2
    return over_group(combine(v, cp.plane_shuffle_xor(v, half)), half, combine)


def unit_of_columns(beside: Any, items: Any) -> Any:
    """Of a cube with `beside` columns of units: the unit's column and row in it, the item of that
    column, and whether it is one of the `items`; the last stands for those that are none."""
    own = cp.UNIT_POS % beside
    item = cp.CUBE_POS * beside + own
    return own, cp.UNIT_POS // beside, min(item, items - 1), item < items


def join_rows(parts: Any, own: Any, row: Any, rows: Any, join: Any) -> None:
    """Join what `rows` units above each other have in the shared `parts[k][row, own]`, in the first
    row; `join` makes one tuple of two. `rows`: a power of two."""
    cp.sync_cube()
    if rows > 1:
        half = rows // 2
        if row < half:
            one, two = (tuple(p[row + r, own] for p in parts) for r in (0, half))
            found = join(one, two)
            for k in cp.unroll(range(len(parts))):
                parts[k][row, own] = found[k]
        join_rows(parts, own, row, half, join)


def add(a: Any, b: Any) -> Any:
    """a + b"""
    return a + b


def multiply(a: Any, b: Any) -> Any:
    """a * b"""
    return a * b


def cube_sum(v: Any) -> Any:
    """The sum over the units of a cube."""
    return over_cube(v, add, cp.plane_sum)


def cube_max(v: Any) -> Any:
    """The maximum over the units of a cube."""
    return over_cube(v, max, cp.plane_max)


def cube_min(v: Any) -> Any:
    """The minimum over the units of a cube."""
    return over_cube(v, min, cp.plane_min)


def cube_prod(v: Any) -> Any:
    """The product over the units of a cube."""
    return over_cube(v, multiply, cp.plane_prod)
