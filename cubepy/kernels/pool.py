"""Max pooling: `max_pool1d`, `max_pool2d`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import Kind, i32, i64
from cubepy.kernels.hosts import Shape, frozen, host_of
from cubepy.kernels.plans import Plan, Planner, Plans
from cubepy.kernels.pool_kernels import (
    Tiling,
    compared,
    pool_pixels,
    pool_rows,
    pool_rows_with_indices,
    pool_windows,
    pool_windows_with_indices,
)
from cubepy.kernels.windows import Window, make_window, output_extents
from cubepy.targets import Target

BAND_BYTES = 1 << 17
"""Input of one cube: enough to hide its start, little enough to spread over many threads."""
AHEAD_BYTES = 1 << 14
"""How far the input is prefetched, at least."""
MOST_BLOCK = 8
"""Lines of channels that registers hold for all columns of a window."""
STREAMED = 16
"""Caches that arrays must exceed before results bypass them."""
MOST_LANES = 128
"""Elements of the widest line that is loaded at once."""
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
    host, x = host_of(function, "x", x)
    given = _given(function, with_indices, out)
    key = (function, host, host.key(x), options, with_indices, tuple(map(host.key, given or ())))
    plan = _PLANS.find(key)
    if plan is None:
        plan = _PLANS.keep(
            key, _plan(Planner(function, host), axes, x, options, with_indices, given)
        )
    results = plan.run(host, (x,), given)
    return tuple(results) if with_indices else results[0]


def _given(function: str, with_indices: bool, out: Any) -> tuple[Any, ...] | None:
    """The results that the caller brought; E602 unless they are as many as are made."""
    if out is None:
        return None
    if not with_indices:
        host_of(function, "out", out)
        return (out,)
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise fail(
            "E602",
            function=function,
            suggestion="pass out=(values, indices)",
            reason="with return_indices `out` is a pair",
        )
    return tuple(out)


# What is done for one signature


def _plan(
    planner: Planner, axes: int, x: Any, options: tuple[Any, ...], with_indices: bool, given: Any
) -> Plan:
    function = planner.function
    *parameters, ceil_mode = options
    window = make_window(function, axes, *parameters)
    memory = planner.array("x", x)
    _check(function, axes, memory)
    seen = _as_planes(memory, axes)
    _, _, rows, columns = seen.shape
    height, width = output_extents(function, window, (rows, columns), ceil_mode)
    extents = memory.shape[:-axes] + (height, width)[-axes:]
    order = _order(memory, seen, axes)
    shapes = [Shape(extents, memory.dtype, order)]
    shapes += [Shape(extents, i64, order)] * with_indices
    outs = given or (None,) * len(shapes)
    names = ("out",) if len(shapes) == 1 else ("out[0]", "out[1]")
    results = [
        _as_planes(planner.result(shape, result, name), axes)
        for shape, result, name in zip(shapes, outs, names, strict=True)
    ]
    _launch(planner, window, seen, results)
    return planner.plan()


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
    if not _has_channels_last(seen):
        return None
    channel = len(x.shape) - axes - 1
    return (*(k for k in range(len(x.shape)) if k != channel), channel)


def _has_channels_last(x: Memory) -> bool:
    size = x.dtype.itemsize
    return x.shape[1] > 1 and x.strides[1] == size and (x.strides[3] != size or x.shape[3] == 1)


def _is_unit(x: Memory, axis: int) -> bool:
    return x.strides[axis] == x.dtype.itemsize or x.shape[axis] == 1


def _launch(planner: Planner, window: Window, x: Memory, results: list[Memory]) -> None:
    """Choose a kernel by layout and window, and launch it."""
    out, target = results[0], planner.target
    rows = _rows_tiling(target, window, x, out)
    if rows is not None and all(_is_unit(m, 3) for m in (x, *results)):
        cubes = out.shape[0] * out.shape[1] * -(-out.shape[2] // rows.band)
        _launch_rows(planner, cubes, window, x, results, rows)
    elif len(results) == 1 and _has_channels_last(x) and _is_unit(out, 1):
        tiling = _pixels_tiling(target, window, x, out)
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
    planner: Planner, cubes: int, window: Window, x: Memory, results: list[Memory], tiling: Tiling
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
    line = _lanes(planner.target, x) if window.dilation[1] == 1 and _is_unit(x, 3) else 1
    line = line if window.kernel[1] >= line else 1
    tiling = Tiling(line, max(1, BAND_BYTES // x.dtype.itemsize // window.size))
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


# Strategies


def _lanes(target: Target, x: Memory) -> int:
    """Elements of a line, as they are compared."""
    return target.line_bytes // compared(x.dtype).itemsize


def _power_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _is_streamed(target: Target, x: Memory, out: Memory) -> bool:
    """Whether input and output are so large that no cache holds the output for its reader."""
    nbytes = sum(m.dtype.itemsize * _count(m.shape) for m in (x, out))
    return nbytes > STREAMED * target.cache_bytes


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _rows_tiling(target: Target, window: Window, x: Memory, out: Memory) -> Tiling | None:
    """Lines of columns; None for windows that are too large to be named tap by tap."""
    line = min(_lanes(target, x), max(2, _power_above(max(out.shape[3], window.reach))))
    if window.reach > line or line * window.stride[1] > MOST_LANES or max(window.kernel) > 16:
        return None
    row_bytes = max(1, x.shape[3] * x.dtype.itemsize)
    band = min(max(out.shape[2], 1), max(4, BAND_BYTES // row_bytes))
    streamed = _is_streamed(target, x, out)
    ahead = max(1, AHEAD_BYTES // row_bytes) if streamed else 0
    return Tiling(line, band, ahead, streamed)


def _pixels_tiling(target: Target, window: Window, x: Memory, out: Memory) -> Tiling:
    """Lines of channels; the results of a pixel are streamed where they are whole lines.

    Windows that overlap go along rows of pixels (`block` is not 0) where registers hold all
    channels of some columns, the others pixel by pixel.
    """
    line = min(_lanes(target, x), max(2, _power_above(x.shape[1])))
    row_bytes = x.shape[1] * x.shape[3] * x.dtype.itemsize
    band = min(max(out.shape[2], 1), max(1, BAND_BYTES // max(1, row_bytes)))
    streamed = _is_streamed(target, x, out)
    block = -(-x.shape[1] // line)
    overlap = window.dilation[1] == 1 and window.kernel[1] > window.stride[1]
    along = overlap and not window.may_miss and max(window.kernel) <= 4 and block <= MOST_BLOCK
    whole = streamed and x.shape[1] % line == 0
    return Tiling(line, band, 1 if streamed else 0, whole, block if along else 0)
