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
from cubepy.ir.types import DType, f64
from cubepy.kernels.convolution.blocks import Bands, bring, finish, out_extents, place_of_cube
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.matmul.strategies import power_above
from cubepy.record import dataclass

TAPS = 3
"""The extent of windows."""
SPREAD = 16
"""What a square depends on may be, as a sum of absolute elements, so many times what one of its
results sees; from there on its results are summed as they are defined."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Weights in the basis of squares of `size` by `size` results, in panels.

    For each `lines` lines of `line` filters, for each position, one line after the other for each
    channel.
    """

    size: int
    lines: int
    line: int
    dtype: DType

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

    @property
    def step(self) -> int:
        """Filters of a panel."""
        return self.lines * self.line

    def panels(self, filters: int) -> int:
        """Panels of all filters."""
        return -(-filters // self.step)

    def elements(self, filters: int, channels: int) -> int:
        """The size of all panels."""
        return self.panels(filters) * self.positions * channels * self.step


@dataclass(frozen=True, slots=True)
class SquarePacking:
    """Weights in two orders, one behind the other: the panels that sum products as they are
    defined, and those of a `basis`.

    `is_asked`: the basis is used wherever it can be, not only where it is faster.
    """

    direct: Packing
    basis: Basis
    is_asked: bool


@dataclass(frozen=True, slots=True)
class Squares:
    """How a convolution is divided.

    A cube makes `down` by `across` squares, with `panels` panels of weights. `pitch`: elements
    of a square in the other basis, those of all channels and a line between them, so that squares
    share no set of a cache. `tile`: squares in registers. `room`: the squares that memory is for.
    `bands`: how rows of the array are brought, and results are stored. Weights are prefetched
    `ahead` lines of a panel.
    """

    weights: SquarePacking
    down: int
    across: int
    panels: int
    pitch: int
    tile: int
    room: int
    bands: Bands
    ahead: int = 16

    @property
    def basis(self) -> Basis:
        """The basis of the products."""
        return self.weights.basis

    @property
    def compiled(self) -> Squares:
        """What a kernel is compiled for: the others are arguments."""
        return replace(self, down=0, across=0, panels=0, bands=self.bands.compiled)

    @property
    def width(self) -> int:
        """Columns of the results of a cube."""
        return self.across * self.basis.size


@cp.cube
def change_weights(
    direct: cp.Tensor, panels: cp.Tensor, channels: int, t: cp.Comptime[SquarePacking]
) -> None:
    """Panels in another basis; a unit for each channel of a panel. They are made in f64 and rounded
    once."""
    s, p = t.basis, t.direct
    if panels.shape[0] // (s.positions * s.step) > cp.ABSOLUTE_POS:
        panel, c = cp.ABSOLUTE_POS // channels, cp.ABSOLUTE_POS % channels
        source = direct[direct_weights(panel, c, channels, p) :]
        into = panels[(panel * s.positions * channels + c) * s.step :]
        for k in range(0, s.step, s.line):
            lines = tuple(
                tuple(
                    cp.Line[f64, s.line](
                        cp.load(
                            source, (a * TAPS + b) * p.depth * p.step + k, line=s.line, fill=None
                        )
                    )
                    for b in range(TAPS)
                )
                for a in range(TAPS)
            )
            found = both(weights_for(s.size), lines)
            for a in cp.unroll(range(s.extent)):
                for b in cp.unroll(range(s.extent)):
                    at = (a * s.extent + b) * channels * s.step + k
                    cp.store(into, at, cp.Line[s.dtype, s.line](found[a][b]), whole=True)


def direct_weights(panel: Any, c: Any, channels: Any, p: Any) -> Any:
    """Where the weights of a channel for the first tap lie in direct panels."""
    parts = (channels + p.depth - 1) // p.depth
    return ((panel * parts + c // p.depth) * TAPS**2 * p.depth + c % p.depth) * p.step


@cp.cube
def convolve_squares(
    x: cp.Tensor,
    direct: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    down: int,
    across: int,
    panels_each: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Squares],
) -> None:
    """A cube for `down` by `across` squares by `panels_each` panels of filters; `x` and `out` as in
    `blocks`."""
    s, b = t.basis, t.bands
    down, across, panels_each = (max(1, n) for n in (down, across, panels_each))
    filters, results = out_extents(out, b)
    channels = b.packing.depth if b.has_whole_rows else x.shape[4 if b.has_channels_last else 1]
    band, width, count = down * s.size, across * s.size, down * across
    total = (filters + s.step - 1) // s.step
    shares = (total + panels_each - 1) // panels_each
    share, (n, z, y0, x0) = place_of_cube(shares, results, band, width)
    first = share * panels_each
    squares = cp.shared(s.positions * t.room * t.pitch, s.dtype)
    products = cp.shared(s.positions * t.room * s.step, s.dtype)
    sums = cp.shared((s.results * t.room, s.step), s.dtype)
    seen, doubts = cp.shared(s.results * t.room, s.dtype), cp.shared(t.room, cp.i32)
    change_rows(x[n], squares, seen, doubts, (z, y0, x0), (down, across), channels, window, t)
    for panel in range(first, min(first + panels_each, total)):
        for position in range(s.positions):
            weights = panels[(panel * s.positions + position) * (channels * s.step) :]
            own, into = squares[position * count * t.pitch :], products[position * count * s.step :]
            for k in range(0, count, t.tile):
                multiply_squares(own, weights, into, min(k, count - t.tile), channels, t)
        for k in range(count):
            row, column = k // across * s.size, k % across * s.size
            slots = sums[row * width + column :]
            is_sure = change_products(products[k * s.step :], slots, seen, k, count, width, t)
            if doubts[k] != 0 or not is_sure:
                place = y0 + row - window.before[1], x0 + column - window.before[2], panel
                multiply_directly(x[n], direct, slots, place, channels, width, t)
        own = min(s.step, filters - panel * s.step)
        for row in range(min(band, results[1] - y0)):
            place = n, 0, y0 + row, x0, panel * s.step, own
            shown = min(width, results[2] - x0)
            finish(sums[row * width :], out[n], place, shown, biases, extras, epilogue, b)


def change_rows(
    x: Any,
    squares: Any,
    seen: Any,
    doubts: Any,
    corner: Any,
    extents: Any,
    channels: Any,
    window: Any,
    t: Any,
) -> None:
    """Bring the rows that a cube depends on, some channels at a time, in the other basis, and judge
    its squares."""
    p, (down, across) = t.bands.packing, extents
    pitch, band, count = across * t.basis.size + TAPS - 1, down * t.basis.size, down * across
    held = cp.shared(t.bands.held + p.line * (p.depth + 1), p.dtype)
    near = cp.shared((p.line, p.line), p.dtype)
    sizes = cp.shared(t.bands.held // p.depth + power_above(t.basis.extent), p.dtype)
    for c0 in range(0, channels, p.depth):
        bring(x, held, near, corner, band, (c0, channels), pitch, window, t.bands)
        add_sizes(held, sizes, (band + TAPS - 1) * pitch, c0 == 0, p)
        for k in range(count):
            at = (k // across * pitch + k % across) * t.basis.size
            for c in range(0, min(p.depth, channels - c0), p.line):
                into = squares[k * t.pitch + c0 + c :]
                change_square(held[at * p.depth + c :], into, count, pitch, t)
    for k in range(count):
        at = (k // across * pitch + k % across) * t.basis.size
        doubts[k] = judge_square(sizes[at:], seen[k * t.basis.results :], pitch, t)


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
    squares: Any, weights: Any, products: Any, at: Any, channels: Any, t: Any
) -> None:
    """The products of some squares and one panel at one position."""
    s = t.basis
    own, into = squares[at * t.pitch :], products[at * s.step :]
    found = cp.local(t.tile, cp.Line[s.dtype, s.step], fill=0)
    for k in range(channels):
        v = cp.load(weights, k * s.step, line=s.step, fill=None)
        if t.ahead:
            for c in cp.unroll(range(s.lines)):
                cp.prefetch(weights, (k + t.ahead) * s.step + c * s.line)
        for r in cp.unroll(range(t.tile)):
            found[r] = found[r] + v * own[r * t.pitch + k]
    for r in cp.unroll(range(t.tile)):
        cp.store(into, r * s.step, found[r], whole=True)


def change_products(
    products: Any, slots: Any, seen: Any, k: Any, count: Any, width: Any, t: Any
) -> Any:
    """The products of a square as results, which are 0 where all that they see is; whether sums of
    products are finite."""
    s = t.basis
    zero = cp.Line[s.dtype, s.line](0)
    excess = zero
    sees_zeros = tuple(seen[k * s.results + r] == 0 for r in range(s.results))
    for c in range(0, s.step, s.line):
        lines = tuple(
            tuple(
                cp.load(products, (a * s.extent + b) * count * s.step + c, line=s.line, fill=None)
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
        sizes[q] = total.sum() + (0 if begins else sizes[q])


def judge_square(sizes: Any, seen: Any, pitch: Any, t: Any) -> Any:
    """What each result of a square sees, as a sum of absolute elements; and 1 if the square is in
    doubt: one of them sees something, but less than a part of the whole, or not a number."""
    s = t.basis
    rows = tuple(
        cp.load(sizes, a * pitch, line=power_above(s.extent), fill=None) for a in range(s.extent)
    )
    runs = tuple(rows[a] + rows[a + 1] + rows[a + 2] for a in range(s.size))
    whole = sum(rows)
    total = sum(whole[b] for b in range(s.extent))
    doubts = 0
    for a in cp.unroll(range(s.size)):
        for b in cp.unroll(range(s.size)):
            own = runs[a][b] + runs[a][b + 1] + runs[a][b + 2]
            seen[a * s.size + b] = own
            if own != 0 and not total <= SPREAD * own:
                doubts = 1
    return doubts


def multiply_directly(
    x: Any, weights: Any, slots: Any, place: Any, channels: Any, width: Any, t: Any
) -> None:
    """The results of a square as they are defined; `place`: the first row and column that it
    depends on, and the panel."""
    s, p, (top, left, panel) = t.basis, t.weights.direct, place
    for a in range(s.size):
        found = cp.local(s.size, cp.Line[s.dtype, s.step], fill=0)
        for c in range(channels):
            source = weights[direct_weights(panel, c, channels, p) :]
            for tap in range(TAPS**2):
                v = cp.load(source, tap * p.depth * p.step, line=s.step, fill=None)
                for b in cp.unroll(range(s.size)):
                    e = element_of(x, c, top + a + tap // TAPS, left + b + tap % TAPS, channels, t)
                    found[b] = found[b] + v * s.dtype(e)
        for b in cp.unroll(range(s.size)):
            cp.store(slots[a * width + b], 0, found[b], whole=True)


def element_of(x: Any, c: Any, y: Any, i: Any, channels: Any, t: Any) -> Any:
    """An element of an image; 0 beside it."""
    b, zero = t.bands, x.dtype(0)
    if b.has_whole_rows:
        inside = y >= 0 and y < x.shape[1] and i >= 0 and i * channels < x.shape[2]
        return x[0, y, i * channels + c] if inside else zero
    if b.has_channels_last:
        inside = y >= 0 and y < x.shape[1] and i >= 0 and i < x.shape[2]
        return x[0, y, i, c] if inside else zero
    inside = y >= 0 and y < x.shape[2] and i >= 0 and i < x.shape[3]
    return x[c, 0, y, i] if inside else zero


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
    """Three weights for two results."""
    outer = 0.5 * (v[0] + v[2])
    return v[0], outer + 0.5 * v[1], outer - 0.5 * v[1], v[2]


def results_of_two(v: Any) -> Any:
    """Two results of four products."""
    return v[0] + v[1] + v[2], v[1] - v[2] - v[3]


def elements_of_four(v: Any) -> Any:
    """Six elements for four results."""
    even, odd = v[4] - 4 * v[2], v[3] - 4 * v[1]
    near, far = v[4] - v[2], 2 * (v[3] - v[1])
    first, last = 4 * v[0] - 5 * v[2] + v[4], 4 * v[1] - 5 * v[3] + v[5]
    return first, even + odd, even - odd, near + far, near - far, last


def weights_of_four(v: Any) -> Any:
    """Three weights for four results."""
    near, far = (v[0] + v[2]) / -6, (v[0] + 4 * v[2]) / 24
    one, two = v[1] / -6, v[1] / 12
    return v[0] / 4, near + one, near - one, far + two, far - two, v[2]


def results_of_four(v: Any) -> Any:
    """Four results of six products."""
    near, far = v[1] + v[2], v[3] + v[4]
    one, two = v[1] - v[2], v[3] - v[4]
    return v[0] + near + far, one + 2 * two, near + 4 * far, one + 8 * two + v[5]
