"""Prefetches of runs of memory, one for each line of a CPU's caches."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.targets import Target

CACHE_LINE = 64
"""Bytes that a prefetch brings."""


def fills_cache_lines(target: Target) -> bool:
    """Whether lines of a target are as long as those of its caches.

    Where they are shorter, each line of a cache is prefetched twice, and a kernel that reads many
    rows side by side loses more by that than it gains (Zen 1: 1x4096 by 4096x4096 3.8 ms, without
    prefetches 2.9 ms; the sum of 4096 rows of 4096 3.9 and 3.3 ms).
    """
    return target.line_bytes >= CACHE_LINE


def prefetch_run(x: Any, where: Any, start: Any, length: Any) -> None:
    """Prefetch `length` dense elements of `x[where]` from `start` on into the second cache;
    they may lie outside of it."""
    for at in cp.unroll(range(0, length, max(1, CACHE_LINE // x.dtype.itemsize))):
        cp.prefetch(x, (*where, start + at), level=2)
