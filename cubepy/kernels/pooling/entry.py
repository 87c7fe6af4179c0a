"""Pooling: the greatest element or the mean of windows, in one, two or three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import Kind, i64
from cubepy.jit.grid import Fixed, Grid, Over
from cubepy.kernels.calls.arguments import refused, wrong
from cubepy.kernels.calls.axes import Axis
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.epilogues import IMAGE_AXES, placed, places_of_images, with_bounds
from cubepy.kernels.calls.hooks import check_epilogue, check_prologue, parts_of_epilogue
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.pooling.lines import LineTiling, pool_lines
from cubepy.kernels.pooling.pixels import PixelTiling, pool_pixels
from cubepy.kernels.pooling.problem import (
    Pooling,
    Triple,
    adaptive,
    adaptive_extents,
    average,
    make_window,
    maximum,
    output_extents,
)
from cubepy.kernels.pooling.rows import RowTiling, pool_rows, pool_rows_with_indices
from cubepy.kernels.pooling.strategies import has_channels_last, tilings
from cubepy.kernels.pooling.tiles import TileTiling, pool_tiles
from cubepy.kernels.pooling.windows import (
    WindowTiling,
    pool_windows,
    pool_windows_with_indices,
)
from cubepy.kernels.reduction.launches import Reducer
from cubepy.kernels.reduction.problem import Reduction, mean, running_type
from cubepy.record import dataclass

_PLANS = Plans()
_LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}

Decide = Callable[[str, Triple], tuple[Pooling, Triple]]
"""What is pooled, and the extents of the results, for a function and the extents of its array."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a function of this family was called with besides its array."""

    function: str
    axes: int
    layout: str | None
    prologue: Any
    epilogue: Any
    with_indices: bool = False


def max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The maximum over windows of the last axis.

    As `max_pool2d` with one axis less: `x` is (channels, length) or (batch, channels, length), and
    indices count along the length; `layout` is "NCL" or "NLC".
    """
    options = (kernel_size, stride, padding, dilation, ceil_mode)
    made = Call("max_pool1d", 1, layout, prologue, epilogue, return_indices)
    return _max_pool(made, x, options, out)


def max_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The maximum over windows of the last two axes, as `torch.nn.functional.max_pool2d`.

    `x`: (channels, height, width) or (batch, channels, height, width), any strides, any dtype but
    bool and 8-bit floats. Parameters are ints or one for each axis; `stride` defaults to
    `kernel_size`; the padding, less than what a window covers, may also be a pair (before, after)
    for each axis, and counts as lower than any number; with `ceil_mode` windows may also start
    inside and end over the edge. `layout`: "NCHW", or "NHWC"
    where the channels are the last axis of `x` and of the result.

    Gives a new array of the library of `x`, of its dtype, with channels last in memory where `x`
    has them so; or `out`. With `return_indices` also the i64 index row * width + column of each
    maximum, the first of equal ones and the last NaN (`out` is a pair then).

    `prologue`: a cube function f(v) that lines of elements go through first. `epilogue`: a cube
    function f(v, index, *extras), or (f, *extras) with further arrays, for lines of results from
    `index` on; a line runs along the channels where these lie densely in the result, else along
    the columns, and may be a single element. As for `matmul`, one that reads its index without
    asking for `v.line_size` is called for each element, a number.

    Exact; NaN is greater than any number. The sign of a zero is that of one of equal zeros.
    Raises `LaunchError` for parameters and shapes that do not fit together, and for a tensor that
    requires grad outside of `torch.no_grad()`; `LaunchTypeError` for what is no such array.

    Method: vertical maxima of whole lines, then horizontal ones by shifts between registers, so
    that each input line is loaded once for each row of the window.
    """
    options = (kernel_size, stride, padding, dilation, ceil_mode)
    made = Call("max_pool2d", 2, layout, prologue, epilogue, return_indices)
    return _max_pool(made, x, options, out)


def max_pool3d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The maximum over windows of the last three axes.

    As `max_pool2d` with one axis more; indices count (depth * height + row) * width + column, and
    `layout` is "NCDHW" or "NDHWC".
    """
    options = (kernel_size, stride, padding, dilation, ceil_mode)
    made = Call("max_pool3d", 3, layout, prologue, epilogue, return_indices)
    return _max_pool(made, x, options, out)


def avg_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    dilation: Any = 1,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The mean over windows of the last axis. As `avg_pool2d` with one axis less."""
    options = (kernel_size, stride, padding, dilation, ceil_mode, count_include_pad, None)
    return _avg_pool(Call("avg_pool1d", 1, layout, prologue, epilogue), x, options, out)


def avg_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Any = 1,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The mean over windows of the last two axes, as `torch.nn.functional.avg_pool2d`.

    `x`, windows, `layout`, `prologue`, `epilogue` and the result are those of `max_pool2d`; `x` is
    of floats. A window is divided by the number of its elements inside of the array and its
    padding; with `count_include_pad` False, by those inside of the array, which gives NaN where a
    dilated window has none; by `divisor_override` where that is given.

    Sums of f16 and bf16 are made in f32 and rounded once. The error of a sum is at most that of
    rows + columns additions of a window. Raises what `max_pool2d` raises.
    """
    options = (kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)
    options = (*options, divisor_override)
    return _avg_pool(Call("avg_pool2d", 2, layout, prologue, epilogue), x, options, out)


def avg_pool3d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Any = 1,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The mean over windows of the last three axes. As `avg_pool2d` with one axis more."""
    options = (kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)
    options = (*options, divisor_override)
    return _avg_pool(Call("avg_pool3d", 3, layout, prologue, epilogue), x, options, out)


def adaptive_max_pool1d(
    x: Any,
    output_size: Any,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """`adaptive_max_pool2d` of the last axis."""
    made = Call("adaptive_max_pool1d", 1, layout, prologue, epilogue, return_indices)
    return _adaptive_pool(made, x, output_size, out)


def adaptive_max_pool2d(
    x: Any,
    output_size: Any,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The maxima of `output_size` windows that share the last two axes, as
    `torch.nn.functional.adaptive_max_pool2d`.

    `output_size`: an int or one for each axis; None keeps an axis. Window i of m along an axis of n
    elements covers floor(i * n / m) up to ceil((i + 1) * n / m). All else is as in `max_pool2d`.
    """
    made = Call("adaptive_max_pool2d", 2, layout, prologue, epilogue, return_indices)
    return _adaptive_pool(made, x, output_size, out)


def adaptive_max_pool3d(
    x: Any,
    output_size: Any,
    return_indices: bool = False,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """`adaptive_max_pool2d` of the last three axes."""
    made = Call("adaptive_max_pool3d", 3, layout, prologue, epilogue, return_indices)
    return _adaptive_pool(made, x, output_size, out)


def adaptive_avg_pool1d(
    x: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """`adaptive_avg_pool2d` of the last axis."""
    made = Call("adaptive_avg_pool1d", 1, layout, prologue, epilogue)
    return _adaptive_pool(made, x, output_size, out)


def adaptive_avg_pool2d(
    x: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The means of `output_size` windows that share the last two axes, as
    `torch.nn.functional.adaptive_avg_pool2d`.

    Windows are those of `adaptive_max_pool2d`, numbers and all else as in `avg_pool2d`.
    """
    made = Call("adaptive_avg_pool2d", 2, layout, prologue, epilogue)
    return _adaptive_pool(made, x, output_size, out)


def adaptive_avg_pool3d(
    x: Any,
    output_size: Any,
    *,
    layout: str | None = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """`adaptive_avg_pool2d` of the last three axes."""
    made = Call("adaptive_avg_pool3d", 3, layout, prologue, epilogue)
    return _adaptive_pool(made, x, output_size, out)


# What each asks for


def _max_pool(made: Call, x: Any, options: tuple[Any, ...], out: Any) -> Any:
    *parameters, ceil_mode = options

    def decide(function: str, extents: Triple) -> tuple[Pooling, Triple]:
        window = make_window(function, made.axes, *parameters)
        return maximum(window, extents), output_extents(function, window, extents, ceil_mode)

    return _pool(made, x, (*parameters, ceil_mode), decide, out)


def _avg_pool(made: Call, x: Any, options: tuple[Any, ...], out: Any) -> Any:
    *parameters, ceil_mode, counts_padding, divisor = options

    def decide(function: str, extents: Triple) -> tuple[Pooling, Triple]:
        window = make_window(function, made.axes, *parameters)
        if divisor is not None and (not isinstance(divisor, int) or divisor == 0):
            reason = f"`divisor_override` is {divisor!r}; it takes an int that is not 0"
            raise wrong(function, reason)
        results = output_extents(function, window, extents, ceil_mode)
        return average(window, extents, results, counts_padding, divisor), results

    return _pool(made, x, (*parameters, ceil_mode, counts_padding, divisor), decide, out)


def _adaptive_pool(made: Call, x: Any, output_size: Any, out: Any) -> Any:
    name = "max" if "max" in made.function else "average"

    def decide(function: str, extents: Triple) -> tuple[Pooling, Triple]:
        results = adaptive_extents(function, made.axes, output_size, extents)
        return adaptive(name, extents, results), results

    return _pool(made, x, (output_size,), decide, out)


def _pool(made: Call, x: Any, parameters: tuple[Any, ...], decide: Decide, out: Any) -> Any:
    epilogue, extras, names_of_extras = parts_of_epilogue(made.epilogue)
    names = ("x", *names_of_extras)
    functions = (made.prologue, epilogue)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, made, arrays[0], tuple(arrays[1:]), decide, functions)

    code = None if functions == (None, None) else comptime_key(functions)
    key = (*parameters, made.layout, made.with_indices, code)
    return call(
        _PLANS, made.function, names, (x, *extras), key, make, out, 1 + bool(made.with_indices)
    )


# What is done for one signature


def _plan(
    planner: Planner,
    made: Call,
    x: Memory,
    extras: tuple[Memory, ...],
    decide: Decide,
    functions: tuple[Any, Any],
) -> None:
    axes, function = made.axes, made.function
    check_prologue(function, functions[0])
    check_epilogue(function, functions[1], len(extras))
    channel = _channel(made, x)
    _check(made, x)
    seen = _as_volumes(x, axes, channel)
    a, b, c = seen.shape[2:]
    how, results = decide(function, (a, b, c))
    extents = list(x.shape)
    for k, n in zip(_spatial(len(x.shape), channel)[-axes:], results[3 - axes :], strict=True):
        extents[k] = n
    order = _order(x, seen, channel)
    shapes = [Shape(tuple(extents), x.dtype, order)]
    shapes += [Shape(tuple(extents), i64, order)] * bool(made.with_indices)
    outputs = [_as_volumes(planner.result(shape), axes, channel) for shape in shapes]
    if 0 in extents:
        return
    if _covers(how, seen, results) and len(outputs) == 1 and functions[1] is None:
        _reduce_images(planner, how, functions[0], seen, outputs[0])
    else:
        extras = with_bounds(functions[1], extras, outputs[0].shape)
        places = places_of_images(len(extents), axes, channel == len(extents) - 1)
        functions = functions[0], placed(functions[1], places, IMAGE_AXES)
        how, seen = _flattened(how, seen, results)
        _launch(planner, how, seen, outputs, extras, functions)


def _reduce_images(planner: Planner, how: Pooling, prologue: Any, x: Memory, out: Memory) -> None:
    """The average or the maximum of each whole image: a reduction."""
    dtype = running_type("max" if how.is_max else "sum", x.dtype)
    op = Reduction("max" if how.is_max else "sum", dtype, write=None if how.is_max else mean)
    kept = [Axis(x.shape[k], (x.strides[k], out.strides[k])) for k in (0, 1)]
    axes = [Axis(x.shape[k], (x.strides[k],)) for k in (2, 3, 4)]
    reducer = Reducer(planner, replace(op, prologue=prologue), how.divisor or prod(x.shape[2:]))
    reducer.launch(x, out, kept, axes)


def _channel(made: Call, x: Memory) -> int:
    """The axis of the channels, counted from 0; E601 for an unknown layout or too few axes."""
    names = _LAYOUTS[made.axes]
    if made.layout is not None and made.layout not in names:
        raise wrong(
            made.function, f"`layout` is {made.layout!r}", f"one of {', '.join(map(repr, names))}"
        )
    if len(x.shape) not in (made.axes + 1, made.axes + 2):
        reason = f"`x` has {len(x.shape)} axes, expected {made.axes + 1} or {made.axes + 2}"
        raise wrong(made.function, reason)
    is_last = made.layout == names[1]
    return len(x.shape) - 1 if is_last else len(x.shape) - made.axes - 1


def _check(made: Call, x: Memory) -> None:
    dtype = x.dtype
    if dtype.kind is Kind.BOOL or (dtype.bits == 8 and dtype.is_float):
        raise refused(made.function, "x", f"has dtype {dtype}", "convert it to u8 or f16")
    if "avg" in made.function and not dtype.is_float:
        raise refused(made.function, "x", f"has dtype {dtype}", "convert it to a float")


def _spatial(rank: int, channel: int) -> list[int]:
    """The axes that are not the channels."""
    return [k for k in range(rank) if k != channel]


def _as_volumes(x: Memory, axes: int, channel: int) -> Memory:
    """An array as [n, c, depth, row, column]."""
    last = _spatial(len(x.shape), channel)[-axes:]
    batch = [k for k in range(len(x.shape)) if k != channel and k not in last]
    missing = 3 - axes
    shape = [x.shape[k] for k in (*batch, channel)]
    strides = [x.strides[k] for k in (*batch, channel)]
    if not batch:
        shape, strides = [1, *shape], [0, *strides]
    shape += [1] * missing + [x.shape[k] for k in last]
    strides += [0] * missing + [x.strides[k] for k in last]
    return replace(x, shape=tuple(shape), strides=tuple(strides))


def _order(x: Memory, seen: Memory, channel: int) -> tuple[int, ...] | None:
    """Channels last for a result where `x` has them so."""
    if channel == len(x.shape) - 1 or not has_channels_last(seen):
        return None
    return (*_spatial(len(x.shape), channel), channel)


def _covers(how: Pooling, x: Memory, results: Triple) -> bool:
    """Whether the only window is the whole image."""
    window = how.window
    alone = window.padding == window.after == (0, 0, 0) and window.dilation == (1, 1, 1)
    whole = how.is_adaptive or (alone and window.kernel == x.shape[2:])
    return whole and results == (1, 1, 1)


def _flattened(how: Pooling, x: Memory, results: Triple) -> tuple[Pooling, Memory]:
    """A window that covers the array as one row, where its rows follow each other in memory."""
    *others, depth, rows, columns = x.shape
    size = x.dtype.itemsize
    dense = x.strides[4] == size and x.strides[3] == columns * size
    if how.is_adaptive or not _covers(how, x, results) or not dense:
        return how, x
    if depth > 1 and x.strides[2] != rows * columns * size:
        return how, x
    one = (1, 1, depth * rows * columns)
    window = replace(how.window, kernel=one, stride=one)
    x = replace(x, shape=(*others, *one), strides=(*x.strides[:2], 0, 0, size))
    return replace(how, window=window), x


def _launch(
    planner: Planner,
    how: Pooling,
    x: Memory,
    results: Sequence[Memory],
    extras: tuple[Memory, ...],
    functions: tuple[Any, Any],
) -> None:
    """Choose a kernel by layout and window, and launch it."""
    key = (how, *map(memory_key, (x, *results)))
    ways = tilings(planner.target, how, x, list(results))
    tiling = planner.pick_among("pooling", key, ways)
    batch, channels, depth, rows, columns = results[0].shape
    last = isinstance(tiling, PixelTiling | LineTiling | WindowTiling)
    views = [_channels_last(m) if last else m for m in (x, *results)]
    arguments: dict[str, Any] = dict(zip(("x", "out", "indices"), views, strict=False))
    grid: int | Grid
    if isinstance(tiling, RowTiling):
        kernel = pool_rows if len(results) == 1 else pool_rows_with_indices
        grid = batch * channels * depth * -(-rows // tiling.band)
    elif isinstance(tiling, TileTiling):
        kernel, planes = pool_tiles, batch * channels * depth
        tiles = -(-rows // (tiling.band * tiling.down))
        strips = -(-columns // (tiling.line * tiling.across))
        grid = Fixed((planes * tiles * strips, 1, 1), (tiling.across, tiling.down, 1))
    elif isinstance(tiling, PixelTiling):
        strips = -(-columns // tiling.columns)
        kernel, grid = pool_pixels, batch * depth * strips * -(-rows // tiling.band)
    elif isinstance(tiling, LineTiling):
        kernel, lines = pool_lines, -(-channels // tiling.line)
        count = batch * depth * rows * columns * lines
        grid = Over(-(-count // tiling.units), "cube", tiling.units)
    else:
        kernel = pool_windows if len(results) == 1 else pool_windows_with_indices
        lines = -(-channels // tiling.line) if tiling.is_last else channels
        count = -(-batch * depth * rows * columns * lines // tiling.band)
        grid = Over(-(-count // tiling.units), "cube", tiling.units)
    planner.launch(
        kernel, grid, **arguments, extras=extras, how=how, tiling=tiling, functions=functions
    )


def _channels_last(x: Memory) -> Memory:
    order = (0, 2, 3, 4, 1)
    return replace(
        x, shape=tuple(x.shape[k] for k in order), strides=tuple(x.strides[k] for k in order)
    )
