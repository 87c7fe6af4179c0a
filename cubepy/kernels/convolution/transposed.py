"""Transposed convolutions, as convolutions: `conv_transpose1d`, `conv_transpose2d`,
`conv_transpose3d`, and the gradients of convolutions by their input.

See `phases`: nothing is stuffed with zeros, and no product with them is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from cubepy.array.memory import Memory
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import Kind
from cubepy.kernels.calls.arguments import number_of, numbers_of, refused, shown, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.epilogues import places_of_images
from cubepy.kernels.calls.hooks import check_epilogue, parts_of_epilogue
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.convolution.phase_epilogues import Finish
from cubepy.kernels.convolution.phases import launch_phases
from cubepy.kernels.convolution.problem import Window, make_window
from cubepy.kernels.convolution.volumes import LAYOUTS, as_volumes, order_of
from cubepy.kernels.convolution.weights import check_dtypes
from cubepy.kernels.matmul.problem import result_of

_PLANS = Plans()


def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCL",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """As `conv_transpose2d` with one axis less; `layout` is "NCL" or "NLC"."""
    options = (stride, padding, output_padding, groups, dilation, layout)
    return _transpose("conv_transpose1d", 1, x, weight, bias, options, epilogue, out)


def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCHW",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The transposed convolution of images, as `torch.nn.functional.conv_transpose2d`.

    `x`: [n, channels, rows, columns], or without n; "NHWC" in `layout` means that channels are the
    last axis, of `x` and the result. `weight`: [channels, filters / groups, rows, columns] in both
    layouts; `bias`: one number for each filter. The element [i] of `x` adds its products with tap t
    to the result at i * stride - padding + t * dilation; `output_padding` more places lie behind
    the last. `padding` is given as numbers. Other parameters, results, dtypes, rounding and errors
    are those of `conv2d`; an `epilogue` that reads its index is always called for one element at a
    time, of which `v.line_size` is 1.
    """
    options = (stride, padding, output_padding, groups, dilation, layout)
    return _transpose("conv_transpose2d", 2, x, weight, bias, options, epilogue, out)


def conv_transpose3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCDHW",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """As `conv_transpose2d` with one axis more; `layout` is "NCDHW" or "NDHWC"."""
    options = (stride, padding, output_padding, groups, dilation, layout)
    return _transpose("conv_transpose3d", 3, x, weight, bias, options, epilogue, out)


def conv1d_input_grad(
    input_size: Sequence[int],
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Any = None,
) -> Any:
    """As `conv2d_input_grad` with one axis less."""
    options = (stride, padding, dilation, groups)
    return _input_grad("conv1d_input_grad", 1, input_size, weight, grad_output, options, out)


def conv2d_input_grad(
    input_size: Sequence[int],
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Any = None,
) -> Any:
    """The gradient of `conv2d` by its input, as `torch.nn.grad.conv2d_input`.

    `input_size`: the shape of the input; `weight` and the parameters are those of the convolution,
    `grad_output` is the gradient by its result. Gives an array of that shape, or fills `out`. See
    `conv_transpose2d`, which it is.
    """
    options = (stride, padding, dilation, groups)
    return _input_grad("conv2d_input_grad", 2, input_size, weight, grad_output, options, out)


def conv3d_input_grad(
    input_size: Sequence[int],
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Any = None,
) -> Any:
    """As `conv2d_input_grad` with one axis more."""
    options = (stride, padding, dilation, groups)
    return _input_grad("conv3d_input_grad", 3, input_size, weight, grad_output, options, out)


def _transpose(
    function: str,
    axes: int,
    x: Any,
    weight: Any,
    bias: Any,
    options: tuple[Any, ...],
    epilogue: Any,
    out: Any,
) -> Any:
    after, extras, names_of_extras = parts_of_epilogue(epilogue)
    names = ("x", "weight", "bias", *names_of_extras)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        first = 2 if bias is None else 3
        check_epilogue(function, after, len(extras))
        finish = Finish(tuple(arrays[2:first]), after, tuple(arrays[first:]))
        _plan(planner, axes, arrays[0], arrays[1], options, finish)

    given, key = (x, weight, bias, *extras), None if after is None else comptime_key(after)
    return call(_PLANS, function, names, given, (*options, key), make, out, optional=("bias",))


def _plan(
    planner: Planner, axes: int, x: Memory, w: Memory, options: tuple[Any, ...], finish: Finish
) -> None:
    function = planner.function
    stride, padding, more, groups, dilation, layout = options
    groups = number_of(function, "groups", groups)
    if layout not in LAYOUTS[axes]:
        known = ", ".join(LAYOUTS[axes][:2])
        raise wrong(function, f"`layout` is {layout!r}", f"one of {known}")
    last = layout.endswith("C")
    check_transposed(function, axes, ("x", x), w, finish.biases, groups, last)
    if isinstance(padding, str):
        raise wrong(function, f"`padding` is {padding!r}", "give it as numbers")
    window = make_window(function, axes, w.shape[2:], stride, padding, dilation)
    seen = as_volumes(x, axes, last)
    extents = _extents(function, axes, (x, w, seen), window, more)
    batch = x.shape[: len(x.shape) - axes - 1]
    filters, inner = w.shape[1] * groups, extents[3 - axes :]
    shape = (*batch, *inner, filters) if last else (*batch, filters, *inner)
    order = None if last else order_of(seen, len(shape), axes)
    result = planner.result(Shape(shape, result_of(x.dtype), order))
    finish = finish.placed(places_of_images(len(shape), axes, last))
    launch_phases(planner, window, groups, seen, w, as_volumes(result, axes, last), finish)


def _extents(
    function: str, axes: int, given: tuple[Memory, Memory, Memory], window: Window, more: Any
) -> tuple[int, ...]:
    """Depth, rows and columns of the result; E601 where nothing is left of it, or more is added
    than there can be. `given`: array, weights, and the array as volumes."""
    x, w, seen = given
    extra = (*[0] * (3 - axes), *numbers_of(function, "output_padding", axes, more, 0))
    for n, s, d in zip(extra, window.stride, window.dilation, strict=True):
        if n and n >= max(s, d):
            reason = f"`output_padding` is {more!r}"
            raise wrong(function, reason, "it is less than the stride or the dilation")
    steps = zip(window.stride, window.before, window.after, window.spans, strict=True)
    extents = tuple(
        (n - 1) * s - before - after + span + e
        for n, e, (s, before, after, span) in zip(seen.shape[2:], extra, steps, strict=True)
    )
    if min(extents) < 1:
        reason = f"`x` has shape {x.shape} and `weight` {w.shape}: nothing is left of the result"
        raise wrong(function, reason, "pad less")
    return extents


def _input_grad(
    function: str,
    axes: int,
    input_size: Any,
    weight: Any,
    grad_output: Any,
    options: tuple[Any, ...],
    out: Any,
) -> Any:
    shape = extents_of(function, "input_size", input_size)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        stride, padding, dilation, groups = options
        groups = number_of(function, "groups", groups)
        w, grad = arrays
        check_transposed(function, axes, ("grad_output", grad), w, (), groups, False)
        window = make_window(function, axes, w.shape[2:], stride, padding, dilation)
        check_gradient(function, axes, window, ("input_size", shape), grad, w.shape[1] * groups)
        seen = as_volumes(grad, axes, False)
        order = order_of(seen, len(shape), axes)
        result = planner.result(Shape(shape, result_of(grad.dtype), order))
        launch_phases(planner, window, groups, seen, w, as_volumes(result, axes, False), Finish())

    names = ("weight", "grad_output")
    return call(_PLANS, function, names, (weight, grad_output), (shape, *options), make, out)


def extents_of(function: str, name: str, given: Any) -> tuple[int, ...]:
    """A shape; E602 unless it is a sequence of integers."""
    try:
        return tuple(index(n) for n in given)
    except TypeError:
        raise refused(function, name, f"is {shown(given)}; it takes integers", "") from None


def check_transposed(
    function: str,
    axes: int,
    named: tuple[str, Memory],
    w: Memory,
    biases: tuple[Memory, ...],
    groups: int,
    channels_last: bool,
) -> None:
    """E601 and E602 unless an array, weights and bias of a transposed convolution fit."""
    name, x = named
    shown = f"`{name}` has shape {x.shape} and `weight` {w.shape}"
    if len(x.shape) not in (axes + 1, axes + 2) or len(w.shape) != axes + 2:
        raise wrong(function, shown, f"they have {axes + 1} or {axes + 2}, and {axes + 2} axes")
    channels = x.shape[-1] if channels_last else x.shape[-axes - 1]
    if groups < 1 or w.shape[0] % groups:
        raise wrong(function, f"`groups` is {groups!r}, `weight` has shape {w.shape}")
    if channels != w.shape[0]:
        raise wrong(function, shown, f"`weight` takes {w.shape[0]} channels")
    check_dtypes(function, name, x.dtype, w.dtype, biases)
    if x.dtype.kind is Kind.BOOL:
        raise refused(function, name, "has dtype bool_", "convert it")
    for bias in biases:
        if bias.shape != (w.shape[1] * groups,):
            reason = f"`bias` has shape {bias.shape}, `weight` {w.shape}"
            raise wrong(function, reason, "one for each filter")


def check_gradient(
    function: str,
    axes: int,
    window: Window,
    named: tuple[str, tuple[int, ...]],
    grad: Memory,
    channels: int,
) -> None:
    """E601 unless an input of this shape gives a result of the shape of `grad_output`."""
    name, shape = named
    inner, lead = shape[len(shape) - axes :], grad.shape[: len(grad.shape) - axes - 1]
    steps = list(zip(window.before, window.after, window.spans, window.stride, strict=True))
    made = tuple(
        (n + before + after - span) // step + 1
        for n, (before, after, span, step) in zip(inner, steps[3 - axes :], strict=True)
    )
    if len(shape) != len(grad.shape) or shape[: -axes - 1] != lead or made != grad.shape[-axes:]:
        reason = f"`{name}` is {shape}, which does not give `grad_output` of shape {grad.shape}"
        raise wrong(function, reason)
    if shape[-axes - 1] != channels:
        reason = f"`{name}` is {shape}, but `weight` is for {channels} channels"
        raise wrong(function, reason)
