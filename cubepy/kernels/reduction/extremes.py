"""Extremes of rows of floats where each unit is a plane of its own, as on CPUs.

NaN wins, which takes two operations more for each line. So it is left out of comparisons here, and
looked for apart: one comparison asks two lines whether either has NaN.
"""

from __future__ import annotations

import math
from typing import Any

import cubepy as cp


def notes_nan(op: Any) -> Any:
    """Whether a reduction is one of these."""
    return op.name in ("max", "min") and op.dtype.is_float and cp.PLANE_DIM == 1


def number_of(a: Any, b: Any, op: Any) -> Any:
    """The greater or the less of each pair of lanes; `b` if `a` is NaN."""
    return cp.where(a > b if op.name == "max" else a < b, a, b)


def has_nan(lines: Any) -> Any:
    """Whether any of several lines has NaN, lane by lane."""
    if len(lines) == 1:
        return lines[0] != lines[0]
    half = len(lines) // 2
    return has_nan(lines[:half]) | has_nan(lines[half:])


def noted(nans: Any, lines: Any, op: Any) -> Any:
    """Zeros, and NaN in the lanes where these lines or earlier ones had it."""
    return cp.where(has_nan(lines), cp.Line[op.dtype, nans.line_size](math.nan), nans)


def across_lanes(state: Any, op: Any) -> Any:
    """All lanes of a running result, extremes and what `noted` gave, as one number."""
    best, nan = state
    lanes = best.line_size
    if lanes == 1:
        return cp.where(nan == nan, best, nan)[0]
    half = lanes // 2
    return across_lanes((number_of(best[:half], best[half:], op), nan[:half] + nan[half:]), op)
