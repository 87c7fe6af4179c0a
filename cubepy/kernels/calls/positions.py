"""Positions in arrays, for kernels of any rank."""

from __future__ import annotations

from typing import Any

import cubepy as cp


def product(extents: Any) -> Any:
    """How many positions there are: of all extents; 1 of none."""
    if len(extents) < 2:
        return extents[0] if len(extents) == 1 else 1
    return product(extents[:-1]) * extents[-1]  # a local whose type grows would be traced twice


def unravelled(i: Any, extents: Any) -> Any:
    """The indices of the i-th position in row-major order."""
    if len(extents) < 2:
        return (i,) if len(extents) == 1 else ()
    return (*unravelled(i // extents[-1], extents[:-1]), i % extents[-1])


def count_up(n: Any, dtype: Any) -> Any:
    """The line 0, 1, ..., n - 1."""
    if n == 1:
        return cp.Line[dtype, 1](0)
    half = count_up(n // 2, dtype)
    both = cp.concat(half, half + n // 2)
    return cp.concat(both, cp.Line[dtype, 1](n - 1)) if n % 2 else both


def is_whole(start: Any, axis: Any, extent: Any, window: Any) -> Any:
    """Whether all taps of a window that begins at `start` of an axis are inside."""
    return start >= 0 and start + window.spans[axis] <= extent
