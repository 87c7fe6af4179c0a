"""Kernels of reductions: along the lines of rows, and across rows of lines.

Arrays come with their kept axes first and their reduced axes last, in any number; sums of floats
are made in blocks whose results are added with their rounding errors, so that errors do not grow
with the number of elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.axes import Axis
from cubepy.kernels.calls.epilogues import applied
from cubepy.kernels.calls.extremes import greater_of, less_of
from cubepy.kernels.calls.positions import count_up, product, unravelled
from cubepy.kernels.reduction.extremes import across_lanes, noted, notes_nan, number_of
from cubepy.kernels.reduction.problem import Reduction, is_true
from cubepy.record import dataclass

BLOCK = 8
"""Steps of lines side by side before they are added to the running result of a row."""


@dataclass(frozen=True, slots=True)
class ReduceTiling:
    """How a kernel goes through its data.

    `line` elements at a time, `unroll` lines (of columns: or rows) side by side; `band` results (or
    columns) in a cube, each over `chunk` positions of the slowest reduced axis. `kept` axes are not
    reduced. Rows are prefetched `ahead` rows before they are needed, 0 for not.
    """

    kept: int
    line: int
    unroll: int
    band: int
    chunk: int
    ahead: int = 0

    def read(self, axes: Sequence[Axis]) -> int:
        """Elements of one result that are reduced together, over these reduced axes."""
        return self.chunk * prod(axis.extent for axis in axes[1:])


# One step


def joined(a: Any, b: Any, op: Any) -> Any:
    """The reduction of two lines, lane by lane; NaN if either is."""
    if op.name == "sum":
        return a + b
    if op.name == "prod":
        return a * b
    return greater_of(a, b) if op.name == "max" else less_of(a, b)


def loaded(x: Any, index: Any, op: Any, line: Any, fill: Any, centre: Any) -> Any:
    """A line in the running type, as the reduction reads it."""
    v = cp.load(x, index, line=line, fill=fill)
    if op.read == is_true:
        return cp.where(v != 0, cp.Line[op.dtype, line](1), cp.Line[op.dtype, line](0))
    v = v if v.dtype == op.dtype else op.dtype(v)
    v = v if op.prologue is None else op.dtype(applied(op.prologue, v, ()))
    return v if op.read is None else op.read(v, centre)


def loaded_up_to(x: Any, j: Any, end: Any, op: Any, line: Any, centre: Any) -> Any:
    """A line of one row, whose lanes from `end` on change no result."""
    v = loaded(x[0:end], j, op, line, op.identity, centre)
    if not op.reads:
        return v
    return cp.where(
        count_up(line, cp.i32) < cp.i32(end - j), v, cp.Line[op.dtype, line](op.identity)
    )


def written(v: Any, op: Any, count: Any, centre: Any) -> Any:
    """A result as the reduction writes it; a line of one to an epilogue."""
    v = v if op.write is None else op.write(v, count, centre)
    return v if op.epilogue is None else applied(op.epilogue, cp.Line[v.dtype, 1](v), ())[0]


def written_line(v: Any, op: Any, count: Any, centre: Any) -> Any:
    """The same for a line of results."""
    v = v if op.write is None else op.write(v, count, centre)
    return v if op.epilogue is None else applied(op.epilogue, v, ())


def start(op: Any, line: Any) -> Any:
    """A running result: lines of results so far and of their rounding errors."""
    return cp.Line[op.dtype, line](op.identity), cp.Line[op.dtype, line](0)


def two_sum(a: Any, b: Any) -> Any:
    """a + b and its rounding error, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def advanced(state: Any, v: Any, op: Any) -> Any:
    """The running result with a line added."""
    if not op.is_compensated:
        return joined(v, state[0], op), state[1]
    total, error = two_sum(state[0], v)
    return total, state[1] + error


def finished(state: Any, op: Any) -> Any:
    """The results with their errors; those of infinite sums are NaN and do not count."""
    if not op.is_compensated:
        return state[0]
    exact = state[0] + state[1]
    return cp.where(exact == exact, exact, state[0])


def across(state: Any, op: Any) -> Any:
    """All lanes as one number."""
    if notes_nan(op):
        return across_lanes(state, op)
    lanes = state[0].line_size
    if lanes == 1:
        return finished(state, op)[0]
    half = lanes // 2
    if op.is_compensated:
        total, error = two_sum(state[0][:half], state[0][half:])
        return across((total, error + (state[1][:half] + state[1][half:])), op)
    return across((joined(state[0][:half], state[0][half:], op), state[1][:half]), op)


def in_pairs(lines: Any, op: Any, join: Any = joined) -> Any:
    """Several lines as one, by halves."""
    if len(lines) == 1:
        return lines[0]
    half = len(lines) // 2
    return join(in_pairs(lines[:half], op, join), in_pairs(lines[half:], op, join), op)


# Rows: lines along the last reduced axis


def reduced_row(x: Any, first: Any, end: Any, state: Any, op: Any, tiling: Any, centre: Any) -> Any:
    """The running result after the elements [first, end) of one row.

    Lines are read in order, which is what processors prefetch; several are added side by side, a
    few times, and then by halves.
    """
    line, step = tiling.line, tiling.line * tiling.unroll
    whole = first + (end - first) // step * step
    if notes_nan(op):
        return extreme_of_row(x, (first, whole, end), state, op, tiling, centre)
    for at in range(first, whole, BLOCK * step):
        lines = tuple(cp.Line[op.dtype, line](op.identity) for _ in range(tiling.unroll))
        for i in range(at, min(at + BLOCK * step, whole), step):
            lines = tuple(
                joined(loaded(x, i + k * line, op, line, None, centre), lines[k], op)
                for k in range(tiling.unroll)
            )
        state = advanced(state, in_pairs(lines, op), op)
    rest = cp.Line[op.dtype, line](op.identity)
    for j in range(whole, end, line):
        rest = joined(loaded_up_to(x, j, end, op, line, centre), rest, op)
    return advanced(state, rest, op)


def extreme_of_row(x: Any, ends: Any, state: Any, op: Any, tiling: Any, centre: Any) -> Any:
    """The same for an extreme of floats, see `extremes`; `ends`: the first element, and those
    behind the last step and the last element."""
    line, (first, whole, end) = tiling.line, ends
    best = tuple(cp.Line[op.dtype, line](op.identity) for _ in range(tiling.unroll))
    nans = state[1]
    for i in range(first, whole, line * tiling.unroll):
        lines = tuple(loaded(x, i + k * line, op, line, None, centre) for k in range(tiling.unroll))
        best = tuple(number_of(v, old, op) for v, old in zip(lines, best, strict=True))
        nans = noted(nans, lines, op)
    found = number_of(in_pairs(best, op, number_of), state[0], op)
    for j in range(whole, end, line):
        v = loaded_up_to(x, j, end, op, line, centre)
        found, nans = number_of(v, found, op), noted(nans, (v,), op)
    return found, nans


def reduced(x: Any, first: Any, end: Any, state: Any, op: Any, tiling: Any, centre: Any) -> Any:
    """The running result after positions [first, end) of the first axis, whatever lies below."""
    if x.rank == 1:
        return reduced_row(x, first, end, state, op, tiling, centre)
    for i in range(first, end):
        state = reduced(x[i], 0, x.shape[1], state, op, tiling, centre)
    return state


def centre_at(centre: Any, where: Any) -> Any:
    """The centre of a result; 0 where the reduction has none."""
    return 0 if len(centre) == 0 else centre[0][where]


@cp.cube
def reduce_rows(
    x: cp.Tensor,
    centre: Any,
    out: cp.Tensor,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[ReduceTiling],
) -> None:
    """A cube makes `band` results of one chunk; the last axis of `out` counts the chunks.

    `centre`: none, or an array of the kept axes.
    """
    kept = tiling.kept
    chunks, results = out.shape[kept], product(out.shape[:kept])
    begin, chunk = cp.CUBE_POS // chunks * tiling.band, cp.CUBE_POS % chunks
    first = chunk * tiling.chunk
    end = min(first + tiling.chunk, x.shape[kept])
    for i in range(begin, min(begin + tiling.band, results)):
        where = unravelled(i, out.shape[:kept])
        middle = centre_at(centre, where)
        state = reduced(x[where], first, end, start(op, tiling.line), op, tiling, middle)
        out[(*where, chunk)] = written(across(state, op), op, count, middle)


# Columns: lines along a kept axis, which comes last


def centres_at(centre: Any, at: Any, tiling: Any, fill: Any) -> Any:
    """The centres of `unroll` lines of columns from `at` on."""
    if len(centre) == 0:
        return (0,) * tiling.unroll
    return tuple(
        cp.load(centre[0], at + k * tiling.line, line=tiling.line, fill=fill)
        for k in range(tiling.unroll)
    )


def reduced_columns(
    x: Any, at: Any, span: Any, state: Any, op: Any, tiling: Any, fill: Any, centres: Any
) -> Any:
    """The running results of `unroll` lines of columns from `at` on, after some positions."""
    line = tiling.line
    if x.rank == 1:
        return tuple(
            advanced(state[k], loaded(x, at + k * line, op, line, fill, centres[k]), op)
            for k in range(tiling.unroll)
        )
    for i in range(span[0], span[1]):
        below = (0, x.shape[1])
        state = reduced_columns(x[i], at, below, state, op, tiling, fill, centres)
    return state


def reduce_band(
    x: Any, centre: Any, out: Any, span: Any, ends: Any, count: Any, op: Any, tiling: Any, fill: Any
) -> None:
    """The results of the columns in `ends` in registers, a few lines at a time."""
    for at in range(ends[0], ends[1], tiling.line * tiling.unroll):
        state = tuple(start(op, tiling.line) for _ in range(tiling.unroll))
        centres = centres_at(centre, at, tiling, fill)
        state = reduced_columns(x, at, span, state, op, tiling, fill, centres)
        for k in cp.unroll(range(tiling.unroll)):
            v = written_line(finished(state[k], op), op, count, centres[k])
            cp.store(out, at + k * tiling.line, v, whole=fill is None)


@cp.cube
def reduce_columns(
    x: cp.Tensor,
    centre: Any,
    out: cp.Tensor,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[ReduceTiling],
) -> None:
    """A cube makes `band` columns of results; the last but one axis of `out` counts chunks."""
    kept, step = tiling.kept, tiling.line * tiling.unroll
    bands = (out.shape[kept + 1] + tiling.band - 1) // tiling.band
    where = unravelled(cp.CUBE_POS // bands, out.shape[: kept + 1])
    begin = cp.CUBE_POS % bands * tiling.band
    end = min(begin + tiling.band, out.shape[kept + 1])
    whole = begin + (end - begin) // step * step
    first = where[kept] * tiling.chunk
    span = (first, min(first + tiling.chunk, x.shape[kept]))
    seen, middle = x[where[:kept]], tuple(c[where[:kept]] for c in centre)
    inside, edge = (begin, whole), (whole, end)
    reduce_band(seen, middle, out[where], span, inside, count, op, tiling, None)
    reduce_band(seen, middle, out[where], span, edge, count, op, tiling, op.identity)


def accumulate(
    x: Any, i: Any, rows: Any, centre: Any, out: Any, ends: Any, op: Any, tiling: Any
) -> None:
    """Reduce the rows [i, i + rows) into `out`, for the columns in `ends`."""
    line, (begin, end) = tiling.line, ends
    whole = begin + (end - begin) // line * line
    read = tuple(x[i + k] for k in range(rows))
    for at in range(begin, whole, line):
        if tiling.ahead:
            for k in cp.unroll(range(rows)):
                cp.prefetch(x, (i + (k + tiling.ahead), at), level=2)
        c = 0 if len(centre) == 0 else cp.load(centre[0], at, line=line, fill=None)
        lines = tuple(loaded(row, at, op, line, None, c) for row in read)
        before = cp.load(out, at, line=line, fill=None)
        cp.store(out, at, joined(before, in_pairs(lines, op), op), whole=True)
    for at in range(whole, end, line):
        c = 0 if len(centre) == 0 else cp.load(centre[0], at, line=line)
        lines = tuple(loaded(row, at, op, line, op.identity, c) for row in read)
        before = cp.load(out, at, line=line)
        cp.store(out[0:end], at, joined(before, in_pairs(lines, op), op))


def accumulate_rows(
    x: Any, span: Any, centre: Any, out: Any, ends: Any, op: Any, tiling: Any
) -> None:
    """Reduce all rows of some positions into `out`, several at a time."""
    first, last = span
    if x.rank > 2:
        for i in range(first, last):
            accumulate_rows(x[i], (0, x.shape[1]), centre, out, ends, op, tiling)
    else:
        unroll = tiling.unroll
        whole = first + (last - first) // unroll * unroll
        for i in range(first, whole, unroll):
            accumulate(x, i, unroll, centre, out, ends, op, tiling)
        for i in range(whole, last):
            accumulate(x, i, 1, centre, out, ends, op, tiling)


@cp.cube
def accumulate_columns(
    x: cp.Tensor,
    centre: Any,
    out: cp.Tensor,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[ReduceTiling],
) -> None:
    """A cube reduces a chunk of rows into one row of `out`, whose last but one axis counts chunks.

    Rows are read in the order of memory; the running results fit the nearest cache. `out` is of
    the running type.
    """
    kept = tiling.kept
    bands = (out.shape[kept + 1] + tiling.band - 1) // tiling.band
    where = unravelled(cp.CUBE_POS // bands, out.shape[: kept + 1])
    begin = cp.CUBE_POS % bands * tiling.band
    ends = (begin, min(begin + tiling.band, out.shape[kept + 1]))
    first = where[kept] * tiling.chunk
    span = (first, min(first + tiling.chunk, x.shape[kept]))
    results = out[where]
    for at in range(ends[0], ends[1], tiling.line):
        cp.store(results[0 : ends[1]], at, cp.Line[op.dtype, tiling.line](op.identity))
    middle = tuple(c[where[:kept]] for c in centre)
    accumulate_rows(x[where[:kept]], span, middle, results, ends, op, tiling)
