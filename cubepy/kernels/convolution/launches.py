"""How a convolution is launched on CPUs: as a product of matrices, by bands, squares, lanes, lines
or dot products, or each result for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.config import get
from cubepy.jit.grid import Over
from cubepy.kernels.calls.epilogues import may_read_index
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.convolution import lane_strategies, points, strategies
from cubepy.kernels.convolution.blocks import convolve_bands
from cubepy.kernels.convolution.dots import Dots, convolve_dots
from cubepy.kernels.convolution.each import convolve_each
from cubepy.kernels.convolution.lane_strategies import Division
from cubepy.kernels.convolution.lanes import convolve_lanes, pack_lanes
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.planes import convolve_planes
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.variants import others, problem_key
from cubepy.kernels.convolution.volumes import (
    channels_last,
    problem_of,
)
from cubepy.kernels.convolution.weights import (
    PRECISIONS,
    Weights,
    matrix_of,
    pack_panels,
    packing_of,
)
from cubepy.kernels.convolution.winograd import Squares, convolve_squares
from cubepy.kernels.matmul.entry import multiply
from cubepy.kernels.matmul.problem import Product, turned
from cubepy.kernels.matmul.strategies import is_cpu
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.record import dataclass
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Convolution:
    """The operands of one convolution; `x` and `out` are [n, channel, depth, row, column]."""

    problem: Problem
    x: Memory
    weights: Weights
    out: Memory
    biases: tuple[Memory, ...]
    epilogue: Callable[..., Any] | None
    extras: tuple[Memory, ...]

    @property
    def beside(self) -> dict[str, Any]:
        """What kernels take beside arrays and their configuration."""
        return {
            "biases": self.biases,
            "extras": self.extras,
            "window": self.problem.window,
            "epilogue": self.epilogue,
        }


def launch_convolution(planner: Planner, c: Convolution) -> None:
    """Fill `out` in the fastest way that the target and the operands allow."""
    if is_cpu(planner.target):
        _launch_on_cpu(planner, c)
    else:
        from cubepy.kernels.convolution import on_gpus

        on_gpus.launch(planner, c)


def _launch_on_cpu(planner: Planner, c: Convolution) -> None:
    problem, packing, target = c.problem, c.weights.packing, planner.target
    is_plain = packing is None
    if isinstance(packing, Packing) and (t := _squares(target, c, packing)):
        _launch_squares(planner, c, t)
    elif is_plain and is_product(c):
        launch_product(planner, replace(c, x=points.dense(planner, problem, c.x)))
    elif is_plain and (division := _lanes(target, c)):
        _launch_lanes(planner, c, division)
    elif is_plain and strategies.goes_by_lines(target, problem, c.x, c.out):
        _launch_by_lines(planner, c)
    elif is_plain and (t := strategies.dots(target, problem)) is not None:
        _launch_dots(planner, c, t)
    elif strategies.is_blocked(c.weights.shape, problem.groups):
        _launch_bands(planner, c)
    else:
        launch_each(planner, c)


def is_product(c: Convolution) -> bool:
    """Whether pixels are multiplied by filters as they lie, and nothing comes behind."""
    plain = c.problem.window.is_point and c.problem.groups == 1 and c.epilogue is None
    return plain and points.is_flat(c.out)


def launch_product(planner: Planner, c: Convolution) -> None:
    """A window of one element: pixels by channels times channels by filters, or turned."""
    w = matrix_of(c.weights.volume)
    w = replace(w, shape=(c.problem.batch, *w.shape), strides=(0, *w.strides))
    x, out = points.flat(c.x), points.flat(c.out)
    biases = tuple(replace(b, shape=out.shape, strides=(0, b.strides[0], 0)) for b in c.biases)
    if c.problem.puts_channels_last:
        turned_biases = tuple(map(turned, biases))
        product = Product(turned(x), turned(w), turned(out), turned_biases, None, ())
    else:
        product = Product(w, x, out, biases, None, ())
    multiply(planner, product)


def _launch_bands(planner: Planner, c: Convolution) -> None:
    weights, p = c.weights, c.weights.packing
    problem, panels = c.problem, weights.memory
    if p is None:
        p = packing_of(planner.target, weights, problem.groups)
        size = p.elements(
            problem.groups, problem.group_filters, problem.group_channels, problem.window.taps
        )
        panels = planner.scratch((size,), p.stored)
        pack_panels(planner, weights.volume, panels, problem.groups, p)
    if not isinstance(p, Packing) or p.has_unit:
        from cubepy.kernels.convolution import on_units

        on_units.launch(planner, c, p, panels)
        return
    c = _in_long_rows(planner.target, c, p)
    problem = c.problem
    rule = strategies.bands(planner.target, problem, p)
    t = planner.pick(
        "convolution",
        problem_key(problem),
        rule,
        lambda: others(rule, problem, get("scratch_bytes")),
    )
    shares = -(-p.panels(problem.group_filters) // t.panels)
    bands, strips = -(-problem.results[1] // t.band), -(-problem.results[2] // t.strip)
    planner.launch(
        convolve_bands,
        problem.batch * problem.results[0] * bands * strips * problem.groups * shares,
        x=source_of(c.x, t),
        panels=panels,
        out=channels_last(c.out) if t.puts_channels_last else c.out,
        groups=problem.groups,
        band=t.band,
        strip=t.strip,
        panels_each=t.panels,
        t=t.compiled,
        **c.beside,
    )


def _in_long_rows(target: Target, c: Convolution, p: Packing) -> Convolution:
    """The same with pixels in longer rows, where rows are turned, windows have one element, and
    nobody asks for the place of a result."""
    is_placed = c.epilogue is not None and may_read_index(c.epilogue)
    is_free = not is_placed and points.can_lie_in_rows(c.problem, c.x, c.out)
    if c.problem.has_channels_last or not is_free:
        return c
    columns = strategies.point_columns(target, c.problem, p)
    x, out = points.in_rows(c.x, columns), points.in_rows(c.out, columns)
    problem = problem_of(c.problem.window, c.problem.groups, x, out)
    return replace(c, problem=problem, x=x, out=out)


def _squares(target: Target, c: Convolution, packing: Packing) -> Squares | None:
    packed = c.weights.packed
    size = 0 if packed is None else PRECISIONS[packed.precision]
    return strategies.squares_for(target, c.problem, packing, size, get("scratch_bytes"))


def _launch_squares(planner: Planner, c: Convolution, t: Squares) -> None:
    problem = c.problem
    shares = -(-t.packing.panels(problem.filters) // t.panels)
    bands, stripes = -(-problem.results[1] // t.bands.band), -(-problem.results[2] // t.width)
    planner.launch(
        convolve_squares,
        -(-problem.batch // t.images) * bands * stripes * shares,
        x=source_of(c.x, t.bands),
        panels=c.weights.memory,
        out=channels_last(c.out) if t.bands.puts_channels_last else c.out,
        images=t.images,
        down=t.down,
        across=t.across,
        panels_each=t.panels,
        t=t.compiled,
        **c.beside,
    )


def source_of(x: Memory, t: Any) -> Memory:
    """The array in the order that the kernel of a division reads."""
    x = channels_last(x) if t.has_channels_last else x
    if not t.has_whole_rows:
        return x
    shape = (*x.shape[:3], x.shape[3] * x.shape[4])
    return replace(x, shape=shape, strides=(*x.strides[:3], x.strides[4]))


def _launch_by_lines(planner: Planner, c: Convolution) -> None:
    """Lines of pixels."""
    t, p = strategies.planes(planner.target, c.problem), c.problem
    planner.launch(
        convolve_planes,
        p.batch * p.results[0] * p.filters * -(-p.results[1] // t.band),
        x=c.x,
        weight=c.weights.volume,
        out=c.out,
        t=t,
        **c.beside,
    )


def _lanes(target: Target, c: Convolution) -> Division | None:
    is_placed = c.epilogue is not None and may_read_index(c.epilogue)
    return lane_strategies.division(target, c.problem, c.x, c.out, is_placed)


def _launch_lanes(planner: Planner, c: Convolution, d: Division) -> None:
    """Lines of filters of several groups; weights are packed at each call."""
    p, t = c.problem, d.lanes
    lines = -(-p.filters // t.step)
    each = p.window.taps * p.group_channels * t.packing.line
    panels = planner.scratch((lines * each,), p.sums)
    planner.launch(pack_lanes, lines, weight=c.weights.volume, panels=panels, t=t)
    cuts = -(-p.results[1] // d.band) * -(-p.results[2] // d.strip)
    planner.launch(
        convolve_lanes,
        p.batch * p.results[0] * cuts * -(-lines // d.lines),
        x=_as_read(c.x, t.has_channels_last, t.is_dense),
        panels=panels,
        out=_as_read(c.out, t.puts_channels_last, t.is_flat),
        extents=p.extents[1:],
        results=p.results[1:],
        cut=(d.lines, d.band, d.strip, d.pitch),
        t=t,
        **c.beside,
    )


def _launch_dots(planner: Planner, c: Convolution, t: Dots) -> None:
    """Runs of taps and channels, which are dense in the array, and in a copy of the weights."""
    x, weight = channels_last(c.x), channels_last(c.weights.volume)
    dense = planner.scratch(weight.shape, weight.dtype)
    copy_transposed(planner, weight, dense)
    planner.launch(
        convolve_dots,
        c.problem.batch * c.problem.results[0] * -(-c.problem.results[1] // t.band),
        x=_in_runs(x),
        weight=_in_runs(dense),
        out=channels_last(c.out),
        t=t,
        **c.beside,
    )


def _as_read(x: Memory, is_last: bool, is_one_row: bool) -> Memory:
    """The array in the order that lanes are brought and stored in; planes as one row."""
    if is_last:
        return channels_last(x)
    if not is_one_row:
        return x
    shape = (*x.shape[:3], 1, x.shape[3] * x.shape[4])
    return replace(x, shape=shape, strides=(*x.strides[:3], 0, x.strides[4]))


def _in_runs(x: Memory) -> Memory:
    """[..., column, channel] as rows of elements, which lie side by side."""
    *rest, columns, channels = x.shape
    strides = (*x.strides[:3], x.dtype.itemsize)
    return replace(x, shape=(*rest, columns * channels), strides=strides)


def launch_each(planner: Planner, c: Convolution) -> None:
    """A unit for each result."""
    t = strategies.each(c.problem)
    planner.launch(
        convolve_each,
        Over(prod(c.out.shape), "unit", t.units),
        x=c.x,
        weight=c.weights.volume,
        out=c.out,
        groups=c.problem.groups,
        t=t,
        **c.beside,
    )
