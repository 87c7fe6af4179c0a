"""Convolutions of bf16 and of bytes on matrix units of processors.

As in `split`, a cube makes a band of rows of the result for some panels of filters, and brings the
rows that the band depends on into a near cache: for 32 channels of bf16, or 64 of bytes, at a time
a pixel is one row of 64 bytes, so that 16 pixels at one distance are a tile of the left factor
where they lie. Weights are in the panels of `packing.Packing`, whose lines for words of channels
are the rows of tiles of the right factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.convolution.blocks import filters_before, finish, out_extents, place_of_cube
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.convolution.split import area_of, row_of, rows_of, start_of
from cubepy.kernels.matmul.blocks import transposed
from cubepy.kernels.matmul.units import SIDE, interleaved
from cubepy.lang import amx
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class UnitBands:
    """How a convolution is divided.

    A cube makes `band` rows of `strip` pixels with `panels` panels of weights, and brings `blocks`
    blocks of `packing.depth` channels at a time. It has room for `held` pixels of a block, and for
    the `sums` of so many pixels. Weights are multiplied in a `chunk` of so many blocks and rows of
    the window at a time. `has_ends`: the last line of a group's filters reaches into the next
    group's.

    A kernel is compiled for `compiled`, without what depends on the batch, the channels and the
    number of cores: `band`, `strip`, `panels` and `blocks` are arguments.
    """

    packing: Packing
    band: int
    strip: int
    panels: int
    blocks: int
    held: int
    sums: int
    chunk: tuple[int, int]
    has_channels_last: bool
    puts_channels_last: bool
    has_ends: bool

    has_whole_rows = False
    """Rows of the array are not one axis of columns and channels."""

    @property
    def compiled(self) -> UnitBands:
        """What a kernel is compiled for."""
        return replace(self, band=0, strip=0, panels=0, blocks=0)


@cp.cube
def convolve_units(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    groups: int,
    band: int,
    strip: int,
    panels_each: int,
    blocks: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[UnitBands],
) -> None:
    """A cube for each `band` of rows of a `strip` of columns by `panels_each` panels; arrays as in
    `convolve_bands`, `panels` as rows of 64 bytes."""
    p = t.packing
    filters, results = out_extents(out, t)
    channels = x.shape[4 if t.has_channels_last else 1] // groups
    group_filters = filters // groups
    per_group = (group_filters + p.step - 1) // p.step
    shares = (per_group + panels_each - 1) // panels_each
    share, (n, z, y0, x0) = place_of_cube(groups * shares, results, band, strip)
    group, first = share // shares, share % shares * panels_each
    count, rows = min(panels_each, per_group - first), min(band, results[1] - y0)
    held = cp.shared((t.held, p.depth), p.factors)
    sums = cp.shared((t.sums, p.step), p.dtype)
    pitch = (strip - 1) * window.stride[2] + window.spans[2]
    wide = row_of(strip, pitch, window)
    area = area_of(band, pitch, window)
    parts = (channels + p.depth - 1) // p.depth
    rounds = (parts + blocks - 1) // blocks * window.kernel[0]
    apart = 0 if rounds == 1 else rounded(band * wide)
    source = channels_of(x[n], group * channels, (group + 1) * channels, t)
    result = filters_before(out[n], (group + 1) * group_filters, t)
    for turn in range(rounds):
        a, block = turn % window.kernel[0], turn // window.kernel[0] * blocks
        lengths = rows, wide, pitch, area, min(blocks, parts - block)
        depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
        corner = depth, y0 * window.stride[1], x0 * window.stride[2], block * p.depth
        bring(source, held, corner, lengths, window, t)
        for panel in range(count):
            number = (group * per_group + first + panel) * parts + block
            tap = number * window.taps + a * (window.kernel[1] * window.kernel[2])
            weights, kept = panels[tap * (SIDE * p.lines) :], sums[panel * apart :]
            multiply_band(held, weights, kept, lengths, turn == 0, window, t)
            if turn == rounds - 1:
                f0 = (first + panel) * p.step
                own, f = min(p.step, group_filters - f0), group * group_filters + f0
                place, extents = (n, z, y0, x0, f, own), (rows, wide, min(strip, results[2] - x0))
                finish_rows(kept, result, place, extents, biases, extras, epilogue, t)


def finish_rows(
    kept: Any,
    result: Any,
    place: Any,
    extents: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Store the sums of some rows; `extents`: how many, and pixels of a row of sums, and of the
    result."""
    n, z, y0, x0, f0, count = place
    rows, wide, width = extents
    p = t.packing
    for y in range(rows):
        row = kept[y * wide :]
        if t.puts_channels_last and count == p.step:
            for i in range(width):
                v = cp.load(row[i], 0, line=p.step, fill=None)
                if len(biases):
                    v = v + cp.load(biases[0], f0, line=p.step, fill=None)
                if epilogue is not None:
                    v = applied_along(epilogue, v, (n, f0, z, y0 + y, x0 + i), 1, extras)
                cp.store(result[z, y0 + y, x0 + i], f0, v, whole=True)
        else:
            at = n, z, y0 + y, x0, f0, count
            finish(row, result, at, width, biases, extras, epilogue, t)


def rounded(pixels: Any) -> Any:
    """Pixels of whole tiles, of any shape."""
    return (pixels + 4 * SIDE - 1) // (4 * SIDE) * (4 * SIDE)


def channels_of(x: Any, begin: Any, end: Any, t: Any) -> Any:
    """The channels of a group."""
    return x[:, :, :, begin:end] if t.has_channels_last else x[begin:end]


def bring(x: Any, held: Any, corner: Any, lengths: Any, window: Any, t: Any) -> None:
    """The rows that a band depends on, with zeros around, block by block of the channels.

    `corner`: the depth, the row and the column of the padded array that the band begins at, and the
    channel.
    """
    depth, top, left, c0 = corner
    rows, _, pitch, area, blocks = lengths
    height = x.shape[1] if t.has_channels_last else x.shape[2]
    deep = x.shape[0] if t.has_channels_last else x.shape[1]
    inside = depth >= 0 and depth < deep
    for block in range(blocks):
        for r in range(rows_of(rows, window)):
            y, own = top + r - window.before[1], held[block * area + r * pitch :]
            c = c0 + block * t.packing.depth
            if inside and y >= 0 and y < height:
                if t.has_channels_last:
                    bring_pixels(x[depth, y], own, c, pitch, window.before[2] - left)
                else:
                    bring_rows(x[:, depth, y], own, c, pitch, window.before[2] - left)
            else:
                clear(own, 0, pitch)


def clear(held: Any, begin: Any, end: Any) -> None:
    """Zeros for the pixels [begin, end)."""
    for i in range(begin, end):
        cp.store(held[i], 0, cp.Line[held.dtype, held.shape[1]](0), whole=True)


def bring_pixels(row: Any, held: Any, c: Any, pitch: Any, before: Any) -> None:
    """One row that has channels last, from so many pixels `before` it on."""
    begin = min(max(before, 0), pitch)
    end = max(begin, min(pitch, row.shape[0] + before))
    clear(held, 0, begin)
    for i in range(begin, end):
        cp.store(held[i], 0, cp.load(row[i - before], c, line=held.shape[1]), whole=True)
    clear(held, end, pitch)


def bring_rows(x: Any, held: Any, c: Any, pitch: Any, before: Any) -> None:
    """One row of a block of channels, turned in squares; what a row has too much, the next
    overwrites."""
    word = held.shape[1] // SIDE
    for i in range(0, pitch, SIDE):
        found = transposed(tuple(words_of(x, c + k * word, i - before, word) for k in range(SIDE)))
        for k in cp.unroll(range(SIDE)):
            cp.store(held[i + k], 0, cp.bitcast(found[k], held.dtype), whole=True)


def words_of(x: Any, c: Any, i: Any, word: int) -> Any:
    """A word of two or four channels for each of 16 pixels; zeros outside."""
    count, width = x.shape[0], x.shape[1]
    rows = tuple(
        cp.load(x[min(c + k, count - 1)][: width if c + k < count else 0], i, line=SIDE)
        for k in range(word)
    )
    return cp.bitcast(interleaved(rows, 1), cp.u32)


def multiply_band(
    held: Any, weights: Any, kept: Any, lengths: Any, begins: Any, window: Any, t: Any
) -> None:
    """Add the products of all pixels and a panel, chunk by chunk of the weights: one stays in the
    first cache for all pixels."""
    rows, wide, _, _, count = lengths
    blocks, taps = t.chunk
    for block in range(0, count, blocks):
        for b in range(0, window.kernel[1], taps):
            among = (block, min(block + blocks, count)), (b, min(b + taps, window.kernel[1]))
            is_first = begins & (block + b == 0)
            for q in range(0, rows * wide, 4 // t.packing.lines * SIDE):
                multiply(held, weights, kept, q, lengths, among, is_first, window, t)


def multiply(
    held: Any,
    weights: Any,
    kept: Any,
    q: Any,
    lengths: Any,
    among: Any,
    begins: Any,
    window: Any,
    t: Any,
) -> None:
    """Add the products of a tile of pixels and a panel to their sums, of the blocks of channels and
    the rows of the window `among` all."""
    rows, wide, pitch, area, _ = lengths
    p, (blocks, taps) = t.packing, among
    take_sums(kept, q, begins, p)
    starts = tuple(
        start_of(q + part * SIDE, rows, wide, pitch, window) for part in range(4 // p.lines)
    )
    for block in range(blocks[0], blocks[1]):
        for b in range(taps[0], taps[1]):
            for c in range(window.kernel[2]):
                at = block * area + b * window.dilation[1] * pitch + c * window.dilation[2]
                row = block * window.taps + b * window.kernel[2] + c
                add_products(load_pixels, (held, at, starts, window.stride[2]), weights, row, p)
    keep_sums(kept, q, p)


def load_pixels(tile: int, source: Any, part: int) -> None:
    """Load a block of channels of 16 pixels."""
    held, at, starts, step = source
    amx.load(tile, held[at + starts[part] :: step], (0, 0))


def take_sums(kept: Any, q: Any, begins: Any, p: Any) -> None:
    """The sums of the pixels from `q` on: none yet, or those in memory."""
    if begins:
        for tile in cp.unroll(range(4)):
            amx.zero(tile)
    else:
        for tile in cp.unroll(range(4)):
            amx.load(tile, kept, (q + tile // p.lines * SIDE, tile % p.lines * SIDE))


def keep_sums(kept: Any, q: Any, p: Any) -> None:
    """Store them."""
    for tile in cp.unroll(range(4)):
        amx.store(tile, kept, (q + tile // p.lines * SIDE, tile % p.lines * SIDE))


def add_products(load: Any, source: Any, weights: Any, block: Any, p: Any) -> None:
    """Add the products of pixels, of which `load` loads a row of 64 bytes for 16, and a block of
    weights for these elements: of 32 pixels and 32 filters, or 64 and 16."""
    row = block * (SIDE * p.lines)
    for c in cp.unroll(range(p.lines)):
        amx.load(7 - c, weights[row + c :: p.lines], (0, 0))
    for part in cp.unroll(range(4 // p.lines)):
        tile = 4 + part % (4 - p.lines)
        load(tile, source, part)
        for c in cp.unroll(range(p.lines)):
            amx.multiply(part * p.lines + c, tile, 7 - c, p.factors)
