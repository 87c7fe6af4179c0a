"""How a convolution is launched on GPUs: on tensor cores, as a product of matrices, by strips or
columns of pixels, by tiles, or each result for itself. Calls on CPUs load nothing of it."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.jit.grid import Over
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.convolution import few_channels, points, tile_strategies, waves
from cubepy.kernels.convolution.columns import Columns, convolve_columns
from cubepy.kernels.convolution.gathered import copy_taps, has_taps, launch_gathered
from cubepy.kernels.convolution.groups import Strips, convolve_groups
from cubepy.kernels.convolution.launches import (
    Convolution,
    is_product,
    launch_each,
    launch_product,
)
from cubepy.kernels.convolution.narrow import Filling, fill_pixels, fill_weights, filled
from cubepy.kernels.convolution.patches import launch_patches, takes_patches
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.tensor_cores import PIECE, Tiles
from cubepy.kernels.convolution.tiles import LINE_BYTES, Tile, convolve_by_tiles, join_parts
from cubepy.kernels.convolution.variants import problem_key
from cubepy.kernels.convolution.volumes import channels_last, has_channels_last
from cubepy.kernels.convolution.weights import Weights
from cubepy.kernels.matmul.problem import BOX_UNIT
from cubepy.kernels.transposition.entry import copy_transposed

_PLANS = Plans()
JOINING_UNITS = 128
"""Units of a cube that joins parts of sums."""


def launch(planner: Planner, c: Convolution) -> None:
    """Fill `out` in the fastest way that the target and the operands allow."""
    problem, target = c.problem, planner.target
    if takes_patches(c):
        launch_patches(planner, c)
        return
    tilings = [] if _is_better_product(c) else waves.tilings(target, problem, c.x.dtype)
    fillings = [] if is_product(c) else waves.fillings_of(target, problem, c.x.dtype)
    if tilings:
        _launch_gathered(planner, problem, tilings, c.x, c.weights.volume, c)
    elif fillings:
        key = ("narrow", *problem_key(problem), c.x.dtype)
        _launch_filled(planner, c, planner.pick_among("convolution", key, fillings))
    elif is_product(c):
        launch_product(planner, replace(c, x=points.dense(planner, problem, c.x)))
    elif strips := few_channels.strips(target, problem, c.x.dtype):
        _launch_strips(planner, c, strips)
    elif columns := few_channels.columns(target, problem):
        _launch_columns(planner, c, columns)
    elif tile := tile_strategies.tile(target, problem, _line_of(c.out)):
        _launch_tiles(planner, c, tile)
    else:
        launch_each(planner, c)


def _launch_gathered(
    planner: Planner,
    problem: Problem,
    tilings: list[Tiles],
    x: Memory,
    weight: Memory,
    c: Convolution,
) -> None:
    """On Hopper's tensor cores: `x` and `weight` as `problem` has them."""
    key = (*problem_key(problem), x.dtype)
    t = planner.pick_among("convolution", key, waves.varied(tilings))
    launch_gathered(planner, problem, t, x, weight, c.out, c.biases, c.extras, c.epilogue)


def _launch_filled(planner: Planner, c: Convolution, f: Filling) -> None:
    """There, with the channels filled up."""
    problem = filled(c.problem, f)
    tilings = waves.tilings(planner.target, problem, c.x.dtype)
    x = fill_pixels(planner, c.problem, c.x, f)
    weight = fill_weights(planner, c.problem, c.weights.volume, f)
    _launch_gathered(planner, problem, tilings, x, weight, c)


def _is_better_product(c: Convolution) -> bool:
    """Whether it is a product of matrices that tensor maps describe, dense along pixels, or one of
    filters that are not in eights."""
    rows = prod(c.problem.results) * c.x.dtype.itemsize % BOX_UNIT == 0
    dense = not (c.problem.has_channels_last or c.problem.puts_channels_last)
    has_maps = rows and dense and max(c.problem.window.stride) == 1
    return is_product(c) and (has_maps or c.problem.filters % PIECE > 0)


def _launch_strips(planner: Planner, c: Convolution, t: Strips) -> None:
    """Strips of pixels; weights as they are."""
    *others, columns = (c.problem.batch, *c.problem.results)
    places = prod(others) * -(-columns // t.pixels)
    planner.launch(
        convolve_groups,
        Over(-(-places // t.down) * -(-c.problem.filters // t.filters), "cube", t.units),
        x=channels_last(c.x),
        weight=c.weights.volume,
        out=channels_last(c.out),
        t=t,
        **c.beside,
    )


def _launch_columns(planner: Planner, c: Convolution, t: Columns) -> None:
    """Parts of columns of pixels; weights as they are."""
    p = c.problem
    bands = -(-p.results[1] // t.rows)
    parts = p.batch * p.filters // t.filters * p.results[0] * bands * p.results[2]
    planner.launch(
        convolve_columns,
        Over(parts, "unit", t.units),
        x=c.x,
        weight=c.weights.volume,
        out=c.out,
        t=t,
        **c.beside,
    )


def _launch_tiles(planner: Planner, c: Convolution, t: Tile) -> None:
    """Tiles of pixels by filters; weights are copied to where filters are dense."""
    problem = c.problem
    pixels = problem.batch * prod(problem.results)
    weight = _dense_along_filters(planner, c.weights.volume, problem.groups, t.width)
    cubes = -(-pixels // t.height) * problem.groups * (weight.shape[3] // t.width)
    out = channels_last(c.out) if t.puts_channels_last else c.out
    ends: dict[str, Any] = {"biases": c.biases, "extras": c.extras, "epilogue": c.epilogue}
    parts, share = tile_strategies.parts_of_tiles(planner.target, problem, t)
    sums = planner.scratch((parts, *out.shape), t.sums) if parts > 1 else out
    planner.launch(
        convolve_by_tiles.configure(cubes_per_sm=2),
        Over(cubes * parts, "cube", t.units),
        x=channels_last(c.x),
        weight=weight,
        out=sums,
        filters=problem.group_filters,
        share=share,
        window=problem.window,
        t=t,
        **({"biases": (), "extras": (), "epilogue": None} if parts > 1 else ends),
    )
    if parts > 1:
        lines = Over(prod(out.shape) // t.line, "unit", JOINING_UNITS)
        planner.launch(join_parts, lines, sums=sums, out=out, t=t, **ends)


def _dense_along_filters(planner: Planner, w: Memory, groups: int, width: int) -> Memory:
    """Weights [filter, channel, depth, row, column] as [group, tap, channel, filter] with multiples
    of `width` filters; those that are too many are not set."""
    filters, (channels, *kernel) = w.shape[0] // groups, w.shape[1:]
    filled_up = -(-filters // width) * width
    made = planner.scratch((groups, *kernel, channels, filled_up), w.dtype)
    seen = replace(
        w,
        shape=(groups, *kernel, channels, filters),
        strides=(filters * w.strides[0], *w.strides[2:], w.strides[1], w.strides[0]),
    )
    copy_transposed(planner, seen, replace(made, shape=seen.shape))
    shape = (groups, prod(kernel), channels, filled_up)
    steps = (made.strides[0], made.strides[3], *made.strides[4:])
    return replace(made, shape=shape, strides=steps)


def _line_of(out: Memory) -> int:
    """Elements of a result that may be stored at once, along its channels or its columns."""
    is_dense = out.strides[4] == out.dtype.itemsize or has_channels_last(out)
    return LINE_BYTES // out.dtype.itemsize if is_dense else 1


def prepack(planner: Planner, weight: Any, w: Memory) -> Any:
    """Weights as tensor cores read them, if there are any and these are read otherwise."""
    seen = Weights(w, None).volume
    if not waves.has_tensor_cores(planner.target, w.shape[1:2], w.dtype) or has_taps(seen):
        return weight

    def make(planner: Planner, arrays: list[Memory]) -> None:
        (w,) = arrays
        order = (0, *range(2, len(w.shape)), 1)
        result = planner.result(Shape(w.shape, w.dtype, order))
        copy_taps(planner, Weights(w, None).volume, Weights(result, None).volume)

    return call(_PLANS, "prepack", ("weight",), (weight,), ("channels last",), make)
