"""Kernels that read and write at computed indices.

Views have the axes of the values; arrays that are indexed have the indexed axis before them, and
no stride along axes of the index.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class IndexTiling:
    """How a kernel goes through its data.

    `line` elements at a time, where one index serves a line; else 1. A unit takes `rows` by
    `columns` of the values; scattering, `columns` of one row, and of the targets one part of
    `owners`. `is_guarded`: indices out of bounds are harmless; else checks of the access report
    them.
    """

    line: int
    rows: int
    columns: int
    is_guarded: bool
    owners: int = 1


@dataclass(frozen=True, slots=True)
class SliceTiling:
    """How wide cubes gather slices, where one index serves a row: `across` units side by side with
    `held` lines of `line` elements each, `down` rows. `is_guarded`: see `IndexTiling`."""

    line: int
    across: int
    down: int
    held: int
    is_guarded: bool

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.across * self.down

    @property
    def columns(self) -> int:
        """Elements of a row that a cube gathers."""
        return self.line * self.across * self.held


def counted_from_0(i: Any, n: Any) -> Any:
    """An index, of which negative ones count from the end."""
    i = cp.i64(i)
    return cp.where(i < 0, i + n, i)


def is_inside(i: Any, n: Any, tiling: Any) -> Any:
    """Whether an index is to be used; in checked mode all are, and the access reports them."""
    return (i >= 0 and i < n) if tiling.is_guarded else True


def gather_slice(x: Any, i: Any, out: Any, where: Any, begin: Any, end: Any, tiling: Any) -> None:
    """Elements [begin, end) of a row of the result, which one index serves."""
    line, row = tiling.line, out[where]
    if is_inside(i, x.shape[0], tiling):
        source = x[(i, *where)]
        whole = begin + (end - begin) // line * line
        for j in range(begin, whole, line):
            cp.store(row, j, cp.load(source, j, line=line, fill=None), whole=True)
        for j in range(whole, end):
            row[j] = source[j]
    else:
        for j in range(begin, end):
            row[j] = 0


@cp.cube
def gather_values(
    x: cp.Tensor, index: cp.Tensor, out: cp.Tensor, tiling: cp.Comptime[IndexTiling]
) -> None:
    """A unit reads some rows by some columns of the result."""
    axis = out.rank - 1
    rows, columns = product(out.shape[:axis]), out.shape[axis]
    bands = (columns + tiling.columns - 1) // tiling.columns
    first = cp.ABSOLUTE_POS // bands * tiling.rows
    begin = cp.ABSOLUTE_POS % bands * tiling.columns
    end = min(begin + tiling.columns, columns)
    for r in range(first, min(first + tiling.rows, rows)):
        where = unravelled(r, out.shape[:axis])
        if tiling.line > 1:
            i = counted_from_0(index[(*where, 0)], x.shape[0])
            gather_slice(x, i, out, where, begin, end, tiling)
        else:
            for j in range(begin, end):
                i = counted_from_0(index[(*where, j)], x.shape[0])
                if is_inside(i, x.shape[0], tiling):
                    out[(*where, j)] = x[(i, *where, j)]
                else:
                    out[(*where, j)] = 0


@cp.cube
def gather_slices(
    x: cp.Tensor, index: cp.Tensor, out: cp.Tensor, tiling: cp.Comptime[SliceTiling]
) -> None:
    """A cube gathers parts of some rows of the result, each of which has one index."""
    axis = out.rank - 1
    rows, columns = product(out.shape[:axis]), out.shape[axis]
    bands = (columns + tiling.columns - 1) // tiling.columns
    r = cp.CUBE_POS // bands * tiling.down + cp.UNIT_POS // tiling.across
    if r < rows:
        where = unravelled(r, out.shape[:axis])
        begin = cp.CUBE_POS % bands * tiling.columns
        i = counted_from_0(index[(*where, 0)], x.shape[0])
        row, is_whole = out[where], begin + tiling.columns <= columns
        if not is_inside(i, x.shape[0], tiling):
            put_zeros(row, begin, min(begin + tiling.columns, columns), tiling)
        elif is_whole:
            put_lines(x[(i, *where)], row, begin, None, tiling)
        else:
            put_lines(x[(i, *where)], row, begin, 0, tiling)


def put_lines(source: Any, row: Any, begin: Any, fill: Any, tiling: Any) -> None:
    """A unit's lines of a row: all are loaded before the first is stored."""
    step = tiling.line * tiling.across
    first = begin + cp.UNIT_POS % tiling.across * tiling.line
    lines = tuple(
        cp.load(source, first + k * step, line=tiling.line, fill=fill) for k in range(tiling.held)
    )
    for k in cp.unroll(range(tiling.held)):
        cp.store(row, first + k * step, lines[k], whole=fill is None)


def put_zeros(row: Any, begin: Any, end: Any, tiling: Any) -> None:
    """What stands where an index is out of bounds."""
    for j in range(begin + cp.UNIT_POS % tiling.across, end, tiling.across):
        row[j] = 0


# Scattering


def updated(old: Any, v: Any, update: Any) -> Any:
    """A target with one value more."""
    if update == "assign":
        return v
    if update == "add":
        return old + v
    if update == "mul":
        return old * v
    return max(old, v) if update == "max" else min(old, v)


def scatter_slice(out: Any, values: Any, begin: Any, end: Any, update: Any, tiling: Any) -> None:
    """Columns [begin, end) of one index that serves them all."""
    line = tiling.line
    whole = begin + (end - begin) // line * line
    for j in range(begin, whole, line):
        v = cp.load(values, j, line=line, fill=None)
        old = v if update == "assign" else cp.load(out, j, line=line, fill=None)
        cp.store(
            out, j, updated(old, v if v.dtype == out.dtype else out.dtype(v), update), whole=True
        )
    for j in range(whole, end):
        out[j] = updated(out[j], out.dtype(values[j]), update)


@cp.cube
def scatter_owned(
    out: cp.Tensor,
    index: cp.Tensor,
    values: cp.Tensor,
    kept: cp.Comptime[int],
    update: cp.Comptime[str],
    tiling: cp.Comptime[IndexTiling],
) -> None:
    """A unit makes all updates of its columns and of its part of the targets, in their order.

    `out`: `kept` axes, the indexed one, columns. `index` and `values`: the same axes, with those
    of the index in the place of the indexed one. Nobody else writes what a unit writes.
    """
    targets, columns = out.shape[kept], out.shape[kept + 1]
    bands, rows = (columns + tiling.columns - 1) // tiling.columns, product(out.shape[:kept])
    extents = values.shape[kept : values.rank - 1]
    updates = product(extents)
    unit, owner = cp.ABSOLUTE_POS // tiling.owners, cp.ABSOLUTE_POS % tiling.owners
    if unit < rows * bands:
        where = unravelled(unit // bands, out.shape[:kept])
        begin = unit % bands * tiling.columns
        end = min(begin + tiling.columns, columns)
        share = (targets + tiling.owners - 1) // tiling.owners
        low, high = owner * share, min((owner + 1) * share, targets)
        for k in range(updates):
            at = (*where, *unravelled(k, extents))
            for j in range(begin, end, tiling.columns if tiling.line > 1 else 1):
                i = counted_from_0(index[(*at, j)], targets)
                if is_owned(i, low, high, targets, owner, tiling):
                    if tiling.line > 1:
                        scatter_slice(out[(*where, i)], values[at], begin, end, update, tiling)
                    else:
                        v = out.dtype(values[(*at, j)])
                        out[(*where, i, j)] = updated(out[(*where, i, j)], v, update)


def is_owned(i: Any, low: Any, high: Any, targets: Any, owner: Any, tiling: Any) -> Any:
    """Whether a target belongs to this unit; in checked mode, the first one's are also those that
    nobody has, so that the access reports them."""
    if tiling.owners == 1:
        return is_inside(i, targets, tiling)
    inside = i >= low and i < high
    if tiling.is_guarded:
        return inside
    return inside or (owner == 0 and (i < 0 or i >= targets))


@cp.cube
def scatter_anyhow(
    out: cp.Tensor,
    index: cp.Tensor,
    values: cp.Tensor,
    kept: cp.Comptime[int],
    update: cp.Comptime[str],
    tiling: cp.Comptime[IndexTiling],
) -> None:
    """A unit makes one update, in no order; the arrays are as in `scatter_owned`."""
    if values.size > cp.ABSOLUTE_POS:
        where, last = unravelled(cp.ABSOLUTE_POS, values.shape), values.rank - 1
        i = counted_from_0(index[where], out.shape[kept])
        if is_inside(i, out.shape[kept], tiling):
            v, at = out.dtype(values[where]), (*where[:kept], i, where[last])
            if update == "assign":
                out[at] = v
            elif update == "add":
                cp.atomic.add(out, at, v)
            elif update == "max":
                cp.atomic.max(out, at, v)
            else:
                cp.atomic.min(out, at, v)
