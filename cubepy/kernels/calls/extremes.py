"""Extremes of two numbers as reductions need them: NaN wins, and no zeros are ordered.

GPUs have an instruction for `max` with NaN; where a unit is a plane of its own, as on a CPU, `max`
also orders the zeros, and takes twice the instructions of these selections. NaN comes from a sum:
two selections of `a` would become one of a joint mask, and x86's `max` would not be used. Only `a`
is looked at for NaN, so that a running result that is `b` waits for one `max` alone.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp


def greater_of(a: Any, b: Any) -> Any:
    """The greater of each pair of lanes, NaN if either is."""
    if not a.dtype.is_float or cp.PLANE_DIM > 1:
        return max(a, b)
    return cp.where(a != a, a + b, cp.where(a > b, a, b))


def less_of(a: Any, b: Any) -> Any:
    """The less of each pair of lanes, NaN if either is."""
    if not a.dtype.is_float or cp.PLANE_DIM > 1:
        return min(a, b)
    return cp.where(a != a, a + b, cp.where(a < b, a, b))
