"""Kernels for the gradient of a convolution by its weights.

An element is the sum, over all results of its filter, of their gradient times the element of the
array that the tap met. On CPUs a line of gradients is multiplied by the lines that the taps of a
row met, for a few filters, with all sums in registers; on GPUs a unit makes one element.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import count_up, unravelled
from cubepy.kernels.convolution.each import is_inside
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Sums:
    """`filters` filters by `taps` taps of a row have sums in registers, in lines of `line`
    elements; one unit makes them, or of one element each `units` to a cube."""

    filters: int
    taps: int
    line: int
    units: int
    dtype: DType


@cp.cube
def sum_lines(
    xs: Any,
    grad: cp.Tensor,
    out: cp.Tensor,
    groups: int,
    window: cp.Comptime[Window],
    t: cp.Comptime[Sums],
) -> None:
    """A cube for `t.filters` filters and one channel; `out` is [filter, channel, ...].

    `xs` are the elements of the array whose columns are 0, 1, ... modulo the stride, without gaps.
    """
    own, channels = out.shape[0] // groups, out.shape[1]
    blocks = (own + t.filters - 1) // t.filters
    c, block = cp.CUBE_POS % channels, cp.CUBE_POS // channels
    group, f0 = block // blocks, block % blocks * t.filters
    first, count = group * own + f0, min(t.filters, own - f0)
    for a in range(window.kernel[0]):
        for b in range(window.kernel[1]):
            for e in cp.unroll(range(0, window.kernel[2], t.taps)):
                place = first, count, group * channels + c, c, a, b
                sum_taps(xs, grad, out, place, e, window, t)


def sum_taps(xs: Any, grad: Any, out: Any, place: Any, e: Any, window: Any, t: Any) -> None:
    """The gradients of some neighbouring taps."""
    first, count, channel, c, a, b = place
    taps = min(t.taps, window.kernel[2] - e)
    found = cp.local((t.filters, taps), cp.Line[t.dtype, t.line], fill=0)
    for n in range(grad.shape[0]):
        for z in range(grad.shape[2]):
            depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
            for y in range(grad.shape[3]):
                row = y * window.stride[1] + b * window.dilation[1] - window.before[1]
                if is_row(xs[0], depth, row):
                    rows = tuple(x[n, channel, depth, row] for x in xs)
                    grads = tuple(
                        grad[n, first + min(u, count - 1), z, y] for u in range(t.filters)
                    )
                    add_row(rows, grads, found, e, taps, window, t)
    for u in cp.unroll(range(t.filters)):
        if u < count:
            for k in cp.unroll(range(taps)):
                out[first + u, c, a, b, e + k] = found[u, k].sum()


def is_row(x: Any, depth: Any, row: Any) -> Any:
    """Whether there is a row; it may have no element at this place of the stride."""
    return row >= 0 and row < x.shape[3] and depth >= 0 and depth < x.shape[2]


def add_row(rows: Any, grads: Any, found: Any, e: Any, taps: Any, window: Any, t: Any) -> None:
    """Add the products of one row of gradients; most lines meet no end of a row."""
    n, shifts = grads[0].shape[0], tuple(shift_of(e + k, window) for k in range(taps))
    width = rows[0].shape[0]
    for k in cp.unroll(range(1, len(rows))):
        width = min(width, rows[k].shape[0])
    whole = n // t.line * t.line
    for i in range(0, whole, t.line):
        if i + min(shifts) >= 0 and i + t.line + max(shifts) <= width:
            add_line(rows, grads, found, i, None, None, e, taps, window, t)
        else:
            add_line(rows, grads, found, i, None, 0, e, taps, window, t)
    if whole < n:
        add_line(rows, grads, found, whole, 0, 0, e, taps, window, t)


def shift_of(tap: Any, window: Any) -> Any:
    """How far behind a result's place the element lies that a tap of its row meets."""
    return (tap * window.dilation[2] - window.before[2]) // window.stride[2]


def add_line(
    rows: Any,
    grads: Any,
    found: Any,
    i: Any,
    fill: Any,
    outside: Any,
    e: Any,
    taps: Any,
    window: Any,
    t: Any,
) -> None:
    """Add the products of one line; where `fill` is not None, it may end behind the row of
    gradients, and where `outside` is not None, outside of that of the array."""
    line = tuple(cp.Line[t.dtype, t.line](cp.load(g, i, line=t.line, fill=fill)) for g in grads)
    for k in cp.unroll(range(taps)):
        x = rows[((e + k) * window.dilation[2] - window.before[2]) % window.stride[2]]
        at = i + shift_of(e + k, window)
        v = cp.Line[t.dtype, t.line](cp.load(x, at, line=t.line, fill=outside))
        if fill is not None:
            inside = cp.i32(i) + count_up(t.line, cp.i32) < cp.i32(grads[0].shape[0])
            v = cp.where(inside, v, cp.Line[t.dtype, t.line](0))
        for u in cp.unroll(range(t.filters)):
            found[u, k] = found[u, k] + v * line[u]


@cp.cube
def sum_each(
    x: cp.Tensor,
    grad: cp.Tensor,
    out: cp.Tensor,
    groups: int,
    window: cp.Comptime[Window],
    t: cp.Comptime[Sums],
) -> None:
    """A unit for each element of `out`, which is [filter, channel, ...]."""
    place = cp.ABSOLUTE_POS
    if place < out.size:
        f, c, a, b, e = unravelled(place, out.shape)
        channel = f // (out.shape[0] // groups) * out.shape[1] + c
        found = t.dtype(0)
        for n in range(grad.shape[0]):
            for z in range(grad.shape[2]):
                depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
                for y in range(grad.shape[3]):
                    row = y * window.stride[1] + b * window.dilation[1] - window.before[1]
                    for i in range(grad.shape[4]):
                        column = i * window.stride[2] + e * window.dilation[2] - window.before[2]
                        if is_inside(x, depth, row, column):
                            v = t.dtype(x[n, channel, depth, row, column])
                            found = found + v * t.dtype(grad[n, f, z, y, i])
        out[f, c, a, b, e] = found
