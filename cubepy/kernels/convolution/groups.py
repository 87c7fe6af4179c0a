"""Convolutions of few channels a group on GPUs, where channels lie side by side.

Neighbouring units have neighbouring channels, and each makes a strip of pixels of a row: what a row
of the window sees of it passes through registers once. The taps of a cube's channels, which all its
strips share, are in shared memory in the type of the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.convolution.planes import first_of, put
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Strips:
    """How pixels and filters are divided.

    A cube has `down` strips by `across` units beside each other, each of which makes `pixels` of a
    row, of `line` filters. The filters of a line read `channels` channels of one group, or each its
    own where `is_depthwise`.
    """

    line: int
    pixels: int
    across: int
    down: int
    channels: int
    is_depthwise: bool
    sums: DType

    @property
    def filters(self) -> int:
        """Filters of a cube."""
        return self.across * self.line

    @property
    def pitch(self) -> int:
        """Elements of a row of factors in shared memory: a line longer than the row, as columns of
        it are stored at a time."""
        return self.filters + self.line

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.across * self.down

    def shared_bytes(self, window: Window) -> int:
        """Shared memory of a cube."""
        return window.taps * self.channels * self.pitch * self.sums.itemsize


@cp.cube
def convolve_groups(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Strips],
) -> None:
    """A cube for some strips of some channels. `x` and `out` are [n, depth, row, column, channel],
    `weight` is [filter, channel, depth, row, column]."""
    filters, columns = cp.u32(out.shape[4]), cp.i32(out.shape[3])
    parts = (filters + t.filters - 1) // t.filters
    part, first = cp.u32(cp.CUBE_POS) % parts, cp.u32(cp.CUBE_POS) // parts * t.down
    f0 = part * t.filters
    factors = cp.shared((window.taps * t.channels, t.pitch), t.sums)
    bring_factors(weight, factors, f0, window, t)
    cp.sync_cube()
    unit = cp.u32(cp.UNIT_POS)
    place, lane = first + unit // t.across, unit % t.across * t.line
    strips = (cp.u32(columns) + t.pixels - 1) // t.pixels
    extents = (*(cp.u32(n) for n in out.shape[:3]), strips)
    if place < product(extents) and f0 + lane < filters:
        n, z, y, strip = (cp.i32(k) for k in unravelled(place, extents))
        f = cp.i32(f0 + lane)
        j = min(strip * t.pixels, columns - t.pixels)
        start = cp.Line[t.sums, t.line](0)
        if len(biases) > 0:
            start = cp.Line[t.sums, t.line](cp.load(biases[0], f, line=t.line, fill=None))
        found = cp.local(t.pixels, cp.Line[t.sums, t.line])
        for p in cp.unroll(range(t.pixels)):
            found[p] = start
        c = f if t.is_depthwise else first_channel(f, x.shape[4], filters, t)
        add_window(x[n], factors, found, (z, y, j), (c, lane), window, t)
        for p in cp.unroll(range(t.pixels)):
            finish(out[n, z, y, j + p], found[p], (n, f, z, y, j + p), extras, epilogue, t)


def first_channel(f: Any, channels: Any, filters: Any, t: Any) -> Any:
    """The first channel that a filter reads."""
    groups = cp.i32(channels) // t.channels
    return f // (cp.i32(filters) // groups) * t.channels


def bring_factors(weight: Any, factors: Any, f0: Any, window: Any, t: Any) -> None:
    """Taps of a cube's filters as [tap and channel, filter] in shared memory; units beside each
    other read what lies side by side."""
    length = t.channels * window.taps
    for e in range(cp.u32(cp.UNIT_POS), t.filters * length, cp.u32(t.units)):
        f, c, a, b, k = unravelled(e, (t.filters, t.channels, *window.kernel))
        if f0 + f < weight.shape[0]:
            factors[e % window.taps * t.channels + c, f] = t.sums(weight[f0 + f, c, a, b, k])


def add_window(x: Any, factors: Any, found: Any, place: Any, at: Any, window: Any, t: Any) -> None:
    """Add the products of all taps to the sums of a strip that begins at `place`."""
    starts = tuple(first_of(place[k], k, window) for k in range(3))
    for a in range(window.kernel[0]):
        depth = starts[0] + cp.i32(a) * window.dilation[0]
        for b in range(window.kernel[1]):
            row = starts[1] + cp.i32(b) * window.dilation[1]
            if depth >= 0 and depth < x.shape[0] and row >= 0 and row < x.shape[1]:
                taps = (cp.i32(a) * window.kernel[1] + cp.i32(b)) * window.kernel[2]
                add_row(x[depth, row], factors, found, (starts[2], taps), at, window, t)


def add_row(row: Any, factors: Any, found: Any, place: Any, at: Any, window: Any, t: Any) -> None:
    """Add the products of a row of taps, each pixel of which is read once."""
    (start, first), (c, lane) = place, at
    taps, step, apart = window.kernel[2], window.stride[2], window.dilation[2]
    width = t.line if t.is_depthwise else t.channels
    for i in cp.unroll(offsets_of(t.pixels, window)):
        column, v = start + i, cp.Line[row.dtype, width](0)
        if column >= 0 and column < row.shape[0]:
            v = cp.load(row, (column, c), line=width, fill=None)
        pixel = cp.Line[t.sums, width](v)
        for k in cp.unroll(range(taps)):
            p = i - k * apart
            if p % step == 0 and 0 <= p < t.pixels * step:
                if t.is_depthwise:
                    factor = cp.load(factors, (first + k, lane), line=t.line, fill=None)
                    found[p // step] = found[p // step] + pixel * factor
                else:
                    for e in cp.unroll(range(t.channels)):
                        place = (first + k) * t.channels + e
                        factor = cp.load(factors, (place, lane), line=t.line, fill=None)
                        found[p // step] = found[p // step] + factor * pixel[e]


def offsets_of(pixels: int, window: Window) -> list[int]:
    """What neighbouring pixels see of a row, in columns behind the first."""
    taps, step, apart = window.kernel[2], window.stride[2], window.dilation[2]
    return sorted({p * step + k * apart for p in range(pixels) for k in range(taps)})


def finish(out: Any, v: Any, index: Any, extras: Any, epilogue: Any, t: Any) -> None:
    """Store a line of channels of the result at `index`."""
    if epilogue is not None:
        v = applied_along(epilogue, v, index, 1, extras)
    put(out, index[1], v, t.line)
