"""Products of quantised factors: which way each goes.

Where sums share their scales, integers or floats of 8 bits are multiplied as they are and sums are
scaled; on Hopper also where scales change each 128 elements of k. Weights that few rows are
multiplied by, on Hopper all, are widened on the way to registers. Where neither serves, a factor is
widened to memory first.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, bf16, f16, f32, f64, u32
from cubepy.jit.grid import Fixed
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import refused
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul.blockwise import Blockwise, multiply_blockwise
from cubepy.kernels.matmul.factors import Factor
from cubepy.kernels.matmul.maps import boxes
from cubepy.kernels.matmul.mixed import (
    DEPTH,
    PIECE,
    WORD,
    Mixed,
    multiply_mixed,
)
from cubepy.kernels.matmul.problem import (
    Problem,
    Product,
    expanded,
    has_boxes,
    is_dense,
    turned,
)
from cubepy.kernels.matmul.scaling import scaled
from cubepy.kernels.matmul.skinny import MOST_PARTS, RESERVED, STEP
from cubepy.kernels.matmul.strategies import even_part
from cubepy.kernels.matmul.waves import PROMOTED_HEIGHT, count, duration, pipelined, tilings
from cubepy.kernels.matmul.widened import (
    Copied,
    Numbers,
    Stored,
    Streamed,
    Widened,
    multiply_streamed,
    multiply_widened,
    widen,
)
from cubepy.lang.pipelines import ROWS as ROWS_OF_UNIT
from cubepy.lang.pipelines import box
from cubepy.targets import Target

FEW = {"cpu": 16, "interpreter": 16}
"""Rows up to which weights are read once; 8 on GPUs."""
UNITS = 128
"""Units of a cube on a GPU."""
COPIED = 16
"""Numbers that are widened at once."""
CUBES = 4
"""Cubes for each core."""
REGISTERS, MOST_TOGETHER = 24, 8
"""Lines of sums that a CPU has registers for, and the most rows, or columns, of them: what is
widened is multiplied by as many rows as that allows."""
SHORTEST_BLOCK, MOST_ROWS, MOST_STAGES, GROUPS = 32, 256, 12, 2
"""Of weights on Hopper: elements of k that share a scale, rows of a cube, stages, warpgroups."""
WIDTHS = (64, 128)
"""Columns of tiles whose stages are added apart: powers of two, of which registers hold two."""
LARGEST = {"i8": 1 << 14, "u8": 255 * 255}
"""The largest product of two such integers; sums of them have 31 bits."""


def kind_of(a: Memory | Factor, b: Memory | Factor) -> DType:
    """The type in which a product of quantised factors is given, unless the caller names one: that
    of the factor that is not quantised, f32 if both are."""
    plain = [x for x in (a, b) if isinstance(x, Memory)]
    if not plain:
        return f32
    name, dtype = "b" if plain[0] is b else "a", plain[0].dtype
    if not dtype.is_float or dtype.bits == 8:
        supported = "the factor that is not quantised is f16, bf16, f32 or f64"
        raise refused("matmul", name, f"has dtype {dtype}", supported)
    return dtype


def are_alike(a: Memory | Factor, b: Memory | Factor) -> bool:
    """Whether numbers of both factors can be multiplied as they are."""
    if isinstance(a, Memory) or isinstance(b, Memory):
        return False
    return a.form is b.form and not a.form.packed and a.zero is None and b.zero is None


def scales_of(a: Factor, b: Factor, extents: tuple[int, ...]) -> tuple[Memory, ...]:
    """The scales of both factors, as if each sum had its own; none where its products differ in
    scale, or its integers may need more than 31 bits."""
    if a.scales.shape[-1] != 1 or b.scales.shape[-2] != 1:
        return ()
    if a.shape[-1] * LARGEST.get(a.form.name, 0) >= 1 << 31:
        return ()
    found: list[Memory] = []
    for scale, axis in ((a.scales, -2), (b.scales, -1)):
        if scale.shape[axis] not in (1, extents[axis]):
            return ()
        found.append(expanded(scale, extents))
    return tuple(found)


def with_scales(p: Product) -> Product:
    """A product whose epilogue scales its sums, in place of scales and biases."""
    stands = tuple(s.strides[-1] == 0 for s in p.scales)
    function = scaled(stands, len(p.biases), p.epilogue)
    extras = (*p.scales, *p.biases, *p.extras)
    return replace(p, scales=(), biases=(), epilogue=function, extras=extras)


# Scales that change along k


def blockwise(target: Target, problem: Problem, a: Factor, b: Factor) -> Blockwise | None:
    """The tiles of Hopper for factors whose scales change from stage to stage; None where the
    tiles are not for the problem, or scales change within a stage or a tile."""
    found = pipelined(target, problem)
    if found is None or found.by_elements:
        return None
    (rows, one), (two, columns) = a.blocks, b.blocks
    rows, columns = _count(a, -2, rows), _count(b, -1, columns)
    one, two = _count(a, -1, one), _count(b, -2, two)
    fits = [
        t
        for t in tilings(target, problem)
        if t.width in WIDTHS
        and columns % t.width == 0
        and one % t.depth == two % t.depth == 0
        and t.height <= PROMOTED_HEIGHT
    ]
    if not fits:
        return None
    t = min(fits, key=lambda t: duration(target, problem, t))
    return Blockwise(t, rows, one // t.depth, two // t.depth, columns)


def _count(f: Factor, axis: int, block: int) -> int:
    """Elements along an axis that share a scale; 0 for all."""
    return 0 if f.scales.shape[axis] == 1 else block


def launch_blockwise(
    planner: Planner, problem: Problem, p: Product, scales: tuple[Memory, Memory], t: Blockwise
) -> None:
    """One cube for each multiprocessor, if there are as many tiles."""
    tiles, batch = t.tiles, p.out.shape[:-2]
    left, right = (expanded(s, (*batch, *s.shape[-2:])) for s in scales)
    cubes = min(planner.target.multiprocessors, count(problem, tiles))
    planner.launch(
        multiply_blockwise.configure(cubes_per_sm=1),
        Fixed((cubes, 1, 1), (tiles.units, 1, 1)),
        a=boxes(p.a, box(tiles.height, tiles.factors)),
        b=boxes(turned(p.b), box(tiles.width, tiles.factors)),
        out=boxes(p.out, (ROWS_OF_UNIT, tiles.chunk), tiles.out_swizzle),
        left=left,
        right=right,
        extents=p.out.shape,
        k=problem.k,
        biases=p.biases,
        extras=p.extras,
        epilogue=p.epilogue,
        blocks=t,
    )


# Few rows


def numbers_of(f: Factor) -> Numbers:
    """How a factor's numbers are stored."""
    p, q = f.block
    block = (p if f.scale.shape[-2] > 1 else 0, q if f.scale.shape[-1] > 1 else 0)
    return Numbers(f.form.packed, f.form.packed and f.form.low < 0, block, f.zero is not None)


def widened(target: Target, p: Product, f: Factor) -> Widened | None:
    """How few rows are multiplied by weights whose columns are dense; None for others."""
    wide, (m, columns) = is_wide(target), p.out.shape[-2:]
    if m > FEW.get(target.kind, 8) or not f.is_turned or not is_dense(f.values, -1):
        return None
    numbers, sums = numbers_of(f), f64 if p.a.dtype is f64 else f32
    if numbers.block[1] == 1:
        return None
    if wide:
        rows, across, units, line, width = m, 4, UNITS, 32 if numbers.packed else 16, 4
    else:
        rows = even_part(m, MOST_TOGETHER)
        across = min(MOST_TOGETHER, REGISTERS // rows)
        units, line = 1, max(1, target.line_bytes // 4) * (2 if numbers.packed else 1)
        width = -(-columns // (target.cores * CUBES))
        width = -(-width // across) * across
    while numbers.block[1] % line:
        line //= 2
    apart = line // 2 if numbers.packed else line
    return Widened(rows, across, units, line, 1 if wide else apart, width, sums, numbers)


def streamed(target: Target, p: Product, f: Factor) -> Streamed | None:
    """How few rows are multiplied by weights whose rows are dense, on CPUs; None for others."""
    m, columns = p.out.shape[-2:]
    if m > FEW.get(target.kind, 0) or f.is_turned or not is_dense(f.values, -1):
        return None
    numbers = numbers_of(f)
    line = max(1, target.line_bytes // 4) * (2 if numbers.packed else 1)
    if numbers.block[1] > 1 and numbers.block[1] % line:
        return None
    lines, width = 4, -(-columns // (target.cores * CUBES))
    width = -(-width // (lines * line)) * lines * line
    rows = even_part(m, REGISTERS // (2 * lines if numbers.packed else lines))
    return Streamed(rows, lines, line, width, f64 if p.a.dtype is f64 else f32, numbers)


def launch_widened(planner: Planner, p: Product, f: Factor, t: Widened | Streamed) -> None:
    """A launch over all columns."""
    *batch, _, n = p.out.shape
    units = t.units if isinstance(t, Widened) else 1
    planner.launch(
        multiply_widened if isinstance(t, Widened) else multiply_streamed,
        Fixed((prod(batch) * -(-n // t.width), 1, 1), (units, 1, 1)),
        a=p.a,
        b=stored(f, tuple(batch)),
        out=p.out,
        biases=p.biases,
        extras=p.extras,
        epilogue=p.epilogue,
        t=t,
    )


def stored(f: Factor, batch: tuple[int, ...]) -> Stored:
    """A factor as an argument of kernels, for products of so many stacks."""

    def seen(x: Memory) -> Memory:
        return expanded(x, (*batch, *x.shape[-2:]))

    return Stored(seen(f.values), seen(f.scale), () if f.zero is None else (seen(f.zero),))


# Weights on Hopper


def mixed(target: Target, p: Product, f: Factor) -> Mixed | None:
    """How cubes share weights that are widened for tensor cores; None for other targets, types and
    layouts."""
    numbers, values = numbers_of(f), f.values
    deep = numbers.block[1]
    fits = deep % DEPTH == 0 or (DEPTH % deep == 0 and deep >= SHORTEST_BLOCK)
    if target.arch != "sm_90a" or p.a.dtype not in (bf16, f16) or not fits or f.form.is_float:
        return None
    if not (f.is_turned and has_boxes(p.a) and has_boxes(values)) or values.shape[-1] % WORD:
        return None
    *batch, m, n = p.out.shape
    rows = -(-even_part(m, MOST_ROWS) // STEP) * STEP
    bits, sign = (4 if f.form.packed else 8), f.form.low < 0
    t = Mixed(GROUPS, PIECE, rows, 1, 1, p.a.dtype, bits, sign, numbers)
    tiles, per_sm = prod(batch) * -(-n // t.width) * -(-m // rows), t.per_sm
    parts, most = 1, min(MOST_PARTS, f.extents[-1] // (2 * DEPTH))
    while 2 * parts <= most and 2 * parts * tiles <= per_sm * target.multiprocessors:
        parts *= 2
    t = replace(t, parts=parts)
    room = target.shared_bytes // per_sm - (0 if per_sm == 1 else RESERVED)
    while t.stages < MOST_STAGES and replace(t, stages=t.stages + 1).shared_bytes <= room:
        t = replace(t, stages=t.stages + 1)
    return t


def launch_mixed(planner: Planner, p: Product, f: Factor, t: Mixed) -> None:
    """A launch over all tiles."""
    *batch, m, n = p.out.shape
    tiles = prod(batch) * -(-n // t.width) * -(-m // t.rows) * t.parts
    seen = stored(f, tuple(batch))
    row = seen.values
    words = replace(
        row,
        dtype=u32,
        shape=(*row.shape[:-1], row.shape[-1] // WORD),
        strides=(*row.strides[:-1], WORD),
    )
    planner.launch(
        multiply_mixed.configure(cluster=t.parts, cubes_per_sm=t.per_sm),
        Fixed((tiles, 1, 1), (t.units, 1, 1)),
        a=boxes(p.a, (t.rows, PIECE)),
        b=boxes(words, (t.width, t.row_words), t.row_bytes),
        scales=seen,
        out=p.out,
        k=f.extents[-1],
        biases=p.biases,
        extras=p.extras,
        epilogue=p.epilogue,
        t=t,
    )


# A copy


def widened_copy(planner: Planner, f: Factor, dtype: DType) -> Memory:
    """The factor as floats, in memory for the duration of a call."""
    made = planner.scratch(f.extents, dtype)
    numbers, line = numbers_of(f), COPIED
    while numbers.block[1] > 1 and numbers.block[1] % line:
        line //= 2
    units = UNITS if is_wide(planner.target) else 1
    planner.launch(
        widen,
        Fixed((prod(f.extents[:-1]), 1, 1), (units, 1, 1)),
        b=stored(f, f.extents[:-2]),
        out=made,
        t=Copied(units, line, f64 if dtype is f64 else f32, numbers),
    )
    return turned(made) if f.is_turned else made
