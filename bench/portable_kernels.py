"""Kernels for every device from one source: they differ in comptime plane and line size.

On a GPU a row is shared by a cube of planes with 16-byte loads; with planes of one unit and a cube
of one unit, as on a CPU, the same text is a loop over whole vector registers without a barrier.
"""

from __future__ import annotations

import math
from typing import Any

import cubepy as cp

HELD = 16
"""Lines of a row that a unit keeps in registers between its passes."""


@cp.cube
def copy(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i]


def gelu(v: Any) -> Any:
    return v * 0.5 * (1 + cp.erf(v * 0.7071067811865476))


@cp.cube
def gated_gelu(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    """gelu(x * 1.5 + 0.5) * sigmoid(x)"""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v = x.flat[i]
        out.flat[i] = gelu(v * 1.5 + 0.5) * cp.sigmoid(v)


# Reductions


def over_cube(v: Any, combine: Any, combine_plane: Any) -> Any:
    """One number of all units of a cube, known to all of them."""
    v = combine_plane(v)
    if cp.PLANE_COUNT == 1:
        return v
    parts = cp.shared(cp.PLANE_COUNT, v.dtype)
    if cp.plane_elect():
        parts[cp.UNIT_POS // cp.PLANE_DIM] = v
    cp.sync_cube()
    found = parts[0]
    for k in cp.unroll(range(1, cp.PLANE_COUNT)):
        found = combine(found, parts[k])
    cp.sync_cube()
    return found


def add(a: Any, b: Any) -> Any:
    return a + b


@cp.cube
def sum_rows(x: cp.Lines[cp.f32], out: cp.Tensor[cp.f32]):
    """A cube for each row."""
    row = cp.CUBE_POS
    total = cp.Line[cp.f32, x.line_size](0.0)
    for j in range(cp.UNIT_POS, x.shape[1], cp.CUBE_DIM):
        total += x[row, j]
    found = over_cube(total.sum(), add, cp.plane_sum)
    if cp.UNIT_POS == 0:
        out[row] = found


@cp.cube
def sum_shares(x: cp.Lines[cp.f32], out: cp.Tensor[cp.f32]):
    """Each cube adds a share of all elements; line by line, so that neighbours read neighbours."""
    total = cp.Line[cp.f32, x.line_size](0.0)
    for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_DIM * cp.CUBE_COUNT):
        total += x.flat[i]
    found = over_cube(total.sum(), add, cp.plane_sum)
    if cp.UNIT_POS == 0:
        out[cp.CUBE_POS] = found


@cp.cube
def sum_columns(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32], band: cp.Comptime[int]):
    """out[b, j] is the sum of a band of rows; a unit adds one line of columns."""
    j, first = cp.ABSOLUTE_POS_X, cp.CUBE_POS_Y * band
    if j < x.shape[1]:
        total = cp.Line[cp.f32, x.line_size](0.0)
        for row in range(first, min(first + band, x.shape[0])):
            total += x[row, j]
        out[cp.CUBE_POS_Y, j] = total


@cp.cube
def softmax_rows(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32], lines: cp.Comptime[int]):
    """A cube for each row of `lines` lines, which its units keep in registers if they are few."""
    row = cp.CUBE_POS
    share = (lines + cp.CUBE_DIM - 1) // cp.CUBE_DIM
    if share <= HELD:
        held_row(x, out, row, share, lines)
    else:
        long_row(x, out, row, lines)


def held_row(x: Any, out: Any, row: Any, share: Any, lines: Any) -> None:
    held = cp.local(share, cp.Line[cp.f32, x.line_size])
    largest = cp.Line[cp.f32, x.line_size](-math.inf)
    for k in cp.unroll(range(share)):
        held[k] = cp.load(x, (row, cp.UNIT_POS + k * cp.CUBE_DIM), fill=-math.inf)
        largest = max(largest, held[k])
    top = over_cube(largest.max(), max, cp.plane_max)
    total = cp.Line[cp.f32, x.line_size](0.0)
    for k in cp.unroll(range(share)):
        held[k] = cp.exp(held[k] - top)
        total += held[k]
    scale = 1 / over_cube(total.sum(), add, cp.plane_sum)
    for k in cp.unroll(range(share)):
        j = cp.UNIT_POS + k * cp.CUBE_DIM
        if j < lines:
            out[row, j] = held[k] * scale


def long_row(x: Any, out: Any, row: Any, lines: Any) -> None:
    largest = cp.Line[cp.f32, x.line_size](-math.inf)
    for j in range(cp.UNIT_POS, lines, cp.CUBE_DIM):
        largest = max(largest, cp.load(x, (row, j), fill=-math.inf))
    top = over_cube(largest.max(), max, cp.plane_max)
    total = cp.Line[cp.f32, x.line_size](0.0)
    for j in range(cp.UNIT_POS, lines, cp.CUBE_DIM):
        total += cp.exp(cp.load(x, (row, j), fill=-math.inf) - top)
    scale = 1 / over_cube(total.sum(), add, cp.plane_sum)
    for j in range(cp.UNIT_POS, lines, cp.CUBE_DIM):
        out[row, j] = cp.exp(x[row, j] - top) * scale


# Max pooling of [planes, rows, columns]


@cp.cube
def max_pool(
    x: cp.Lines[cp.f32],
    out: cp.Lines[cp.f32],
    size: cp.Comptime[int],
    stride: cp.Comptime[int],
    pad: cp.Comptime[int],
    band: cp.Comptime[int],
):
    """A unit makes a line of outputs in each row of a band: it loads all rows at once, and reduces
    those that windows share along the columns once. `pad` and `size - stride - pad` are at most 1.
    """
    j, first, plane = cp.ABSOLUTE_POS_X, cp.ABSOLUTE_POS_Y * band, cp.CUBE_POS_Z
    if j < out.shape[2]:
        top = first * stride - pad
        count = (band - 1) * stride + size
        rows = tuple(row_maxima(x, plane, top + k, j, size, stride, pad) for k in range(count))
        for k in cp.unroll(range(band)):
            if first + k < out.shape[1]:
                best = greatest(rows[k * stride : k * stride + size])
                cp.store(out, (plane, first + k, j), best, hint="stream")


def greatest(values: Any) -> Any:
    found = values[0]
    for v in values[1:]:
        found = max(found, v)
    return found


def row_maxima(x: Any, plane: Any, row: Any, j: Any, size: Any, stride: Any, pad: Any) -> Any:
    """The maxima along the columns of one row's part of the windows.

    A row over the edge is the one at the edge, which the window has as well: no load waits for a
    branch.
    """
    width, row = x.line_size, min(max(row, 0), x.shape[1] - 1)
    lines = tuple(cp.load(x, (plane, row, j * stride + k), fill=-math.inf) for k in range(stride))
    own = lines[0] if stride == 1 else cp.concat(lines[0], lines[1])
    left = with_left(x, plane, row, j * stride, own) if pad > 0 else own
    wide = size - stride - pad > 0
    both = with_right(x, plane, row, (j + 1) * stride, left) if wide else left
    return greatest(tuple(both[k : k + (width - 1) * stride + 1 : stride] for k in range(size)))


def with_left(x: Any, plane: Any, row: Any, j: Any, own: Any) -> Any:
    """Some lines from `j` on, and the element before them."""
    before = cp.load(x, (plane, row, max(j - 1, 0)), fill=-math.inf)[x.line_size - 1]
    return cp.concat(cp.Line[cp.f32, 1](before if j > 0 else -math.inf), own)


def with_right(x: Any, plane: Any, row: Any, j: Any, own: Any) -> Any:
    """Some lines before `j`, and the element behind them."""
    behind = cp.load(x, (plane, row, min(j, x.shape[2] - 1)), fill=-math.inf)[0]
    return cp.concat(own, cp.Line[cp.f32, 1](behind if j < x.shape[2] else -math.inf))
