"""Kernels that exchange two axes of memory: in registers, and through shared memory.

Views have the axis that is dense in the result last but one in `x` and last in `out`, and the axis
that is dense in `x` the other way round; any axes before them are the same in both.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import unravelled
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class TransposeTiling:
    """How a kernel goes through its data.

    A cube makes `band` rows by `columns` of `x`: on CPUs multiples of `tile`, in tiles of as many
    rows and columns. Rows are prefetched `ahead` elements before they are needed, 0 for not.
    """

    tile: int
    band: int
    columns: int
    ahead: int = 0


def exchanged(lines: Any, bit: Any) -> Any:
    """Lines in which `bit` of the row has become the upper bit of the lane, and the lowest bit of
    the lane that of the row."""
    if bit == len(lines):
        return lines
    pairs = tuple(
        cp.concat(lines[k - k // bit % 2 * bit], lines[k - k // bit % 2 * bit + bit])[
            k // bit % 2 :: 2
        ]
        for k in range(len(lines))
    )
    return exchanged(pairs, 2 * bit)


def transpose_tile(x: Any, out: Any, i: Any, j: Any, tiling: Any) -> None:
    """A tile whose elements all exist, by log2(tile) steps in registers."""
    n = tiling.tile
    if tiling.ahead:
        for k in cp.unroll(range(n)):
            cp.prefetch(x, (i + k, j + tiling.ahead))
    lines = tuple(cp.load(x, (i + k, j), line=n, fill=None) for k in range(n))
    rows = exchanged(lines, 1)
    for k in cp.unroll(range(n)):
        cp.store(out, (j + k, i), rows[k], whole=True)


def transpose_edge(x: Any, out: Any, i: Any, j: Any, tiling: Any) -> None:
    """A tile that reaches beyond the rows or columns of `x`."""
    n, last = tiling.tile, x.shape[0] - 1
    lines = tuple(cp.load(x, (min(i + k, last), j), line=n) for k in range(n))
    rows = exchanged(lines, 1)
    for k in cp.unroll(range(n)):
        if j + k < x.shape[1]:
            cp.store(out, (j + k, i), rows[k])


@cp.cube
def transpose_tiles(x: cp.Tensor, out: cp.Tensor, tiling: cp.Comptime[TransposeTiling]) -> None:
    """A cube transposes a block, tile by tile; whole tiles before the others."""
    n, outer = tiling.tile, x.rank - 2
    height, width = x.shape[outer], x.shape[outer + 1]
    across = (width + tiling.columns - 1) // tiling.columns
    down = (height + tiling.band - 1) // tiling.band
    where = unravelled(cp.CUBE_POS // (across * down), x.shape[:outer])
    block = cp.CUBE_POS % (across * down)
    first, left = block // across * tiling.band, block % across * tiling.columns
    end, right = min(first + tiling.band, height), min(left + tiling.columns, width)
    whole = left + (right - left) // n * n
    seen, made = x[where], out[where]
    for i in range(first, end, n):
        edge = left
        if i + n <= height:
            for j in range(left, whole, n):
                transpose_tile(seen, made, i, j, tiling)
            edge = whole
        for j in range(edge, right, n):
            transpose_edge(seen, made, i, j, tiling)


@cp.cube
def transpose_shared(x: cp.Tensor, out: cp.Tensor, tiling: cp.Comptime[TransposeTiling]) -> None:
    """A wide cube transposes one block through shared memory, whose rows have an odd length, so
    that its columns lie in different banks. Units that follow each other read what follows in
    memory, and store so, also where rows or columns are short."""
    high, wide, outer = tiling.band, tiling.columns, x.rank - 2
    height, width = x.shape[outer], x.shape[outer + 1]
    across, down = (width + wide - 1) // wide, (height + high - 1) // high
    where = unravelled(cp.CUBE_POS // (across * down), x.shape[:outer])
    block = cp.CUBE_POS % (across * down)
    i, j = block // across * high, block % across * wide
    pitch = wide + 1 - wide % 2
    tile = cp.shared(high * pitch, x.dtype)
    seen, made = x[where], out[where]
    for k in cp.unroll(range(0, high * wide, cp.CUBE_DIM)):
        row, column = (k + cp.UNIT_POS) // wide, (k + cp.UNIT_POS) % wide
        if row < min(high, height - i) and j + column < width:
            tile[row * pitch + column] = seen[i + row, j + column]
    cp.sync_cube()
    for k in cp.unroll(range(0, high * wide, cp.CUBE_DIM)):
        row, column = (k + cp.UNIT_POS) % high, (k + cp.UNIT_POS) // high
        if i + row < height and column < min(wide, width - j):
            made[j + column, i + row] = tile[row * pitch + column]
