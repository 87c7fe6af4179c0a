"""Convolutions on Hopper's tensor cores: operands in the order that these read, and the launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import f32
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.tensor_core_gradient import (
    LINE,
    SIDE,
    Parts,
    add_parts,
    sum_products,
)
from cubepy.kernels.convolution.tensor_cores import FILTERS, Tiles, convolve_tiles
from cubepy.kernels.convolution.waves import axes_of, count, run_of
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.lang.cuda import tensor_map, tensor_map_im2col

UNITS = 256
"""Units of a cube that adds sums."""
_UNIT = 16
"""Bytes that addresses and strides of tensor maps are multiples of."""


def launch_gathered(
    planner: Planner,
    problem: Problem,
    t: Tiles,
    x: Memory,
    weight: Memory,
    out: Memory,
    biases: tuple[Memory, ...],
    extras: tuple[Memory, ...],
    epilogue: Callable[..., Any] | None,
) -> None:
    """`x` and `out`: [n, channel, depth, row, column], `weight`: [filter, channel, ...], in any
    order in memory: what the kernel does not read or write so is copied."""
    run, tiles, trivial = run_of(problem, t.shared), count(t), 3 - axes_of(problem)
    source, taps = _readable(planner, x), _flat(planner, _readable(planner, weight))
    result = channels_last(out)
    is_kept = result.strides[-1] == out.dtype.itemsize
    if not is_kept:
        result = planner.scratch(result.shape, out.dtype)
    planner.launch(
        convolve_tiles.configure(cubes_per_sm=1),
        Fixed((min(planner.target.multiprocessors, tiles), 1, 1), (t.units, 1, 1)),
        x=tensor_map_im2col(
            _without(source, trivial),
            *(t.run, t.depth, run.lower, run.upper, t.stride, t.swizzle),
        ),
        weight=tensor_map(taps, (FILTERS * t.down, 1, t.depth), t.swizzle),
        out=_without(result, trivial),
        biases=biases,
        extras=extras,
        tiles=tiles,
        epilogue=epilogue,
        t=t,
    )
    if not is_kept:
        copy_transposed(planner, permuted(result, (0, 4, 1, 2, 3)), out)


def launch_weight_gradient(
    planner: Planner, problem: Problem, t: Parts, x: Memory, grad: Memory, out: Memory
) -> None:
    """`x` and `grad`: [n, channel, depth, row, column], `out`: [filter, channel, ...]."""
    run, trivial = run_of(problem, 0), 3 - axes_of(problem)
    none, ones = (0,) * len(t.kernel), (1,) * len(t.kernel)
    source, seen = (_without(_readable(planner, a), trivial) for a in (x, grad))
    sums = planner.scratch((t.parts, t.filters, t.columns, SIDE), f32)
    planner.launch(
        sum_products.configure(cubes_per_sm=1),
        Fixed((t.tiles * t.parts, 1, 1), (t.units, 1, 1)),
        x=tensor_map_im2col(source, SIDE, SIDE, run.lower, run.upper, t.stride, 2 * SIDE),
        grad=tensor_map_im2col(seen, SIDE, SIDE, none, none, ones, 2 * SIDE),
        sums=sums,
        t=t,
    )
    result = channels_last(out)
    planner.launch(
        add_parts, Over(prod(out.shape) // LINE, "unit", UNITS), sums=sums, out=result, t=t
    )


def channels_last(x: Memory) -> Memory:
    """[n, channel, depth, row, column] as [n, depth, row, column, channel]."""
    return permuted(x, (0, 2, 3, 4, 1))


def permuted(x: Memory, order: tuple[int, ...]) -> Memory:
    """The axes in another order."""
    shape, strides = (tuple(part[k] for k in order) for part in (x.shape, x.strides))
    return replace(x, shape=shape, strides=strides)


def _without(x: Memory, trivial: int) -> Memory:
    """[n, ..., channel] without so many of the axes behind the first."""
    shape, strides = ((part[0], *part[1 + trivial :]) for part in (x.shape, x.strides))
    return replace(x, shape=shape, strides=strides)


def _flat(planner: Planner, weight: Memory) -> Memory:
    """[filter, depth, row, column, channel] as [filter, tap, channel]; perhaps a copy."""
    found = _taps(weight)
    if found is None:
        made = planner.scratch(weight.shape, weight.dtype)
        copy_transposed(planner, weight, made)
        found = _taps(made)
    assert found is not None
    return found


def _taps(weight: Memory) -> Memory | None:
    """[filter, tap, channel]; None where taps do not lie at one distance."""
    size, (filters, *kernel, channels) = weight.dtype.itemsize, weight.shape
    step = distance = 0
    for n, stride in zip(reversed(kernel), reversed(weight.strides[1:-1]), strict=True):
        if n > 1:
            if distance and stride != distance:
                return None
            step, distance = step or stride, n * stride
    strides = weight.strides[0], step or channels * size, size
    return replace(weight, shape=(filters, prod(kernel), channels), strides=strides)


def has_taps(weight: Memory) -> bool:
    """Whether weights [filter, channel, ...] are read as they are."""
    last = channels_last(weight)
    return is_readable(last) and _taps(last) is not None


def copy_taps(planner: Planner, weight: Memory, out: Memory) -> None:
    """Copy weights [filter, channel, ...] to where channels are last in memory."""
    copy_transposed(planner, channels_last(weight), channels_last(out))


def is_readable(x: Memory) -> bool:
    """Whether a tensor map can describe [..., channel]."""
    places = [x.address, *(s for n, s in zip(x.shape, x.strides, strict=True) if n > 1)]
    dense = x.strides[-1] == x.dtype.itemsize
    return dense and not any(s < 0 or s % _UNIT for s in places[:-1])


def _readable(planner: Planner, x: Memory) -> Memory:
    """[n, channel, ...] with the channels last, as a tensor map can describe it; perhaps a copy."""
    last = channels_last(x)
    if is_readable(last):
        row = x.shape[1] * x.dtype.itemsize
        steps = tuple(s if n > 1 else row for n, s in zip(last.shape, last.strides, strict=True))
        return replace(last, strides=(*steps[:-1], last.strides[-1]))
    made = planner.scratch(last.shape, x.dtype)
    copy_transposed(planner, last, made)
    return made
