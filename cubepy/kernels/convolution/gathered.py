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
from cubepy.kernels.convolution.tensor_cores import FILTERS, Tiles, convolve_tiles, join_tiles
from cubepy.kernels.convolution.volumes import VOLUME, channels_last, permuted
from cubepy.kernels.convolution.waves import axes_of, count, run_of
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.lang import pipelines
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
    source = _readable(planner, channels_last(x))
    weights, is_turned, is_reversed = _weights(planner, weight)
    box = (1,) * len(t.kernel)
    box = (t.depth, *box, FILTERS) if is_turned else (FILTERS * t.down, *box, t.depth)
    t = replace(t, is_turned=is_turned, is_reversed=is_reversed)
    result = writable(planner, out)
    shape = (tiles * t.parts, t.consumers, t.pixels // 2, pipelines.WARPGROUP)
    partial = (planner.scratch(shape, f32),) if t.parts > 1 else ()
    seen = _without(channels_last(result), trivial)
    ends = {"biases": biases, "extras": extras, "epilogue": epilogue}
    planner.launch(
        convolve_tiles.configure(cubes_per_sm=1),
        Fixed((min(planner.target.multiprocessors, tiles * t.parts), 1, 1), (t.units, 1, 1)),
        x=tensor_map_im2col(
            _without(source, trivial),
            *(t.run, t.depth, run.lower, run.upper, t.stride, t.swizzle),
        ),
        weight=tensor_map(
            _without(weights, trivial), box, pipelines.ROW_BYTES if is_turned else t.swizzle
        ),
        out=seen,
        tiles=tiles * t.parts,
        partial=partial,
        t=t,
        **ends,
    )
    if partial:
        cubes = Fixed((tiles, 1, 1), (t.consumers * pipelines.WARPGROUP, 1, 1))
        planner.launch(join_tiles, cubes, partial=partial[0], out=seen, t=t, **ends)
    if result is not out:
        copy_transposed(planner, result, out)


def launch_weight_gradient(
    planner: Planner, problem: Problem, t: Parts, x: Memory, grad: Memory, out: Memory
) -> None:
    """`x` and `grad`: [n, channel, depth, row, column], `out`: [filter, channel, ...]."""
    run, trivial = run_of(problem, 0), 3 - axes_of(problem)
    none, ones = (0,) * len(t.kernel), (1,) * len(t.kernel)
    source, seen = (_without(_readable(planner, channels_last(a)), trivial) for a in (x, grad))
    result, is_last = channels_last(out), out.strides[1] == out.dtype.itemsize
    sums = result
    if t.parts > 1:
        sums = planner.scratch((t.parts, t.filters, t.columns, SIDE), f32)
    planner.launch(
        sum_products.configure(cubes_per_sm=1),
        Fixed((t.tiles * t.parts, 1, 1), (t.units, 1, 1)),
        x=tensor_map_im2col(source, SIDE, SIDE, run.lower, run.upper, t.stride, 2 * SIDE),
        grad=tensor_map_im2col(seen, SIDE, SIDE, none, none, ones, 2 * SIDE),
        sums=sums,
        is_last=is_last,
        t=t,
    )
    if t.parts > 1:
        units = prod(out.shape) // (LINE if is_last else 1)
        grid = Over(units, "unit", UNITS)
        planner.launch(add_parts, grid, sums=sums, out=result, is_last=is_last, t=t)


def _without(x: Memory, trivial: int) -> Memory:
    """[n, ..., channel] without so many of the axes behind the first."""
    shape, strides = ((part[0], *part[1 + trivial :]) for part in (x.shape, x.strides))
    return replace(x, shape=shape, strides=strides)


def is_readable(x: Memory) -> bool:
    """Whether a tensor map can describe an array whose last axis is dense."""
    places = [x.address, *(s for n, s in zip(x.shape, x.strides, strict=True) if n > 1)]
    dense = x.strides[-1] == x.dtype.itemsize
    return dense and not any(s < 0 or s % _UNIT for s in places[:-1])


def _readable(planner: Planner, last: Memory) -> Memory:
    """[..., channel] as a tensor map can describe it; perhaps a copy."""
    if is_readable(last):
        return _with_rows(last)
    made = planner.scratch(last.shape, last.dtype)
    copy_transposed(planner, last, made)
    return made


def _with_rows(x: Memory) -> Memory:
    """The array with strides that a tensor map takes, for axes of one element too."""
    row = -(-x.shape[-1] * x.dtype.itemsize // _UNIT) * _UNIT
    steps = (s if n > 1 else row for n, s in zip(x.shape[:-1], x.strides[:-1], strict=True))
    return replace(x, strides=(*steps, x.dtype.itemsize))


def _weights(planner: Planner, weight: Memory) -> tuple[Memory, bool, bool]:
    """[filter, channel, ...] as the kernel reads them, whether turned, and whether reversed.

    That is [filter, ..., channel], or [channel, ..., filter] turned; perhaps a copy.
    """
    last = channels_last(weight)
    ahead = _ahead(last)
    for found, is_turned in ((ahead, False), (permuted(ahead, (4, 1, 2, 3, 0)), True)):
        if is_readable(found):
            return _with_rows(found), is_turned, ahead.address != last.address
    return _readable(planner, last), False, False


def _ahead(last: Memory) -> Memory:
    """[filter, depth, row, column, channel] with the taps in the order of memory, if all are
    reversed there; else as they are."""
    taps = [(n, s) for n, s in zip(last.shape[1:-1], last.strides[1:-1], strict=True) if n > 1]
    if not taps or any(s > 0 for _, s in taps):
        return last
    strides = (last.strides[0], *(abs(s) for s in last.strides[1:-1]), last.strides[-1])
    address = last.address + sum((n - 1) * s for n, s in taps)
    return replace(last, address=address, strides=strides)


def ordered(planner: Planner, x: Memory) -> Memory:
    """[n, channel, ...] as tensor maps describe it, for several launches; perhaps a copy."""
    last = channels_last(x)
    return x if is_readable(last) else permuted(_readable(planner, last), VOLUME)


def writable(planner: Planner, out: Memory) -> Memory:
    """An array [n, channel, ...] with the channels last that several launches fill: `out` itself,
    or one that is to be copied to it."""
    last = channels_last(out)
    if last.strides[-1] == out.dtype.itemsize:
        return out
    return permuted(planner.scratch(last.shape, out.dtype), VOLUME)


def has_taps(weight: Memory) -> bool:
    """Whether weights [filter, channel, ...] are read as they are."""
    return is_readable(channels_last(weight))


def copy_taps(planner: Planner, weight: Memory, out: Memory) -> None:
    """Copy weights [filter, channel, ...] to where channels are last in memory."""
    copy_transposed(planner, channels_last(weight), channels_last(out))
