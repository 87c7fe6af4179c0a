"""What a reduction does for one signature: checks, axes, kernels and how they divide the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from operator import index
from typing import Any

from cubepy.array import Memory
from cubepy.errors import fail
from cubepy.ir.types import DType, bool_, u8
from cubepy.kernels.axes import Axis, ascending, merged, seen
from cubepy.kernels.hosts import Shape
from cubepy.kernels.plans import Plan, Planner
from cubepy.kernels.reduce_kernels import (
    Reduction,
    Tiling,
    accumulate_columns,
    reduce_columns,
    reduce_rows,
    running_type,
)
from cubepy.targets import Target

CUBE_ELEMENTS = 1 << 18
"""Elements that one cube reads: enough to hide its start."""
CUBES = 64
"""Cubes that keep the threads of any machine busy."""
CHUNK_ROWS = 64
"""Rows of a chunk: partial results are a small part of the array, and errors stay small."""
BAND_BYTES = 1 << 14
"""Running results of a cube: half of the nearest cache."""
UNROLL = 8
"""Lines or rows that are added side by side, to hide the time that one addition takes."""
BLOCK = 64
"""Lines of a row that become one by halves, before that is added to the running result."""


def make_plan(planner: Planner, x: Any, axis: Any, keepdims: bool, out: Any) -> Plan:
    """The plan of a reduction that is named like the function."""
    name, array = planner.function, planner.array("x", x)
    rank = len(array.shape)
    axes = _reduced_axes(name, rank, axis)
    kept = [k for k in range(rank) if k not in axes]
    extents = tuple(array.shape[k] for k in kept)
    if name != "sum" and 0 in [array.shape[k] for k in axes]:
        reason = f"an array of shape {array.shape} has no {name}"
        raise fail("E601", function=name, reason=reason, suggestion="")
    shape = tuple(1 if k in axes else n for k, n in enumerate(array.shape))
    dtype = running_type(name, array.dtype) if _is_widened(name, array.dtype) else array.dtype
    result = planner.result(Shape(shape if keepdims else extents, dtype), out)
    strides = [s for k, s in enumerate(result.strides) if not keepdims or k not in axes]
    if prod(extents):
        _launch(
            planner,
            Reduction(name, running_type(name, array.dtype)),
            _as_numbers(array),
            _as_numbers(result),
            [
                Axis(array.shape[k], (array.strides[k], s))
                for k, s in zip(kept, strides, strict=True)
            ],
            [Axis(array.shape[k], (array.strides[k],)) for k in axes],
        )
    return planner.plan()


def _reduced_axes(function: str, rank: int, axis: Any) -> tuple[int, ...]:
    """The reduced axes, counted from 0; E601 for those that are not there or named twice."""
    if axis is None:
        return tuple(range(rank))
    try:
        axes = tuple(index(a) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
    except TypeError:
        reason = f"`axis` is {axis!r}; it takes ints"
        raise fail("E602", function=function, reason=reason, suggestion="") from None
    for a in axes:
        if not -rank <= a < rank:
            reason = f"axis {a} is out of bounds for an array of {rank} axes"
            raise fail("E601", function=function, reason=reason, suggestion="")
    found = tuple(a % rank for a in axes)
    if len(set(found)) < len(found):
        reason = f"`axis` is {axis!r}, which names an axis twice"
        raise fail("E601", function=function, reason=reason, suggestion="")
    return found


def _is_widened(name: str, dtype: DType) -> bool:
    return name == "sum" and not dtype.is_float


def _as_numbers(x: Memory) -> Memory:
    """Bools are the bytes 0 and 1."""
    return replace(x, dtype=u8) if x.dtype is bool_ else x


# Launches. `kept` axes have strides in the array and in the result, `axes` in the array


def _launch(
    planner: Planner,
    op: Reduction,
    x: Memory,
    out: Memory,
    kept: Sequence[Axis],
    axes: Sequence[Axis],
) -> None:
    """Reduce along lines where a reduced axis is dense in memory, across where a kept one is."""
    size = x.dtype.itemsize
    x, axes = ascending(x, axes)
    axes = merged(axes) or [Axis(1, (size,))]
    kept = merged(kept)
    if kept and kept[-1].strides[0] == size and axes[-1].strides[0] != size:
        _launch_columns(planner, op, x, out, kept, axes)
    else:
        _launch_rows(planner, op, x, out, kept, axes)


def _launch_rows(
    planner: Planner, op: Reduction, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]
) -> None:
    tiling = _rows_tiling(planner.target, op, x, kept, axes)
    chunks = max(1, -(-axes[0].extent // tiling.chunk))
    results = [*kept, Axis(1, (0, 0))]
    written = seen(out, results, 1)
    if chunks > 1:
        written = planner.scratch((*(a.extent for a in kept), chunks), op.dtype)
    cubes = -(-prod(written.shape) // tiling.band)
    planner.launch(reduce_rows, cubes, x=seen(x, [*kept, *axes]), out=written, op=op, tiling=tiling)
    if chunks > 1:
        _launch_rest(planner, op, written, out, kept, len(kept))


def _launch_columns(
    planner: Planner, op: Reduction, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]
) -> None:
    in_order = _is_read_in_order(planner.target, x, kept[-1], axes)
    tiling = _columns_tiling(planner.target, op, in_order, kept, axes)
    chunks = max(1, -(-axes[0].extent // tiling.chunk))
    place = len(kept) - 1
    written = seen(out, [*kept[:place], Axis(1, (0, 0)), kept[place]], 1)
    is_partial = chunks > 1 or (in_order and out.dtype is not op.dtype)
    if is_partial:
        extents = (*(a.extent for a in kept[:place]), chunks, kept[place].extent)
        written = planner.scratch(extents, op.dtype)
    planner.launch(
        accumulate_columns if in_order else reduce_columns,
        prod(written.shape[:-1]) * -(-written.shape[-1] // tiling.band),
        x=seen(x, [*kept[:place], *axes, kept[place]]),
        out=written,
        op=op,
        tiling=tiling,
    )
    if is_partial:
        _launch_rest(planner, op, written, out, kept, place)


def _launch_rest(
    planner: Planner, op: Reduction, partial: Memory, out: Memory, kept: list[Axis], place: int
) -> None:
    """Reduce partial results, whose chunks lie on the axis `place`."""
    strides = list(partial.strides)
    chunks = Axis(partial.shape[place], (strides.pop(place),))
    rest = [Axis(a.extent, (s, a.strides[1])) for a, s in zip(kept, strides, strict=True)]
    _launch(planner, op, partial, out, rest, [chunks])


# Strategies


def _count(axes: Sequence[Axis]) -> int:
    return prod(a.extent for a in axes)


def _power_below(n: int) -> int:
    return 1 << max(1, n).bit_length() - 1


def _rows_tiling(
    target: Target, op: Reduction, x: Memory, kept: list[Axis], axes: list[Axis]
) -> Tiling:
    """Lines where the last axis is dense; few long rows are cut into chunks for all threads."""
    dense = axes[-1].strides[0] == x.dtype.itemsize
    line = target.line_bytes // op.dtype.itemsize if dense else 1
    blocks = tuple(n for n in (BLOCK, UNROLL, 1) if n * line <= axes[-1].extent)
    results, size = max(1, _count(kept)), max(1, _count(axes))
    slowest = axes[0].extent
    chunk = slowest
    if results < CUBES and results * size > 2 * CUBE_ELEMENTS:
        unit = line * BLOCK if len(axes) == 1 else 1
        chunk = -(-slowest * CUBE_ELEMENTS // size // unit) * unit
    chunk = max(1, min(chunk, slowest))
    read = max(1, size // max(1, slowest) * chunk)
    return Tiling(len(kept), line, blocks, max(1, CUBE_ELEMENTS // read), chunk)


def _is_read_in_order(target: Target, x: Memory, columns: Axis, axes: list[Axis]) -> bool:
    """Whether rows are so long and so many that they have to be read in the order of memory."""
    row_bytes = columns.extent * x.dtype.itemsize
    rows = _count(axes)
    return rows >= 2 * UNROLL and row_bytes >= 1024 and rows * row_bytes > target.cache_bytes


def _columns_tiling(
    target: Target, op: Reduction, in_order: bool, kept: list[Axis], axes: list[Axis]
) -> Tiling:
    """Chunks of rows, and bands of columns whose running results stay close."""
    line = target.line_bytes // op.dtype.itemsize
    columns, rows = kept[-1].extent, max(1, _count(axes))
    slowest = max(1, axes[0].extent)
    inner = max(1, rows // slowest)
    if in_order:
        band = min(columns, BAND_BYTES // op.dtype.itemsize)
        return Tiling(len(kept) - 1, line, (UNROLL,), band, max(1, CHUNK_ROWS // inner))
    unroll = min(4, _power_below(columns // line))
    chunk = slowest
    if _count(kept) * rows > 2 * CUBE_ELEMENTS and _count(kept) < CUBES * line:
        chunk = max(1, -(-CUBE_ELEMENTS // (inner * columns)))
    step = line * unroll
    band = -(-max(1, CUBE_ELEMENTS // (chunk * inner)) // step) * step
    return Tiling(len(kept) - 1, line, (unroll,), min(band, max(1, columns)), min(chunk, slowest))
