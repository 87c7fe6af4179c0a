"""Convolutions of 3x3 windows on CPUs by few products: Winograd's F(2x2, 3x3) and F(4x4, 3x3).

A square of 2x2 (4x4) results is a linear function of the 4x4 (6x6) elements that it depends on. In
another basis that function is one product for each of 16 (36) positions, in place of 36 (144)
products; changing the basis costs additions alone (and factors of small integers). Sums over
channels are made in that basis, so that each position is a product of matrices: squares by channels
times channels by filters, in tiles of registers as `blocks` makes them.

The results of a square are summed as they are defined where the other basis would not give them
well: where one of them sees little of what the square depends on, which cancels with an error of
its own size, or is not finite.

After Winograd, "Arithmetic complexity of computations" (1980), and Lavin and Gray, "Fast algorithms
for convolutional neural networks" (2016), whose matrices these are: points 0, 1, -1 and, for 4x4,
2, -2. docs/accuracy.md derives what it costs in accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cubepy as cp
from cubepy.kernels.convolution.blocks import (
    Bands,
    bring,
    clear,
    finish,
    out_extents,
    place_of_cube,
)
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.matmul.strategies import power_above
from cubepy.record import dataclass

TAPS = 3
"""The extent of windows."""
SURE, DOUBTED, BROUGHT = 0, 1, 2
"""What is known of a square: its results are good in the other basis; they may not be; its elements
are there for sums as they are defined."""
SPREAD = 16
"""What a square depends on may be, as a sum of absolute elements, so many times what one of its
results sees; from there on its results are summed as they are defined."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The basis of squares of `size` by `size` results."""

    size: int

    @property
    def extent(self) -> int:
        """Elements that a square of results depends on, along an axis."""
        return self.size + TAPS - 1

    @property
    def positions(self) -> int:
        """Products for each square."""
        return self.extent**2

    @property
    def results(self) -> int:
        """Results of a square."""
        return self.size**2


@dataclass(frozen=True, slots=True)
class Squares:
    """How a convolution is divided.

    A cube makes `down` by `across` squares of each of `images` images, with `panels` panels of
    weights, packed by `packing`.
    `pitch`: elements of a square in the other basis, those of all channels and a line between them,
    so that squares share no set of a cache. `tile`: squares in registers. `room`: the squares that
    memory is for. `bands`: how rows of the array are brought, and results are stored.
    """

    basis: Basis
    packing: Packing
    images: int
    down: int
    across: int
    panels: int
    pitch: int
    tile: int
    room: int
    bands: Bands

    @property
    def apart(self) -> int:
        """The distance of a part of a panel at two positions, which share no set of a cache."""
        return self.packing.depth * self.packing.step + self.packing.line

    @property
    def elements(self) -> int:
        """What a cube has room for in all, beside a few lines."""
        s, p, tiled = self.basis, self.packing, self.room + self.tile
        squares = s.positions * (self.room * self.pitch + tiled * p.step) + self.tile * self.pitch
        results = self.room * (s.results * (p.step + 1) + 1)
        brought = self.bands.packing.depth
        held = self.bands.held + self.bands.held // brought + p.line * (brought + p.line + 2)
        return squares + s.positions * self.apart + results + held

    @property
    def compiled(self) -> Squares:
        """What a kernel is compiled for: the others are arguments."""
        return replace(self, images=0, down=0, across=0, panels=0, bands=self.bands.compiled)

    @property
    def width(self) -> int:
        """Columns of the results of a cube."""
        return self.across * self.basis.size


@cp.cube
def convolve_squares(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    images: int,
    down: int,
    across: int,
    panels_each: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Squares],
) -> None:
    """A cube for `down` by `across` squares of `images` images by `panels_each` panels of filters;
    `x`, `panels` and `out` as in `blocks`."""
    s, p, bands = t.basis, t.packing, t.bands
    images, down, across = (max(1, n) for n in (images, down, across))
    filters, results = out_extents(out, bands)
    last = bands.has_channels_last
    channels = bands.packing.depth if bands.has_whole_rows else x.shape[4 if last else 1]
    band, width, each = down * s.size, across * s.size, down * across
    total, panels_each = (filters + p.step - 1) // p.step, max(1, panels_each)
    shares = (total + panels_each - 1) // panels_each
    share, (group, z, y0, x0) = place_of_cube(shares, results, band, width)
    n0, panel0 = group * images, share * panels_each
    count = min(images, x.shape[0] - n0) * each
    rows = (count + t.tile - 1) // t.tile * t.tile
    squares = cp.shared((s.positions * t.room + t.tile) * t.pitch, p.dtype)
    changed = cp.shared(s.positions * t.apart, p.dtype)
    products = cp.shared(s.positions * (t.room + t.tile) * p.step, p.dtype)
    sums = cp.shared((s.results * t.room, p.step), p.dtype)
    seen, doubts = cp.shared(s.results * t.room, p.dtype), cp.shared(t.room, cp.i32)
    for first in range(0, count, each):
        place, own = (z, y0, x0), (first, down, across, count)
        change_rows(x[n0 + first // each], squares, seen, doubts, place, own, channels, window, t)
    clear(squares, s.positions * count * t.pitch, (rows - count) * t.pitch, bands)
    for panel in range(panel0, min(panel0 + panels_each, total)):
        multiply_panel(squares, panels, changed, products, (panel, count, rows), channels, t)
        for k in range(count):
            row, column = k // across * s.size, k % across * s.size
            slots = sums[row * width + column :]
            is_sure = change_products(products[k * p.step :], slots, seen, k, rows, width, t)
            if doubts[k] == DOUBTED or (doubts[k] == SURE and not is_sure):
                top, left = y0 + row % band - window.before[1], x0 + column - window.before[2]
                own = squares[k * t.pitch :]
                bring_square(x[n0 + k // each], own, (top, left), count, channels, t)
                doubts[k] = BROUGHT
            if doubts[k] == BROUGHT:
                place = panel, count, width
                multiply_directly(squares[k * t.pitch :], panels, slots, place, channels, t)
        own_filters = min(p.step, filters - panel * p.step)
        for k in range(0, count, each):
            for row in range(min(band, results[1] - y0)):
                n, shown = n0 + k // each, min(width, results[2] - x0)
                place = n, 0, y0 + row, x0, panel * p.step, own_filters
                slot = sums[(k // across * s.size + row) * width :]
                finish(slot, out[n], place, shown, biases, extras, epilogue, bands)


def multiply_panel(
    squares: Any, panels: Any, changed: Any, products: Any, place: Any, channels: Any, t: Any
) -> None:
    """The products of all squares and a panel; `place`: its number, and how many squares, and
    products of them, there are for each position."""
    s, p, (panel, count, rows) = t.basis, t.packing, place
    for c0 in range(0, channels, p.depth):
        part = panels[weights_at(panel, c0, channels, p) :]
        own = min(p.depth, channels - c0)
        change_weights(part, changed, own, t)
        for position in range(s.positions):
            ahead = part[(TAPS**2 + position) * (p.depth * p.step) :]
            weights = changed[position * t.apart :]
            for k in range(0, rows, t.tile):
                tile = squares[(position * count + k) * t.pitch + c0 :]
                into = products[(position * rows + k) * p.step :]
                multiply_squares(tile, weights, ahead, into, c0 == 0, own, t)


def weights_at(panel: Any, c: Any, channels: Any, p: Any) -> Any:
    """Where the weights of a channel for the first tap lie in panels."""
    parts = (channels + p.depth - 1) // p.depth
    return ((panel * parts + c // p.depth) * TAPS**2 * p.depth + c % p.depth) * p.step


def change_rows(
    x: Any,
    squares: Any,
    seen: Any,
    doubts: Any,
    corner: Any,
    own: Any,
    channels: Any,
    window: Any,
    t: Any,
) -> None:
    """Bring the rows of an image that a cube depends on, some channels at a time, in the other
    basis, and judge its squares. `own`: the first of these, how many are down and across, and
    how many there are of all images."""
    p, (first, down, across, count) = t.bands.packing, own
    pitch, band = across * t.basis.size + TAPS - 1, down * t.basis.size
    held = cp.shared(t.bands.held + p.line * (p.depth + 1), p.dtype)
    near = cp.shared((p.line, p.line), p.dtype)
    behind = power_above(t.basis.extent)
    sizes = cp.shared(t.bands.held // p.depth + behind + p.line, p.dtype)
    clear(sizes, (band + TAPS - 1) * pitch, behind, t.bands)
    for c0 in range(0, channels, p.depth):
        bring(x, held, near, corner, band, (c0, channels), pitch, window, t.bands)
        add_sizes(held, sizes, (band + TAPS - 1) * pitch, c0 == 0, p)
        for k in range(down * across):
            at = (k // across * pitch + k % across) * t.basis.size
            for c in range(0, min(p.depth, channels - c0), p.line):
                into = squares[(first + k) * t.pitch + c0 + c :]
                change_square(held[at * p.depth + c :], into, count, pitch, t)
    for k in range(down * across):
        at = (k // across * pitch + k % across) * t.basis.size
        own_seen = seen[(first + k) * t.basis.results :]
        doubts[first + k] = judge_square(sizes[at:], own_seen, pitch, t)


def change_weights(part: Any, changed: Any, channels: Any, t: Any) -> None:
    """A part of a panel in the other basis."""
    s, p, size = t.basis, t.packing, t.packing.depth * t.packing.step
    for k in range(0, channels * p.step, p.line):
        lines = tuple(
            tuple(
                cp.load(part, (a * TAPS + b) * size + k, line=p.line, fill=None)
                for b in range(TAPS)
            )
            for a in range(TAPS)
        )
        found = both(weights_for(s.size), lines)
        for a in cp.unroll(range(s.extent)):
            for b in cp.unroll(range(s.extent)):
                cp.store(changed, (a * s.extent + b) * t.apart + k, found[a][b], whole=True)


def change_square(held: Any, into: Any, count: Any, pitch: Any, t: Any) -> None:
    """A line of channels of the elements that a square of results depends on."""
    p, extent = t.bands.packing, t.basis.extent
    lines = tuple(
        tuple(
            cp.load(held, (a * pitch + b) * p.depth, line=p.line, fill=None) for b in range(extent)
        )
        for a in range(extent)
    )
    found = both(elements_for(t.basis.size), lines)
    for a in cp.unroll(range(extent)):
        for b in cp.unroll(range(extent)):
            cp.store(into, (a * extent + b) * count * t.pitch, found[a][b], whole=True)


def multiply_squares(
    squares: Any, weights: Any, ahead: Any, products: Any, begins: Any, channels: Any, t: Any
) -> None:
    """The products of a tile of squares and a part of a panel at one position, added to those of
    the parts before; what lies `ahead` is fetched meanwhile."""
    p = t.packing
    found = cp.local(t.tile, cp.Line[p.dtype, p.step], fill=0)
    if not begins:
        bring_tile(found, products, t)
    for c in range(channels):
        v = cp.load(weights, c * p.step, line=p.step, fill=None)
        for line in cp.unroll(range(p.lines)):
            cp.prefetch(ahead, c * p.step + line * p.line, 2)
        for r in cp.unroll(range(t.tile)):
            found[r] = found[r] + v * squares[r * t.pitch + c]
    put_tile(found, products, t)


def put_tile(found: Any, products: Any, t: Any) -> None:
    """The products of these and the parts before."""
    for r in cp.unroll(range(t.tile)):
        cp.store(products, r * t.packing.step, found[r], whole=True)


def bring_tile(found: Any, products: Any, t: Any) -> None:
    """The products of the parts before."""
    for r in cp.unroll(range(t.tile)):
        found[r] = cp.load(products, r * t.packing.step, line=t.packing.step, fill=None)


def change_products(
    products: Any, slots: Any, seen: Any, k: Any, rows: Any, width: Any, t: Any
) -> Any:
    """The products of a square as results, which are 0 where all that they see is; whether sums of
    products are finite. `rows`: products of a position."""
    s, p = t.basis, t.packing
    zero = cp.Line[p.dtype, p.line](0)
    excess = zero
    sees_zeros = tuple(seen[k * s.results + r] == 0 for r in range(s.results))
    for c in range(0, p.step, p.line):
        lines = tuple(
            tuple(
                cp.load(products, (a * s.extent + b) * rows * p.step + c, line=p.line, fill=None)
                for b in range(s.extent)
            )
            for a in range(s.extent)
        )
        found = both(results_for(s.size), lines)
        for a in cp.unroll(range(s.size)):
            for b in cp.unroll(range(s.size)):
                excess = excess + found[a][b] * 0
                v = cp.where(sees_zeros[a * s.size + b], zero, found[a][b])
                cp.store(slots[a * width + b], c, v, whole=True)
    return not (excess != 0).any()


# Squares whose results the other basis would not give well


def add_sizes(held: Any, sizes: Any, count: Any, begins: Any, p: Any) -> None:
    """The sum over channels of the absolute elements of each pixel that was brought."""
    for q in range(count):
        total = cp.Line[p.dtype, p.line](0)
        for c in range(0, p.depth, p.line):
            total = total + abs(cp.load(held, q * p.depth + c, line=p.line, fill=None))
        sizes[q] = total.sum() + (p.dtype(0) if begins else sizes[q])


def judge_square(sizes: Any, seen: Any, pitch: Any, t: Any) -> Any:
    """What each result of a square sees, as a sum of absolute elements; and whether the square is
    in doubt: one of them sees something, but less than a part of the whole, or not a number."""
    s = t.basis
    rows = tuple(
        cp.load(sizes, a * pitch, line=power_above(s.extent), fill=None) for a in range(s.extent)
    )
    runs = tuple(rows[a] + rows[a + 1] + rows[a + 2] for a in range(s.size))
    whole: Any = sum(rows)
    total = sum(whole[b] for b in range(s.extent))
    found = cp.i32(SURE if total * 0 == 0 else DOUBTED)
    for a in cp.unroll(range(s.size)):
        for b in cp.unroll(range(s.size)):
            own = runs[a][b] + runs[a][b + 1] + runs[a][b + 2]
            seen[a * s.size + b] = own
            if own != 0 and not total <= SPREAD * own:
                found = cp.i32(DOUBTED)
    return found


def bring_square(x: Any, squares: Any, place: Any, count: Any, channels: Any, t: Any) -> None:
    """The elements that a square of results depends on, in place of those in the other basis, with
    zeros beside the image; `place`: the first row and column."""
    s, p, (top, left) = t.basis, t.packing, place
    height, width = extents_of(x, channels, t)
    for position in range(s.positions):
        y, i = top + position // s.extent, left + position % s.extent
        is_inside = y >= 0 and y < height and i >= 0 and i < width
        pixel = pixel_of(x, max(0, min(y, height - 1)), max(0, min(i, width - 1)), channels, t)
        there = channels if is_inside else 0
        for c in range(0, channels, p.line):
            v = cp.Line[p.dtype, p.line](cp.load(pixel[:there], c, line=p.line))
            cp.store(squares, position * count * t.pitch + c, v, whole=True)


def extents_of(x: Any, channels: Any, t: Any) -> Any:
    """Rows and columns of an image."""
    if t.bands.has_whole_rows:
        return x.shape[1], x.shape[2] // channels
    return x.shape[1:3] if t.bands.has_channels_last else x.shape[2:4]


def pixel_of(x: Any, y: Any, i: Any, channels: Any, t: Any) -> Any:
    """All channels of an element of an image."""
    if t.bands.has_whole_rows:
        return x[0, y, i * channels :]
    return x[0, y, i] if t.bands.has_channels_last else x[:, 0, y, i]


def multiply_directly(
    squares: Any, panels: Any, slots: Any, place: Any, channels: Any, t: Any
) -> None:
    """The results of a square as they are defined, from elements that `bring_square` brought."""
    s, p, (panel, count, width) = t.basis, t.packing, place
    for a in range(s.size):
        found = cp.local(s.size, cp.Line[p.dtype, p.step], fill=0)
        for c0 in range(0, channels, p.depth):
            part = panels[weights_at(panel, c0, channels, p) :]
            for tap in range(TAPS**2):
                position = (a + tap // TAPS) * s.extent + tap % TAPS
                row = squares[position * count * t.pitch + c0 :]
                weights = part[tap * (p.depth * p.step) :]
                for c in range(min(p.depth, channels - c0)):
                    v = cp.load(weights, c * p.step, line=p.step, fill=None)
                    for b in cp.unroll(range(s.size)):
                        found[b] = found[b] + v * row[b * count * t.pitch + c]
        put_row(found, slots[a * width :], t)


def put_row(found: Any, slots: Any, t: Any) -> None:
    """A row of results of a square."""
    for b in cp.unroll(range(t.basis.size)):
        cp.store(slots[b], 0, found[b], whole=True)


# Changes of basis


def both(change: Any, square: Any) -> Any:
    """A change of basis along the rows and the columns of a square."""
    rows = tuple(change(row) for row in square)
    columns = tuple(change(tuple(row[k] for row in rows)) for k in range(len(rows[0])))
    return tuple(tuple(column[k] for column in columns) for k in range(len(columns[0])))


def elements_for(size: Any) -> Any:
    """How elements of the array change."""
    return elements_of_two if size == 2 else elements_of_four


def weights_for(size: Any) -> Any:
    """How weights change."""
    return weights_of_two if size == 2 else weights_of_four


def results_for(size: Any) -> Any:
    """How products change to results."""
    return results_of_two if size == 2 else results_of_four


def elements_of_two(v: Any) -> Any:
    """Four elements for two results."""
    return v[0] - v[2], v[1] + v[2], v[2] - v[1], v[1] - v[3]


def weights_of_two(v: Any) -> Any:
    """Three weights for two results; twice those of the points 1 and -1."""
    outer = v[0] + v[2]
    return v[0], outer + v[1], outer - v[1], v[2]


def results_of_two(v: Any) -> Any:
    """Two results of four products."""
    return v[0] + 0.5 * (v[1] + v[2]), 0.5 * (v[1] - v[2]) - v[3]


def elements_of_four(v: Any) -> Any:
    """Six elements for four results."""
    even, odd = v[4] - 4 * v[2], v[3] - 4 * v[1]
    near, far = v[4] - v[2], 2 * (v[3] - v[1])
    first, last = 4 * v[0] - 5 * v[2] + v[4], 4 * v[1] - 5 * v[3] + v[5]
    return first, even + odd, even - odd, near + far, near - far, last


def weights_of_four(v: Any) -> Any:
    """Three weights for four results."""
    near, far = (v[0] + v[2]) * (-1 / 6), (v[0] + 4 * v[2]) * (1 / 24)
    one, two = v[1] * (-1 / 6), v[1] * (1 / 12)
    return v[0] * 0.25, near + one, near - one, far + two, far - two, v[2]


def results_of_four(v: Any) -> Any:
    """Four results of six products."""
    near, far = v[1] + v[2], v[3] + v[4]
    one, two = v[1] - v[2], v[3] - v[4]
    return v[0] + near + far, one + 2 * two, near + 4 * far, one + 8 * two + v[5]
