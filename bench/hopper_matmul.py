"""A product of matrices on Hopper in six steps: the kernels of the guide's page "hopper-matmul".

All make out = a @ b.T in bf16, with sums in f32: a (m, k), b (n, k), both dense along k. Each
kernel changes one thing of the one before; `bench.matmul_steps` says what that gains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.record import dataclass

HEIGHT, WIDTH, DEPTH = 128, 256, 64
"""The tile of a cube, and the elements of k that it multiplies in one step."""
TILE_BYTES = (HEIGHT + WIDTH) * DEPTH * 2
"""What it needs for that."""
STAGES = 4
"""Steps whose tiles are in shared memory or on their way."""
BAND = 8
"""Rows of tiles that persistent cubes go through together."""


# 1: fragments from global memory


@cp.cube
def by_fragments(a: cp.Tensor[cp.bf16], b: cp.Tensor[cp.bf16], out: cp.Tensor[cp.bf16]):
    """A plane makes 16 x 16 elements; here b is (k, n)."""
    i, j = cp.CUBE_POS_Y * 16, cp.CUBE_POS_X * 16
    left = cp.cmma.fragment("a", 16, 16, cp.bf16)
    right = cp.cmma.fragment("b", 16, 16, cp.bf16)
    total = cp.cmma.fragment("accumulator", 16, 16, cp.f32, fill=0)
    for k in range(0, a.shape[1], 16):
        cp.cmma.load(left, a, (i, k))
        cp.cmma.load(right, b, (k, j))
        cp.cmma.mma(total, left, right)
    cp.cmma.store(out, (i, j), total)


# 2: tiles in shared memory, which planes multiply


@cp.cube
def by_planes(
    a: cp.Tensor[cp.bf16],
    b: cp.Tensor[cp.bf16],
    out: cp.Tensor[cp.u32],
    stages: cp.Comptime[int],
):
    """Eight planes share a tile of 128 x 256, and make 64 x 64 of it each."""
    row, column = cp.i32(cp.CUBE_POS_Y * HEIGHT), cp.i32(cp.CUBE_POS_X * WIDTH)
    plane, lane = cp.i32(cp.UNIT_POS // 32), cp.i32(cp.UNIT_POS % 32)
    top, side = plane // 4 * 64, plane % 4 * 64
    left = cp.shared((stages, HEIGHT, DEPTH), cp.bf16)
    right = cp.shared((stages, WIDTH, DEPTH), cp.bf16)
    sums = cp.local((4, 8), cp.Line[cp.f32, 4], fill=0)
    steps = cp.i32(a.shape[1]) // DEPTH
    for ahead in cp.unroll(range(stages - 1)):
        fetch_step(left, right, a, b, row, column, ahead, steps, stages)
    for step in range(steps):
        if cp.comptime(stages == 1):
            fetch_step(left, right, a, b, row, column, step, steps, stages)
            cp.cuda.async_wait(0)
            cp.sync_cube()
        else:
            cp.cuda.async_wait(stages - 2)
            cp.sync_cube()
            fetch_step(left, right, a, b, row, column, step + stages - 1, steps, stages)
        multiply_step(sums, left, right, step % stages, top, side, lane)
        if cp.comptime(stages == 1):
            cp.sync_cube()
    for i in cp.unroll(range(4)):
        for j in cp.unroll(range(16)):
            r, c = row + top + 16 * i + j % 2 * 8 + lane // 4, column + side + j // 2 * 8
            pair = sums[i, j // 2][j % 2 * 2 : j % 2 * 2 + 2]
            out[r, c // 2 + lane % 4] = packed(pair)


def packed(pair: Any) -> Any:
    """Two sums as a word of two bf16, rounded to nearest even."""
    return cp.bitcast(cp.bf16(pair), cp.u32)


def fetch_step(
    left: Any,
    right: Any,
    a: Any,
    b: Any,
    row: Any,
    column: Any,
    step: Any,
    steps: Any,
    stages: int,
) -> None:
    """Begin the copies of a step by all 256 units, 16 bytes each."""
    if step < steps:
        for tile, x, first in ((left, a, row), (right, b, column)):
            for i in cp.unroll(range(tile.shape[1] // 32)):
                r, byte = 32 * i + cp.i32(cp.UNIT_POS // 8), cp.i32(cp.UNIT_POS % 8) * 16
                place = step % stages, r, cp.pipelines.swizzled(r, byte) // 2
                cp.cuda.async_copy(tile, place, x, (first + r, step * DEPTH + byte // 2), 8)
    cp.cuda.async_commit()


def multiply_step(
    sums: Any, left: Any, right: Any, stage: Any, top: Any, side: Any, lane: Any
) -> None:
    """Add the products of a stage to the 64 x 64 sums of a plane, 16 elements of k at a time."""
    x = cp.local(4, cp.Line[cp.u32, 4])
    for k in cp.unroll(range(0, 2 * DEPTH, 32)):
        at = cp.pipelines.swizzled(lane % 16, k + lane // 16 * 16) // 2
        for i in cp.unroll(range(4)):
            x[i] = cp.cuda.ldmatrix(left, (stage, top + 16 * i + lane % 16, at))
        for j in cp.unroll(range(4)):
            y = cp.cuda.ldmatrix(right, (stage, side + 16 * j + lane % 16, at))
            for i in cp.unroll(range(4)):
                for half in cp.unroll(range(2)):
                    part = cp.Line[cp.u32, 2](y[half], y[2 + half])
                    place = i, 2 * j + half
                    sums[place] = cp.cuda.mma(x[i], part, sums[place], cp.bf16)


# 3: the copy engine and warpgroups


@cp.cube
def by_warpgroups(
    a: cp.cuda.TensorMap, b: cp.cuda.TensorMap, out: cp.Tensor[cp.u32], steps: cp.i32
):
    """Two warpgroups make 64 x 256 each, of a tile that the copy engine brings."""
    row, column = cp.i32(cp.CUBE_POS_Y * HEIGHT), cp.i32(cp.CUBE_POS_X * WIDTH)
    me = cp.i32(cp.UNIT_POS // 128)
    left = cp.pipelines.tiles(1, HEIGHT, cp.bf16)
    right = cp.pipelines.tiles(1, WIDTH, cp.bf16)
    full = cp.shared(1, cp.u64)
    if cp.UNIT_POS == 0:
        cp.cuda.barrier_init(full, 0, 1)
        cp.cuda.fence_barriers()
    cp.sync_cube()
    x, y = left.factor(64 * me), right.factor()
    sums = cp.Line[cp.f32, WIDTH // 2](0)
    for step in range(steps):
        if cp.UNIT_POS == 0:
            cp.cuda.barrier_expect(full, 0, TILE_BYTES)
            cp.cuda.tensor_load(left.memory, (0, 0, 0), a, (row, step * DEPTH), full, 0)
            cp.cuda.tensor_load(right.memory, (0, 0, 0), b, (column, step * DEPTH), full, 0)
        cp.cuda.barrier_wait(full, 0, step % 2)
        cp.cuda.wgmma_fence()
        sums = cp.pipelines.multiply(sums, left, x, right, y, cp.bf16)
        cp.cuda.wgmma_commit()
        sums = cp.cuda.wgmma_wait(sums)
        cp.sync_cube()
    store_sums(out, sums, row + 64 * me, column)


def store_sums(out: Any, sums: Any, row: Any, column: Any) -> None:
    """Store the sums of a warpgroup as they lie in its units: two columns at a time."""
    unit = cp.i32(cp.UNIT_POS % 128)
    row, column = row + unit // 32 * 16 + unit % 32 // 4, column // 2 + unit % 4
    for j in cp.unroll(range(WIDTH // 4)):
        out[row + j % 2 * 8, column + j // 2 * 4] = packed(sums[2 * j : 2 * j + 2])


# 4: a ring of stages


@cp.cube
def by_ring(a: cp.cuda.TensorMap, b: cp.cuda.TensorMap, out: cp.Tensor[cp.u32], steps: cp.i32):
    """The copies of later steps are under way while one is multiplied."""
    row, column = cp.i32(cp.CUBE_POS_Y * HEIGHT), cp.i32(cp.CUBE_POS_X * WIDTH)
    me = cp.i32(cp.UNIT_POS // 128)
    memory = allocate()
    x, y = factors(memory, me)
    place, ahead = memory.ring.start(), memory.ring.start()
    for step in range(STAGES - 1):
        if cp.UNIT_POS == 0:
            load_step(memory, a, b, row, column, step, steps, ahead)
        ahead = memory.ring.following(ahead)
    sums, last = cp.Line[cp.f32, WIDTH // 2](0), cp.i32(0)
    for step in range(steps):
        sums = multiply_stage(memory, sums, x, y, place)
        sums = cp.cuda.wgmma_wait(sums, 1)
        if step > 0 and cp.UNIT_POS % 128 == 0:
            memory.ring.release(last)
        if cp.UNIT_POS == 0:
            load_step(memory, a, b, row, column, step + STAGES - 1, steps, ahead)
        last = place.stage
        place, ahead = memory.ring.following(place), memory.ring.following(ahead)
    store_sums(out, cp.cuda.wgmma_wait(sums), row + 64 * me, column)


@dataclass(frozen=True, slots=True)
class Stages:
    """Tiles of both factors, and the ring that says which are there."""

    left: Any
    right: Any
    ring: Any


def allocate() -> Stages:
    """The shared memory of a cube with two warpgroups that multiply, for use by all units."""
    left = cp.pipelines.tiles(STAGES, HEIGHT, cp.bf16)
    right = cp.pipelines.tiles(STAGES, WIDTH, cp.bf16)
    made = Stages(left, right, cp.pipelines.ring(STAGES, consumers=2))
    cp.sync_cube()
    return made


def factors(memory: Any, me: Any) -> Any:
    """The descriptors of a warpgroup's rows of the left factor, and of the right one."""
    mine = cp.plane_shuffle(me, 0)  # for descriptors to stay in uniform registers
    return memory.left.factor(64 * mine), memory.right.factor()


def load_step(
    memory: Any, a: Any, b: Any, row: Any, column: Any, step: Any, steps: Any, place: Any
) -> None:
    """Wait until a stage is free, and begin to copy a step to it, if there is one; by one unit."""
    if step < steps:
        memory.ring.acquire(place, TILE_BYTES)
        memory.left.load(memory.ring, place.stage, a, (), row, step * DEPTH)
        memory.right.load(memory.ring, place.stage, b, (), column, step * DEPTH)


def multiply_stage(memory: Any, sums: Any, x: Any, y: Any, place: Any) -> Any:
    """Wait until a stage is full, and begin to multiply what is in it."""
    left, right, stage = memory.left, memory.right, place.stage
    memory.ring.wait(place)
    cp.cuda.wgmma_fence()
    sums = cp.pipelines.multiply(sums, left, left.at(x, stage), right, right.at(y, stage), cp.bf16)
    cp.cuda.wgmma_commit()
    return sums


# 5: a warp that only copies


@cp.cube
def by_roles(a: cp.cuda.TensorMap, b: cp.cuda.TensorMap, out: cp.Tensor[cp.u32], steps: cp.i32):
    """One warpgroup copies, with few registers; two multiply, with many."""
    row, column = cp.i32(cp.CUBE_POS_Y * HEIGHT), cp.i32(cp.CUBE_POS_X * WIDTH)
    group = cp.i32(cp.UNIT_POS // 128)
    memory = allocate()
    place = memory.ring.start()
    if group == 0:
        cp.cuda.decrease_registers(40)
        if cp.UNIT_POS == 0:
            copy_steps(memory, a, b, row, column, steps, place)
    else:
        cp.cuda.increase_registers(232)
        me = group - 1
        x, y = factors(memory, me)
        sums, place = sum_steps(memory, x, y, steps, place)
        store_sums(out, sums, row + 64 * me, column)


def copy_steps(memory: Any, a: Any, b: Any, row: Any, column: Any, steps: Any, place: Any) -> Any:
    """Copy all steps of a tile; gives the next place in the ring."""
    for step in range(steps):
        load_step(memory, a, b, row, column, step, steps, place)
        place = memory.ring.following(place)
    return place


def sum_steps(memory: Any, x: Any, y: Any, steps: Any, place: Any) -> Any:
    """The sums of a warpgroup over all steps, and the next place; one product is under way."""
    sums, last = cp.Line[cp.f32, WIDTH // 2](0), cp.i32(0)
    is_first = cp.UNIT_POS % 128 == 0
    for step in range(steps):
        sums = multiply_stage(memory, sums, x, y, place)
        sums = cp.cuda.wgmma_wait(sums, 1)
        if step > 0 and is_first:
            memory.ring.release(last)
        last = place.stage
        place = memory.ring.following(place)
    sums = cp.cuda.wgmma_wait(sums)
    if is_first and steps > 0:
        memory.ring.release(last)
    return sums, place


# 6: cubes that stay, and results through shared memory


@cp.cube
def by_staying(
    a: cp.cuda.TensorMap,
    b: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    down: cp.u32,
    across: cp.u32,
    steps: cp.i32,
):
    """A cube for each multiprocessor makes one tile after another, of `down` x `across`."""
    group = cp.i32(cp.UNIT_POS // 128)
    staged = cp.shared((2, 128, 64), cp.bf16)
    memory = allocate()
    place = memory.ring.start()
    tiles = range(cp.u32(cp.CUBE_POS), down * across, cp.u32(cp.CUBE_COUNT))
    if group == 0:
        cp.cuda.decrease_registers(40)
        if cp.UNIT_POS == 0:
            for tile in tiles:
                row, column = banded(tile, down, across)
                place = copy_steps(memory, a, b, row, column, steps, place)
    else:
        cp.cuda.increase_registers(232)
        me = group - 1
        x, y = factors(memory, me)
        for tile in tiles:
            row, column = banded(tile, down, across)
            sums, place = sum_steps(memory, x, y, steps, place)
            store_boxes(out, sums, staged, row, column, me)
        cp.cuda.bulk_wait()


def banded(tile: Any, down: Any, across: Any) -> Any:
    """The first row and column of a tile: bands of rows are gone through column by column."""
    band, place = tile // (BAND * across), tile % (BAND * across)
    high = min(down - band * BAND, cp.u32(BAND))
    return cp.i32(band * BAND + place % high) * HEIGHT, cp.i32(place // high) * WIDTH


def store_boxes(out: Any, sums: Any, staged: Any, row: Any, column: Any, me: Any) -> None:
    """Store 128 columns at a time, as two boxes of 64 x 64 in the swizzle of the copy engine."""
    unit = cp.i32(cp.UNIT_POS % 128)
    lane, down = unit % 32, unit // 32 * 16
    words = cp.local(4, cp.u32)
    for turn in cp.unroll(range(2)):
        if unit == 0:
            cp.cuda.bulk_wait(0, read=True)
        sync_warpgroup(me)
        for j in cp.unroll(range(8)):
            for i in cp.unroll(range(4)):
                at = 64 * turn + 8 * j + 2 * i
                words[i] = packed(sums[at : at + 2])
            byte = cp.pipelines.swizzled(lane % 8, j % 4 * 32 + lane // 16 * 16)
            place = me, j // 4 * 64 + down + lane % 16, byte // 2
            cp.cuda.stmatrix(staged, place, cp.load(words, 0, line=4))
        cp.cuda.fence_async()
        sync_warpgroup(me)
        if unit == 0:
            for box in cp.unroll(range(2)):
                origin = row + 64 * me, column + 128 * turn + 64 * box
                cp.cuda.tensor_store(out, origin, staged, (me, 64 * box, 0))
            cp.cuda.bulk_commit()


def sync_warpgroup(me: Any) -> None:
    """Wait for the units of this warpgroup alone."""
    for k in cp.unroll(range(2)):
        if me == k:
            cp.sync_units(k + 1, 128)


# Launches


def tiles_of(a: Any, b: Any) -> tuple[int, int]:
    """Tiles across and down, as a count of cubes; results of other extents are refused."""
    m, n = a.shape[0], b.shape[0]
    if m % HEIGHT or n % WIDTH:
        raise ValueError(f"the result has {m} x {n} elements, not multiples of {HEIGHT} x {WIDTH}")
    return n // WIDTH, m // HEIGHT


def with_planes(a: Any, b: Any, out: Any, stages: int) -> Callable[[], Any]:
    """A launch of step 2; `out` has pairs of bf16 as words."""
    grid, _ = tiles_of(a, b), steps_of(a)
    return lambda: by_planes[grid, 256](a, b, out, stages)


def with_maps(kernel: Any, units: int, a: Any, b: Any, out: Any) -> Callable[[], Any]:
    """A launch of steps 3 to 5; `out` has pairs of bf16 as words."""
    grid, steps = tiles_of(a, b), steps_of(a)
    maps = cp.cuda.tensor_map(a, (HEIGHT, DEPTH), 128), cp.cuda.tensor_map(b, (WIDTH, DEPTH), 128)
    return lambda: kernel[grid, units](*maps, out, steps)


def staying(cubes: int, a: Any, b: Any, out: Any) -> Callable[[], Any]:
    """A launch of step 6, in so many cubes."""
    (across, down), steps = tiles_of(a, b), steps_of(a)
    maps = cp.cuda.tensor_map(a, (HEIGHT, DEPTH), 128), cp.cuda.tensor_map(b, (WIDTH, DEPTH), 128)
    boxes = cp.cuda.tensor_map(out, (64, 64), 128)
    return lambda: by_staying[cubes, 384](*maps, boxes, down, across, steps)


def steps_of(a: Any) -> int:
    """Steps along k."""
    k = a.shape[1]
    if k % DEPTH:
        raise ValueError(f"k is {k}, not a multiple of {DEPTH}")
    return k // DEPTH
