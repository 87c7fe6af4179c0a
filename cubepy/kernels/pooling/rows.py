"""Kernels of pooling for lines along the columns: `x[n, channel, depth, row, column]`.

The rows of a window are combined first, in whole lines, and then its columns by shifts between
registers, so that each line of input is loaded once for each row of the window.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import count_up, is_whole, unravelled
from cubepy.kernels.pooling.numbers import (
    combined,
    compared,
    divisors_of,
    finished,
    first_index,
    first_inside,
    last_inside,
    lowest,
    nothing,
    read,
)
from cubepy.kernels.pooling.problem import Pooling
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class RowTiling:
    """How a kernel goes through its data.

    `line`: outputs at a time. `band`: rows of output in a cube. `ahead`: rows of input that are
    prefetched before they are needed; 0 for none. `stream`: results are too large for the caches.
    """

    line: int
    band: int
    ahead: int = 0
    stream: bool = False


def places_of(start: Any, axis: Any, extent: Any, window: Any) -> Any:
    """The places of a window's taps along an axis. For one over the edge stands another one of the
    window, which changes no maximum."""
    step, taps = window.dilation[axis], window.kernel[axis]
    if taps == 1 and window.padding[axis] == 0:
        return (start,)
    first = first_inside(start, step)
    last = last_inside(start, step, taps, extent)
    return tuple(max(0, start + min(max(k, first), last) * step) for k in range(taps))


def rows_of(x: Any, front: Any, top: Any, window: Any) -> Any:
    """The rows of a window in `x[depth, row, ...]`."""
    depths = places_of(front, 0, x.shape[0], window)
    rows = places_of(top, 1, x.shape[1], window)
    return tuple(x[d, r] for d in depths for r in rows)


def columns(rows: Any, at: Any, how: Any, line: Any, is_inside: Any, via: Any) -> Any:
    """What the rows give in the input columns of `line` outputs, one line for each phase."""
    window = how.window
    stride = window.stride[2]
    lines = tuple(read(row, (at,), line * stride, is_inside, how, via) for row in rows)
    v = combined(lines, how)
    return tuple(v if stride == 1 else v[k::stride] for k in range(window.phases))


def across(before: Any, here: Any, after: Any, how: Any, line: Any) -> Any:
    """What each window's columns give, from the lines of all phases and their neighbours."""
    taps = how.window.taps
    return combined(
        tuple(shifted(before[t[1]], here[t[1]], after[t[1]], t[0], line) for t in taps), how
    )


def shifted(before: Any, here: Any, after: Any, shift: Any, line: Any) -> Any:
    """The line that starts `shift` lanes after `here`."""
    if shift < 0:
        return cp.concat(before, here)[line + shift : 2 * line + shift]
    return cp.concat(here, after)[shift : line + shift] if shift else here


def prefetch_ahead(x: Any, row: Any, column: Any, window: Any, tiling: Any) -> None:
    """Ask for as much input as this line used anew, some rows ahead, as one ascending stream.

    Each row is read several times, which costs the nearest cache more than the next one.
    """
    if tiling.ahead:
        for k in range(window.stride[1] * window.stride[2]):
            at = (row + tiling.ahead, column * window.stride[1] + k * tiling.line)
            cp.prefetch(x, at, level=2)


def store(
    out: Any, j: Any, v: Any, where: Any, extents: Any, whole: Any, how: Any, tiling: Any, via: Any
) -> None:
    """A line of results from column `j` on, finished; `extents` are those of the input."""
    hint = "stream" if tiling.stream else None
    divisor = divisors_of((where[2], where[3], j), tiling.line, extents, v.dtype, how)
    cp.store(out, j, finished(v, (*where, j), divisor, how, via), hint=hint, whole=whole)


def pool_row(x: Any, plane: Any, where: Any, how: Any, tiling: Any, via: Any) -> None:
    """Row `where` = [n, channel, depth, row] of the outputs `plane`, from `x[depth, row, column]`.

    Lines lie where they are aligned in `out`, so that whole ones can be streamed: the first may
    start before the row. Input lines are loaded once and handed on to the next line of outputs.
    """
    window, line = how.window, tiling.line
    y, stride = where[3], window.stride[2]
    out = plane[y]
    if tiling.stream and cp.misalignment(plane, (y + 2, 0), line=line) > 0:
        # A row that does not start on a line stores a part of one as usual: it had better be here
        # by then, for the streamed stores behind it wait.
        cp.prefetch(plane, (y + 2, 0), level=2)
    n, width = out.shape[0], x.shape[2]
    front = where[2] * window.stride[0] - window.padding[0]
    top = y * window.stride[1] - window.padding[1]
    rows = rows_of(x, front, top, window)
    last = front + (window.kernel[0] - 1) * window.dilation[0]
    below = x[max(0, min(last, x.shape[0] - 1))]
    newest = top + (window.kernel[1] - 1) * window.dilation[1] + 1
    look = line if window.shifts[-1] > 0 else 0
    start = 0 - cp.misalignment(out, 0, line=line) if via[1] is None else 0
    # Lines from `inside` to `edge` are whole, and what they load exists.
    inside = start + line if start < 0 else start
    edge = inside + max(0, (min(n, width // stride - look) - inside) // line) * line
    empty = nothing(how, x.dtype)
    before = tuple(cp.Line[compared(x.dtype), line](empty) for _ in range(window.phases))
    here = columns(rows, start * stride, how, line, False, via)
    for j in range(start, min(inside, n), line):
        prefetch_ahead(below, newest, j * stride, window, tiling)
        after = columns(rows, (j + line) * stride, how, line, False, via)
        v = across(before, here, after, how, line)
        store(out, j, v, where, x.shape, False, how, tiling, via)
        before = here
        here = after
    for j in range(inside, edge, line):
        prefetch_ahead(below, newest, j * stride, window, tiling)
        if look:
            after = columns(rows, (j + line) * stride, how, line, True, via)
            v = across(before, here, after, how, line)
            store(out, j, v, where, x.shape, True, how, tiling, via)
            before = here
            here = after
        else:
            here = columns(rows, j * stride, how, line, True, via)
            v = across(before, here, here, how, line)
            store(out, j, v, where, x.shape, True, how, tiling, via)
            before = here
    if look == 0:
        here = columns(rows, edge * stride, how, line, False, via)
    for j in range(edge, n, line):
        prefetch_ahead(below, newest, j * stride, window, tiling)
        after = columns(rows, (j + line) * stride, how, line, False, via)
        v = across(before, here, after, how, line)
        store(out, j, v, where, x.shape, False, how, tiling, via)
        before = here
        here = after


def pool_row_over_edge(x: Any, out: Any, where: Any, how: Any, tiling: Any, via: Any) -> None:
    """A row of averages whose windows have some of their rows outside, or of a window that sees
    nothing at all."""
    window, line, stride = how.window, tiling.line, how.window.stride[2]
    front = where[2] * window.stride[0] - window.padding[0]
    top = where[3] * window.stride[1] - window.padding[1]
    empty = cp.Line[compared(x.dtype), line](0)
    for j in range(0, out.shape[0], line):
        v = empty
        for a in taps_inside(front, 0, x.shape[0], window):
            for b in taps_inside(top, 1, x.shape[1], window):
                row = (x[front + a * window.dilation[0], top + b * window.dilation[1]],)
                found = tuple(
                    columns(row, (j + k * line) * stride, how, line, False, via) for k in (-1, 0, 1)
                )
                v = v + across(found[0], found[1], found[2], how, line)
        store(out, j, v, where, x.shape, False, how, tiling, via)


def fill_row(out: Any, where: Any, how: Any, tiling: Any, via: Any) -> None:
    """A row of maxima whose windows see nothing."""
    low = cp.Line[compared(out.dtype), tiling.line](lowest(out.dtype))
    for j in range(0, out.shape[0], tiling.line):
        cp.store(out, j, finished(low, (*where, j), low.dtype(1), how, via))


@cp.cube
def pool_rows(
    x: cp.Tensor,
    out: cp.Tensor,
    extras: Any,
    how: cp.Comptime[Pooling],
    tiling: cp.Comptime[RowTiling],
    functions: cp.Comptime[Any],
) -> None:
    """A cube pools a band of rows of one plane."""
    window, via = how.window, (*functions, extras)
    bands = (out.shape[3] + tiling.band - 1) // tiling.band
    n, c, z = unravelled(cp.CUBE_POS // bands, out.shape[:3])
    first = cp.CUBE_POS % bands * tiling.band
    front, depth, height = z * window.stride[0] - window.padding[0], x.shape[2], x.shape[3]
    for y in range(first, min(first + tiling.band, out.shape[3])):
        top = y * window.stride[1] - window.padding[1]
        if not how.is_max:
            if is_whole(front, 0, depth, window) and is_whole(top, 1, height, window):
                pool_row(x[n, c], out[n, c, z], (n, c, z, y), how, tiling, via)
            else:
                pool_row_over_edge(x[n, c], out[n, c, z, y], (n, c, z, y), how, tiling, via)
        elif not window.may_miss or (
            is_seen(front, 0, depth, window) and is_seen(top, 1, height, window)
        ):
            pool_row(x[n, c], out[n, c, z], (n, c, z, y), how, tiling, via)
        else:
            fill_row(out[n, c, z, y], (n, c, z, y), how, tiling, via)


def is_seen(start: Any, axis: Any, extent: Any, window: Any) -> Any:
    """Whether a tap of a window is inside."""
    step, taps = window.dilation[axis], window.kernel[axis]
    return first_inside(start, step) <= last_inside(start, step, taps, extent)


# Rows with indices: the first of equal maxima counts, so windows are read in row-major order


@cp.cube
def pool_rows_with_indices(
    x: cp.Tensor,
    out: cp.Tensor,
    indices: cp.Tensor,
    extras: Any,
    how: cp.Comptime[Pooling],
    tiling: cp.Comptime[RowTiling],
    functions: cp.Comptime[Any],
) -> None:
    """As `pool_rows`; `indices` count within a channel."""
    window, via = how.window, (*functions, extras)
    bands = (out.shape[3] + tiling.band - 1) // tiling.band
    n, c, z = unravelled(cp.CUBE_POS // bands, out.shape[:3])
    first = cp.CUBE_POS % bands * tiling.band
    front = z * window.stride[0] - window.padding[0]
    for y in range(first, min(first + tiling.band, out.shape[3])):
        top = y * window.stride[1] - window.padding[1]
        for j in range(0, out.shape[4], tiling.line):
            best, where = best_line(x[n, c], (front, top), j, how, tiling, via)
            v = finished(best, (n, c, z, y, j), best.dtype(1), how, via)
            cp.store(out[n, c, z, y], j, v)
            cp.store(indices[n, c, z, y], j, where)


def best_line(x: Any, starts: Any, j: Any, how: Any, tiling: Any, via: Any) -> Any:
    """The maxima of a line of windows from column `j` on and where they are."""
    window, line, position = how.window, tiling.line, how.position
    stride, step = window.stride[2], window.dilation[2]
    places = count_up(line, position) * stride + position(j * stride)
    best = cp.Line[compared(x.dtype), line](lowest(x.dtype))
    front, top = starts
    plane = first_index(front, window.dilation[0]) * x.shape[1]
    row = plane + first_index(top, window.dilation[1])
    where = position(row * x.shape[2]) + first_index(places - window.padding[2], step)
    for a in taps_inside(front, 0, x.shape[0], window):
        for b in taps_inside(top, 1, x.shape[1], window):
            d, r = front + a * window.dilation[0], top + b * window.dilation[1]
            base = position((d * x.shape[1] + r) * x.shape[2])
            for q in window.shifts:
                v = read(x[d, r], ((j + q) * stride,), line * stride, False, how, via)
                for tap in window.taps:
                    if tap[0] == q:
                        here = v if stride == 1 else v[tap[1] :: stride]
                        better = (here > best) | (here != here)
                        best = cp.where(better, here, best)
                        where = cp.where(better, base + places + (q * stride + tap[1]), where)
    return best, where


def taps_inside(start: Any, axis: Any, extent: Any, window: Any) -> Any:
    """The numbers of the taps that are inside."""
    step, taps = window.dilation[axis], window.kernel[axis]
    return range(first_inside(start, step), last_inside(start, step, taps, extent) + 1)
