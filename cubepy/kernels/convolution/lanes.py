"""Convolutions of few channels a group on CPUs: lines of filters, each lane of which reads its own
channel.

A cube makes a band of rows of a strip of columns for some lines of filters. It brings
what these depend on into a near cache, as lines in the type of the sums: for each pixel and each
channel of a group, what that channel is for each filter of the line, with the zeros around the
array. Then a tile of pixels beside each other stays in registers, what a row of the window sees of
it is read once, and the taps of a row stay in registers too. No lane is guarded, however short the
rows are; those are empty that are too few for one more group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.convolution.blocks import finish_turned, pixels_of, rows_seen
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.matmul.blocks import transposed
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Lanes:
    """How pixels and filters are divided.

    A line has `filters` filters of each of `groups` groups of `packing.depth` channels. A tile has
    `pixels` pixels, whose `taps` of a row at most are in registers. There is room for `held` lines
    that results of all lines of a cube depend on, and for `sums` lines of results. `is_whole`: no
    line reaches beyond the channels. `is_dense`: rows of planes follow each other in the array, all
    of whose pixels are brought, and `is_flat`: in the result, where both are seen as one row.
    """

    packing: Packing
    groups: int
    filters: int
    pixels: int
    taps: int
    held: int
    sums: int
    has_channels_last: bool
    puts_channels_last: bool
    is_whole: bool
    is_dense: bool
    is_flat: bool

    @property
    def step(self) -> int:
        """Filters of a line."""
        return self.groups * self.filters

    @property
    def size(self) -> int:
        """Elements that a pixel is brought as."""
        return self.packing.depth * self.packing.line

    @property
    def brought(self) -> int:
        """Channels that they read."""
        return self.groups * self.packing.depth


def channels_of(lanes: int, filters: int, channels: int, number: int) -> tuple[int, ...]:
    """For each lane, which of the channels of a line's groups is `number` of its own group."""
    return tuple(min(k // filters * channels + number, lanes - 1) for k in range(lanes))


@cp.cube
def pack_lanes(weight: cp.Tensor, panels: cp.Tensor, t: cp.Comptime[Lanes]) -> None:
    """Weights [filter, channel, depth, row, column] as lines of filters; a cube for each line, in
    the order depth, row, channel, column. Lanes without a filter have the last one, as those of
    `packing.Packing` have."""
    f0, (deep, rows, columns) = cp.CUBE_POS * t.step, weight.shape[2:]
    at = cp.CUBE_POS * (deep * rows * columns * t.packing.depth * t.packing.line)
    for f in range(t.packing.line):
        filter = weight[min(f0 + f, weight.shape[0] - 1)]
        for z in range(deep):
            for y in range(rows):
                for c in range(t.packing.depth):
                    first = ((z * rows + y) * t.packing.depth + c) * columns
                    for i in range(columns):
                        into = at + (first + i) * t.packing.line + f
                        panels[into] = t.packing.dtype(filter[c, z, y, i])


@cp.cube
def convolve_lanes(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    extents: Any,
    results: Any,
    cut: Any,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Lanes],
) -> None:
    """A cube for each band of rows of a strip of columns by some lines of filters.

    `x` is [n, depth, row, column, channel] where it has channels last, else [n, channel, depth,
    row, column] or, where it is dense, [n, channel, depth, 1, pixel]; `out` likewise. `extents`,
    `results`: rows and columns of these; `cut`: lines of a cube, rows of a band, columns of a
    strip, and pixels of the array that the memory of a row is for.
    """
    each, band, strip, pitch = cut
    filters = out.shape[4 if t.puts_channels_last else 1]
    deep = out.shape[1 if t.puts_channels_last else 2]
    lines = (filters + t.step - 1) // t.step
    shares = (lines + each - 1) // each
    bands, strips = (results[0] + band - 1) // band, (results[1] + strip - 1) // strip
    first, rest = cp.CUBE_POS % shares * each, cp.CUBE_POS // shares
    left, rest = rest % strips * strip, rest // strips
    top, rest = rest % bands * band, rest // bands
    z, n = rest % deep, rest // deep
    rows, columns = min(band, results[0] - top), min(strip, results[1] - left)
    held = cp.shared(t.held * t.packing.line, t.packing.dtype)
    near = cp.shared((t.packing.line, t.packing.line), t.packing.dtype)
    sums = cp.shared((t.sums, t.packing.line), t.packing.dtype)
    for k in range(t.packing.line):  # lanes without a channel
        cp.store(near[k], 0, cp.Line[t.packing.dtype, t.packing.line](0), whole=True)
    high = (rows - 1) * window.stride[1] + window.spans[1]
    corner = top * window.stride[1] - window.before[1], left * window.stride[2] - window.before[2]
    count, area = min(each, lines - first), high * pitch
    for a in range(window.kernel[0]):
        depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
        some = first, count, window.kernel[0] * area
        bring(x[n], held[a * area * t.size :], near, depth, corner, high, pitch, some, extents, t)
    for line in range(count):
        own = held[line * window.kernel[0] * area * t.size :]
        place = n, z, top, left, (first + line) * t.step
        convolved(
            own,
            panels,
            sums,
            place,
            (rows, columns),
            (high, pitch, extents[0]),
            window,
            t,
            out,
            biases,
            extras,
            epilogue,
        )


def convolved(
    held: Any,
    panels: Any,
    sums: Any,
    place: Any,
    results: Any,
    extents: Any,
    window: Any,
    t: Any,
    out: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
) -> None:
    """The results of one line of filters, from `place` on: n, depth, row, column and filter."""
    (n, z, top, left, f0), (rows, columns), (high, pitch, height) = place, results, extents
    weights = panels[f0 // t.step * (window.taps * t.size) :]
    filters = out.shape[4 if t.puts_channels_last else 1]
    count, wide = min(t.step, filters - f0), max(columns, t.pixels)
    start = cp.Line[t.packing.dtype, t.packing.line](0)
    if len(biases):
        start = cp.Line[t.packing.dtype, t.packing.line](
            cp.load(biases[0], f0, line=t.packing.line)
        )
    for tile in range(0, columns, t.pixels):
        q = max(0, min(tile, columns - t.pixels))  # the last one makes some results again
        for y in range(rows):
            corner = y * window.stride[1] * pitch + q * window.stride[2]
            seen = rows_seen(top + y, top + y, height, window)
            pixels = held[corner * t.size :]
            found = multiplied(pixels, weights, start, seen, high * pitch, pitch, window, t)
            if t.puts_channels_last and epilogue is None and columns >= t.pixels:
                row = out[n, z, top + y]
                for k in cp.unroll(range(t.pixels)):
                    put_line(row[left + q + k], f0, found[k], count, t)
            else:
                slot = sums[0 if t.puts_channels_last else y * wide + q :]
                for k in cp.unroll(range(t.pixels)):
                    cp.store(slot[k], 0, found[k], whole=True)
                if t.puts_channels_last:
                    at = n, z, top + y, left + q, f0, count
                    width = min(t.pixels, columns - q)
                    put_pixels(slot, out[n], at, width, extras, epilogue, t)
    if t.is_flat:
        at = n, z, 0, top * columns, f0, count
        put_planes(sums, out[n], at, rows * columns, extras, epilogue, t)
    elif not t.puts_channels_last:
        for y in range(rows):
            at = n, z, top + y, left, f0, count
            put_planes(sums[y * wide :], out[n], at, columns, extras, epilogue, t)


def bring(
    x: Any,
    held: Any,
    near: Any,
    depth: Any,
    corner: Any,
    high: Any,
    pitch: Any,
    some: Any,
    extents: Any,
    t: Any,
) -> None:
    """What the rows of one depth are for some lines of filters, with zeros around.

    `corner`: the row and the column of the array that the first of `high` rows begins at. `some`:
    the first line, how many, and pixels from one to the next.
    """
    (height, width), (top, left), (first, count, apart) = extents, corner, some
    deep = x.shape[0 if t.has_channels_last else 1]
    is_inside = depth >= 0 and depth < deep
    begin, end = min(high, max(0, -top)), min(high, height - top) if is_inside else 0
    before = min(pitch, max(0, -left))
    behind = max(before, min(pitch, width - left))
    for line in range(count):
        own = held[line * apart * t.size :]
        if not is_inside:
            clear(own, 0, high * pitch, t)
        for r in range(begin, end):
            clear(own, r * pitch, r * pitch + before, t)
            clear(own, r * pitch + behind, (r + 1) * pitch, t)
    if t.has_channels_last:
        for r in range(begin, end):
            row, into = x[depth, top + r], held[r * pitch * t.size :]
            if count == 1:
                for i in range(before, behind):
                    put(into, i, channels_at(row[left + i], first * t.brought, t), t)
            else:
                for i in range(before, behind):
                    pixel, at = row[left + i], i
                    for line in range(first, first + count):
                        put(into, at, channels_at(pixel, line * t.brought, t), t)
                        at += apart
    else:
        for line in range(count):
            c0, base = (first + line) * t.brought, line * apart
            if t.is_dense and begin < end:
                start = base + begin * pitch + before
                span = (top + begin) * width, (top + end) * width
                bring_pixels(x[:, depth, 0], held, near, c0, span, start, (width, pitch), t)
            elif not t.is_dense:
                for r in range(begin, end):
                    start, span = base + r * pitch + before, (left + before, left + behind)
                    plane = x[:, depth, top + r]
                    bring_pixels(plane, held, near, c0, span, start, (width, pitch), t)


def clear(held: Any, begin: Any, end: Any, t: Any) -> None:
    """Zeros for some pixels."""
    for k in range(begin * t.size, end * t.size, t.packing.line):
        cp.store(held, k, cp.Line[t.packing.dtype, t.packing.line](0), whole=True)


def channels_at(pixel: Any, c0: Any, t: Any) -> Any:
    """The channels of a pixel that a line reads."""
    v = cp.load(pixel, c0, line=t.packing.line, fill=None if t.is_whole else 0)
    return cp.Line[t.packing.dtype, t.packing.line](v)


def put(held: Any, pixel: Any, v: Any, t: Any) -> None:
    """What the channels of a pixel are for the filters."""
    p = t.packing
    for c in cp.unroll(range(p.depth)):
        lanes = channels_of(p.line, t.filters, p.depth, c)
        seen = v if t.filters == p.depth == 1 else v[lanes]
        cp.store(held, pixel * t.size + c * p.line, seen, whole=True)


def bring_pixels(
    planes: Any, held: Any, near: Any, c0: Any, span: Any, start: Any, row: Any, t: Any
) -> None:
    """Pixels of `planes[channel, pixel]`, turned square by square; the first is put at `start`, and
    `row` is how many of them a row has, and has room for."""
    p, (width, pitch), (begin, end) = t.packing, row, span
    column, at = begin % width if t.is_dense else 0, start
    last = planes.shape[0] - 1
    for u in range(begin, end, p.line):
        # a bound of run time, so that rows are not unrolled, which takes long to compile
        for k in range(min(t.brought, planes.shape[0] - c0)):
            v = cp.load(planes[min(c0 + k, last)], u, line=p.line)
            cp.store(near[k], 0, cp.Line[p.dtype, p.line](v), whole=True)
        lines = tuple(cp.load(near[k], 0, line=p.line, fill=None) for k in range(p.line))
        found = transposed(lines)
        for lane in cp.unroll(range(p.line)):
            if u + lane < end:
                put(held, at, found[lane], t)
                at += 1
                if t.is_dense:
                    column += 1
                    if column == width:
                        column = 0
                        at += pitch - width


def multiplied(
    held: Any, weights: Any, start: Any, seen: Any, depth: Any, pitch: Any, window: Any, t: Any
) -> Any:
    """The sums of a tile whose first window begins here, added to `start`. `seen`: which rows of
    the window see the array, `depth`: pixels from one depth to the next."""
    p, step, apart = t.packing, window.stride[2], window.dilation[2]
    found = cp.local(t.pixels, cp.Line[p.dtype, p.line])
    for k in cp.unroll(range(t.pixels)):
        found[k] = start
    for a in range(window.kernel[0]):
        for b in range(seen[0], seen[1]):
            row = held[(a * depth + b * window.dilation[1] * pitch) * t.size :]
            number = (a * window.kernel[1] + b) * p.depth
            for c in range(p.depth):
                for first in cp.unroll(range(0, window.kernel[2], t.taps)):
                    count = min(t.taps, window.kernel[2] - first)
                    taps = tuple(
                        cp.load(
                            weights,
                            ((number + c) * window.kernel[2] + first + k) * p.line,
                            line=p.line,
                            fill=None,
                        )
                        for k in range(count)
                    )
                    for i, pairs in cp.unroll(seen_columns(t.pixels, count, step, apart)):
                        at = (first * apart + i) * t.size + c * p.line
                        v = cp.load(row, at, line=p.line, fill=None)
                        for pixel, tap in cp.unroll(pairs):
                            found[pixel] = found[pixel] + v * taps[tap]
    return found


def seen_columns(
    pixels: int, taps: int, stride: int, dilation: int
) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """The columns of the array that a tile sees, each with the pixels that see it and the taps
    through which they do."""
    seen: dict[int, list[tuple[int, int]]] = {}
    for pixel in range(pixels):
        for tap in range(taps):
            seen.setdefault(pixel * stride + tap * dilation, []).append((pixel, tap))
    return tuple((column, tuple(seen[column])) for column in sorted(seen))


def put_pixels(
    slot: Any, result: Any, place: Any, width: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """Store the sums of `width` pixels as channels of pixels."""
    n, z, y, i, f0, count = place
    for r in range(width):
        v = cp.load(slot[r], 0, line=t.packing.line, fill=None)
        if epilogue is not None:
            v = applied_along(epilogue, v, (n, f0, z, y, i + r), 1, extras)
        put_line(result[z, y, i + r], f0, v, count, t)


def put_line(pixel: Any, f0: Any, v: Any, count: Any, t: Any) -> None:
    """Store a line of filters of a pixel, of which there are `count`."""
    if t.step == t.packing.line:
        cp.store(pixel, f0, v)
    else:
        cp.store(pixel[: f0 + count], f0, v)


def put_planes(
    slot: Any, result: Any, place: Any, width: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """Store the sums of `width` pixels as pixels of channels, square by square."""
    n, z, y, i, f0, count = place
    for r in range(0, width, t.packing.line):
        lines = pixels_of(slot, r, 0, width, t.packing)
        at = n, z, y, i + r, f0, count
        finish_turned(lines, result, at, i + width, (), extras, epilogue, t)
