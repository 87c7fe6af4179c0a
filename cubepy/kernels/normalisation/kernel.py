"""The kernel that normalises rows, from one source for a CPU and for GPUs.

A cube takes a band of rows, its units the lines of a row in turn. Statistics are made of lines,
then over the cube; a row is read again, from a near cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import add, cube_max, cube_sum, over_group
from cubepy.kernels.calls.extremes import greater_of
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.calls.prefetching import prefetch_run
from cubepy.kernels.normalisation.functions import finisher, unchanged
from cubepy.kernels.normalisation.problem import Normalisation, Places, RowTiling
from cubepy.kernels.normalisation.reading import is_inside, read_input, read_line, with_prologue
from cubepy.kernels.normalisation.together import normalise_together
from cubepy.kernels.reduction.moments import mended

SHORT = 4096
"""Elements whose sum, in lines of a register side by side, rounds too little to be mended."""
SUMMED_ROWS = 64
"""Rows of columns whose exponentials are added before they join the others."""


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


def summed(row: Any, step: Any, op: Any, tiling: Any) -> Any:
    """The sum of `step(line)` over a row, known to all units."""
    return cube_sum(folded(row, 0, step, added, op, tiling, 0).sum())


def larger_of(a: Any, b: Any) -> Any:
    """The greater of each pair of lanes, or either where one is NaN."""
    return cp.where(a > b, a, b)


def maximum(row: Any, op: Any, tiling: Any) -> Any:
    """The maximum of a row, known to all units; anything where a number is NaN, whose exponential
    makes the sum of the row NaN."""
    lowest = float("-inf")
    return cube_max(folded(row, lowest, lambda v: v, larger_of, op, tiling, lowest).max())


def written(row: Any, out: Any, change: Any, is_plain: Any, op: Any, tiling: Any) -> None:
    """Store `change(line, j, fill)` for a unit's lines of a row; `is_plain`: without epilogue."""
    put_lines(
        out, lambda j, fill: change(read_input(row, j, op, tiling, fill), j, fill), is_plain, tiling
    )


def put_lines(out: Any, make: Any, is_plain: Any, tiling: Any) -> None:
    """Store `make(j, fill)` for a unit's lines of a result; `fill` is None where they are whole.

    Those of one unit that go past the caches lie where they are aligned in `out`, so that the first
    may start before the row; an epilogue sees no such places.
    """
    line, n, hint = tiling.line, out.shape[0], "stream" if tiling.stream else None
    stride, first, inside = line * cp.CUBE_DIM, line * cp.UNIT_POS, 0
    if tiling.stream and is_plain:
        start = 0 - cp.misalignment(out, 0, line=line)
        inside = start + line if start < 0 else 0
        for j in range(start, min(inside, n), line):
            cp.store(out, j, make(j, 0))
    edge = inside + max(0, n - inside) // stride * stride
    for j in range(inside + first, edge, stride):
        cp.store(out, j, make(j, None), whole=True, hint=hint)
    for j in range(edge + first, n, stride):
        cp.store(out, j, make(j, 0))


def soften(row: Any, following: Any, out: Any, finish: Any, op: Any, tiling: Any) -> None:
    """Softmax, or its logarithm, of a row; `following`: the row to prefetch, if there is one."""
    is_plain = finish is unchanged
    if op.name == "softmax" and tiling.kept > 0:
        line = tiling.line
        kept = cp.shared(tiling.kept + 2 * line, op.dtype)  # a line before and behind any row
        scale = 1 / exponentials(row, following, kept[line:], True, op, tiling)
        put_lines(
            out,
            lambda j, fill: finish(cp.load(kept, line + j, line=line, fill=None) * scale, j),
            is_plain,
            tiling,
        )
        return
    if op.name == "softmax" and cp.CUBE_DIM == 1 and out.dtype == op.dtype and is_plain:
        scale = 1 / exponentials(row, following, out, False, op, tiling)
        put_lines(
            out, lambda j, fill: cp.load(out, j, line=tiling.line, fill=fill) * scale, True, tiling
        )
        return
    top, total = row_statistics(row, op, tiling)
    if op.name == "softmax":
        scale = 1 / total
        written(
            row, out, lambda v, j, fill: finish(cp.exp(v - top) * scale, j), is_plain, op, tiling
        )
    else:
        shift = cp.log(total)
        written(row, out, lambda v, j, fill: finish(v - top - shift, j), is_plain, op, tiling)


def exponentials(row: Any, following: Any, out: Any, has_room: Any, op: Any, tiling: Any) -> Any:
    """The sum of exp(v - maximum) over a row of one unit, which stores them: they take longer to
    make again than to read. Where `out` has room behind the row, all its lines are whole, as masked
    ones cannot be read before they are in the cache. Meanwhile memory has nothing to do but to
    bring the `following` row."""
    n, line, unroll = row.shape[0], tiling.line, tiling.unroll
    top = maximum(row, op, tiling)
    totals = tuple(cp.Line[op.dtype, line](0) for _ in range(unroll))
    whole = n // (line * unroll) * (line * unroll)
    for j in range(0, whole, line * unroll):
        for rest in following:
            prefetch_run(rest, (), j, line * unroll)
        powers = tuple(
            cp.exp(read_input(row, j + k * line, op, tiling, None) - top) for k in range(unroll)
        )
        for k in cp.unroll(range(unroll)):
            cp.store(out, j + k * line, powers[k], whole=True)
        totals = tuple(totals[k] + powers[k] for k in range(unroll))
    total = totals[0]
    for v in totals[1:]:
        total = total + v
    for j in range(whole, n, line):
        v = cp.exp(read_input(row, j, op, tiling, float("-inf")) - top)
        cp.store(out, j, v, whole=has_room)
        total = total + cp.where(is_inside(row, j, tiling), v, cp.Line[op.dtype, line](0))
    return total.sum()


def row_statistics(row: Any, op: Any, tiling: Any) -> Any:
    """The maximum of a row and the sum of exp(v - maximum), known to all units that share it."""
    if tiling.held > 0:
        lines = held_lines(row, op, tiling)
        top, powers = top_and_powers(lines, tiling)
        return top, total_of(powers, tiling)
    if cp.CUBE_DIM == 1:
        top = maximum(row, op, tiling)
        return top, summed(row, lambda v: cp.exp(v - top), op, tiling)
    return top_and_total(row, op, tiling)


def top_and_total(row: Any, op: Any, tiling: Any) -> Any:
    """The maximum of a row and the sum of exp(v - maximum), known to all units.

    The row is read once: each lane has a maximum of its own so far, and where that grows, its sum
    shrinks (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
    """
    line, lowest = tiling.line, float("-inf")
    stride = line * cp.CUBE_DIM
    block, first, n = stride * tiling.unroll, line * cp.UNIT_POS, row.shape[0]
    whole = n // block * block
    top, total = cp.Line[op.dtype, line](lowest), cp.Line[op.dtype, line](0)
    for j in range(first, whole, block):
        lines = tuple(
            read_input(row, j + k * stride, op, tiling, None) for k in range(tiling.unroll)
        )
        top, total = with_lines(top, total, lines, op)
    for j in range(whole + first, n, stride):
        top, total = with_lines(top, total, (read_input(row, j, op, tiling, lowest),), op)
    found = cube_max(top.max())
    return found, cube_sum((total * cp.exp(shift_of(top) - shift_of(found))).sum())


def with_lines(top: Any, total: Any, lines: Any, op: Any) -> Any:
    """Maxima and sums of lanes after some more lines."""
    found = top
    for v in lines:
        found = greater_of(found, v)
    shift = shift_of(found)
    total = total * cp.exp(shift_of(top) - shift)
    for v in lines:
        total = total + cp.exp(v - shift)
    return found, total


def shift_of(top: Any) -> Any:
    """A maximum to subtract; 0 for that of nothing but -inf, of which the sum stays 0."""
    return cp.where(top == float("-inf"), top.dtype(0), top)


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
    """Layer or RMS norm of a row: the variance is made of distances from the mean.

    A unit that has long rows to itself adds the mean of the distances to it, which takes away what
    the sum has rounded.
    """
    count = op.dtype(row.shape[0])
    middle = op.dtype(0)
    if op.name == "layer_norm":
        middle = summed(row, lambda v: v, op, tiling) / count
        if cp.CUBE_DIM == 1 and row.shape[0] > SHORT:
            middle = mended(middle, summed(row, lambda v: v - middle, op, tiling) / count)
    spread = summed(row, lambda v: (v - middle) * (v - middle), op, tiling) / count
    scale = 1 / cp.sqrt(spread + op.dtype(eps))
    written(
        row,
        out,
        lambda v, j, fill: finish(
            weighted((v - middle) * scale, j, fill, weight, bias, op, tiling), j
        ),
        finish is unchanged,
        op,
        tiling,
    )


# Rows that the units of a cube hold in registers


def places(tiling: Any) -> Any:
    """Where a unit's lines of a row begin."""
    own = cp.UNIT_POS if tiling.across == tiling.units else cp.UNIT_POS % tiling.across
    return tuple(tiling.line * (own + k * tiling.across) for k in range(tiling.held))


def fill_of(k: Any, tiling: Any, fill: Any) -> Any:
    """What stands for lanes behind the end of a row in line k of a unit: None where there are none,
    as in all lines but the last."""
    return None if tiling.is_whole or k < tiling.held - 1 else fill


def row_sum(v: Any, tiling: Any) -> Any:
    """The sum over the units that share a row."""
    if tiling.across == tiling.units:
        return cube_sum(v)
    return over_group(v, tiling.across, add)


def row_max(v: Any, tiling: Any) -> Any:
    """The maximum over the units that share a row."""
    if tiling.across == tiling.units:
        return cube_max(v)
    return over_group(v, tiling.across, max)


def store_held(out: Any, k: Any, v: Any, is_there: Any, tiling: Any) -> None:
    """Store line k of a unit, if there is a row."""
    if is_there:
        cp.store(out, places(tiling)[k], v, whole=fill_of(k, tiling, 0) is None)


def held_lines(row: Any, op: Any, tiling: Any) -> Any:
    """A unit's lines of a row; lanes behind the end are -inf."""
    starts, lowest = places(tiling), float("-inf")
    return tuple(
        read_input(row, starts[k], op, tiling, fill_of(k, tiling, lowest))
        for k in range(tiling.held)
    )


def top_and_powers(lines: Any, tiling: Any) -> Any:
    """The maximum of a row, and exp(v - maximum) of a unit's lines."""
    largest = lines[0]
    for v in lines[1:]:
        largest = greater_of(largest, v)
    top = row_max(largest.max(), tiling)
    return top, tuple(cp.exp(v - top) for v in lines)


def total_of(lines: Any, tiling: Any) -> Any:
    """The sum of a row."""
    total = lines[0]
    for v in lines[1:]:
        total = total + v
    return row_sum(total.sum(), tiling)


def soften_held(row: Any, out: Any, is_there: Any, finish: Any, op: Any, tiling: Any) -> None:
    """As `soften`; the row is read once."""
    starts, lines = places(tiling), held_lines(row, op, tiling)
    top, powers = top_and_powers(lines, tiling)
    total = total_of(powers, tiling)
    scale, shift = 1 / total, cp.log(total)
    for k in cp.unroll(range(tiling.held)):
        v = powers[k] * scale if op.name == "softmax" else lines[k] - top - shift
        store_held(out, k, finish(v, starts[k]), is_there, tiling)


def squares(row: Any, lines: Any, starts: Any, middle: Any, op: Any, tiling: Any) -> Any:
    """The sum of the squared distances of some lines, without lanes behind the end of the row."""
    total = cp.Line[op.dtype, tiling.line](0)
    for k in cp.unroll(range(tiling.held)):
        v = (lines[k] - middle) * (lines[k] - middle)
        if fill_of(k, tiling, 0) is not None:
            inside = is_inside(row, starts[k], tiling)
            v = cp.where(inside, v, cp.Line[op.dtype, tiling.line](0))
        total = total + v
    return total.sum()


def summed_lines(row: Any, added: Any, is_there: Any, op: Any, tiling: Any) -> Any:
    """A unit's lines of a row; where there is a residual, of the sum with it, which is stored as
    the row has it."""
    starts, fills = places(tiling), tuple(fill_of(k, tiling, 0) for k in range(tiling.held))
    if len(added) == 0:
        return tuple(read_input(row, starts[k], op, tiling, fills[k]) for k in range(tiling.held))
    residual, into = added
    found = tuple(
        row.dtype(
            read_line(row, starts[k], op, tiling, fills[k])
            + read_line(residual, starts[k], op, tiling, fills[k])
        )
        for k in range(tiling.held)
    )
    for k in cp.unroll(range(tiling.held)):
        store_held(into, k, found[k], is_there, tiling)
    return tuple(
        with_prologue(row, starts[k], found[k], op, tiling, fills[k]) for k in range(tiling.held)
    )


def normalise_held(
    row: Any,
    added: Any,
    weight: Any,
    bias: Any,
    out: Any,
    is_there: Any,
    eps: Any,
    finish: Any,
    op: Any,
    tiling: Any,
) -> None:
    """As `normalise`; the row is read once."""
    starts, lines = places(tiling), summed_lines(row, added, is_there, op, tiling)
    count, middle = op.dtype(row.shape[0]), op.dtype(0)
    if op.name == "layer_norm":
        middle = total_of(lines, tiling) / count
    spread = row_sum(squares(row, lines, starts, middle, op, tiling), tiling) / count
    scale = 1 / cp.sqrt(spread + op.dtype(eps))
    for k in cp.unroll(range(tiling.held)):
        fill = fill_of(k, tiling, 0)
        v = weighted((lines[k] - middle) * scale, starts[k], fill, weight, bias, op, tiling)
        store_held(out, k, finish(v, starts[k]), is_there, tiling)


@cp.cube
def normalise_rows(
    x: cp.Tensor,
    added: Any,
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
    """A cube normalises `band` rows, which are the last axis of `x` and `out`; its units share one
    row after the other, or groups of them take a row each.

    `added`: none, or what is added to `x` first and where the sum goes, for rows that are held.
    """
    rows = product(out.shape[:-1])
    first = cp.CUBE_POS * tiling.band
    if tiling.together > 1:
        most = tuple(
            unravelled(min(first + k, rows - 1), out.shape[:-1]) for k in range(tiling.band)
        )
        normalise_together(
            tuple(x[one] for one in most),
            tuple(out[one] for one in most),
            tuple(first + k < rows for k in range(tiling.band)),
            weight,
            bias,
            eps,
            tuple(finisher(one, epilogue, extras, places) for one in most),
            op,
            tiling,
        )
    elif tiling.across < tiling.units:
        i = first + cp.UNIT_POS // tiling.across
        at = unravelled(min(i, rows - 1), out.shape[:-1])
        after = finisher(at, epilogue, extras, places)
        more = tuple(m[at] for m in added)
        normalise_row(x[at], (), more, weight, bias, out[at], i < rows, eps, after, op, tiling)
    else:
        end = min(first + tiling.band, rows)
        for i in range(first, end):
            where = unravelled(i, out.shape[:-1])
            finish = finisher(where, epilogue, extras, places)
            rest = tuple(m[where] for m in added)
            following = ()
            if tiling.is_ahead:
                following = (x[unravelled(min(i + 1, end - 1), out.shape[:-1])],)
            y = out[where]
            normalise_row(x[where], following, rest, weight, bias, y, True, eps, finish, op, tiling)


def normalise_row(
    row: Any,
    following: Any,
    added: Any,
    weight: Any,
    bias: Any,
    out: Any,
    is_there: Any,
    eps: Any,
    finish: Any,
    op: Any,
    tiling: Any,
) -> None:
    """One row, which is not stored unless it `is_there`; then it is held. `following`: the row that
    is prefetched, if any."""
    if op.is_softmax and tiling.held > 0:
        soften_held(row, out, is_there, finish, op, tiling)
    elif op.is_softmax:
        soften(row, following, out, finish, op, tiling)
    elif tiling.held > 0:
        normalise_held(row, added, weight, bias, out, is_there, eps, finish, op, tiling)
    else:
        normalise(row, weight, bias, out, eps, finish, op, tiling)


# Columns: lines along a kept axis, which comes last


def column_top(x: Any, at: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """The maxima of some lines of columns."""
    lowest = cp.Line[op.dtype, tiling.line](float("-inf"))
    tops = tuple(lowest for _ in range(tiling.unroll))
    for i in range(x.shape[0]):
        tops = tuple(
            greater_of(tops[k], read_input(x[i], at + k * tiling.line, op, tiling, fill))
            for k in range(tiling.unroll)
        )
    return tops


def with_sums(totals: Any, sums: Any) -> Any:
    """Totals and what they lack, one after the other, with more sums (Kahan 1965)."""
    count = len(sums)
    more = tuple(sums[k] - totals[count + k] for k in range(count))
    found = tuple(totals[k] + more[k] for k in range(count))
    return (*found, *(found[k] - totals[k] - more[k] for k in range(count)))


def soften_column(x: Any, out: Any, at: Any, op: Any, tiling: Any, fill: Any) -> None:
    """Softmax, or its logarithm, of some lines of columns from `at` on; see `exponentials`."""
    unroll, line = tiling.unroll, tiling.line
    tops = column_top(x, at, op, tiling, fill)
    totals = tuple(cp.Line[op.dtype, line](0) for _ in range(2 * unroll))
    keeps = op.name == "softmax" and tiling.units == 1 and out.dtype == op.dtype
    rows = x.shape[0]
    for first in range(0, rows, SUMMED_ROWS):
        sums = tuple(cp.Line[op.dtype, line](0) for _ in range(unroll))
        for i in range(first, min(first + SUMMED_ROWS, rows)):
            powers = tuple(
                cp.exp(read_input(x[i], at + k * line, op, tiling, fill) - tops[k])
                for k in range(unroll)
            )
            sums = tuple(sums[k] + powers[k] for k in range(unroll))
            if keeps:
                for k in cp.unroll(range(unroll)):
                    cp.store(out[i], at + k * line, powers[k], whole=fill is None)
        totals = with_sums(totals, sums)
    if op.name == "softmax":
        factors = tuple(1 / total for total in totals[:unroll])
    else:
        factors = tuple(cp.log(total) for total in totals[:unroll])
    for i in range(x.shape[0]):
        for k in cp.unroll(range(unroll)):
            if keeps:
                v = cp.load(out[i], at + k * line, line=line, fill=fill) * factors[k]
            else:
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
    blocks, items = (columns + step - 1) // step, product(x.shape[:-2])
    if items * blocks > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS // blocks, x.shape[:-2])
        at = cp.ABSOLUTE_POS % blocks * step
        if at + step <= columns:
            soften_column(x[where], out[where], at, op, tiling, None)
        else:
            soften_column(x[where], out[where], at, op, tiling, 0)
