"""Quantised factors that are widened to floats: on the way to registers, or to memory.

Numbers of few bits are read in lines, as they lie; of bytes that hold two numbers each, one line
has the even ones and another the odd ones, and what they are multiplied by is split likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished, finished_number
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Numbers:
    """How numbers are stored: `packed` two to a byte, with a `sign`; `block` rows and columns of
    the matrix that is stored share a scale, 0 for all, and a zero point if it `has_zero`."""

    packed: bool
    sign: bool
    block: tuple[int, int]
    has_zero: bool

    def place(self, row: Any, column: Any) -> Any:
        """Where the scale of a number is."""
        p, q = self.block
        return row // p if p else 0, column // q if q else 0


@dataclass(frozen=True, slots=True)
class Widened:
    """`rows` rows by `columns` columns at a time, in lines of `line` elements of k; a cube of
    `units` units has `width` columns. Sums have `lanes` lanes; with as many as the products of a
    line, whole lines are scaled once for all rows; else the sums of products are."""

    rows: int
    columns: int
    units: int
    line: int
    lanes: int
    width: int
    sums: DType
    numbers: Numbers

    @property
    def scales_first(self) -> bool:
        """Whether numbers are multiplied by their scale before products."""
        return self.lanes * (2 if self.numbers.packed else 1) == self.line


@dataclass(frozen=True, slots=True)
class Stored:
    """Quantised matrices: the numbers, their scales, and their zero points, or ()."""

    values: Any
    scale: Any
    zero: Any

    def matrix(self, where: Any) -> Stored:
        """One of them."""
        zero = self.zero if len(self.zero) == 0 else (chosen(self.zero[0], where),)
        return Stored(chosen(self.values, where), chosen(self.scale, where), zero)


# A product whose right factor is read once


@cp.cube
def multiply_widened(
    a: cp.Tensor,
    b: Stored,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Widened],
) -> None:
    """A cube for `width` columns of each product of [..., m, k] by quantised [..., n, k]."""
    m, n = out.shape[out.rank - 2], out.shape[out.rank - 1]
    across = (n + t.width - 1) // t.width
    where = unravelled(cp.CUBE_POS // across, out.shape[: out.rank - 2])
    x, y, z = chosen(a, where), b.matrix(where), chosen(out, where)
    j0 = cp.CUBE_POS % across * t.width
    totals = cp.shared((t.rows, t.columns), t.sums)
    for j in range(j0, min(j0 + t.width, n), t.columns):
        for i in range(0, m, t.rows):
            add_dots(x, y, totals, i, j, n, t)
            cp.sync_cube()
            for e in range(cp.UNIT_POS, t.rows * t.columns, t.units):
                r, c = e // t.columns, e % t.columns
                if i + r < m and j + c < n:
                    index = (*where, i + r, j + c)
                    v = finished_number(totals[r, c], index, biases, extras, epilogue)
                    z[i + r, j + c] = v
            cp.sync_cube()


def add_dots(x: Any, y: Any, totals: Any, i: Any, j: Any, n: Any, t: Any) -> None:
    """Dot products of some rows and columns; the last ones stand for those behind them."""
    rows = tuple(x[min(i + r, x.shape[0] - 1)] for r in range(t.rows))
    columns = tuple(min(j + c, n - 1) for c in range(t.columns))
    found = cp.local((t.rows, t.columns), cp.Line[t.sums, t.lanes], fill=0)
    inner, step = x.shape[1], t.units * t.line
    end = inner // step * step
    for k in range(cp.UNIT_POS * t.line, end, step):
        add_lines(rows, y, columns, found, k, None, t)
    for k in range(end + cp.UNIT_POS * t.line, inner, step):
        add_lines(rows, y, columns, found, k, 0, t)
    parts = cp.shared((t.units // cp.PLANE_DIM, t.rows * t.columns), t.sums)
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            v = cp.plane_sum(found[r, c].sum())
            if cp.UNIT_POS_PLANE == 0:
                parts[cp.PLANE_POS, r * t.columns + c] = v
    cp.sync_cube()
    for e in range(cp.UNIT_POS, t.rows * t.columns, t.units):
        v = t.sums(0)
        for plane in cp.unroll(range(t.units // cp.PLANE_DIM)):
            v = v + parts[plane, e]
        totals[e // t.columns, e % t.columns] = v


def add_lines(rows: Any, y: Any, columns: Any, found: Any, k: Any, fill: Any, t: Any) -> None:
    """Add the products of one line of k. The sum of a line that ends behind k is always
    scaled as a sum: the filler there, less the zero point, may overflow when it is scaled."""
    first = t.scales_first and fill is None
    found_at = tuple(column_at(y, column, k, fill, t) for column in columns)
    for r in cp.unroll(range(t.rows)):
        left = split(cp.load(rows[r], k, line=t.line, fill=fill), t)
        for c in cp.unroll(range(t.columns)):
            numbers, scale = found_at[c]
            if first:
                for n in cp.unroll(range(len(left))):
                    found[r, c] = found[r, c] + left[n] * numbers[n]
            else:
                found[r, c] = found[r, c] + dotted(left, numbers, t) * scale


def column_at(y: Any, column: Any, k: Any, fill: Any, t: Any) -> Any:
    """A line of numbers of a column, and its scale, by which whole lines are multiplied if that is
    done first."""
    numbers = numbers_at(y, column, k, t.line, fill, t.sums, t.numbers)
    scale = t.sums(y.scale[t.numbers.place(column, k)])
    first = t.scales_first and fill is None
    return (tuple(v * scale for v in numbers) if first else numbers), scale


def split(v: Any, t: Any) -> Any:
    """A line as those that it is multiplied by: even and odd elements apart where these are."""
    v = cp.Line[t.sums, t.line](v)
    return (v[0::2], v[1::2]) if t.numbers.packed else (v,)


def dotted(left: Any, right: Any, t: Any) -> Any:
    """The products of lines, added until they are a line of `lanes`."""
    part = left[0] * right[0]
    if len(left) > 1:
        part = part + left[1] * right[1]
    return folded(part, t.lanes)


def folded(v: Any, lanes: Any) -> Any:
    """A line whose halves are added until it has so many lanes."""
    if v.line_size == lanes:
        return v
    half = v.line_size // 2
    return folded(v[:half] + v[half:], lanes)


def numbers_at(y: Any, row: Any, k: Any, line: Any, fill: Any, kind: Any, numbers: Any) -> Any:
    """A line of numbers, less their zero point: whole, or the even and the odd ones."""
    found = raw_at(y.values[row], k, line, fill, kind, numbers)
    if not numbers.has_zero:
        return found
    zero = kind(y.zero[0][numbers.place(row, k)])
    return tuple(v - zero for v in found)


def raw_at(row: Any, k: Any, line: Any, fill: Any, kind: Any, numbers: Any) -> Any:
    """A line of the numbers of a row: whole, or the even and the odd ones."""
    if not numbers.packed:
        v = cp.load(row, k, line=line, fill=fill)
        return (cp.Line[kind, line](v),)
    half = line // 2
    v = cp.Line[cp.i32, half](cp.load(row, k // 2, line=half, fill=fill))
    low, high = v & 15, v >> 4
    if numbers.sign:
        low, high = (low ^ 8) - 8, (high ^ 8) - 8
    return cp.Line[kind, half](low), cp.Line[kind, half](high)


# The same where rows of the right factor are dense


@dataclass(frozen=True, slots=True)
class Streamed:
    """`rows` rows at a time by `lines` lines of `line` columns; a cube has `width` columns."""

    rows: int
    lines: int
    line: int
    width: int
    sums: DType
    numbers: Numbers


@cp.cube
def multiply_streamed(
    a: cp.Tensor,
    b: Stored,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Streamed],
) -> None:
    """A cube of one unit for `width` columns of each product of [..., m, k] by [..., k, n]."""
    m, n = out.shape[out.rank - 2], out.shape[out.rank - 1]
    across = (n + t.width - 1) // t.width
    where = unravelled(cp.CUBE_POS // across, out.shape[: out.rank - 2])
    x, y, z = chosen(a, where), b.matrix(where), chosen(out, where)
    j0 = cp.CUBE_POS % across * t.width
    for j in range(j0, min(j0 + t.width, n), t.lines * t.line):
        for i in range(0, m, t.rows):
            found = streamed(x, y, i, j, t)
            for r in cp.unroll(range(t.rows)):
                if i + r < m:
                    for c in cp.unroll(range(t.lines)):
                        v, at = found[r, c], (*where, i + r, j + c * t.line)
                        if at[-1] < n:
                            v = finished(v, at, biases, extras, epilogue)
                            cp.store(z[i + r], at[-1], v)


def streamed(x: Any, y: Any, i: Any, j: Any, t: Any) -> Any:
    """The sums of some rows and lines of columns; the last row stands for those behind it."""
    half = t.line // 2 if t.numbers.packed else t.line
    parts = t.line // half
    rows = tuple(x[min(i + r, x.shape[0] - 1)] for r in range(t.rows))
    found = cp.local((t.rows, t.lines, parts), cp.Line[t.sums, half], fill=0)
    for k in range(x.shape[1]):
        for c in cp.unroll(range(t.lines)):
            values = scaled_row(y, k, j + c * t.line, t)
            for r in cp.unroll(range(t.rows)):
                for p in cp.unroll(range(parts)):
                    found[r, c, p] = found[r, c, p] + values[p] * t.sums(rows[r][k])
    lines = cp.local((t.rows, t.lines), cp.Line[t.sums, t.line])
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.lines)):
            v = found[r, c, 0]
            lines[r, c] = interleaved(v, found[r, c, 1]) if parts == 2 else v
    return lines


def scaled_row(y: Any, k: Any, j: Any, t: Any) -> Any:
    """A line of a row times its scales: whole, or its even and its odd numbers."""
    numbers = raw_at(y.values[k], j, t.line, 0, t.sums, t.numbers)
    scales = line_of(y.scale, k, j, t)
    if t.numbers.has_zero:
        zeros = line_of(y.zero[0], k, j, t)
        return tuple((numbers[p] - zeros[p]) * scales[p] for p in range(len(numbers)))
    return tuple(numbers[p] * scales[p] for p in range(len(numbers)))


def line_of(x: Any, k: Any, j: Any, t: Any) -> Any:
    """What numbers of a line share, or have each."""
    row, column = t.numbers.place(k, j)
    if t.numbers.block[1] != 1:
        v = t.sums(x[row, column])
        return v, v
    v = cp.Line[t.sums, t.line](cp.load(x[row], j, line=t.line))
    return (v[0::2], v[1::2]) if t.numbers.packed else (v,)


# A widened copy


@dataclass(frozen=True, slots=True)
class Copied:
    """A cube of `units` units widens a row, `line` numbers at a time, computing as `sums`."""

    units: int
    line: int
    sums: DType
    numbers: Numbers


@cp.cube
def widen(b: Stored, out: cp.Tensor, t: cp.Comptime[Copied]) -> None:
    """A cube for each row of matrices."""
    n = out.shape[out.rank - 1]
    index = unravelled(cp.CUBE_POS, out.shape[: out.rank - 1])
    where, row = index[:-1], index[-1]
    y, z = b.matrix(where), chosen(out, where)[row]
    for c in range(cp.UNIT_POS * t.line, n, t.units * t.line):
        found = scaled_row(y, row, c, t)
        v = found[0] if len(found) == 1 else interleaved(found[0], found[1])
        cp.store(z, c, out.dtype(v))


def interleaved(even: Any, odd: Any) -> Any:
    """The lanes of two lines in turn: as often as it takes, even lanes go before odd ones."""
    return turned_over(cp.concat(even, odd), even.line_size)


def turned_over(v: Any, count: Any) -> Any:
    """So many halvings of `interleaved`."""
    if count == 1:
        return v
    return turned_over(cp.concat(v[0::2], v[1::2]), count // 2)
