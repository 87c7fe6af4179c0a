"""How elementwise work is cut: lines, bands of rows, and what is prefetched and streamed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from cubepy.array.memory import Memory
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.elementwise.kernel import MapTiling
from cubepy.targets import Target

BAND = 1 << 14
"""Elements of one cube: enough to hide its start."""
TILE = 64
"""Rows and columns of a cube where rows of some array are columns of memory: these are close."""
UNROLL = 4
AHEAD_BYTES = 1 << 12
"""How far inputs are prefetched."""
TWICE = 1 << 22
"""Elements of arrays of one axis from which on units of wide cubes fill two lines each."""
STREAMED = 16
"""Caches that arrays must exceed before results bypass them."""


def tiling_for(target: Target, views: Sequence[Memory]) -> MapTiling:
    """Lines as wide as those of the result; square tiles where an array is walked across memory."""
    out, *inputs = views
    columns = out.shape[-1]
    line = max(2, target.line_bytes // max(4, out.dtype.itemsize))
    is_broadcast = tuple(x.strides[-1] == 0 for x in inputs)
    is_dense = all(x.strides[-1] in (0, x.dtype.itemsize) for x in views)
    nbytes = sum(prod(x.shape) * x.dtype.itemsize for x in views)
    stream = is_dense and nbytes > STREAMED * target.cache_bytes
    if is_wide(target):
        wide = target.line_bytes // max(a.dtype.itemsize for a in views) if is_dense else 1
        unroll = 2 if len(out.shape) == 1 and columns >= TWICE else 1
        return MapTiling(max(1, wide), unroll, 1, 1, 0, False, is_broadcast)
    if not is_dense:
        return MapTiling(line, 1, TILE, TILE, 0, False, is_broadcast)
    # One stream is too few for the processor's own prefetching; several keep it busy.
    alone = is_broadcast.count(False) == 1
    ahead = AHEAD_BYTES // out.dtype.itemsize if stream and alone else 0
    return MapTiling(line, UNROLL, max(1, BAND // columns), BAND, ahead, stream, is_broadcast)
