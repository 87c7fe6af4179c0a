"""Convolutions of f32 on matrix units that take bf16, as `matmul/split.py` multiplies matrices.

As in `blocks`, a cube makes a band of rows of the result for some panels of filters, and brings the
rows that the band depends on into a near cache, here as parts of bf16. For 32 channels at a time a
pixel is one row of 64 bytes for each part, so that 16 pixels at one distance are a tile of the left
factor where they lie, for each tap of the window; no window is copied. With strides of 1, pixels
are counted through the rows that were brought, with those between two rows of the result; else a
tile stays in a row.

Bands whose numbers the unit would not multiply well are brought again as they are, and multiplied
by multiply-adds with weights that are put together from their parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cubepy as cp
from cubepy.ir.types import f32, u32
from cubepy.kernels.convolution.blocks import finish, out_extents, place_of_cube
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.matmul.blocks import transposed
from cubepy.kernels.matmul.split import (
    LARGEST,
    LEAST,
    ORDER,
    PARTS,
    UPPER,
    are_in_range,
    exponents,
    new_range,
    note,
    put_words,
    split,
)
from cubepy.kernels.matmul.units import PANEL, SIDE
from cubepy.lang import amx
from cubepy.record import dataclass

BLOCK_ROWS = PARTS * PANEL
"""Rows of 16 words for the weights of 32 filters and channels at a tap."""
STRIP = 8
"""Pixels that are multiplied at once without the unit."""
MARK = 0xFFFF0000
"""The third part, which is none that a number has, of weights that are stored as two halves."""


@dataclass(frozen=True, slots=True)
class SplitPacking:
    """Weights in panels of 32 filters: for each part of `depth` channels, for each tap and each 32
    channels the tiles of each part of the numbers. Before each part of the channels stands a row of
    words that begins with the least and the largest exponent of its weights."""

    depth: int

    lines, line, step = 2, SIDE, PANEL
    dtype, stored = f32, u32
    """The type of the weights, and of what is in memory."""

    @property
    def blocks(self) -> int:
        """Blocks of 32 channels of a part."""
        return self.depth // PANEL

    def panels(self, filters: int) -> int:
        """Panels of so many filters."""
        return -(-filters // PANEL)

    def parts(self, channels: int) -> int:
        """Parts of the channels."""
        return -(-channels // self.depth)

    def rows(self, taps: int) -> int:
        """Rows of 16 words of one part of one panel."""
        return 1 + taps * self.blocks * BLOCK_ROWS

    def elements(self, groups: int, filters: int, channels: int, taps: int) -> int:
        """The size of all panels; there is one group."""
        return groups * self.panels(filters) * self.parts(channels) * self.rows(taps) * SIDE


@dataclass(frozen=True, slots=True)
class SplitBands:
    """How a convolution is divided.

    A cube makes `band` rows of `strip` pixels with `panels` panels of weights, and brings `blocks`
    blocks of 32 channels at a time. It has room for `held` rows of words of the array, and for the
    `sums` of so many pixels.

    A kernel is compiled for `compiled`, without what depends on the batch and the number of cores:
    `band`, `strip` and `panels` are arguments.
    """

    packing: SplitPacking
    band: int
    strip: int
    panels: int
    blocks: int
    held: int
    sums: int
    has_channels_last: bool
    puts_channels_last: bool

    has_whole_rows = False
    """Rows of the array are not one axis of columns and channels."""

    @property
    def compiled(self) -> SplitBands:
        """What a kernel is compiled for."""
        return replace(self, band=0, strip=0, panels=0)


# Weights


@cp.cube
def pack_split_weights(weight: cp.Tensor, panels: cp.Tensor, t: cp.Comptime[SplitPacking]) -> None:
    """Weights [filter, channel, depth, row, column] as panels; a cube for each part of a panel."""
    parts = (weight.shape[1] + t.depth - 1) // t.depth
    part, panel = cp.CUBE_POS % parts, cp.CUBE_POS // parts
    f0, c0 = panel * PANEL, part * t.depth
    taps = weight.shape[2] * weight.shape[3] * weight.shape[4]
    own = panels[cp.CUBE_POS * (1 + taps * (t.blocks * BLOCK_ROWS)) :]
    near = cp.shared((PANEL, PANEL), cp.f32)
    seen = new_range()
    for block in range(t.blocks):
        for tap in range(taps):
            bring_weights(weight, near, (f0, c0 + block * PANEL), tap)
            row = 1 + (tap * t.blocks + block) * BLOCK_ROWS
            for c in range(0, PANEL, SIDE):
                for k in range(SIDE):
                    low = cp.load(near[k], c, line=SIDE, fill=None)
                    high = cp.load(near[k + SIDE], c, line=SIDE, fill=None)
                    put_any_words(low, high, own, row + c + k, seen)
    found = exponents(seen)
    own[0, 0], own[0, 1] = found[0], found[1]


def bring_weights(weight: Any, near: Any, corner: Any, tap: Any) -> None:
    """The weights of a tap as [channel, filter]; zeros where there are none."""
    x = tap % weight.shape[4]
    y = tap // weight.shape[4] % weight.shape[3]
    z = tap // (weight.shape[4] * weight.shape[3])
    f0, c0 = corner
    for k in range(PANEL):
        cp.store(near[k], 0, cp.Line[cp.f32, PANEL](0), whole=True)
    for f in range(min(PANEL, weight.shape[0] - f0)):
        for k in range(min(PANEL, weight.shape[1] - c0)):
            near[k, f] = weight[f0 + f, c0 + k, z, y, x]


def put_any_words(low: Any, high: Any, own: Any, row: Any, seen: Any) -> None:
    """Store the parts of two lines as words, of which `number_of` makes the numbers again."""
    note(seen, low)
    note(seen, high)
    one, two = split_any(low), split_any(high)
    for s in cp.unroll(range(PARTS)):
        cp.store(own[row + s * PANEL], 0, one[s] >> 16 | two[s] & UPPER, whole=True)


def split_any(v: Any) -> Any:
    """`matmul.split.split`; of numbers that the unit is not given, whose parts may be infinite or
    need more bits than bf16 has, both halves and a mark."""
    word = cp.bitcast(v, cp.u32)
    size = word & 0x7FFFFFFF
    is_split = (size == 0) | ((size >= LEAST << 23) & (size < LARGEST + 1 << 23))
    found, halves = split(v), (word, word << 16, cp.Line[cp.u32, SIDE](MARK))
    return tuple(cp.where(is_split, found[s], halves[s]) for s in range(PARTS))


# Convolution


@cp.cube
def convolve_split(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    band: int,
    strip: int,
    panels_each: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[SplitBands],
) -> None:
    """A cube for each `band` of rows of a `strip` of columns by `panels_each` panels; arrays as in
    `convolve_bands`, `panels` as rows of 16 words."""
    p = t.packing
    filters, results = out_extents(out, t)
    channels = x.shape[4 if t.has_channels_last else 1]
    total = (filters + PANEL - 1) // PANEL
    shares = (total + panels_each - 1) // panels_each
    share, (n, z, y0, x0) = place_of_cube(shares, results, band, strip)
    first = share * panels_each
    count, rows = min(panels_each, total - first), min(band, results[1] - y0)
    held = cp.shared((t.held, SIDE), cp.u32)
    sums = cp.shared((t.sums, PANEL), cp.f32)
    spilled = cp.shared((PANEL, PANEL), cp.f32)
    pitch = (strip - 1) * window.stride[2] + window.spans[2]
    wide = row_of(strip, pitch, window)
    area = area_of(band, pitch, window)
    parts = (channels + p.depth - 1) // p.depth
    taps = window.kernel[1] * window.kernel[2]
    is_once = parts * window.kernel[0] == 1 and t.blocks == p.blocks
    apart = 0 if is_once else (band * wide + PANEL - 1) // PANEL * PANEL
    rounds = (p.blocks + t.blocks - 1) // t.blocks
    for turn in range(parts * window.kernel[0] * rounds):
        part, a = turn // (window.kernel[0] * rounds), turn // rounds % window.kernel[0]
        block = turn % rounds * t.blocks
        lengths = rows, wide, pitch, area, min(t.blocks, p.blocks - block)
        depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
        left = x0 * window.stride[2]
        corner = depth, y0 * window.stride[1], left, part * p.depth + block * PANEL
        weights_range = range_of(panels, first, count, parts, part, window, t)
        fits = False
        for attempt in range(2):  # one place that brings: it is long to compile
            if not fits:
                seen = bring(x[n], held, corner, lengths, attempt == 1, window, t)
                fits = attempt == 0 and are_in_range(seen, weights_range)
        for panel in range(count):
            own = panels[place_of(first + panel, parts, part, window, t) :]
            weights = own[1 + (a * taps * p.blocks + block) * BLOCK_ROWS :]
            kept, begins = sums[panel * apart :], turn == 0
            for q in range(0, rows * wide, PANEL):
                if fits:
                    multiply_parts(held, weights, kept, spilled, q, lengths, begins, window, t)
                else:
                    multiply_numbers(held, weights, kept, q, lengths, begins, window, t)
            if turn == parts * window.kernel[0] * rounds - 1:
                f0 = (first + panel) * PANEL
                for y in range(rows):
                    row, place = kept[y * wide :], (n, z, y0 + y, x0, f0, min(PANEL, filters - f0))
                    width = min(strip, results[2] - x0)
                    finish(row, out[n], place, width, biases, extras, epilogue, t)


def is_even(window: Any) -> bool:
    """Whether pixels of all rows of the result lie at one distance in the rows that are brought."""
    return window.stride[1] == window.stride[2] == 1


def row_of(columns: Any, pitch: Any, window: Any) -> Any:
    """Pixels from a row of sums to the next."""
    return pitch if is_even(window) else (columns + SIDE - 1) // SIDE * SIDE


def rows_of(band: Any, window: Any) -> Any:
    """Rows of the array that a band of rows of the result depends on."""
    return (band - 1) * window.stride[1] + window.spans[1]


def area_of(band: Any, pitch: Any, window: Any) -> Any:
    """Pixels that are brought for a band of rows, and behind the last those that tiles may read and
    lines that are turned may write."""
    beyond = 2 * PANEL + SIDE * window.stride[2] + window.spans[2]
    return rows_of(band, window) * pitch + beyond


def place_of(panel: Any, parts: Any, part: Any, window: Any, t: Any) -> Any:
    """The first row of words of a part of a panel."""
    return (panel * parts + part) * t.packing.rows(window.taps)


def range_of(
    panels: Any, first: Any, count: Any, parts: Any, part: Any, window: Any, t: Any
) -> Any:
    """The exponents of the least and the largest weight of all panels of a cube."""
    least, most = cp.u32(0xFFFFFFFF), cp.u32(0)
    for panel in range(count):
        at = place_of(first + panel, parts, part, window, t)
        least, most = min(least, panels[at, 0]), max(most, panels[at, 1])
    return least, most


# Rows of the array


def bring(
    x: Any,
    held: Any,
    corner: Any,
    lengths: Any,
    whole: Any,
    window: Any,
    t: Any,
) -> Any:
    """The rows that a band depends on, with zeros around, 32 channels by 32, as parts or, if they
    are `whole`, as they are; their range.

    `corner`: the depth, the row and the column of the padded array that the band begins at, and the
    channel.
    """
    depth, top, left, c0 = corner
    before = window.before[2] - left
    rows, _, pitch, area, blocks = lengths
    seen = new_range()
    height = x.shape[1] if t.has_channels_last else x.shape[2]
    deep = x.shape[0] if t.has_channels_last else x.shape[1]
    inside = depth >= 0 and depth < deep
    for block in range(blocks):
        for r in range(rows_of(rows, window)):
            y, at = top + r - window.before[1], block * PARTS * area + r * pitch
            if inside and y >= 0 and y < height:
                c = c0 + block * PANEL
                if t.has_channels_last:
                    bring_pixels(x[depth, y], held, at, c, pitch, area, whole, seen, before)
                else:
                    bring_rows(x[:, depth, y], held, at, c, pitch, area, whole, seen, before)
            else:
                for i in range(pitch):
                    clear(held, at + i, area)
    return exponents(seen)


def bring_pixels(
    row: Any, held: Any, at: Any, c: Any, pitch: Any, area: Any, whole: Any, seen: Any, before: Any
) -> None:
    """One row that has channels last, from so many pixels `before` it on."""
    width = row.shape[0]
    for i in range(pitch):
        column = i - before
        if column >= 0 and column < width:
            v = cp.load(row[column], c, line=PANEL)
            put_pixel(v, held, at + i, area, whole, seen)
        else:
            clear(held, at + i, area)


def bring_rows(
    x: Any, held: Any, at: Any, c: Any, pitch: Any, area: Any, whole: Any, seen: Any, before: Any
) -> None:
    """One row of 32 channels, turned in squares; what a row has too much, the next overwrites."""
    square = cp.local((SIDE, PANEL), cp.f32)
    for i in range(0, pitch, SIDE):
        for e in range(0, PANEL, SIDE):
            turn(x, square, c, e, i - before)
        for k in range(SIDE):
            v = cp.load(square[k], 0, line=PANEL, fill=None)
            put_pixel(v, held, at + i + k, area, whole, seen)


def turn(x: Any, square: Any, c: Any, e: Any, i: Any) -> None:
    """16 pixels of 16 channels from `c + e` on, a line for each pixel; zeros outside."""
    count, width = x.shape[0], x.shape[1]
    lines = tuple(
        cp.load(x[min(c + e + k, count - 1)][: width if c + e + k < count else 0], i, line=SIDE)
        for k in range(SIDE)
    )
    found = transposed(lines)
    for k in cp.unroll(range(SIDE)):
        cp.store(square[k], e, found[k], whole=True)


def clear(held: Any, row: Any, area: Any) -> None:
    """Zeros for 32 channels of a pixel."""
    for s in cp.unroll(range(PARTS)):
        cp.store(held[row + s * area], 0, cp.Line[cp.u32, SIDE](0), whole=True)


def put_pixel(v: Any, held: Any, row: Any, area: Any, whole: Any, seen: Any) -> None:
    """Store 32 channels of a pixel, as parts or as they are."""
    low, high = v[:SIDE], v[SIDE:]
    if whole:
        cp.store(held[row], 0, cp.bitcast(low, cp.u32), whole=True)
        cp.store(held[row + area], 0, cp.bitcast(high, cp.u32), whole=True)
    else:
        put_words(low, high, held, row, seen, area)


# Products


def start_of(q: Any, rows: Any, wide: Any, pitch: Any, window: Any) -> Any:
    """The pixel that the windows of a tile begin with; a tile behind the last is that again."""
    if is_even(window):
        return q
    place = min(q, rows * wide - SIDE)
    return place // wide * (window.stride[1] * pitch) + place % wide * window.stride[2]


def multiply_parts(
    held: Any,
    weights: Any,
    kept: Any,
    spilled: Any,
    q: Any,
    lengths: Any,
    begins: Any,
    window: Any,
    t: Any,
) -> None:
    """Add the products of 32 pixels and a panel to their sums, in the tiles of a matrix unit."""
    rows, wide, pitch, area, blocks = lengths
    for tile in cp.unroll(range(4)):
        amx.zero(tile)
    starts = tuple(start_of(q + half * SIDE, rows, wide, pitch, window) for half in range(2))
    for b in range(window.kernel[1]):
        for c in range(window.kernel[2]):
            tap = b * window.dilation[1] * pitch + c * window.dilation[2]
            for block in range(blocks):
                row = ((b * window.kernel[2] + c) * t.packing.blocks + block) * BLOCK_ROWS
                source = held, block * PARTS * area + tap, area, starts, window.stride[2]
                add_products(load_pixels, source, weights, row)
    keep_tiles(kept, spilled, q, begins)


def load_pixels(tile: int, source: Any, half: int, part: int) -> None:
    """Load a part of 32 channels of 16 pixels."""
    held, at, apart, starts, step = source
    amx.load(tile, held[at + part * apart + starts[half] :: step], (0, 0))


def add_products(load: Any, source: Any, weights: Any, row: Any) -> None:
    """Add the products of 32 pixels, 32 filters and 32 elements of k, of which `load` loads a part
    for 16 pixels; `row`: where their weights begin."""
    for turn in cp.unroll(range(len(ORDER))):
        left, right = ORDER[turn]
        for half in cp.unroll(range(2)):
            if turn == 0 or left != ORDER[turn - 1][0]:
                load(4 + half, source, half, left)
            if turn == 0 or right != ORDER[turn - 1][1]:
                amx.load(6 + half, weights, (row + right * PANEL + half * SIDE, 0))
        for tile in cp.unroll(range(4)):
            amx.multiply(tile, 4 + tile // 2, 6 + tile % 2, cp.bf16)


def keep_tiles(kept: Any, spilled: Any, q: Any, begins: Any) -> None:
    """Store the sums of 32 pixels, or add them to what is there, which the unit would take for 0
    where it is below 2**-126."""
    if begins:
        for tile in cp.unroll(range(4)):
            amx.store(tile, kept, (q + tile // 2 * SIDE, tile % 2 * SIDE))
    else:
        for tile in cp.unroll(range(4)):
            amx.store(tile, spilled, (tile // 2 * SIDE, tile % 2 * SIDE))
        for r in range(PANEL):
            v = cp.load(kept[q + r], 0, line=PANEL, fill=None)
            v = v + cp.load(spilled[r], 0, line=PANEL, fill=None)
            cp.store(kept[q + r], 0, v, whole=True)


def multiply_numbers(
    held: Any,
    weights: Any,
    kept: Any,
    q: Any,
    lengths: Any,
    begins: Any,
    window: Any,
    t: Any,
) -> None:
    """The same by multiply-adds, with the numbers as they are."""
    rows, wide, pitch, area, blocks = lengths
    for r in range(0, PANEL, STRIP):
        half = start_of(q + r // SIDE * SIDE, rows, wide, pitch, window)
        start = half + r % SIDE * window.stride[2]
        found = strip_of(kept, q + r, begins)
        for b in range(window.kernel[1]):
            for c in range(window.kernel[2]):
                tap = start + b * window.dilation[1] * pitch + c * window.dilation[2]
                for block in range(blocks):
                    row = ((b * window.kernel[2] + c) * t.packing.blocks + block) * BLOCK_ROWS
                    for high in range(2):
                        pixels = held[(block * PARTS + high) * area + tap :: window.stride[2]]
                        add_channels(found, pixels, weights, row, high)
        keep_strip(found, kept, q + r)


def strip_of(kept: Any, row: Any, begins: Any) -> Any:
    """Sums of some pixels from `row` on, as lines: none yet, or those in memory."""
    found = cp.local((STRIP, 2), cp.Line[cp.f32, SIDE], fill=0)
    if not begins:
        for s in cp.unroll(range(STRIP)):
            for c in cp.unroll(range(2)):
                found[s, c] = cp.load(kept[row + s], c * SIDE, line=SIDE, fill=None)
    return found


def keep_strip(found: Any, kept: Any, row: Any) -> None:
    """Store them."""
    for s in cp.unroll(range(STRIP)):
        for c in cp.unroll(range(2)):
            cp.store(kept[row + s], c * SIDE, found[s, c], whole=True)


def add_channels(found: Any, pixels: Any, weights: Any, row: Any, high: Any) -> None:
    """Add the products of 16 channels, those in the upper halves of words of weights if `high`."""
    for k in range(SIDE):
        lines = tuple(number_of(weights, row + c * SIDE + k, high) for c in range(2))
        for s in cp.unroll(range(STRIP)):
            factor = cp.bitcast(pixels[s, k], cp.f32)
            for c in cp.unroll(range(2)):
                found[s, c] += lines[c] * factor


def number_of(weights: Any, row: Any, high: Any) -> Any:
    """A line of weights, put together from the words of its parts, of which it has one half."""
    shift = 0 if high else 16
    words = tuple(cp.load(weights[row + s * PANEL], 0, line=SIDE, fill=None) for s in range(PARTS))
    a, b, c = (w << shift & UPPER for w in words)
    whole = cp.bitcast(a, cp.f32) + (cp.bitcast(b, cp.f32) + cp.bitcast(c, cp.f32))
    return cp.where(c == MARK, cp.bitcast(a | b >> 16, cp.f32), whole)
