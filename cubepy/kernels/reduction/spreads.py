"""The launches of a variance on cubes of many units: one pass over one reduced axis."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.jit.grid import Over
from cubepy.kernels.calls.axes import Axis, ascending, merged, seen, with_last
from cubepy.kernels.calls.cubes import is_wide, joining_units
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.reduction.moments import (
    MomentTiling,
    describe_columns,
    describe_rows,
    describe_short_rows,
    join_columns,
    join_rows,
)
from cubepy.kernels.reduction.problem import Reduction
from cubepy.kernels.reduction.strategies import (
    count_of,
    divisions,
    wide_columns_tiling,
    wide_rows_tiling,
)

BLOCK, MOST_CHUNKS = 8, 32
"""Lines or rows that a unit describes at a time, and chunks of a column that one unit joins."""


def launch_spread(
    planner: Planner,
    op: Reduction,
    count: int,
    x: Memory,
    out: Memory,
    kept: list[Axis],
    axes: list[Axis],
) -> bool:
    """Reduce squared distances from the mean, which `op` makes of a centre; whether that is done,
    which it is for floats along axes that are one. `kept` axes have strides in both arrays."""
    if not is_wide(planner.target) or not x.dtype.is_float:
        return False
    x, axes = ascending(x, axes)
    axes, kept = merged(axes), merged(kept)
    if len(axes) != 1:
        return False
    op, size = replace(op, read=None), x.dtype.itemsize
    if kept and kept[-1].strides[0] == size and axes[0].strides[0] != size:
        _launch_columns(planner, op, count, x, out, kept, axes)
    else:
        _launch_rows(planner, op, count, x, out, kept, axes)
    return True


def _launch_rows(
    planner: Planner,
    op: Reduction,
    count: int,
    x: Memory,
    out: Memory,
    kept: list[Axis],
    axes: list[Axis],
) -> None:
    way = divisions(planner.target)[0]
    wide = wide_rows_tiling(way, planner.target, op, x, kept, axes)
    tiling = MomentTiling(wide, BLOCK)
    if wide.across:
        planner.launch(
            describe_short_rows,
            Over(-(-count_of(kept) * wide.across // wide.units), "cube", wide.units),
            x=seen(x, [*kept, *axes]),
            out=seen(out, kept, 1),
            count=count,
            op=op,
            tiling=tiling,
        )
        return
    extents = tuple(a.extent for a in kept)
    chunks = -(-axes[0].extent // (wide.chunk * wide.line))
    number = 2 if chunks > 1 else 0
    parts = tuple(planner.scratch((*extents, chunks), op.dtype) for _ in range(number))
    result = seen(out, kept, 1)
    planner.launch(
        describe_rows,
        Over(chunks * count_of(kept), "cube", wide.units),
        x=seen(x, [*kept, *axes]),
        parts=parts,
        out=() if parts else (result,),
        count=count,
        op=op,
        tiling=tiling,
    )
    if parts:
        planner.launch(
            join_rows,
            Over(count_of(kept), "cube", wide.units),
            means=parts[0],
            spreads=parts[1],
            out=result,
            extent=axes[0].extent,
            count=count,
            op=op,
            tiling=tiling,
        )


def _launch_columns(
    planner: Planner,
    op: Reduction,
    count: int,
    x: Memory,
    out: Memory,
    kept: list[Axis],
    axes: list[Axis],
) -> None:
    way, place = divisions(planner.target)[0], len(kept) - 1
    wide = wide_columns_tiling(way, planner.target, x, kept, axes)
    tiling = MomentTiling(wide, BLOCK)
    extents = [a.extent for a in kept]
    extents.insert(place, -(-axes[0].extent // wide.chunk))
    means, spreads = (planner.scratch(tuple(extents), op.dtype) for _ in range(2))
    lines = prod(extents[:-1]) * -(-extents[-1] // wide.line)
    planner.launch(
        describe_columns,
        Over(-(-lines // wide.units), "cube", wide.units),
        x=seen(x, [*kept[:place], *axes, kept[place]]),
        means=means,
        spreads=spreads,
        op=op,
        tiling=tiling,
    )
    if extents[place] > MOST_CHUNKS:
        planner.launch(
            join_rows,
            Over(count_of(kept), "cube", joining_units(planner.target, extents[place])),
            means=with_last(means, place),
            spreads=with_last(spreads, place),
            out=seen(out, kept, 1),
            extent=axes[0].extent,
            count=count,
            op=op,
            tiling=MomentTiling(replace(wide, line=1), BLOCK),
        )
        return
    planner.launch(
        join_columns,
        Over(count_of(kept), "unit", wide.units),
        means=means,
        spreads=spreads,
        out=seen(out, kept, 1),
        extent=axes[0].extent,
        count=count,
        op=op,
        tiling=tiling,
    )
