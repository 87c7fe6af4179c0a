"""How attention is divided: by the registers and caches of a CPU, by the shared memory of a GPU."""

from __future__ import annotations

from cubepy.kernels.attention.problem import Configuration, Problem, Squares, Strips
from cubepy.kernels.matmul.strategies import even_part, tile_extents
from cubepy.targets import Target

HIGHEST = 1024
"""Queries of a cube on CPUs: enough that packing keys costs little beside."""
LARGEST = 2048
"""The largest size of a query or value whose packed keys fit a near cache."""
CUBES = 4
"""Cubes for each core, so that one that is slow does not hold up all."""
SIDE = 16


def choose(target: Target, p: Problem) -> Configuration:
    """The kernel for a problem, as its configuration."""
    if target.kind in ("cpu", "interpreter") and max(p.size, p.width) <= LARGEST:
        return strips(target, p)
    return squares(p)


def strips(target: Target, p: Problem) -> Strips:
    """Keys of a step fill a quarter of the second cache, with their values, and the scores of the
    queries in registers half of the nearest; cubes are high, but enough for all cores."""
    line = max(1, target.line_bytes // p.dtype.itemsize)
    most, lines = tile_extents(target)
    rows = even_part(p.queries, most) if p.queries <= 4 * most else most
    step, size = line * lines, p.dtype.itemsize
    keys = target.cache_bytes // 4 // ((p.size + p.width + 2 * step) * size)
    keys = min(keys, max(target.near_bytes // 2 // (rows * size), step), -(-p.keys // step) * step)
    keys = max(1, keys // step) * step
    room = target.cache_bytes // 4 // (size * max(1, p.width + step))
    height = min(p.queries, HIGHEST, max(rows, room))
    while p.heads * -(-p.queries // height) < CUBES * target.cores and height > 8 * rows:
        height = -(-height // 2)
    height = -(-height // rows) * rows
    return Strips(rows, lines, line, height, keys, p.size, p.width, p.dtype, p.is_causal)


def squares(p: Problem) -> Squares:
    """Sixteen by sixteen units; shared memory stays below 32 KiB."""
    wide = 4 if p.width <= 4 * SIDE or p.dtype.bits == 64 else 8
    rows = 2 if p.dtype.bits == 64 or p.queries <= 2 * SIDE else 4
    return Squares(SIDE, rows, 2, wide, SIDE, p.dtype, p.is_causal)
