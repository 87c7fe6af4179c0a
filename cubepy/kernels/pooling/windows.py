"""Kernels of pooling one output at a time: any window, layout and device.

They see `x[n, depth, row, column, channel]`, whatever the strides. A unit goes through `band`
outputs in the order of memory.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.pooling.numbers import (
    compared,
    divisor_of,
    finished,
    joined,
    lowest,
    nothing,
    read,
    read_number,
    span,
)
from cubepy.kernels.pooling.problem import Pooling
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class WindowTiling:
    """How a kernel goes through its data.

    `line`: elements at a time, along the channels, or along the columns of each window if
    `is_along`. A unit makes `band` (lines of) outputs, and `units` share a cube. `is_last`: the
    channels are the fastest axis of the results.
    """

    line: int
    band: int
    units: int
    is_last: bool
    is_along: bool = False


def place_of(i: Any, extents: Any, tiling: Any) -> Any:
    """[n, depth, row, column, channel] of the i-th line of outputs."""
    n, z, y, j, c = extents
    if tiling.is_last:
        lines = (c + tiling.line - 1) // tiling.line
        place = unravelled(i, (n, z, y, j, lines))
        return (*place[:4], place[4] * tiling.line)
    place = unravelled(i, (n, c, z, y, j))
    return (place[0], place[2], place[3], place[4], place[1])


def loaded(x: Any, at: Any, line: Any, how: Any, via: Any) -> Any:
    """A line of channels, or one element."""
    return read_number(x[at], via) if line == 1 else read(x, at, line, False, how, via)


def window_line(x: Any, spans: Any, c: Any, line: Any, how: Any, via: Any) -> Any:
    """What a window of `x[depth, row, column, channel]` gives, for a line of channels.

    Sums are made row by row, so that their error is that of shorter ones.
    """
    depth, rows, columns = spans
    empty = cp.Line[compared(x.dtype), line](nothing(how, x.dtype))
    found = empty
    for a in range(depth[0], depth[1], depth[2]):
        for b in range(rows[0], rows[1], rows[2]):
            row = empty
            for e in range(columns[0], columns[1], columns[2]):
                row = joined(row, loaded(x, (a, b, e, c), line, how, via), how)
            found = joined(found, row, how)
    return found


def window_along(x: Any, spans: Any, line: Any, how: Any, via: Any) -> Any:
    """What a window of `x[depth, row, column]` gives, lines of its columns at a time."""
    depth, rows, columns = spans
    empty = cp.Line[compared(x.dtype), line](nothing(how, x.dtype))
    found = empty
    for a in range(depth[0], depth[1], depth[2]):
        for b in range(rows[0], rows[1], rows[2]):
            row, part = x[a, b, 0 : columns[1]], empty
            for e in range(columns[0], columns[1], line):
                part = joined(part, read(row, (e,), line, False, how, via), how)
            found = joined(found, part, how)
    return cp.Line[found.dtype, 1](found.max() if how.is_max else found.sum())


@cp.cube
def pool_windows(
    x: cp.Tensor,
    out: cp.Tensor,
    extras: Any,
    how: cp.Comptime[Pooling],
    tiling: cp.Comptime[WindowTiling],
    functions: cp.Comptime[Any],
) -> None:
    """One output, or line of channels of outputs, after the other."""
    via, extents = (*functions, extras), out.shape
    first, count = cp.ABSOLUTE_POS * tiling.band, lines_of(extents, tiling)
    place = place_of(first, extents, tiling)
    spans = spans_of(place[1:], x.shape, extents, how)
    for _ in range(first, min(first + tiling.band, count)):
        n, z, y, j, c = place
        divisor = divisor_of(spans, (z, y, j), x.shape[1:], compared(x.dtype), how)
        if tiling.is_along:
            v = window_along(x[n, :, :, :, c], spans, tiling.line, how, via)
        else:
            v = window_line(x[n], spans, c, tiling.line, how, via)
        v = finished(v, (n, c, z, y, j), divisor, how, via, 1)
        put(out, place, v)
        if tiling.band > 1:
            place, spans = following(place, spans, x.shape, extents, how, tiling)


def lines_of(extents: Any, tiling: Any) -> Any:
    """How many lines of outputs there are."""
    line = tiling.line if tiling.is_last else 1
    return extents[0] * extents[1] * extents[2] * extents[3] * ((extents[4] + line - 1) // line)


def following(place: Any, spans: Any, shape: Any, extents: Any, how: Any, tiling: Any) -> Any:
    """The next place in the order of memory, and the taps of its window: divisions are for what
    changes alone."""
    n, z, y, j, c = place
    depth, rows, columns = spans
    if tiling.is_last:
        c += tiling.line
    if not tiling.is_last or c >= extents[4]:
        j += 1
        if tiling.is_last:
            c = 0
        if j == extents[3]:
            j, y = 0, y + 1
            if y == extents[2]:
                y, z = 0, z + 1
                if z == extents[1]:
                    z = 0
                    if not tiling.is_last:
                        c += 1
                    if tiling.is_last or c == extents[4]:
                        c, n = 0, n + 1
                depth = span(z, 0, shape[1], extents[1], how)
            rows = span(y, 1, shape[2], extents[2], how)
        columns = span(j, 2, shape[3], extents[3], how)
    return (n, z, y, j, c), (depth, rows, columns)


def spans_of(place: Any, extents: Any, results: Any, how: Any) -> Any:
    """The taps of one window along depth, rows and columns."""
    return tuple(span(place[k], k, extents[k + 1], results[k + 1], how) for k in range(3))


def put(out: Any, place: Any, v: Any) -> None:
    """Store a line of channels, or one element."""
    if v.line_size == 1:
        out[place] = v[0]
    else:
        cp.store(out, place, v)


@cp.cube
def pool_windows_with_indices(
    x: cp.Tensor,
    out: cp.Tensor,
    indices: cp.Tensor,
    extras: Any,
    how: cp.Comptime[Pooling],
    tiling: cp.Comptime[WindowTiling],
    functions: cp.Comptime[Any],
) -> None:
    """As `pool_windows`; the first of equal maxima counts, and the last NaN."""
    via, extents = (*functions, extras), out.shape
    first, count = cp.ABSOLUTE_POS * tiling.band, lines_of(extents, tiling)
    place = place_of(first, extents, tiling)
    spans = spans_of(place[1:], x.shape, extents, how)
    for _ in range(first, min(first + tiling.band, count)):
        n, z, y, j, c = place
        best, where = best_of_window(x[n], spans, c, tiling.line, how, via)
        v = finished(best, (n, c, z, y, j), best.dtype(1), how, via, 1)
        put(out, place, v)
        put(indices, place, where)
        if tiling.band > 1:
            place, spans = following(place, spans, x.shape, extents, how, tiling)


def best_of_window(x: Any, spans: Any, c: Any, line: Any, how: Any, via: Any) -> Any:
    """The maxima of a window and where they are, for a line of channels."""
    depth, rows, columns = spans
    position = how.position
    best = cp.Line[compared(x.dtype), line](lowest(x.dtype))
    start = (depth[0] * x.shape[1] + rows[0]) * x.shape[2] + columns[0]
    where = cp.Line[position, line](position(start))
    for a in range(depth[0], depth[1], depth[2]):
        for b in range(rows[0], rows[1], rows[2]):
            for e in range(columns[0], columns[1], columns[2]):
                v = loaded(x, (a, b, e, c), line, how, via)
                better = (v > best) | (v != v)
                here = cp.Line[position, line](position((a * x.shape[1] + b) * x.shape[2] + e))
                best = cp.where(better, v, best)
                where = cp.where(better, here, where)
    return best, where
