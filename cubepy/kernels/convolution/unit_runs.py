"""Convolutions of few channels of bf16 on matrix units of processors, as those of first layers.

As in `split_runs`, a tile of the left factor is 16 runs of elements that overlap: what a row of a
window sees follows each other where channels lie densely. What a tile reads behind its run is
multiplied by weights of 0. Where an infinity or NaN could lie there, and for dilated windows, whose
columns lie apart, products are made by multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.convolution.blocks import out_extents, place_of_cube
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.convolution.split import rows_of
from cubepy.kernels.convolution.split_runs import row_length, start_of
from cubepy.kernels.convolution.units import (
    add_products,
    finish_rows,
    keep_sums,
    rounded,
    take_sums,
    words_of,
)
from cubepy.kernels.matmul.blocks import transposed
from cubepy.kernels.matmul.split import UPPER
from cubepy.kernels.matmul.units import PANEL, SIDE
from cubepy.lang import amx
from cubepy.record import dataclass

INFINITE = 0x7F80
"""The words of absolute values in bf16 from which on they are no numbers."""


@dataclass(frozen=True, slots=True)
class UnitRunPacking:
    """Weights in panels whose channels are the elements of a run: `columns` pixels with `channels`
    channels; and whose taps are rows of the window."""

    channels: int
    columns: int
    packing: Packing

    @property
    def run(self) -> int:
        """Elements of a run."""
        return self.channels * self.columns

    @property
    def blocks(self) -> int:
        """Tiles of a run."""
        return self.packing.depth // PANEL

    @property
    def step(self) -> int:
        """Filters of a panel."""
        return self.packing.step

    @property
    def stored(self) -> DType:
        """The type of what is in memory."""
        return self.packing.stored

    def panels(self, filters: int) -> int:
        """Panels of so many filters."""
        return self.packing.panels(filters)

    def parts(self, channels: int) -> int:
        """Parts of the channels: one."""
        return min(1, channels)

    def elements(self, groups: int, filters: int, channels: int, taps: int) -> int:
        """The size of all panels; there is one group."""
        return self.packing.elements(groups, filters, self.run, taps // self.columns)


@dataclass(frozen=True, slots=True)
class UnitRuns:
    """How a convolution is divided, as `UnitBands` says; there is room for `held` elements of the
    array, and weights are multiplied in a `chunk` of so many rows of the window at a time.
    `has_whole_rows`: a row of the array is dense with channels last."""

    runs: UnitRunPacking
    band: int
    panels: int
    held: int
    sums: int
    chunk: int
    has_channels_last: bool
    puts_channels_last: bool
    has_whole_rows: bool

    @property
    def packing(self) -> Packing:
        """How lines of weights lie in memory."""
        return self.runs.packing

    @property
    def compiled(self) -> UnitRuns:
        """What a kernel is compiled for."""
        return replace(self, band=0, panels=0)


@cp.cube
def convolve_unit_runs(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    band: int,
    panels_each: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[UnitRuns],
) -> None:
    """A cube for each `band` of rows by `panels_each` panels of filters; arrays as in
    `convolve_bands`, `panels` as rows of 64 bytes."""
    p = t.packing
    filters, results = out_extents(out, t)
    total = (filters + p.step - 1) // p.step
    shares = (total + panels_each - 1) // panels_each
    share, (n, z, y0, _) = place_of_cube(shares, results, band, results[2])
    first = share * panels_each
    count, rows = min(panels_each, total - first), min(band, results[1] - y0)
    held = cp.shared(t.held + SIDE * (t.runs.channels + 2), p.factors)
    sums = cp.shared((t.sums, p.step), cp.f32)
    wide = (results[2] + SIDE - 1) // SIDE * SIDE
    lengths = rows, wide, row_length(wide, window, t.runs)
    apart = rounded(band * wide) if window.kernel[0] > 1 else 0
    for a in range(window.kernel[0]):
        depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
        fits = bring(x[n], held, (depth, y0 * window.stride[1]), lengths, window, t)
        for panel in range(count):
            line = ((first + panel) * window.kernel[0] + a) * window.kernel[1]
            weights = panels[line * (t.runs.blocks * SIDE * p.lines) :]
            kept = sums[panel * apart :]
            multiply_band(held, weights, kept, lengths, a == 0, fits, window, t)
            if a == window.kernel[0] - 1:
                f0 = (first + panel) * p.step
                place = n, z, y0, 0, f0, min(p.step, filters - f0)
                extents = rows, wide, results[2]
                finish_rows(kept, out[n], place, extents, biases, extras, epilogue, t)


def bring(x: Any, held: Any, corner: Any, lengths: Any, window: Any, t: Any) -> Any:
    """The rows that a band depends on, channels last, with zeros around; whether all of their
    elements are finite."""
    depth, top = corner
    rows, _, line = lengths
    zero = cp.Line[t.packing.factors, PANEL](0)
    seen = cp.local(1, cp.Line[cp.u16, PANEL], fill=0)
    height = x.shape[1] if t.has_channels_last else x.shape[2]
    deep = x.shape[0] if t.has_channels_last else x.shape[1]
    inside = depth >= 0 and depth < deep
    for r in range(rows_of(rows, window)):
        y, own = top + r - window.before[1], held[r * line :]
        is_there = inside and y >= 0 and y < height
        if not (t.has_whole_rows and is_there):
            for k in range(0, line, PANEL):
                cp.store(own, k, zero, whole=True)
        if is_there:
            if t.has_whole_rows:
                bring_whole(x[depth, y], own, line, seen, window, t.runs)
            elif t.has_channels_last:
                bring_pixels(x[depth, y], own, line, seen, window, t.runs)
            else:
                bring_rows(x[:, depth, y], own, line, seen, window, t.runs)
    return seen[0].max() < INFINITE


def note(seen: Any, v: Any) -> None:
    """Take the largest of the absolute values of 32 elements, as words."""
    seen[0] = max(seen[0], cp.bitcast(v, cp.u16) & 0x7FFF)


def bring_whole(row: Any, held: Any, line: Any, seen: Any, window: Any, p: Any) -> None:
    """One row that is dense."""
    for k in range(0, line, PANEL):
        v = cp.load(row, k - window.before[2] * p.channels, line=PANEL)
        note(seen, v)
        cp.store(held, k, v, whole=True)


def bring_pixels(row: Any, held: Any, line: Any, seen: Any, window: Any, p: Any) -> None:
    """One row that has channels last; what a pixel has too much, the next overwrites."""
    for i in range(line // p.channels):
        column = i - window.before[2]
        if column >= 0 and column < row.shape[0]:
            v = cp.load(row[column, : p.channels], 0, line=PANEL)
            note(seen, v)
            cp.store(held, i * p.channels, v[:SIDE], whole=True)


def bring_rows(x: Any, held: Any, line: Any, seen: Any, window: Any, p: Any) -> None:
    """One row of each channel, turned in squares; what a row has too much, the next overwrites."""
    zero = cp.Line[cp.u32, SIDE](0)
    for i in range(0, line // p.channels, SIDE):
        pairs = tuple(words_of(x, c, i - window.before[2], 2) for c in range(0, p.channels, 2))
        for pair in pairs:
            note(seen, pair)
        found = transposed(pairs + tuple(zero for _ in range(SIDE - len(pairs))))
        for k in cp.unroll(range(SIDE)):
            v = cp.bitcast(found[k], held.dtype)[:SIDE]
            cp.store(held, (i + k) * p.channels, v, whole=True)


def multiply_band(
    held: Any,
    weights: Any,
    kept: Any,
    lengths: Any,
    begins: Any,
    fits: Any,
    window: Any,
    t: Any,
) -> None:
    """Add the products of all pixels and a panel, some rows of the window at a time, as
    `units.multiply_band` does."""
    rows, wide, _ = lengths
    for b in range(0, window.kernel[1], t.chunk):
        taps, is_first = (b, min(b + t.chunk, window.kernel[1])), begins & (b == 0)
        for q in range(0, rows * wide, 4 // t.packing.lines * SIDE):
            if fits and window.dilation[2] == 1:
                multiply(held, weights, kept, q, lengths, taps, is_first, window, t)
            else:
                multiply_numbers(held, weights, kept, q, lengths, taps, is_first, window, t)


def multiply(
    held: Any,
    weights: Any,
    kept: Any,
    q: Any,
    lengths: Any,
    taps: Any,
    begins: Any,
    window: Any,
    t: Any,
) -> None:
    """Add the products of a tile of pixels and a panel to their sums, of some rows of the
    window."""
    p, runs = t.packing, t.runs
    take_sums(kept, q, begins, p)
    starts = tuple(start_of(q + part * SIDE, lengths, window, runs) for part in range(4 // p.lines))
    for b in range(taps[0], taps[1]):
        for block in range(runs.blocks):
            at = b * (window.dilation[1] * lengths[2]) + block * PANEL
            source = held, at, starts, window.stride[2] * runs.channels
            add_products(load_run, source, weights, b * runs.blocks + block, p)
    keep_sums(kept, q, p)


def load_run(tile: int, source: Any, part: int) -> None:
    """Load 32 elements for each of 16 pixels."""
    held, at, starts, step = source
    amx.load(tile, held, at + starts[part], step)


def multiply_numbers(
    held: Any,
    weights: Any,
    kept: Any,
    q: Any,
    lengths: Any,
    taps: Any,
    begins: Any,
    window: Any,
    t: Any,
) -> None:
    """The same by multiply-adds, pixel by pixel."""
    p, runs = t.packing, t.runs
    across = window.stride[2] * runs.channels
    for r in range(4 // p.lines * SIDE):
        start = start_of(q + r // SIDE * SIDE, lengths, window, runs) + r % SIDE * across
        found = cp.local(p.lines, cp.Line[cp.f32, SIDE], fill=0)
        if not begins:
            for c in cp.unroll(range(p.lines)):
                found[c] = cp.load(kept[q + r], c * SIDE, line=SIDE, fill=None)
        for b in range(taps[0], taps[1]):
            for k in range(runs.run):
                apart = k // runs.channels * window.dilation[2] * runs.channels + k % runs.channels
                factor = cp.f32(held[start + b * (window.dilation[1] * lengths[2]) + apart])
                row = ((b * runs.blocks + k // PANEL) * SIDE + k % PANEL // 2) * p.lines
                for c in cp.unroll(range(p.lines)):
                    found[c] += weights_of(weights[row + c], k % 2) * factor
        for c in cp.unroll(range(p.lines)):
            cp.store(kept[q + r], c * SIDE, found[c], whole=True)


def weights_of(row: Any, odd: Any) -> Any:
    """A line of weights for one element of the two of a row."""
    words = cp.bitcast(cp.load(row, 0, line=PANEL, fill=None), cp.u32)
    return cp.bitcast(cp.where(odd == 1, words & UPPER, words << 16), cp.f32)
