"""Kernels of `argmax` and `argmin`: along the lines of rows, and across rows of lines.

A running result is a line of the best elements so far and of their indices; of equal ones the first
counts, and NaN is better than any number.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.cubes import (
    cube_max,
    cube_min,
    join_rows,
    over_group,
    unit_of_columns,
)
from cubepy.kernels.calls.positions import count_up, product, unravelled
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched: the greatest element, or the least; `worst` is no better than any.

    `dtype`: what elements are compared in; `index`: the type of indices. `line` elements at a time.
    Kernels see `kept` axes first. A cube searches `chunk` elements of a row, or a unit a line of
    columns. `unroll`: lines of a row side by side, to hide the time that one comparison takes.
    `across`: units of a plane that share a short row; 0 for all of the cube. `down`: units of a
    cube that share a line of columns. `band`: columns of a cube of one unit, which takes `unroll`
    rows at a time.
    """

    is_max: bool
    worst: int | float
    dtype: DType
    index: DType
    line: int
    kept: int
    chunk: int
    unroll: int = 1
    across: int = 0
    down: int = 1
    band: int = 0


def read_line(x: Any, j: Any, find: Any, fill: Any) -> Any:
    """A line as it is compared."""
    v = cp.load(x, j, line=find.line, fill=fill)
    return v if v.dtype == find.dtype else find.dtype(v)


def beats(v: Any, best: Any, find: Any) -> Any:
    """Whether elements are better than the best so far."""
    if find.dtype.is_float:  # what is not less or equal is greater, or NaN
        return ~(v <= best if find.is_max else v >= best) & (best == best)
    return v > best if find.is_max else v < best


def better_of(state: Any, v: Any, here: Any, find: Any) -> Any:
    """The running result after a line whose indices are `here`."""
    best, at = state
    is_better = beats(v, best, find)
    return cp.where(is_better, v, best), cp.where(is_better, here, at)


def first_of(a: Any, b: Any, find: Any) -> Any:
    """The better of two running results, of equal ones that with the lower index."""
    (best, at), (v, here) = a, b
    is_equal = v == best
    if find.dtype.is_float:
        is_equal = is_equal | ((v != v) & (best != best))
    is_better = beats(v, best, find) | (is_equal & (here < at))
    return cp.where(is_better, v, best), cp.where(is_better, here, at)


def start(find: Any, first: Any) -> Any:
    """The running result before any line, which is the element at `first`."""
    line = find.line
    return cp.Line[find.dtype, line](find.worst), cp.Line[find.index, line](find.index(first))


def over_units(v: Any, is_max: Any, find: Any) -> Any:
    """The greatest number, or the least, of the units that share a row."""
    if find.across > 0:
        return over_group(v, find.across, max if is_max else min)
    return cube_max(v) if is_max else cube_min(v)


def best_of_lanes(state: Any, find: Any) -> Any:
    """The best element of all lanes and units, and the first index of it."""
    best, at = state
    top = over_units(best.max() if find.is_max else best.min(), find.is_max, find)
    is_top = best == top
    if find.dtype.is_float:
        is_top = is_top | ((top != top) & (best != best))
    last = cp.Line[find.index, find.line](2**31 - 1 if find.index == cp.i32 else 2**63 - 1)
    return top, over_units(cp.where(is_top, at, last).min(), False, find)


@cp.cube
def search_rows(x: cp.Tensor, values: Any, out: cp.Tensor, find: cp.Comptime[Search]) -> None:
    """A cube searches a chunk of one row; the last axis of `out` counts the chunks.

    `values`: none, or an array like `out` for the elements that were found.
    """
    chunks = out.shape[find.kept]
    where, chunk = unravelled(cp.CUBE_POS // chunks, out.shape[: find.kept]), cp.CUBE_POS % chunks
    row, first = x[where], chunk * find.chunk
    end, step = min(first + find.chunk, row.shape[0]), find.line * cp.CUBE_DIM
    block = step * find.unroll
    whole = first + (end - first) // block * block
    lanes = count_up(find.line, find.index)
    states = tuple(start(find, first) for _ in range(find.unroll))
    for j in range(first + find.line * cp.UNIT_POS, whole, block):
        states = tuple(
            better_of(
                states[k],
                read_line(row, j + k * step, find, None),
                lanes + find.index(j + k * step),
                find,
            )
            for k in range(find.unroll)
        )
    state = states[0]
    for k in cp.unroll(range(1, find.unroll)):
        state = first_of(state, states[k], find)
    for j in range(whole + find.line * cp.UNIT_POS, end, step):
        v = read_line(row[0:end], j, find, find.worst)
        state = better_of(state, v, lanes + find.index(j), find)
    top, at = best_of_lanes(state, find)
    if cp.UNIT_POS == 0:
        out[(*where, chunk)] = at
        for v in values:
            v[(*where, chunk)] = top


@cp.cube
def search_short_rows(x: cp.Tensor, out: cp.Tensor, find: cp.Comptime[Search]) -> None:
    """A group of units of a plane searches a row; groups behind the last one search it again."""
    rows, item = out.size, cp.ABSOLUTE_POS // find.across
    where = unravelled(min(item, rows - 1), out.shape)
    row, own = x[where], find.line * (cp.UNIT_POS % find.across)
    lanes, state = count_up(find.line, find.index), start(find, 0)
    n, step = row.shape[0], find.line * find.across
    whole = n // step * step
    for j in range(own, whole, step):
        state = better_of(state, read_line(row, j, find, None), lanes + find.index(j), find)
    for j in range(whole + own, n, step):
        v = read_line(row, j, find, find.worst)
        state = better_of(state, v, lanes + find.index(j), find)
    _, at = best_of_lanes(state, find)
    if item < rows and cp.UNIT_POS % find.across == 0:
        out[where] = at


@cp.cube
def pick_chunks(
    values: cp.Tensor, indices: cp.Tensor, out: cp.Tensor, find: cp.Comptime[Search]
) -> None:
    """A unit takes the best of the chunks of one result."""
    if out.size > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS, out.shape)
        best, at = values[(*where, 0)], indices[(*where, 0)]
        for k in range(1, values.shape[-1]):
            v, here = values[(*where, k)], indices[(*where, k)]
            is_better = v > best if find.is_max else v < best
            if find.dtype.is_float:
                is_better = is_better | ((v != v) & (best == best))
            best, at = cp.where(is_better, v, best), cp.where(is_better, here, at)
        out[where] = at


@cp.cube
def pick_among_chunks(
    values: cp.Tensor, indices: cp.Tensor, out: cp.Tensor, find: cp.Comptime[Search]
) -> None:
    """A cube takes the best of many chunks of one result; `find` has lines of one."""
    where, state = unravelled(cp.CUBE_POS, out.shape), start(find, 0)
    for k in range(cp.UNIT_POS, values.shape[-1], cp.CUBE_DIM):
        v = cp.Line[find.dtype, 1](values[(*where, k)])
        here = cp.Line[find.index, 1](find.index(indices[(*where, k)]))
        state = first_of(state, (v, here), find)
    _, at = best_of_lanes(state, find)
    if cp.UNIT_POS == 0:
        out[where] = at


def search_column(x: Any, values: Any, out: Any, at: Any, span: Any, find: Any, fill: Any) -> None:
    """The results of one line of columns of the rows [first, end)."""
    state = start(find, span[0])
    for i in range(span[0], span[1]):
        here = cp.Line[find.index, find.line](find.index(i))
        state = better_of(state, read_line(x[i], at, find, fill), here, find)
    cp.store(out, at, cp.i64(state[1]), whole=fill is None)
    for v in values:
        cp.store(v, at, state[0], whole=fill is None)


@cp.cube
def search_columns(x: cp.Tensor, values: Any, out: cp.Tensor, find: cp.Comptime[Search]) -> None:
    """A unit searches a line of columns of a chunk of rows, which are the last axis of `x` but one;
    that of `out` counts the chunks.

    `values`: none, or an array like `out` for the elements that were found.
    """
    columns, kept = out.shape[-1], find.kept - 1
    lines, items = (columns + find.line - 1) // find.line, product(out.shape[:-1])
    if items * lines > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS // lines, out.shape[:-1])
        at, first = cp.ABSOLUTE_POS % lines * find.line, where[kept] * find.chunk
        span = (first, min(first + find.chunk, x.shape[kept]))
        seen, found = x[where[:kept]], tuple(v[where] for v in values)
        if at + find.line <= columns:
            search_column(seen, found, out[where], at, span, find, None)
        else:
            search_column(seen, found, out[where], at, span, find, find.worst)


@cp.cube
def search_bands(x: cp.Tensor, values: Any, out: cp.Tensor, find: cp.Comptime[Search]) -> None:
    """A cube of one unit searches a band of columns of a chunk of rows, as `search_columns` counts
    them: row after row, as they lie in memory, while running results stay in the nearest cache."""
    kept, bands = find.kept - 1, (out.shape[-1] + find.band - 1) // find.band
    where = unravelled(cp.CUBE_POS // bands, out.shape[:-1])
    begin = cp.CUBE_POS % bands * find.band
    end, first = min(begin + find.band, out.shape[-1]), where[kept] * find.chunk
    last = min(first + find.chunk, x.shape[kept])
    seen, found, indices = x[where[:kept]], tuple(v[where] for v in values), out[where]
    best = cp.shared(find.band // find.line, cp.Line[find.dtype, find.line])
    at = cp.shared(find.band // find.line, cp.Line[find.index, find.line])
    for c in range((end - begin + find.line - 1) // find.line):
        best[c], at[c] = start(find, first)
    whole = first + (last - first) // find.unroll * find.unroll
    for i in range(first, whole, find.unroll):
        search_rows_of_band(seen, (best, at), (begin, end), i, find.unroll, find)
    for i in range(whole, last):
        search_rows_of_band(seen, (best, at), (begin, end), i, 1, find)
    for c in range((end - begin + find.line - 1) // find.line):
        cp.store(indices[0:end], begin + c * find.line, cp.i64(at[c]))
        for v in found:
            cp.store(v[0:end], begin + c * find.line, best[c])


def search_rows_of_band(x: Any, state: Any, ends: Any, i: Any, rows: Any, find: Any) -> None:
    """Search the rows [i, i + rows) in the columns [begin, end)."""
    begin, end = ends
    whole = (end - begin) // find.line
    read = tuple(x[i + k] for k in range(rows))
    for c in range(whole):
        search_lines(read, state, begin, c, i, None, find)
    for c in range(whole, (end - begin + find.line - 1) // find.line):
        search_lines(read, state, begin, c, i, find.worst, find)


def search_lines(rows: Any, state: Any, begin: Any, c: Any, i: Any, fill: Any, find: Any) -> None:
    """Search one line of some rows, the first of which is row `i`."""
    best, at = state
    now = best[c], at[c]
    for k in cp.unroll(range(len(rows))):
        v = read_line(rows[k], begin + c * find.line, find, fill)
        now = better_of(now, v, cp.Line[find.index, find.line](find.index(i + k)), find)
    best[c], at[c] = now


@cp.cube
def search_shared_columns(x: cp.Tensor, out: cp.Tensor, find: cp.Comptime[Search]) -> None:
    """Units above each other search a line of columns, each every so many rows, which are the last
    axis of `x` but one. Those behind the last line search it again."""
    columns, beside = out.shape[-1], cp.CUBE_DIM // find.down
    lines = (columns + find.line - 1) // find.line
    items = product(out.shape[:-1]) * lines
    own, row, place, is_there = unit_of_columns(beside, items)
    where, at = unravelled(place // lines, out.shape[:-1]), place % lines * find.line
    seen, state = x[where], start(find, row)
    best = cp.shared((find.down, beside), cp.Line[find.dtype, find.line])
    indices = cp.shared((find.down, beside), cp.Line[find.index, find.line])
    for i in range(row, seen.shape[0], find.down):
        here = cp.Line[find.index, find.line](find.index(i))
        state = better_of(state, read_line(seen[i], at, find, find.worst), here, find)
    best[row, own], indices[row, own] = state
    join_rows((best, indices), own, row, find.down, lambda a, b: first_of(a, b, find))
    if row == 0 and is_there:
        cp.store(out[where], at, cp.i64(indices[0, own]))
