"""Kernels of max pooling, for three layouts: rows of columns, pixels of channels, and any other.

All see `x[n, c, row, column]`, whatever the strides. NaN is the greatest number, as in torch.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.ir.numbers import limits
from cubepy.ir.types import DType, f32
from cubepy.kernels.calls.positions import count_up, unravelled
from cubepy.kernels.pooling.problem import Window
from cubepy.record import dataclass

UNROLLED = 16
"""Elements of a window up to which a pixel kernel names each."""


@dataclass(frozen=True, slots=True)
class PoolTiling:
    """How a kernel goes through its data.

    `line`: outputs at a time. `band`: rows of output in a cube. `ahead`: rows of input that are
    prefetched before they are needed; 0 for none. `stream`: results are too large for the caches.
    `block`: lines of channels that go along a row of pixels together.
    """

    line: int
    band: int
    ahead: int = 0
    stream: bool = False
    block: int = 1


def lowest(dtype: DType) -> int | float:
    """What every number is at least."""
    return float("-inf") if dtype.is_float else limits(dtype)[0]


def compared(dtype: DType) -> DType:
    """The type that numbers are compared in: few machines compare narrow floats as they are."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype


# Numbers


def widened(v: Any) -> Any:
    """A value as it is compared."""
    return v if compared(v.dtype) == v.dtype else cp.f32(v)


def greater_of_two(a: Any, b: Any) -> Any:
    """max(a, b), NaN if either is. Unlike `max` it does not order the zeros: three instructions."""
    if not a.dtype.is_float:
        return max(a, b)
    return cp.where(a != a, a, cp.where(a > b, a, b))


def greatest_of_three(a: Any, b: Any, c: Any) -> Any:
    """As `greater_of_two`; NaN in `a` or `b` is lost by the comparisons, and comes from a + b."""
    if not a.dtype.is_float:
        return max(max(a, b), c)
    larger = cp.where(a > b, a, b)
    return cp.where((a != a) | (b != b), a + b, cp.where(larger > c, larger, c))


def greatest(values: Any) -> Any:
    """The greatest of a tuple, lane by lane."""
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        return greater_of_two(values[0], values[1])
    return greatest((greatest_of_three(values[0], values[1], values[2]), *values[3:]))


# Windows over the edge: which of their rows (or columns) exist


def first_inside(start: Any, step: Any) -> Any:
    """The first tap of a window that starts at `start` which is not before 0."""
    return (max(0, 0 - start) + step - 1) // step


def last_inside(start: Any, step: Any, taps: Any, extent: Any) -> Any:
    """The last tap before `extent`; below the first one where none is inside."""
    return min(taps - 1, (extent - 1 - start) // step)


def rows_of(x: Any, start: Any, window: Any) -> Any:
    """The input rows of a window. For a row over the edge stands another one of the window, which
    changes no maximum."""
    step, taps = window.dilation[0], window.kernel[0]
    first = first_inside(start, step)
    last = last_inside(start, step, taps, x.shape[0])
    return tuple(x[max(0, start + min(max(k, first), last) * step)] for k in range(taps))


# Rows: lines along the columns


def columns(rows: Any, at: Any, window: Any, line: Any, fill: Any) -> Any:
    """The maxima of the rows in the input columns of `line` outputs, one line for each phase."""
    stride = window.stride[1]
    v = greatest(tuple(widened(cp.load(row, at, line=line * stride, fill=fill)) for row in rows))
    return tuple(v if stride == 1 else v[k::stride] for k in range(window.phases))


def across(before: Any, here: Any, after: Any, window: Any, line: Any) -> Any:
    """The maxima over each window's columns, from the lines of all phases and their neighbours."""
    return greatest(
        tuple(
            shifted(before[tap[1]], here[tap[1]], after[tap[1]], tap[0], line)
            for tap in window.taps
        )
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
        for k in range(window.stride[0] * window.stride[1]):
            at = (row + tiling.ahead, column * window.stride[0] + k * tiling.line)
            cp.prefetch(x, at, level=2)


def pool_row(x: Any, plane: Any, y: Any, window: Any, tiling: Any) -> None:
    """One row of the outputs `plane`.

    Lines lie where they are aligned in `out`, so that whole ones can be streamed: the first may
    start before the row. Input lines are loaded once and handed on to the next line of outputs.
    """
    line, stride, out = tiling.line, window.stride[1], plane[y]
    hint = "stream" if tiling.stream else None
    fill = lowest(x.dtype)
    if tiling.stream and cp.misalignment(plane, (y + 2, 0), line=line) > 0:
        # A row that does not start on a line stores a part of one as usual: it had better be here
        # by then, for the streamed stores behind it wait.
        cp.prefetch(plane, (y + 2, 0), level=2)
    n, top = out.shape[0], y * window.stride[0] - window.padding[0]
    rows = rows_of(x, top, window)
    newest = top + (window.kernel[0] - 1) * window.dilation[0] + 1
    look = line if window.shifts[-1] > 0 else 0
    start = 0 - cp.misalignment(out, 0, line=line)
    # Lines from `inside` to `edge` are whole, and what they load exists.
    inside = start + line if start < 0 else start
    edge = inside + max(0, (min(n, x.shape[1] // stride - look) - inside) // line) * line
    before = tuple(cp.Line[compared(x.dtype), line](fill) for _ in range(window.phases))
    here = columns(rows, start * stride, window, line, fill)
    for j in range(start, min(inside, n), line):
        prefetch_ahead(x, newest, j * stride, window, tiling)
        after = columns(rows, (j + line) * stride, window, line, fill)
        cp.store(out, j, across(before, here, after, window, line), hint=hint)
        before = here
        here = after
    for j in range(inside, edge, line):
        prefetch_ahead(x, newest, j * stride, window, tiling)
        if look:
            after = columns(rows, (j + line) * stride, window, line, None)
            cp.store(out, j, across(before, here, after, window, line), hint=hint, whole=True)
            before = here
            here = after
        else:
            here = columns(rows, j * stride, window, line, None)
            cp.store(out, j, across(before, here, here, window, line), hint=hint, whole=True)
            before = here
    if look == 0:
        here = columns(rows, edge * stride, window, line, fill)
    for j in range(edge, n, line):
        prefetch_ahead(x, newest, j * stride, window, tiling)
        after = columns(rows, (j + line) * stride, window, line, fill)
        cp.store(out, j, across(before, here, after, window, line), hint=hint)
        before = here
        here = after


def fill_row(out: Any, line: Any) -> None:
    """A row of outputs whose windows see nothing."""
    for j in range(0, out.shape[0], line):
        cp.store(out, j, cp.Line[out.dtype, line](lowest(out.dtype)))


@cp.cube
def pool_rows(
    x: cp.Tensor, out: cp.Tensor, window: cp.Comptime[Window], tiling: cp.Comptime[PoolTiling]
) -> None:
    """A cube pools a band of rows of one channel of one image."""
    bands = (out.shape[2] + tiling.band - 1) // tiling.band
    plane = cp.CUBE_POS // bands
    n, c = plane // x.shape[1], plane % x.shape[1]
    first = cp.CUBE_POS % bands * tiling.band
    for y in range(first, min(first + tiling.band, out.shape[2])):
        top = y * window.stride[0] - window.padding[0]
        step, taps, height = window.dilation[0], window.kernel[0], x.shape[2]
        if not window.may_miss or first_inside(top, step) <= last_inside(top, step, taps, height):
            pool_row(x[n, c], out[n, c], y, window, tiling)
        else:
            fill_row(out[n, c, y], tiling.line)


# Rows with indices: the first of equal maxima counts, so windows are read in row-major order


def first_index(start: Any, step: Any) -> Any:
    """The first place of a window that is not before 0, for a start or a line of starts."""
    return start + (max(0, 0 - start) + (step - 1)) // step * step if step > 1 else max(0, start)


@cp.cube
def pool_rows_with_indices(
    x: cp.Tensor,
    out: cp.Tensor,
    indices: cp.Tensor,
    window: cp.Comptime[Window],
    tiling: cp.Comptime[PoolTiling],
    position: cp.Comptime[DType],
) -> None:
    """As `pool_rows`; `indices` count within a channel, and are computed as `position`."""
    line, stride, step = tiling.line, window.stride[1], window.dilation[1]
    bands = (out.shape[2] + tiling.band - 1) // tiling.band
    plane = cp.CUBE_POS // bands
    n, c = plane // x.shape[1], plane % x.shape[1]
    first = cp.CUBE_POS % bands * tiling.band
    width, low = position(x.shape[3]), lowest(x.dtype)
    for y in range(first, min(first + tiling.band, out.shape[2])):
        top = y * window.stride[0] - window.padding[0]
        start = first_inside(top, window.dilation[0])
        end = last_inside(top, window.dilation[0], window.kernel[0], x.shape[2])
        for j in range(0, out.shape[3], line):
            places = count_up(line, position) * stride + position(j * stride)
            best = cp.Line[compared(x.dtype), line](low)
            where = position(first_index(top, window.dilation[0])) * width + first_index(
                places - window.padding[1], step
            )
            for k in range(start, end + 1):
                row = top + k * window.dilation[0]
                for q in window.shifts:
                    v = widened(
                        cp.load(x[n, c, row], (j + q) * stride, line=line * stride, fill=low)
                    )
                    for tap in window.taps:
                        if tap[0] == q:
                            here = v if stride == 1 else v[tap[1] :: stride]
                            found = position(row) * width + (places + (q * stride + tap[1]))
                            better = (here > best) | (here != here)
                            best = cp.where(better, here, best)
                            where = cp.where(better, found, where)
            cp.store(out[n, c, y], j, best)
            cp.store(indices[n, c, y], j, where)


# Pixels: lines along the channels


def pool_pixel(x: Any, out: Any, y: Any, j: Any, window: Any, tiling: Any) -> None:
    """All channels of one output; `x[row, column, channel]`."""
    top = y * window.stride[0] - window.padding[0]
    left = j * window.stride[1] - window.padding[1]
    row_step, step = window.dilation
    rows, taps = window.kernel
    bottom, right = top + (rows - 1) * row_step, left + (taps - 1) * step
    inside = (top >= 0) & (bottom < x.shape[0]) & (left >= 0) & (right < x.shape[1])
    if window.size <= UNROLLED and inside:
        for c in range(0, x.shape[2], tiling.line):
            if tiling.ahead:
                for k in range(window.stride[0]):
                    cp.prefetch(x, (bottom + tiling.ahead + k, right, c), level=2)
            v = tuple(
                widened(
                    cp.load(
                        x, (top + k // taps * row_step, left + k % taps * step, c), line=tiling.line
                    )
                )
                for k in range(window.size)
            )
            cp.store(out, c, greatest(v), hint="stream" if tiling.stream else None)
    else:
        pool_border_pixel(x, out, top, left, window, tiling)


def pool_pixel_row(x: Any, out: Any, y: Any, window: Any, tiling: Any) -> None:
    """One row of outputs, from left to right; `x[row, column, channel]`, `out[column, channel]`.

    The maxima of a column of pixels are computed once and handed on to the next outputs.
    """
    step, pad, taps = window.stride[1], window.padding[1], window.kernel[1]
    top, shared = y * window.stride[0] - window.padding[0], taps - step
    rows = rows_of(x, top, window)
    below = x[min(x.shape[0] - 1, top + window.kernel[0] - 1 + tiling.ahead)]
    # Outputs before `edge` see columns inside alone, besides the first ones over the left edge.
    edge = max(0, min(out.shape[0], (x.shape[1] + pad - taps) // step + 1))
    for c in range(0, x.shape[2], tiling.line * tiling.block):
        held = tuple(edge_column(rows, k - pad, c, tiling) for k in range(shared))
        for j in range(edge):
            at = j * step + shared - pad
            new = tuple(column_maxima(rows, at + k, c, tiling) for k in range(step))
            if tiling.ahead:
                for k in range(step * tiling.block):
                    place = (at + k // tiling.block, c + k % tiling.block * tiling.line)
                    cp.prefetch(below, place, level=2)
            store_pixel(out, j, c, (*held, *new), tiling)
            held = (*held, *new)[step:]
        for j in range(edge, out.shape[0]):
            at = j * step + shared - pad
            new = tuple(edge_column(rows, at + k, c, tiling) for k in range(step))
            store_pixel(out, j, c, (*held, *new), tiling)
            held = (*held, *new)[step:]


def column_maxima(rows: Any, column: Any, c: Any, tiling: Any) -> Any:
    """The maxima of some rows in one column, for a block of lines of channels."""
    fill = lowest(rows[0].dtype)
    return tuple(
        greatest(
            tuple(
                widened(cp.load(row, (column, c + b * tiling.line), line=tiling.line, fill=fill))
                for row in rows
            )
        )
        for b in range(tiling.block)
    )


def edge_column(rows: Any, column: Any, c: Any, tiling: Any) -> Any:
    """As `column_maxima`; the lowest number for a column over the edge."""
    inside = (column >= 0) & (column < rows[0].shape[0])
    low = cp.Line[compared(rows[0].dtype), tiling.line](lowest(rows[0].dtype))
    found = column_maxima(rows, max(0, min(column, rows[0].shape[0] - 1)), c, tiling)
    return tuple(cp.where(inside, v, low) for v in found)


def store_pixel(out: Any, j: Any, c: Any, columns: Any, tiling: Any) -> None:
    """The maxima of the columns of one output."""
    hint = "stream" if tiling.stream else None
    for b in cp.unroll(range(tiling.block)):
        value = greatest(tuple(column[b] for column in columns))
        cp.store(out, (j, c + b * tiling.line), value, hint=hint)


def pool_border_pixel(x: Any, out: Any, top: Any, left: Any, window: Any, tiling: Any) -> None:
    """As `pool_pixel` for a window over the edge, or a large one."""
    row_step, step = window.dilation
    rows, taps = window.kernel
    low = lowest(x.dtype)
    for c in range(0, x.shape[2], tiling.line):
        best = cp.Line[compared(x.dtype), tiling.line](low)
        for row in range(
            first_index(top, row_step), min(x.shape[0], top + (rows - 1) * row_step + 1), row_step
        ):
            for column in range(
                first_index(left, step), min(x.shape[1], left + (taps - 1) * step + 1), step
            ):
                best = greater_of_two(
                    best, widened(cp.load(x, (row, column, c), line=tiling.line, fill=low))
                )
        cp.store(out, c, best, hint="stream" if tiling.stream else None)


@cp.cube
def pool_pixels(
    x: cp.Tensor, out: cp.Tensor, window: cp.Comptime[Window], tiling: cp.Comptime[PoolTiling]
) -> None:
    """A cube pools a band of rows of one image; `x` and `out` are [n, row, column, channel]."""
    bands = (out.shape[1] + tiling.band - 1) // tiling.band
    n, first = cp.CUBE_POS // bands, cp.CUBE_POS % bands * tiling.band
    for y in range(first, min(first + tiling.band, out.shape[1])):
        if tiling.block > 0:
            pool_pixel_row(x[n], out[n, y], y, window, tiling)
        else:
            for j in range(out.shape[2]):
                pool_pixel(x[n], out[n, y, j], y, j, window, tiling)


# Windows: any layout and any size, one output at a time


def pool_window(x: Any, y: Any, j: Any, window: Any, line: Any) -> Any:
    """The maximum of one window, `line` of its columns at a time."""
    row_step, step = window.dilation
    rows, taps = window.kernel
    top = y * window.stride[0] - window.padding[0]
    left = j * window.stride[1] - window.padding[1]
    bottom = min(x.shape[0], top + (rows - 1) * row_step + 1)
    right = min(x.shape[1], left + (taps - 1) * step + 1)
    low = lowest(x.dtype)
    best = cp.Line[compared(x.dtype), line](low)
    for row in range(first_index(top, row_step), bottom, row_step):
        for column in range(first_index(left, step), right, line * step):
            if line == 1:
                best = greater_of_two(best, cp.Line[compared(x.dtype), 1](widened(x[row, column])))
            else:
                v = cp.load(x[row, 0:right], column, line=line, fill=low)
                best = greater_of_two(best, widened(v))
    return best.max()


@cp.cube
def pool_windows(
    x: cp.Tensor, out: cp.Tensor, window: cp.Comptime[Window], tiling: cp.Comptime[PoolTiling]
) -> None:
    """A cube pools `band` outputs, one after the other in row-major order."""
    first = cp.CUBE_POS * tiling.band
    for i in range(first, min(first + tiling.band, out.size)):
        n, c, y, j = unravelled(i, out.shape)
        out[n, c, y, j] = pool_window(x[n, c], y, j, window, tiling.line)


@cp.cube
def pool_windows_with_indices(
    x: cp.Tensor,
    out: cp.Tensor,
    indices: cp.Tensor,
    window: cp.Comptime[Window],
    tiling: cp.Comptime[PoolTiling],
) -> None:
    """As `pool_windows`; the first of equal maxima counts, and the last NaN."""
    row_step, step = window.dilation
    rows, taps = window.kernel
    first = cp.CUBE_POS * tiling.band
    for i in range(first, min(first + tiling.band, out.size)):
        n, c, y, j = unravelled(i, out.shape)
        top = y * window.stride[0] - window.padding[0]
        left = j * window.stride[1] - window.padding[1]
        best = compared(x.dtype)(lowest(x.dtype))
        where = first_index(top, row_step) * x.shape[3] + first_index(left, step)
        for row in range(
            first_index(top, row_step), min(x.shape[2], top + (rows - 1) * row_step + 1), row_step
        ):
            for column in range(
                first_index(left, step), min(x.shape[3], left + (taps - 1) * step + 1), step
            ):
                v = widened(x[n, c, row, column])
                better = (v > best) | (v != v)
                best = v if better else best
                where = row * x.shape[3] + column if better else where
        out[n, c, y, j] = best
        indices[n, c, y, j] = where
