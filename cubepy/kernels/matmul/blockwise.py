"""Products by `wgmma` of bytes whose scales change along k, on Hopper.

As `pipelined`, but the sums of a stage, 128 elements of k, are multiplied by the scales that its
elements have, and added to the others in f32. After DeepSeek-V3's scheme ("DeepSeek-V3 Technical
Report", 3.3.2), which also keeps the few bits that tensor cores add 8-bit floats with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.matmul.finish import chosen
from cubepy.kernels.matmul.pipelined import (
    Boxes,
    Finish,
    Pipelined,
    allocate,
    copy_tiles,
    corner,
    enter,
    factors,
    promoted_sums,
    store_tile,
    tile_count,
)
from cubepy.lang import pipelines
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Blockwise:
    """Tiles, and how many rows of the left factor (`rows`), columns of the right one (`columns`,
    a multiple of a tile's), and stages (`left_steps`, `right_steps`) share a scale; 0 for all."""

    tiles: Pipelined
    rows: int
    left_steps: int
    right_steps: int
    columns: int


@cp.cube
def multiply_blockwise(
    a: cp.cuda.TensorMap,
    b: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    left: cp.Tensor,
    right: cp.Tensor,
    extents: tuple[int, ...],
    k: int,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    blocks: cp.Comptime[Blockwise],
) -> None:
    """`a`: [..., m, k], `b`: [..., n, k], `out`: of the `extents` [..., m, n]; scales `left`: [...,
    blocks of m, of k], `right`: [..., blocks of k, of n]."""
    t = blocks.tiles
    steps = cp.i32((k + t.depth - 1) // t.depth)
    memory = allocate(t)
    group = enter(t)
    if group == 0:
        if cp.UNIT_POS == 0:
            copy_tiles(a, b, extents, steps, memory, t)
    else:
        me = group - 1
        down, across, count = tile_count(extents, t)
        place = memory.ring.start()
        unit = cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
        x0, y0 = factors(memory, me)
        leave, finish = Boxes(out), Finish(biases, extras, epilogue)
        for tile in range(cp.u32(cp.CUBE_POS), count, cp.u32(cp.CUBE_COUNT)):
            where, row, column = corner(cp.u32(tile), down, across, extents, t)
            corners = where, row + pipelines.ROWS * me, column
            scales = scales_of(left, right, corners, extents, unit, blocks)
            sums, place = promoted_sums(steps, memory, x0, y0, place, unit, scales, t)
            store_tile(leave, sums, corners, extents, memory.out, me, unit, finish, t)
        if unit == 0:
            cp.cuda.bulk_wait(0, read=True)


@dataclass(frozen=True, slots=True)
class Scales:
    """The scales of the two rows that a unit has sums of, and of a tile's columns."""

    left: Any
    right: Any
    rows: Any
    column: Any
    blocks: Blockwise

    def at(self, step: Any) -> Any:
        """The factors of both rows' sums of a stage."""
        blocks = self.blocks
        one = step // blocks.left_steps if blocks.left_steps else 0
        two = step // blocks.right_steps if blocks.right_steps else 0
        across = cp.f32(self.right[two, self.column])
        return tuple(cp.f32(self.left[row, one]) * across for row in self.rows)


def scales_of(left: Any, right: Any, corners: Any, extents: Any, unit: Any, blocks: Any) -> Scales:
    """Those of a tile; the last row stands for those behind it."""
    where, first, column = corners
    row = first + unit // 32 * 16 + unit % 32 // 4
    last = cp.i32(extents[-2]) - 1
    rows = tuple(
        min(row + 8 * half, last) // blocks.rows if blocks.rows else 0 for half in range(2)
    )
    at = column // blocks.columns if blocks.columns else 0
    return Scales(chosen(left, where), chosen(right, where), rows, at, blocks)
