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
"""Rows of a block in shared memory, by the bytes of an element."""
FEW, PLANE = 32, 32
"""Rows or columns, at most, that a block has all of, beside multiples of so many others."""


def transpose_tiling(target: Target, x: Memory) -> TransposeTiling:
    """The configuration for views as `kernel` has them."""
    size, (height, width) = x.dtype.itemsize, x.shape[-2:]
    if is_wide(target):
        return TransposeTiling(1, *_block(SHARED_TILE[size], height, width))
    tile = min(MOST_TILE, max(2, target.line_bytes // size), power_above(min(height, width)))
    block = BLOCK[size]
    return TransposeTiling(tile, block, block, block)


def _block(tile: int, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of a block on GPUs: as many of each, or all of those that are few."""
    few, many = min(height, width), max(height, width)
    if few > FEW:
        return tile, tile
    others = min(tile * tile // few, many + PLANE - 1) // PLANE * PLANE
    return (few, others) if height < width else (others, few)


def power_above(n: int) -> int:
    """The least power of two that is not below `n`, at least 2."""
    return max(2, 1 << (n - 1).bit_length())
