"""How rows are divided: whole ones for tasks of a CPU, the lines of one for the units of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, f32
from cubepy.kernels.calls.cubes import begins_lines, is_wide
from cubepy.kernels.normalisation.beside import Beside
from cubepy.kernels.normalisation.groups import Groups
from cubepy.kernels.normalisation.problem import Normalisation, Passing, RowTiling, Slabs
from cubepy.kernels.normalisation.shared_slabs import SharedSlabs
from cubepy.targets import Target

HELD, MOST_HELD, PLANE_HELD = 32, 64, 4
"""Elements of a long row that a unit of a wide cube holds in registers, and how many at most; lines
that each unit of one plane holds, at most, as weights are read beside them."""
LONG, TOGETHER, TOGETHER_UNITS = 1 << 13, 2, 512
"""Elements of a row from which on weights do not fit into registers beside it, and the rows that
cubes of so many units normalise together then."""
ENGINE_SINCE, RUN_BYTES = 90, 16
"""The first architecture of NVIDIA with a copy engine, and what its bytes are a multiple of."""
PASSING_UNITS, LEAST_PASSING, MOST_PASSING, PASSING_ROWS = 512, 7 << 11, 1 << 14, 8
"""Units that rows pass through; elements of a row from which on they do, as shorter ones are held
by several cubes at a time, and up to which weights fit into registers; rows a multiprocessor."""
STAGES, MARGIN = 2, 256
"""Rows in shared memory, and bytes of it for sums over a cube."""
MOST_LINES = 16
"""Lines of a row of a slab that are worth another unit, where there are rows for all."""
BUSY_UNITS = 192
"""Units that each multiprocessor should have, as far as rows have lines for them."""
STREAMED, LEAST_STREAMED = 16, 16
"""Caches of a CPU that arrays must exceed before results go past them, and lines of their rows."""
HELD_LINES = 4
"""Lines of rows that a unit of a CPU holds in registers, at most."""
ROOMS = 1 << 10, 1 << 13, 1 << 16
"""Elements of rows whose exponentials a unit of a CPU keeps beside them."""
AHEAD = 4
"""Rows that the second cache of a CPU must hold for the next one to be prefetched."""
NEIGHBOURS = 32
"""Units that take neighbouring lines of channels, at most."""
UNITS, LEAST_UNITS, MOST_UNITS = 128, 64, 1024
"""Units of a cube whose planes have rows of their own, and of one that shares a row."""
LEAST_PIXELS, LEAST_BAND, MOST_BANDS = 32, 1 << 13, 32
"""Pixels whose statistics are made together, bytes of some that are worth a cube, and cubes that
are enough."""
SLAB_UNITS = 512
"""The most units of a cube that makes a slab."""
SHARING, SHARED_BYTES, LEAST_SHARED, SHARED_UNROLL = (8, 4), 80 << 10, 1 << 13, 4
"""Cubes of a multiprocessor that share few slabs: so many that they have one after the other, of so
many bytes, else as many as it has at once; the elements that are worth one, and lines of a row that
a unit of them has under way."""


def row_tilings(
    target: Target, op: Normalisation, arrays: Sequence[Memory], n: int, rows: int, weights: int = 0
) -> tuple[RowTiling, ...]:
    """The tilings for rows of `n` elements of all these arrays, of which the first is normalised,
    with so many weights for each; the preferred first."""
    dense = all(m.strides[-1] == m.dtype.itemsize for m in arrays) or n == 1
    if not is_wide(target):
        return _narrow_rows(target, op, arrays, n, rows, dense)
    line = 1
    if dense and all(begins_lines(target, m) for m in arrays):
        line = max(1, target.line_bytes // arrays[0].dtype.itemsize)
    ways = [wide_rows(target, line, n, rows, held) for held in (HELD, HELD // 2, HELD * 2)]
    if weights and n >= LONG:
        units = min(TOGETHER_UNITS, target.max_cube_dim)
        unroll = max(1, HELD // 2 // line)
        ways.append(RowTiling(line, units, TOGETHER, unroll, across=units, together=TOGETHER))
    return tuple(dict.fromkeys(ways))


def _narrow_rows(
    target: Target, op: Normalisation, arrays: Sequence[Memory], n: int, rows: int, dense: bool
) -> tuple[RowTiling, ...]:
    """Whole rows for each unit."""
    line = target.line_bytes // op.dtype.itemsize if dense else 8
    band = max(1, min(1 << 16, max(1, rows * n // 64)) // max(1, n))
    if n <= HELD_LINES * line:
        return (RowTiling(line, 1, band, 1, -(-n // line), n % line == 0),)
    kept = 0
    if op.name == "softmax":
        kept = next((room for room in ROOMS if n <= room), 0)
    nbytes = sum(prod(m.shape) * m.dtype.itemsize for m in arrays)
    stream = dense and nbytes > STREAMED * target.cache_bytes and n >= LEAST_STREAMED * line
    stream = stream and (op.name != "softmax" or kept > 0)
    unroll = next(u for u in (8, 4, 1) if n >= u * line or u == 1)
    is_ahead = stream and kept > 0 and AHEAD * n * op.dtype.itemsize <= target.cache_bytes
    preferred = RowTiling(line, 1, band, unroll, stream=stream, kept=kept, is_ahead=is_ahead)
    bands = [replace(preferred, band=max(1, int(band * share))) for share in (0.25, 4)]
    unrolls = [replace(preferred, unroll=u) for u in (1, 2, 4) if n >= u * line and u < unroll]
    cached = [replace(preferred, stream=False, is_ahead=False)] if stream else []
    late = [replace(preferred, is_ahead=False)] if is_ahead else []
    return (preferred, *unrolls, *bands, *cached, *late)


def wide_rows(target: Target, line: int, n: int, rows: int, wanted: int) -> RowTiling:
    """Units that hold some `wanted` elements each share a row: a group of a plane, so that nobody
    waits at a barrier, or a cube. Few rows have more units each, for all multiprocessors to have
    some. Very long rows are read twice."""
    lines, across = -(-n // line), 1
    busy = BUSY_UNITS * target.multiprocessors if target.multiprocessors > 1 else 0
    while across < min(MOST_UNITS, target.max_cube_dim) and across * wanted < lines * line:
        across *= 2
    while across < target.plane_dim and 4 * across <= lines:  # neighbours read neighbours
        across *= 2
    while across < min(lines, MOST_UNITS, target.max_cube_dim) and rows * across < busy:
        across *= 2
    while across <= target.plane_dim and across * PLANE_HELD < lines:
        across *= 2
    while target.plane_dim < across < min(LEAST_UNITS, lines):
        across *= 2
    held = -(-lines // across)
    if held * line > MOST_HELD:
        return RowTiling(line, across, 1, max(1, HELD // 2 // line), across=across)
    units = across if across > target.plane_dim else max(across, UNITS)
    is_whole = n % (line * across) == 0
    return RowTiling(line, units, units // across, 1, held, is_whole, across)


def passing(
    target: Target, op: Normalisation, x: Memory, out: Memory, weights: int
) -> Passing | None:
    """How rows with weights for each element pass through cubes that stay: in f32, where they are
    so long that each multiprocessor has one, and enough. None for others."""
    *kept, n = x.shape
    rows = prod(kept)
    line = max(1, target.line_bytes // x.dtype.itemsize)
    lines = n // line
    has_engine = target.kind == "cuda" and target.version >= ENGINE_SINCE
    places = (m.strides[k] for m in (x, out) for k in range(len(kept)))
    aligned = all(v % RUN_BYTES == 0 for v in (x.address, out.address, *places))
    dense = all(m.strides[-1] == m.dtype.itemsize for m in (x, out))
    if not (has_engine and aligned and dense and x.dtype is out.dtype is op.dtype is f32):
        return None
    held = -(-lines // PASSING_UNITS)
    short = not weights or not LEAST_PASSING <= n <= MOST_PASSING or n % line
    fits = STAGES * (held * PASSING_UNITS * RUN_BYTES + MARGIN) <= target.shared_bytes
    if short or not fits or rows < PASSING_ROWS * target.multiprocessors:
        return None
    return Passing(line, PASSING_UNITS, held, STAGES, lines % PASSING_UNITS == 0)


def loss_tilings(target: Target, op: Normalisation, x: Memory) -> tuple[RowTiling, ...]:
    """The tilings for rows without results for their elements: long ones go through registers block
    by block."""
    rows, n = x.shape
    ways = row_tilings(target, op, (x,), n, rows)
    if not is_wide(target) or n <= HELD * target.plane_dim:
        return ways
    loops = tuple(
        RowTiling(way.line, units, 1, max(1, HELD // way.line), across=units)
        for way in ways[:1]
        for units in (256, 512, 128)
    )
    return (*loops, *ways)


def loss_units(target: Target) -> int:
    """Units of the cube that adds all losses."""
    return min(MOST_UNITS, target.max_cube_dim) if is_wide(target) else 1


def column_tilings(
    target: Target, op: Normalisation, x: Memory, out: Memory
) -> tuple[RowTiling, ...]:
    """The tilings for rows across memory, whose columns lie side by side."""
    if not is_wide(target):
        line = target.line_bytes // op.dtype.itemsize
        preferred = RowTiling(line, 1, 1, 4 if x.shape[-1] >= 4 * line else 1)
        return (preferred, *(replace(preferred, unroll=u) for u in (1, 2, 8)))
    dense = x.strides[-1] == x.dtype.itemsize and out.strides[-1] == out.dtype.itemsize
    return (RowTiling(target.line_bytes // x.dtype.itemsize if dense else 1, 128, 1),)


def slabs(
    target: Target, dtype: DType, x: Memory, out: Memory, items: int, rows: int, length: int
) -> Slabs:
    """Slabs by whole ones where these stay in a cache, else by parts that stay in the nearest."""
    line, units, across, unroll = _shape(target, dtype, x, out, rows, length)
    part = rows
    size = x.dtype.itemsize * length
    if not is_wide(target) and rows * size > target.cache_bytes // 2:
        part = max(1, target.near_bytes // 2 // size)
    return Slabs(dtype, items, line, units, across, unroll, max(1, part), False)


def shared_slabs(
    target: Target, dtype: DType, x: Memory, out: Memory, items: int, rows: int, length: int
) -> SharedSlabs | None:
    """Parts of slabs for several cubes, where these are few and large; None for others."""
    count, nbytes = prod(x.shape[:items]), prod(x.shape) * x.dtype.itemsize
    many, few = (each * target.multiprocessors for each in SHARING)
    cubes = many if nbytes >= SHARED_BYTES * many else few
    wanted = min(cubes // count, rows * length // LEAST_SHARED)
    if not is_wide(target) or wanted < 2:
        return None
    band, span = max(1, rows // wanted), length
    if rows < wanted:
        line = max(1, target.line_bytes // x.dtype.itemsize)
        unit = target.plane_dim * line
        chunks = -(-wanted // rows)
        span = -(-length // (chunks * unit)) * unit
    line, units, across, _ = _shape(target, dtype, x, out, band, min(span, length))
    stream = 2 * nbytes > target.cache_bytes
    return SharedSlabs(dtype, items, line, units, across, SHARED_UNROLL, band, span, stream)


def given_slabs(
    target: Target, dtype: DType, x: Memory, out: Memory, rows: int, length: int
) -> Slabs:
    """Rows of a cube for norms whose statistics are known."""
    line, units, across, unroll = _shape(target, dtype, x, out, rows, length)
    band = units // across
    if not is_wide(target):
        band = max(1, min(1 << 16, max(1, rows * length // 64)) // length)
    return Slabs(dtype, 0, line, units, across, unroll, band, False)


def column_parts(target: Target, dtype: DType, x: Memory, rows: int) -> tuple[Slabs, int]:
    """Parts of rows for statistics of channels, and the channels of a cube."""
    channels = x.shape[-1]
    if is_wide(target):
        line, units = 1, 128
        part, width = max(16, -(-rows // 1024)), units
    else:
        line, units = target.line_bytes // dtype.itemsize, 1
        fitting = target.cache_bytes // 4 // (channels * x.dtype.itemsize)
        part, width = max(1, min(fitting, -(-rows // (2 * target.cores)))), channels
    return Slabs(dtype, 0, line, units, 1, 4, part, True), width


def pixel_groups(target: Target, dtype: DType, x: Memory, each: int) -> Groups:
    """Parts of the pixels of [item, ..., channel] that the nearest cache holds, as they are read
    twice, and bands that the next one does; the same for any number of cores."""
    items, *extents, channels = x.shape
    size, pixels = channels * x.dtype.itemsize, prod(extents)
    line = target.line_bytes // dtype.itemsize
    least = max(LEAST_BAND // size, -(-pixels * items // MOST_BANDS), 1)
    part = max(LEAST_PIXELS, target.near_bytes // 2 // size)
    band = max(1, min(target.cache_bytes // 8 // size, least))
    wide = next(k for k in (4, 2, 1) if -(-channels // line) % k == 0)
    return Groups(dtype, channels, each, line, wide, 4 // wide, part, band)


def beside(
    target: Target, dtype: DType, x: Memory, out: Memory, cubes: tuple[int, ...]
) -> tuple[Beside, ...]:
    """The ways for rows of channels side by side, the preferred first; `out`: `x` itself where none
    are written; `cubes`: how many each multiprocessor may have."""
    is_dense = all(m.strides[-1] == m.dtype.itemsize or m.shape[-1] == 1 for m in (x, out))
    line = max(1, target.line_bytes // x.dtype.itemsize) if is_dense else 1
    shapes = [(line, 256, n) for n in cubes] + [(line, 512, cubes[0]), (line // 2, 256, cubes[0])]
    return tuple(
        _beside(target, dtype, x, max(1, line), units, together, each)
        for line, units, each in shapes
        for together in (4, 2)
    )


def _beside(
    target: Target, dtype: DType, x: Memory, line: int, units: int, together: int, cubes: int
) -> Beside:
    *outer, channels = x.shape
    across = 1
    while across < min(NEIGHBOURS, -(-channels // line)):
        across *= 2
    down = max(1, min(units, target.max_cube_dim) // across)
    parts = max(1, cubes * target.multiprocessors // -(-channels // (across * line)))
    return Beside(dtype, line, across, down, max(4 * down, -(-prod(outer) // parts)), together)


def _shape(
    target: Target, dtype: DType, x: Memory, out: Memory, rows: int, length: int
) -> tuple[int, int, int, int]:
    """Elements of a line, units of a cube, units along a row, lines that are added side by side."""
    dense = all(m.strides[-1] == m.dtype.itemsize for m in (x, out)) or length == 1
    if not is_wide(target):
        line = target.line_bytes // dtype.itemsize if dense else 8
        return line, 1, 1, 4 if length >= 4 * line else 1
    line = max(1, target.line_bytes // x.dtype.itemsize) if dense else 1
    line = min(line, 1 << max(1, length).bit_length() - 1)
    lines, units, across = -(-length // line), target.plane_dim, 1
    while units < rows * lines and 2 * units <= min(SLAB_UNITS, target.max_cube_dim):
        units *= 2
    while across < min(units, lines) and (across * MOST_LINES < lines or rows * across < units):
        across *= 2
    return line, units, across, 1
