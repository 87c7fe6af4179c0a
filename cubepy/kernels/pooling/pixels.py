"""Kernels of pooling for lines along the channels: `x[n, depth, row, column, channel]`."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import is_whole, unravelled
from cubepy.kernels.calls.prefetching import prefetch_run
from cubepy.kernels.pooling.numbers import (
    combined,
    compared,
    divisor_of,
    finished,
    nothing,
    read,
    span,
)
from cubepy.kernels.pooling.problem import Pooling
from cubepy.kernels.pooling.rows import rows_of
from cubepy.kernels.pooling.windows import window_line
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class PixelTiling:
    """How a kernel goes through its data.

    `line`: channels at a time. `band`: rows of output in a cube, of `columns` each. `ahead`: rows
    of input that are prefetched before they are needed; 0 for none. `stream`: results are too large
    for the caches. `block`: lines of channels that go along a row of pixels together; 0 for pixel
    by pixel. `named`: elements of a window up to which a kernel names each. `is_whole`: channels
    fill lines.
    """

    line: int
    band: int
    columns: int
    ahead: int = 0
    stream: bool = False
    block: int = 1
    named: int = 16
    is_whole: bool = False


@cp.cube
def pool_pixels(
    x: cp.Tensor,
    out: cp.Tensor,
    extras: Any,
    how: cp.Comptime[Pooling],
    tiling: cp.Comptime[PixelTiling],
    functions: cp.Comptime[Any],
) -> None:
    """A cube pools a band of rows of a strip of columns of one image, [n, depth, row, column,
    channel]."""
    window, via = how.window, (*functions, extras)
    bands = (out.shape[2] + tiling.band - 1) // tiling.band
    strips = (out.shape[3] + tiling.columns - 1) // tiling.columns
    n, z = unravelled(cp.CUBE_POS // bands // strips, out.shape[:2])
    first, left = cp.CUBE_POS % bands * tiling.band, cp.CUBE_POS // bands % strips * tiling.columns
    right = min(left + tiling.columns, out.shape[3])
    front = z * window.stride[0] - window.padding[0]
    for y in range(first, min(first + tiling.band, out.shape[2])):
        top = y * window.stride[1] - window.padding[1]
        if tiling.block > 0 and (
            how.is_max
            or (is_whole(front, 0, x.shape[1], window) and is_whole(top, 1, x.shape[2], window))
        ):
            pool_pixel_row(x[n], out[n, z, y], (n, z, y), (left, right), how, tiling, via)
        else:
            for j in range(left, right):
                pool_pixel(x[n], out[n, z, y, j], out.shape, (n, z, y, j), how, tiling, via)


def rows_ahead(window: Any, tiling: Any) -> Any:
    """Behind the last row of a window, the rows to prefetch: those that some later row of results
    reads anew, which are not all where windows have gaps between them."""
    stride = window.stride[1]
    away = -(-tiling.ahead // stride) * stride
    anew = min(window.kernel[1], stride) if tiling.ahead else 0
    return tuple(away - k * window.dilation[1] for k in range(anew))


# Pixel by pixel


def pool_pixel(x: Any, out: Any, results: Any, where: Any, how: Any, tiling: Any, via: Any) -> None:
    """All channels of the output `where` = [n, depth, row, column]."""
    window = how.window
    starts = tuple(where[k + 1] * window.stride[k] - window.padding[k] for k in range(3))
    ends = tuple(starts[k] + (window.kernel[k] - 1) * window.dilation[k] for k in range(3))
    inside = (ends[0] < x.shape[0]) & (ends[1] < x.shape[1]) & (ends[2] < x.shape[2])
    inside = inside & (starts[0] >= 0) & (starts[1] >= 0) & (starts[2] >= 0)
    spans = tuple(span(where[k + 1], k, x.shape[k], results[k + 1], how) for k in range(3))
    divisor = divisor_of(spans, where[1:], x.shape, compared(x.dtype), how)
    if window.size <= tiling.named and inside:
        for c in range(0, x.shape[3], tiling.line):
            for k in rows_ahead(window, tiling):
                prefetch_run(x, (ends[0], ends[1] + k, ends[2]), c, tiling.line)
            taps = tuple(
                (
                    starts[0] + a * window.dilation[0],
                    starts[1] + b * window.dilation[1],
                    starts[2] + e * window.dilation[2],
                    c,
                )
                for a in range(window.kernel[0])
                for b in range(window.kernel[1])
                for e in range(window.kernel[2])
            )
            v = combined(
                tuple(read(x, at, tiling.line, tiling.is_whole, how, via) for at in taps), how
            )
            store_channels(out, c, v, where, divisor, how, tiling, via)
    else:
        for c in range(0, x.shape[3], tiling.line):
            v = window_line(x, spans, c, tiling.line, how, via)
            store_channels(out, c, v, where, divisor, how, tiling, via)


def store_channels(
    out: Any, c: Any, v: Any, where: Any, divisor: Any, how: Any, tiling: Any, via: Any
) -> None:
    """A line of channels of one output, finished."""
    n, z, y, j = where
    v = finished(v, (n, c, z, y, j), divisor, how, via, 1)
    cp.store(out, c, v, hint="stream" if tiling.stream else None, whole=tiling.is_whole)


# Along rows of pixels


def pool_pixel_row(
    x: Any, out: Any, where: Any, strip: Any, how: Any, tiling: Any, via: Any
) -> None:
    """The outputs [left, right) of one row, from left to right; `where` is [n, depth, row].

    What a column of pixels gives is computed once and handed on to the next outputs.
    """
    window = how.window
    step, pad, taps = window.stride[2], window.padding[2], window.kernel[2]
    front = where[1] * window.stride[0] - window.padding[0]
    top, shared = where[2] * window.stride[1] - window.padding[1], taps - step
    rows = rows_of(x, front, top, window)
    deepest = max(0, min(x.shape[0] - 1, front + window.kernel[0] - 1))
    newest = top + (window.kernel[1] - 1) * window.dilation[1]
    below = tuple(x[deepest, min(x.shape[1] - 1, newest + k)] for k in rows_ahead(window, tiling))
    # Outputs from `begin` to `edge` add columns inside alone to those that they share.
    left, right = strip
    begin = max(left, min(right, (pad - shared + step - 1) // step)) if pad > shared else left
    edge = max(begin, min(right, (x.shape[2] + pad - taps) // step + 1))
    for c in range(0, x.shape[3], tiling.line * tiling.block):
        held = tuple(
            edge_column(rows, left * step + k - pad, c, how, tiling, via) for k in range(shared)
        )
        for j in range(left, begin):
            held = pool_edge(rows, out, held, c, (*where, j), x.shape, how, tiling, via)
        for j in range(begin, edge):
            at = j * step + shared - pad
            new = tuple(column(rows, at + k, c, how, tiling, via) for k in range(step))
            for row in below:
                for k in range(step):
                    prefetch_run(row, (at + k,), c, tiling.block * tiling.line)
            store_pixel(out[j], c, (*held, *new), (*where, j), x.shape, how, tiling, via)
            held = (*held, *new)[step:]
        for j in range(edge, right):
            held = pool_edge(rows, out, held, c, (*where, j), x.shape, how, tiling, via)


def pool_edge(
    rows: Any,
    out: Any,
    held: Any,
    c: Any,
    where: Any,
    extents: Any,
    how: Any,
    tiling: Any,
    via: Any,
) -> Any:
    """One output whose new columns may be over an edge; what it shares with the next one."""
    window = how.window
    at = where[3] * window.stride[2] + len(held) - window.padding[2]
    new = tuple(edge_column(rows, at + k, c, how, tiling, via) for k in range(window.stride[2]))
    store_pixel(out[where[3]], c, (*held, *new), where, extents, how, tiling, via)
    return (*held, *new)[window.stride[2] :]


def column(rows: Any, place: Any, c: Any, how: Any, tiling: Any, via: Any) -> Any:
    """What some rows give in one column, for a block of lines of channels."""
    line = tiling.line
    return tuple(
        combined(
            tuple(
                read(row, (place, c + b * line), line, tiling.is_whole, how, via) for row in rows
            ),
            how,
        )
        for b in range(tiling.block)
    )


def edge_column(rows: Any, place: Any, c: Any, how: Any, tiling: Any, via: Any) -> Any:
    """As `column`; nothing for a column over the edge."""
    dtype = rows[0].dtype
    inside = (place >= 0) & (place < rows[0].shape[0])
    empty = cp.Line[compared(dtype), tiling.line](nothing(how, dtype))
    found = column(rows, max(0, min(place, rows[0].shape[0] - 1)), c, how, tiling, via)
    return tuple(cp.where(inside, v, empty) for v in found)


def store_pixel(
    out: Any, c: Any, columns: Any, where: Any, extents: Any, how: Any, tiling: Any, via: Any
) -> None:
    """What the columns of one output give."""
    divisor = divisor_of((), where[1:], extents, compared(out.dtype), how)
    for b in cp.unroll(range(tiling.block)):
        value = combined(tuple(column[b] for column in columns), how)
        store_channels(out, c + b * tiling.line, value, where, divisor, how, tiling, via)
