"""Products of short elements on processors: packed panels, for matrix units and for dot products.

As in `blocks`, a cube makes a block of the result in steps along k. Both factors are packed in the
blocks that a matrix unit takes: rows of 64 bytes, of the right factor for 16 columns with as many
elements of k as 32 bits hold. Two blocks of each factor give four of sums, which stay in the unit
for the whole step. Without a matrix unit, each word of a row of the left factor is multiplied by
the same panels by `cp.dot`, with sums in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType, i8
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.blocks import transposed
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.lang import amx
from cubepy.record import dataclass

SIDE = 16
"""Rows, and columns, of a block of sums."""
ROW_BYTES = 64
PANEL = 2 * SIDE
"""Rows and columns that are multiplied at once."""


@dataclass(frozen=True, slots=True)
class Units:
    """How a product is divided.

    `rows`: rows of a tile, 32 for matrix units. `depth`: elements of a step along k, a multiple of
    a block's. `width`: the most columns of a cube, a multiple of 32. `left`, `right`: the axis
    along which the factors are dense. `is_finished`: sums are converted, or go through a bias or an
    epilogue. `is_direct`: rows of the left factor are dense, and whole blocks are taken as they
    lie. `has_unit`: by a matrix unit; else by `cp.dot`. `cut`: cubes along the rows and
    along the columns of the result; empty where the rule cuts them.
    """

    rows: int
    depth: int
    width: int
    left: str
    right: str
    factors: DType
    sums: DType
    is_finished: bool = False
    is_direct: bool = False
    has_unit: bool = True
    cut: tuple[int, ...] = ()

    @property
    def word(self) -> int:
        """Elements in 32 bits."""
        return 4 // self.factors.itemsize

    @property
    def line(self) -> int:
        """Elements of k of a block."""
        return ROW_BYTES // self.factors.itemsize

    @property
    def moved(self) -> bool:
        """Whether the left factor is packed as unsigned bytes, 128 higher."""
        return not self.has_unit and self.factors is i8

    @property
    def step(self) -> int:
        """Columns of a tile."""
        return PANEL


@cp.cube
def multiply_units(
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
    t: cp.Comptime[Units],
) -> None:
    """A cube for each `height` rows by `width` columns of each product, in steps of `depth`.

    `a` is [..., m, k], or [..., k, m] where it is dense along columns; `b` is [..., k, n] or
    [..., n, k]. `sums`: empty, or memory for sums between steps where `out` cannot hold them.
    """
    m, n = out.shape[out.rank - 2], out.shape[out.rank - 1]
    across, down = (n + width - 1) // width, (m + height - 1) // height
    where = unravelled(cp.CUBE_POS // (down * across), out.shape[: out.rank - 2])
    x, y = chosen(a, where), chosen(b, where)
    result = out, (chosen(sums[0], where) if len(sums) else chosen(out, where)), where
    first, j0 = cp.CUBE_POS // across % down * height, cp.CUBE_POS % across * width
    place = first, min(first + height, m), j0, min(width, n - j0)
    multiply_block(x, y, result, place, depth, biases, extras, epilogue, t)


def multiply_block(
    x: Any,
    y: Any,
    result: Any,
    place: Any,
    depth: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Make the rows and columns of the result that a cube has; `place`: the first row, the one
    behind the last, the first column, how many columns."""
    first, end, j0, width = place
    inner = x.shape[1] if t.left == "rows" else x.shape[0]
    tiles = (width + PANEL - 1) // PANEL
    blocks = t.depth // t.line
    held = (t.rows + SIDE - 1) // SIDE * SIDE
    kind = cp.u8 if t.moved else t.factors
    left = cp.shared((blocks, held, t.line), kind)
    # One row more than is used: panels share no set of a cache
    right = cp.shared((t.width // PANEL, blocks * PANEL + 1, t.line), t.factors)
    spilled = cp.shared((t.rows, PANEL), t.sums)
    for k0 in range(0, max(inner, 1), depth):
        count = min(depth, inner - k0)
        deep = (count + t.line - 1) // t.line
        part = k0, k0 + depth >= inner
        pack_right(y, right, j0, k0, deep, tiles, t)
        for i0 in range(first, end, t.rows):
            taken = blocks_taken(x, i0, k0, deep, t)
            if taken < deep:
                pack_left(x, left, i0, k0, (taken, deep), t)
            for tile in range(tiles):
                j = j0 + tile * PANEL
                multiply_panels(
                    x,
                    left,
                    right[tile],
                    spilled,
                    result,
                    biases,
                    extras,
                    i0,
                    j,
                    (taken, deep),
                    part,
                    epilogue,
                    t,
                )


def blocks_taken(x: Any, i0: Any, k0: Any, deep: Any, t: Any) -> Any:
    """The blocks of the rows from `i0` on that are taken as they lie."""
    if not t.is_direct:
        return 0
    return min(deep, (x.shape[1] - k0) // t.line) if i0 + t.rows <= x.shape[0] else 0


def pack_left(x: Any, left: Any, i0: Any, k0: Any, among: Any, t: Any) -> None:
    """Rows of the left factor, some blocks; zeros beyond the end of k."""
    begin, deep = among
    if t.left == "rows":
        whole = min(deep, (x.shape[1] - k0) // t.line)
        for r in range(t.rows):
            row = x[min(i0 + r, x.shape[0] - 1)]
            for k in range(begin, whole):
                v = cp.load(row, k0 + k * t.line, line=t.line, fill=None)
                cp.store(left[k, r], 0, as_packed(v, t), whole=True)
            if whole < deep:
                v = cp.load(row, k0 + whole * t.line, line=t.line)
                cp.store(left[whole, r], 0, as_packed(v, t), whole=True)
    else:
        for k in range(begin, deep):
            for r in range(0, t.rows, SIDE):
                pack_block(x, left[k], i0 + r, k0 + k * t.line, r, t)


def pack_block(x: Any, block: Any, i: Any, k: Any, r: Any, t: Any) -> None:
    """16 rows of a block, of a left factor whose columns are dense: words are turned."""
    words = tuple(word_of(x, i, k + p * t.word, t) for p in range(SIDE))
    found = transposed(words)
    for lane in cp.unroll(range(SIDE)):
        cp.store(block[r + lane], 0, cp.bitcast(found[lane], block.dtype), whole=True)


def word_of(x: Any, i: Any, k: Any, t: Any) -> Any:
    """What 16 rows have in one word of k."""
    rows = tuple(as_packed(row_or_zero(x, k + e, i, SIDE, t), t) for e in range(t.word))
    return cp.bitcast(interleaved(rows, 1), cp.u32)


def as_packed(v: Any, t: Any) -> Any:
    """Bytes of the left factor as dot products take them best: unsigned."""
    return cp.bitcast(v, cp.u8) ^ 128 if t.moved else v


def row_or_zero(x: Any, k: Any, j: Any, line: Any, t: Any) -> Any:
    """Elements from `j` on of a row; zeros where there is no such row."""
    last = x.shape[0] - 1
    v = cp.load(x[min(k, last)], j, line=line)
    return cp.where(k <= last, v, cp.Line[t.factors, line](0))


def pack_right(y: Any, right: Any, j0: Any, k0: Any, deep: Any, tiles: Any, t: Any) -> None:
    """Columns of the right factor, block by block, with elements of a word side by side."""
    for k in range(deep):
        first = k0 + k * t.line
        if t.right == "rows":
            for p in range(SIDE):
                for tile in range(tiles):
                    pack_word(
                        y, right[tile], k * PANEL + p, j0 + tile * PANEL, first + p * t.word, t
                    )
        else:
            for tile in range(tiles):
                for c in range(2):
                    pack_columns(
                        y,
                        right[tile, k * PANEL + c * SIDE :],
                        j0 + tile * PANEL + c * SIDE,
                        first,
                        t,
                    )


def pack_word(y: Any, panel: Any, p: Any, j: Any, k: Any, t: Any) -> None:
    """One row of two blocks, from a right factor whose rows are dense."""
    if k + t.word <= y.shape[0] and j + PANEL <= y.shape[1]:
        rows = tuple(cp.load(y[k + e], j, line=PANEL, fill=None) for e in range(t.word))
        put_word(panel, p, interleaved(rows, 1), t)
    else:
        rows = tuple(row_or_zero(y, k + e, j, PANEL, t) for e in range(t.word))
        put_word(panel, p, interleaved(rows, 1), t)


def put_word(panel: Any, p: Any, both: Any, t: Any) -> None:
    """Store one row of two blocks."""
    cp.store(panel[p], 0, both[: t.line], whole=True)
    cp.store(panel[p + SIDE], 0, both[t.line :], whole=True)


def pack_columns(y: Any, block: Any, j0: Any, k: Any, t: Any) -> None:
    """A block of a right factor whose columns are dense; the last one stands for missing."""
    last = y.shape[0] - 1
    lines = tuple(cp.load(y[min(j0 + c, last)], k, line=t.line) for c in range(SIDE))
    found = words_transposed(lines, SIDE, t.word)
    for p in cp.unroll(range(SIDE)):
        cp.store(block[p], 0, found[p], whole=True)


def interleaved(lines: Any, size: Any) -> Any:
    """`size` lanes of each line in turn, then the next ones of each."""
    if len(lines) == 1:
        return lines[0]
    pairs = tuple(zipped(lines[2 * k], lines[2 * k + 1], size) for k in range(len(lines) // 2))
    return interleaved(pairs, 2 * size)


def zipped(one: Any, two: Any, size: Any) -> Any:
    """`size` lanes of one line, as many of the other, and so on."""
    width = one.line_size
    lanes = tuple(
        g * size + s + which * width
        for g in range(width // size)
        for which in range(2)
        for s in range(size)
    )
    return cp.concat(one, two)[lanes]


def words_transposed(lines: Any, rounds: Any, word: Any) -> Any:
    """The columns of a square of words of `word` lanes: each round interleaves neighbours."""
    if rounds == 1:
        return lines
    half, width = len(lines) // 2, lines[0].line_size
    even = tuple(2 * k * word + e for k in range(width // word) for e in range(word))
    odd = tuple(lane + word for lane in even)
    pairs = tuple(cp.concat(lines[2 * k], lines[2 * k + 1]) for k in range(half))
    return words_transposed(
        tuple(p[even] for p in pairs) + tuple(p[odd] for p in pairs), rounds // 2, word
    )


def multiply_panels(
    x: Any,
    left: Any,
    right: Any,
    spilled: Any,
    result: Any,
    biases: Any,
    extras: Any,
    i0: Any,
    j0: Any,
    among: Any,
    part: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Add the products of two panels to 32 by 32 elements of the result; `among`: the blocks of k
    that are taken as they lie, and all."""
    if t.has_unit:
        multiply_by_unit(x, left, right, spilled, i0, part[0], among, t)
    else:
        multiply_by_dots(left, right, spilled, among[1], t)
    put_panel(spilled, result, biases, extras, i0, j0, part, epilogue, t)


def put_panel(
    spilled: Any,
    result: Any,
    biases: Any,
    extras: Any,
    i0: Any,
    j0: Any,
    part: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Add the sums of a panel to those of the steps before, and store them."""
    sums = result[1]
    for r in range(min(t.rows, sums.shape[0] - i0)):
        lines = tuple(cp.load(spilled[r], c * SIDE, line=SIDE, fill=None) for c in range(2))
        for c in cp.unroll(range(2)):
            j = j0 + c * SIDE
            if j + SIDE <= sums.shape[1]:
                put_line(lines[c], result, biases, extras, i0 + r, j, part, epilogue, True, t)
            else:
                put_line(lines[c], result, biases, extras, i0 + r, j, part, epilogue, False, t)


def multiply_by_unit(
    x: Any, left: Any, right: Any, spilled: Any, i0: Any, k0: Any, among: Any, t: Any
) -> None:
    """The products of two panels, in the tiles of a matrix unit."""
    for tile in cp.unroll(range(4)):
        amx.zero(tile)
    if t.is_direct:
        for k in range(among[0]):
            for half in cp.unroll(range(2)):
                amx.load(4 + half, x, (i0 + half * SIDE, k0 + k * t.line))
            add_block(right, k, t)
    for k in range(among[0], among[1]):
        for half in cp.unroll(range(2)):
            amx.load(4 + half, left[k], (half * SIDE, 0))
        add_block(right, k, t)
    for tile in cp.unroll(range(4)):
        amx.store(tile, spilled, (tile // 2 * SIDE, tile % 2 * SIDE))


def add_block(right: Any, k: Any, t: Any) -> None:
    """The products of two tiles of rows and a block of the right factor."""
    for half in cp.unroll(range(2)):
        amx.load(6 + half, right, (k * PANEL + half * SIDE, 0))
    for tile in cp.unroll(range(4)):
        amx.multiply(tile, 4 + tile // 2, 6 + tile % 2, t.factors)


def multiply_by_dots(left: Any, right: Any, spilled: Any, deep: Any, t: Any) -> None:
    """The products of two panels, word by word, with sums in registers.

    What a left factor that is 128 higher adds is summed beside them, and taken off.
    """
    found = cp.local((t.rows, 2), cp.Line[t.sums, SIDE], fill=0)
    extra = cp.local(2, cp.Line[t.sums, SIDE], fill=0)
    same = tuple(e for _ in range(SIDE) for e in range(t.word))
    for k in range(deep):
        for p in range(SIDE):
            lines = tuple(
                cp.load(right[k * PANEL + c * SIDE + p], 0, line=t.line, fill=None)
                for c in range(2)
            )
            if t.moved:
                for c in cp.unroll(range(2)):
                    extra[c] = cp.dot(cp.Line[cp.u8, t.line](128), lines[c], extra[c])
            for r in cp.unroll(range(t.rows)):
                word = cp.load(left[k, r], p * t.word, line=t.word, fill=None)[same]
                for c in cp.unroll(range(2)):
                    found[r, c] = cp.dot(word, lines[c], found[r, c])
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(2)):
            cp.store(spilled[r], c * SIDE, found[r, c] - extra[c], whole=True)


def put_line(
    v: Any,
    result: Any,
    biases: Any,
    extras: Any,
    i: Any,
    j: Any,
    part: Any,
    epilogue: Any,
    whole: Any,
    t: Any,
) -> None:
    """Add a line to what was there, and store what bias and epilogue make of it."""
    out, sums, where = result
    k0, is_last = part
    row = sums[i]
    if k0 > 0:
        v = v + cp.Line[t.sums, SIDE](cp.load(row, j, line=SIDE, fill=None if whole else 0))
    if t.is_finished and is_last:
        v = finished(v, (*where, i, j), biases, extras, epilogue)
        cp.store(out[(*where, i)], j, v, whole=whole)
    else:
        cp.store(row, j, v, whole=whole)
