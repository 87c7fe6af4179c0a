"""Products of f32 on matrix units that take bf16: each factor is the sum of three parts.

After Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for
higher-precision computations" (2019). Rounding to bf16 twice, each time of what was left, divides a
number of f32 into three of bf16 without a rest. Six of the nine products of parts are made; the
other three are together at most 2**-23 of the whole. The unit adds 32 products before it adds them
to a sum, which rounds less often than multiply-adds do: from 32 elements of k on the bound of their
errors holds, and errors are smaller.

Numbers near the ends of the range have parts that are infinite or that the unit takes for 0. What
is packed is looked at, and where the product of two blocks could suffer, it is made by
multiply-adds, from the factors as they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType, f32
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.blocks import transposed
from cubepy.kernels.matmul.finish import chosen
from cubepy.kernels.matmul.units import PANEL, SIDE, put_panel, row_or_zero
from cubepy.lang import amx
from cubepy.record import dataclass

PARTS = 3
"""Parts of a number."""
ORDER = ((0, 0), (0, 2), (0, 1), (1, 1), (1, 0), (2, 0))
"""Parts of the left and of the right factor that are multiplied, so that few tiles are read."""
BLOCK_ROWS = PARTS * PANEL
"""Rows of packed memory for 32 elements of k: 32 for each part."""
ROUND, UPPER = 0x8000, 0xFFFF0000
"""Half a unit of the last place of bf16, and its bits, in a word of f32."""
LEAST, LEAST_PRODUCT = 24, 160
"""The exponent, as f32 stores it, of a number whose parts are all normal, and the sum of those of
two numbers whose products of parts are: 160 - 254 is 32 above the exponent of the least normal."""
LARGEST, LARGEST_PRODUCT = 253, 370
"""The same of numbers that stay finite when rounded, and of two whose products can be added."""
STRIP = 8
"""Rows that are multiplied at once without the unit."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a product is divided.

    `depth`: elements of a step along k, a multiple of 32. `width`: the most columns of a cube, a
    multiple of 32. `left`, `right`: the axis along which the factors are dense. `is_finished`: sums
    are converted, or go through a bias or an epilogue. `cut`: cubes along the rows and along the
    columns of the result; empty where the rule cuts them.
    """

    depth: int
    width: int
    left: str
    right: str
    is_finished: bool = False
    cut: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return PANEL

    @property
    def step(self) -> int:
        """Columns of a tile."""
        return PANEL

    @property
    def line(self) -> int:
        """Elements of k of a block."""
        return PANEL

    @property
    def factors(self) -> DType:
        """The type of the elements of the factors."""
        return f32

    @property
    def sums(self) -> DType:
        """The type of sums."""
        return f32


@cp.cube
def multiply_split(
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
    t: cp.Comptime[Split],
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
    """Make the rows and columns of the result that a cube has, as in `units`."""
    first, end, j0, width = place
    inner = x.shape[1] if t.left == "rows" else x.shape[0]
    tiles = (width + PANEL - 1) // PANEL
    blocks = t.depth // PANEL
    left = cp.shared((blocks * BLOCK_ROWS, SIDE), cp.u32)
    # One row more than is used: panels share no set of a cache
    right = cp.shared((t.width // PANEL, blocks * BLOCK_ROWS + 1, SIDE), cp.u32)
    spilled = cp.shared((PANEL, PANEL), cp.f32)
    near = cp.shared((PANEL, PANEL), cp.f32)
    for k0 in range(0, max(inner, 1), depth):
        count = min(depth, inner - k0)
        deep = (count + PANEL - 1) // PANEL
        part = k0, k0 + depth >= inner
        ranges = pack_right(y, right, j0, k0, deep, tiles, t)
        for i0 in range(first, end, PANEL):
            fits = are_in_range(pack_left(x, left, i0, k0, deep, t), ranges)
            for tile in range(tiles):
                j = j0 + tile * PANEL
                if fits:
                    multiply_parts(left, right[tile], spilled, deep)
                else:
                    multiply_numbers(x, y, near, spilled, i0, j, k0, count, t)
                put_panel(spilled, result, biases, extras, i0, j, part, epilogue, t)


# The parts of numbers, and their range


def split(v: Any) -> Any:
    """Words whose upper halves are the parts of a line, as bf16."""
    first = cp.bitcast(v, cp.u32) + ROUND
    rest = v - cp.bitcast(first & UPPER, cp.f32)
    second = cp.bitcast(rest, cp.u32) + ROUND
    return first, second, cp.bitcast(rest - cp.bitcast(second & UPPER, cp.f32), cp.u32)


def new_range() -> Any:
    """The least and the largest numbers that were seen, see `note`: none yet."""
    seen = cp.local(2, cp.Line[cp.u32, SIDE])
    seen[0], seen[1] = cp.Line[cp.u32, SIDE](0xFFFFFFFF), cp.Line[cp.u32, SIDE](0)
    return seen


def note(seen: Any, v: Any) -> None:
    """Take a line into a range: words of absolute values, those of the least ones lowered by 1, so
    that 0 is above all."""
    size = cp.bitcast(v, cp.u32) & 0x7FFFFFFF
    seen[0], seen[1] = min(seen[0], size - 1), max(seen[1], size)


def exponents(seen: Any) -> Any:
    """The exponents of the least number that is not 0, if there is one, and of the largest."""
    return seen[0].min() >> 23, seen[1].max() >> 23


def are_in_range(one: Any, two: Any) -> Any:
    """Whether the unit makes products of numbers of two ranges well."""
    are_large = min(one[0], two[0]) >= LEAST and one[0] + two[0] >= LEAST_PRODUCT
    are_small = max(one[1], two[1]) <= LARGEST and one[1] + two[1] <= LARGEST_PRODUCT
    return are_large and are_small


# Packing: a word holds an element of k and the one 16 behind it, so that no lanes are moved


def put_words(low: Any, high: Any, panel: Any, row: Any, seen: Any, apart: Any = PANEL) -> None:
    """Store the parts of two lines, each as a row of words, so many rows apart."""
    note(seen, low)
    note(seen, high)
    one, two = split(low), split(high)
    for s in cp.unroll(range(PARTS)):
        word = one[s] >> 16 | two[s] & UPPER
        cp.store(panel[row + s * apart], 0, word, whole=True)


def pack_left(x: Any, left: Any, i0: Any, k0: Any, deep: Any, t: Any) -> Any:
    """Parts of rows of the left factor, block by block, zeros beyond the end of k; their range."""
    seen = new_range()
    if t.left == "rows":
        whole = min(deep, (x.shape[1] - k0) // PANEL)
        for r in range(PANEL):
            row = x[min(i0 + r, x.shape[0] - 1)]
            for k in range(whole):
                v = cp.load(row, k0 + k * PANEL, line=PANEL, fill=None)
                put_words(v[:SIDE], v[SIDE:], left, k * BLOCK_ROWS + r, seen)
            if whole < deep:
                v = cp.load(row, k0 + whole * PANEL, line=PANEL)
                put_words(v[:SIDE], v[SIDE:], left, whole * BLOCK_ROWS + r, seen)
    else:
        for k in range(deep):
            for r in range(0, PANEL, SIDE):
                low, high = (square(x, k0 + k * PANEL + e, i0 + r, t) for e in (0, SIDE))
                for lane in cp.unroll(range(SIDE)):
                    put_words(low[lane], high[lane], left, k * BLOCK_ROWS + r + lane, seen)
    return exponents(seen)


def square(x: Any, k: Any, j: Any, t: Any) -> Any:
    """Columns `j` and on of 16 rows from `k` on, each as a line; zeros where there are no rows."""
    return transposed(tuple(row_or_zero(x, k + lane, j, SIDE, t) for lane in range(SIDE)))


def pack_right(y: Any, right: Any, j0: Any, k0: Any, deep: Any, tiles: Any, t: Any) -> Any:
    """Parts of columns of the right factor, block by block; their range."""
    seen = new_range()
    for k in range(deep):
        first = k0 + k * PANEL
        if t.right == "rows":
            for p in range(SIDE):
                for tile in range(tiles):
                    low, high = pair(y, first + p, j0 + tile * PANEL, t)
                    for c in cp.unroll(range(2)):
                        row = k * BLOCK_ROWS + c * SIDE + p
                        put_words(low[c], high[c], right[tile], row, seen)
        else:
            for tile in range(tiles):
                for c in range(0, PANEL, SIDE):
                    j = j0 + tile * PANEL + c
                    low, high = columns(y, j, first), columns(y, j, first + SIDE)
                    for p in cp.unroll(range(SIDE)):
                        row = k * BLOCK_ROWS + c + p
                        put_words(low[p], high[p], right[tile], row, seen)
    return exponents(seen)


def pair(y: Any, k: Any, j: Any, t: Any) -> Any:
    """Two lines of a row of a right factor whose rows are dense, and two of 16 rows behind."""
    if k + SIDE < y.shape[0] and j + PANEL <= y.shape[1]:
        low, high = (cp.load(y[k + e], j, line=PANEL, fill=None) for e in (0, SIDE))
    else:
        low, high = (row_or_zero(y, k + e, j, PANEL, t) for e in (0, SIDE))
    return (low[:SIDE], low[SIDE:]), (high[:SIDE], high[SIDE:])


def columns(y: Any, j: Any, k: Any) -> Any:
    """Rows `k` and on of 16 columns that are dense; the last column stands for missing ones."""
    last = y.shape[0] - 1
    return transposed(tuple(cp.load(y[min(j + c, last)], k, line=SIDE) for c in range(SIDE)))


# Products


def multiply_parts(left: Any, right: Any, spilled: Any, deep: Any) -> None:
    """The products of two panels, in the tiles of a matrix unit."""
    for tile in cp.unroll(range(4)):
        amx.zero(tile)
    for k in range(deep):
        for turn in cp.unroll(range(len(ORDER))):
            for half in cp.unroll(range(2)):
                row = k * BLOCK_ROWS + half * SIDE
                if turn == 0 or ORDER[turn][0] != ORDER[turn - 1][0]:
                    amx.load(4 + half, left, (row + ORDER[turn][0] * PANEL, 0))
                if turn == 0 or ORDER[turn][1] != ORDER[turn - 1][1]:
                    amx.load(6 + half, right, (row + ORDER[turn][1] * PANEL, 0))
            for tile in cp.unroll(range(4)):
                amx.multiply(tile, 4 + tile // 2, 6 + tile % 2, cp.bf16)
    for tile in cp.unroll(range(4)):
        amx.store(tile, spilled, (tile // 2 * SIDE, tile % 2 * SIDE))


def multiply_numbers(
    x: Any, y: Any, near: Any, spilled: Any, i0: Any, j0: Any, k0: Any, count: Any, t: Any
) -> None:
    """The same products by multiply-adds, with numbers that parts do not stand for."""
    for r in range(PANEL):
        cp.store(spilled[r], 0, cp.Line[cp.f32, PANEL](0), whole=True)
    for k in range(k0, k0 + count, PANEL):
        bring_right(y, near, j0, k, t)
        for r in range(0, PANEL, STRIP):
            multiply_strip(x, near, spilled, i0 + r, r, k, min(PANEL, k0 + count - k), t)


def bring_right(y: Any, near: Any, j0: Any, k: Any, t: Any) -> None:
    """A block of the right factor, as lines of columns; zeros outside."""
    if t.right == "rows":
        for e in range(PANEL):
            cp.store(near[e], 0, row_or_zero(y, k + e, j0, PANEL, t), whole=True)
    else:
        for c in range(0, PANEL, SIDE):
            for e in range(0, PANEL, SIDE):
                found = columns(y, j0 + c, k + e)
                for lane in cp.unroll(range(SIDE)):
                    cp.store(near[e + lane], c, found[lane], whole=True)


def multiply_strip(
    x: Any, near: Any, spilled: Any, i: Any, r: Any, k: Any, count: Any, t: Any
) -> None:
    """Add the products of some rows, `i` and on, to rows `r` and on of the sums."""
    found = cp.local((STRIP, 2), cp.Line[cp.f32, SIDE])
    for s in cp.unroll(range(STRIP)):
        for c in cp.unroll(range(2)):
            found[s, c] = cp.load(spilled[r + s], c * SIDE, line=SIDE, fill=None)
    for e in range(count):
        lines = tuple(cp.load(near[e], c * SIDE, line=SIDE, fill=None) for c in range(2))
        for s in cp.unroll(range(STRIP)):
            v = element(x, i + s, k + e, t)
            for c in cp.unroll(range(2)):
                found[s, c] += v * lines[c]
    for s in cp.unroll(range(STRIP)):
        for c in cp.unroll(range(2)):
            cp.store(spilled[r + s], c * SIDE, found[s, c], whole=True)


def element(x: Any, i: Any, k: Any, t: Any) -> Any:
    """An element of the left factor; the last row stands for missing ones."""
    if t.left == "rows":
        return x[min(i, x.shape[0] - 1), k]
    return x[k, min(i, x.shape[1] - 1)]
