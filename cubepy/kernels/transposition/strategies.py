"""How a transposition is cut: tiles in registers on CPUs, in shared memory on GPUs."""

from __future__ import annotations

from cubepy.array.memory import Memory
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.transposition.kernel import TransposeTiling
from cubepy.targets import Target

MOST_TILE = 16
"""Rows of a tile in registers: as many lines, which processors hold twice."""
BLOCK = {1: 128, 2: 64, 4: 64, 8: 64}
"""Rows and columns of a block of one cube, by the bytes of an element: few enough pages for the
nearest translation buffer."""
SHARED_TILE = {1: 64, 2: 64, 4: 32, 8: 32}
"""Rows of a tile in shared memory, by the bytes of an element."""


def transpose_tiling(target: Target, x: Memory) -> TransposeTiling:
    """The configuration for views as `kernel` has them."""
    size, (height, width) = x.dtype.itemsize, x.shape[-2:]
    if is_wide(target):
        tile = SHARED_TILE[size]
        return TransposeTiling(tile, tile, tile)
    tile = min(MOST_TILE, max(2, target.line_bytes // size), power_above(min(height, width)))
    block = BLOCK[size]
    return TransposeTiling(tile, block, block, block)


def power_above(n: int) -> int:
    """The least power of two that is not below `n`, at least 2."""
    return max(2, 1 << (n - 1).bit_length())
