"""A product written with `cp.cmma`, beside cuBLAS: `python -m bench.gpu_fragments [--all]`.

bf16, sums in f32, rows of both factors dense; timed as replays of graphs in turns. Tiles lie
swizzled in shared memory, where the copy engine puts them (from sm_90 on), or the units themselves.
`--all` measures every configuration, else the first alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import cubepy as cp
from bench.gpu_matmul import SAMPLE, Row, show
from bench.replays import medians, torch
from cubepy.record import dataclass

FLOOR = 0.6
SIZES = (4096, 8192)
DEPTH, WIDTH = 64, 64
"""Elements of k in a stage, and columns of a plane: rows of 128 bytes in shared memory."""
SWIZZLE = 128
PART = 16
"""Elements of k that a product of fragments takes."""
PARTS = DEPTH // PART
PRODUCERS = 128
"""Units of the warpgroup whose first unit starts the copies of the engine."""


@dataclass(frozen=True)
class Config:
    """Rows and columns of a cube's tile, planes along the rows, stages of the ring, rows of tiles
    that cubes take together, so that they share what the cache holds, and whether the copy engine
    fills the stages."""

    tile: tuple[int, int]
    down: int
    stages: int
    band: int
    engine: bool

    @property
    def across(self) -> int:
        """Planes along the columns."""
        return self.tile[1] // WIDTH

    @property
    def nbytes(self) -> int:
        """A stage."""
        return sum(self.tile) * DEPTH * 2


CONFIGS = (
    Config((128, 256), 2, 3, 8, True),
    Config((256, 128), 4, 3, 4, True),
    Config((128, 256), 2, 4, 8, False),
    Config((256, 128), 4, 4, 4, False),
)


# One tile, by planes


def fragments(config: Any) -> Any:
    """Two parts of both factors, of which one is loaded while the other is multiplied, and sums."""
    high = range(config.tile[0] // config.down // 16)
    x = [[cp.cmma.fragment("a", 16, PART, cp.bf16) for _ in high] for _ in range(2)]
    y = [cp.cmma.fragment("b", PART, WIDTH, cp.bf16) for _ in range(2)]
    sums = [cp.cmma.fragment("accumulator", 16, WIDTH, cp.f32, fill=0) for _ in high]
    return x, y, sums


def load_part(x: Any, y: Any, left: Any, right: Any, at: Any) -> None:
    """A plane's part of k from `at` on; `left`, `right`: its rows and columns of a stage."""
    cp.cmma.load(y, right, (at, 0), SWIZZLE)
    for r in cp.unroll(range(len(x))):
        cp.cmma.load(x[r], left, (r * 16, at), SWIZZLE)


def multiply_part(sums: Any, x: Any, y: Any) -> None:
    for r in cp.unroll(range(len(x))):
        cp.cmma.mma(sums[r], x[r], y)


def banded(tile: Any, across: Any, config: Any) -> Any:
    """The first row and column of a tile: bands of rows are gone through column by column."""
    group, within = tile // (config.band * across), tile % (config.band * across)
    row = (group * config.band + within % config.band) * config.tile[0]
    return cp.i32(row), cp.i32(within // config.band * config.tile[1])


def shared_tiles(config: Any) -> Any:
    """Stages of blocks of rows of 128 bytes: one of rows of `a`; those of 64 columns of `b`, whose
    rows are those of k."""
    (m, n), stages = config.tile, config.stages
    left = cp.shared((stages, 1, m, DEPTH), cp.bf16)
    return left, cp.shared((stages, n // WIDTH, DEPTH, WIDTH), cp.bf16)


def own_tiles(left: Any, right: Any, plane: Any, config: Any) -> Any:
    """A plane's rows and columns of all stages, and where they begin in the cube's tile."""
    i, j = plane // config.across * (config.tile[0] // config.down), plane % config.across
    return left[:, 0, i:], right[:, j], i, j * WIDTH


# By the copy engine


@cp.cube
def multiply(
    a: cp.cuda.TensorMap,
    b: cp.cuda.TensorMap,
    c: cp.cuda.TensorMap,
    down: cp.u32,
    across: cp.u32,
    steps: cp.i32,
    config: cp.Comptime[Config],
):
    """c = a @ b, whose extents are multiples of the tiles. Cubes stay, and make every
    CUBE_COUNT-th tile; a warpgroup copies, so that the next tile begins while one is stored."""
    planes, (height, _) = config.down * config.across, config.tile
    left, right = shared_tiles(config)
    staged = cp.shared((planes, height // config.down, WIDTH), cp.bf16)
    ring = cp.pipelines.ring(config.stages, planes)
    cp.sync_cube()
    place = ring.start()
    mine = range(cp.u32(cp.CUBE_POS), down * across, cp.u32(cp.CUBE_COUNT))
    if cp.i32(cp.UNIT_POS // PRODUCERS) == 0:
        cp.cuda.decrease_registers(40)
        if cp.UNIT_POS == 0:
            for tile in mine:
                at = banded(tile, across, config)
                place = copy_steps(left, right, a, b, ring, place, at, steps, config)
    else:
        cp.cuda.increase_registers(232)
        plane = cp.PLANE_POS - PRODUCERS // cp.PLANE_DIM
        rows, columns, i, j = own_tiles(left, right, plane, config)
        for tile in mine:
            row, column = banded(tile, across, config)
            sums, place = sum_steps(rows, columns, ring, place, steps, config)
            send(c, staged[plane], sums, row + i, column + j)
        if cp.UNIT_POS_PLANE == 0:
            cp.cuda.bulk_wait()


def copy_steps(
    left: Any, right: Any, a: Any, b: Any, ring: Any, place: Any, tile: Any, steps: Any, config: Any
) -> Any:
    """Copy all steps of a tile; gives the next place in the ring."""
    row, column = tile
    for step in range(steps):
        stage, k = place.stage, step * DEPTH
        ring.acquire(place, config.nbytes)
        cp.cuda.tensor_load(left, (stage, 0, 0, 0), a, (row, k), ring.full, stage)
        for n in cp.unroll(range(right.shape[1])):
            origin = k, column + n * WIDTH
            cp.cuda.tensor_load(right, (stage, n, 0, 0), b, origin, ring.full, stage)
        place = ring.following(place)
    return place


def sum_steps(left: Any, right: Any, ring: Any, place: Any, steps: Any, config: Any) -> Any:
    """The sums of a plane over all steps, and the next place. `left`, `right`: its rows and columns
    of all stages. Parts are loaded one ahead, also from the next stage; a stage is released once
    its last part is in registers."""
    x, y, sums = fragments(config)
    ring.wait(place)
    load_part(x[0], y[0], left[place.stage], right[place.stage], 0)
    for step in range(steps):
        for part in cp.unroll(range(PARTS - 1)):
            at, then = (part + 1) * PART, (part + 1) % 2
            load_part(x[then], y[then], left[place.stage], right[place.stage], at)
            multiply_part(sums, x[part % 2], y[part % 2])
        last = place.stage
        place = ring.following(place)
        if step < steps - 1:
            ring.wait(place)
            load_part(x[0], y[0], left[place.stage], right[place.stage], 0)
        multiply_part(sums, x[1], y[1])
        if cp.plane_elect():
            ring.release(last)
    return sums, place


def send(c: Any, staged: Any, sums: Any, row: Any, column: Any) -> None:
    """Let the copy engine store a plane's sums, once it has read those before."""
    first = cp.UNIT_POS_PLANE == 0
    if first:
        cp.cuda.bulk_wait(read=True)
    cp.sync_plane()
    for r in cp.unroll(range(len(sums))):
        cp.cmma.store(staged, (r * 16, 0), sums[r], SWIZZLE)
    cp.cuda.fence_async()
    cp.sync_plane()
    if first:
        cp.cuda.tensor_store(c, (row, column), staged, (0, 0))
        cp.cuda.bulk_commit()


# By asynchronous copies of all units


def copied(x: Any) -> Any:
    """What lies behind the place of a unit's first copy of 16 bytes in rows of 128."""
    return x[cp.UNIT_POS // 8 :, cp.UNIT_POS % 8 * 8 :]


def copy_part(to: Any, x: Any, part: Any, parts: Any) -> None:
    """Start one of some parts of the copies of 16 bytes to the blocks of a stage; `x` is `copied`,
    and its blocks lie side by side."""
    r, high = cp.UNIT_POS // 8, cp.CUBE_DIM // 8
    at = cp.pipelines.swizzled(r, cp.UNIT_POS % 8 * 16) // 2
    blocks, rows, width = to.shape
    for n in cp.unroll(range(part, blocks * rows // high, parts)):
        block, row = n * high // rows, n * high % rows
        cp.cuda.async_copy(to, (block, row + r, at), x, (row, block * width), 8)


@cp.cube
def multiply_copied(
    a: cp.Tensor[cp.bf16],
    b: cp.Tensor[cp.bf16],
    c: cp.Tensor[cp.bf16],
    config: cp.Comptime[Config],
):
    """As `multiply`, for GPUs without a copy engine: copies are spread over the parts of a step,
    whose barrier says that those of a stage have arrived."""
    stages, steps = config.stages, a.shape[1] // DEPTH
    left, right = shared_tiles(config)
    rows, columns, i, j = own_tiles(left, right, cp.PLANE_POS, config)
    row, column = banded(cp.CUBE_POS, c.shape[1] // config.tile[1], config)
    x, y, sums = fragments(config)
    from_a, from_b = copied(a[row:]), copied(b[:, column:])
    for s in cp.unroll(range(stages - 1)):
        copy_part(left[s], from_a[:, s * DEPTH :], 0, 1)
        copy_part(right[s], from_b[s * DEPTH :], 0, 1)
        cp.cuda.async_commit()
    cp.cuda.async_wait(stages - 2)
    cp.sync_cube()
    load_part(x[0], y[0], rows[0], columns[0], 0)
    stage, free = cp.i32(0), cp.i32(stages - 1)
    for step in range(steps):
        start = min(step + stages - 1, steps - 1) * DEPTH  # the last tile again, instead of an if
        for part in cp.unroll(range(PARTS)):
            at, then = (part + 1) % PARTS * PART, (part + 1) % 2
            if part == PARTS - 1:
                cp.cuda.async_commit()
                cp.cuda.async_wait(stages - 2)
                cp.sync_cube()
                stage = cp.i32(0) if stage == stages - 1 else stage + 1
                free = cp.i32(0) if free == stages - 1 else free + 1
            load_part(x[then], y[then], rows[stage], columns[stage], at)
            multiply_part(sums, x[part % 2], y[part % 2])
            if part < PARTS - 1:
                copy_part(left[free], from_a[:, start:], part, PARTS - 1)
                copy_part(right[free], from_b[start:], part, PARTS - 1)
    for r in cp.unroll(range(len(sums))):
        cp.cmma.store(c, (row + i + r * 16, column + j), sums[r])


def launch(a: Any, b: Any, c: Any, config: Config) -> Callable[[], Any]:
    """A call without arguments."""
    (m, n), planes = config.tile, config.down * config.across
    down, across = c.shape[0] // m, c.shape[1] // n
    if not config.engine:
        return multiply_copied[down * across, 32 * planes].bind(a, b, c, config)
    cubes = min(down * across, cp.device("cuda:0").target.multiprocessors)
    launcher = multiply.configure(registers=168)[cubes, PRODUCERS + 32 * planes]
    return launcher.bind(*maps(a, b, c, config), down, across, a.shape[1] // DEPTH, config)


def maps(a: Any, b: Any, c: Any, config: Config) -> list[Any]:
    """Boxes of rows of 128 bytes: all rows of a tile, those of a step, those of a plane."""
    boxes = (a, config.tile[0]), (b, DEPTH), (c, config.tile[0] // config.down)
    return [cp.cuda.tensor_map(x, (rows, WIDTH), SWIZZLE) for x, rows in boxes]


def measured(size: int, config: Config) -> Row:
    """One row."""
    a, b = (torch().randn(size, size, device="cuda", dtype=torch().bfloat16) for _ in range(2))
    ours, peer = torch().full_like(a, float("nan")), torch().empty_like(a)
    call = launch(a, b, ours, config)
    call()
    times = medians({"ours": call, "cublas": lambda: torch().matmul(a, b, out=peer)})
    expected = a[-SAMPLE:].double() @ b.double()
    error = float((ours[-SAMPLE:].double() - expected).abs().max() / expected.abs().max())
    rates = {name: 2e-9 * size**3 / ms for name, ms in times.items()}
    floor = FLOOR if size == SIZES[0] and config == CONFIGS[0] else None
    ratio = times["cublas"] / times["ours"]
    name = f"cmma {size} {config.tile} {config.stages} {'engine' if config.engine else 'units'}"
    return Row(name, rates["ours"], rates["cublas"], ratio, floor, error)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_fragments")
    parser.add_argument("--all", action="store_true", help="every configuration")
    options = parser.parse_args()
    print(f"{torch().cuda.get_device_name()}, torch {torch().__version__}; TFLOP/s", flush=True)
    for size in SIZES:
        for config in CONFIGS if options.all else CONFIGS[:1]:
            show(measured(size, config))


if __name__ == "__main__":
    main()
