"""What a reduction does for one signature: checks, axes, kernels and how they divide the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from operator import index
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import DType, bool_, u8
from cubepy.kernels.axes import Axis, ascending, merged, seen
from cubepy.kernels.hosts import Shape
from cubepy.kernels.plans import Plan, Planner
from cubepy.kernels.reduce_kernels import (
    BLOCK,
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
AHEAD_BYTES = 1 << 15
"""How far rows are prefetched."""
HELD = 16
"""Lines of results that registers hold."""
FEW = 16
"""Rows or results that are too few to be worth something of their own."""
LONG = 1
"""Blocks from which on a sum keeps its rounding errors."""
MOST_FOLDED = 256
"""Columns up to which rows are folded to be longer."""


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
    inner, outer = _stages(kept, axes, size)
    if outer:
        _launch_stages(planner, op, x, out, kept, inner, outer)
    elif kept and _is_across(planner.target, op, kept, axes, size):
        _launch_columns(planner, op, x, out, kept, axes)
    else:
        _launch_rows(planner, op, x, out, kept, axes)


def _launch_stages(
    planner: Planner,
    op: Reduction,
    x: Memory,
    out: Memory,
    kept: list[Axis],
    inner: list[Axis],
    outer: list[Axis],
) -> None:
    """Reduce the inner axes first, as if the outer ones were kept, in the order of memory."""
    order = sorted([*kept, *outer], key=lambda a: -a.strides[0])
    partial = planner.scratch(tuple(a.extent for a in order), op.dtype)
    between = dict(zip(order, partial.strides, strict=True))
    first = [Axis(a.extent, (a.strides[0], between[a])) for a in order]
    _launch(planner, op, x, partial, first, inner)
    rest = [Axis(a.extent, (between[a], a.strides[1])) for a in kept]
    _launch(planner, op, partial, out, rest, [Axis(a.extent, (between[a],)) for a in outer])


def _launch_rows(
    planner: Planner, op: Reduction, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]
) -> None:
    tiling = _rows_tiling(planner.target, op, x, kept, axes)
    op = _compensated(op, tiling.read(axes) > LONG * BLOCK * tiling.unroll * tiling.line)
    chunks = max(1, -(-axes[0].extent // tiling.chunk))
    results = [*kept, Axis(1, (0, 0))]
    written = seen(out, results, 1)
    if chunks > 1:
        written = planner.scratch((*(a.extent for a in kept), chunks), op.dtype)
    cubes = chunks * -(-_count(kept) // tiling.band)
    planner.launch(reduce_rows, cubes, x=seen(x, [*kept, *axes]), out=written, op=op, tiling=tiling)
    if chunks > 1:
        _launch_rest(planner, op, written, out, kept, len(kept))


def _launch_columns(
    planner: Planner, op: Reduction, x: Memory, out: Memory, kept: list[Axis], axes: list[Axis]
) -> None:
    line = planner.target.line_bytes // op.dtype.itemsize
    in_order = _is_read_in_order(planner.target, op, x, kept[-1], axes)
    tiling = _columns_tiling(line, kept, axes)
    if in_order:
        tiling = _in_order_tiling(op, x, line, kept, axes)
    op = _compensated(op, not in_order and tiling.read(axes) > 2 * CHUNK_ROWS)
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


def _stages(kept: list[Axis], axes: list[Axis], size: int) -> tuple[list[Axis], list[Axis]]:
    """Reduced axes in two stages: the inner ones, and outer ones where that is worth a stage."""
    if not kept or min(_count(kept), _count(axes)) == 0:
        return axes, []
    step = min(abs(a.strides[0]) for a in kept)
    outer = [a for a in axes if a.strides[0] > step]
    inner = axes[len(outer) :]
    if outer and inner and _count(inner) >= FEW:
        return inner, outer
    return _folded(kept[-1], axes, size)


def _folded(columns: Axis, axes: list[Axis], size: int) -> tuple[list[Axis], list[Axis]]:
    """Few dense columns are reduced as more of them: several rows beside each other are one."""
    rows = axes[-1]
    ends = rows.strides[0] == columns.extent * size and columns.strides[0] == size
    factor = rows.extent & -rows.extent
    while factor > 1 and columns.extent * factor > MOST_FOLDED:
        factor //= 2
    if not ends or factor < 2 or rows.extent // factor < FEW or columns.extent > MOST_FOLDED // 2:
        return axes, []
    whole = Axis(rows.extent // factor, (rows.strides[0] * factor,))
    return [*axes[:-1], whole], [Axis(factor, rows.strides)]


def _is_across(
    target: Target, op: Reduction, kept: list[Axis], axes: list[Axis], size: int
) -> bool:
    """Whether lines lie along a kept axis: it is dense, or rows are much shorter than a line."""
    if axes[-1].strides[0] != size:
        return kept[-1].strides[0] == size
    line = target.line_bytes // op.dtype.itemsize
    return len(axes) == 1 and axes[0].extent <= line // 2 and kept[-1].extent >= FEW


def _compensated(op: Reduction, is_long: bool) -> Reduction:
    return replace(op, is_compensated=is_long and op.name == "sum" and op.dtype.is_float)


def _rows_tiling(
    target: Target, op: Reduction, x: Memory, kept: list[Axis], axes: list[Axis]
) -> Tiling:
    """Lines where the last axis is dense; few long rows are cut into chunks for all threads."""
    dense = axes[-1].strides[0] == x.dtype.itemsize
    line = target.line_bytes // op.dtype.itemsize if dense else UNROLL
    unroll = min(UNROLL, _power_below(axes[-1].extent // line))
    results, size = max(1, _count(kept)), max(1, _count(axes))
    slowest = axes[0].extent
    chunk = slowest
    if results < CUBES and results * size > 2 * CUBE_ELEMENTS:
        unit = line * unroll * BLOCK if len(axes) == 1 else 1
        chunk = -(-slowest * CUBE_ELEMENTS // size // unit) * unit
    tiling = Tiling(len(kept), line, unroll, 1, max(1, min(chunk, slowest)))
    return replace(tiling, band=max(1, CUBE_ELEMENTS // max(1, tiling.read(axes))))


def _is_read_in_order(
    target: Target, op: Reduction, x: Memory, columns: Axis, axes: list[Axis]
) -> bool:
    """Whether rows are many and too long for registers: running results have to be in memory."""
    dense = columns.strides[0] == x.dtype.itemsize
    held = HELD * target.line_bytes // op.dtype.itemsize
    return dense and _count(axes) >= FEW and columns.extent > held


def _in_order_tiling(
    op: Reduction, x: Memory, line: int, kept: list[Axis], axes: list[Axis]
) -> Tiling:
    """Chunks of rows, read one after the other, and bands of columns whose results stay close."""
    columns, slowest = kept[-1].extent, max(1, axes[0].extent)
    inner = max(1, _count(axes) // slowest)
    band = min(columns, BAND_BYTES // op.dtype.itemsize)
    ahead = max(UNROLL, AHEAD_BYTES // (columns * x.dtype.itemsize))
    return Tiling(len(kept) - 1, line, UNROLL, band, max(1, CHUNK_ROWS // inner), ahead)


def _columns_tiling(line: int, kept: list[Axis], axes: list[Axis]) -> Tiling:
    """Chunks of rows where there are few results, and bands of columns, for registers."""
    columns, slowest = kept[-1].extent, max(1, axes[0].extent)
    inner = max(1, _count(axes) // slowest)
    unroll = min(HELD, _power_below(-(-columns // line)))
    chunk = slowest
    if _count(kept) < CUBES * line and slowest * inner > 2 * CHUNK_ROWS:
        chunk = max(1, CHUNK_ROWS // inner)
    step = line * unroll
    band = -(-max(1, CUBE_ELEMENTS // (chunk * inner)) // step) * step
    return Tiling(len(kept) - 1, line, unroll, min(band, max(1, columns)), chunk)
