"""Products on GPUs in ordinary arithmetic: both factors pass through shared memory in steps along
k, and each unit keeps a tile of the result in registers.

After Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008), and the tiles of
MAGMA and CUTLASS. What bounds such a kernel is how many instructions a unit issues beside its
products, so tiles are as large as registers allow, and all accesses are lines of 16 bytes. Copies
run some steps ahead: by themselves where the hardware has asynchronous ones, else in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.kernels.matmul.steps import banded, multiply_steps
from cubepy.record import dataclass

LANES_DOWN, LANES_ACROSS = 4, 8
"""How units that follow each other lie in the result."""
LINE_BYTES, BANK_BYTES = 16, 128
"""Bytes of a line, and of a row of all banks of shared memory."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a product is divided.

    A cube is `down` by `across` groups of 32 units, each of which makes `rows` by `columns` results
    in steps of `depth` elements of k, with `stages` of them in shared memory. `left`, `right`: the
    axis along which the factors are dense; `left_copy`, `right_copy`: elements of it that are
    copied at once; `is_async`: by asynchronous copies. `unrolled` elements of k are written out in
    the kernel's loop. At most `lanes` units copy from one row of a factor that is dense along k.
    """

    down: int
    across: int
    rows: int
    columns: int
    depth: int
    stages: int
    left: str
    right: str
    left_copy: int
    right_copy: int
    factors: DType
    sums: DType
    is_async: bool = False
    unrolled: int = 2
    lanes: int = 8

    @property
    def line(self) -> int:
        """Elements of a line."""
        return LINE_BYTES // self.factors.itemsize

    @property
    def row_line(self) -> int:
        """Neighbouring rows of a unit."""
        return min(self.line, self.rows)

    @property
    def height(self) -> int:
        """Rows of a cube."""
        return self.down * LANES_DOWN * self.rows

    @property
    def width(self) -> int:
        """Columns of a cube."""
        return self.across * LANES_ACROSS * self.columns

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.down * self.across * LANES_DOWN * LANES_ACROSS

    @property
    def parts(self) -> int:
        """Parts of a step, each one element of k."""
        return self.depth

    @property
    def left_tile(self) -> FactorTile:
        """The tile of the left factor."""
        return FactorTile(
            *(self.height, self.depth, self.left == "rows", self.left_copy),
            *(self.factors.itemsize, self.lanes, self.is_async),
        )

    @property
    def right_tile(self) -> FactorTile:
        """The tile of the right factor."""
        return FactorTile(
            *(self.width, self.depth, self.right == "columns", self.right_copy),
            *(self.factors.itemsize, self.lanes, self.is_async),
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        elements = sum(prod(tile.shape) for tile in (self.left_tile, self.right_tile))
        return self.stages * elements * self.factors.itemsize


@dataclass(frozen=True, slots=True)
class FactorTile:
    """The tile of a factor in shared memory: `depth` rows of `extent` elements.

    `along_k`: the factor is dense along k. `copy` elements of `itemsize` bytes are copied at once.
    """

    extent: int
    depth: int
    along_k: bool
    copy: int
    itemsize: int
    most: int
    is_async: bool

    @property
    def lanes(self) -> int:
        """Units that copy from one row of the factor."""
        return min(self.seen[1] // self.copy, self.most if self.along_k else 64)

    @property
    def turns(self) -> bool:
        """Whether the tile is the transposed one of the factor's."""
        return self.along_k

    @property
    def seen(self) -> tuple[int, int]:
        """Extents as the factor lies in global memory."""
        return (self.extent, self.depth) if self.along_k else (self.depth, self.extent)

    @property
    def shape(self) -> tuple[int, int]:
        """Extents in shared memory; rows are longer where their columns are stored at a time, so
        that units beside each other use different banks."""
        if not self.along_k:
            return self.depth, self.extent
        gap = BANK_BYTES // self.lanes if self.copy == 1 else LINE_BYTES
        return self.depth, self.extent + gap // self.itemsize

    def stored_at(self, r: Any, c: Any) -> Any:
        """Where an element lies in shared memory."""
        return (c, r) if self.along_k else (r, c)


@cp.cube
def multiply_tiles(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Tiles],
) -> None:
    """A cube for each tile of each product.

    `a` is [..., m, k], or [..., k, m] where it is dense along columns; `b` is [..., k, n] or
    [..., n, k].
    """
    m, n = out.shape[out.rank - 2], out.shape[out.rank - 1]
    down, across = (m + t.height - 1) // t.height, (n + t.width - 1) // t.width
    where = unravelled(cp.CUBE_POS // (down * across), out.shape[: out.rank - 2])
    row, column = banded(cp.CUBE_POS % (down * across), down, across)
    x, y, z = chosen(a, where), chosen(b, where), chosen(out, where)
    origin = row * t.height, column * t.width
    make_tile(x, y, z, origin, where, biases, extras, epilogue, t)


def make_tile(
    x: Any,
    y: Any,
    z: Any,
    origin: Any,
    where: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Make the tile of a product that begins at `origin`; `where`: the indices of the product."""
    groups, lines = t.rows // t.row_line, t.columns // t.line
    found = cp.local((t.rows, lines), cp.Line[t.sums, t.line], fill=0)
    rows = cp.local((2, groups), cp.Line[t.factors, t.row_line])
    columns = cp.local((2, lines), cp.Line[t.factors, t.line])
    group, lane = cp.UNIT_POS // 32, cp.UNIT_POS % 32
    i = group // t.across * (LANES_DOWN * t.rows) + lane // LANES_ACROSS * t.row_line
    j = group % t.across * (LANES_ACROSS * t.columns) + lane % LANES_ACROSS * t.line
    held = found, rows, columns, (i, j)
    multiply_steps(x, y, origin, held, load_part, multiply_part, t)
    finish(found, z, origin, (origin[0] + i, origin[1] + j), where, biases, extras, epilogue, t)


# Products in registers


def load_part(left: Any, right: Any, part: Any, held: Any, buffer: Any, t: Any) -> None:
    """Bring the factors for one element of k to registers."""
    rows, columns, at = held[1], held[2], held[3]
    for g in cp.unroll(range(t.rows // t.row_line)):
        first = at[0] + g * (LANES_DOWN * t.row_line)
        rows[buffer, g] = cp.load(left[part], first, line=t.row_line, fill=None)
    for g in cp.unroll(range(t.columns // t.line)):
        first = at[1] + g * (LANES_ACROSS * t.line)
        columns[buffer, g] = cp.load(right[part], first, line=t.line, fill=None)


def multiply_part(held: Any, buffer: Any, t: Any) -> None:
    """Add their products to the sums, in an order in which a product has its row's factor in
    common with the one before, so that operands come from few banks of registers."""
    found, rows, columns = held[0], held[1], held[2]
    last = t.columns // t.line - 1
    for r in cp.unroll(range(t.rows)):
        factor = rows[buffer, r // t.row_line][r % t.row_line]
        for e in cp.unroll(range(last + 1)):
            c = e if r % 2 == 0 else last - e
            found[r, c] = found[r, c] + columns[buffer, c] * factor


# Results


def finish(
    found: Any,
    z: Any,
    origin: Any,
    first: Any,
    where: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Store what bias and epilogue make of the sums; a loop goes through them, once they are in
    memory, unless all of the tile exists and is stored as it is.

    They are multiplied by a 1 that compilers do not see: else sums would be kept in the registers
    that a line is stored from, where each is in the same bank as its column's factor, so that all
    products took a cycle longer.
    """
    kept = cp.local((t.rows, t.columns), t.sums)
    one = t.sums(min(z.shape[0], 1))
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            kept[r, c] = found[r, c // t.line][c % t.line] * one
    plain = len(biases) == 0 and epilogue is None
    if plain and origin[0] + t.height <= z.shape[0] and origin[1] + t.width <= z.shape[1]:
        for r in cp.unroll(range(t.rows)):
            for c in cp.unroll(range(t.columns // t.line)):
                i, j = result_at(first, r, c, t)
                v = cp.load(kept[r], c * t.line, line=t.line, fill=None)
                cp.store(z[i], j, z.dtype(v), whole=True)
    else:
        for r in range(t.rows):
            for c in range(t.columns // t.line):
                i, j = result_at(first, r, c, t)
                if i < z.shape[0] and j < z.shape[1]:
                    v = cp.load(kept[r], c * t.line, line=t.line, fill=None)
                    cp.store(z[i], j, finished(v, (*where, i, j), biases, extras, epilogue))


def result_at(first: Any, r: Any, c: Any, t: Any) -> Any:
    """The row of a result and the first column of a line of them."""
    block = t.row_line * LANES_DOWN
    row = first[0] + r // t.row_line * block + r % t.row_line
    return row, first[1] + c * (t.line * LANES_ACROSS)
