"""Products on CPUs: blocks of packed panels, products of tiles in registers.

After Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008), with the
tiles of BLIS. A cube makes a block of the result. For each step of `depth` along k it packs its
part of the right factor, tile by tile as lines, into memory that the second cache holds; a few rows
of the left factor go to the nearest cache; products of the two stay in registers for the whole
step. A line of the right factor is multiplied by one element of the left at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a product is divided.

    A tile has `rows` rows and `lines` lines of `line` elements; the last rows of the result, which
    fill no tile, are `rest`. `depth`: elements of a step along k. `width`: the most columns of a
    cube. `left`, `right`: the axis along which the factors are dense. Packed lines are prefetched
    `ahead` elements of k, and with `fetches` the right factor before it is packed, which pays where
    rows are few. `is_finished`: sums are converted, or go through a bias or an epilogue. `cut`:
    cubes along the rows and along the columns of the result; empty where the rule cuts them.
    """

    rows: int
    rest: int
    lines: int
    line: int
    depth: int
    width: int
    left: str
    right: str
    factors: DType
    sums: DType
    ahead: int = 16
    is_finished: bool = False
    fetches: bool = False
    cut: tuple[int, ...] = ()

    @property
    def step(self) -> int:
        """Columns of a tile."""
        return self.lines * self.line

    @property
    def left_extents(self) -> tuple[int, int]:
        """The memory for rows of the left factor; rows share no set of a cache."""
        if self.left == "rows":
            return self.rows, self.depth + self.line
        return self.depth, -(-self.rows // self.line) * self.line


@cp.cube
def multiply_blocks(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    sums: Any,
    biases: Any,
    extras: Any,
    height: int,
    width: int,
    depth: int,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Blocks],
) -> None:
    """A cube for each `height` rows by `width` columns of each product, in steps of `depth`.

    `a` is [..., m, k], or [..., k, m] where it is dense along columns; `b` is [..., k, n] or
    [..., n, k]. `sums`: empty, or memory for sums between steps where `out` cannot hold them.
    """
    height, width, depth = (max(1, e) for e in (height, width, depth))
    m, n = out.shape[out.rank - 2], out.shape[out.rank - 1]
    across, down = (n + width - 1) // width, (m + height - 1) // height
    where = unravelled(cp.CUBE_POS // (down * across), out.shape[: out.rank - 2])
    x, y = chosen(a, where), chosen(b, where)
    result = out, (chosen(sums[0], where) if len(sums) else chosen(out, where)), where
    inner = x.shape[1] if t.left == "rows" else x.shape[0]
    first, j0 = cp.CUBE_POS // across % down * height, cp.CUBE_POS % across * width
    tiles = max(1, (min(width, n - j0) + t.step - 1) // t.step)
    end = min(first + height, m - t.rest)
    memory = memory_of(t)
    for k0 in range(0, max(inner, 1), depth):
        part = k0, max(0, min(depth, inner - k0)), k0 + depth >= inner
        for i0 in range(first, end, t.rows):
            place = i0, j0, tiles, i0 == first
            add_rows(x, y, result, biases, extras, epilogue, memory, place, part, t.rows, t)
        if t.rest and first + height >= m:
            place = m - t.rest, j0, tiles, m - t.rest == first
            add_rows(x, y, result, biases, extras, epilogue, memory, place, part, t.rest, t)


def memory_of(t: Any) -> Any:
    """Memory of a cube: for rows of the left factor, the packed right one, a tile, a square."""
    return (
        cp.shared(t.left_extents, t.factors),
        cp.shared((t.width // t.step, t.depth, t.step), t.factors),
        cp.shared((t.rows, t.step), t.sums),
        cp.shared((t.line, t.line), t.factors),
    )


def add_rows(
    x: Any,
    y: Any,
    result: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    memory: Any,
    place: Any,
    part: Any,
    rows: Any,
    t: Any,
) -> None:
    """Add the products of one step to some rows of the result, tile by tile; rows that do not exist
    are not stored.

    The first rows of a cube pack the right factor as they go, so that it comes from a near cache.
    """
    left, right, spilled, square = memory
    i0, j0, tiles, is_first = place
    k0, count, is_last = part
    copy_rows(x, left, i0, k0, count, rows, t)
    for tile in range(tiles):
        j = j0 + tile * t.step
        if is_first:
            pack_tile(y, right[tile], square, k0, count, j, t)
        out, sums, where = result
        fetch_sums(sums, i0, j, rows, t)
        fetch_rows(x, i0 + rows, k0, tile * count // tiles, (tile + 1) * count // tiles, rows, t)
        found = multiplied(left, right[tile], y, k0, j + t.step, count, rows, t)
        if t.is_finished:
            spill(found, spilled, rows, t)
            if is_last:
                finish_tile(
                    spilled, out, sums, where, i0, j, k0 > 0, biases, extras, epilogue, rows, t
                )
            else:
                add_tile(spilled, sums, i0, j, k0 > 0, rows, t)
        elif k0 == 0 and j + t.step <= sums.shape[1] and i0 + rows <= sums.shape[0]:
            put_tile(found, sums, i0, j, rows, t)
        else:
            spill(found, spilled, rows, t)
            add_tile(spilled, sums, i0, j, k0 > 0, rows, t)


def copy_rows(x: Any, left: Any, i0: Any, k0: Any, count: Any, rows: Any, t: Any) -> None:
    """Bring some rows of the left factor near, as they lie; the last one stands for missing."""
    if t.left == "rows":
        whole = count // t.line * t.line
        for r in range(min(rows, x.shape[0] + rows)):
            row = x[min(i0 + r, x.shape[0] - 1)]
            for k in range(0, whole, t.line):
                v = cp.load(row, k0 + k, line=t.line, fill=None)
                cp.store(left[r], k, cp.Line[t.factors, t.line](v), whole=True)
            if whole < count:
                v = cp.load(row, k0 + whole, line=t.line)
                cp.store(left[r], whole, cp.Line[t.factors, t.line](v), whole=True)
    else:
        for k in range(count):
            column = x[k0 + k]
            for r in cp.unroll(range(0, rows, t.line)):
                v = cp.load(column, i0 + r, line=t.line)
                cp.store(left[k], r, cp.Line[t.factors, t.line](v), whole=True)


def pack_tile(y: Any, panel: Any, square: Any, k0: Any, count: Any, j0: Any, t: Any) -> None:
    """One tile of the right factor, for one step of k, as lines of columns; zeros outside."""
    if t.right == "rows":
        if j0 + t.step <= y.shape[1]:
            pack_lines(y, panel, k0, count, j0, None, t)
        else:
            pack_lines(y, panel, k0, count, j0, 0, t)
    else:
        whole = count // t.line * t.line
        for c in range(min(t.lines, y.shape[0] + t.lines)):
            j = j0 + c * t.line
            for k in range(0, whole, t.line):
                pack_turned(y, panel, k0, k, j, c, t)
            pack_rest(y, panel, square, k0, whole, count, j, c, t)


def pack_lines(y: Any, panel: Any, k0: Any, count: Any, j0: Any, fill: Any, t: Any) -> None:
    """A tile of a right factor whose rows are dense."""
    for k in range(count):
        v = cp.load(y[k0 + k], j0, line=t.step, fill=fill)
        cp.store(panel[k], 0, cp.Line[t.factors, t.step](v), whole=True)


def pack_turned(y: Any, panel: Any, k0: Any, k: Any, j: Any, c: Any, t: Any) -> None:
    """A square of the right factor whose columns are dense; the last one stands for missing."""
    last = y.shape[0] - 1
    lines = tuple(
        cp.Line[t.factors, t.line](cp.load(y[min(j + lane, last)], k0 + k, line=t.line, fill=None))
        for lane in range(t.line)
    )
    found = transposed(lines)
    for lane in cp.unroll(range(t.line)):
        cp.store(panel[k + lane], c * t.line, found[lane], whole=True)


def pack_rest(
    y: Any, panel: Any, square: Any, k0: Any, begin: Any, end: Any, j: Any, c: Any, t: Any
) -> None:
    """The last elements of columns, which fill no square."""
    last = y.shape[0] - 1
    for lane in range(min(t.line, y.shape[0] + t.line)):
        column = y[min(j + lane, last)]
        for k in range(begin, end):
            square[k - begin, lane] = t.factors(column[k0 + k])
    for k in range(begin, end):
        v = cp.load(square[k - begin], 0, line=t.line, fill=None)
        cp.store(panel[k], c * t.line, v, whole=True)


def transposed(lines: Any) -> Any:
    """The columns of a square of lines: each round interleaves neighbours."""
    return shuffled(lines, len(lines))


def shuffled(lines: Any, count: Any) -> Any:
    """One round of `transposed`, and those after it."""
    if count == 1:
        return lines
    half = len(lines) // 2
    pairs = tuple(cp.concat(lines[2 * k], lines[2 * k + 1]) for k in range(half))
    return shuffled(tuple(p[0::2] for p in pairs) + tuple(p[1::2] for p in pairs), count // 2)


def fetch_sums(sums: Any, i0: Any, j0: Any, rows: Any, t: Any) -> None:
    """Ask for what a tile is added to, or stored over, while its products are made."""
    for r in range(rows):
        for c in cp.unroll(range(t.lines)):
            cp.prefetch(sums, (i0 + r, j0 + c * t.line))


def fetch_rows(x: Any, i0: Any, k0: Any, begin: Any, end: Any, rows: Any, t: Any) -> None:
    """Ask for a tile's share of the rows that are copied next."""
    if t.left == "rows":
        for k in range(begin // t.line * t.line, end, t.line):
            for r in range(rows):
                cp.prefetch(x, (i0 + r, k0 + k), level=2)
    else:
        for k in range(begin, end):
            for r in cp.unroll(range(0, rows, t.line)):
                cp.prefetch(x, (k0 + k, i0 + r), level=2)


def multiplied(
    left: Any, panel: Any, y: Any, k0: Any, j: Any, count: Any, rows: Any, t: Any
) -> Any:
    """The products of `rows` rows and one tile, in registers; the next tile begins at `j`."""
    found = cp.local(rows, cp.Line[t.sums, t.step], fill=0)
    for k in range(count):
        if t.ahead:
            for c in cp.unroll(range(t.lines)):
                cp.prefetch(panel, (k + t.ahead, c * t.line))
        if t.fetches:
            for c in cp.unroll(range(t.lines)):
                cp.prefetch(y, (k0 + k, j + c * t.line))
        v = cp.load(panel[k], 0, line=t.step, fill=None)
        for r in cp.unroll(range(rows)):
            found[r] = found[r] + v * (left[r, k] if t.left == "rows" else left[k, r])
    return found


def put_tile(found: Any, sums: Any, i0: Any, j0: Any, rows: Any, t: Any) -> None:
    """Store a tile, all of whose elements exist."""
    for r in cp.unroll(range(rows)):
        cp.store(sums[i0 + r], j0, found[r], whole=True)


def spill(found: Any, spilled: Any, rows: Any, t: Any) -> None:
    """Bring a tile from registers to memory, so that a loop can go through it."""
    for r in cp.unroll(range(rows)):
        cp.store(spilled[r], 0, found[r], whole=True)


def add_tile(spilled: Any, sums: Any, i0: Any, j0: Any, adds: Any, rows: Any, t: Any) -> None:
    """Store a tile, or add it to what was there; rows and columns may be missing."""
    for r in range(min(rows, sums.shape[0] - i0)):
        row, v = sums[i0 + r], cp.load(spilled[r], 0, line=t.step, fill=None)
        if adds:
            v = v + cp.load(row, j0, line=t.step)
        cp.store(row, j0, v)


def finish_tile(
    spilled: Any,
    out: Any,
    sums: Any,
    where: Any,
    i0: Any,
    j0: Any,
    adds: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    rows: Any,
    t: Any,
) -> None:
    """Add what was there to a tile, and store what bias and epilogue make of it."""
    for r in range(min(rows, sums.shape[0] - i0)):
        into, row = out[(*where, i0 + r)], sums[i0 + r]
        for c in range(min(t.lines, (sums.shape[1] - j0 + t.line - 1) // t.line)):
            j = j0 + c * t.line
            v = cp.load(spilled[r], c * t.line, line=t.line, fill=None)
            if adds:
                v = v + cp.Line[t.sums, t.line](cp.load(row, j, line=t.line))
            v = finished(v, (*where, i0 + r, j), biases, extras, epilogue)
            cp.store(into, j, v)
