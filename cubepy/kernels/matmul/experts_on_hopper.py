"""Products of groups of rows with a matrix each by `wgmma`, on Hopper.

A tile is some columns of the result for the rows of one group, in the transposed form: rows of a
matrix of weights are the rows of an instruction, and the rows of a group its columns, of which
there may be as few as 32. So small groups cost little, and each matrix comes from memory once
unless its group is large. Where groups end is known on the device alone: all cubes make the same
list of tiles, those of most rows first, and take theirs of it in turns; the cube that has the first
tile of the first turn has the last one of the others, so that all have about as much to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.matmul.finish import finished
from cubepy.kernels.matmul.pipelined import (
    allocate,
    enter,
    factors,
    packed,
    sum_tile,
    sync_warpgroup,
)
from cubepy.kernels.matmul.steps import banded
from cubepy.lang import pipelines
from cubepy.record import dataclass

BOX_ROWS = 32
"""Rows of a group that are copied at once."""
STAGED_ROWS = 64
"""Rows of a group whose results are in shared memory at once."""
LINE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Grouped:
    """Tiles of `height` columns of the result for as many of a group's rows as the least of
    `widths` that holds them; `groups` of rows.

    `left_turned`: matrices are dense along columns of the result, and not along k. `result`: the
    type of what waits in shared memory to be stored, sums where these go through a bias or an
    epilogue. The others are those of `Pipelined`.
    """

    height: int
    widths: tuple[int, ...]
    stages: int
    band: int
    groups: int
    left_turned: bool
    factors: DType
    elements: DType | str
    sums: DType
    promotes: bool
    result: DType
    right_turned: bool = False
    chunks: int = 1
    cluster: int = 1

    @property
    def width(self) -> int:
        """The most rows of a group in a tile."""
        return self.widths[-1]

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return self.height // pipelines.ROWS

    @property
    def units(self) -> int:
        """Units of a cube."""
        return (self.consumers + 1) * pipelines.WARPGROUP

    @property
    def depth(self) -> int:
        """Elements of k in a stage."""
        return pipelines.ROW_BYTES // self.factors.itemsize

    @property
    def chunk(self) -> int:
        """The distance of rows of results in shared memory, so that eight lie in all banks."""
        return pipelines.ROWS + LINE_BYTES // self.result.itemsize

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage."""
        return (self.height + self.width) * pipelines.ROW_BYTES + 16

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with what alignment may take."""
        out = self.height * self.chunk * self.result.itemsize
        lists = 7 * (self.groups + 2) * 4
        return self.stages * self.stage_bytes + out + lists + 1024

    def narrow(self, width: int) -> Grouped:
        """For tiles of so many rows of a group alone."""
        return replace(self, widths=(width,))


@cp.cube
def multiply_groups(
    x: cp.cuda.TensorMap,
    weights: cp.cuda.TensorMap,
    ends: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    k: int,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Grouped],
) -> None:
    """`x` is [rows, k], `weights` [groups, n, k], or [groups, k, n] turned; `out` [rows, n], a bias
    [groups, rows, n]."""
    finish = biases, extras, epilogue
    steps = cp.i32((k + t.depth - 1) // t.depth)
    memory = allocate(t)
    across = cp.i32((out.shape[1] + t.height - 1) // t.height)
    groups = arrange(ends, cp.i32(out.shape[0]), across, t)
    warpgroup = enter(t)
    if warpgroup == 0:
        if cp.UNIT_POS == 0:
            copy_groups(x, weights, groups, steps, memory, t)
    else:
        make_groups(out, finish, groups, steps, memory, warpgroup - 1, t)


# The list of tiles


@dataclass(frozen=True, slots=True)
class Work:
    """A tile: `size` rows of a group from `row` on, by columns from `column` on."""

    group: Any
    row: Any
    size: Any
    column: Any


@dataclass(frozen=True, slots=True)
class Groups:
    """Where the groups of rows begin, their sizes, into how many blocks of how many rows each is
    cut, and the groups in the order of these, most first, with the blocks before each.

    Rows that no group has are one more group, of zeros. `tiles` in all.
    """

    begins: Any
    sizes: Any
    blocks: Any
    heights: Any
    order: Any
    before: Any
    across: Any
    tiles: Any

    def tile(self, turn: Any) -> Any:
        """The tile of a cube in a turn; those after the first go through the cubes from behind."""
        cubes, me = cp.i32(cp.CUBE_COUNT), cp.i32(cp.CUBE_POS)
        return turn * cubes + (cubes - 1 - me if turn > 0 else me)

    def seek(self, place: Any, tile: Any) -> Any:
        """The place in the order of the group of a tile, that one or a later one."""
        while tile >= self.before[place + 1] * self.across:
            place += 1
        return place

    def work(self, place: Any, tile: Any, t: Any) -> Work:
        """What a tile is; `place`: the result of `seek`."""
        group = self.order[place]
        within, down = cp.u32(tile - self.before[place] * self.across), cp.u32(self.blocks[group])
        block, column = banded(within, down, cp.u32(self.across), t.band)
        row = cp.i32(block) * self.heights[group]
        size = min(self.sizes[group] - row, self.heights[group])
        return Work(group, self.begins[group] + row, size, cp.i32(column) * t.height)


def arrange(ends: Any, rows: Any, across: Any, t: Any) -> Groups:
    """The list, by all units of a cube. Blocks of a group are equally high, in steps of rows that
    are copied at once: the time of a tile is that of its rows, or what its weights take."""
    count = t.groups + 1
    given = cp.shared(count, cp.i32)
    begins, sizes = cp.shared(count, cp.i32), cp.shared(count, cp.i32)
    blocks, heights = cp.shared(count, cp.i32), cp.shared(count, cp.i32)
    order, before = cp.shared(count, cp.i32), cp.shared(count + 1, cp.i32)
    for g in range(cp.UNIT_POS, count, cp.CUBE_DIM):
        given[g] = rows
        if g < t.groups:
            given[g] = cp.i32(max(0, min(ends[g], rows)))
    cp.sync_cube()
    for g in range(cp.UNIT_POS, count, cp.CUBE_DIM):
        begin = cp.i32(0)
        for i in range(g):
            begin = max(begin, given[i])
        size = max(given[g] - begin, 0)
        down = (size + t.width - 1) // t.width
        each = (size + max(down, 1) - 1) // max(down, 1)
        begins[g], sizes[g], blocks[g] = begin, size, down
        heights[g] = (each + BOX_ROWS - 1) // BOX_ROWS * BOX_ROWS
    cp.sync_cube()
    for g in range(cp.UNIT_POS, count, cp.CUBE_DIM):
        place, earlier, total = cp.i32(0), cp.i32(0), cp.i32(0)
        for i in range(count):
            if heights[i] > heights[g] or (heights[i] == heights[g] and i < g):
                place += 1
                earlier += blocks[i]
            total += blocks[i]
        order[place] = cp.i32(g)
        before[place] = earlier
        if g == 0:
            before[count] = total
    cp.sync_cube()
    tiles = before[count] * across
    return Groups(begins, sizes, blocks, heights, order, before, across, tiles)


def width_of(work: Work, t: Any) -> Any:
    """The least width of tiles that holds the rows of one."""
    width = cp.i32(t.width)
    for k in cp.unroll(range(len(t.widths) - 1)):
        if work.size <= t.widths[-2 - k]:
            width = cp.i32(t.widths[-2 - k])
    return width


# Copies


def copy_groups(x: Any, weights: Any, groups: Groups, steps: Any, memory: Any, t: Any) -> None:
    """What the one unit does that copies."""
    place, turn, found = memory.ring.start(), cp.i32(0), cp.i32(0)
    tile = groups.tile(turn)
    while tile < groups.tiles:
        found = groups.seek(found, tile)
        work = groups.work(found, tile, t)
        if work.group < t.groups:
            place = copy_tile(x, weights, work, steps, memory, place, t)
        turn += 1
        tile = groups.tile(turn)


def copy_tile(x: Any, weights: Any, work: Work, steps: Any, memory: Any, place: Any, t: Any) -> Any:
    """Copy what a tile needs; gives the next place."""
    ring, left, right = memory.ring, memory.left, memory.right
    width = width_of(work, t)
    for step in range(steps):
        ring.acquire(place, left.nbytes + width * pipelines.ROW_BYTES)
        left.load(ring, place.stage, weights, (work.group,), work.column, step * t.depth)
        for row in range(0, width, BOX_ROWS):
            origin = work.row + row, step * t.depth
            at = place.stage, row, 0
            cp.cuda.tensor_load(right.memory, at, x, origin, ring.full, place.stage)
        place = ring.following(place)
    return place


# Products and results


def make_groups(
    out: Any, finish: Any, groups: Groups, steps: Any, memory: Any, me: Any, t: Any
) -> None:
    """What a warpgroup does that multiplies."""
    place, turn, found = memory.ring.start(), cp.i32(0), cp.i32(0)
    x0, y0 = factors(memory, me)
    tile = groups.tile(turn)
    while tile < groups.tiles:
        found = groups.seek(found, tile)
        work = groups.work(found, tile, t)
        some, width = steps if work.group < t.groups else 0, width_of(work, t)
        for w in cp.unroll(t.widths):
            if width == w:
                narrow = t.narrow(w)
                place = make_tile(out, finish, work, some, memory, x0, y0, place, me, narrow)
        turn += 1
        tile = groups.tile(turn)


def make_tile(
    out: Any,
    finish: Any,
    work: Work,
    steps: Any,
    memory: Any,
    x0: Any,
    y0: Any,
    place: Any,
    me: Any,
    t: Any,
) -> Any:
    """Make a warpgroup's part of a tile; gives the next place."""
    unit = cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
    sums, place = sum_tile(steps, memory, x0, y0, place, unit, t)
    for first in cp.unroll(range(0, t.width, STAGED_ROWS)):
        rows = min(t.width - first, STAGED_ROWS)
        sync_warpgroup(me, t)
        stage(memory.out, sums[first // 2 : (first + rows) // 2], me, unit, t)
        sync_warpgroup(me, t)
        store(out, finish, memory.out, work, first, rows, me, unit, t)
    return place


def stage(staged: Any, sums: Any, me: Any, unit: Any, t: Any) -> None:
    """Put sums into shared memory, [row of the group, column of the result]."""
    lane, down = unit % 32, unit // 32 * 16
    if t.result.itemsize == 2:
        matrix = cp.local(4, cp.u32)
        for i in cp.unroll(range(sums.line_size // 2)):
            matrix[i % 4] = packed(cp.Line[t.result, 2](sums[2 * i : 2 * i + 2]), t.result)
            if i % 4 == 3:
                row = (i // 4 * 2 + lane // 16) * 8 + lane % 8
                place = me, row, down + lane // 8 % 2 * 8
                cp.cuda.stmatrix(staged, place, cp.load(matrix, 0, line=4), transposed=True)
    else:
        for i in cp.unroll(range(sums.line_size)):
            row = i // 4 * 8 + lane % 4 * 2 + i % 2
            staged[me, row, down + i // 2 % 2 * 8 + lane // 4] = t.result(sums[i])


def store(
    out: Any,
    finish: Any,
    staged: Any,
    work: Work,
    first: int,
    rows: int,
    me: Any,
    unit: Any,
    t: Any,
) -> None:
    """Store the rows of a tile from `first` on that its group has, as lines, or what bias and
    epilogue make of them."""
    biases, extras, epilogue = finish
    line = LINE_BYTES // t.result.itemsize
    pieces = pipelines.ROWS // line
    for e in range(rows * pieces // pipelines.WARPGROUP):
        k = unit + e * pipelines.WARPGROUP
        row, column = k // pieces, k % pieces * line
        if first + row < work.size:
            values = cp.load(staged, (me, row, column), line=line)
            i, j = work.row + first + row, work.column + pipelines.ROWS * me + column
            if len(biases) and work.group < t.groups:
                values = values + t.sums(cp.load(biases[0][work.group, i], j, line=line))
            if epilogue is not None:
                values = finished(values, (i, j), (), extras, epilogue)
            cp.store(out, (i, j), out.dtype(values))
