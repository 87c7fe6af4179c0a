"""Products by `wgmma` on Hopper: a warp copies tiles, warpgroups multiply them, at the same time.

Each cube makes one tile of the result after another. Its first warpgroup only copies: one unit of
it fills a ring of stages by the copy engine. The others multiply 64 rows of the tile each, with
sums in registers, which move from the first to them. Results leave through shared memory and the
copy engine while the next tile is multiplied. After the scheme of CUTLASS ("Efficient GEMM in
CUDA", section "Warp Specialization"); tiles go in bands, so that factors stay in the last cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.kernels.matmul.steps import banded
from cubepy.lang import pipelines
from cubepy.record import dataclass

CHUNKS = (2, 3, 1)
"""How many boxes a warpgroup may store at once, the best first."""


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A cube makes tiles of `height` by `width`, with `stages` of factors under way.

    `band`: rows of tiles that are gone through together. `left_turned`, `right_turned`: the factor
    is dense along rows of the result (left), or columns (right), and not along k. `factors`: their
    type in memory, of which `wgmma` takes the `elements`; it adds products as `sums`. `promotes`:
    only within a stage, as it does so with fewer bits; stages are added in f32. `by_elements`:
    results leave one by one, where the copy engine cannot store them. The tiles of the cubes of a
    `cluster` are below each other, and each copies a part of the right factor for all of them.
    `has_bias_row`: the bias is one for each column, and units read theirs once for a tile.
    """

    height: int
    width: int
    stages: int
    band: int
    left_turned: bool
    right_turned: bool
    factors: DType
    elements: DType | str
    sums: DType
    promotes: bool
    result: DType
    is_finished: bool
    by_elements: bool = False
    cluster: int = 1
    has_bias_row: bool = False

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
        """Columns that one box of the result has."""
        whole = pipelines.ROW_BYTES // self.result.itemsize
        return whole // 2 if self.width % whole else whole

    @property
    def chunks(self) -> int:
        """Boxes of the result that are stored at once."""
        count = self.width // self.chunk
        return next(n for n in CHUNKS if count % n == 0)

    @property
    def out_swizzle(self) -> int:
        """Bytes of a row of such a box."""
        return self.chunk * self.result.itemsize

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage."""
        return (self.height + self.width) * pipelines.ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with what alignment may take."""
        out = self.height * self.chunks * self.out_swizzle
        return self.stages * (self.stage_bytes + 16) + out + 1024


REGISTERS = {1: (0, 0), 2: (40, 232), 3: (32, 160)}
"""Registers of a unit that copies, and of one that multiplies, by the number of warpgroups that do;
0: as many as the compiler takes."""


@cp.cube
def multiply_pipelined(
    a: cp.cuda.TensorMap,
    b: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    extents: tuple[int, ...],
    k: int,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Pipelined],
) -> None:
    """`a`: [..., m, k], or [..., k, m] turned; `b`: [..., n, k], or [..., k, n] turned; `out` has
    the `extents` [..., m, n]."""
    multiply_all(a, b, Boxes(out), extents, k, Finish(biases, extras, epilogue), t)


@cp.cube
def multiply_by_elements(
    a: cp.cuda.TensorMap,
    b: cp.cuda.TensorMap,
    out: cp.Tensor,
    extents: tuple[int, ...],
    k: int,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Pipelined],
) -> None:
    """The same for results of any strides."""
    multiply_all(a, b, Elements(out), extents, k, Finish(biases, extras, epilogue), t)


def multiply_all(a: Any, b: Any, leave: Any, extents: Any, k: Any, finish: Any, t: Any) -> None:
    """All roles; `leave` lets results leave shared memory."""
    steps = cp.i32((k + t.depth - 1) // t.depth)
    memory = allocate(t)
    group = enter(t)
    if group == 0:
        if cp.UNIT_POS == 0:
            copy_tiles(a, b, extents, steps, memory, t)
        if t.cluster > 1:
            cp.sync_plane()
    else:
        multiply_tiles(leave, extents, steps, memory, group - 1, finish, t)
    if t.cluster > 1:
        cp.cuda.cluster_sync()  # others copy to this cube, and arrive at its barriers


# What all kernels of this kind share


@dataclass(frozen=True, slots=True)
class Staging:
    """Shared memory: stages of both factors, their ring, and results on their way out."""

    left: Any
    right: Any
    ring: Any
    out: Any


@dataclass(frozen=True, slots=True)
class Finish:
    """What is done with sums before they are stored; `row`: a unit's share of a row of biases."""

    biases: Any
    extras: Any
    epilogue: Any
    row: Any = ()


def allocate(t: Any) -> Staging:
    """The shared memory of a cube, ready for use by all units."""
    made = Staging(
        pipelines.tiles(t.stages, t.height, t.factors, t.left_turned),
        pipelines.tiles(t.stages, t.width, t.factors, t.right_turned),
        pipelines.ring(t.stages, t.consumers * t.cluster),
        cp.shared((t.consumers, t.chunks * pipelines.ROWS, t.chunk), t.result),
    )
    if t.cluster > 1:
        cp.cuda.cluster_sync()
    else:
        cp.sync_cube()
    return made


def enter(t: Any) -> Any:
    """The number of the unit's warpgroup, once it has the registers for what it does: 0 copies."""
    group = cp.i32(cp.UNIT_POS // pipelines.WARPGROUP)
    few, many = REGISTERS[t.consumers]
    if few:
        if group == 0:
            cp.cuda.decrease_registers(few)
        else:
            cp.cuda.increase_registers(many)
    return group


def copy_tile(
    a: Any, b: Any, where: Any, row: Any, column: Any, steps: Any, memory: Any, place: Any, t: Any
) -> Any:
    """Copy what one tile of the result needs; gives the next place. `where`: the indices of the
    matrices in `a` and in `b`."""
    ring, left, right = memory.ring, memory.left, memory.right
    for step in range(steps):
        ring.acquire(place, left.nbytes + right.nbytes)
        left.load(ring, place.stage, a, where[0], row, step * t.depth)
        if t.cluster > 1:
            part = cp.CUBE_POS % t.cluster, t.cluster
            right.load_part(ring, place.stage, b, where[1], column, step * t.depth, part)
        else:
            right.load(ring, place.stage, b, where[1], column, step * t.depth)
        place = ring.following(place)
    return place


def sum_tile(steps: Any, memory: Any, x0: Any, y0: Any, place: Any, unit: Any, t: Any) -> Any:
    """The sums of a warpgroup for one tile, and the next place."""
    if t.promotes:
        return promoted_sums(steps, memory, x0, y0, place, unit, Unscaled(), t)
    ring, left, right = memory.ring, memory.left, memory.right
    sums, last = cp.Line[t.sums, t.width // 2](0), cp.i32(0)
    for step in range(steps):
        ring.wait(place)
        cp.cuda.wgmma_fence()
        x, y = left.at(x0, place.stage), right.at(y0, place.stage)
        sums = pipelines.multiply(sums, left, x, right, y, t.elements)
        cp.cuda.wgmma_commit()
        sums = cp.cuda.wgmma_wait(sums, 1)
        if step > 0:
            release(ring, last, unit, t)
        last = place.stage
        place = ring.following(place)
    sums = cp.cuda.wgmma_wait(sums, 0)
    if steps > 0:
        release(ring, last, unit, t)
    return sums, place


def promoted_sums(
    steps: Any, memory: Any, x0: Any, y0: Any, place: Any, unit: Any, scales: Any, t: Any
) -> Any:
    """The same with stages added in f32, each while the next one is multiplied; `scales.at(step)`
    is what the sums of a stage are multiplied by, see `added`.

    Two lines take turns: registers of products under way can't be moved.
    """
    ring, none = memory.ring, cp.Line[t.sums, t.width // 2](0)
    sums = cp.Line[cp.f32, t.width // 2](0)
    if steps > 0:
        one, two, last = none, none, place
        two = product_of_stage(two, memory, x0, y0, place, t)
        of_two = scales.at(cp.i32(0))
        for pair in range((steps - 1) // 2):
            place = ring.following(last)
            one = product_of_stage(one, memory, x0, y0, place, t)
            of_one = scales.at(2 * pair + 1)
            two = cp.cuda.wgmma_wait(two, 1)
            sums = added(sums, two, of_two)
            release(ring, last.stage, unit, t)
            last = ring.following(place)
            two = product_of_stage(two, memory, x0, y0, last, t)
            of_two = scales.at(2 * pair + 2)
            one = cp.cuda.wgmma_wait(one, 1)
            sums = added(sums, one, of_one)
            release(ring, place.stage, unit, t)
        if steps % 2 == 0:
            place = ring.following(last)
            one = product_of_stage(one, memory, x0, y0, place, t)
            of_one = scales.at(steps - 1)
            two = cp.cuda.wgmma_wait(two, 1)
            sums = added(sums, two, of_two)
            release(ring, last.stage, unit, t)
            one = cp.cuda.wgmma_wait(one, 0)
            sums = added(sums, one, of_one)
            last = place
        else:
            two = cp.cuda.wgmma_wait(two, 0)
            sums = added(sums, two, of_two)
        release(ring, last.stage, unit, t)
        place = ring.following(last)
    return sums, place


@dataclass(frozen=True, slots=True)
class Unscaled:
    """Sums of stages as they are."""

    def at(self, step: Any) -> tuple[Any, ...]:
        """No scales."""
        return ()


def added(sums: Any, part: Any, scales: tuple[Any, ...]) -> Any:
    """Sums and those of a stage, times the scales of a unit's two rows, if there are any."""
    if len(scales) == 0:
        return sums + part
    count = sums.line_size
    return sums + cp.Line[cp.f32, count](part) * repeated(scales, count)


def repeated(values: Any, count: Any) -> Any:
    """A line of two of each of two values in turn, as rows of sums lie in registers."""
    pairs = cp.concat(cp.Line[cp.f32, 2](values[0]), cp.Line[cp.f32, 2](values[1]))
    return doubled(pairs, count)


def doubled(v: Any, count: Any) -> Any:
    """A line that is repeated until it has `count` lanes."""
    if v.line_size == count:
        return v
    return doubled(cp.concat(v, v), count)


def release(ring: Any, stage: Any, unit: Any, t: Any) -> None:
    """Say that a warpgroup is done with a stage, to all who fill it."""
    if t.cluster == 1:
        if unit == 0:
            ring.release(stage)
    elif unit < t.cluster:
        cp.cuda.cluster_arrive(ring.empty, stage, unit, fence=False)


def product_of_stage(made: Any, memory: Any, x0: Any, y0: Any, place: Any, t: Any) -> Any:
    """Begin the products of a stage, in the registers of others."""
    left, right = memory.left, memory.right
    memory.ring.wait(place)
    cp.cuda.wgmma_fence()
    x, y = left.at(x0, place.stage), right.at(y0, place.stage)
    made = pipelines.multiply(made, left, x, right, y, t.elements, accumulate=False)
    cp.cuda.wgmma_commit()
    return made


# Tiles of products of equal extents


def tile_count(extents: Any, t: Any) -> Any:
    """The tiles of clusters down, across, and in all products."""
    high = t.height * t.cluster
    down = (extents[-2] + high - 1) // high
    across = (extents[-1] + t.width - 1) // t.width
    count = down * across * product(extents[:-2])
    return cp.u32(down), cp.u32(across), cp.u32(count)


def turns(t: Any) -> Any:
    """The first tile of a cluster, and how far its tiles are from each other."""
    return cp.u32(cp.CUBE_POS // t.cluster), cp.u32(cp.CUBE_COUNT // t.cluster)


def corner(tile: Any, down: Any, across: Any, extents: Any, t: Any) -> Any:
    """Which product a tile belongs to, and its first row and column."""
    each = down * across
    within = tile % each if len(extents) > 2 else tile
    product = unravelled(cp.i32(tile // each), extents[:-2])
    return product, *first_of(within, down, across, t)


def first_of(tile: Any, down: Any, across: Any, t: Any) -> Any:
    """The first row and column of a tile of one product."""
    row, column = banded(tile, down, across, t.band)
    if t.cluster > 1:
        row = row * t.cluster + cp.u32(cp.CUBE_POS % t.cluster)
    return cp.i32(row) * t.height, cp.i32(column) * t.width


def copy_tiles(a: Any, b: Any, extents: Any, steps: Any, memory: Any, t: Any) -> None:
    """What the one unit does that copies."""
    down, across, count = tile_count(extents, t)
    first, step = turns(t)
    place = memory.ring.start()
    for tile in range(first, count, step):
        where, row, column = corner(cp.u32(tile), down, across, extents, t)
        place = copy_tile(a, b, (where, where), row, column, steps, memory, place, t)


def multiply_tiles(
    leave: Any, extents: Any, steps: Any, memory: Any, me: Any, finish: Any, t: Any
) -> None:
    """What a warpgroup does that multiplies: `me` says which."""
    down, across, count = tile_count(extents, t)
    first, step = turns(t)
    place = memory.ring.start()
    unit = cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
    x0, y0 = factors(memory, me)
    for tile in range(first, count, step):
        where, row, column = corner(cp.u32(tile), down, across, extents, t)
        sums, place = sum_tile(steps, memory, x0, y0, place, unit, t)
        corners = where, row + pipelines.ROWS * me, column
        biases = row_of_biases(finish.biases, where, column, unit, t)
        last = Finish(finish.biases, finish.extras, finish.epilogue, biases)
        store_tile(leave, sums, corners, extents, memory.out, me, unit, last, t)
    if unit == 0:
        cp.cuda.bulk_wait(0, read=True)


def row_of_biases(biases: Any, where: Any, column: Any, unit: Any, t: Any) -> Any:
    """The biases of the columns of which a unit has sums, if they are a row; of those behind the
    last column that one's. None is read conditionally, so that all are under way together."""
    if not t.has_bias_row:
        return ()
    row, first = biases[0][(*where, 0)], column + unit % 4 * 2
    last = row.shape[0] - 1
    held = cp.local(t.width // 4, row.dtype)
    if column + t.width <= row.shape[0]:
        for k in cp.unroll(range(t.width // 8)):
            cp.store(held, 2 * k, cp.load(row, first + 8 * k, line=2, fill=None), whole=True)
    else:
        for k in cp.unroll(range(t.width // 4)):
            held[k] = row[min(first + k // 2 * 8 + k % 2, last)]
    return held


def factors(memory: Any, me: Any) -> Any:
    """The descriptors of a warpgroup's rows of the left factor, and of the right one."""
    mine = cp.plane_shuffle(me, 0)  # for descriptors to stay in uniform registers
    return memory.left.factor(pipelines.ROWS * mine), memory.right.factor()


# From sums to the result


@dataclass(frozen=True, slots=True)
class Boxes:
    """Lets results leave shared memory by the copy engine."""

    out: Any

    def store(self, staged: Any, corners: Any, first: int, me: Any, unit: Any, t: Any) -> None:
        """Store the columns from `first` on that a warpgroup has staged."""
        where, row, column = corners
        if unit == 0:
            for c in cp.unroll(range(t.chunks)):
                origin = (*where, row, column + first + c * t.chunk)
                cp.cuda.tensor_store(self.out, origin, staged, (me, c * pipelines.ROWS, 0))
            cp.cuda.bulk_commit()


@dataclass(frozen=True, slots=True)
class Elements:
    """Lets results leave shared memory one by one, those beside each other at the same time."""

    out: Any

    def store(self, staged: Any, corners: Any, first: int, me: Any, unit: Any, t: Any) -> None:
        """See `Boxes`."""
        where, row, column = corners
        z = chosen(self.out, where)
        for e in range(unit, t.chunks * pipelines.ROWS * t.chunk, pipelines.WARPGROUP):
            c, i = e // (pipelines.ROWS * t.chunk), e // t.chunk % pipelines.ROWS
            byte = pipelines.swizzled(i, e % t.chunk * t.result.itemsize, t.out_swizzle)
            j = column + first + c * t.chunk + e % t.chunk
            if row + i < z.shape[0] and j < z.shape[1]:
                z[row + i, j] = staged[me, c * pipelines.ROWS + i, byte // t.result.itemsize]


def store_tile(
    leave: Any,
    sums: Any,
    corners: Any,
    extents: Any,
    staged: Any,
    me: Any,
    unit: Any,
    finish: Any,
    t: Any,
) -> None:
    """Store the sums of a warpgroup, some columns at a time, through its part of shared memory.

    `leave` is `Boxes`, or another way from there.
    """
    each = t.chunks * t.chunk
    for begin in cp.unroll(range(0, t.width, each)):
        if unit == 0:
            cp.cuda.bulk_wait(0, read=True)
        sync_warpgroup(me, t)
        for c in cp.unroll(range(t.chunks)):
            first = begin + c * t.chunk
            stage_chunk(staged, sums, corners, extents, first, c, me, unit, finish, t)
        cp.cuda.fence_async()
        sync_warpgroup(me, t)
        leave.store(staged, corners, begin, me, unit, t)


def sync_warpgroup(me: Any, t: Any) -> None:
    """Wait for the units of this warpgroup alone."""
    for k in cp.unroll(range(t.consumers)):
        if me == k:
            cp.sync_units(k + 1, pipelines.WARPGROUP)


def stage_chunk(
    staged: Any,
    sums: Any,
    corners: Any,
    extents: Any,
    first: int,
    chunk: int,
    me: Any,
    unit: Any,
    finish: Any,
    t: Any,
) -> None:
    """Convert the sums of the columns from `first` on, and put them where a box is stored from."""
    if t.is_finished and reads_elements(finish, t):
        corner = corners[1], corners[2] + first
        inside = corner[0] + pipelines.ROWS <= extents[-2]
        inside = inside and corner[1] + t.chunk <= extents[-1]
        if inside:  # no branch between what is read for one pair and the next
            put_chunk(staged, sums, corners, extents, first, chunk, me, unit, finish, True, t)
        else:
            put_chunk(staged, sums, corners, extents, first, chunk, me, unit, finish, False, t)
    else:
        put_chunk(staged, sums, corners, extents, first, chunk, me, unit, finish, False, t)


def reads_elements(finish: Any, t: Any) -> bool:
    """Whether results depend on arrays that are read for each of them."""
    return not t.has_bias_row or finish.epilogue is not None


def put_chunk(
    staged: Any,
    sums: Any,
    corners: Any,
    extents: Any,
    first: int,
    chunk: int,
    me: Any,
    unit: Any,
    finish: Any,
    is_inside: bool,
    t: Any,
) -> None:
    """As `stage_chunk`; `is_inside`: all of the chunk is within the result."""
    lane, down = unit % 32, unit // 32 * 16
    matrix = cp.local(4, cp.u32)
    for j in cp.unroll(range(t.chunk // 4)):
        i = down + lane // 4 + j % 2 * 8
        v = sums[first // 2 + 2 * j : first // 2 + 2 * j + 2]
        if t.has_bias_row:
            v = v + cp.load(finish.row, first // 4 + j // 2 * 2, line=2, fill=None)
        pair = cp.Line[t.result, 2](v)
        if t.is_finished and reads_elements(finish, t):
            biases = () if t.has_bias_row else finish.biases
            index = (*corners[0], corners[1] + i, corners[2] + first + j // 2 * 8 + lane % 4 * 2)
            if is_inside or (index[-2] < extents[-2] and index[-1] < extents[-1]):
                v = finished(v, index, biases, finish.extras, finish.epilogue, is_inside)
                pair = cp.Line[t.result, 2](v)
        if t.result.itemsize == 2:
            matrix[j % 4] = packed(pair, t.result)
            if j % 4 == 3:
                byte = pipelines.swizzled(lane % 8, (j // 4 * 2 + lane // 16) * 16, t.out_swizzle)
                place = me, chunk * pipelines.ROWS + down + lane % 16, byte // 2
                cp.cuda.stmatrix(staged, place, cp.load(matrix, 0, line=4))
        else:
            byte = pipelines.swizzled(lane // 4, (j // 2 * 8 + lane % 4 * 2) * 4, t.out_swizzle)
            cp.store(staged, (me, chunk * pipelines.ROWS + i, byte // 4), pair)


def packed(pair: Any, dtype: Any) -> Any:
    """Two numbers as a word of two elements of 16 bits, rounded to nearest even."""
    return cp.bitcast(dtype(pair), cp.u32)
