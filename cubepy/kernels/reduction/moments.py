"""Kernels of variances for cubes of many units, which read their data once.

A unit takes a block of lines into registers, makes its mean and the squared distances from it, and
combines these with those so far (Chan, Golub and LeVeque, "Updating formulae and a pairwise
algorithm for computing sample variances", 1979). Parts of a result lie as means and squared
distances in memory until they are joined. The first element, the pivot, is subtracted from all, so
that numbers far from 0 lose nothing; it is 0 where that element is not finite. A mean is then what
the sum of all elements makes it: infinite, or NaN of both infinities.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import add, cube_sum, over_group
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.reduction.kernel import loaded, written
from cubepy.kernels.reduction.problem import Reduction
from cubepy.kernels.reduction.wide_kernel import WideTiling
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class MomentTiling:
    """A `WideTiling` for one reduced axis, of which a unit takes `block` lines (rows) at a time."""

    wide: WideTiling
    block: int


# One unit: counts, means and squared distances of lanes


def described(lines: Any) -> Any:
    """The mean and the squared distances of some lines, lane by lane."""
    total = lines[0]
    for v in lines[1:]:
        total = total + v
    mean = total * (1 / len(lines))
    spread = (lines[0] - mean) * (lines[0] - mean)
    for v in lines[1:]:
        spread = spread + (v - mean) * (v - mean)
    return mean, spread


def with_part(state: Any, count: Any, part: Any, number: Any) -> Any:
    """The moments of `count` lines and a part of `number` lines, which are not none together."""
    mean, spread = state
    away, share = part[0] - mean, number / (count + number)
    between = (away * share) * (away * count)  # no square, which may overflow where `count` is 0
    return moved(mean, part[0], share), spread + part[1] + between


def moved(mean: Any, other: Any, share: Any) -> Any:
    """The mean of a part, and of another that is this share of both; infinite where either is."""
    infinite = abs(mean) == float("inf")  # the distance from there is no number
    return cp.where(infinite, mean + other, mean + (other - mean) * share)


def finite_or_zero(v: Any) -> Any:
    """A number, or 0 for one that is not finite: what is subtracted from all elements, and what is
    added to a mean."""
    return cp.where(v - v == 0, v, 0)


def mended(mean: Any, off: Any) -> Any:
    """A mean less what its sum has rounded: `off`, the mean of the distances from it, unless that
    is not finite."""
    return mean + finite_or_zero(off)


def no_lines(dtype: Any, line: Any) -> Any:
    """The state before any line."""
    return dtype(0), cp.Line[dtype, line](0), cp.Line[dtype, line](0)


def lane_moments(x: Any, span: Any, state: Any, block: Any) -> Any:
    """A state after the lines x(at), x(at + step), ... before `end`, of `span` = (at, step, end):
    how many lines there were, and lane by lane their means and squared distances. `block` lines go
    together."""
    (at, step, end), (count, mean, spread) = span, state
    dtype, i = mean.dtype, at
    while i + (block - 1) * step < end:
        lines = tuple(x(i + k * step) for k in range(block))
        mean, spread = with_part((mean, spread), count, described(lines), dtype(block))
        count += dtype(block)
        i += block * step
    while i < end:
        v = x(i)
        none = v - v  # but for infinities, whose distance from themselves is no number
        mean, spread = with_part((mean, spread), count, (v, none), dtype(1))
        count += dtype(1)
        i += step
    return count, mean, spread


# Rows


@cp.cube
def describe_rows(
    x: cp.Tensor,
    parts: Any,
    out: Any,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[MomentTiling],
) -> None:
    """A cube describes one chunk of one row. `parts`: none where a row is one chunk, which is the
    result `out`; else means and squared distances, whose last axis counts the chunks."""
    kept, size = tiling.wide.kept, tiling.wide.chunk * tiling.wide.line
    extents = parts[0].shape if len(parts) > 0 else (*out[0].shape, 1)
    where = unravelled(cp.CUBE_POS // extents[kept], extents[:kept])
    chunk = cp.CUBE_POS % extents[kept]
    first = chunk * size
    end = min(first + size, x.shape[kept])
    mean, spread = row_moments(x[where], first, end, op, tiling)
    if cp.UNIT_POS == 0:
        if len(parts) == 0:
            out[0][where] = written(spread, op, count, 0)
        else:
            parts[0][(*where, chunk)] = mean
            parts[1][(*where, chunk)] = spread


def row_moments(row: Any, first: Any, end: Any, op: Any, tiling: Any) -> Any:
    """The mean and the squared distances of the elements [first, end) of a row, less its pivot."""
    line = tiling.wide.line
    pivot, part = finite_or_zero(loaded(row, 0, op, 1, None, 0)[0]), row[first:end]
    return moments_of(
        lambda p: loaded(part, p * line, op, line, None, 0) - pivot,
        lambda j: loaded(part, j, op, 1, None, 0) - pivot,
        end - first,
        line,
        op.dtype,
        tiling.block,
        tiling.wide.across,
    )


def moments_of(
    whole: Any, each: Any, number: Any, line: Any, dtype: Any, block: Any, across: Any = 0
) -> Any:
    """The mean and the squared distances of a row of `number` elements, by all units of a cube, or
    by a group of `across` units of a plane: whole(p) is line number p of it, each(j) its element j
    as a line of one."""
    lines, own, step = number // line, cp.UNIT_POS, cp.CUBE_DIM
    if across > 0:
        own, step = cp.UNIT_POS % across, across
    state = lane_moments(whole, (own, step, lines), no_lines(dtype, line), block)
    span = lines * line + own, step, number
    few = lane_moments(each, span, no_lines(dtype, 1), 1)
    return over_units(state, few, dtype(number), across)


def over_units(state: Any, few: Any, number: Any, across: Any = 0) -> Any:
    """The mean and the squared distances of all `number` elements of the states of the units."""
    (count, mean, spread), (rest, middle, around) = state, few
    found = unit_sum((mean * count).sum() + (middle * rest).sum(), across) / number
    away, aside = mean - found, middle - found
    total = (spread + away * (away * count)).sum() + (around + aside * (aside * rest)).sum()
    return found, unit_sum(total, across)


def unit_sum(v: Any, across: Any) -> Any:
    """The sum over the units that share a row."""
    return over_group(v, across, add) if across > 0 else cube_sum(v)


@cp.cube
def describe_short_rows(
    x: cp.Tensor,
    out: cp.Tensor,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[MomentTiling],
) -> None:
    """A group of units of a plane describes a row; groups behind the last one do it again."""
    item, across = cp.ABSOLUTE_POS // tiling.wide.across, tiling.wide.across
    where = unravelled(min(item, out.size - 1), out.shape)
    _, spread = row_moments(x[where], 0, x.shape[tiling.wide.kept], op, tiling)
    if item < out.size and cp.UNIT_POS % across == 0:
        out[where] = written(spread, op, count, 0)


@cp.cube
def join_rows(
    means: cp.Tensor,
    spreads: cp.Tensor,
    out: cp.Tensor,
    extent: int,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[MomentTiling],
) -> None:
    """A cube joins the chunks of one result of `extent` elements."""
    where = unravelled(cp.CUBE_POS, out.shape)
    size = tiling.wide.chunk * tiling.wide.line
    total = op.dtype(0)
    for k in range(cp.UNIT_POS, means.shape[-1], cp.CUBE_DIM):
        total += means[(*where, k)] * op.dtype(min(size, extent - k * size))
    middle = cube_sum(total) / op.dtype(extent)
    around = op.dtype(0)
    for k in range(cp.UNIT_POS, means.shape[-1], cp.CUBE_DIM):
        away = means[(*where, k)] - middle
        around += spreads[(*where, k)] + away * away * op.dtype(min(size, extent - k * size))
    found = cube_sum(around)
    if cp.UNIT_POS == 0:
        out[where] = written(found, op, count, 0)


# Columns


@cp.cube
def describe_columns(
    x: cp.Tensor,
    means: cp.Tensor,
    spreads: cp.Tensor,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[MomentTiling],
) -> None:
    """A unit describes a line of columns of a chunk of rows; the last axis but one of the results
    counts the chunks."""
    kept, line = tiling.wide.kept, tiling.wide.line
    columns, items = means.shape[kept + 1], product(means.shape[: kept + 1])
    lines = (columns + line - 1) // line
    if items * lines > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS // lines, means.shape[: kept + 1])
        at, first = cp.ABSOLUTE_POS % lines * line, where[kept] * tiling.wide.chunk
        end = min(first + tiling.wide.chunk, x.shape[kept])
        seen = x[where[:kept]]
        if at + line <= columns:
            describe_column(seen, means[where], spreads[where], at, first, end, op, tiling, None)
        else:
            describe_column(seen, means[where], spreads[where], at, first, end, op, tiling, 0)


def describe_column(
    x: Any,
    means: Any,
    spreads: Any,
    at: Any,
    first: Any,
    end: Any,
    op: Any,
    tiling: Any,
    fill: Any,
) -> None:
    """The moments of one line of columns of some rows."""
    line = tiling.wide.line
    pivot = finite_or_zero(loaded(x[0], at, op, line, fill, 0))
    _, mean, spread = lane_moments(
        lambda i: loaded(x[i], at, op, line, fill, 0) - pivot,
        (first, 1, end),
        no_lines(op.dtype, line),
        tiling.block,
    )
    cp.store(means, at, mean, whole=fill is None)
    cp.store(spreads, at, spread, whole=fill is None)


@cp.cube
def join_columns(
    means: cp.Tensor,
    spreads: cp.Tensor,
    out: cp.Tensor,
    extent: int,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[MomentTiling],
) -> None:
    """A unit joins the chunks of one column of `extent` rows."""
    if out.size > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS, out.shape)
        kept, column, size = where[:-1], where[-1], tiling.wide.chunk
        mean, spread = op.dtype(0), op.dtype(0)
        for k in range(means.shape[means.rank - 2]):
            part = means[(*kept, k, column)], spreads[(*kept, k, column)]
            number = op.dtype(min(size, extent - k * size))
            mean, spread = with_part((mean, spread), op.dtype(k * size), part, number)
        out[where] = written(spread, op, count, 0)
