"""Random numbers: `uniform`, `normal`, `bernoulli` and raw `bits`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, isfinite, prod
from operator import index
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, Kind, bool_, f32, f64, find_dtype, i64, u32
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import refused, shown, wrong
from cubepy.kernels.calls.call import run
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import Library, Shape, arrays_on, library_of, serving_numpy
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.elementwise.launches import launch_each, same
from cubepy.kernels.random.kernel import draw_numbers
from cubepy.kernels.random.problem import Distribution
from cubepy.kernels.random.state import DEFAULT
from cubepy.kernels.random.strategies import random_tiling

_PLANS = Plans()
UNITS = 256
"""Units of a wide cube."""


def uniform(
    shape: int | Sequence[int] | None = None,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: Any = None,
    seed: int | None = None,
    offset: int = 0,
    device: str | None = None,
    like: Any = None,
    out: Any = None,
) -> Any:
    """Numbers of equal probability in [low, high).

    `dtype`: f32 (also for None), f16, bf16 or f64. `seed`: 64 bits, which name a stream of numbers;
    element i, in row-major order, is number `offset` + i of it, so that a stream can be drawn in
    parts, on any device. None takes the numbers that no draw of this process has had, see `seed`.
    Gives a NumPy array; a CubePy array on `device`; an array of the library of `like`, on its
    device; or `out`, whose shape and dtype are taken where none are given.
    A draw that a CUDA graph captures gives the same numbers at each replay.

    Numbers are u = k * 2**-p, with as many bits p as the dtype has precision, then low + (high -
    low) * u in f32 (f64 for f64), with one rounding, and one more to f16 and bf16; with other
    limits than 0 and 1 rounding may give `high` itself. All devices give the same bits. The
    generator is Philox4x32-10 (Salmon et al., 2011). Raises `LaunchError` for wrong values,
    `LaunchTypeError` for other dtypes.
    """
    numbers = (_number("random.uniform", "low", low), _number("random.uniform", "high", high))
    span = (numbers[0], numbers[1] - numbers[0])
    if not isfinite(span[1]):
        reason = f"`low` is {low} and `high` {high}"
        raise wrong("random.uniform", reason, "their difference is finite")
    place = (shape, seed, offset, device, like, out)
    return _draw("uniform", _float_dtype("random.uniform", dtype, out), span, place)


def normal(
    shape: int | Sequence[int] | None = None,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: Any = None,
    seed: int | None = None,
    offset: int = 0,
    device: str | None = None,
    like: Any = None,
    out: Any = None,
) -> Any:
    """Normally distributed numbers of a mean and a standard deviation.

    The parameters beside `mean` and `std` are those of `uniform`. Box and Muller's method in f32
    (f64 for f64): two numbers of two words, whose absolute values end at 6.8 (8.7 for f64). Numbers
    are right to 1e-6 of their value, and beyond that to 2**-24 / r for a pair at distance r from 0
    (1e-14 and 2**-53 / r for f64). Devices differ within that.
    """
    numbers = (_number("random.normal", "mean", mean), _number("random.normal", "std", std))
    if numbers[1] < 0:
        raise wrong("random.normal", f"`std` is {std}, which is negative")
    place = (shape, seed, offset, device, like, out)
    return _draw("normal", _float_dtype("random.normal", dtype, out), numbers, place)


def bernoulli(
    shape: int | Sequence[int] | None = None,
    p: float = 0.5,
    *,
    dtype: Any = None,
    seed: int | None = None,
    offset: int = 0,
    device: str | None = None,
    like: Any = None,
    out: Any = None,
) -> Any:
    """True with probability `p`: where `uniform` of f32 gives less than `p`.

    `dtype`: bool (also for None), or any other, for 1 and 0. The other parameters are those of
    `uniform`.
    """
    chance = _number("random.bernoulli", "p", p)
    if not 0 <= chance <= 1:
        raise wrong("random.bernoulli", f"`p` is {p}, which is no probability")
    kind = _dtype("random.bernoulli", dtype, out, bool_)
    if kind.is_float and kind.bits == 8:
        raise refused("random.bernoulli", "dtype", f"is {kind}", "convert from f16")
    place = (shape, seed, offset, device, like, out)
    return _draw("bernoulli", kind, (ceil(chance * 2**24), 0), place)


def bits(
    shape: int | Sequence[int] | None = None,
    *,
    dtype: Any = None,
    seed: int | None = None,
    offset: int = 0,
    device: str | None = None,
    like: Any = None,
    out: Any = None,
) -> Any:
    """Integers whose bits are all random; u32 (also for None) are the words of the generator.

    `dtype`: an integer; smaller ones are the upper bits of a word, those of 64 bits two words, the
    lower one first. The other parameters are those of `uniform`.
    """
    kind = _dtype("random.bits", dtype, out, u32)
    if kind.kind not in (Kind.INT, Kind.UINT):
        raise refused("random.bits", "dtype", f"is {kind}; it takes integers", "")
    return _draw("bits", kind, (0, 0), (shape, seed, offset, device, like, out))


# Arguments


def _number(function: str, name: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise refused(function, name, f"is {shown(value)}; it takes a number", "") from None
    if not isfinite(found):
        raise wrong(function, f"`{name}` is {shown(value)}; it takes finite numbers")
    return found


def _dtype(function: str, dtype: Any, out: Any, default: DType) -> DType:
    if dtype is None:
        dtype = default if out is None else out.dtype
    found = find_dtype(dtype)
    if found is None:
        raise refused(function, "dtype", f"is {dtype!r}, which no kernel takes", "")
    return found


def _float_dtype(function: str, dtype: Any, out: Any) -> DType:
    found = _dtype(function, dtype, out, f32)
    if not found.is_float or found.bits == 8:
        supported = "f16, bf16, f32 and f64 are supported; random.bits gives integers"
        raise refused(function, "dtype", f"is {found}", supported)
    return found


def _shape(function: str, shape: Any, out: Any) -> tuple[int, ...]:
    if shape is None:
        if out is None:
            raise refused(function, "shape", "is not given", "pass it, or `out`")
        return tuple(out.shape)
    try:
        found = tuple(index(n) for n in (shape if isinstance(shape, Sequence) else (shape,)))
    except TypeError:
        raise refused(function, "shape", f"is {shown(shape)}; it takes integers", "") from None
    if any(n < 0 for n in found):
        raise wrong(function, f"`shape` is {shape!r}, which has a negative extent")
    return found


def _library(function: str, device: Any, like: Any, out: Any) -> Library:
    if sum(v is not None for v in (device, like, out)) > 1:
        raise wrong(function, "more than one of `device`, `like` and `out` are given")
    if device is not None:
        return arrays_on(device)
    if like is None and out is None:
        return serving_numpy()
    name, array = ("like", like) if out is None else ("out", out)
    return library_of(function, name, array)[0]


# Drawing


def _draw(name: str, dtype: DType, numbers: tuple[float, float], place: tuple[Any, ...]) -> Any:
    """A draw; `numbers` are what the distribution needs."""
    function = f"random.{name}"
    shape, seed, offset, device, like, out = place
    extents, library = _shape(function, shape, out), _library(function, device, like, out)
    draw = Distribution(name, dtype)
    key, first = _start(function, draw, extents, seed, offset)
    coded = [_signed(key), first, *(_coded(draw, v) for v in numbers)]
    state = library.constant(coded, i64)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, arrays[0], Shape(extents, dtype), draw)

    return run(_PLANS, function, library, ("state",), [state], (extents, draw), make, out)


def _start(
    function: str, draw: Distribution, extents: tuple[int, ...], seed: Any, offset: Any
) -> tuple[int, int]:
    """The key and the number of the first element."""
    try:
        first, key = index(offset), None if seed is None else index(seed) % 2**64
    except TypeError:
        what = f"is {seed!r} and `offset` {offset!r}; both are integers"
        raise refused(function, "seed", what, "") from None
    if not 0 <= first < 2**62:
        raise wrong(function, f"`offset` is {first}; it counts elements, from 0 to 2**62 - 1")
    if key is not None:
        return key, first
    if first:
        raise wrong(function, "`offset` is given without `seed`")
    key, block = DEFAULT.take(-(-prod(extents) // draw.count))
    return key, block * draw.count


def _signed(bits: int) -> int:
    """64 bits as an integer with a sign."""
    return bits - 2**64 if bits >= 2**63 else bits


def _coded(draw: Distribution, v: float) -> int:
    """A number of the distribution as bits of the type that it computes in."""
    if draw.name == "bernoulli":
        return int(v)
    if draw.computed is f64:
        return struct.unpack("<q", struct.pack("<d", v))[0]
    try:
        return struct.unpack("<i", struct.pack("<f", v))[0]
    except OverflowError:
        raise wrong(f"random.{draw.name}", f"{v} does not fit f32") from None


def _plan(planner: Planner, state: Memory, shape: Shape, draw: Distribution) -> None:
    result = planner.result(shape)
    count = prod(shape.extents)
    if not count:
        return
    if result.is_contiguous:
        flat, copied = replace(result, shape=(count,), strides=(shape.dtype.itemsize,)), False
    else:
        flat, copied = planner.scratch((count,), shape.dtype), True
    tiling = random_tiling(planner.target)
    blocks = -(-count // draw.count) + 1
    units = -(-blocks // (tiling.line * tiling.steps))
    wide = is_wide(planner.target)
    grid = Over(-(-units // UNITS), "cube", UNITS) if wide else Over(units, "cube", 1)
    planner.launch(draw_numbers, grid, state=state, out=flat, draw=draw, tiling=tiling)
    if copied:
        launch_each(planner, same, [_reshaped(flat, result.shape)], result)


def _reshaped(flat: Memory, shape: tuple[int, ...]) -> Memory:
    """A dense array with axes of these extents."""
    strides, step = [], flat.dtype.itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return replace(flat, shape=shape, strides=tuple(reversed(strides)))
