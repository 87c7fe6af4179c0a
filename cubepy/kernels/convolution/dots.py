"""Convolutions of few filters over pixels whose channels lie side by side, on CPUs: dot products.

What a window sees of a row is one run of elements, of all its taps and their channels, and so are
its weights: lines of both are multiplied and added, for all filters at a time, and each filter's
sum over the lanes is its result. Where a window is over an edge, runs of single taps are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.calls.positions import is_whole, product, unravelled
from cubepy.kernels.convolution.planes import first_of
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Dots:
    """`filters` of `channels` each, `line` elements at a time in the type `sums`; a unit makes
    `band` rows."""

    filters: int
    channels: int
    line: int
    band: int
    sums: DType


@cp.cube
def convolve_dots(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Dots],
) -> None:
    """`x` is [n, depth, row, element], `weight` [filter, depth, row, element], with columns and
    channels as elements of rows, `out` [n, depth, row, column, filter]."""
    bands = (out.shape[2] + t.band - 1) // t.band
    extents = (*out.shape[:2], bands)
    if product(extents) > cp.ABSOLUTE_POS:
        n, z, band = unravelled(cp.ABSOLUTE_POS, extents)
        first, columns = band * t.band, x.shape[3] // t.channels
        for y in range(first, min(first + t.band, out.shape[2])):
            depth, row = first_of(z, 0, window), first_of(y, 1, window)
            begin, end = out.shape[3], out.shape[3]
            if is_whole(depth, 0, x.shape[1], window) and is_whole(row, 1, x.shape[2], window):
                begin, end = inner_span((0, out.shape[3]), 2, columns, window)
            some = (x[n], weight, biases, extras)
            put_pixels(some, out, (n, z, y), (0, begin), False, window, epilogue, t)
            put_pixels(some, out, (n, z, y), (begin, end), True, window, epilogue, t)
            put_pixels(some, out, (n, z, y), (end, out.shape[3]), False, window, epilogue, t)


def put_pixels(
    arrays: Any,
    out: Any,
    where: Any,
    span: Any,
    is_inside: Any,
    window: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """The results [first, end) of the row `where` = [n, depth, row]; `is_inside`: all taps are."""
    x, weight, biases, extras = arrays
    n, z, y = where
    for j in range(span[0], span[1]):
        starts = tuple(first_of(v, k, window) for k, v in enumerate((z, y, j)))
        found = sums_of(x, weight, starts, is_inside, window, t)
        put_sums(found, out, (n, z, y, j), biases, extras, epilogue, t)


def sums_of(x: Any, weight: Any, starts: Any, is_inside: Any, window: Any, t: Any) -> Any:
    """A line of sums for each filter, of the window that begins at `starts`."""
    totals = tuple(cp.Line[t.sums, t.line](0) for _ in range(t.filters))
    channels, columns = t.channels, x.shape[2] // t.channels
    for a in range(window.kernel[0]):
        depth = starts[0] + a * window.dilation[0]
        for b in range(window.kernel[1]):
            row = starts[1] + b * window.dilation[1]
            if is_inside:
                seen, length = x[depth, row], window.kernel[2] * channels
                totals = with_run(totals, seen, starts[2] * channels, weight, (a, b), 0, length, t)
            elif depth >= 0 and depth < x.shape[0] and row >= 0 and row < x.shape[1]:
                for e in range(window.kernel[2]):
                    column = starts[2] + e
                    if column >= 0 and column < columns:
                        at, first = column * channels, e * channels
                        seen = x[depth, row]
                        totals = with_run(totals, seen, at, weight, (a, b), first, channels, t)
    return totals


def with_run(
    totals: Any, row: Any, at: Any, weight: Any, tap: Any, first: Any, length: Any, t: Any
) -> Any:
    """The sums after `length` elements of a row from `at` on, times the weights from `first` on."""
    whole = length // t.line * t.line
    for k in range(0, whole, t.line):
        v = read(row, at + k, t, None)
        totals = tuple(
            totals[f] + v * read(weight[f, tap[0], tap[1]], first + k, t, None)
            for f in range(t.filters)
        )
    if whole < length:
        v = read(row[0 : at + length], at + whole, t, 0)
        totals = tuple(
            totals[f] + v * read(weight[f, tap[0], tap[1]][0 : first + length], first + whole, t, 0)
            for f in range(t.filters)
        )
    return totals


def read(row: Any, at: Any, t: Any, fill: Any) -> Any:
    """A line in the type of the sums."""
    v = cp.load(row, at, line=t.line, fill=fill)
    return v if v.dtype == t.sums else t.sums(v)


def put_sums(
    totals: Any, out: Any, where: Any, biases: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """Store the results of all filters at a pixel."""
    n, z, y, j = where
    for f in cp.unroll(range(t.filters)):
        v = cp.Line[t.sums, 1](totals[f].sum())
        if len(biases) > 0:
            v = v + t.sums(biases[0][f])
        if epilogue is not None:
            v = applied_along(epilogue, v, (n, f, z, y, j), 1, extras)
        out[n, z, y, j, f] = out.dtype(v[0])


def inner_span(span: Any, axis: Any, extent: Any, window: Any) -> Any:
    """The results of a span along an axis all of whose taps are inside."""
    step, before = window.stride[axis], window.before[axis]
    begin = max(span[0], min(span[1], (before + step - 1) // step))
    room = extent + before - window.spans[axis]
    end = span[0] if room < 0 else min(span[1], room // step + 1)
    return begin, max(begin, end)
