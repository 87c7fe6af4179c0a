"""Convolutions whose results depend on one channel each, and those of few filters: lines of pixels
or of channels.

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
class Depth:
    """How cubes go through planes: `line` pixels (or channels) at a time, in the type `sums`.

    A cube makes `band` rows of `columns` pixels, of all channels where these lie side by side, of
    which `pixels` go together. Each part has at least a line, and its last line begins where that
    fits, and makes some results again.
    """

    line: int
    band: int
    columns: int
    sums: DType
    pixels: int


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


# Lines of pixels


@cp.cube
def convolve_planes(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Depth],
) -> None:
    """A cube makes a part of one plane. `x` and `out` are [n, channel, depth, row, column]."""
    bands = (out.shape[3] + t.band - 1) // t.band
    strips = (out.shape[4] + t.columns - 1) // t.columns
    extents = (*out.shape[:3], bands, strips)
    n, f, z, band, strip = unravelled(cp.CUBE_POS, extents)
    planes, filter = x[n], weight[f]
    c0 = f // (out.shape[1] // (x.shape[1] // weight.shape[1])) * weight.shape[1]
    taps = taps_of(filter[0], window, t)
    start = cp.Line[t.sums, t.line](0)
    if len(biases) > 0:
        start = cp.Line[t.sums, t.line](t.sums(biases[0][f]))
    first, left = band * t.band, strip * t.columns
    right = min(left + t.columns, out.shape[4])
    for y in range(first, min(first + t.band, out.shape[3])):
        row = out[n, f, z, y]
        for at in range(left, right, t.line):
            j = min(at, right - t.line)
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


# Lines of channels


@cp.cube
def convolve_channels(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Depth],
) -> None:
    """A cube makes some pixels. `x` and `out` are [n, depth, row, column,
    channel], `weight` is [depth, row, column, channel]."""
    bands = (out.shape[2] + t.band - 1) // t.band
    strips = (out.shape[3] + t.columns - 1) // t.columns
    extents = (*out.shape[:2], bands, strips)
    n, z, band, strip = unravelled(cp.CUBE_POS, extents)
    first, left, channels = band * t.band, strip * t.columns, out.shape[4]
    right = min(left + t.columns, out.shape[3])
    some = (x[n], weight, out[n, z], biases, extras)
    for y in range(first, min(first + t.band, out.shape[2])):
        for at in range(0, channels, t.line):
            c = min(at, channels - t.line)
            row_of_channels(some, (n, z, y), (left, right), c, window, epilogue, t)


def row_of_channels(
    arrays: Any, where: Any, strip: Any, c: Any, window: Any, epilogue: Any, t: Any
) -> None:
    """The results [left, right) of a row, of the line of channels from `c` on."""
    x, weight, out, biases, extras = arrays
    n, z, y = where
    taps = tuple(channels(weight, (*tap, c), t) for tap in tap_numbers(window))
    start = cp.Line[t.sums, t.line](0)
    if len(biases) > 0:
        start = channels(biases[0], (c,), t)
    first = tuple(first_of(where[k + 1], k, window) for k in range(2))
    begin, end = strip[0], strip[0]
    if is_whole(first[0], 0, x.shape[0], window) and is_whole(first[1], 1, x.shape[1], window):
        begin, end = inner_span(strip, 2, x.shape[2], window)
        end = begin + max(0, end - begin) // t.pixels * t.pixels
    for j in range(strip[0], begin):
        v = guarded(x, taps, start, (z, y, j), c, window, t)
        finish(out[y, j], v, (n, c, z, y, j), extras, epilogue, t)
    for j in range(begin, end, t.pixels):
        found = whole(x, taps, start, (z, y, j), c, window, t)
        for k in cp.unroll(range(t.pixels)):
            finish(out[y, j + k], found[k], (n, c, z, y, j + k), extras, epilogue, t)
    for j in range(end, strip[1]):
        v = guarded(x, taps, start, (z, y, j), c, window, t)
        finish(out[y, j], v, (n, c, z, y, j), extras, epilogue, t)


def inner_span(span: Any, axis: Any, extent: Any, window: Any) -> Any:
    """The results of a span along an axis all of whose taps are inside."""
    step, before = window.stride[axis], window.before[axis]
    begin = max(span[0], min(span[1], (before + step - 1) // step))
    room = extent + before - window.spans[axis]
    end = span[0] if room < 0 else min(span[1], room // step + 1)
    return begin, max(begin, end)


def finish(out: Any, v: Any, index: Any, extras: Any, epilogue: Any, t: Any) -> None:
    """Store a line of channels of the result at `index`."""
    if epilogue is not None:
        v = applied_along(epilogue, v, index, 1, extras)
    put(out, index[1], v, t.line)


def whole(x: Any, taps: Any, start: Any, place: Any, c: Any, window: Any, t: Any) -> Any:
    """The sums of a line of channels of some pixels beside each other, whose taps are inside."""
    starts = tuple(first_of(place[k], k, window) for k in range(3))
    totals, step = tuple(start for _ in range(t.pixels)), window.stride[2]
    for k, tap in enumerate(tap_numbers(window)):
        d, r, i = place_of(tap, starts, window)
        totals = tuple(
            totals[p] + channels(x, (d, r, i + p * step, c), t) * taps[k] for p in range(t.pixels)
        )
    return totals


def guarded(x: Any, taps: Any, start: Any, place: Any, c: Any, window: Any, t: Any) -> Any:
    """The sums of a line of channels at `place`, of the taps that are inside."""
    starts = tuple(first_of(place[k], k, window) for k in range(3))
    total = start
    for k, tap in enumerate(tap_numbers(window)):
        at = place_of(tap, starts, window)
        if is_there(at, x):
            total = total + channels(x, (*at, c), t) * taps[k]
    return total


def is_there(at: Any, x: Any) -> Any:
    """Whether a pixel is one of the image's."""
    inside = at[0] >= 0 and at[0] < x.shape[0] and at[1] >= 0 and at[1] < x.shape[1]
    return inside and at[2] >= 0 and at[2] < x.shape[2]


def channels(x: Any, at: Any, t: Any) -> Any:
    """A line of channels in the type of the sums."""
    if t.line == 1:
        return cp.Line[t.sums, 1](t.sums(x[at]))
    v = cp.load(x, at, line=t.line, fill=None)
    return v if v.dtype == t.sums else t.sums(v)
