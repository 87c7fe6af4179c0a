"""Convolutions of 3x3 windows on CPUs by few products: Winograd's F(2x2, 3x3) and F(4x4, 3x3).

A square of 2x2 (4x4) results is a linear function of the 4x4 (6x6) elements that it depends on. In
another basis that function is one product for each of 16 (36) positions, in place of 36 (144)
products; changing the basis costs additions alone (and factors of small integers). Sums over
channels are made in that basis, so that each position is a product of matrices: squares by channels
times channels by filters, in tiles of registers as `blocks` makes them.

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
from cubepy.kernels.convolution.blocks import Bands, bring, finish, out_extents
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass

TAPS = 3
"""The extent of windows."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Weights in the basis of squares of `size` by `size` results, in panels.

    For each `lines` lines of `line` filters, for each position, one line after the other for each
    channel. Zeros fill the last ones.
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
class Squares:
    """How a convolution is divided.

    A cube makes `down` by `across` squares, with `panels` panels of weights. `pitch`: elements
    of a square in the other basis, those of all channels and a line between them, so that squares
    share no set of a cache. `tile`: squares in registers. `bands`: how rows of the array are
    brought, and results are stored. Weights are prefetched `ahead` lines of a panel.
    """

    basis: Basis
    down: int
    across: int
    panels: int
    pitch: int
    tile: int
    bands: Bands
    ahead: int = 16

    @property
    def compiled(self) -> Squares:
        """What a kernel is compiled for: `panels` is an argument."""
        return replace(self, panels=0)

    @property
    def count(self) -> int:
        """Squares of a cube."""
        return self.down * self.across

    @property
    def width(self) -> int:
        """Columns of the results of a cube."""
        return self.across * self.basis.size


@cp.cube
def change_weights(weight: cp.Tensor, panels: cp.Tensor, t: cp.Comptime[Basis]) -> None:
    """Weights [filter, channel, 1, row, column] in another basis; a unit for each filter and
    channel. They are made in f64 and rounded once."""
    channels = weight.shape[1]
    count = (weight.shape[0] + t.step - 1) // t.step
    if count * t.step * channels > cp.ABSOLUTE_POS:
        f, c = cp.ABSOLUTE_POS // channels, cp.ABSOLUTE_POS % channels
        window = weight[min(f, weight.shape[0] - 1), c, 0]
        exists = f64(1) if f < weight.shape[0] else f64(0)
        taps = tuple(tuple(f64(window[a, b]) * exists for b in range(TAPS)) for a in range(TAPS))
        found = both(weights_for(t.size), taps)
        at = (f // t.step * (t.positions * channels) + c) * t.step + f % t.step
        for k in cp.unroll(range(t.positions)):
            panels[at + k * (channels * t.step)] = t.dtype(found[k // t.extent][k % t.extent])


@cp.cube
def convolve_squares(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    panels_each: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Squares],
) -> None:
    """A cube for some squares by `panels_each` panels of filters; `x` and `out` as in `blocks`."""
    s, b = t.basis, t.bands
    filters, results = out_extents(out, b)
    channels = b.packing.depth if b.has_whole_rows else x.shape[4 if b.has_channels_last else 1]
    total = (filters + s.step - 1) // s.step
    shares, bands = (total + panels_each - 1) // panels_each, (results[1] + b.band - 1) // b.band
    stripes = (results[2] + t.width - 1) // t.width
    first, rest = cp.CUBE_POS % shares * panels_each, cp.CUBE_POS // shares
    x0, rest = rest % stripes * t.width, rest // stripes
    y0, n = rest % bands * b.band, rest // bands
    squares = cp.shared((s.positions, t.count, t.pitch), s.dtype)
    products = cp.shared((s.positions, t.count, s.step), s.dtype)
    sums = cp.shared((b.band * t.width, s.step), s.dtype)
    change_rows(x[n], squares, (0, y0, x0), channels, window, t)
    for panel in range(first, min(first + panels_each, total)):
        for position in range(s.positions):
            weights = panels[(panel * s.positions + position) * (channels * s.step) :]
            for k in range(0, t.count, t.tile):
                at = min(k, t.count - t.tile)
                multiply_squares(squares[position], weights, products[position], at, channels, t)
        change_products(products, sums, t)
        own = min(s.step, filters - panel * s.step)
        for row in range(min(b.band, results[1] - y0)):
            place = n, 0, y0 + row, x0, panel * s.step, own
            width = min(t.width, results[2] - x0)
            finish(sums[row * t.width :], out[n], place, width, biases, extras, epilogue, b)


def change_rows(x: Any, squares: Any, corner: Any, channels: Any, window: Any, t: Any) -> None:
    """Bring the rows that a cube depends on, some channels at a time, in the other basis."""
    p, pitch = t.bands.packing, t.width + TAPS - 1
    held = cp.shared(t.bands.held + p.line * (p.depth + 1), p.dtype)
    near = cp.shared((p.line, p.line), p.dtype)
    for c0 in range(0, channels, p.depth):
        bring(x, held, near, corner, t.bands.band, (c0, channels), pitch, window, t.bands)
        for k in range(t.count):
            at = (k // t.across * pitch + k % t.across) * t.basis.size
            for c in range(0, min(p.depth, channels - c0), p.line):
                change_square(held, squares, at, k, c0, c, pitch, t)


def change_square(
    held: Any, squares: Any, at: Any, k: Any, c0: Any, c: Any, pitch: Any, t: Any
) -> None:
    """A line of channels of the elements that a square of results depends on."""
    p, extent = t.bands.packing, t.basis.extent
    lines = tuple(
        tuple(
            cp.load(held, (at + a * pitch + b) * p.depth + c, line=p.line, fill=None)
            for b in range(extent)
        )
        for a in range(extent)
    )
    found = both(elements_for(t.basis.size), lines)
    for a in cp.unroll(range(extent)):
        for b in cp.unroll(range(extent)):
            cp.store(squares[a * extent + b, k], c0 + c, found[a][b], whole=True)


def multiply_squares(
    squares: Any, weights: Any, products: Any, at: Any, channels: Any, t: Any
) -> None:
    """The products of some squares and one panel at one position."""
    s = t.basis
    found = cp.local(t.tile, cp.Line[s.dtype, s.step], fill=0)
    for k in range(channels):
        v = cp.load(weights, k * s.step, line=s.step, fill=None)
        if t.ahead:
            for c in cp.unroll(range(s.lines)):
                cp.prefetch(weights, (k + t.ahead) * s.step + c * s.line)
        for r in cp.unroll(range(t.tile)):
            found[r] = found[r] + v * squares[at + r, k]
    for r in cp.unroll(range(t.tile)):
        cp.store(products[at + r], 0, found[r], whole=True)


def change_products(products: Any, sums: Any, t: Any) -> None:
    """Products of all squares of a cube as results."""
    s = t.basis
    for k in range(t.count):
        corner = (k // t.across * t.width + k % t.across) * s.size
        for c in range(0, s.step, s.line):
            lines = tuple(
                tuple(
                    cp.load(products[a * s.extent + b, k], c, line=s.line, fill=None)
                    for b in range(s.extent)
                )
                for a in range(s.extent)
            )
            found = both(results_for(s.size), lines)
            for a in cp.unroll(range(s.size)):
                for b in cp.unroll(range(s.size)):
                    cp.store(sums[corner + a * t.width + b], c, found[a][b], whole=True)


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
