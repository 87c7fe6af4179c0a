"""Where extremes are: `argmax`, `argmin`."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import Kind, bool_, i32, i64, u8, u32
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import axis_or_dim, normal_axis, refused, wrong
from cubepy.kernels.calls.axes import Axis, merged, seen, with_last
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.cubes import (
    GROUPED_UNITS,
    begins_lines,
    is_wide,
    joining_units,
    units_above_each_other,
    units_of_short_row,
)
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.position.kernel import (
    Search,
    pick_among_chunks,
    pick_chunks,
    search_bands,
    search_columns,
    search_rows,
    search_shared_columns,
    search_short_rows,
)
from cubepy.kernels.reduction.problem import Reduction, running_type
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.targets import Target

_PLANS = Plans()


def argmax(
    x: Any, axis: int | None = None, keepdims: bool = False, *, out: Any = None, dim: Any = None
) -> Any:
    """The index of the maximum along an axis, or in row-major order of all; as `numpy.argmax`.

    `x`: any shape, strides and dtype but 8-bit floats; for the index of all, axes that do not
    follow each other in memory cost a copy. `dim` is the same as `axis`. Gives i64 in the library
    of `x`, on its device, or `out`. Of equal elements the first counts, and NaN is the greatest.
    Raises `LaunchError` for an axis that is not there and where there is no element;
    `LaunchTypeError` for what is no array.
    """
    return _search("argmax", x, axis, keepdims, out, dim)


def argmin(
    x: Any, axis: int | None = None, keepdims: bool = False, *, out: Any = None, dim: Any = None
) -> Any:
    """The index of the minimum along an axis, or of all; as `numpy.argmin`. See `argmax`; NaN is
    the least."""
    return _search("argmin", x, axis, keepdims, out, dim)


def _search(function: str, x: Any, axis: Any, keepdims: bool, out: Any, dim: Any) -> Any:
    if dim is not None:
        axis = axis_or_dim(function, axis, dim)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, arrays[0], axis, keepdims)

    return call(_PLANS, function, ("x",), (x,), (axis, keepdims), make, out)


def _plan(planner: Planner, x: Memory, axis: Any, keepdims: bool) -> None:
    name, rank = planner.function, len(x.shape)
    if x.dtype.is_float and x.dtype.bits == 8:
        raise refused(name, "x", f"has dtype {x.dtype}", "convert it to f16")
    axes = tuple(range(rank)) if axis is None else (normal_axis(name, rank, axis),)
    kept = [k for k in range(rank) if k not in axes]
    if not prod(x.shape[k] for k in axes):
        raise wrong(name, f"an array of shape {x.shape} has no {name}")
    extents = tuple(x.shape[k] for k in kept)
    shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    result = planner.result(Shape(shape if keepdims else extents, i64))
    if not prod(extents):
        return
    if keepdims:
        result = replace(result, shape=extents, strides=tuple(result.strides[k] for k in kept))
    row = _row(x, axes)
    if row is None:
        x, strided = planner.scratch(x.shape, x.dtype), x
        copy_transposed(planner, strided, x)
        row = Axis(prod(x.shape), (x.dtype.itemsize,))
    pairs = zip((x.strides[k] for k in kept), result.strides, strict=True)
    rest = merged([Axis(n, pair) for n, pair in zip(extents, pairs, strict=True)])
    x = replace(x, dtype=u8) if x.dtype is bool_ else x
    find = _find(planner.target, x, row.extent, name == "argmax")
    size = x.dtype.itemsize
    if rest and row.strides[0] != size and rest[-1].strides[0] == size:
        _launch_columns(planner, x, result, rest, row, find)
    else:
        _launch_rows(planner, x, result, rest, row, find)


def _row(x: Memory, axes: tuple[int, ...]) -> Axis | None:
    """The searched axes as one, in row-major order; None where they do not follow each other."""
    found = Axis(1, (x.dtype.itemsize,))
    for k in axes:
        axis = Axis(x.shape[k], (x.strides[k],))
        if axis.extent == 1:
            continue
        if found.extent > 1 and not axis.ends_on(found):
            return None
        found = replace(axis, extent=found.extent * axis.extent)
    return found


def _find(target: Target, x: Memory, n: int, is_max: bool) -> Search:
    name = "max" if is_max else "min"
    worst = Reduction(name, x.dtype).identity
    dtype = running_type(name, x.dtype)
    if is_wide(target) and dtype.is_integer and dtype.bits < 32:  # planes work on words
        dtype = u32 if dtype.kind is Kind.UINT else i32
    index = i32 if n < 2**31 - 2**16 else i64
    line = target.line_bytes // (4 if is_wide(target) else max(4, dtype.itemsize))
    return Search(is_max, worst, dtype, index, max(1, line), 0, n)


# Strategies and launches

CHUNK = 1 << 16
"""Elements of a row that are worth a cube of their own."""
FEW = 64
"""Rows that do not keep all threads busy."""
LEAST_ROWS, FEW_CHUNKS = 32, 8
"""Rows of a line of columns that are worth a unit, and chunks that one unit joins."""
FEW_UNITS, MOST_UNITS, UNIT_LINES = 64, 256, 16
"""Units of a cube that searches a row, as far as it has lines for them, at most, and lines of each
that are worth more units."""
CUBES, BAND_WORK = 2, 1 << 16
"""Cubes of one unit for each core, and elements that are worth one."""
LEAST_LINES, BAND_ROWS = 256, 8
"""Lines of a band up to which rows are cut first, and rows that it takes at a time."""
UNITS = 128
"""Units of a cube each of which searches a line of columns."""
BUSY_UNITS = 2048
"""Units that each multiprocessor should have, where rows are few."""


def _units(target: Target, lines: int, cubes: int) -> int:
    """Units of a cube that searches so many lines."""
    if not is_wide(target):
        return 1
    units, wanted = target.plane_dim, BUSY_UNITS * target.multiprocessors // max(1, cubes)
    wanted = min(MOST_UNITS, max(FEW_UNITS, wanted, -(-lines // UNIT_LINES)))
    while units < min(wanted, lines):
        units *= 2
    return units


def _launch_rows(
    planner: Planner, x: Memory, out: Memory, rest: list[Axis], row: Axis, find: Search
) -> None:
    name = planner.function
    wide, n, results = is_wide(planner.target), row.extent, prod(a.extent for a in rest)
    dense, view = row.strides[0] == x.dtype.itemsize, seen(x, [*rest, row])
    line = find.line if dense or not wide else 1
    if wide and rest and _launch_short_rows(planner, view, seen(out, rest, 1), find):
        return
    chunk = n if results >= FEW or n <= 2 * CHUNK else CHUNK
    unroll = 4 if min(n, chunk) >= 16 * line and not wide else 1
    find = replace(find, line=line, kept=len(rest), chunk=chunk, unroll=unroll)
    ways = (find, *(replace(find, unroll=n) for n in (2, 8) if unroll > 1))
    find = planner.pick_among("position", (name, memory_key(x), len(rest), dense), ways)
    chunks = -(-n // chunk)
    written = seen(out, [*rest, Axis(1, (0, 0))], 1)
    partial: Memory | None = None
    if chunks > 1:
        extents = (*(a.extent for a in rest), chunks)
        written = planner.scratch(extents, i64)
        partial = planner.scratch(extents, find.dtype)
    planner.launch(
        search_rows,
        Over(results * chunks, "cube", _units(planner.target, -(-chunk // line), results * chunks)),
        x=view,
        values=() if partial is None else (partial,),
        out=written,
        find=find,
    )
    if partial is not None:
        _launch_picks(planner, partial, written, seen(out, rest, 1), find)


def _launch_short_rows(planner: Planner, x: Memory, out: Memory, find: Search) -> bool:
    """Search rows by groups of units, if they are short."""
    size = x.dtype.itemsize
    line = find.line if x.strides[-1] == size and begins_lines(planner.target, x) else 1
    group = units_of_short_row(planner.target, line, x.shape[-1], size)
    if not group:
        return False
    units, rows = max(group, GROUPED_UNITS), prod(out.shape)
    planner.launch(
        search_short_rows,
        Over(-(-rows * group // units), "cube", units),
        x=x,
        out=out,
        find=replace(find, line=line, kept=len(out.shape), across=group),
    )
    return True


def _launch_columns(
    planner: Planner, x: Memory, out: Memory, rest: list[Axis], row: Axis, find: Search
) -> None:
    items, columns = prod(a.extent for a in rest[:-1]), rest[-1].extent
    find, wide = replace(find, kept=len(rest)), is_wide(planner.target)
    view = seen(x, [*rest[:-1], row, rest[-1]])
    if wide:
        lines = items * -(-columns // find.line)
        find = replace(find, chunk=_rows_each(planner.target, row.extent, lines))
        chunks = -(-row.extent // find.chunk)
        if chunks > 1 and _launch_shared_columns(planner, view, seen(out, rest, 1), find):
            return
        grid = Over(-(-lines * chunks // UNITS), "cube", UNITS)
    else:
        find = _in_bands(planner.target, find, items, row.extent, columns)
        chunks = -(-row.extent // find.chunk)
        grid = Over(items * chunks * -(-columns // find.band), "cube", 1)
    written = seen(out, [*rest[:-1], Axis(1, (0, 0)), rest[-1]], 1)
    partial: tuple[Memory, ...] = ()
    if chunks > 1:
        extents = (*(a.extent for a in rest[:-1]), chunks, columns)
        written = planner.scratch(extents, i64)
        partial = (planner.scratch(extents, find.dtype),)
    kernel = search_columns if wide else search_bands
    planner.launch(kernel, grid, x=view, values=partial, out=written, find=find)
    if partial:
        values, indices = (with_last(m, len(rest) - 1) for m in (*partial, written))
        _launch_picks(planner, values, indices, seen(out, rest, 1), find)


def _in_bands(target: Target, find: Search, items: int, rows: int, columns: int) -> Search:
    """Bands of columns whose running results are half of the nearest cache, narrower ones or fewer
    rows where there would be too few cubes."""
    wanted = max(1, min(CUBES * target.cores, items * rows * columns // BAND_WORK))
    held = target.near_bytes // 2 // (find.dtype.itemsize + find.index.itemsize)
    lines = -(-min(held, columns) // find.line)
    while lines > LEAST_LINES and items * -(-columns // (lines * find.line)) < wanted:
        lines = -(-lines // 2)
    band = lines * find.line
    chunks = max(1, min(-(-wanted // (items * -(-columns // band))), rows // LEAST_ROWS))
    return replace(find, band=band, chunk=-(-rows // chunks), unroll=BAND_ROWS)


def _launch_shared_columns(planner: Planner, x: Memory, out: Memory, find: Search) -> bool:
    """Search columns by units above each other, if these have few rows each then."""
    line = find.line if begins_lines(planner.target, x) else 1
    lines = prod(out.shape[:-1]) * -(-out.shape[-1] // line)
    nbytes = line * (find.dtype.itemsize + find.index.itemsize)
    beside, down = units_above_each_other(planner.target, lines, x.shape[-2], 1, nbytes)
    if not down:
        return False
    planner.launch(
        search_shared_columns,
        Over(-(-lines // beside), "cube", beside * down),
        x=x,
        out=out,
        find=replace(find, line=line, chunk=0, down=down),
    )
    return True


def _rows_each(target: Target, rows: int, lines: int) -> int:
    """Rows that a unit searches in a line of columns, of so many lines: all, but where these would
    leave a wide device idle, where both steps are to be short."""
    wanted = BUSY_UNITS * target.multiprocessors // max(1, lines)
    if wanted < 2 or rows < FEW:
        return max(1, rows)
    return max(-(-rows // wanted), LEAST_ROWS)


def _launch_picks(
    planner: Planner, values: Memory, indices: Memory, out: Memory, find: Search
) -> None:
    """Join the chunks of each result, which the last axis counts."""
    results, wide = prod(out.shape), is_wide(planner.target)
    is_many = wide and values.shape[-1] > FEW_CHUNKS
    units = joining_units(planner.target, values.shape[-1])
    planner.launch(
        pick_among_chunks if is_many else pick_chunks,
        Over(results, "cube", units) if is_many else Over(results, "unit", 32 if wide else 1),
        values=values,
        indices=indices,
        out=out,
        find=replace(find, line=1),
    )
