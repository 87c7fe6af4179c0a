"""Convolutions: `conv1d`, `conv2d`, `conv3d`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.array.memory import Memory
from cubepy.frontend.signature import comptime_key
from cubepy.kernels.calls.arguments import number_of, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.epilogues import IMAGE_AXES, placed, places_of_images, with_bounds
from cubepy.kernels.calls.hooks import check_epilogue, parts_of_epilogue
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.convolution.launches import Convolution, launch_convolution
from cubepy.kernels.convolution.problem import make_window, result_extents, triple
from cubepy.kernels.convolution.volumes import LAYOUTS, as_volumes, order_of, problem_of
from cubepy.kernels.convolution.weights import Packed, Weights, check_dtypes, check_weight
from cubepy.kernels.matmul.problem import result_of

_PLANS = Plans()


def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCL",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """As `conv2d` with one axis less; `layout` is "NCL" or "NLC"."""
    options = (stride, padding, dilation, groups, layout)
    return _convolve("conv1d", 1, x, weight, bias, options, epilogue, out)


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCHW",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The cross-correlation of images with filters, as `torch.nn.functional.conv2d`.

    `x`: [n, channels, rows, columns], or without n; "NHWC" in `layout` means that channels are the
    last axis, of `x` and the result. `weight`: [filters, channels / groups, rows, columns] in both
    layouts, or what `prepack` gave; `bias`: one number for each filter, of the dtype of `x` or of
    its sums (f32 of short floats; i32 of short integers and u32 of u16, which results have then).
    `stride`, `padding`, `dilation`: ints, or one for each axis; the padding may also be "valid",
    "same", or a pair (before, after) for each axis. `epilogue`: as for `matmul`; its index is one
    of the result, and a line runs along channels where these lie densely in the result, else along
    columns. Gives an array of the library of `x`, with channels last in memory where `x` has them
    so; or fills `out`.

    f16 and bf16 are added in f32 and rounded once; processors with AVX512-BF16 take factors and
    sums of bf16 below 2**-126 for 0. The error of a sum is at most its length times
    2**-24 (f64: 2**-53) times the sum of absolute products. Products with the zeros of the padding
    may be left out: a weight that is infinite or NaN need not show where it meets these alone.
    Raises `LaunchError` for shapes and parameters that do not fit, `LaunchTypeError` for dtypes
    that do not.
    """
    options = (stride, padding, dilation, groups, layout)
    return _convolve("conv2d", 2, x, weight, bias, options, epilogue, out)


def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCDHW",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """As `conv2d` with one axis more; `layout` is "NCDHW" or "NDHWC"."""
    options = (stride, padding, dilation, groups, layout)
    return _convolve("conv3d", 3, x, weight, bias, options, epilogue, out)


def _convolve(
    function: str,
    axes: int,
    x: Any,
    weight: Any,
    bias: Any,
    options: tuple[Any, ...],
    epilogue: Any,
    out: Any,
) -> Any:
    packed = weight if isinstance(weight, Packed) else None
    after, extras, names_of_extras = parts_of_epilogue(epilogue)
    names = ("x", "weight", "bias", *names_of_extras)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        biases = tuple(arrays[2:3]) if bias is not None else ()
        rest = tuple(arrays[2 + len(biases) :])
        weights = Weights(arrays[1], packed)
        _plan(planner, axes, arrays[0], weights, biases, options, after, rest)

    about = None if packed is None else packed.about
    parameters = (*options, about, None if after is None else comptime_key(after))
    held = weight if packed is None else packed.panels
    return call(
        _PLANS, function, names, (x, held, bias, *extras), parameters, make, out, optional=("bias",)
    )


# What is done for one signature


def _plan(
    planner: Planner,
    axes: int,
    x: Memory,
    weights: Weights,
    biases: tuple[Memory, ...],
    options: tuple[Any, ...],
    epilogue: Callable[..., Any] | None,
    extras: tuple[Memory, ...],
) -> None:
    name = planner.function
    stride, padding, dilation, groups, layout = options
    check_epilogue(name, epilogue, len(extras))
    groups = number_of(name, "groups", groups)
    check_weight(name, weights, groups)
    if layout not in LAYOUTS[axes]:
        raise wrong(name, f"`layout` is {layout!r}", f"one of {', '.join(LAYOUTS[axes][:2])}")
    channels_last = layout.endswith("C")
    _check(name, axes, x, weights, biases, groups, channels_last)
    window = make_window(name, axes, weights.shape[2:], stride, padding, dilation)
    seen = as_volumes(x, axes, channels_last)
    results = result_extents(name, window, triple(seen.shape[2:]))
    filters = weights.shape[0]
    inner = results[3 - axes :]
    batch = x.shape[: len(x.shape) - axes - 1]
    extents = (*batch, *inner, filters) if channels_last else (*batch, filters, *inner)
    order = None if channels_last else order_of(seen, len(extents), axes)
    result = planner.result(Shape(extents, result_of(x.dtype), order))
    if 0 in extents:
        return
    out = as_volumes(result, axes, channels_last)
    problem = problem_of(window, groups, seen, out)
    extras = with_bounds(epilogue, extras, out.shape)
    places = places_of_images(len(extents), axes, channels_last)
    epilogue = placed(epilogue, places, IMAGE_AXES)
    launch_convolution(planner, Convolution(problem, seen, weights, out, biases, epilogue, extras))


def _check(
    name: str,
    axes: int,
    x: Memory,
    weights: Weights,
    biases: tuple[Memory, ...],
    groups: int,
    channels_last: bool,
) -> None:
    """E601 and E602 for arguments that do not fit each other; both are named with their shapes."""
    w = weights.shape
    if len(x.shape) not in (axes + 1, axes + 2) or len(w) != axes + 2:
        reason = f"`x` has shape {x.shape} and `weight` {w}"
        raise wrong(name, reason, f"they have {axes + 1} or {axes + 2}, and {axes + 2} axes")
    channels = x.shape[-1] if channels_last else x.shape[-axes - 1]
    if channels != w[1] * groups:
        reason = f"`x` has shape {x.shape} and `weight` {w}: {channels} channels in {groups} groups"
        raise wrong(name, reason, f"`weight` takes {w[1] * groups} channels")
    check_dtypes(name, "x", x.dtype, weights.dtype, biases)
    for bias in biases:
        if bias.shape != w[:1]:
            raise wrong(name, f"`bias` has shape {bias.shape}, `weight` {w}", "one for each filter")
    if weights.packed is not None and weights.packed.groups != groups:
        raise wrong(name, f"`weight` was packed for {weights.packed.groups} groups, not {groups}")
