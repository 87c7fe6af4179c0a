"""Products by the tensor cores of planes (`cp.cuda.mma`), from sm_80 on.

Tiles of both factors come to shared memory some steps ahead, by asynchronous copies. Chunks of 16
bytes are exchanged within rows there (an exclusive or with the row's number), so that `ldmatrix`,
which reads eight rows at a time, finds them in different banks; after CUTLASS. Sums stay in
registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType, f64, u32
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.kernels.matmul.steps import banded, multiply_steps
from cubepy.record import dataclass

HIGH, WIDE = 16, 8
"""Rows and columns of one product of the tensor cores; 32 bytes along k, 64 of f64."""
CHUNK = 16
"""Bytes of a row of a matrix that `ldmatrix` loads."""
BANK_ROWS = 8
"""Chunks of shared memory that are read at once without a conflict."""


@dataclass(frozen=True, slots=True)
class Fragments:
    """How a product is divided.

    A cube is `down` by `across` planes, each of which makes `rows` by `columns` blocks of 16 by 8
    results in steps of `depth` elements of k, with `stages` of them in shared memory. `left`,
    `right`: the axis along which the factors are dense; `left_copy`, `right_copy`: elements of it
    that are copied at once. `factors`: the type in shared memory; `elements`: as what the tensor
    cores take it. `is_async`: copies are asynchronous. `is_square`: products of f64 have 8 rows.
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
    elements: Any
    is_async: bool = True
    is_square: bool = False

    @property
    def height(self) -> int:
        """Rows of a cube."""
        return self.down * self.rows * HIGH

    @property
    def width(self) -> int:
        """Columns of a cube."""
        return self.across * self.columns * WIDE

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 32 * self.down * self.across

    @property
    def chunk(self) -> int:
        """Elements of 16 bytes."""
        return CHUNK // self.factors.itemsize

    @property
    def part(self) -> int:
        """Elements of k of a part of a step: what one product of the tensor cores takes."""
        return (4 if self.factors is f64 else 2) * self.chunk

    @property
    def parts(self) -> int:
        """Parts of a step."""
        return self.depth // self.part

    @property
    def held(self) -> DType:
        """What units hold of the factors: four of these for a block of rows, or two of columns."""
        return f64 if self.factors is f64 else u32

    @property
    def unrolled(self) -> int:
        """Parts that are written out."""
        return self.parts

    @property
    def left_tile(self) -> SwizzledTile:
        """The tile of the left factor."""
        return SwizzledTile(
            *(self.height, self.depth, self.left == "rows"),
            *(self.left_copy, self.factors.itemsize, self.is_async),
        )

    @property
    def right_tile(self) -> SwizzledTile:
        """The tile of the right factor."""
        return SwizzledTile(
            *(self.width, self.depth, self.right == "columns"),
            *(self.right_copy, self.factors.itemsize, self.is_async),
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        return self.stages * (self.height + self.width) * self.depth * self.factors.itemsize


@dataclass(frozen=True, slots=True)
class SwizzledTile:
    """The tile of a factor in shared memory: `extent` rows or columns by `depth` elements of k.

    `along_k`: the factor is dense along k. Only matrices of 2 bytes can be transposed on the way to
    registers, and numbers of 8 bytes read one by one; tiles of others are always dense along k, so
    factors that are not are turned on the way to memory. `copy` elements of `itemsize` bytes are
    copied at once.
    """

    extent: int
    depth: int
    along_k: bool
    copy: int
    itemsize: int
    is_async: bool

    @property
    def lanes(self) -> int:
        """Units that copy from one row of the factor."""
        return min(self.seen[1] // self.copy, BANK_ROWS if self.along_k else 32)

    @property
    def turns(self) -> bool:
        """Whether the tile is the transposed one of the factor's."""
        return not self.along_k and self.itemsize not in (2, 8)

    @property
    def has_k_lines(self) -> bool:
        """Whether rows of the tile run along k."""
        return self.along_k or self.turns

    @property
    def seen(self) -> tuple[int, int]:
        """Extents as the factor lies in global memory."""
        return (self.extent, self.depth) if self.along_k else (self.depth, self.extent)

    @property
    def shape(self) -> tuple[int, int]:
        """Extents in shared memory."""
        return (self.extent, self.depth) if self.has_k_lines else (self.depth, self.extent)

    def stored_at(self, r: Any, c: Any) -> Any:
        """Where an element lies in shared memory."""
        i, j = (c, r) if self.turns else (r, c)
        chunk = CHUNK // self.itemsize
        return i, (j // chunk ^ self.mask(i)) * chunk + j % chunk

    def mask(self, i: Any) -> Any:
        """What the numbers of chunks of a row are combined with. Numbers of 8 bytes are read four
        from each of four rows at a time, matrices one chunk from each of eight."""
        if self.itemsize == 8:
            return i % 4 * 2
        chunks = min(self.shape[1] * self.itemsize // CHUNK, BANK_ROWS)
        return i // (BANK_ROWS // chunks) % chunks


@cp.cube
def multiply_fragments(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Fragments],
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
    found = cp.local((t.rows, t.columns), cp.Line[t.sums, 4], fill=0)
    plane = cp.UNIT_POS // 32
    at = plane // t.across * (t.rows * HIGH), plane % t.across * (t.columns * WIDE)
    rows = cp.local((2, t.rows), cp.Line[t.held, 4])
    columns = cp.local((2, t.columns // 2), cp.Line[t.held, 4])
    held = found, rows, columns, at
    multiply_steps(x, y, origin, held, load_part, multiply_part, t)
    finish(found, z, origin, at, where, biases, extras, epilogue, t)


def load_part(left: Any, right: Any, part: Any, held: Any, buffer: Any, t: Any) -> None:
    """Bring the fragments of a part to registers."""
    rows, columns, at = held[1], held[2], held[3]
    for r in cp.unroll(range(t.rows)):
        rows[buffer, r] = rows_of(left, at[0] + r * HIGH, part * t.part, t)
    for c in cp.unroll(range(t.columns // 2)):
        columns[buffer, c] = columns_of(right, at[1] + c * 2 * WIDE, part * t.part, t)


def rows_of(memory: Any, first: Any, k: Any, t: Any) -> Any:
    """The fragment of 16 rows of the left factor."""
    tile = t.left_tile
    if t.factors is f64:
        return numbers(memory, first, k, tuple((e % 2 * 8, e // 2 * 4) for e in range(4)), tile)
    return matrices(memory, first, k, left_lanes(tile), tile, t)


def columns_of(memory: Any, first: Any, k: Any, t: Any) -> Any:
    """The fragments of two times 8 columns of the right factor."""
    tile = t.right_tile
    if t.factors is f64:
        return numbers(memory, first, k, tuple((e // 2 * 8, e % 2 * 4) for e in range(4)), tile)
    return matrices(memory, first, k, right_lanes(tile), tile, t)


def multiply_part(held: Any, buffer: Any, t: Any) -> None:
    """Add their products to the sums."""
    found, rows, columns = held[0], held[1], held[2]
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            words = columns[buffer, c // 2][c % 2 * 2 : c % 2 * 2 + 2]
            found[r, c] = product(rows[buffer, r], words, found[r, c], t)


def product(left: Any, right: Any, sums: Any, t: Any) -> Any:
    """sums + left @ right; of f64 in parts of 8x8 before Hopper."""
    if not t.is_square:
        return cp.cuda.mma(left, right, sums, t.elements)
    upper, lower = sums[:2], sums[2:]
    for k in cp.unroll(range(2)):
        upper = cp.cuda.mma(left[2 * k], right[k], upper, t.elements)
        lower = cp.cuda.mma(left[2 * k + 1], right[k], lower, t.elements)
    return cp.concat(upper, lower)


def left_lanes(tile: Any) -> Any:
    """The row and the chunk, within two by two matrices, whose address a lane gives: matrices of
    the left factor come down first, then along k."""
    lane = cp.UNIT_POS % 32
    if tile.has_k_lines:
        return lane % 16, lane // 16
    return lane // 16 * 8 + lane % 8, lane // 8 % 2


def right_lanes(tile: Any) -> Any:
    """The same for the right factor, whose matrices come along k first, then across."""
    lane = cp.UNIT_POS % 32
    if tile.has_k_lines:
        return lane // 16 * 8 + lane % 8, lane // 8 % 2
    return lane % 16, lane // 16


def matrices(memory: Any, first: Any, k: Any, lanes: Any, tile: Any, t: Any) -> Any:
    """Two by two matrices: 16 rows or columns from `first` on, and two chunks along k."""
    row, chunk = lanes
    mask = chunk ^ tile.mask(row)
    if tile.has_k_lines:
        place = first + row, (mask ^ k // t.chunk) * t.chunk
        return cp.cuda.ldmatrix(memory, place, 4)
    place = k + row, (mask ^ first // t.chunk) * t.chunk
    return cp.cuda.ldmatrix(memory, place, 4, transposed=True)


def numbers(memory: Any, first: Any, k: Any, steps: Any, tile: Any) -> Any:
    """Four numbers of f64: a unit's own row or column and element of k, and `steps` from there."""
    lane = cp.UNIT_POS % 32
    held = cp.local(len(steps), memory.dtype)
    for e in cp.unroll(range(len(steps))):
        i, j = first + lane // 4 + steps[e][0], k + lane % 4 + steps[e][1]
        held[e] = memory[tile.stored_at(i, j) if tile.along_k else tile.stored_at(j, i)]
    return cp.load(held, 0, line=4)


def finish(
    found: Any,
    z: Any,
    origin: Any,
    at: Any,
    where: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Store what bias and epilogue make of the sums; a loop goes through them, once they are in
    memory, unless all of the tile exists and is stored as it is."""
    lane = cp.UNIT_POS % 32
    first = origin[0] + at[0] + lane // 4, origin[1] + at[1] + lane % 4 * 2
    plain = len(biases) == 0 and epilogue is None
    if plain and origin[0] + t.height <= z.shape[0] and origin[1] + t.width <= z.shape[1]:
        for r in cp.unroll(range(t.rows)):
            for half in cp.unroll(range(2)):
                into = z[first[0] + r * HIGH + half * 8]
                for c in cp.unroll(range(t.columns)):
                    v = found[r, c][2 * half : 2 * half + 2]
                    cp.store(into, first[1] + c * WIDE, z.dtype(v), whole=True)
    else:
        kept = cp.local((t.rows, 2, t.columns), cp.Line[t.sums, 2])
        for r in cp.unroll(range(t.rows)):
            for c in cp.unroll(range(t.columns)):
                for half in cp.unroll(range(2)):
                    kept[r, half, c] = found[r, c][2 * half : 2 * half + 2]
        for r in range(t.rows * 2):
            i = first[0] + r * 8
            for c in range(t.columns):
                j = first[1] + c * WIDE
                if i < z.shape[0] and j < z.shape[1]:
                    v = finished(kept[r // 2, r % 2, c], (*where, i, j), biases, extras, epilogue)
                    cp.store(z[i], j, v)
