"""Max pooling: `max_pool1d`, `max_pool2d`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import Kind, i32, i64
from cubepy.kernels.calls.arguments import frozen
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.pooling.kernel import (
    PoolTiling,
    pool_pixels,
    pool_rows,
    pool_rows_with_indices,
    pool_windows,
    pool_windows_with_indices,
)
from cubepy.kernels.pooling.problem import Window, make_window, output_extents
from cubepy.kernels.pooling.strategies import (
    has_channels_last,
    is_unit,
    pixels_tiling,
    rows_tiling,
    windows_tiling,
)

_PLANS = Plans()


def max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """The maximum over windows of the last axis.

    As `max_pool2d` with one axis less: `x` is (channels, length) or (batch, channels, length), and
    indices count along the length.
    """
    options = (frozen(kernel_size), frozen(stride), frozen(padding), frozen(dilation), ceil_mode)
    return _pool("max_pool1d", 1, x, options, return_indices, out)


def max_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """The maximum over windows of the last two axes, as `torch.nn.functional.max_pool2d`.

    `x`: (channels, height, width) or (batch, channels, height, width), any strides, any dtype but
    bool and 8-bit floats. Parameters are ints or one for each axis; `stride` defaults to
    `kernel_size`; the padding counts as lower than any number; with `ceil_mode` windows may also
    start inside and end over the edge. Gives a new array of the library of `x`, of its dtype, with
    channels last in memory where `x` has them so; or `out`. With `return_indices` also the i64
    index row * width + column of each maximum, the first of equal ones (`out` is a pair then).

    Exact; NaN is greater than any number. The sign of a zero is that of one of equal zeros.
    Raises `LaunchError` for parameters and shapes that do not fit together, and for a tensor that
    requires grad outside of `torch.no_grad()`; `LaunchTypeError` for what is no such array.

    Method: vertical maxima of whole lines, then horizontal ones by shifts between registers, so
    that each input line is loaded once for each row of the window.
    """
    options = (frozen(kernel_size), frozen(stride), frozen(padding), frozen(dilation), ceil_mode)
    return _pool("max_pool2d", 2, x, options, return_indices, out)


def _pool(
    function: str, axes: int, x: Any, options: tuple[Any, ...], with_indices: bool, out: Any
) -> Any:

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, axes, arrays[0], options, with_indices)

    parameters = (options, with_indices)
    return call(_PLANS, function, ("x",), (x,), parameters, make, out, 1 + with_indices)


# What is done for one signature


def _plan(
    planner: Planner, axes: int, memory: Memory, options: tuple[Any, ...], with_indices: bool
) -> None:
    function = planner.function
    *parameters, ceil_mode = options
    window = make_window(function, axes, *parameters)
    _check(function, axes, memory)
    seen = _as_planes(memory, axes)
    _, _, rows, columns = seen.shape
    height, width = output_extents(function, window, (rows, columns), ceil_mode)
    extents = memory.shape[:-axes] + (height, width)[-axes:]
    order = _order(memory, seen, axes)
    shapes = [Shape(extents, memory.dtype, order)]
    shapes += [Shape(extents, i64, order)] * with_indices
    results = [_as_planes(planner.result(shape), axes) for shape in shapes]
    _launch(planner, window, seen, results)


def _check(function: str, axes: int, x: Memory) -> None:
    if len(x.shape) not in (axes + 1, axes + 2):
        raise fail(
            "E601",
            function=function,
            suggestion="",
            reason=f"`x` has {len(x.shape)} axes, expected {axes + 1} or {axes + 2}",
        )
    if x.dtype.kind is Kind.BOOL or (x.dtype.bits == 8 and x.dtype.is_float):
        raise fail(
            "E602",
            function=function,
            reason=f"`x` has dtype {x.dtype}",
            suggestion="convert it to u8 or f16",
        )


def _as_planes(x: Memory, axes: int) -> Memory:
    """The array as [n, c, row, column]."""
    shape, strides = x.shape, x.strides
    if axes == 1:
        shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1])
    if len(shape) == 3:
        shape, strides = (1, *shape), (0, *strides)
    return replace(x, shape=shape, strides=strides)


def _order(x: Memory, seen: Memory, axes: int) -> tuple[int, ...] | None:
    """Channels last for a result where `x` has them so."""
    if not has_channels_last(seen):
        return None
    channel = len(x.shape) - axes - 1
    return (*(k for k in range(len(x.shape)) if k != channel), channel)


def _launch(planner: Planner, window: Window, x: Memory, results: list[Memory]) -> None:
    """Choose a kernel by layout and window, and launch it."""
    out, target = results[0], planner.target
    rows = rows_tiling(target, window, x, out)
    if rows is not None and all(is_unit(m, 3) for m in (x, *results)):
        cubes = out.shape[0] * out.shape[1] * -(-out.shape[2] // rows.band)
        _launch_rows(planner, cubes, window, x, results, rows)
    elif len(results) == 1 and has_channels_last(x) and is_unit(out, 1):
        tiling = pixels_tiling(target, window, x, out)
        cubes = out.shape[0] * -(-out.shape[2] // tiling.band)
        planner.launch(
            pool_pixels,
            cubes,
            x=_channels_last(x),
            out=_channels_last(out),
            window=window,
            tiling=tiling,
        )
    else:
        _launch_windows(planner, window, x, results)


def _launch_rows(
    planner: Planner,
    cubes: int,
    window: Window,
    x: Memory,
    results: list[Memory],
    tiling: PoolTiling,
) -> None:
    if len(results) == 1:
        planner.launch(pool_rows, cubes, x=x, out=results[0], window=window, tiling=tiling)
        return
    fits = x.shape[2] * x.shape[3] < 2**31 - 2**16
    planner.launch(
        pool_rows_with_indices,
        cubes,
        x=x,
        out=results[0],
        indices=results[1],
        window=window,
        tiling=tiling,
        position=i32 if fits else i64,
    )


def _launch_windows(planner: Planner, window: Window, x: Memory, results: list[Memory]) -> None:
    out = results[0]
    count = out.shape[0] * out.shape[1] * out.shape[2] * out.shape[3]
    tiling = windows_tiling(planner.target, window, x)
    cubes = -(-count // tiling.band)
    if len(results) == 1:
        planner.launch(pool_windows, cubes, x=x, out=out, window=window, tiling=tiling)
    else:
        planner.launch(
            pool_windows_with_indices,
            cubes,
            x=x,
            out=out,
            indices=results[1],
            window=window,
            tiling=tiling,
        )


def _channels_last(x: Memory) -> Memory:
    order = (0, 2, 3, 1)
    return replace(
        x, shape=tuple(x.shape[k] for k in order), strides=tuple(x.strides[k] for k in order)
    )
