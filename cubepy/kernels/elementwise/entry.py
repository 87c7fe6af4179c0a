"""Elementwise functions of arrays: `map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from cubepy.array.memory import Memory
from cubepy.errors import CompileError, fail
from cubepy.frontend.promote import (
    NoCommonType,
    fits,
    literal_type,
    promote,
    promote_literal,
)
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import DType, find_dtype
from cubepy.jit.grid import Over
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.call import run
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import Library, Shape, libraries_agree, library_of
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.elementwise.kernel import NUMBERS, MapTiling, map_lines, map_rows, trace_result
from cubepy.lang.annotations import Spec
from cubepy.targets import Target

BAND = 1 << 14
"""Elements of one cube: enough to hide its start."""
TILE = 64
"""Rows and columns of a cube where rows of some array are columns of memory: these are close."""
UNROLL = 4
UNITS = 256
"""Units of a wide cube, with a line each."""
AHEAD_BYTES = 1 << 12
"""How far inputs are prefetched."""
STREAMED = 16
"""Caches that arrays must exceed before results bypass them."""
_PLANS = Plans()
_SCALARS = (*NUMBERS, np.generic)
_NAMES = tuple(f"arrays[{k}]" for k in range(256))


def map(function: Callable[..., Any], *arrays: Any, out: Any = None) -> Any:
    """`function` of the elements of some arrays, which are broadcast against each other.

    `function`: a cube function, plain function or lambda of the kernel language, of as many numbers
    as there are arrays, giving one; it is compiled with this call, so that
    `map(lambda a, b: a * b + 1, x, y)` reads each array once and makes no temporary. `arrays`: any
    shapes, strides and dtypes, of one library; numbers take the common type of the arrays. Gives an
    array of that library, whose dtype is what the function gives, with its axes in memory as those
    of the first array of full shape; or `out`, which may be one of the arrays, and may have another
    dtype of the same kind.

    Rounds as the function's operations do. Raises `LaunchError` for shapes that do not broadcast
    and for a tensor that requires grad outside of `torch.no_grad()`, `LaunchTypeError` for what is
    no array, `CompileError` for what is not in the kernel language.
    """
    library, operands = _operands(arrays)

    def make(planner: Planner, inputs: list[Memory]) -> None:
        _plan(planner, function, inputs, out)

    return run(
        _PLANS, "map", library, _NAMES[: len(operands)], operands, comptime_key(function), make, out
    )


def _operands(arrays: Sequence[Any]) -> tuple[Library, list[Any]]:
    """The library of the arrays, and the arrays as it sees them; E602 where there is not one."""
    library: Library | None = None
    first, seen = "", []
    for k, x in enumerate(arrays):
        if isinstance(x, _SCALARS):
            continue
        own, x = library_of("map", _NAMES[k], x)
        if library is not None and own is not library:
            libraries_agree("map", ((first, library), (_NAMES[k], own)))
        library, first = own, first or _NAMES[k]
        seen.append(x)
    if library is None:
        reason = "it takes an array at least"
        raise fail("E602", function="map", reason=reason, suggestion="")
    if len(seen) == len(arrays):
        return library, seen
    dtypes, rest = [_dtype_of(x) for x in seen], iter(seen)
    return library, [
        _as_array(library, dtypes, x) if isinstance(x, _SCALARS) else next(rest) for x in arrays
    ]


def _as_array(library: Library, dtypes: Sequence[DType], x: Any) -> Any:
    """A number as an array without axes: Python's in the common type of the arrays."""
    if isinstance(x, np.generic):
        return library.constant(x.item(), _dtype_of(x))
    try:
        common = reduce(promote, dtypes)
    except NoCommonType:
        common = literal_type(x)
    dtype = literal_type(x) if isinstance(x, bool) else promote_literal(x, common)
    if isinstance(x, int) and dtype.is_integer and not fits(x, dtype):
        raise fail("E601", function="map", reason=f"{x} does not fit {dtype}", suggestion="")
    return library.constant(x, dtype)


def _dtype_of(x: Any) -> DType:
    """The dtype of an array or NumPy scalar; E602 where kernels have none like it."""
    found = find_dtype(x.dtype)
    if found is None:
        raise fail("E602", function="map", reason=f"no kernel takes {x.dtype}", suggestion="")
    return found


# What is done for one signature


def _plan(planner: Planner, function: Any, inputs: list[Memory], out: Any) -> None:
    extents = _broadcast([x.shape for x in inputs])
    traced = traced_dtype(function, [x.dtype for x in inputs])
    dtype = traced if out is None else _dtype_of(out)
    result = planner.result(Shape(extents, dtype, _order(inputs, extents)))
    result = planner.joined(result, inputs)
    axes = [
        Axis(n, (result.strides[k], *(_stride(x, k - len(extents)) for x in inputs)))
        for k, n in enumerate(extents)
    ]
    if prod(extents):
        _launch(planner, function, inputs, result, axes)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        reason = f"the shapes {', '.join(str(s) for s in shapes)} do not broadcast"
        raise fail("E601", function="map", reason=reason, suggestion="") from None


def _stride(x: Memory, axis: int) -> int:
    """The stride of an axis counted from the end; 0 where it is broadcast."""
    return x.strides[axis] if -axis <= len(x.shape) and x.shape[axis] != 1 else 0


def _order(inputs: Sequence[Memory], extents: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of the first input of full shape, from the slowest to the fastest."""
    for x in inputs:
        if x.shape == extents:
            order = sorted(range(len(extents)), key=lambda k: (-abs(x.strides[k]), k))
            return None if order == list(range(len(extents))) else tuple(order)
    return None


class _Note:
    """Keeps what a traced kernel says about its result."""

    dtype: DType | None = None

    def __call__(self, result: DType | bool | int | float) -> None:
        self.dtype = result if isinstance(result, DType) else literal_type(result)


def traced_dtype(function: Any, dtypes: Sequence[DType]) -> DType:
    """The dtype that a function of the language gives for numbers of these dtypes."""
    note = _Note()
    specs = tuple(Spec(dtype, (None,)) for dtype in dtypes)
    trace_result.inspect(function, specs, note, stage="ir")
    assert note.dtype is not None
    return note.dtype


def _launch(
    planner: Planner, function: Any, inputs: Sequence[Memory], out: Memory, axes: Sequence[Axis]
) -> None:
    """Lines where the function takes them, else one element after the other."""
    arrays = [out, *inputs]
    walked = merged(axes) or [Axis(1, tuple(a.dtype.itemsize for a in arrays))]
    views = [seen(a, walked, k) for k, a in enumerate(arrays)]
    tiling = _tiling(planner.target, views)
    try:
        _launch_tiled(planner, function, views, tiling)
    except CompileError as error:
        if error.code not in ("E201", "E204", "E207", "E208"):
            raise
        _launch_tiled(planner, function, views, replace(tiling, line=1, ahead=0))


def _launch_tiled(
    planner: Planner, function: Any, views: Sequence[Memory], tiling: MapTiling
) -> None:
    out, *inputs = views
    line, columns = tiling.line, tiling.columns
    if is_wide(planner.target):
        lines = prod(out.shape[:-1]) * -(-out.shape[-1] // line)
        grid = Over(-(-lines // UNITS), "cube", UNITS)
        planner.launch(
            map_lines, grid, function=function, inputs=tuple(inputs), out=out, tiling=tiling
        )
        return
    bands = -(-(out.shape[-1] + line - 1) // columns)
    planner.launch(
        map_rows,
        bands * -(-prod(out.shape[:-1]) // tiling.rows),
        function=function,
        inputs=tuple(inputs),
        out=out,
        tiling=tiling,
    )


# Strategy


def _tiling(target: Target, views: Sequence[Memory]) -> MapTiling:
    """Lines as wide as those of the result; square tiles where an array is walked across memory."""
    out, *inputs = views
    columns = out.shape[-1]
    line = max(2, target.line_bytes // max(4, out.dtype.itemsize))
    is_broadcast = tuple(x.strides[-1] == 0 for x in inputs)
    is_dense = all(x.strides[-1] in (0, x.dtype.itemsize) for x in views)
    nbytes = sum(prod(x.shape) * x.dtype.itemsize for x in views)
    stream = is_dense and nbytes > STREAMED * target.cache_bytes
    if is_wide(target):
        wide = target.line_bytes // max(a.dtype.itemsize for a in views) if is_dense else 1
        return MapTiling(max(1, wide), 1, 1, 1, 0, False, is_broadcast)
    if not is_dense:
        return MapTiling(line, 1, TILE, TILE, 0, False, is_broadcast)
    # One stream is too few for the processor's own prefetching; several keep it busy.
    alone = is_broadcast.count(False) == 1
    ahead = AHEAD_BYTES // out.dtype.itemsize if stream and alone else 0
    return MapTiling(line, UNROLL, max(1, BAND // columns), BAND, ahead, stream, is_broadcast)
