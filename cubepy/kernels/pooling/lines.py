"""A kernel of pooling by the units of wide cubes, for lines along the channels:
`x[n, depth, row, column, channel]`.

A unit makes a line of channels of one output. Of a window inside of the array it loads all elements
before it combines them, so that they arrive together.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.pooling.numbers import combined, compared, divisor_of, finished, read
from cubepy.kernels.pooling.problem import Pooling
from cubepy.kernels.pooling.windows import spans_of, window_line
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class LineTiling:
    """How a kernel goes through its data: `line` channels at a time, by cubes of `units` units;
    `is_whole`: the channels are whole lines."""

    line: int
    units: int
    is_whole: bool


@cp.cube
def pool_lines(
    x: cp.Tensor,
    out: cp.Tensor,
    extras: Any,
    how: cp.Comptime[Pooling],
    tiling: cp.Comptime[LineTiling],
    functions: cp.Comptime[Any],
) -> None:
    """A unit for each line of channels of each output."""
    via, line = (*functions, extras), tiling.line
    lines = (out.shape[4] + line - 1) // line
    if out.shape[0] * out.shape[1] * out.shape[2] * out.shape[3] * lines > cp.ABSOLUTE_POS:
        n, z, y, j, place = unravelled(cp.ABSOLUTE_POS, (*out.shape[:4], lines))
        c, window = place * line, how.window
        starts = tuple((z, y, j)[k] * window.stride[k] - window.padding[k] for k in range(3))
        spans = spans_of((z, y, j), x.shape, out.shape, how)
        divisor = divisor_of(spans, (z, y, j), x.shape[1:], compared(x.dtype), how)
        if is_inside(starts, x.shape, window):
            v = combined(named(x[n], starts, c, how, tiling, via), how)
        else:
            v = window_line(x[n], spans, c, line, how, via)
        v = finished(v, (n, c, z, y, j), divisor, how, via, 1)
        cp.store(out, (n, z, y, j, c), v, whole=tiling.is_whole)


def is_inside(starts: Any, extents: Any, window: Any) -> Any:
    """Whether all elements of a window are of the array."""
    found = True
    for k in cp.unroll(range(3)):
        end = starts[k] + (window.kernel[k] - 1) * window.dilation[k]
        found = found and starts[k] >= 0 and end < extents[k + 1]
    return found


def named(x: Any, starts: Any, c: Any, how: Any, tiling: Any, via: Any) -> Any:
    """The elements of a window, each a line of channels."""
    kernel, step = how.window.kernel, how.window.dilation
    return tuple(
        read(
            x,
            (starts[0] + a * step[0], starts[1] + b * step[1], starts[2] + e * step[2], c),
            tiling.line,
            tiling.is_whole,
            how,
            via,
        )
        for a in range(kernel[0])
        for b in range(kernel[1])
        for e in range(kernel[2])
    )
