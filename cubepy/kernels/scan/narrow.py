"""Scans of few columns whose rows follow each other in memory: lines hold several rows.

A line of running results needs those that lie as many elements before it as there are columns,
which are among the last two lines. Long columns are cut into chunks, as in `kernel.py`.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.scan.kernel import chunk_at, chunks_of_cube, joined, prefixes, read, write
from cubepy.kernels.scan.problem import Scan
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class NarrowTiling:
    """How a kernel goes through rows of `columns` elements, one after the other.

    `kept` axes come before the elements. `line` elements at a time, at least half of `columns`;
    `chunk` elements go together, a multiple of `line` and of `columns`, and a cube of one unit
    takes `band` chunks.
    """

    kept: int
    columns: int
    line: int
    chunk: int
    band: int


def repeated(v: Any, lanes: Any) -> Any:
    """The lanes of `v` again and again."""
    return v[0:lanes] if v.line_size >= lanes else repeated(cp.concat(v, v), lanes)


def scan_rows_of(x: Any, out: Any, span: Any, state: Any, op: Any, tiling: Any) -> Any:
    """The last two lines of results of the elements [first, end), after those in `state`; `out`:
    none, or where results go."""
    first, end = span
    line = tiling.line
    whole = first + (end - first) // line * line
    for j in range(first, whole, line):
        state = scan_rows_in_line(x, out, j, state, True, op, tiling)
    for j in range(whole, end, line):
        last = tuple(o[0:end] for o in out)
        state = scan_rows_in_line(x[0:end], last, j, state, False, op, tiling)
    return state


def scan_rows_in_line(x: Any, out: Any, j: Any, state: Any, whole: Any, op: Any, t: Any) -> Any:
    """One line: prefixes over the rows in it, after the same columns of the row before it."""
    v = prefixes(read(x, j, t.line, None if whole else op.identity, op), t.columns, op)
    tail = cp.concat(*state)[2 * t.line - t.columns : 2 * t.line]
    v = joined(repeated(tail, t.line), v, op)
    for o in out:
        write(o, j, v, whole)
    return state[1], v


def state_before(totals: Any, chunk: Any, op: Any, t: Any) -> Any:
    """What the chunks before this one come to, as two lines."""
    state = tuple(cp.Line[op.dtype, t.line](op.identity) for _ in range(2))
    for total in totals:
        for k in range(chunk):
            row = total[k]
            state = tuple(
                joined(state[h], read(row, h * t.line, t.line, None, op), op) for h in range(2)
            )
    return state


@cp.cube
def scan_narrow_columns(
    x: cp.Tensor,
    totals: Any,
    out: cp.Tensor,
    op: cp.Comptime[Scan],
    tiling: cp.Comptime[NarrowTiling],
) -> None:
    """A cube of one unit scans `band` chunks; `totals`: none, or those of all chunks."""
    begin, end = chunks_of_cube(out, tiling)
    for i in range(begin, end):
        where, chunk, span = chunk_at(i, out, tiling)
        state = state_before(tuple(t[where] for t in totals), chunk, op, tiling)
        scan_rows_of(x[where], (out[where],), span, state, op, tiling)


@cp.cube
def total_narrow_columns(
    x: cp.Tensor, out: cp.Tensor, op: cp.Comptime[Scan], tiling: cp.Comptime[NarrowTiling]
) -> None:
    """A cube makes the last two lines of one whole chunk; `out` is [kept, chunk, lane]."""
    where = unravelled(cp.CUBE_POS, out.shape[: tiling.kept + 1])
    first = where[tiling.kept] * tiling.chunk
    state = tuple(cp.Line[op.dtype, tiling.line](op.identity) for _ in range(2))
    span = (first, first + tiling.chunk)
    state = scan_rows_of(x[where[: tiling.kept]], (), span, state, op, tiling)
    for h in cp.unroll(range(2)):
        write(out[where], h * tiling.line, state[h], True)
