"""`cp.cmma`: products of small matrices that a plane computes together, as fragments.

A fragment is a tile that a plane holds, one part in each unit. Every function here is called by all
units of the plane, with equal arguments.

| use | shape | types |
|---|---|---|
| "a" | m, k | f8e4m3, f8e5m2, f16, bf16, f32, f64; i8, u8, i16, u16, i32 |
| "b" | k, n | the same type |
| "accumulator" | m, n | f32; f64 for f64, i32 for integers |

Any extents will do; multiples of 16 fill matrix units best. Tensor cores (sm_80 and newer) take
factors of 8 and 16 bits, and f64 (sm_90 and newer), SIMD-group matrices of Metal those of floats
of up to 32; planes then have 32 units, and cubes whole planes. Processors with AMX take bf16, i8
and u8. Elsewhere the units of a plane share the work in ordinary arithmetic.

>>> def product(a, b, c):  # in a kernel with CUBE_DIM == PLANE_DIM
...     i, j = cp.CUBE_POS_Y * 16, cp.CUBE_POS_X * 16
...     left = cp.cmma.fragment("a", 16, 16, cp.f16)
...     right = cp.cmma.fragment("b", 16, 16, cp.f16)
...     total = cp.cmma.fragment("accumulator", 16, 16, cp.f32, fill=0)
...     for k in range(0, a.shape[1], 16):
...         cp.cmma.load(left, a, (i, k))
...         cp.cmma.load(right, b, (k, j))
...         cp.cmma.mma(total, left, right)
...     cp.cmma.store(c, (i, j), total)
"""

from __future__ import annotations

from typing import Any

from cubepy.ir.types import u8, u16, u32
from cubepy.lang import amx, cuda, metal
from cubepy.lang import builtins as cp
from cubepy.lang.annotations import Comptime
from cubepy.lang.builtins import CUBE_DIM, PLANE_COUNT, PLANE_DIM, PLANE_POS, UNIT_POS_PLANE
from cubepy.lang.pipelines import swizzled
from cubepy.lang.tiles import SUMS, Layout, choose
from cubepy.record import dataclass

_BITS = {8: u8, 16: u16}


@dataclass(frozen=True)
class Fragment:
    """A tile of a plane; `held` is the part of the unit, or the shared memory of all planes."""

    use: str
    rows: int
    columns: int
    dtype: Any
    layout: Layout
    held: Any


def fragment(
    use: Comptime, rows: Comptime, columns: Comptime, dtype: Comptime, fill: Any = None
) -> Fragment:
    """A tile of `rows` x `columns` elements, used as "a", "b" or "accumulator".

    Uninitialised unless filled. What cannot be is E113 with the reason.
    """
    layout = choose(use, rows, columns, dtype, cp.target(), PLANE_DIM, CUBE_DIM)
    if layout.is_shared:
        held = cp.shared((PLANE_COUNT, rows, columns), dtype)
    else:
        held = cp.local(_blocks(layout, rows, columns) * layout.count, _held_type(layout))
    tile = Fragment(use, rows, columns, layout.dtype, layout, held)
    if fill is not None:
        _set_all(tile, fill)
    return tile


def fill(tile: Fragment, value: Any) -> None:
    """tile[r, c] = value, everywhere. Converts."""
    _set_all(tile, value)


def _set_all(tile: Fragment, value: Any) -> None:
    layout = tile.layout
    if layout.is_shared:
        cp.sync_plane()  # others may still read what was there
        for e in range(UNIT_POS_PLANE, tile.rows * tile.columns, _units()):
            tile.held[PLANE_POS, e // tile.columns, e % tile.columns] = tile.dtype(value)
        cp.sync_plane()
    elif layout.packed:
        word = _word(layout, [tile.dtype(value) for _ in range(layout.packed)])
        for k in cp.unroll(range(tile.held.size)):
            tile.held[k] = word
    else:
        for k in _elements(tile):
            tile.held[k] = tile.dtype(value)


def load(tile: Fragment, x: Any, index: Any, swizzle: Comptime = 0) -> None:
    """tile[r, c] = x[i + r, j + c], with index = (i, j); zero outside of `x`. Converts.

    `x` has two axes, in global or shared memory. `swizzle`: 0, or the bytes (32, 64, 128) that the
    places of a row are exchanged within, as `cp.pipelines.swizzled` says and tensor maps do; rows
    are counted from that of `x`, and consist of whole such spans.
    """
    cp.static_assert(x.rank == 2, "cp.cmma.load takes a tensor of two axes")
    i, j = index
    if tile.layout.is_shared:
        _load_shared(tile, x, i, j, swizzle)
    elif _is_matrices(tile, x):
        if cp.plane_all(_covers(tile, x, i, j) and cp.misalignment(x, (0, j), line=_ROW) == 0):
            _load_matrices(tile, x, i, j, swizzle)
        else:
            _load_held(tile, x, i, j, swizzle, True)
    elif _covers(tile, x, i, j):
        _load_held(tile, x, i, j, swizzle, False)
    else:
        _load_held(tile, x, i, j, swizzle, True)


def mma(accumulator: Fragment, a: Fragment, b: Fragment) -> None:
    """accumulator += a @ b, for shapes (m, n), (m, k), (k, n).

    Products of up to 16 bits are exact; the units of the hardware add them in an order and with a
    rounding of their own, at least as accurate as f32 with truncation (processors take bf16 below
    2**-126 for 0); elsewhere there is one fused step for each k, in order. Integers wrap.
    """
    cp.static_assert(
        (accumulator.use, a.use, b.use) == ("accumulator", "a", "b"),
        "cp.cmma.mma takes an accumulator, then fragments used as a and as b",
    )
    cp.static_assert(
        (a.rows, b.columns, a.columns) == (accumulator.rows, accumulator.columns, b.rows),
        "cp.cmma.mma multiplies (m, k) by (k, n) and adds to (m, n)",
    )
    cp.static_assert(a.dtype == b.dtype, "the factors of cp.cmma.mma have one type")
    cp.static_assert(
        SUMS[a.dtype] == accumulator.dtype, "the accumulator of cp.cmma.mma has the wrong type"
    )
    if a.layout.in_memory:
        _multiply_tiles(accumulator, a, b)
    elif a.layout.unit is not None:
        _multiply_blocks(accumulator, a, b)
    elif a.layout.is_shared:
        _multiply_shared(accumulator, a, b)
    else:
        _multiply_whole(accumulator, a, b)


def store(x: Any, index: Any, tile: Fragment, swizzle: Comptime = 0) -> None:
    """x[i + r, j + c] = tile[r, c], with index = (i, j); what lies outside of `x` is dropped.

    Converts to the type of `x`. `tile` is an accumulator. The plane sees what was stored.
    `swizzle`: as for `load`.
    """
    cp.static_assert(x.rank == 2, "cp.cmma.store takes a tensor of two axes")
    cp.static_assert(tile.use == "accumulator", "cp.cmma.store takes an accumulator")
    i, j = index
    if _covers(tile, x, i, j) and _keeps_neighbours(tile, j, swizzle):
        _store_covered(x, i, j, tile, swizzle)
    else:
        for k in _elements(tile):
            r, c = _place(tile, k)
            if _belongs(tile, r, c) and _exists(x, i + r, j + c):
                x[i + r, _column(x, i + r, j + c, swizzle)] = x.dtype(tile.held[k])
    cp.sync_plane()


def _keeps_neighbours(tile: Fragment, j: Any, swizzle: int) -> Any:
    """Whether what a unit holds side by side lies so in `x`; from an odd column on, swizzling parts
    what stands on both sides of a span of 16 bytes."""
    return swizzle == 0 or j % tile.layout.neighbours == 0


def _store_covered(x: Any, i: Any, j: Any, tile: Fragment, swizzle: int) -> None:
    """Neighbours that a unit holds go to memory together, where they are neighbours there."""
    width = tile.layout.neighbours if x.line_axis == 1 else 1
    for k in cp.unroll(range(0, tile.held.size, width)) if width > 1 else _elements(tile):
        r, c = _place(tile, k)
        at = _column(x, i + r, j + c, swizzle)
        if cp.comptime(width > 1):
            part = cp.load(tile.held, k, line=width)
            cp.store(x, (i + r, at), cp.Line[x.dtype, width](part), whole=True)
        else:
            x[i + r, at] = x.dtype(tile.held[k])


# Where elements are


def _units() -> Any:
    """Units in a plane; the only plane of a small cube has fewer than the others of its target."""
    return min(PLANE_DIM, CUBE_DIM)


def _blocks(layout: Layout, rows: int, columns: int) -> int:
    return -(-rows // layout.rows) * -(-columns // layout.columns)


def _held_type(layout: Layout) -> Any:
    return u32 if layout.packed else layout.dtype


def _elements(tile: Fragment) -> Any:
    """The positions in `held`: registers where matrix units take them, else memory."""
    is_memory = tile.layout.unit is None or tile.layout.in_memory
    return range(tile.held.size) if is_memory else cp.unroll(range(tile.held.size))


def _place(tile: Fragment, k: Any) -> Any:
    """The row and column in the tile of element k of this unit."""
    layout = tile.layout
    count = layout.count * max(layout.packed, 1)
    across = -(-tile.columns // layout.columns)
    block, part = k // count, k % count
    r, c = layout.place(UNIT_POS_PLANE, part)
    return block // across * layout.rows + r, block % across * layout.columns + c


def _is_full(tile: Fragment) -> bool:
    """Whether all that units hold belongs to the tile (comptime)."""
    layout = tile.layout
    if layout.unit is not None:
        return tile.rows % layout.rows == 0 and tile.columns % layout.columns == 0
    return tile.held.size * _units() == tile.rows * tile.columns


def _belongs(tile: Fragment, r: Any, c: Any) -> Any:
    return _is_full(tile) or (r < tile.rows and c < tile.columns)


def _exists(x: Any, i: Any, j: Any) -> Any:
    return 0 <= i < x.shape[0] and 0 <= j < x.shape[1]


def _column(x: Any, i: Any, j: Any, swizzle: int) -> Any:
    """Where the element of row i and column j is in its row."""
    if swizzle == 0:
        return j
    return swizzled(i, j * x.dtype.itemsize, swizzle) // x.dtype.itemsize


def _covers(tile: Fragment, x: Any, i: Any, j: Any) -> Any:
    """Whether nothing of the tile's blocks, which may be larger than it, lies outside of `x`. The
    extents are subtracted, as `i + tile.rows` may overflow."""
    if not _is_full(tile):
        return False
    return 0 <= i <= x.shape[0] - tile.rows and 0 <= j <= x.shape[1] - tile.columns


# Loading


def _load_shared(tile: Fragment, x: Any, i: Any, j: Any, swizzle: int) -> None:
    cp.sync_plane()  # others may still read what was there
    for e in range(UNIT_POS_PLANE, tile.rows * tile.columns, _units()):
        r, c = e // tile.columns, e % tile.columns
        at = _column(x, i + r, j + c, swizzle)
        value = x[i + r, at] if _exists(x, i + r, j + c) else x.dtype(0)
        tile.held[PLANE_POS, r, c] = tile.dtype(value)
    cp.sync_plane()


def _load_held(tile: Fragment, x: Any, i: Any, j: Any, swizzle: int, guarded: bool) -> None:
    if tile.layout.packed:
        packed = tile.layout.packed
        for k in cp.unroll(range(tile.held.size)):
            first = k * packed
            parts = [_read(tile, x, i, j, first + n, swizzle, guarded) for n in range(packed)]
            tile.held[k] = _word(tile.layout, parts)
    else:
        for k in _elements(tile):
            tile.held[k] = _read(tile, x, i, j, k, swizzle, guarded)


def _read(tile: Fragment, x: Any, i: Any, j: Any, k: Any, swizzle: int, guarded: bool) -> Any:
    r, c = _place(tile, k)
    at = _column(x, i + r, j + c, swizzle)
    if not guarded:
        return tile.dtype(x[i + r, at])
    inside = _belongs(tile, r, c) and _exists(x, i + r, j + c)
    return tile.dtype(x[i + r, at] if inside else x.dtype(0))


def _word(layout: Layout, parts: Any) -> Any:
    """Elements in the bits of a word, the first one lowest."""
    bits = _BITS[layout.dtype.bits]
    word = u32(0)
    for k in cp.unroll(range(layout.packed)):
        word |= u32(cp.bitcast(parts[k], bits)) << (k * layout.dtype.bits)
    return word


# By ldmatrix: eight rows of 16 bytes at once

_ROW = 8
"""Elements of a row; with 16 bytes, it begins at a multiple of them."""


def _is_matrices(tile: Fragment, x: Any) -> bool:
    """Whether the matrix unit loads the tile as it lies in shared memory (comptime)."""
    unit = tile.layout.unit
    is_same = unit is not None and unit.load == "cuda_ldmatrix" and x.dtype == tile.dtype
    return (
        is_same
        and tile.use != "accumulator"
        and x.space == "shared"
        and x.strides[0] % _ROW == 0
        and x.strides[1] == 1
    )


def _load_matrices(tile: Fragment, x: Any, i: Any, j: Any, swizzle: int) -> None:
    layout, lane = tile.layout, UNIT_POS_PLANE
    across = tile.columns // layout.columns
    pairs = tile.use == "b" and across % 2 == 0
    right = lane // 16 * _ROW if tile.use == "a" or pairs else 0
    mine = x[lane % 16 :, right:] if swizzle == 0 else x[lane % 16 :]
    for block in cp.unroll(range(0, tile.held.size // layout.count, 2 if pairs else 1)):
        r, c = i + block // across * layout.rows, j + block % across * layout.columns
        at = c if swizzle == 0 else _column(x, r + lane % 16, c + right, swizzle)
        if tile.use == "a":
            words = cuda.ldmatrix(mine, (r, at))
        else:
            words = cuda.ldmatrix(mine, (r, at), count=4 if pairs else 2, transposed=True)
        cp.store(tile.held, block * layout.count, words)


# Multiplying


def _multiply_blocks(total: Fragment, a: Fragment, b: Fragment) -> None:
    down, across = -(-total.rows // total.layout.rows), -(-total.columns // total.layout.columns)
    deep = -(-a.columns // a.layout.columns)
    for block in cp.unroll(range(down * across)):
        r, c = block // across, block % across
        sums = _part(total, block)
        for k in cp.unroll(range(deep)):
            left, right = _part(a, r * deep + k), _part(b, k * across + c)
            if a.layout.unit is not None and a.layout.unit.layout == "mma":
                sums = cuda.mma(left, right, sums, a.dtype)
            else:
                sums = metal.multiply_accumulate(left, right, sums)
        cp.store(total.held, block * total.layout.count, sums)


def _multiply_tiles(total: Fragment, a: Fragment, b: Fragment) -> None:
    """By the tiles of a processor, which are loaded for each product of blocks."""
    m, n = a.layout.rows, b.layout.columns
    down, across = -(-total.rows // m), -(-total.columns // n)
    deep = -(-a.columns // a.layout.columns)
    for r in range(down):
        for c in range(across):
            place = r * m * total.layout.columns + c * n
            amx.load(0, total.held, place, total.layout.columns)
            for k in range(deep):
                amx.load(1, a.held, (r * deep + k) * a.layout.count)
                amx.load(2, b.held, (k * across + c) * b.layout.count)
                amx.multiply(0, 1, 2, a.dtype)
            amx.store(0, total.held, place, total.layout.columns)


def _part(tile: Fragment, block: int) -> Any:
    """What the unit holds of a block, as a line."""
    return cp.load(tile.held, block * tile.layout.count, line=tile.layout.count)


def _multiply_shared(total: Fragment, a: Fragment, b: Fragment) -> None:
    for s in _elements(total):
        r, c = _place(total, s)
        if _belongs(total, r, c):
            value = total.held[s]
            for k in range(a.columns):
                left, right = a.held[PLANE_POS, r, k], b.held[PLANE_POS, k, c]
                value = value + total.dtype(left) * total.dtype(right)
            total.held[s] = value


def _multiply_whole(total: Fragment, a: Fragment, b: Fragment) -> None:
    """All by one unit: along rows, so that a line of them may be added to at once."""
    columns, step = total.columns, total.layout.columns
    for r in range(total.rows):
        for k in range(a.columns):
            left = total.dtype(a.held[r * a.columns + k])
            for c in range(columns):
                right = total.dtype(b.held[k * columns + c])
                total.held[r * step + c] = total.held[r * step + c] + left * right
