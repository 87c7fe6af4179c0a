"""A product written with `cp.cmma`, beside cuBLAS: `python -m bench.gpu_fragments [--all]`.

bf16, sums in f32, rows of both factors dense; timed as replays of graphs in turns. `--all` measures
every configuration, else the first alone.
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


@dataclass(frozen=True)
class Config:
    """Tiles of a cube (rows, columns, depth), planes along rows and columns, stages of the ring,
    and rows of tiles that cubes take together, so that they share what the cache holds."""

    tile: tuple[int, int, int]
    planes: tuple[int, int]
    stages: int
    band: int


CONFIGS = (
    Config((128, 128, 32), (2, 2), 4, 8),
    Config((128, 256, 64), (2, 4), 4, 8),
    Config((128, 256, 64), (2, 4), 3, 8),
    Config((128, 256, 32), (2, 4), 4, 8),
    Config((128, 128, 64), (2, 2), 3, 8),
    Config((256, 128, 64), (4, 2), 4, 4),
    Config((256, 128, 32), (4, 2), 4, 4),
)


def copy_tile(to: Any, stage: Any, x: Any, place: Any, extents: Any) -> None:
    """Start copies of 16 bytes: a tile of `x` to a stage of the ring."""
    across = extents[1] // 8
    for n in cp.unroll(range(extents[0] * across // cp.CUBE_DIM)):
        e = cp.UNIT_POS + n * cp.CUBE_DIM
        r, c = e // across, e % across * 8
        cp.cuda.async_copy(to, (stage, r, c), x, (place[0] + r, place[1] + c), 8)


def tile_of(a: Any, c: Any, config: Any) -> Any:
    """The first row and column of a cube's tile, by bands of rows."""
    m, n, _ = config.tile
    across = c.shape[1] // n
    group, within = (
        cp.CUBE_POS // (config.band * across),
        cp.CUBE_POS % (config.band * across),
    )
    return (group * config.band + within % config.band) * m, within // config.band * n


@cp.cube
def multiply(
    a: cp.Tensor[cp.bf16],
    b: cp.Tensor[cp.bf16],
    c: cp.Tensor[cp.bf16],
    config: cp.Comptime[Config],
):
    """c = a @ b, whose extents are multiples of the tiles. A ring of stages hides the copies; rows
    in shared memory are 16 bytes longer, so that eight of them lie in different banks."""
    (m, n, depth), (down, across), stages = config.tile, config.planes, config.stages
    left = cp.shared((stages, m, depth + 8), cp.bf16)
    right = cp.shared((stages, depth, n + 8), cp.bf16)
    row, column = tile_of(a, c, config)
    i, j = cp.PLANE_POS // across * (m // down), cp.PLANE_POS % across * (n // across)
    x = cp.cmma.fragment("a", m // down, 16, cp.bf16)
    y = cp.cmma.fragment("b", 16, n // across, cp.bf16)
    sums = cp.cmma.fragment("accumulator", m // down, n // across, cp.f32, fill=0)
    steps = a.shape[1] // depth
    for s in cp.unroll(range(stages - 1)):
        copy_tile(left, s, a, (row, s * depth), (m, depth))
        copy_tile(right, s, b, (s * depth, column), (depth, n))
        cp.cuda.async_commit()
    stage, free = cp.i32(0), cp.i32(stages - 1)
    for step in range(steps):
        cp.cuda.async_wait(stages - 2)
        cp.sync_cube()
        if step + stages - 1 < steps:
            start = (step + stages - 1) * depth
            copy_tile(left, free, a, (row, start), (m, depth))
            copy_tile(right, free, b, (start, column), (depth, n))
        cp.cuda.async_commit()
        for k in cp.unroll(range(0, depth, 16)):
            cp.cmma.load(x, left[stage], (i, k))
            cp.cmma.load(y, right[stage], (k, j))
            cp.cmma.mma(sums, x, y)
        stage = 0 if stage == stages - 1 else stage + 1
        free = 0 if free == stages - 1 else free + 1
    cp.cmma.store(c, (row + i, column + j), sums)


def launch(a: Any, b: Any, c: Any, config: Config) -> Callable[[], Any]:
    """A call without arguments."""
    (m, n, _), (down, across) = config.tile, config.planes
    cubes = c.shape[0] // m * (c.shape[1] // n)
    return multiply[cubes, 32 * down * across].bind(a, b, c, config)


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
    name = f"cmma {size} {config.tile} {config.planes} {config.stages}"
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
