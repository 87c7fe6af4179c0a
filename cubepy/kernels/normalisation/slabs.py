"""Kernels that normalise slabs: rows whose statistics are made together, as batch and group norm.

A slab is some rows of elements; weights vary along rows, or from row to row. The units of a cube
share a slab by rows and by lines. Where a slab fills more than a cache, means and squared distances
are made of parts that fit, and combined (Chan, Golub and LeVeque, "Updating formulae and a
pairwise algorithm for computing sample variances", 1979), so that memory is read once for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import cube_sum
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.normalisation.functions import finisher
from cubepy.kernels.normalisation.problem import Places, Slabs
from cubepy.kernels.normalisation.reading import is_inside, read_element, read_input, read_line
from cubepy.kernels.reduction.moments import (
    finite_or_zero,
    lane_moments,
    mended,
    no_lines,
    over_units,
    with_part,
)
from cubepy.record import dataclass

BLOCK = 4
"""Lines that a unit of a wide cube describes at a time."""


def row_count(slab: Any) -> Any:
    """How many rows lie along the last axis of a slab."""
    return product(slab.shape[:-1])


def row_of(slab: Any, r: Any) -> Any:
    """One row."""
    return slab[unravelled(r, slab.shape[:-1])]


def row_total(row: Any, step: Any, t: Any) -> Any:
    """The sum of `step(line)` over a unit's lines of a row, as one line."""
    stride = t.line * t.across
    first, block = t.line * (cp.UNIT_POS % t.across), stride * t.unroll
    n = row.shape[0]
    zero = cp.Line[t.dtype, t.line](0)
    totals = tuple(zero for _ in range(t.unroll))
    whole = n // block * block
    for j in range(first, whole, block):
        totals = tuple(
            totals[k] + step(read_input(row, j + k * stride, t, t, None)) for k in range(t.unroll)
        )
    total = totals[0]
    for k in cp.unroll(range(1, t.unroll)):
        total = total + totals[k]
    for j in range(whole + first, n, stride):
        v = step(read_input(row, j, t, t, 0))
        total = total + cp.where(is_inside(row, j, t), v, zero)
    return total


def rows_total(slab: Any, begin: Any, end: Any, step: Any, t: Any) -> Any:
    """The sum of `step(line)` over some rows, known to all units."""
    total = cp.Line[t.dtype, t.line](0)
    down = cp.CUBE_DIM // t.across
    for r in range(begin + cp.UNIT_POS // t.across, end, down):
        total = total + row_total(row_of(slab, r), step, t)
    return cube_sum(total.sum())


def statistics(slab: Any, t: Any) -> Any:
    """The mean of a slab and the sum of the squared distances from it."""
    if cp.CUBE_DIM > 1:
        return shared_statistics(slab, t)
    rows, length = row_count(slab), slab.shape[slab.rank - 1]
    middle, spread = t.dtype(0), t.dtype(0)
    for begin in range(0, rows, t.rows):
        end = min(begin + t.rows, rows)
        count = t.dtype((end - begin) * length)
        mean = mean_of(slab, begin, end, count, t)
        around = spread_of(slab, begin, end, mean, t)
        state, before = (middle, spread), t.dtype(begin * length)
        middle, spread = with_part(state, before, (mean, around), count)
    return middle, spread


def shared_statistics(slab: Any, t: Any) -> Any:
    """As `statistics`, by units that read the slab once; the first element is subtracted from all,
    so that numbers far from 0 lose nothing."""
    rows, length = row_count(slab), slab.shape[slab.rank - 1]
    pivot = finite_or_zero(read_element(row_of(slab, 0), 0, t)[0])
    state, few = no_lines(t.dtype, t.line), no_lines(t.dtype, 1)
    for r in range(cp.UNIT_POS // t.across, rows, cp.CUBE_DIM // t.across):
        row = row_of(slab, r)
        state = line_moments(row, pivot, state, t)
        few = rest_moments(row, pivot, few, t)
    found, spread = over_units(state, few, t.dtype(rows * length))
    return pivot + found, spread


def line_moments(row: Any, pivot: Any, state: Any, t: Any) -> Any:
    """A unit's state after the whole lines of a row."""
    span = cp.UNIT_POS % t.across, t.across, row.shape[0] // t.line
    return lane_moments(
        lambda p: read_input(row, p * t.line, t, t, None) - pivot, span, state, BLOCK
    )


def rest_moments(row: Any, pivot: Any, state: Any, t: Any) -> Any:
    """A unit's state after the elements behind the last whole line of a row."""
    length = row.shape[0]
    span = length // t.line * t.line + cp.UNIT_POS % t.across, t.across, length
    return lane_moments(lambda j: read_element(row, j, t) - pivot, span, state, 1)


def mean_of(slab: Any, begin: Any, end: Any, count: Any, t: Any) -> Any:
    """The mean of some rows, less what a first sum has rounded."""
    mean = rows_total(slab, begin, end, lambda v: v, t) / count
    return mended(mean, rows_total(slab, begin, end, lambda v: v - mean, t) / count)


def spread_of(slab: Any, begin: Any, end: Any, mean: Any, t: Any) -> Any:
    """The sum of the squared distances of some rows from a mean."""
    return rows_total(slab, begin, end, lambda v: (v - mean) * (v - mean), t)


def update(running: Any, where: Any, mean: Any, spread: Any, count: Any, momentum: Any) -> None:
    """Move the running mean and the unbiased running variance towards those of a slab."""
    if len(running) > 0 and cp.UNIT_POS == 0:
        move(running[0], where, mean, momentum)
        move(running[1], where, spread / (count - 1), momentum)


def move(running: Any, where: Any, v: Any, momentum: Any) -> None:
    """running = (1 - momentum) * running + momentum * v"""
    old = v.dtype(running[where])
    running[where] = old * (1 - momentum) + v * momentum


@dataclass(frozen=True, slots=True)
class Change:
    """What lines of a row become: (line - middle) * scale, times the weights and plus the biases
    that lie along it, plus a shift, and what an epilogue makes of that."""

    middle: Any
    scale: Any
    weight: Any
    bias: Any
    shift: Any
    finish: Any


def change_of(weight: Any, bias: Any, middle: Any, scale: Any, finish: Any, t: Any) -> Change:
    """A row's change; one weight or bias for all of it becomes a part of the scale or the shift."""
    if t.is_along:
        return Change(middle, scale, weight, bias, (), finish)
    if len(weight) > 0:
        scale = scale * t.dtype(weight[0][0])
    shift = tuple(t.dtype(b[0]) for b in bias)
    return Change(middle, scale, (), (), shift, finish)


def changed(v: Any, j: Any, fill: Any, change: Any, t: Any) -> Any:
    """A line that begins at element `j` of a row, and may end behind it unless `fill` is None."""
    v = (v - change.middle) * change.scale
    for weight in change.weight:
        v = v * read_line(weight, j, t, t, fill)
    for bias in change.bias:
        v = v + read_line(bias, j, t, t, fill)
    for shift in change.shift:
        v = v + shift
    return change.finish(v, j)


def starts_of(n: Any, t: Any) -> Any:
    """Where a unit's lines of a row of `n` elements begin: every `unroll`th of those that are whole
    and so many, and each one behind them."""
    stride = t.line * t.across
    first, block = t.line * (cp.UNIT_POS % t.across), stride * t.unroll
    whole = n // block * block
    return range(first, whole, block), range(whole + first, n, stride)


def put_lines(
    row: Any, out: Any, j: Any, count: Any, change: Any, fill: Any, t: Any, hint: Any = None
) -> None:
    """Store what `count` lines of a unit become, which are read together; those that are not whole
    read as `fill`."""
    stride = t.line * t.across
    lines = tuple(read_input(row, j + k * stride, t, t, fill) for k in range(count))
    for k in cp.unroll(range(count)):
        v = changed(lines[k], j + k * stride, fill, change, t)
        cp.store(out, j + k * stride, v, whole=fill is None, hint=hint)


def write_row(row: Any, out: Any, change: Any, t: Any) -> None:
    """Store what a unit's lines of a row become."""
    blocks, rest = starts_of(out.shape[0], t)
    for j in blocks:
        put_lines(row, out, j, t.unroll, change, None, t)
    for j in rest:
        put_lines(row, out, j, 1, change, 0, t)


@cp.cube
def normalise_slabs(
    x: cp.Tensor,
    weight: Any,
    bias: Any,
    running: Any,
    out: cp.Tensor,
    extras: Any,
    eps: cp.Comptime[float],
    momentum: cp.Comptime[float],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    t: cp.Comptime[Slabs],
) -> None:
    """A cube normalises one slab: the last axes of all arrays, behind the `t.items` first ones.

    `running` has the first axes alone.
    """
    where = unravelled(cp.CUBE_POS, out.shape[: t.items])
    slab, into = x[where], out[where]
    rows, length = row_count(slab), slab.shape[slab.rank - 1]
    count = t.dtype(rows * length)
    if t.is_centred:
        middle, spread = statistics(slab, t)
    else:
        middle, spread = t.dtype(0), rows_total(slab, 0, rows, lambda v: v * v, t)
    update(running, where, middle, spread, count, momentum)
    scale = 1 / cp.sqrt(spread / count + t.dtype(eps))
    weights, biases = tuple(w[where] for w in weight), tuple(b[where] for b in bias)
    down = cp.CUBE_DIM // t.across
    for r in range(cp.UNIT_POS // t.across, rows, down):
        at = unravelled(r, slab.shape[:-1])
        finish = finisher((*where, *at), epilogue, extras, places)
        ws, bs = tuple(w[at] for w in weights), tuple(b[at] for b in biases)
        write_row(slab[at], into[at], change_of(ws, bs, middle, scale, finish, t), t)


# Statistics that are known


@cp.cube
def normalise_given(
    x: cp.Tensor,
    mean: cp.Tensor,
    variance: cp.Tensor,
    weight: Any,
    bias: Any,
    out: cp.Tensor,
    extras: Any,
    eps: cp.Comptime[float],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    places: cp.Comptime[Places],
    t: cp.Comptime[Slabs],
) -> None:
    """A cube normalises `t.rows` rows by means and variances of the shape of the arrays."""
    first, rows = cp.CUBE_POS * t.rows, row_count(out)
    down = cp.CUBE_DIM // t.across
    for r in range(first + cp.UNIT_POS // t.across, min(first + t.rows, rows), down):
        at = unravelled(r, out.shape[:-1])
        weights, biases = tuple(w[at] for w in weight), tuple(b[at] for b in bias)
        finish = finisher(at, epilogue, extras, places)
        if t.is_along:
            write_columns(x[at], out[at], mean[at], variance[at], weights, biases, eps, finish, t)
        else:
            scale = 1 / cp.sqrt(t.dtype(variance[at][0]) + t.dtype(eps))
            middle = t.dtype(mean[at][0])
            change = change_of(weights, biases, middle, scale, finish, t)
            write_row(x[at], out[at], change, t)


def write_columns(
    row: Any,
    out: Any,
    mean: Any,
    variance: Any,
    weight: Any,
    bias: Any,
    eps: Any,
    finish: Any,
    t: Any,
) -> None:
    """As `write_row`, with a mean and variance for each element of a row."""
    stride = t.line * t.across
    first, n = t.line * (cp.UNIT_POS % t.across), row.shape[0]
    whole = n // stride * stride
    for j in range(first, whole, stride):
        write_column(row, out, mean, variance, weight, bias, eps, finish, j, None, t)
    for j in range(whole + first, n, stride):
        write_column(row, out, mean, variance, weight, bias, eps, finish, j, 0, t)


def write_column(
    row: Any,
    out: Any,
    mean: Any,
    variance: Any,
    weight: Any,
    bias: Any,
    eps: Any,
    finish: Any,
    j: Any,
    fill: Any,
    t: Any,
) -> None:
    """One line; where `fill` is not None, it may end behind the row."""
    scale = 1 / cp.sqrt(read_line(variance, j, t, t, fill) + t.dtype(eps))
    change = Change(read_line(mean, j, t, t, fill), scale, weight, bias, (), finish)
    put_lines(row, out, j, 1, change, fill, t)


# Statistics of columns, for arrays with channels last


@cp.cube
def column_statistics(
    x: cp.Tensor, means: cp.Tensor, spreads: cp.Tensor, width: int, t: cp.Comptime[Slabs]
) -> None:
    """Means and squared distances of parts of `t.rows` rows of `x`, which has channels last.

    `means` and `spreads` are [part, channel]; a cube makes `width` channels of a part.
    """
    channels = x.shape[x.rank - 1]
    blocks = (channels + width - 1) // width
    part, c0 = cp.CUBE_POS // blocks, cp.CUBE_POS % blocks * width
    begin = part * t.rows
    end = min(begin + t.rows, row_count(x))
    for c in range(c0 + cp.UNIT_POS * t.line, min(c0 + width, channels), cp.CUBE_DIM * t.line):
        describe_columns(x, means[part], spreads[part], begin, end, c, t)


def describe_columns(
    x: Any, means: Any, spreads: Any, begin: Any, end: Any, c: Any, t: Any
) -> None:
    """The statistics of some rows, for a line of channels."""
    count = t.dtype(end - begin)
    mean = column_total(x, begin, end, c, lambda v: v, t) / count
    mean = mended(mean, column_total(x, begin, end, c, lambda v: v - mean, t) / count)
    around = column_total(x, begin, end, c, lambda v: (v - mean) * (v - mean), t)
    cp.store(means, c, mean)
    cp.store(spreads, c, around)


def column_total(x: Any, begin: Any, end: Any, c: Any, step: Any, t: Any) -> Any:
    """The sum of `step(line)` along some rows, for a line of channels."""
    zero = cp.Line[t.dtype, t.line](0)
    totals = tuple(zero for _ in range(t.unroll))
    whole = begin + (end - begin) // t.unroll * t.unroll
    for r in range(begin, whole, t.unroll):
        totals = tuple(
            totals[k] + step(read_input(row_of(x, r + k), c, t, t, 0)) for k in range(t.unroll)
        )
    total = totals[0]
    for k in cp.unroll(range(1, t.unroll)):
        total = total + totals[k]
    for r in range(whole, end):
        total = total + step(read_input(row_of(x, r), c, t, t, 0))
    return total


@cp.cube
def finish_columns(
    means: cp.Tensor,
    spreads: cp.Tensor,
    mean: cp.Tensor,
    variance: cp.Tensor,
    running: Any,
    rows: int,
    momentum: cp.Comptime[float],
    t: cp.Comptime[Slabs],
) -> None:
    """The statistics of each channel of those of the parts; a cube each."""
    c = cp.CUBE_POS
    middle, spread = means[0, c], spreads[0, c]
    for part in range(1, means.shape[0]):
        begin = part * t.rows
        count = t.dtype(min(t.rows, rows - begin))
        found = means[part, c], spreads[part, c]
        middle, spread = with_part((middle, spread), t.dtype(begin), found, count)
    mean[c] = middle
    variance[c] = spread / t.dtype(rows)
    update(running, (c,), middle, spread, t.dtype(rows), momentum)
