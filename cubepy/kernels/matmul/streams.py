"""Products of few rows on CPUs: the right factor is read once, as it lies.

`multiply_streams` walks along rows of a right factor that is dense along rows, several at a time;
sums of the columns stay in a near cache. `multiply_dots` makes dot products with columns that are
dense. Both wait for memory where the left factor has one row: a processor follows so many rows, but
none beyond the end of its page, so that what comes next is prefetched where no cache holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.calls.prefetching import prefetch_run
from cubepy.kernels.matmul.finish import chosen, finished, finished_number
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Streams:
    """`groups` times `rows` rows; `steps` elements of k and `lines` lines of `line` columns at a
    time; `width` columns of a cube. The right factor is prefetched `ahead` rows, 0 for not."""

    rows: int
    groups: int
    line: int
    lines: int
    steps: int
    width: int
    ahead: int
    sums: DType


@dataclass(frozen=True, slots=True)
class Dots:
    """`groups` times `rows` rows; `rows` rows by `columns` columns at a time, in lines of `line`
    elements of k. All rows are multiplied by `depth` elements of the columns before the next
    ones; a cube has `width` columns. Along k they are prefetched `ahead` elements, 0 for not."""

    rows: int
    groups: int
    columns: int
    line: int
    depth: int
    width: int
    ahead: int
    sums: DType


@cp.cube
def multiply_streams(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Streams],
) -> None:
    """A cube for `width` columns of each product [..., m, k] by [..., k, n]; one unit each."""
    n = out.shape[out.rank - 1]
    across = (n + t.width - 1) // t.width
    where = unravelled(cp.CUBE_POS // across, out.shape[: out.rank - 2])
    j0 = cp.CUBE_POS % across * t.width
    place = where, 0, j0, min(t.width, n - j0)
    multiply_rows(chosen(a, where), chosen(b, where), out, place, biases, extras, epilogue, t)


def multiply_rows(
    x: Any, y: Any, out: Any, place: Any, biases: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """Make some columns of few rows; `place`: the indices of the product, its first row in `out`,
    the first column, how many columns."""
    where, first, j0, columns = place
    m, inner = t.rows * t.groups, y.shape[0]
    sums = cp.shared((m, t.width // t.line), cp.Line[t.sums, t.line])
    held = cp.shared((m, t.steps), t.sums)
    count, whole = (columns + t.line - 1) // t.line, columns // (t.line * t.lines) * t.lines
    for r in range(min(m, (x.shape[0] + t.rows - 1) // t.rows * t.rows)):
        for c in range(count):
            sums[r, c] = cp.Line[t.sums, t.line](0)
    end = inner // t.steps * t.steps
    for k in range(0, end, t.steps):
        add_steps(x, y, held, sums, k, j0, whole, count, t.steps, t)
    for k in range(end, inner):
        add_steps(x, y, held, sums, k, j0, 0, count, 1, t)
    for r in range(min(m, x.shape[0])):
        row = out[(*where, first + r)]
        for c in range(count):
            j = j0 + c * t.line
            v = finished(sums[r, c], (*where, first + r, j), biases, extras, epilogue)
            cp.store(row, j, v)


def add_steps(
    x: Any,
    y: Any,
    held: Any,
    sums: Any,
    k: Any,
    j0: Any,
    whole: Any,
    count: Any,
    steps: Any,
    t: Any,
) -> None:
    """Add the products of some rows of the right factor to all columns."""
    for r in range(min(t.rows * t.groups, x.shape[0] + t.rows)):
        row = x[min(r, x.shape[0] - 1)]
        for u in cp.unroll(range(steps)):
            held[r, u] = t.sums(row[k + u])
    for group in range(min(t.groups, (x.shape[0] + t.rows - 1) // t.rows)):
        factors, part = held[group * t.rows :], sums[group * t.rows :]
        if steps > 1:
            for c in range(0, whole, t.lines):
                if group == 0:
                    prefetch_rows(y, k, j0 + c * t.line, t)
                add_lines(factors, y, part, k, j0 + c * t.line, c, t)
        for u in range(min(steps, y.shape[0] - k)):
            for c in range(whole, count):
                add_line(factors, y, part, k, j0 + c * t.line, c, u, t)


def prefetch_rows(y: Any, k: Any, j: Any, t: Any) -> None:
    """Prefetch what `add_lines` will read of the rows behind row `k`, from column `j` on."""
    if t.ahead > 0:
        for u in cp.unroll(range(t.steps)):
            prefetch_run(y, (k + t.ahead + u,), j, t.lines * t.line)


def add_lines(factors: Any, y: Any, sums: Any, k: Any, j: Any, at: Any, t: Any) -> None:
    """Add the products of some rows and lines, whose sums are in registers meanwhile."""
    found = cp.local((t.rows, t.lines), cp.Line[t.sums, t.line])
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.lines)):
            found[r, c] = sums[r, at + c]
    for u in cp.unroll(range(t.steps)):
        row = y[k + u]
        for c in cp.unroll(range(t.lines)):
            v = cp.Line[t.sums, t.line](cp.load(row, j + c * t.line, line=t.line, fill=None))
            for r in cp.unroll(range(t.rows)):
                found[r, c] = found[r, c] + v * factors[r, u]
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.lines)):
            sums[r, at + c] = found[r, c]


def add_line(factors: Any, y: Any, sums: Any, k: Any, j: Any, at: Any, u: Any, t: Any) -> None:
    """Add the products of one row and one line, which may end early."""
    v = cp.Line[t.sums, t.line](cp.load(y[k + u], j, line=t.line))
    for r in cp.unroll(range(t.rows)):
        sums[r, at] = sums[r, at] + v * factors[r, u]


@cp.cube
def add_parts(
    parts: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    line: cp.Comptime[int],
) -> None:
    """Add sums over parts of k, [part, row, column]; a cube for each row."""
    i = cp.CUBE_POS
    for j in range(0, out.shape[1], line):
        v = cp.load(parts[0, i], j, line=line)
        for part in range(1, parts.shape[0]):
            v = v + cp.load(parts[part, i], j, line=line)
        cp.store(out[i], j, finished(v, (i, j), biases, extras, epilogue))


@cp.cube
def multiply_dots(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Dots],
) -> None:
    """A cube for `width` columns of each product [..., m, k] by [..., n, k]; one unit each."""
    n = out.shape[out.rank - 1]
    across = (n + t.width - 1) // t.width
    where = unravelled(cp.CUBE_POS // across, out.shape[: out.rank - 2])
    j0 = cp.CUBE_POS % across * t.width
    place = where, 0, j0, min(t.width, n - j0)
    dot_rows(chosen(a, where), chosen(b, where), out, place, biases, extras, epilogue, t)


def dot_rows(
    x: Any, y: Any, out: Any, place: Any, biases: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """As `multiply_rows`, by dot products."""
    where, first, j0, columns = place
    m, z = x.shape[0], chosen(out, where)
    sums = cp.shared((t.groups, t.rows, t.columns), cp.Line[t.sums, t.line])
    for j in range(j0, j0 + columns, t.columns):
        for k in range(0, max(x.shape[1], 1), t.depth):
            for group in range(min(t.groups, (m + t.rows - 1) // t.rows)):
                add_dots(x, y, sums[group], group * t.rows, j, k, t)
        for i in range(m):
            for c in range(min(t.columns, j0 + columns - j)):
                index = (*where, first + i, j + c)
                total = sums[i // t.rows, i % t.rows, c].sum()
                z[first + i, j + c] = finished_number(total, index, biases, extras, epilogue)


def add_dots(x: Any, y: Any, sums: Any, i: Any, j: Any, begin: Any, t: Any) -> None:
    """Add products of some rows and columns, `depth` elements of each from `begin` on; the last
    rows and columns stand for those behind them."""
    rows = tuple(x[min(i + r, x.shape[0] - 1)] for r in range(t.rows))
    columns = tuple(y[min(j + c, y.shape[0] - 1)] for c in range(t.columns))
    found = cp.local((t.rows, t.columns), cp.Line[t.sums, t.line], fill=0)
    if begin > 0:
        for r in cp.unroll(range(t.rows)):
            for c in cp.unroll(range(t.columns)):
                found[r, c] = sums[r, c]
    inner = min(x.shape[1] - begin, t.depth)
    end = begin + inner // t.line * t.line
    for k in range(begin, end, t.line):
        if t.ahead > 0 and i == 0:
            for column in columns:
                prefetch_run(column, (), k + t.ahead, t.line)
        add_products(rows, columns, found, k, None, t)
    if end < begin + inner:
        add_products(rows, columns, found, end, 0, t)
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            sums[r, c] = found[r, c]


def add_products(rows: Any, columns: Any, found: Any, k: Any, fill: Any, t: Any) -> None:
    """Add the products of one line of k."""
    left = tuple(loaded(row, k, fill, t) for row in rows)
    for c in cp.unroll(range(t.columns)):
        v = loaded(columns[c], k, fill, t)
        for r in cp.unroll(range(t.rows)):
            found[r, c] = found[r, c] + left[r] * v


def loaded(row: Any, k: Any, fill: Any, t: Any) -> Any:
    """A line of a row from `k` on, in the type of the sums."""
    return cp.Line[t.sums, t.line](cp.load(row, k, line=t.line, fill=fill))
