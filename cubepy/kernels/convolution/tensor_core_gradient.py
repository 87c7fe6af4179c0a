"""The gradient of a convolution by its weights, as products on Hopper's tensor cores.

Results are filters by taps and channels, and what is summed over are the pixels of the gradient,
counted through all images. Both operands are pixels by channels in memory: the copy engine gathers
those that a tap meets (its im2col mode), and `wgmma` takes them turned. Pixels are divided among
cubes, whose sums another kernel adds.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.convolution.tensor_cores import offsets_of, place_of, window_of
from cubepy.kernels.matmul.pipelined import REGISTERS
from cubepy.lang import pipelines
from cubepy.record import dataclass

SIDE = 64
"""Pixels of a step; filters of a warpgroup; channels of a block, of which rows have 128 bytes."""
LINE = 4
"""Channels whose sums a unit adds."""
BLOCK_BYTES = SIDE * pipelines.ROW_BYTES


@dataclass(frozen=True, slots=True)
class Parts:
    """How the gradient is divided.

    `kernel`, `dilation`, `stride`, `before`: of the window, for 1 to 3 axes; `results`: extents of
    the gradient. `down` and `across`: warpgroups along filters, and along the blocks of 64 channels
    of all taps, of which each takes `blocks`. The pixels of a tile are divided into `parts`.
    """

    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    results: tuple[int, ...]
    batch: int
    channels: int
    filters: int
    down: int
    across: int
    blocks: int
    parts: int
    stages: int
    dtype: DType

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return self.down * self.across

    @property
    def units(self) -> int:
        """Units of a cube."""
        return pipelines.WARPGROUP * (1 + self.consumers)

    @property
    def width(self) -> int:
        """Blocks of a tile."""
        return self.blocks * self.across

    @property
    def chunks(self) -> int:
        """Blocks of a tap."""
        return -(-self.channels // SIDE)

    @property
    def columns(self) -> int:
        """Blocks in all."""
        return prod(self.kernel) * self.chunks

    @property
    def rows(self) -> int:
        """Tiles along filters."""
        return -(-self.filters // (SIDE * self.down))

    @property
    def tiles(self) -> int:
        """Tiles of the result."""
        return self.rows * -(-self.columns // self.width)

    @property
    def steps(self) -> int:
        """Runs of 64 pixels of the whole gradient."""
        return -(-self.batch * prod(self.results) // SIDE)


@cp.cube
def sum_products(
    x: cp.cuda.TensorMap,
    grad: cp.cuda.TensorMap,
    sums: cp.Tensor,
    is_last: cp.Comptime[bool],
    t: cp.Comptime[Parts],
) -> None:
    """A cube for a part of a tile; `sums`: [part, filter, block, channel of it] in f32.

    With one part, `sums` is the result [filter, depth, row, column, channel], dense along channels
    if `is_last`.
    """
    left = cp.shared((t.stages, t.down, SIDE, SIDE), t.dtype)
    right = cp.shared((t.stages, t.width, SIDE, SIDE), t.dtype)
    ring = pipelines.ring(t.stages, t.consumers)
    cp.sync_cube()
    few, many = REGISTERS[t.consumers]
    each = -(-t.steps // t.parts)
    part, tile = cp.i32(cp.CUBE_POS) % t.parts, cp.i32(cp.CUBE_POS) // t.parts
    steps = part * each, min((part + 1) * each, t.steps)
    filter, block = tile % t.rows * t.down * SIDE, tile // t.rows * t.width
    group = cp.i32(cp.UNIT_POS // pipelines.WARPGROUP)
    if group == 0:
        if few:
            cp.cuda.decrease_registers(few)
        if cp.UNIT_POS == 0:
            load_operands(x, grad, left, right, ring, steps, filter, block, t)
    else:
        if many:
            cp.cuda.increase_registers(many)
        me = group - 1
        found = multiply(left, right, ring, steps, me, t)
        unit = cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
        first = filter + me % t.down * SIDE + unit // 32 * 16 + unit % 32 // 4
        start = block + me // t.down * t.blocks
        if t.parts > 1:
            store_sums(sums[part], found, first, start, t)
        else:
            store_result(sums, found, first, start, is_last, t)


def load_operands(
    x: Any,
    grad: Any,
    left: Any,
    right: Any,
    ring: Any,
    steps: Any,
    filter: Any,
    block: Any,
    t: Any,
) -> None:
    """What the unit does that copies."""
    place = ring.start()
    nbytes = (t.down + min(cp.i32(t.width), t.columns - block)) * BLOCK_BYTES
    for step in range(steps[0], steps[1]):
        pixel = place_of(cp.i32(step) * SIDE, t.results)
        first = (pixel[0], *window_of(pixel[1:], t.stride, t.before))
        ring.acquire(place, nbytes)
        stage, none = place.stage, (0,) * len(t.kernel)
        for k in cp.unroll(range(t.down)):
            origin = (*pixel, filter + k * SIDE)
            cp.cuda.tensor_load(
                left, (stage, k, 0, 0), grad, origin, ring.full, stage, offsets=none
            )
        for k in cp.unroll(range(t.width)):
            tap, chunk = (block + k) // t.chunks, (block + k) % t.chunks
            if block + k < t.columns:
                apart = offsets_of(tap, t.kernel, t.dilation)
                origin = (*first, chunk * SIDE)
                cp.cuda.tensor_load(
                    right, (stage, k, 0, 0), x, origin, ring.full, stage, offsets=apart
                )
        place = ring.following(place)


def multiply(
    left: Any,
    right: Any,
    ring: Any,
    steps: Any,
    me: Any,
    t: Any,
) -> Any:
    """The sums of the warpgroup `me`."""
    mine, unit = cp.plane_shuffle(me, 0), cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
    row, column = mine % t.down, mine // t.down
    bytes_of = pipelines.ROW_BYTES
    x0 = cp.cuda.wgmma_descriptor(left, (0, row, 0, 0), BLOCK_BYTES, 8 * bytes_of, swizzle=bytes_of)
    y0 = cp.cuda.wgmma_descriptor(
        right, (0, column * t.blocks, 0, 0), BLOCK_BYTES, 8 * bytes_of, swizzle=bytes_of
    )
    place = ring.start()
    sums, last = cp.Line[cp.f32, t.blocks * SIDE // 2](0.0), cp.i32(0)
    for step in range(steps[0], steps[1]):
        ring.wait(place)
        cp.cuda.wgmma_fence()
        x = x0 + cp.u64(place.stage * (t.down * BLOCK_BYTES // 16))
        y = y0 + cp.u64(place.stage * (t.width * BLOCK_BYTES // 16))
        for q in cp.unroll(range(SIDE // 16)):
            along = cp.u64(q * bytes_of)
            sums = cp.cuda.wgmma(sums, x + along, y + along, t.dtype, True, True)
        cp.cuda.wgmma_commit()
        sums = cp.cuda.wgmma_wait(sums, 1)
        if unit == 0 and step > steps[0]:
            ring.release(last)
        last = place.stage
        place = ring.following(place)
    return cp.cuda.wgmma_wait(sums, 0)


def store_sums(out: Any, sums: Any, filter: Any, block: Any, t: Any) -> None:
    """Store the sums of a unit, whose first is of a filter and a block."""
    lane = cp.i32(cp.UNIT_POS % 4) * 2
    for i in cp.unroll(range(0, t.blocks * SIDE // 2, 2)):
        f, at, c = filter + i // 2 % 2 * 8, block + i // 32, i // 4 % 8 * 8 + lane
        if f < t.filters and at < t.columns:
            cp.store(out, (f, at, c), sums[i : i + 2], whole=True)


def store_result(out: Any, sums: Any, filter: Any, block: Any, is_last: Any, t: Any) -> None:
    """The same as elements of the result."""
    lane = cp.i32(cp.UNIT_POS % 4) * 2
    for i in cp.unroll(range(0, t.blocks * SIDE // 2, 2)):
        f, at = filter + i // 2 % 2 * 8, block + i // 32
        c = at % t.chunks * SIDE + i // 4 % 8 * 8 + lane
        place = (f, *unravelled(at // t.chunks, (1,) * (3 - len(t.kernel)) + t.kernel))
        if f < t.filters and at < t.columns and c < t.channels:
            pair = cp.Line[t.dtype, 2](sums[i : i + 2])
            if is_last:
                cp.store(out, (*place, c), pair, whole=True)
            else:
                out[*place, c] = pair[0]
                out[*place, c + 1] = pair[1]


@cp.cube
def add_parts(
    sums: cp.Tensor, out: cp.Tensor, is_last: cp.Comptime[bool], t: cp.Comptime[Parts]
) -> None:
    """`out`: [filter, depth, row, column, channel]. A unit for `LINE` channels where these are
    dense (`is_last`), else for one element, in the order of [filter, channel, ...]."""
    taps, line = prod(t.kernel), LINE if is_last else 1
    lines, place = t.channels // line, cp.i32(cp.ABSOLUTE_POS)
    if place < t.filters * taps * lines:
        f, rest = place // (taps * lines), place % (taps * lines)
        tap, c = (rest // lines, rest % lines * line) if is_last else (rest % taps, rest // taps)
        found = cp.Line[cp.f32, line](0.0)
        for part in range(t.parts):
            at = (part, f, tap * t.chunks + c // SIDE, c % SIDE)
            found += cp.load(sums, at, line=line, fill=None)
        window = unravelled(tap, (1,) * (3 - len(t.kernel)) + t.kernel)
        cp.store(out, (f, *window, c), cp.Line[t.dtype, line](found), whole=True)
