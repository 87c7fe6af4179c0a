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
    Config((128, 256, 64), (2, 4), 3, 8),
    Config((128, 256, 64), (2, 4), 4, 8),
    Config((128, 128, 32), (2, 2), 4, 8),
    Config((128, 256, 32), (2, 4), 4, 8),
    Config((128, 128, 64), (2, 2), 3, 8),
    Config((256, 128, 64), (4, 2), 4, 4),
    Config((256, 128, 32), (4, 2), 4, 4),
)


def copied(x: Any, extents: Any) -> Any:
    """What lies behind the place of a unit's first copy of 16 bytes in a tile."""
    across = extents[1] // 8
    return x[cp.UNIT_POS // across :, cp.UNIT_POS % across * 8 :]


def copy_tile(to: Any, x: Any, extents: Any, share: Any) -> None:
    """Start copies of 16 bytes: share i of n of a tile of `x`; both are `copied`."""
    high, (part, parts) = cp.CUBE_DIM * 8 // extents[1], share
    for n in cp.unroll(range(part, extents[0] // high, parts)):
        cp.cuda.async_copy(to, (n * high, 0), x, (n * high, 0), 8)


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
    in shared memory are 16 bytes longer, so that eight of them lie in different banks. Fragments
    come to registers one part of 16 elements of k ahead, also over the barrier, and copies are
    spread over the parts, so that tensor cores always have work that has arrived."""
    (m, n, depth), (down, across), stages = config.tile, config.planes, config.stages
    left = cp.shared((stages, m, depth + 8), cp.bf16)
    right = cp.shared((stages, depth, n + 8), cp.bf16)
    row, column = tile_of(a, c, config)
    i, j = cp.PLANE_POS // across * (m // down), cp.PLANE_POS % across * (n // across)
    rows, columns = m // down, n // across
    x = [[cp.cmma.fragment("a", 16, 16, cp.bf16) for _ in range(rows // 16)] for _ in range(2)]
    y = [cp.cmma.fragment("b", 16, columns, cp.bf16) for _ in range(2)]
    sums = [cp.cmma.fragment("accumulator", 16, columns, cp.f32, fill=0) for _ in range(rows // 16)]
    steps, parts = a.shape[1] // depth, depth // 16
    from_a, from_b = copied(a[row:], (m, depth)), copied(b[:, column:], (depth, n))
    for s in cp.unroll(range(stages - 1)):
        copy_tile(copied(left[s], (m, depth)), from_a[:, s * depth :], (m, depth), (0, 1))
        copy_tile(copied(right[s], (depth, n)), from_b[s * depth :], (depth, n), (0, 1))
        cp.cuda.async_commit()
    cp.cuda.async_wait(stages - 2)
    cp.sync_cube()
    for r in cp.unroll(range(rows // 16)):
        cp.cmma.load(x[0][r], left[0, i:], (r * 16, 0))
    cp.cmma.load(y[0], right[0, :, j:], (0, 0))
    stage, free = cp.i32(0), cp.i32(stages - 1)
    for step in range(steps):
        start = min(step + stages - 1, steps - 1) * depth  # the last tile again, instead of an if
        next_a, to_left = from_a[:, start:], copied(left[free], (m, depth))
        next_b, to_right = from_b[start:], copied(right[free], (depth, n))
        for part in cp.unroll(range(parts)):
            at, now, then = (part + 1) % parts * 16, part % 2, (part + 1) % 2
            if part == parts - 1:
                cp.cuda.async_commit()
                cp.cuda.async_wait(stages - 2)
                cp.sync_cube()
                stage = cp.i32(0) if stage == stages - 1 else stage + 1
                free = cp.i32(0) if free == stages - 1 else free + 1
            cp.cmma.load(y[then], right[stage, :, j:], (at, 0))
            for r in cp.unroll(range(rows // 16)):
                cp.cmma.load(x[then][r], left[stage, i:], (r * 16, at))
                cp.cmma.mma(sums[r], x[now][r], y[now])
            if part < parts - 1:
                copy_tile(to_left, next_a, (m, depth), (part, parts - 1))
                copy_tile(to_right, next_b, (depth, n), (part, parts - 1))
    for r in cp.unroll(range(rows // 16)):
        cp.cmma.store(c, (row + i + r * 16, column + j), sums[r])


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
