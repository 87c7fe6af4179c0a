"""Sums times the scales of their factors, as the first part of an epilogue."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied_along


@lru_cache(maxsize=256)
def scaled(
    stands: tuple[bool, ...], biases: int, function: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The epilogue that multiplies sums by so many scales, in f32, adds as many biases, and then
    calls `function`; `stands`: which scales are the same along a row. Its attribute `inside` does
    the same for lines all of which exists."""

    def finish(v: Any, index: Any, *arrays: Any) -> Any:
        return scaled_line(v, index, arrays, stands, biases, function, False)

    def inside(v: Any, index: Any, *arrays: Any) -> Any:
        return scaled_line(v, index, arrays, stands, biases, function, True)

    finish.__dict__["inside"] = inside
    return finish


def scaled_line(
    v: Any, index: Any, arrays: Any, stands: Any, biases: Any, function: Any, is_inside: Any
) -> Any:
    """A line of sums, scaled, with biases, and what `function` makes of it."""
    v = cp.Line[cp.f32, v.line_size](v)
    for k in cp.unroll(range(len(stands))):
        v = v * scale_at(arrays[k], index, v.line_size, stands[k], is_inside)
    for bias in arrays[len(stands) : len(stands) + biases]:
        v = v + line_at(bias, index, v.line_size, is_inside)
    rest = arrays[len(stands) + biases :]
    return v if function is None else applied_along(function, v, index, len(index) - 1, rest)


def scale_at(scale: Any, index: Any, line: Any, stands: Any, is_inside: Any) -> Any:
    """A line of scales; one number where it stands still."""
    if stands:
        return cp.f32(scale[(*index[:-1], 0)])
    return cp.Line[cp.f32, line](line_at(scale, index, line, is_inside))


def line_at(x: Any, index: Any, line: Any, is_inside: Any) -> Any:
    """A line of an array of the result's shape."""
    if is_inside:
        return cp.load(x[index[:-1]], index[-1], line=line, fill=None)
    return cp.load(x[index[:-1]], index[-1], line=line)
