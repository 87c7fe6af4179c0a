"""A convolution as products on Hopper's tensor cores, of operands that the copy engine gathers.

Results are filters by pixels: weights are the left operand of `wgmma` and pixels the right one, so
that few filters still make wide products. Pixels are counted along columns, then rows, then images.
The copy engine loads a run of them by 64 channels (its im2col mode), and where windows move by one
element that run serves several taps: along the last axes the runs go through the padding, so that
the operand of another tap is the same run begun some pixels later. Columns of padding between rows
are counted once, as the end of one and the beginning of the next. What is computed for the padding
is dropped by the copy engine, which stores results in the same mode.

One plane of a warpgroup loads pixels and another weights; the other warpgroups compute.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.matmul.pipelined import REGISTERS, packed, sync_warpgroup
from cubepy.lang import pipelines
from cubepy.record import dataclass

FILTERS = pipelines.ROWS
"""Filters of a warpgroup."""
PIECE = 8
"""Filters that a unit stores at once."""
UNROLLED = 64
"""Taps of a load whose products are unrolled, at most."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a convolution is divided.

    `kernel`, `dilation`, `stride`, `before`: of the window, for 1 to 3 axes; `extents`: pixels as
    they are counted, on each axis. A load serves all taps of the last `shared` axes. `down` and
    `across`: warpgroups along filters and pixels, with `pixels` of `FILTERS` filters each.
    `depth`: channels of a step, 16, 32 or 64. `loads`, `steps`: stages of the rings of pixels and
    of weights; `is_resident`: the ring holds all weights, which are loaded once. `parts`: cubes
    that share the channels of a tile. `is_turned`: weights are dense along filters, not channels;
    `is_reversed`: the last tap comes first in memory.
    """

    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    extents: tuple[int, ...]
    results: tuple[int, ...]
    batch: int
    channels: int
    filters: int
    shared: int
    down: int
    across: int
    pixels: int
    depth: int
    loads: int
    steps: int
    is_resident: bool
    dtype: DType
    is_turned: bool = False
    is_reversed: bool = False
    parts: int = 1

    @property
    def share(self) -> int:
        """Chunks of channels of a part of a tile."""
        return -(-self.chunks // self.parts)

    @property
    def units(self) -> int:
        """Units of a cube."""
        return pipelines.WARPGROUP * (1 + self.consumers)

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return self.down * self.across

    @property
    def halo(self) -> int:
        """Pixels of a load behind those of the first tap."""
        return shift_of(self.shifts - 1, self)

    @property
    def run(self) -> int:
        """Pixels of a load."""
        return self.pixels * self.across + self.halo

    @property
    def swizzle(self) -> int:
        """Bytes of a row in shared memory."""
        return self.depth * self.dtype.itemsize

    @property
    def rows(self) -> int:
        """Rows of a stage, whose swizzle repeats after 8."""
        return -(-self.run // 8) * 8

    @property
    def chunks(self) -> int:
        """Loads of a tap along channels."""
        return -(-self.channels // self.depth)

    @property
    def shifts(self) -> int:
        """Taps that a load serves."""
        return prod(self.kernel[len(self.kernel) - self.shared :])

    @property
    def windows(self) -> int:
        """Loads of a chunk of channels."""
        return prod(self.kernel) // self.shifts

    @property
    def columns(self) -> int:
        """Tiles along filters."""
        return -(-self.filters // (FILTERS * self.down))


def shift_of(tap: Any, t: Any) -> Any:
    """How many pixels later a tap of a load begins."""
    split = len(t.kernel) - t.shared
    return _shift(tap, t.kernel[split:], t.dilation[split:], t.extents[split:])


def _shift(tap: Any, kernel: Any, dilation: Any, extents: Any) -> Any:
    if not kernel:
        return 0
    row = _shift(tap // kernel[-1], kernel[:-1], dilation[:-1], extents[:-1])
    return row * extents[-1] + tap % kernel[-1] * dilation[-1]


def place_of(pixel: Any, extents: Any) -> Any:
    """The image and the place in it of a pixel."""
    if not extents:
        return (pixel,)
    return (*place_of(pixel // extents[-1], extents[:-1]), pixel % extents[-1])


def window_of(place: Any, stride: Any, before: Any) -> Any:
    """Where the window of a result begins."""
    if not stride:
        return ()
    return (*window_of(place[:-1], stride[:-1], before[:-1]), place[-1] * stride[-1] - before[-1])


def offsets_of(load: Any, kernel: Any, dilation: Any) -> Any:
    """How far the pixels of a load lie from those of the first one, of windows over these axes."""
    if not kernel:
        return ()
    inner = offsets_of(load // kernel[-1], kernel[:-1], dilation[:-1])
    return (*inner, load % kernel[-1] * dilation[-1])


@cp.cube
def convolve_tiles(
    x: cp.cuda.TensorMap,
    weight: cp.cuda.TensorMap,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    tiles: cp.i32,
    partial: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Tiles],
) -> None:
    """`x`: in im2col mode; `weight`: [filter, ..., channel], or [channel, ..., filter] turned;
    `out`: [n, ..., filter]; `tiles`: in all, with parts, which follow each other, as tiles along
    filters do. `partial`: what takes the sums of parts, [part of a tile, warpgroup, sum, unit], or
    nothing."""
    pixels = cp.shared((t.loads, t.rows, t.depth), t.dtype)
    weights = cp.shared((t.steps, t.down, FILTERS * t.depth), t.dtype)
    staged = cp.shared((t.consumers, t.pixels, FILTERS), t.dtype)
    loads = pipelines.ring(t.loads, t.consumers)
    steps = pipelines.ring(t.steps, t.consumers)
    cp.sync_cube()
    few, many = REGISTERS[t.consumers]
    group = cp.i32(cp.UNIT_POS // pipelines.WARPGROUP)
    if group == 0:
        if few:
            cp.cuda.decrease_registers(few)
        if cp.UNIT_POS == 0:
            load_pixels(x, pixels, loads, tiles, t)
        if cp.UNIT_POS == 32:
            load_weights(weight, weights, steps, tiles, t)
    else:
        if many:
            cp.cuda.increase_registers(many)
        ends = biases, extras, epilogue
        into = partial[0] if t.parts > 1 else out
        multiply(into, pixels, weights, staged, loads, steps, group - 1, tiles, ends, t)


def load_pixels(x: Any, pixels: Any, ring: Any, tiles: Any, t: Any) -> None:
    """What the unit does that copies pixels."""
    split = len(t.kernel) - t.shared
    place = ring.start()
    for tile in range(cp.i32(cp.CUBE_POS), tiles, cp.i32(cp.CUBE_COUNT)):
        pixel = place_of(cp.i32(tile) // (t.columns * t.parts) * (t.pixels * t.across), t.extents)
        first = (pixel[0], *window_of(pixel[1:], t.stride, t.before))
        begin, end = chunks_of(tile, t)
        for c in range(begin, end):
            for window in range(t.windows):
                apart = offsets_of(cp.i32(window), t.kernel[:split], t.dilation[:split])
                ring.acquire(place, x.nbytes)
                cp.cuda.tensor_load(
                    pixels,
                    (place.stage, 0, 0),
                    x,
                    (*first, cp.i32(c) * t.depth),
                    ring.full,
                    place.stage,
                    offsets=(*apart, *(0,) * t.shared),
                )
                place = ring.following(place)


def chunks_of(tile: Any, t: Any) -> Any:
    """The first and behind the last of the chunks of channels of a part of a tile."""
    if t.parts == 1:
        return 0, t.chunks
    begin = cp.i32(tile) % t.parts * t.share
    return begin, min(begin + t.share, t.chunks)


def load_weights(weight: Any, weights: Any, ring: Any, tiles: Any, t: Any) -> None:
    """What the unit does that copies weights: once where the ring holds them all."""
    place = ring.start()
    end = cp.i32(cp.CUBE_POS) + 1 if t.is_resident else tiles
    for tile in range(cp.i32(cp.CUBE_POS), end, cp.i32(cp.CUBE_COUNT)):
        first = cp.i32(tile) // t.parts % t.columns * (FILTERS * t.down)
        begin, last = chunks_of(tile, t)
        for c in range(begin, last):
            for tap in range(t.windows * t.shifts):
                met = t.windows * t.shifts - 1 - cp.i32(tap) if t.is_reversed else cp.i32(tap)
                taps = offsets_of(met, t.kernel, (1,) * len(t.kernel))
                ring.acquire(place, FILTERS * t.down * t.swizzle)
                stage, channel = place.stage, cp.i32(c) * t.depth
                if t.is_turned:
                    for k in cp.unroll(range(t.down)):
                        origin = (channel, *taps, first + k * FILTERS)
                        cp.cuda.tensor_load(
                            weights, (stage, k, 0), weight, origin, ring.full, stage
                        )
                else:
                    origin = (first, *taps, channel)
                    cp.cuda.tensor_load(weights, (stage, 0, 0), weight, origin, ring.full, stage)
                place = ring.following(place)


def multiply(
    out: Any,
    pixels: Any,
    weights: Any,
    staged: Any,
    loads: Any,
    steps: Any,
    me: Any,
    tiles: Any,
    ends: Any,
    t: Any,
) -> None:
    """What a warpgroup does that multiplies: `me` says which."""
    mine, unit = cp.plane_shuffle(me, 0), cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
    row, column = mine % t.down, mine // t.down  # in uniform registers, as descriptors are
    across = pipelines.ROW_BYTES if t.is_turned else t.swizzle
    left = cp.cuda.wgmma_descriptor(weights, (0, row, 0), 16, 8 * across, swizzle=across)
    right = cp.cuda.wgmma_descriptor(
        pixels, (0, t.pixels * column, 0), 16, 8 * t.swizzle, swizzle=t.swizzle
    )
    load, step = loads.start(), steps.start()
    for tile in range(cp.i32(cp.CUBE_POS), tiles, cp.i32(cp.CUBE_COUNT)):
        sums = cp.Line[cp.f32, t.pixels // 2](0.0)
        last_load, last_step = cp.i32(0), cp.i32(0)
        if t.is_resident:
            step = steps.start()
        begin, end = (n * t.windows for n in chunks_of(tile, t))
        for k in range(begin, end):
            loads.wait(load)
            among = (left, right, loads, steps, load, last_load, begin)
            if t.shifts <= UNROLLED:
                for shift in cp.unroll(range(t.shifts)):
                    sums, step, last_step = multiply_tap(sums, step, last_step, k, shift, among, t)
            else:
                for shift in range(t.shifts):
                    sums, step, last_step = multiply_tap(sums, step, last_step, k, shift, among, t)
            last_load = load.stage
            load = loads.following(load)
        sums = cp.cuda.wgmma_wait(sums, 0)
        if unit == 0:
            if not t.is_resident:
                steps.release(last_step)
            loads.release(last_load)
        if t.parts > 1:
            for k in cp.unroll(range(t.pixels // 2)):
                out[tile, me, k, unit] = sums[k]
        else:
            filter, pixel = corner_of(cp.i32(tile), row, column, t)
            store_tile(out, staged, sums, me, filter, pixel, ends, t)


def corner_of(tile: Any, row: Any, column: Any, t: Any) -> Any:
    """The first filter and the first pixel of a warpgroup, which is one of rows and columns."""
    filter = (tile % t.columns * t.down + row) * FILTERS
    return filter, (tile // t.columns * t.across + column) * t.pixels


@cp.cube
def join_tiles(
    partial: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Tiles],
) -> None:
    """A cube adds the parts of a tile, each unit the sums that it would have, and stores it."""
    staged = cp.shared((t.consumers, t.pixels, FILTERS), t.dtype)
    me, unit = cp.i32(cp.UNIT_POS // pipelines.WARPGROUP), cp.UNIT_POS % pipelines.WARPGROUP
    first = cp.CUBE_POS * t.parts
    held = cp.local(t.pixels // 2, cp.f32, fill=0)
    for part in range(t.parts):
        for k in cp.unroll(range(t.pixels // 2)):
            held[k] = held[k] + partial[first + part, me, k, unit]
    sums = cp.load(held, 0, line=t.pixels // 2, fill=None)
    filter, pixel = corner_of(cp.i32(cp.CUBE_POS), me % t.down, me // t.down, t)
    store_tile(out, staged, sums, me, filter, pixel, (biases, extras, epilogue), t)


def multiply_tap(
    sums: Any, step: Any, last_step: Any, k: Any, shift: Any, among: Any, t: Any
) -> Any:
    """Add the products of one tap of load `k`; the sums, and the next and the last step. Stages are
    released when the products of the tap behind theirs have begun."""
    left, right, loads, steps, load, last_load, begin = among
    unit, along = cp.UNIT_POS % pipelines.WARPGROUP, pipelines.ROW_BYTES if t.is_turned else 2
    steps.wait(step)
    cp.cuda.wgmma_fence()
    place = load.stage * t.rows + cp.i32(shift_of(shift, t))
    w = left + cp.u64(step.stage * (FILTERS * t.down * t.depth // 8))
    p = right + cp.u64(place * (t.depth // 8))
    for q in cp.unroll(range(t.depth // 16)):  # `along`: 16 bytes each, to the next 16 channels
        sums = cp.cuda.wgmma(sums, w + cp.u64(along * q), p + cp.u64(2 * q), t.dtype, t.is_turned)
    cp.cuda.wgmma_commit()
    sums = cp.cuda.wgmma_wait(sums, 1)
    if unit == 0 and (k > begin or shift > 0):
        if not t.is_resident:
            steps.release(last_step)
        if shift == 0:
            loads.release(last_load)
    return sums, steps.following(step), step.stage


def store_tile(
    out: Any, staged: Any, sums: Any, me: Any, filter: Any, pixel: Any, ends: Any, t: Any
) -> None:
    """Store the sums of a warpgroup through shared memory, where pixels are rows of filters."""
    unit = cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
    sync_warpgroup(me, t)
    stage_tile(staged, sums, me, filter, pixel, ends, t)
    sync_warpgroup(me, t)
    for k in cp.unroll(range(0, t.pixels, 16)):
        row, piece = k + unit // PIECE, unit % PIECE
        place, column = place_of(pixel + row, t.extents), filter + piece * PIECE
        if row < t.pixels and column < t.filters and is_result(place, t.results, t.batch):
            held = cp.load(staged, (me, row, (piece ^ row % 8) * PIECE), line=PIECE, fill=None)
            cp.store(out, (*place, column), held, whole=t.filters % PIECE == 0)


def stage_tile(staged: Any, sums: Any, me: Any, filter: Any, pixel: Any, ends: Any, t: Any) -> None:
    """Convert sums and put them in shared memory, in 8 x 8 matrices that are turned."""
    unit = cp.i32(cp.UNIT_POS % pipelines.WARPGROUP)
    lane, down = unit % 32, unit // 32 * 16
    added = biases_of(ends[0], filter + down + lane // 4, t)
    for block in cp.unroll(range(0, t.pixels // 8, 2)):
        count = min(2, t.pixels // 8 - block)
        words = cp.local(2 * count, cp.u32)
        for k in cp.unroll(range(2 * count)):
            at, first = 4 * block + 2 * k, pixel + (block + k // 2) * 8 + lane % 4 * 2
            pair = sums[at : at + 2] + added[k % 2]
            row = filter + down + lane // 4 + k % 2 * 8
            words[k] = packed(finished_pair(pair, row, first, ends, t), t.dtype)
        row = block * 8 + (lane // 16 * 8 if count == 2 else 0) + lane % 8
        piece = (down // 8 + lane // 8 % 2) ^ row % 8
        held = cp.load(words, 0, line=2 * count)
        cp.cuda.stmatrix(staged, (me, row, piece * PIECE), held, transposed=True)


def biases_of(biases: Any, filter: Any, t: Any) -> Any:
    """The bias of the two filters of a unit."""
    if not len(biases):
        return cp.f32(0), cp.f32(0)
    last = t.filters - 1
    return cp.f32(biases[0][min(filter, last)]), cp.f32(biases[0][min(filter + 8, last)])


def finished_pair(pair: Any, filter: Any, pixel: Any, ends: Any, t: Any) -> Any:
    """What the epilogue makes of the sums of two pixels, where these are of the result."""
    if ends[2] is None:
        return pair
    found = cp.local(2, cp.f32, fill=0)
    for k in cp.unroll(range(2)):
        place = place_of(pixel + k, t.extents)
        if filter < t.filters and is_result(place, t.results, t.batch):
            index = (place[0], filter, *(0,) * (3 - len(t.extents)), *place[1:])
            v = cp.Line[cp.f32, 1](pair[k])
            found[k] = cp.f32(applied_along(ends[2], v, index, 1, ends[1])[0])
    return cp.load(found, 0, line=2)


def is_result(place: Any, results: Any, batch: Any) -> Any:
    """Whether a pixel is one of the result, and not of the padding behind it."""
    if not results:
        return place[0] < batch
    return is_result(place[:-1], results[:-1], batch) and place[-1] < results[-1]
