"""Prefetches of runs of memory, one for each line of a CPU's caches."""

from __future__ import annotations

from typing import Any

import cubepy as cp

CACHE_LINE = 64
"""Bytes that a prefetch brings."""


def prefetch_run(x: Any, where: Any, start: Any, length: Any) -> None:
    """Prefetch `length` dense elements of `x[where]` from `start` on into the second cache;
    they may lie outside of it."""
    for at in cp.unroll(range(0, length, max(1, CACHE_LINE // x.dtype.itemsize))):
        cp.prefetch(x, (*where, start + at), level=2)
