"""Sums times the scales of their factors, as the first part of an epilogue."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied


@lru_cache(maxsize=256)
def scaled(
    stands: tuple[bool, ...], biases: int, function: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The epilogue that multiplies sums by so many scales, in f32, adds as many biases, and then
    calls `function`; `stands`: which scales are the same along a row."""

    def finish(v: Any, index: Any, *arrays: Any) -> Any:
        v = cp.Line[cp.f32, v.line_size](v)
        for k in cp.unroll(range(len(stands))):
            v = v * scale_at(arrays[k], index, v.line_size, stands[k])
        for bias in arrays[len(stands) : len(stands) + biases]:
            v = v + cp.load(bias[index[:-1]], index[-1], line=v.line_size)
        rest = arrays[len(stands) + biases :]
        return v if function is None else applied(function, v, (index, *rest))

    return finish


def scale_at(scale: Any, index: Any, line: Any, stands: Any) -> Any:
    """A line of scales; one number where it stands still."""
    if stands:
        return cp.f32(scale[(*index[:-1], 0)])
    return cp.Line[cp.f32, line](cp.load(scale[index[:-1]], index[-1], line=line))
