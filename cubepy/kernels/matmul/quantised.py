"""Products of quantised factors: which way each goes.

Where sums share their scales, integers or floats of 8 bits are multiplied as they are and sums are
scaled. Weights that few rows are multiplied by are widened on the way to registers. Where neither
serves, a factor is widened to memory first.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, f32, f64
from cubepy.jit.grid import Fixed
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import refused
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul.factors import Factor
from cubepy.kernels.matmul.problem import Product, expanded, is_dense, turned
from cubepy.kernels.matmul.scaling import scaled
from cubepy.kernels.matmul.widened import (
    Copied,
    Numbers,
    Stored,
    Widened,
    multiply_widened,
    widen,
)
from cubepy.targets import Target

FEW = {"cpu": 16, "interpreter": 16}
"""Rows up to which weights are read once; 8 on GPUs."""
UNITS = 128
"""Units of a cube on a GPU."""
COPIED = 16
"""Numbers that are widened at once."""
CUBES = 4
"""Cubes for each core."""
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


def shares_scales(a: Memory | Factor, b: Memory | Factor) -> bool:
    """Whether all products of a sum have the same scale, and no zero point."""
    if isinstance(a, Memory) or isinstance(b, Memory):
        return False
    if a.form is not b.form or a.form.packed or a.zero is not None or b.zero is not None:
        return False
    inner = a.shape[-1]
    whole = a.scales.shape[-1] == 1 and b.scales.shape[-2] == 1
    return whole and inner * LARGEST.get(a.form.name, 0) < 1 << 31


def scales_of(a: Factor, b: Factor, extents: tuple[int, ...]) -> tuple[Memory, ...]:
    """The scales of both factors, as if each sum had its own."""
    found: list[Memory] = []
    for scale, axis in ((a.scales, -2), (b.scales, -1)):
        if scale.shape[axis] not in (1, extents[axis]):
            return ()
        found.append(expanded(scale, extents))
    return tuple(found)


def with_scales(p: Product) -> Product:
    """A product whose epilogue scales its sums, in place of scales and biases."""
    if not p.scales:
        return p
    stands = tuple(s.strides[-1] == 0 for s in p.scales)
    function = scaled(stands, len(p.biases), p.epilogue)
    extras = (*p.scales, *p.biases, *p.extras)
    return replace(p, scales=(), biases=(), epilogue=function, extras=extras)


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
    if wide:
        rows, across, units, line, width = m, 4, UNITS, 32 if numbers.packed else 16, 4
    else:
        rows, across = min(m, 4), 8 if m == 1 else 4
        units, line = 1, max(1, target.line_bytes // 4) * (2 if numbers.packed else 1)
        width = -(-columns // (target.cores * CUBES))
        width = -(-width // across) * across
    while numbers.block[1] % line:
        line //= 2
    apart = line // 2 if numbers.packed else line
    return Widened(rows, across, units, line, 1 if wide else apart, width, sums, numbers)


def launch_widened(planner: Planner, p: Product, f: Factor, t: Widened) -> None:
    """A launch over all columns."""
    *batch, _, n = p.out.shape
    planner.launch(
        multiply_widened,
        Fixed((prod(batch) * -(-n // t.width), 1, 1), (t.units, 1, 1)),
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


# A copy


def widened_copy(planner: Planner, f: Factor, dtype: DType) -> Memory:
    """The factor as floats, in memory for the duration of a call."""
    made = planner.scratch(f.extents, dtype)
    numbers, line = numbers_of(f), COPIED
    while numbers.block[1] % line:
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
