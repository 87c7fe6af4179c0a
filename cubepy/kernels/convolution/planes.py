"""Convolutions of few filters on CPUs: lines of pixels.

Nothing is shared by filters, or by few, so that there is no product of matrices in it: a line of
results is multiplied and added tap by tap, from a tap's line of the array. Taps of one channel stay
in registers where they are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.calls.positions import count_up, is_whole, unravelled
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Planes:
    """How cubes go through planes: `line` pixels at a time, in the type `sums`, of `band` rows.

    The last line of a row begins where it fits, and makes some results again.
    """

    line: int
    band: int
    sums: DType


def first_of(place: Any, axis: Any, window: Any) -> Any:
    """Where the window of a result begins along an axis."""
    return place * window.stride[axis] - window.before[axis]


def tap_numbers(window: Any) -> Any:
    """The taps of a window, in row-major order."""
    return tuple(
        (a, b, e)
        for a in range(window.kernel[0])
        for b in range(window.kernel[1])
        for e in range(window.kernel[2])
    )


def place_of(tap: Any, starts: Any, window: Any) -> Any:
    """Where a tap of the window lies that begins at `starts`."""
    return tuple(starts[k] + tap[k] * window.dilation[k] for k in range(3))


@cp.cube
def convolve_planes(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Planes],
) -> None:
    """A cube makes a part of one plane. `x` and `out` are [n, channel, depth, row, column]."""
    bands = (out.shape[3] + t.band - 1) // t.band
    n, f, z, band = unravelled(cp.CUBE_POS, (*out.shape[:3], bands))
    planes, filter = x[n], weight[f]
    c0 = f // (out.shape[1] // (x.shape[1] // weight.shape[1])) * weight.shape[1]
    taps = taps_of(filter[0], window, t)
    start = cp.Line[t.sums, t.line](0)
    if len(biases) > 0:
        start = cp.Line[t.sums, t.line](t.sums(biases[0][f]))
    first, columns = band * t.band, out.shape[4]
    for y in range(first, min(first + t.band, out.shape[3])):
        row = out[n, f, z, y]
        for at in range(0, columns, t.line):
            j = min(at, columns - t.line)
            v = line_of_pixels(planes[c0], taps, start, (z, y, j), window, t)
            for c in range(1, weight.shape[1]):
                more = taps_of(filter[c], window, t)
                v = line_of_pixels(planes[c0 + c], more, v, (z, y, j), window, t)
            if epilogue is not None:
                v = applied_along(epilogue, v, (n, f, z, y, j), 4, extras)
            put(row, j, v, t.line)


def taps_of(filter: Any, window: Any, t: Any) -> Any:
    """The taps of one channel, each as a line."""
    return tuple(
        cp.Line[t.sums, t.line](t.sums(filter[a, b, e])) for a, b, e in tap_numbers(window)
    )


def line_of_pixels(x: Any, taps: Any, start: Any, place: Any, window: Any, t: Any) -> Any:
    """The sums of a line of results from `place` on, of a plane `x[depth, row, column]`."""
    starts = tuple(first_of(place[k], k, window) for k in range(3))
    steps = t.line * window.stride[2]
    end = starts[2] + (window.kernel[2] - 1) * window.dilation[2] + steps
    rows = is_whole(starts[0], 0, x.shape[0], window) and is_whole(starts[1], 1, x.shape[1], window)
    total = start
    if rows and starts[2] >= 0 and end <= x.shape[2]:
        for k, tap in enumerate(tap_numbers(window)):
            d, r, c = place_of(tap, starts, window)
            total = total + pixels(x[d, r], c, window, t, None) * taps[k]
    else:
        for k, tap in enumerate(tap_numbers(window)):
            d, r, c = place_of(tap, starts, window)
            if d >= 0 and d < x.shape[0] and r >= 0 and r < x.shape[1]:
                there = inside(c, x.shape[2], window, t)
                more = total + pixels(x[d, r], c, window, t, 0) * taps[k]
                total = cp.where(there, more, total)  # a product of 0 may be NaN
    return total


def inside(c: Any, extent: Any, window: Any, t: Any) -> Any:
    """Which results of a line see an element of a row there, from `c` on."""
    step, lanes = window.stride[2], count_up(t.line, cp.i32)
    first = cp.i32(max(0, min(t.line, (step - 1 - c) // step)))
    end = cp.i32(max(0, min(t.line, (extent - c + step - 1) // step)))
    return (lanes >= first) & (lanes < end)


def pixels(row: Any, c: Any, window: Any, t: Any, fill: Any) -> Any:
    """What one tap sees for a line of results: every element of a row from `c` on, or some."""
    stride = window.stride[2]
    if t.line == 1:
        return cp.Line[t.sums, 1](t.sums(row[max(0, min(c, row.shape[0] - 1))]))
    v = cp.load(row, c, line=t.line * stride, fill=fill)
    v = v if stride == 1 else v[::stride]
    return v if v.dtype == t.sums else t.sums(v)


def put(out: Any, j: Any, v: Any, line: Any) -> None:
    """Store a line."""
    if line == 1:
        out[j] = out.dtype(v[0])
    else:
        cp.store(out, j, v if v.dtype == out.dtype else out.dtype(v), whole=True)
