"""Kernels of reductions for cubes of many units: one result by all units or by a group of them, or
one line of them by each unit or by a column of units."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import (
    cube_max,
    cube_min,
    cube_prod,
    cube_sum,
    join_rows,
    over_group,
    unit_of_columns,
)
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.reduction.kernel import (
    across,
    centre_at,
    joined,
    loaded,
    loaded_up_to,
    written,
    written_line,
)
from cubepy.kernels.reduction.problem import Reduction
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class WideTiling:
    """How cubes of `units` units go through the data.

    `line` elements at a time. A cube, or a unit for columns, takes `chunk` lines (rows) of one
    result. `kept` axes are not reduced. `across`: units of a plane that share a result of few
    lines; 0 for all of the cube. `down`: units of a cube that share the rows of a line of columns.
    """

    kept: int
    line: int
    units: int
    chunk: int
    across: int = 0
    down: int = 1

    @property
    def beside(self) -> int:
        """Lines of columns of a cube whose units share them."""
        return self.units // self.down


def over_units(v: Any, op: Any) -> Any:
    """The reduction of one number of each unit."""
    if op.name == "sum":
        return cube_sum(v)
    if op.name == "prod":
        return cube_prod(v)
    return cube_max(v) if op.name == "max" else cube_min(v)


def line_of(x: Any, p: Any, lines: Any, op: Any, line: Any, centre: Any) -> Any:
    """Line number `p` of a view of any rank, whose rows have `lines` lines."""
    if x.rank == 1:
        return loaded_up_to(x, p * line, x.shape[0], op, line, centre)
    row = x[unravelled(p // lines, x.shape[:-1])]
    return loaded_up_to(row, p % lines * line, row.shape[0], op, line, centre)


def total_of(x: Any, first: Any, end: Any, lines: Any, op: Any, tiling: Any, centre: Any) -> Any:
    """A unit's share of the lines [first, end)."""
    line, own, step = tiling.line, cp.UNIT_POS, cp.CUBE_DIM
    if tiling.across > 0:
        own, step = cp.UNIT_POS % tiling.across, tiling.across
    total = cp.Line[op.dtype, line](op.identity)
    whole = end
    if x.rank == 1:
        whole = min(end, x.shape[0] // line)
        for p in range(first + own, whole, step):
            total = joined(total, loaded(x, p * line, op, line, None, centre), op)
        first = max(first, whole)
    for p in range(first + own, end, step):
        total = joined(total, line_of(x, p, lines, op, line, centre), op)
    return total


@cp.cube
def reduce_wide_rows(
    x: cp.Tensor,
    centre: Any,
    out: cp.Tensor,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[WideTiling],
) -> None:
    """A cube makes one result of one chunk of lines; the last axis of `out` counts the chunks."""
    kept, line = tiling.kept, tiling.line
    chunks = out.shape[kept]
    where, chunk = unravelled(cp.CUBE_POS // chunks, out.shape[:kept]), cp.CUBE_POS % chunks
    seen, middle = x[where], centre_at(centre, where)
    lines = (seen.shape[-1] + line - 1) // line
    size = lines * product(seen.shape[:-1])
    first = chunk * tiling.chunk
    total = total_of(seen, first, min(first + tiling.chunk, size), lines, op, tiling, middle)
    found = over_units(across((total, total), op), op)
    if cp.UNIT_POS == 0:
        out[(*where, chunk)] = written(found, op, count, middle)


@cp.cube
def reduce_short_rows(
    x: cp.Tensor,
    centre: Any,
    out: cp.Tensor,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[WideTiling],
) -> None:
    """A group of units of a plane makes one result; groups behind the last one make it again."""
    kept, line, items = tiling.kept, tiling.line, product(out.shape)
    item = cp.ABSOLUTE_POS // tiling.across
    where = unravelled(min(item, items - 1), out.shape[:kept])
    seen, middle = x[where], centre_at(centre, where)
    lines = (seen.shape[-1] + line - 1) // line
    total = total_of(seen, 0, lines * product(seen.shape[:-1]), lines, op, tiling, middle)
    one = across((total, total), op)
    found = over_group(one, tiling.across, lambda a, b: joined(a, b, op))
    if item < items and cp.UNIT_POS % tiling.across == 0:
        out[(*where, 0)] = written(found, op, count, middle)


def column_total(x: Any, at: Any, span: Any, total: Any, op: Any, fill: Any, centre: Any) -> Any:
    """A line of columns after some positions of the first axis, whatever lies below; `span`: the
    first of them, the one behind the last, and the step."""
    if x.rank == 1:
        return joined(total, loaded(x, at, op, total.line_size, fill, centre), op)
    for i in range(span[0], span[1], span[2]):
        total = column_total(x[i], at, (0, x.shape[1], 1), total, op, fill, centre)
    return total


def centre_line(centre: Any, at: Any, line: Any, fill: Any) -> Any:
    """What reading and writing a line of columns takes from a centre, if there is one."""
    return 0 if len(centre) == 0 else cp.load(centre[0], at, line=line, fill=fill)


def store_column(
    x: Any, centre: Any, out: Any, at: Any, span: Any, count: Any, op: Any, tiling: Any, fill: Any
) -> None:
    """The results of one line of columns."""
    c = centre_line(centre, at, tiling.line, fill)
    start = cp.Line[op.dtype, tiling.line](op.identity)
    total = column_total(x, at, span, start, op, fill, c)
    cp.store(out, at, written_line(total, op, count, c), whole=fill is None)


@cp.cube
def reduce_wide_columns(
    x: cp.Tensor,
    centre: Any,
    out: cp.Tensor,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[WideTiling],
) -> None:
    """A unit makes a line of columns; the last but one axis of `out` counts chunks of rows."""
    kept, line = tiling.kept, tiling.line
    columns = out.shape[kept + 1]
    lines, items = (columns + line - 1) // line, product(out.shape[: kept + 1])
    if items * lines > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS // lines, out.shape[: kept + 1])
        at, first = cp.ABSOLUTE_POS % lines * line, where[kept] * tiling.chunk
        span = (first, min(first + tiling.chunk, x.shape[kept]), 1)
        seen, middle = x[where[:kept]], tuple(c[where[:kept]] for c in centre)
        if at + line <= columns:
            store_column(seen, middle, out[where], at, span, count, op, tiling, None)
        else:
            store_column(seen, middle, out[where], at, span, count, op, tiling, 0)


@cp.cube
def reduce_shared_columns(
    x: cp.Tensor,
    centre: Any,
    out: cp.Tensor,
    count: int,
    op: cp.Comptime[Reduction],
    tiling: cp.Comptime[WideTiling],
) -> None:
    """Units above each other make a line of columns, of every so many rows each; the last axis but
    one of `out` is 1. Those behind the last line make it again."""
    kept, line, down = tiling.kept, tiling.line, tiling.down
    columns = out.shape[kept + 1]
    lines = (columns + line - 1) // line
    items = product(out.shape[: kept + 1]) * lines
    own, row, place, is_there = unit_of_columns(tiling.beside, items)
    where, at = unravelled(place // lines, out.shape[: kept + 1]), place % lines * line
    seen, middle = x[where[:kept]], tuple(c[where[:kept]] for c in centre)
    span = row, x.shape[kept], down
    start = cp.Line[op.dtype, line](op.identity)
    parts = cp.shared((down, tiling.beside), cp.Line[op.dtype, line])
    if at + line <= columns:
        c = centre_line(middle, at, line, None)
        parts[row, own] = column_total(seen, at, span, start, op, None, c)
    else:
        c = centre_line(middle, at, line, 0)
        parts[row, own] = column_total(seen, at, span, start, op, 0, c)
    join_rows((parts,), own, row, down, lambda a, b: (joined(a[0], b[0], op),))
    if row == 0 and is_there:
        c = centre_line(middle, at, line, 0)
        cp.store(out[where], at, written_line(parts[0, own], op, count, c))
