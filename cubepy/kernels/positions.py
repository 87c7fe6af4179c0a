"""Positions in arrays, for kernels of any rank."""

from __future__ import annotations

from typing import Any


def unravelled(i: Any, extents: Any) -> Any:
    """The indices of the i-th position in row-major order."""
    if len(extents) < 2:
        return (i,) if len(extents) == 1 else ()
    return (*unravelled(i // extents[-1], extents[:-1]), i % extents[-1])
