"""Gradients of convolutions by their weights: `conv1d_weight_grad`, `conv2d_weight_grad`,
`conv3d_weight_grad`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import DType, Kind
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import number_of, refused, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.convolution import points, waves
from cubepy.kernels.convolution.gathered import launch_weight_gradient
from cubepy.kernels.convolution.narrow import Filling, fill_pixels, filled, joined, weights_room
from cubepy.kernels.convolution.problem import Problem, make_window
from cubepy.kernels.convolution.strategies import weight_products, weight_sums
from cubepy.kernels.convolution.transposed import check_gradient, extents_of
from cubepy.kernels.convolution.variants import problem_key
from cubepy.kernels.convolution.volumes import (
    VOLUME,
    as_volumes,
    channels_last,
    has_channels_last,
    permuted,
    problem_of,
)
from cubepy.kernels.convolution.weight_gradient import sum_each, sum_lines
from cubepy.kernels.convolution.weight_products import Products, multiply_pixels
from cubepy.kernels.convolution.weights import Weights, matrix_of
from cubepy.kernels.elementwise.launches import launch_each, same
from cubepy.kernels.matmul.entry import multiply
from cubepy.kernels.matmul.problem import Product, result_of, turned
from cubepy.kernels.transposition.entry import copy_transposed

_PLANS = Plans()
PIXELS = 64
"""Pixels that are walked for one tap before the next, at least."""


def conv1d_weight_grad(
    x: Any,
    weight_size: Sequence[int],
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Any = None,
) -> Any:
    """As `conv2d_weight_grad` with one axis less."""
    options = (stride, padding, dilation, groups)
    return _weight_grad("conv1d_weight_grad", 1, x, weight_size, grad_output, options, out)


def conv2d_weight_grad(
    x: Any,
    weight_size: Sequence[int],
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Any = None,
) -> Any:
    """The gradient of `conv2d` by its weights, as `torch.nn.grad.conv2d_weight`.

    `x` and the parameters are those of the convolution, `weight_size` is the shape of its weights,
    `grad_output` the gradient by its result. Gives an array of that shape, with the channels last
    in memory where both have them so, or fills `out`. f16 and bf16 are added in f32 and rounded
    once; the error of a sum is at most its length times 2**-24 (f64: 2**-53) times the sum of
    absolute products. Raises `LaunchError` for shapes that do not fit, `LaunchTypeError` for dtypes
    that do not.
    """
    options = (stride, padding, dilation, groups)
    return _weight_grad("conv2d_weight_grad", 2, x, weight_size, grad_output, options, out)


def conv3d_weight_grad(
    x: Any,
    weight_size: Sequence[int],
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Any = None,
) -> Any:
    """As `conv2d_weight_grad` with one axis more."""
    options = (stride, padding, dilation, groups)
    return _weight_grad("conv3d_weight_grad", 3, x, weight_size, grad_output, options, out)


def _weight_grad(
    function: str,
    axes: int,
    x: Any,
    weight_size: Any,
    grad_output: Any,
    options: tuple[Any, ...],
    out: Any,
) -> Any:
    shape = extents_of(function, "weight_size", weight_size)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        stride, padding, dilation, groups = options
        groups = number_of(function, "groups", groups)
        x, grad = arrays
        _check(function, axes, x, shape, grad, groups)
        window = make_window(function, axes, shape[2:], stride, padding, dilation)
        check_gradient(function, axes, window, ("x", x.shape), grad, shape[1] * groups)
        seen, grads = as_volumes(x, axes, False), as_volumes(grad, axes, False)
        both = has_channels_last(seen) and has_channels_last(grads)
        order = (0, *range(2, len(shape)), 1) if both else None
        result = planner.result(Shape(shape, result_of(x.dtype), order))
        if 0 in shape:
            return
        problem = problem_of(window, groups, seen, grads)
        _launch(planner, problem, seen, grads, Weights(result, None).volume)

    names = ("x", "grad_output")
    return call(_PLANS, function, names, (x, grad_output), (shape, *options), make, out)


def _check(
    function: str, axes: int, x: Memory, shape: tuple[int, ...], grad: Memory, groups: int
) -> None:
    if len(shape) != axes + 2 or len(x.shape) not in (axes + 1, axes + 2):
        reason = f"`x` has shape {x.shape} and `weight_size` is {shape}"
        raise wrong(function, reason, f"they have {axes + 1} or {axes + 2}, and {axes + 2} axes")
    if groups < 1 or shape[0] % groups:
        raise wrong(function, f"`groups` is {groups!r}, `weight_size` is {shape}")
    if x.dtype is not grad.dtype:
        kinds = f"`x` is {x.dtype}, `grad_output` is {grad.dtype}"
        raise fail("E602", function=function, reason=kinds, suggestion="convert them to one dtype")
    if x.dtype.kind is Kind.BOOL:
        raise refused(function, "x", "has dtype bool_", "convert it")
    if len(grad.shape) != len(x.shape) or grad.shape[-axes - 1] != shape[0]:
        reason = f"`grad_output` has shape {grad.shape}, `x` {x.shape} and `weight_size` is {shape}"
        raise wrong(function, reason, f"`grad_output` has {shape[0]} channels")


def _launch(planner: Planner, problem: Problem, x: Memory, grad: Memory, out: Memory) -> None:
    ways = waves.divisions(planner.target, problem, x.dtype)
    if ways:
        launch_weight_gradient(planner, problem, ways[0], x, grad, out)
        return
    fillings = waves.gradient_fillings(planner.target, problem, x.dtype)
    if fillings:
        key = ("narrow gradient", *problem_key(problem), x.dtype)
        f = planner.pick_among("convolution", key, fillings)
        _launch_filled(planner, problem, f, x, grad, out)
        return
    if problem.window.is_point and problem.groups == 1:
        _launch_points(planner, problem, x, grad, out)
        return
    products = weight_products(planner.target, problem)
    if products is not None:
        _launch_products(planner, problem, products, x, grad, out)
        return
    t = weight_sums(planner.target, problem)
    common = {"grad": grad, "out": out, "groups": problem.groups, "window": problem.window, "t": t}
    if t.units > 1:
        planner.launch(sum_each, Over(prod(out.shape), "unit", t.units), x=x, **common)
        return
    cubes = problem.groups * -(-problem.group_filters // t.filters) * problem.group_channels
    step = problem.window.stride[2]
    xs = tuple(_every(x, first, step) for first in range(step))
    planner.launch(sum_lines, cubes, xs=xs, **common)


def _launch_filled(
    planner: Planner, problem: Problem, f: Filling, x: Memory, grad: Memory, out: Memory
) -> None:
    """On tensor cores with the channels filled up, of whose gradients those are copied that are
    wanted."""
    wide = filled(problem, f)
    way = waves.divisions(planner.target, wide, x.dtype)[0]
    made = weights_room(planner, problem, out.dtype, f)
    pixels = fill_pixels(planner, problem, x, f)
    launch_weight_gradient(planner, wide, way, pixels, grad, joined(made, f))
    launch_each(planner, same, [replace(permuted(made, VOLUME), shape=out.shape)], out)


def _launch_points(
    planner: Planner, problem: Problem, x: Memory, grad: Memory, out: Memory
) -> None:
    """Windows of one element: gradients by what they met, a product of matrices over all pixels."""
    left = points.matrix(planner, grad)
    right = points.matrix(planner, points.seen(problem, x))
    result = matrix_of(out)
    result = replace(result, shape=(1, *result.shape), strides=(0, *result.strides))
    multiply(planner, Product(turned(left), right, result, (), None, ()))


def _launch_products(
    planner: Planner, problem: Problem, t: Products, x: Memory, grad: Memory, out: Memory
) -> None:
    blocks = -(-problem.group_filters // t.filters)
    parts = -(-problem.group_channels // t.step)
    rows = problem.window.kernel[0] * problem.window.kernel[1]
    planner.launch(
        multiply_pixels,
        problem.groups * blocks * parts * rows,
        x=_channels_last(planner, x, t.step, t.dtype),
        grad=_channels_last(planner, grad, t.filters, t.dtype),
        out=out,
        groups=problem.groups,
        band=-(-PIXELS // problem.results[2]),
        window=problem.window,
        t=t,
    )


def _channels_last(planner: Planner, x: Memory, step: int, dtype: DType) -> Memory:
    """The volume as [batch, depth, rows, columns, channels], copied where its channels are not
    dense in memory, are of another type, or do not end in a whole step."""
    seen = channels_last(x)
    channels = seen.shape[4]
    if x.dtype is dtype and channels % step == 0 and seen.strides[4] == dtype.itemsize:
        return seen
    made = planner.scratch((*seen.shape[:4], -(-channels // step) * step), dtype)
    part = replace(made, shape=seen.shape)
    if x.dtype is dtype:
        copy_transposed(planner, seen, part)
    else:
        launch_each(planner, same, [seen], part)
    return made


def _every(x: Memory, first: int, step: int) -> Memory:
    """The columns from `first` on in steps."""
    count = max(0, -(-(x.shape[4] - first) // step))
    return replace(
        x,
        address=x.address + (first * x.strides[4] if count else 0),
        shape=(*x.shape[:4], count),
        strides=(*x.strides[:4], x.strides[4] * step),
    )
