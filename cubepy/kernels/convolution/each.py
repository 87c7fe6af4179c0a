"""Convolutions one result at a time: any device, any groups, any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Each:
    """A unit for each result, `units` to a cube; elements are added in the type `sums`."""

    units: int
    sums: DType


@cp.cube
def convolve_each(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    groups: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Each],
) -> None:
    """`x` and `out` are [n, channel, depth, row, column], `weight` [filter, channel, ...]."""
    place = cp.ABSOLUTE_POS
    if place < out.size:
        n, f, z, y, i = unravelled(place, out.shape)
        channels = weight.shape[1]
        c0 = f // (out.shape[1] // groups) * channels
        source, filter = x[n], weight[f]
        found = t.sums(0)
        for a in range(window.kernel[0]):
            depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
            for b in range(window.kernel[1]):
                row = y * window.stride[1] + b * window.dilation[1] - window.before[1]
                for e in range(window.kernel[2]):
                    column = i * window.stride[2] + e * window.dilation[2] - window.before[2]
                    if is_inside(x, depth, row, column):
                        for c in range(channels):
                            v = t.sums(source[c0 + c, depth, row, column])
                            found = found + v * t.sums(filter[c, a, b, e])
        if len(biases):
            found = found + t.sums(biases[0][f])
        if epilogue is None:
            out[n, f, z, y, i] = found
        else:
            line = cp.Line[t.sums, 1](found)
            out[n, f, z, y, i] = applied_along(epilogue, line, (n, f, z, y, i), 4, extras)[0]


def is_inside(x: Any, depth: Any, row: Any, column: Any) -> Any:
    """Whether a tap lies in the array."""
    rows = row >= 0 and row < x.shape[3]
    return rows and column >= 0 and column < x.shape[4] and depth >= 0 and depth < x.shape[2]
