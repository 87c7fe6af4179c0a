"""Updates in their order by wide cubes: indices are sorted first, with their places.

Sorting is stable, so updates of one target follow each other in their order. The first of them is
where a unit begins that makes them all, with the target in registers.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.indexing.kernel import SliceTiling, counted_from_0, updated

LOADED = 32
"""Elements of the updates of one target that a unit loads together."""


@cp.cube
def find_targets(index: cp.Tensor, out: cp.Tensor, targets: int) -> None:
    """The target of each update; `targets` itself, which is none, for what is out of bounds."""
    if out.size > cp.ABSOLUTE_POS:
        i = counted_from_0(index[unravelled(cp.ABSOLUTE_POS, index.shape)], targets)
        out[cp.ABSOLUTE_POS] = out.dtype(cp.where(i >= 0 and i < targets, i, targets))


@cp.cube
def scatter_sorted(
    out: cp.Tensor,
    found: cp.Tensor,
    order: cp.Tensor,
    values: cp.Tensor,
    kept: cp.Comptime[int],
    update: cp.Comptime[str],
    tiling: cp.Comptime[SliceTiling],
) -> None:
    """`found`: targets in order, `order`: the updates that have them.

    `out`: `kept` axes, the indexed one, columns; `values`: the same axes, with those of the updates
    in the place of the indexed one.
    """
    columns, rows = out.shape[kept + 1], product(out.shape[:kept])
    bands, count = (columns + tiling.columns - 1) // tiling.columns, found.shape[0]
    item = cp.CUBE_POS // bands * tiling.down + cp.UNIT_POS // tiling.across
    begin = cp.CUBE_POS % bands * tiling.columns
    if item < rows * count:
        where, p = unravelled(item // count, out.shape[:kept]), item % count
        i = cp.i64(found[p])
        is_first = p == 0 or cp.i64(found[max(p - 1, 0)]) != i
        if is_first and i < out.shape[kept]:
            target, own = out[(*where, i)], values[where]
            if begin + tiling.columns <= columns:
                update_run(target, own, found, order, p, begin, None, update, tiling)
            else:
                update_run(target, own, found, order, p, begin, 0, update, tiling)


def update_run(
    target: Any,
    values: Any,
    found: Any,
    order: Any,
    first: Any,
    begin: Any,
    fill: Any,
    update: Any,
    tiling: Any,
) -> None:
    """All updates of one target from place `first` on, for a unit's lines of columns."""
    line, step, count = tiling.line, tiling.line * tiling.across, found.shape[0]
    at = begin + cp.UNIT_POS % tiling.across * line
    i, q = found[first], first
    held = tuple(read(target, at + k * step, line, fill) for k in range(tiling.held))
    for ahead in cp.unroll((max(4, LOADED // (line * tiling.held)), 4, 1)):
        while q + ahead <= count and found[min(q + (ahead - 1), count - 1)] == i:
            rows = tuple(
                lines_of(values, order[q + a], at, step, fill, tiling) for a in range(ahead)
            )
            for row in rows:
                held = combined(held, row, update, target.dtype)
            q += ahead
    for k in cp.unroll(range(tiling.held)):
        write(target, at + k * step, held[k], fill)


def lines_of(values: Any, number: Any, at: Any, step: Any, fill: Any, tiling: Any) -> Any:
    """A unit's lines of the columns of one update."""
    row = values[unravelled(number, values.shape[: values.rank - 1])]
    return tuple(read(row, at + k * step, tiling.line, fill) for k in range(tiling.held))


def read(row: Any, j: Any, line: Any, fill: Any) -> Any:
    """A line of a row; behind its end `fill`, if it is not None."""
    if line > 1:
        return cp.load(row, j, line=line, fill=fill)
    if fill is None:
        return cp.Line[row.dtype, 1](row[j])
    return cp.Line[row.dtype, 1](row[j] if j < row.shape[0] else row.dtype(fill))


def write(row: Any, j: Any, v: Any, fill: Any) -> None:
    """Store what of a line is of the row."""
    if v.line_size > 1:
        cp.store(row, j, v, whole=fill is None)
    elif fill is None or j < row.shape[0]:
        row[j] = v[0]


def combined(held: Any, row: Any, update: Any, dtype: Any) -> Any:
    """Lines of a target with one update more."""
    return tuple(
        updated(held[k], row[k] if row[k].dtype == dtype else dtype(row[k]), update)
        for k in range(len(held))
    )
