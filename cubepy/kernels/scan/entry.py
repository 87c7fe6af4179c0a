"""Scans: `cumsum`, `cumprod`."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import bool_, u8
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import axis_or_dim, normal_axis, refused
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.scan.kernel import (
    copy_flat,
    scan_columns,
    scan_rows,
    scan_wide_columns,
    scan_wide_rows,
    total_rows,
    total_wide_columns,
)
from cubepy.kernels.scan.narrow import NarrowTiling, scan_narrow_columns, total_narrow_columns
from cubepy.kernels.scan.problem import Scan, result_type, running_type
from cubepy.kernels.scan.strategies import column_tilings, narrow_tilings, row_tilings

_PLANS = Plans()


def cumsum(x: Any, axis: int | None = None, *, out: Any = None, dim: Any = None) -> Any:
    """The running sum along an axis, or of all elements in row-major order; as `numpy.cumsum`.

    `x`: any shape, strides and dtype but 8-bit floats; `dim` is the same as `axis`. Sums of bools
    and integers are i64, of unsigned integers u64, and wrap; others keep the dtype. Gives an array
    of the library of `x`, on its device, with its order of axes in memory; or `out`, of exactly
    this dtype and shape, which may be `x` itself.

    On CPUs f16, bf16 and f32 are added in f64 and rounded once, so that a result is off by half a
    unit in the last place and n * 2**-53 times the sum of absolute values; f64 is added one by one,
    in chunks where a row, or one of few columns, is long. On GPUs f16 and bf16 are added in f32,
    all others in their type, in lines, units and cubes, whose sums are added in turn: the error is
    at most (log2(n) + n / 4096 + 40) * 2**-24 (f64: 2**-53) times the sum of absolute values, and
    an intermediate sum may overflow where those one after the other do not. Raises `LaunchError`
    for an axis that is not there, and `LaunchTypeError` for what is no array.
    """
    return _scan("cumsum", "sum", x, axis, out, dim)


def cumprod(x: Any, axis: int | None = None, *, out: Any = None, dim: Any = None) -> Any:
    """The running product along an axis, or of all elements; as `numpy.cumprod`. See `cumsum`."""
    return _scan("cumprod", "prod", x, axis, out, dim)


def _scan(function: str, name: str, x: Any, axis: Any, out: Any, dim: Any) -> Any:
    if dim is not None:
        axis = axis_or_dim(function, axis, dim)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, name, arrays[0], axis)

    return call(_PLANS, function, ("x",), (x,), (axis,), make, out)


def _plan(planner: Planner, name: str, x: Memory, axis: Any) -> None:
    function, rank = planner.function, len(x.shape)
    if x.dtype.is_float and x.dtype.bits == 8:
        raise refused(function, "x", f"has dtype {x.dtype}", "convert it to f16")
    along = 0 if axis is None else normal_axis(function, rank, axis)
    extents = (prod(x.shape),) if axis is None else x.shape
    order = None
    if axis is not None:
        order = tuple(sorted(range(rank), key=lambda k: -abs(x.strides[k])))
    result = planner.result(Shape(extents, result_type(x.dtype), order))
    result = planner.joined(result, [x])
    if not prod(extents):
        return
    source = replace(x, dtype=u8) if x.dtype is bool_ else x
    source = _flat(planner, source) if axis is None else source
    op = Scan(name, running_type(x.dtype, is_wide(planner.target)))
    pairs = list(zip(extents, zip(source.strides, result.strides, strict=True), strict=True))
    row = Axis(*pairs.pop(along))
    rest = merged([Axis(*pair) for pair in pairs])
    _launch(planner, op, source, result, rest, row)


def _flat(planner: Planner, x: Memory) -> Memory:
    """All elements as one axis: a view where that can be, else a copy."""
    found = Axis(1, (x.dtype.itemsize,))
    for extent, stride in zip(x.shape, x.strides, strict=True):
        axis = Axis(extent, (stride,))
        if extent == 1:
            continue
        if found.extent > 1 and not axis.ends_on(found):
            copy = planner.scratch((prod(x.shape),), x.dtype)
            units = 256 if is_wide(planner.target) else 1024
            planner.launch(copy_flat, Over(prod(x.shape), "unit", units), x=x, out=copy)
            return copy
        found = replace(axis, extent=found.extent * extent)
    return replace(x, shape=(found.extent,), strides=found.strides)


def running_sums(planner: Planner, x: Memory, out: Memory) -> None:
    """The running sums of the rows of dense integers, in their type."""
    *kept, row = (Axis(n, (a, b)) for n, a, b in zip(x.shape, x.strides, out.strides, strict=True))
    _launch(planner, Scan("sum", x.dtype), x, out, kept, row)


def _launch(
    planner: Planner, op: Scan, x: Memory, out: Memory, rest: list[Axis], row: Axis
) -> None:
    size = x.dtype.itemsize, out.dtype.itemsize
    dense = row.strides == size or row.extent == 1
    columns = bool(rest) and not dense and rest[-1].strides == size
    follow = columns and rest[-1].ends_on(row)
    ways = narrow_tilings(planner.target, op, rest, row) if follow else ()
    if ways:
        _launch_narrow_columns(planner, op, x, out, rest, row, ways)
    elif columns:
        _launch_columns(planner, op, x, out, rest, row)
    else:
        _launch_rows(planner, op, x, out, rest, row, dense)


def _launch_rows(
    planner: Planner, op: Scan, x: Memory, out: Memory, rest: list[Axis], row: Axis, dense: bool
) -> None:
    target = planner.target
    ways = row_tilings(target, op, rest, row, x.dtype.itemsize, dense)
    tiling = planner.pick_among("scan", (op, memory_key(x), dense), ways)
    chunks, rows = -(-row.extent // tiling.chunk), prod(a.extent for a in rest)
    source, result = seen(x, [*rest, row]), seen(out, [*rest, row], 1)
    totals: tuple[Memory, ...] = ()
    if chunks > 1:
        totals = (planner.scratch((*(a.extent for a in rest), chunks), op.dtype),)
        grid = Over(rows * chunks, "cube", tiling.units)
        planner.launch(total_rows, grid, x=source, out=totals[0], op=op, tiling=tiling)
    kernel = scan_wide_rows if is_wide(target) else scan_rows
    grid = Over(-(-rows * chunks // tiling.band), "cube", tiling.units)
    planner.launch(kernel, grid, x=source, totals=totals, out=result, op=op, tiling=tiling)


def _launch_columns(
    planner: Planner, op: Scan, x: Memory, out: Memory, rest: list[Axis], row: Axis
) -> None:
    *kept, columns = rest
    ways = column_tilings(planner.target, op, kept, row, columns)
    tiling = planner.pick_among("scan", (op, memory_key(x)), ways)
    source, result = seen(x, [*kept, row, columns]), seen(out, [*kept, row, columns], 1)
    others = prod(a.extent for a in kept)
    if not is_wide(planner.target):
        cubes = others * -(-columns.extent // tiling.band)
        planner.launch(scan_columns, cubes, x=source, out=result, op=op, tiling=tiling)
        return
    chunks, totals = -(-row.extent // tiling.chunk), ()
    items = others * columns.extent * chunks
    grid = Over(-(-items // tiling.units), "cube", tiling.units)
    if chunks > 1:
        extents = (*(a.extent for a in kept), columns.extent, chunks)
        totals = (planner.scratch(extents, op.dtype),)
        planner.launch(total_wide_columns, grid, x=source, out=totals[0], op=op, tiling=tiling)
    planner.launch(
        scan_wide_columns, grid, x=source, totals=totals, out=result, op=op, tiling=tiling
    )


def _launch_narrow_columns(
    planner: Planner,
    op: Scan,
    x: Memory,
    out: Memory,
    rest: list[Axis],
    row: Axis,
    ways: tuple[NarrowTiling, ...],
) -> None:
    """Scan columns whose rows follow each other, as one axis of elements."""
    *kept, columns = rest
    tiling = planner.pick_among("scan", (op, memory_key(x), "narrow"), ways)
    elements = Axis(row.extent * columns.extent, columns.strides)
    source, result = seen(x, [*kept, elements]), seen(out, [*kept, elements], 1)
    chunks, others = -(-elements.extent // tiling.chunk), prod(a.extent for a in kept)
    totals: tuple[Memory, ...] = ()
    if chunks > 1:
        extents = (*(a.extent for a in kept), chunks - 1, 2 * tiling.line)
        totals = (planner.scratch(extents, op.dtype),)
        cubes = others * (chunks - 1)
        planner.launch(total_narrow_columns, cubes, x=source, out=totals[0], op=op, tiling=tiling)
    grid = Over(-(-others * chunks // tiling.band), "cube", 1)
    planner.launch(
        scan_narrow_columns, grid, x=source, totals=totals, out=result, op=op, tiling=tiling
    )
