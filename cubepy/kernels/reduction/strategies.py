"""How reductions divide their work: configurations by target, from axes that were merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.kernels.calls.axes import Axis, seen
from cubepy.kernels.calls.cubes import (
    GROUPED_UNITS,
    begins_lines,
    is_wide,
    units_above_each_other,
    units_of_short_row,
)
from cubepy.kernels.calls.prefetching import fills_cache_lines
from cubepy.kernels.reduction.kernel import BLOCK, ReduceTiling
from cubepy.kernels.reduction.problem import Reduction
from cubepy.kernels.reduction.wide_kernel import WideTiling
from cubepy.record import dataclass
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Division:
    """What bounds the pieces of a reduction.

    `cube_elements`: elements that one cube reads, enough to hide its start; `cubes`: as many keep
    all threads busy. A cube reads fewer, but not below `least_elements`, where each core
    has less than `cubes_each` cubes. `chunk_rows`: rows of a chunk, so that partial results are a
    small part of the array. `band_bytes`: running results in the nearest cache; `held`: lines of
    results in registers; `unroll`: lines or rows that are added side by side, to hide the time that
    one addition takes. `ahead_bytes`: how far rows are prefetched. `few`: rows or results that are
    not worth something of their own. `most_folded`: columns up to which rows are folded to be
    longer.

    For cubes of many units: `units` of one, and `items` results or partial results in all.
    """

    cube_elements: int = 1 << 18
    cubes: int = 64
    least_elements: int = 1 << 14
    cubes_each: int = 4
    chunk_rows: int = 64
    band_bytes: int = 1 << 14
    unroll: int = 8
    ahead_bytes: int = 1 << 15
    held: int = 16
    few: int = 16
    most_folded: int = 256
    units: int = 128
    items: int = 4096


_WIDE = ((256, 2048), (512, 1024), (128, 1024), (128, 16384))
"""Other units of a cube, and results or partial results, on devices whose cubes have many."""


def divisions(target: Target) -> tuple[Division, ...]:
    """The divisions for a target, the preferred one first."""
    if is_wide(target):
        return (Division(), *(Division(units=u, items=n) for u, n in _WIDE))
    unrolls = (Division(unroll=4), Division(unroll=16))
    sizes = (Division(cube_elements=1 << 16), Division(cube_elements=1 << 20))
    columns = (Division(held=8), Division(held=32), Division(ahead_bytes=1 << 13))
    return (Division(), *unrolls, *sizes, *columns, Division(band_bytes=1 << 13))


SMALL, SMALL_RESULTS, LEAST_EACH = 1 << 18, 1 << 10, 1 << 6
"""Elements, results and elements of each that are reduced by a cube for each result, also where
these lie side by side."""
FEWER_UNITS = 8
"""How many times fewer units than along rows go down columns, where each has several loads on its
way."""


def count_of(axes: Sequence[Axis]) -> int:
    """Positions of some axes."""
    return prod(a.extent for a in axes)


def _power_below(n: int) -> int:
    return 1 << max(1, n).bit_length() - 1


# Cubes of one unit


def stages(
    way: Division, kept: list[Axis], axes: list[Axis], size: int
) -> tuple[list[Axis], list[Axis]]:
    """Reduced axes in two stages: the inner ones, and outer ones where that is worth a stage."""
    if not kept or min(count_of(kept), count_of(axes)) == 0:
        return axes, []
    step = min(abs(a.strides[0]) for a in kept)
    outer = [a for a in axes if a.strides[0] > step]
    inner = axes[len(outer) :]
    if outer and inner and count_of(inner) >= way.few:
        return inner, outer
    return _folded(way, kept[-1], axes, size)


def _folded(
    way: Division, columns: Axis, axes: list[Axis], size: int
) -> tuple[list[Axis], list[Axis]]:
    """Few dense columns are reduced as more of them: several rows beside each other are one."""
    rows, most = axes[-1], way.most_folded
    ends = rows.strides[0] == columns.extent * size and columns.strides[0] == size
    factor = rows.extent & -rows.extent
    while factor > 1 and columns.extent * factor > most:
        factor //= 2
    if not ends or factor < 2 or rows.extent // factor < way.few or columns.extent > most // 2:
        return axes, []
    whole = Axis(rows.extent // factor, (rows.strides[0] * factor,))
    return [*axes[:-1], whole], [Axis(factor, rows.strides)]


def is_across(
    way: Division, target: Target, op: Reduction, kept: list[Axis], axes: list[Axis], size: int
) -> bool:
    """Whether lines lie along a kept axis: it is dense, or rows are much shorter than a line."""
    if axes[-1].strides[0] != size:
        return kept[-1].strides[0] == size
    line = lanes(target, op)
    return len(axes) == 1 and axes[0].extent <= line // 2 and kept[-1].extent >= way.few


def lanes(target: Target, op: Reduction) -> int:
    """Elements of a line in the running type."""
    return target.line_bytes // op.dtype.itemsize


def compensated(op: Reduction, is_long: bool) -> Reduction:
    """The reduction, which keeps its rounding errors if it is a long sum of floats."""
    return replace(op, is_compensated=is_long and op.name == "sum" and op.dtype.is_float)


def rows_tiling(
    way: Division, target: Target, op: Reduction, x: Memory, kept: list[Axis], axes: list[Axis]
) -> ReduceTiling:
    """Lines where the last axis is dense; few long rows are cut into chunks for all threads."""
    dense = axes[-1].strides[0] == x.dtype.itemsize
    line = lanes(target, op) if dense else way.unroll
    unroll = min(way.unroll, _power_below(axes[-1].extent // line))
    results, size = max(1, count_of(kept)), max(1, count_of(axes))
    slowest = axes[0].extent
    chunk = slowest
    if results < way.cubes and results * size > 2 * way.cube_elements:
        unit = line * unroll * BLOCK if len(axes) == 1 else 1
        chunk = -(-slowest * way.cube_elements // size // unit) * unit
    tiling = ReduceTiling(len(kept), line, unroll, 1, max(1, min(chunk, slowest)))
    return replace(tiling, band=results_each(way, target, results, max(1, tiling.read(axes))))


def results_each(way: Division, target: Target, results: int, read: int) -> int:
    """Results of a cube that reads so many elements for each: a power of two, so that one kernel
    serves many extents."""
    shared = results // (way.cubes_each * target.cores)
    return _power_below(min(way.cube_elements // read, max(way.least_elements // read, shared)))


def is_read_in_order(
    way: Division, target: Target, op: Reduction, x: Memory, columns: Axis, axes: list[Axis]
) -> bool:
    """Whether rows are many and too long for registers: running results have to be in memory."""
    dense = columns.strides[0] == x.dtype.itemsize
    held = way.held * lanes(target, op)
    return dense and count_of(axes) >= way.few and columns.extent > held


def in_order_tiling(
    way: Division,
    target: Target,
    op: Reduction,
    x: Memory,
    line: int,
    kept: list[Axis],
    axes: list[Axis],
) -> ReduceTiling:
    """Chunks of rows, one after the other, and bands of columns whose results fit a near cache."""
    columns, slowest = kept[-1].extent, max(1, axes[0].extent)
    inner = max(1, count_of(axes) // slowest)
    far = max(way.unroll, way.ahead_bytes // (columns * x.dtype.itemsize))
    ahead = far if fills_cache_lines(target) else 0
    chunk = min(slowest, max(1, way.chunk_rows // inner))
    results = count_of(kept) * -(-slowest // chunk)
    most = results_each(way, target, results, max(1, chunk * inner))
    held = way.band_bytes // op.dtype.itemsize
    band = min(columns, held, -(-most // (line * way.held)) * line * way.held)
    return ReduceTiling(len(kept) - 1, line, way.unroll, band, chunk, ahead)


def columns_tiling(
    way: Division, target: Target, line: int, kept: list[Axis], axes: list[Axis]
) -> ReduceTiling:
    """Chunks of rows where there are few results, and bands of columns, for registers."""
    columns, slowest = kept[-1].extent, max(1, axes[0].extent)
    inner = max(1, count_of(axes) // slowest)
    unroll = min(way.held, _power_below(-(-columns // line)))
    chunk = slowest
    if count_of(kept) < way.cubes * line and slowest * inner > 2 * way.chunk_rows:
        chunk = max(1, way.chunk_rows // inner)
    step = line * unroll
    results = count_of(kept) * -(-slowest // chunk)
    band = -(-results_each(way, target, results, max(1, chunk * inner)) // step) * step
    return ReduceTiling(len(kept) - 1, line, unroll, min(band, max(1, columns)), chunk)


# Cubes of many units


def wide_rows_tiling(
    way: Division, target: Target, op: Reduction, x: Memory, kept: list[Axis], axes: list[Axis]
) -> WideTiling:
    """A cube for a result, or several for each of few long ones; no larger than it is busy. Groups
    of units for short ones."""
    dense = axes[-1].strides[0] == x.dtype.itemsize
    line = max(1, target.line_bytes // x.dtype.itemsize) if dense else 1
    of_group = line if begins_lines(target, seen(x, [*kept, *axes])) else 1
    n = count_of(axes[:-1]) * -(-axes[-1].extent // of_group) * of_group
    group = units_of_short_row(target, of_group, n, x.dtype.itemsize)
    if group and count_of(kept) > 1:
        return WideTiling(len(kept), of_group, max(group, GROUPED_UNITS), 1, group)
    lines = count_of(axes[:-1]) * -(-axes[-1].extent // line)
    units = target.plane_dim
    while units < min(way.units, lines):
        units *= 2
    chunks = max(1, min(way.items // max(1, count_of(kept)), lines // (4 * units)))
    return WideTiling(len(kept), line, units, max(1, -(-lines // chunks)))


def is_small(kept: list[Axis], axes: list[Axis]) -> bool:
    """Whether one launch of a cube for each result, however it reads columns, is better than parts
    of columns and further launches that join them."""
    results, each = count_of(kept), count_of(axes)
    return results <= SMALL_RESULTS and each >= LEAST_EACH and results * each <= SMALL


def wide_columns_tiling(
    way: Division, target: Target, x: Memory, kept: list[Axis], axes: list[Axis]
) -> WideTiling:
    """A unit for a line of columns; chunks of rows where there are too few to fill the device."""
    dense = kept[-1].strides[0] == x.dtype.itemsize
    line = max(1, target.line_bytes // x.dtype.itemsize) if dense else 1
    lines = max(1, count_of(kept[:-1]) * -(-kept[-1].extent // line))
    slowest = max(1, axes[0].extent)
    inner = max(1, count_of(axes) // slowest)
    wanted = way.items * way.units // FEWER_UNITS // lines
    chunks = max(1, min(wanted, slowest * inner // way.few, slowest))
    return WideTiling(len(kept) - 1, line, way.units // 2, -(-slowest // chunks))


def shared_columns_tiling(
    target: Target, op: Reduction, x: Memory, kept: list[Axis], axes: list[Axis]
) -> WideTiling | None:
    """Units above each other in a cube share the rows of a line of columns; None where each would
    have too many of them."""
    line = max(1, target.line_bytes // x.dtype.itemsize)
    if not begins_lines(target, seen(x, [*kept[:-1], *axes, kept[-1]])):
        line = 1
    lines = count_of(kept[:-1]) * -(-kept[-1].extent // line)
    rows, inner, nbytes = axes[0].extent, count_of(axes[1:]), line * op.dtype.itemsize
    beside, down = units_above_each_other(target, lines, rows, inner, nbytes)
    return WideTiling(len(kept) - 1, line, beside * down, rows, down=down) if down else None
