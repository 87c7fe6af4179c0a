"""Convolutions of few channels in f32 on matrix units that take bf16, as those of first layers.

As in `split`, with another tile of the left factor: where channels lie densely, all elements that a
row of a window sees follow each other, and those of the next pixel lie a few behind them. So 16
pixels are 16 rows of 64 bytes that overlap, and k is an element of such a run. What a tile reads
behind its run is multiplied by weights of 0. Columns of a dilated window lie apart: they are
multiplied by multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cubepy as cp
from cubepy.ir.types import f32, u32
from cubepy.kernels.convolution.blocks import finish, out_extents, place_of_cube
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.convolution.split import (
    BLOCK_ROWS,
    STRIP,
    add_products,
    keep_strip,
    keep_tiles,
    number_of,
    put_any_words,
    range_of,
    rows_of,
    strip_of,
)
from cubepy.kernels.matmul.blocks import transposed
from cubepy.kernels.matmul.split import (
    PARTS,
    are_in_range,
    exponents,
    new_range,
    note,
    split,
)
from cubepy.kernels.matmul.units import PANEL, SIDE
from cubepy.lang import amx
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class RunPacking:
    """Weights in panels of 32 filters: for each row of the window, for each 32 elements of a run of
    `columns` pixels with `channels` channels the tiles of each part of the numbers. Before them
    stands a row of words that begins with the least and the largest exponent of its weights."""

    channels: int
    columns: int

    lines, line, step = 2, SIDE, PANEL
    dtype, stored = f32, u32
    """The type of the weights, and of what is in memory."""

    @property
    def run(self) -> int:
        """Elements of a run."""
        return self.channels * self.columns

    @property
    def blocks(self) -> int:
        """Tiles of a run."""
        return -(-self.run // PANEL)

    def panels(self, filters: int) -> int:
        """Panels of so many filters."""
        return -(-filters // PANEL)

    def parts(self, channels: int) -> int:
        """Parts of the channels: one."""
        return min(1, channels)

    def rows(self, taps: int) -> int:
        """Rows of 16 words of one panel."""
        return 1 + taps // self.columns * self.blocks * BLOCK_ROWS

    def elements(self, groups: int, filters: int, channels: int, taps: int) -> int:
        """The size of all panels; there is one group."""
        return groups * self.panels(filters) * self.parts(channels) * self.rows(taps) * SIDE


@dataclass(frozen=True, slots=True)
class SplitRuns:
    """How a convolution is divided, as `SplitBands` says; there is room for `held` elements of the
    array, and for `row` of one row."""

    packing: RunPacking
    band: int
    panels: int
    held: int
    row: int
    sums: int
    has_channels_last: bool
    puts_channels_last: bool

    has_whole_rows = False
    """Rows of the array are not one axis of columns and channels."""

    @property
    def compiled(self) -> SplitRuns:
        """What a kernel is compiled for."""
        return replace(self, band=0, panels=0)


@cp.cube
def pack_runs(weight: cp.Tensor, panels: cp.Tensor, t: cp.Comptime[RunPacking]) -> None:
    """Weights [filter, channel, depth, row, column] as panels; a cube for each."""
    rows = weight.shape[2] * weight.shape[3]
    f0 = cp.CUBE_POS * PANEL
    own = panels[cp.CUBE_POS * (1 + rows * (t.blocks * BLOCK_ROWS)) :]
    near = cp.shared((t.blocks * PANEL, PANEL), cp.f32)
    seen = new_range()
    for row in range(rows):
        z, y = row // weight.shape[3], row % weight.shape[3]
        for k in range(t.blocks * PANEL):
            cp.store(near[k], 0, cp.Line[cp.f32, PANEL](0), whole=True)
        for f in range(min(PANEL, weight.shape[0] - f0)):
            for k in range(t.run):
                near[k, f] = weight[f0 + f, k % t.channels, z, y, k // t.channels]
        for block in range(t.blocks):
            at = 1 + (row * t.blocks + block) * BLOCK_ROWS
            for c in range(0, PANEL, SIDE):
                for k in range(SIDE):
                    pair = near[block * PANEL + 2 * k :]
                    low = cp.load(pair[0], c, line=SIDE, fill=None)
                    high = cp.load(pair[1], c, line=SIDE, fill=None)
                    put_any_words(low, high, own, at + c + k, seen)
    found = exponents(seen)
    own[0, 0], own[0, 1] = found[0], found[1]


@cp.cube
def convolve_runs(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    band: int,
    panels_each: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[SplitRuns],
) -> None:
    """A cube for each `band` of rows by `panels_each` panels of filters; arrays as in
    `convolve_split`."""
    p = t.packing
    filters, results = out_extents(out, t)
    total = (filters + PANEL - 1) // PANEL
    shares = (total + panels_each - 1) // panels_each
    share, (n, z, y0, _) = place_of_cube(shares, results, band, results[2])
    first = share * panels_each
    count, rows = min(panels_each, total - first), min(band, results[1] - y0)
    held = cp.shared(PARTS * t.held, cp.u16)
    numbers = cp.shared(t.held, cp.f32)
    near = cp.shared(t.row + SIDE * (p.channels + 1), cp.f32)
    sums = cp.shared((t.sums, PANEL), cp.f32)
    spilled = cp.shared((PANEL, PANEL), cp.f32)
    wide = (results[2] + SIDE - 1) // SIDE * SIDE
    line = row_length(wide, window, p)
    lengths = rows, wide, line
    apart = (band * wide + PANEL - 1) // PANEL * PANEL if window.kernel[0] > 1 else 0
    for a in range(window.kernel[0]):
        depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
        corner = depth, y0 * window.stride[1]
        seen = bring(x[n], held, numbers, near, corner, rows, line, window, t)
        fits = are_in_range(seen, range_of(panels, first, count, 1, 0, window, t))
        for panel in range(count):
            own = panels[(first + panel) * p.rows(window.taps) :]
            weights = own[1 + a * window.kernel[1] * (p.blocks * BLOCK_ROWS) :]
            kept = sums[panel * apart :]
            for q in range(0, rows * wide, PANEL):
                if fits and window.dilation[2] == 1:
                    multiply_parts(held, weights, kept, spilled, q, lengths, a == 0, window, t)
                else:
                    multiply_numbers(numbers, weights, kept, q, lengths, a == 0, window, t)
            if a == window.kernel[0] - 1:
                f0 = (first + panel) * PANEL
                for y in range(rows):
                    row, own_filters = kept[y * wide :], min(PANEL, filters - f0)
                    place = n, z, y0 + y, 0, f0, own_filters
                    finish(row, out[n], place, results[2], biases, extras, epilogue, t)


def bring(
    x: Any,
    held: Any,
    numbers: Any,
    near: Any,
    corner: Any,
    rows: Any,
    line: Any,
    window: Any,
    t: Any,
) -> Any:
    """The rows that a band depends on, channels last, with zeros around: their parts, and as they
    are; their range."""
    depth, top = corner
    seen = new_range()
    height = x.shape[1] if t.has_channels_last else x.shape[2]
    deep = x.shape[0] if t.has_channels_last else x.shape[1]
    inside = depth >= 0 and depth < deep
    for r in range(rows_of(rows, window)):
        y = top + r - window.before[1]
        for k in range(0, line, SIDE):
            cp.store(near, k, cp.Line[cp.f32, SIDE](0), whole=True)
        if inside and y >= 0 and y < height:
            if t.has_channels_last:
                bring_pixels(x[depth, y], near, line, window, t.packing)
            else:
                bring_rows(x[:, depth, y], near, line, window, t.packing)
        for k in range(0, line, PANEL):
            v = cp.load(near, k, line=PANEL, fill=None)
            cp.store(numbers, r * line + k, v, whole=True)
            note(seen, v[:SIDE])
            note(seen, v[SIDE:])
            words = split(v)
            for s in cp.unroll(range(PARTS)):
                half = cp.Line[cp.u16, PANEL](words[s] >> 16)
                cp.store(held, s * t.held + r * line + k, half, whole=True)
    return exponents(seen)


def row_length(wide: Any, window: Any, p: Any) -> Any:
    """Elements of a row that is brought, for so many pixels of the result: whole tiles, and one
    more, so that runs end in the row."""
    pixels = (wide - 1) * window.stride[2] + window.spans[2]
    return ((pixels * p.channels + PANEL - 1) // PANEL + 1) * PANEL


def columns_of(width: Any, line: Any, window: Any, p: Any) -> Any:
    """Pixels of a row of the array that there is room for."""
    return min(width, line // p.channels - window.before[2])


def bring_pixels(row: Any, near: Any, line: Any, window: Any, p: Any) -> None:
    """One row that has channels last; what a line has too much is zero."""
    for i in range(columns_of(row.shape[0], line, window, p)):
        v = cp.load(row[i, : p.channels], 0, line=SIDE)
        cp.store(near, (i + window.before[2]) * p.channels, v, whole=True)


def bring_rows(x: Any, near: Any, line: Any, window: Any, p: Any) -> None:
    """One row of each channel, turned in squares; what lies behind it is zero."""
    zero = cp.Line[cp.f32, SIDE](0)
    for i in range(0, columns_of(x.shape[1], line, window, p), SIDE):
        lines = tuple(cp.load(x[k], i, line=SIDE) for k in range(p.channels))
        found = transposed(lines + tuple(zero for _ in range(SIDE - p.channels)))
        for k in cp.unroll(range(SIDE)):
            cp.store(near, (i + k + window.before[2]) * p.channels, found[k], whole=True)


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
    p = t.packing
    for tile in cp.unroll(range(4)):
        amx.zero(tile)
    starts = tuple(start_of(q + half * SIDE, lengths, window, p) for half in range(2))
    for b in range(window.kernel[1]):
        for block in range(p.blocks):
            at = b * (window.dilation[1] * lengths[2]) + block * PANEL
            source = held, at, t.held, starts, window.stride[2] * p.channels
            add_products(load_run, source, weights, (b * p.blocks + block) * BLOCK_ROWS)
    keep_tiles(kept, spilled, q, begins)


def start_of(q: Any, lengths: Any, window: Any, p: Any) -> Any:
    """The element that the windows of a tile begin with; a tile behind the last is that again."""
    rows, wide, line = lengths
    at = min(q, rows * wide - SIDE)
    across = window.stride[2] * p.channels
    return at // wide * (window.stride[1] * line) + at % wide * across


def load_run(tile: int, source: Any, half: int, part: int) -> None:
    """Load a part of 32 elements for each of 16 pixels."""
    held, at, apart, starts, step = source
    amx.load(tile, held, part * apart + at + starts[half], step)


def multiply_numbers(
    numbers: Any,
    weights: Any,
    kept: Any,
    q: Any,
    lengths: Any,
    begins: Any,
    window: Any,
    t: Any,
) -> None:
    """The same by multiply-adds, with the numbers as they are."""
    p = t.packing
    across = window.stride[2] * p.channels
    for r in range(0, PANEL, STRIP):
        start = start_of(q + r // SIDE * SIDE, lengths, window, p) + r % SIDE * across
        found = strip_of(kept, q + r, begins)
        for b in range(window.kernel[1]):
            for k in range(p.run):
                apart = k // p.channels * window.dilation[2] * p.channels + k % p.channels
                at = start + b * (window.dilation[1] * lengths[2]) + apart
                row = (b * p.blocks + k // PANEL) * BLOCK_ROWS + k % PANEL // 2
                lines = tuple(number_of(weights, row + c * SIDE, k % 2) for c in range(2))
                for s in cp.unroll(range(STRIP)):
                    factor = numbers[at + s * across]
                    for c in cp.unroll(range(2)):
                        found[s, c] += lines[c] * factor
        keep_strip(found, kept, q + r)
