"""The kernel that normalises rows, from one source for a CPU and for GPUs.

A cube takes a band of rows, its units the lines of a row in turn. Statistics are made of lines,
then over the cube; a row is read again, from a near cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import cube_max, cube_sum
from cubepy.kernels.calls.epilogues import applied
from cubepy.kernels.calls.positions import count_up, unravelled
from cubepy.kernels.normalisation.functions import finisher
from cubepy.kernels.normalisation.problem import Normalisation, Places, RowTiling


def read_line(row: Any, j: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """A line in the type of the computation; `fill` is None for one that is whole."""
    v = cp.load(row, j, line=tiling.line, fill=fill)
    return v if v.dtype == op.dtype else op.dtype(v)


def read_input(row: Any, j: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """A line of what is normalised; lanes behind the end are `fill`."""
    v = read_line(row, j, op, tiling, fill)
    if op.prologue is None:
        return v
    v = op.dtype(applied(op.prologue, v, ()))
    if fill is None:
        return v
    return cp.where(is_inside(row, j, tiling), v, cp.Line[op.dtype, tiling.line](fill))


def is_inside(row: Any, j: Any, tiling: Any) -> Any:
    """Which lanes of a line are elements of the row."""
    return count_up(tiling.line, cp.i32) < cp.i32(min(row.shape[0] - j, tiling.line))


def folded(row: Any, start: Any, step: Any, combine: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """`combine` over `step(line)` of a unit's lines of a row, from `start` on, as one line.

    Lanes behind the end of the row are `start`.
    """
    stride = tiling.line * cp.CUBE_DIM
    block = stride * tiling.unroll
    first = tiling.line * cp.UNIT_POS
    n = row.shape[0]
    lines = tuple(cp.Line[op.dtype, tiling.line](start) for _ in range(tiling.unroll))
    whole = n // block * block
    for j in range(first, whole, block):
        lines = tuple(
            combine(lines[k], step(read_input(row, j + k * stride, op, tiling, None)))
            for k in range(tiling.unroll)
        )
    total = lines[0]
    for k in cp.unroll(range(1, tiling.unroll)):
        total = combine(total, lines[k])
    for j in range(whole + first, n, stride):
        v = step(read_input(row, j, op, tiling, fill))
        v = cp.where(is_inside(row, j, tiling), v, cp.Line[op.dtype, tiling.line](start))
        total = combine(total, v)
    return total


def added(a: Any, b: Any) -> Any:
    """a + b"""
    return a + b


def greater(a: Any, b: Any) -> Any:
    """The greater of each pair of lanes, NaN if either is; unlike `max` it orders no zeros."""
    return cp.where(a != a, a, cp.where(a > b, a, b))


def summed(row: Any, step: Any, op: Any, tiling: Any) -> Any:
    """The sum of `step(line)` over a row, known to all units."""
    return cube_sum(folded(row, 0, step, added, op, tiling, 0).sum())


def maximum(row: Any, op: Any, tiling: Any) -> Any:
    """The maximum of a row, known to all units."""
    lowest = float("-inf")
    return cube_max(folded(row, lowest, lambda v: v, greater, op, tiling, lowest).max())


def written(row: Any, out: Any, change: Any, op: Any, tiling: Any) -> None:
    """Store `change(line, j)` for a unit's lines."""
    stride = tiling.line * cp.CUBE_DIM
    n = row.shape[0]
    whole = n // stride * stride
    for j in range(tiling.line * cp.UNIT_POS, whole, stride):
        cp.store(out, j, change(read_input(row, j, op, tiling, None), j, None), whole=True)
    for j in range(whole + tiling.line * cp.UNIT_POS, n, stride):
        cp.store(out, j, change(read_input(row, j, op, tiling, 0), j, 0))


def soften(row: Any, out: Any, finish: Any, op: Any, tiling: Any) -> None:
    """Softmax, or its logarithm, of a row."""
    top = maximum(row, op, tiling)
    total = summed(row, lambda v: cp.exp(v - top), op, tiling)
    if op.name == "softmax":
        scale = 1 / total
        written(row, out, lambda v, j, fill: finish(cp.exp(v - top) * scale, j), op, tiling)
    else:
        shift = cp.log(total)
        written(row, out, lambda v, j, fill: finish(v - top - shift, j), op, tiling)


def weighted(v: Any, j: Any, fill: Any, weight: Any, bias: Any, op: Any, tiling: Any) -> Any:
    """A line times the weights plus the biases there, if there are any."""
    if len(weight) > 0:
        v = v * read_line(weight[0], j, op, tiling, fill)
    if len(bias) > 0:
        v = v + read_line(bias[0], j, op, tiling, fill)
    return v


def normalise(
    row: Any, weight: Any, bias: Any, out: Any, eps: Any, finish: Any, op: Any, tiling: Any
) -> None:
    """Layer or RMS norm of a row: the variance is made of distances from the mean."""
    count = op.dtype(row.shape[0])
    middle = op.dtype(0)
    if op.name == "layer_norm":
        middle = summed(row, lambda v: v, op, tiling) / count
    spread = summed(row, lambda v: (v - middle) * (v - middle), op, tiling) / count
    scale = 1 / cp.sqrt(spread + op.dtype(eps))
    written(
        row,
        out,
        lambda v, j, fill: finish(
            weighted((v - middle) * scale, j, fill, weight, bias, op, tiling), j
        ),
        op,
        tiling,
    )


# Rows that the units of a cube hold in registers


def places(row: Any, tiling: Any) -> Any:
    """Where a unit's lines of a row begin."""
    return tuple(tiling.line * (cp.UNIT_POS + k * cp.CUBE_DIM) for k in range(tiling.held))


def store_held(out: Any, j: Any, v: Any, tiling: Any) -> None:
    """Store a line of a row."""
    cp.store(out, j, v, whole=tiling.is_whole)


def soften_held(row: Any, out: Any, finish: Any, op: Any, tiling: Any) -> None:
    """As `soften`; the row is read once."""
    fill = None if tiling.is_whole else float("-inf")
    starts = places(row, tiling)
    lines = tuple(read_input(row, j, op, tiling, fill) for j in starts)
    largest = lines[0]
    for v in lines[1:]:
        largest = greater(largest, v)
    top = cube_max(largest.max())
    powers = tuple(cp.exp(v - top) for v in lines)
    total = powers[0]
    for v in powers[1:]:
        total = total + v
    total = cube_sum(total.sum())
    scale, shift = 1 / total, cp.log(total)
    for k in cp.unroll(range(tiling.held)):
        v = powers[k] * scale if op.name == "softmax" else lines[k] - top - shift
        store_held(out, starts[k], finish(v, starts[k]), tiling)


def squares(row: Any, lines: Any, starts: Any, middle: Any, op: Any, tiling: Any) -> Any:
    """The sum of the squared distances of some lines, without lanes behind the end of the row."""
    total = cp.Line[op.dtype, tiling.line](0)
    for k in cp.unroll(range(tiling.held)):
        v = (lines[k] - middle) * (lines[k] - middle)
        if not tiling.is_whole:
            inside = is_inside(row, starts[k], tiling)
            v = cp.where(inside, v, cp.Line[op.dtype, tiling.line](0))
        total = total + v
    return total.sum()


def normalise_held(
    row: Any, weight: Any, bias: Any, out: Any, eps: Any, finish: Any, op: Any, tiling: Any
) -> None:
    """As `normalise`; the row is read once."""
    fill = None if tiling.is_whole else 0
    starts = places(row, tiling)
    lines = tuple(read_input(row, j, op, tiling, fill) for j in starts)
    count, middle = op.dtype(row.shape[0]), op.dtype(0)
    if op.name == "layer_norm":
        total = lines[0]
        for v in lines[1:]:
            total = total + v
        middle = cube_sum(total.sum()) / count
    spread = cube_sum(squares(row, lines, starts, middle, op, tiling)) / count
    scale = 1 / cp.sqrt(spread + op.dtype(eps))
    for k in cp.unroll(range(tiling.held)):
        v = weighted((lines[k] - middle) * scale, starts[k], fill, weight, bias, op, tiling)
        store_held(out, starts[k], finish(v, starts[k]), tiling)


@cp.cube
def normalise_rows(
    x: cp.Tensor,
    weight: Any,
    bias: Any,
    out: cp.Tensor,
    extras: Any,
    eps: cp.Comptime[float],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    op: cp.Comptime[Normalisation],
    tiling: cp.Comptime[RowTiling],
) -> None:
    """A cube normalises `band` rows, which are the last axis of `x` and `out`."""
    rows = 1
    for n in out.shape[:-1]:
        rows = rows * n
    first = cp.CUBE_POS * tiling.band
    for i in range(first, min(first + tiling.band, rows)):
        where = unravelled(i, out.shape[:-1])
        finish = finisher(where, epilogue, extras, places)
        if op.is_softmax and tiling.held > 0:
            soften_held(x[where], out[where], finish, op, tiling)
        elif op.is_softmax:
            soften(x[where], out[where], finish, op, tiling)
        elif tiling.held > 0:
            normalise_held(x[where], weight, bias, out[where], eps, finish, op, tiling)
        else:
            normalise(x[where], weight, bias, out[where], eps, finish, op, tiling)


# Columns: lines along a kept axis, which comes last


def column_top(x: Any, at: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """The maxima of some lines of columns."""
    lowest = cp.Line[op.dtype, tiling.line](float("-inf"))
    tops = tuple(lowest for _ in range(tiling.unroll))
    for i in range(x.shape[0]):
        tops = tuple(
            greater(tops[k], read_input(x[i], at + k * tiling.line, op, tiling, fill))
            for k in range(tiling.unroll)
        )
    return tops


def soften_column(x: Any, out: Any, at: Any, op: Any, tiling: Any, fill: Any) -> None:
    """Softmax, or its logarithm, of some lines of columns from `at` on."""
    unroll, line = tiling.unroll, tiling.line
    tops = column_top(x, at, op, tiling, fill)
    totals = tuple(cp.Line[op.dtype, line](0) for _ in range(unroll))
    for i in range(x.shape[0]):
        totals = tuple(
            totals[k] + cp.exp(read_input(x[i], at + k * line, op, tiling, fill) - tops[k])
            for k in range(unroll)
        )
    if op.name == "softmax":
        factors = tuple(1 / total for total in totals)
    else:
        factors = tuple(cp.log(total) for total in totals)
    for i in range(x.shape[0]):
        for k in cp.unroll(range(unroll)):
            v = read_input(x[i], at + k * line, op, tiling, fill) - tops[k]
            v = cp.exp(v) * factors[k] if op.name == "softmax" else v - factors[k]
            cp.store(out[i], at + k * line, v, whole=fill is None)


@cp.cube
def soften_columns(
    x: cp.Tensor,
    out: cp.Tensor,
    op: cp.Comptime[Normalisation],
    tiling: cp.Comptime[RowTiling],
) -> None:
    """A unit takes `unroll` lines of columns; rows are the last axis but one."""
    step, columns = tiling.line * tiling.unroll, x.shape[-1]
    blocks, items = (columns + step - 1) // step, 1
    for n in x.shape[:-2]:
        items = items * n
    if items * blocks > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS // blocks, x.shape[:-2])
        at = cp.ABSOLUTE_POS % blocks * step
        if at + step <= columns:
            soften_column(x[where], out[where], at, op, tiling, None)
        else:
            soften_column(x[where], out[where], at, op, tiling, 0)
