"""Products of groups of rows with a matrix each, as in mixtures of experts.

The rows of a group follow each other; where each group ends is known on the device alone. So cubes
find the group of a tile, or of a row, while they run.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.matmul.pipelined import (
    Boxes,
    Finish,
    Pipelined,
    allocate,
    copy_tile,
    enter,
    factors,
    first_of,
    store_tile,
    sum_tile,
)
from cubepy.lang import pipelines
from cubepy.record import dataclass

# Everywhere


@dataclass(frozen=True, slots=True)
class Rows:
    """A cube of `units` makes one row, `line` columns in each unit at a time; where matrices are
    `turned`, dense along k, one column of lines along k."""

    units: int
    line: int
    sums: Any
    turned: bool


@cp.cube
def multiply_rows_of_groups(
    x: cp.Tensor,
    weights: cp.Tensor,
    ends: cp.Tensor,
    out: cp.Tensor,
    t: cp.Comptime[Rows],
) -> None:
    """A cube for each row of `x` [rows, k]; `weights` [groups, k, n], `out` [rows, n]."""
    row = cp.CUBE_POS
    group = group_of_row(row, ends)
    step = 1 if t.turned else t.line
    for c in range(cp.UNIT_POS * step, out.shape[1], cp.CUBE_DIM * step):
        sums = cp.Line[t.sums, t.line](0)
        if group < weights.shape[0]:
            for i in range(0, x.shape[1], t.line // step):
                values = cp.load(weights, (group, i, c), line=t.line)
                left = cp.load(x, (row, i), line=t.line) if t.turned else x[row, i]
                sums = sums + t.sums(left) * t.sums(values)
        if t.turned:
            out[row, c] = out.dtype(sums.sum())
        else:
            cp.store(out, (row, c), out.dtype(sums))


def group_of_row(row: Any, ends: Any) -> Any:
    """The first group that ends behind a row; the number of groups where none does."""
    group = cp.i64(0)
    while group < ends.shape[0] and row >= ends[group]:
        group += 1
    return group


# On Hopper


@dataclass(frozen=True, slots=True)
class Group:
    """Its rows begin at `begin` and end before `end`; tiles of groups before it: `tiles`."""

    number: Any
    begin: Any
    end: Any
    tiles: Any


@dataclass(frozen=True, slots=True)
class Groups:
    """Where the groups of rows are. Rows that no group has are one more, of zeros."""

    ends: Any
    rows: Any
    across: Any
    height: int

    @property
    def count(self) -> Any:
        """The groups that have a matrix."""
        return cp.i32(self.ends.shape[0])

    def start(self) -> Group:
        """The first group."""
        return Group(cp.i32(0), cp.i32(0), self.end_of(cp.i32(0), cp.i32(0)), cp.i32(0))

    def end_of(self, number: Any, begin: Any) -> Any:
        """Where a group ends that begins there: not before, and not behind the last row."""
        end = cp.i32(self.rows)
        if number < self.count:
            end = max(begin, min(end, cp.i32(self.ends[number])))
        return end

    def down(self, group: Group) -> Any:
        """The tiles of a group in a column."""
        return (group.end - group.begin + self.height - 1) // self.height

    def seek(self, group: Group, tile: Any) -> Group:
        """The group that a tile is in, that group or a later one; behind all tiles the number of
        the group is larger than `count`."""
        while group.number <= self.count and tile >= group.tiles + self.down(group) * self.across:
            tiles = group.tiles + self.down(group) * self.across
            number, begin = group.number + 1, group.end
            group = Group(number, begin, self.end_of(number, begin), tiles)
        return group


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Lets the rows before `end` leave shared memory, others belong to another group."""

    boxes: Any
    out: Any
    end: Any

    def store(self, staged: Any, corners: Any, first: int, me: Any, unit: Any, t: Any) -> None:
        """See `Boxes`."""
        _, row, column = corners
        if row + pipelines.ROWS <= self.end:
            Boxes(self.boxes).store(staged, corners, first, me, unit, t)
        else:
            line = 16 // t.result.itemsize
            pieces = t.chunk // line
            for k in range(unit, t.chunks * pipelines.ROWS * pieces, pipelines.WARPGROUP):
                c, i, piece = (
                    k // (pipelines.ROWS * pieces),
                    k // pieces % pipelines.ROWS,
                    k % pieces,
                )
                byte = pipelines.swizzled(i, piece * 16, t.out_swizzle)
                place = me, c * pipelines.ROWS + i, byte // t.result.itemsize
                values = cp.load(staged, place, line=line)
                if row + i < self.end:
                    cp.store(
                        self.out, (row + i, column + first + c * t.chunk + piece * line), values
                    )


@cp.cube
def multiply_groups(
    x: cp.cuda.TensorMap,
    weights: cp.cuda.TensorMap,
    boxes: cp.cuda.TensorMap,
    ends: cp.Tensor,
    out: cp.Tensor,
    k: int,
    t: cp.Comptime[Pipelined],
) -> None:
    """`x` is [rows, k], `weights` [groups, n, k], or [groups, k, n] turned; `boxes` are of `out`
    [rows, n]."""
    steps = cp.i32((k + t.depth - 1) // t.depth)
    across = cp.i32((out.shape[1] + t.width - 1) // t.width)
    groups = Groups(ends, out.shape[0], across, t.height)
    memory = allocate(t)
    warpgroup = enter(t)
    if warpgroup == 0:
        if cp.UNIT_POS == 0:
            copy_groups(x, weights, groups, steps, memory, t)
    else:
        make_groups(boxes, out, groups, steps, memory, warpgroup - 1, t)


def copy_groups(x: Any, weights: Any, groups: Any, steps: Any, memory: Any, t: Any) -> None:
    """What the one unit does that copies."""
    place, tile = memory.ring.start(), cp.i32(cp.CUBE_POS)
    group = groups.seek(groups.start(), tile)
    while group.number < groups.count:
        row, column = corner_in(group, tile, groups, t)
        place = copy_tile(x, weights, ((), (group.number,)), row, column, steps, memory, place, t)
        tile += cp.i32(cp.CUBE_COUNT)
        group = groups.seek(group, tile)


def corner_in(group: Any, tile: Any, groups: Any, t: Any) -> Any:
    """The first row and column of a tile of a group."""
    down, across = cp.u32(groups.down(group)), cp.u32(groups.across)
    row, column = first_of(cp.u32(tile - group.tiles), down, across, t)
    return group.begin + row, column


def make_groups(
    boxes: Any, out: Any, groups: Any, steps: Any, memory: Any, me: Any, t: Any
) -> None:
    """What a warpgroup does that multiplies."""
    place, tile = memory.ring.start(), cp.i32(cp.CUBE_POS)
    unit = cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
    x0, y0 = factors(memory, me)
    group = groups.seek(groups.start(), tile)
    while group.number <= groups.count:
        row, column = corner_in(group, tile, groups, t)
        some = steps if group.number < groups.count else 0
        sums, place = sum_tile(some, memory, x0, y0, place, unit, t)
        corners = (), row + pipelines.ROWS * me, column
        leave = GroupRows(boxes, out, group.end)
        store_tile(leave, sums, corners, out.shape, memory.out, me, unit, NOTHING, t)
        tile += cp.i32(cp.CUBE_COUNT)
        group = groups.seek(group, tile)
    if unit == 0:
        cp.cuda.bulk_wait(0, read=True)


NOTHING = Finish((), (), None)
