"""Products of few rows on GPUs: the weights are read once, in lines of 16 bytes.

Such a product takes as long as its right factor, the weights, takes to come from memory, so that
each unit has several lines on their way. Where columns are dense, all units of a cube go along k
through some columns; where rows are, a cube has as many columns as a few lines, and its units share
the rows. Either way the units of one cube share the sum over k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished_number
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Vectors:
    """All `rows` rows by `columns` columns in a cube of `units` units.

    A unit reads `loads` lines of `line` elements of each column before it multiplies; where rows
    are dense, of its own columns. `right`: the axis along which the weights are dense.
    """

    rows: int
    columns: int
    units: int
    line: int
    loads: int
    right: str
    sums: DType


@cp.cube
def multiply_vectors(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Vectors],
) -> None:
    """A cube for `columns` columns of each product of [..., m, k] by [..., k, n], or by [..., n, k]
    where columns are dense."""
    n = out.shape[out.rank - 1]
    across = (n + t.columns - 1) // t.columns
    where = unravelled(cp.CUBE_POS // across, out.shape[: out.rank - 2])
    x, y, z = chosen(a, where), chosen(b, where), chosen(out, where)
    j0 = cp.CUBE_POS % across * t.columns
    totals = cp.shared((t.rows, t.columns), t.sums)
    if t.right == "columns":
        add_columns(x, y, totals, j0, t)
    else:
        add_rows(x, y, totals, j0, t)
    cp.sync_cube()
    for e in range(cp.UNIT_POS, t.rows * t.columns, t.units):
        i, j = e // t.columns, j0 + e % t.columns
        if j < n:
            v = totals[i, e % t.columns]
            z[i, j] = finished_number(v, (*where, i, j), biases, extras, epilogue)


# Dense columns


def add_columns(x: Any, y: Any, totals: Any, j0: Any, t: Any) -> None:
    """Dot products of all rows with some columns; the last column stands for those behind it."""
    columns = tuple(y[min(j0 + c, y.shape[0] - 1)] for c in range(t.columns))
    found = cp.local((t.rows, t.columns), t.sums, fill=0)
    step, inner = t.units * t.line, x.shape[1]
    whole = inner // (step * t.loads) * (step * t.loads)
    mine = cp.UNIT_POS * t.line
    for k in range(mine, mine + whole, step * t.loads):
        lines = tuple(
            tuple(cp.load(y, k + u * step, line=t.line, fill=None, hint="stream") for y in columns)
            for u in range(t.loads)
        )
        for u in cp.unroll(range(t.loads)):
            add_products(x, lines[u], found, k + u * step, None, t)
    most = inner // step * step
    for k in range(mine + whole, mine + most, step):
        lines = tuple(cp.load(y, k, line=t.line, fill=None) for y in columns)
        add_products(x, lines, found, k, None, t)
    for k in range(mine + most, inner, step):
        add_products(x, tuple(cp.load(y, k, line=t.line) for y in columns), found, k, 0, t)
    parts = cp.shared((t.rows * t.columns, t.units // cp.PLANE_DIM), t.sums)
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            v = cp.plane_sum(found[r, c])
            if cp.UNIT_POS_PLANE == 0:
                parts[r * t.columns + c, cp.PLANE_POS] = v
    cp.sync_cube()
    for e in range(cp.UNIT_POS, t.rows * t.columns, t.units):
        v = t.sums(0)
        for plane in cp.unroll(range(t.units // cp.PLANE_DIM)):
            v = v + parts[e, plane]
        totals[e // t.columns, e % t.columns] = v


def add_products(x: Any, lines: Any, found: Any, k: Any, fill: Any, t: Any) -> None:
    """Add the products of a line of k of each column and of each row."""
    for r in cp.unroll(range(t.rows)):
        u = cp.Line[t.sums, t.line](cp.load(x[r], k, line=t.line, fill=fill))
        for c in cp.unroll(range(t.columns)):
            v = cp.Line[t.sums, t.line](lines[c])
            for lane in cp.unroll(range(t.line)):
                found[r, c] = found[r, c] + u[lane] * v[lane]


# Dense rows


def add_rows(x: Any, y: Any, totals: Any, j0: Any, t: Any) -> None:
    """Sums of rows of the right factor; each unit has one line of columns of every so many rows."""
    lines = t.columns // t.line
    deep, inner = t.units // lines, y.shape[0]
    mine, j = cp.UNIT_POS // lines, j0 + cp.UNIT_POS % lines * t.line
    found = cp.local(t.rows, cp.Line[t.sums, t.line], fill=0)
    whole = inner // (deep * t.loads) * (deep * t.loads)
    if j0 + t.columns <= y.shape[1]:
        add_runs(x, y, found, (mine, mine + whole, deep), j, None, t)
    else:
        add_runs(x, y, found, (mine, mine + whole, deep), j, 0, t)
    for k in range(whole + mine, inner, deep):
        add_scaled(x, cp.load(y[k], j, line=t.line), found, k, t)
    parts = cp.shared((deep, t.columns), t.sums)
    for r in cp.unroll(range(t.rows)):
        cp.store(parts[mine], cp.UNIT_POS % lines * t.line, found[r], whole=True)
        cp.sync_cube()
        add_parts(parts, totals[r], deep, t)
        cp.sync_cube()


def add_runs(x: Any, y: Any, found: Any, rows: Any, j: Any, fill: Any, t: Any) -> None:
    """Add what a unit has of `rows` of the right factor, several of which are on their way."""
    first, behind, deep = rows
    for k in range(first, behind, deep * t.loads):
        held = tuple(
            cp.load(y[k + u * deep], j, line=t.line, fill=fill, hint="stream")
            for u in range(t.loads)
        )
        for u in cp.unroll(range(t.loads)):
            add_scaled(x, held[u], found, k + u * deep, t)


def add_parts(parts: Any, total: Any, deep: Any, t: Any) -> None:
    """The sums of columns of `parts`: half of the rows are added to the others, again and again."""
    half = cp.i32(deep // 2)
    while half > 0:
        for e in range(cp.UNIT_POS, half * t.columns, t.units):
            i, j = e // t.columns, e % t.columns
            parts[i, j] = parts[i, j] + parts[i + half, j]
        cp.sync_cube()
        half = half // 2
    for j in range(cp.UNIT_POS, t.columns, t.units):
        total[j] = parts[0, j]


def add_scaled(x: Any, held: Any, found: Any, k: Any, t: Any) -> None:
    """Add a line of a row of the right factor, times what all rows have there."""
    v = cp.Line[t.sums, t.line](held)
    for r in cp.unroll(range(t.rows)):
        found[r] = found[r] + v * t.sums(x[r, k])
