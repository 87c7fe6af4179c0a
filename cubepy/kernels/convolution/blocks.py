"""Convolutions on CPUs: pixels times packed weights, without a copy of all windows.

A cube makes a band of rows of the result for some filters. For some channels at a time it brings
the rows of the array that the band depends on into a near cache, with the zeros around them and
channels last, so that all windows of a row lie at one distance. Then a tile of pixels by lines of
filters stays in registers for the whole window, as in a product of matrices (Georganas et al.,
"Anatomy of high-performance deep learning convolutions on SIMD architectures", 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.matmul.blocks import transposed
from cubepy.record import dataclass

SHORT_ROW = 7
"""Pixels of tiles of which the zeros beside the array are a share that counts."""


@dataclass(frozen=True, slots=True)
class Bands:
    """How a convolution is divided.

    A tile has `pixels` pixels; one that `wraps` goes on in the next row. A cube makes `band` rows
    of `strip` pixels with `panels` panels of weights; it has room for `held` elements of the array,
    and for the `sums` of so many pixels. `has_whole_rows`: a part has all channels, and a row of
    the array is dense with channels last. `has_ends`: the last line of a group's filters reaches
    into the next group's. Weights are prefetched `ahead` lines of a panel, and rows that are turned
    `fetched` elements ahead.

    A kernel is compiled for `compiled`, without what depends on the batch and the number of cores:
    `band`, `strip` and `panels` are arguments.
    """

    packing: Packing
    pixels: int
    band: int
    strip: int
    panels: int
    held: int
    sums: int
    has_channels_last: bool
    puts_channels_last: bool
    has_whole_rows: bool
    wraps: bool
    has_ends: bool
    ahead: int
    fetched: int = 0

    @property
    def compiled(self) -> Bands:
        """What a kernel is compiled for."""
        return replace(self, band=0, strip=0, panels=0)


@cp.cube
def convolve_bands(
    x: cp.Tensor,
    panels: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    groups: int,
    band: int,
    strip: int,
    panels_each: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Bands],
) -> None:
    """A cube for each `band` of rows of a `strip` of columns by `panels_each` panels of filters.

    `x` is [n, depth, row, column, channel] where it has channels last, else [n, channel, depth,
    row, column]; `out` likewise. Whole rows are one axis of columns and channels.
    """
    p = t.packing
    groups, band, strip, panels_each = (max(1, n) for n in (groups, band, strip, panels_each))
    filters, results = out_extents(out, t)
    channels = p.depth if t.has_whole_rows else x.shape[4 if t.has_channels_last else 1] // groups
    group_filters = filters // groups
    per_group = (group_filters + p.step - 1) // p.step
    shares = (per_group + panels_each - 1) // panels_each
    share, (n, z, y0, x0) = place_of_cube(groups * shares, results, band, strip)
    group, first = share // shares, share % shares * panels_each
    count, rows = min(panels_each, per_group - first), min(band, results[1] - y0)
    wide = strip if t.wraps else (strip + t.pixels - 1) // t.pixels * t.pixels
    held = cp.shared(t.held + p.line * (p.depth + 1), p.pixels)
    near = cp.shared((p.line, p.line), p.pixels)
    sums = cp.shared((t.sums, p.step), p.dtype)
    pitch = (wide - 1) * window.stride[2] + window.spans[2]
    parts = (channels + p.depth - 1) // p.depth
    apart = (
        (band * wide + t.pixels - 1) // t.pixels * t.pixels if parts * window.kernel[0] > 1 else 0
    )
    taps = window.kernel[1] * window.kernel[2] * p.depth * p.step
    source = x[n]
    for part in range(parts):
        for a in range(window.kernel[0]):
            depth = z * window.stride[0] + a * window.dilation[0] - window.before[0]
            begins, ends = part + a == 0, part == parts - 1 and a == window.kernel[0] - 1
            own = group * channels + part * p.depth, (group + 1) * channels
            corner = depth, y0 * window.stride[1], x0 * window.stride[2]
            bring(source, held, near, corner, rows, own, pitch, window, t)
            for panel in range(count):
                number = (group * per_group + first + panel) * parts + part
                at = (number * window.kernel[0] + a) * taps
                zero = zero_products(panels, at, parts * window.kernel[0] * taps, begins, p)
                for q in range(0, rows * wide, t.pixels):
                    starts = places(q, rows * wide, wide, pitch, window, t)
                    seen = seen_from(q, y0, rows, wide, x, strip >= results[2], window, t)
                    found = multiplied(held, panels, at, starts, seen, pitch, window, t)
                    keep(found, sums[panel * apart + q :], begins, zero, t)
                if ends:
                    f0 = (first + panel) * p.step
                    own_filters = min(p.step, group_filters - f0)
                    for y in range(rows):
                        place = n, z, y0 + y, x0, group * group_filters + f0, own_filters
                        row = sums[panel * apart + y * wide :]
                        result = filters_before(out[n], (group + 1) * group_filters, t)
                        width = min(strip, results[2] - x0)
                        finish(row, result, place, width, biases, extras, epilogue, t)


def place_of_cube(shares: Any, results: Any, band: Any, strip: Any) -> Any:
    """The share of the filters of a cube, and its image, depth, and first row and column."""
    bands, strips = (results[1] + band - 1) // band, (results[2] + strip - 1) // strip
    share, rest = cp.CUBE_POS % shares, cp.CUBE_POS // shares
    y0, rest = rest % bands * band, rest // bands
    x0, rest = rest % strips * strip, rest // strips
    return share, (rest // results[0], rest % results[0], y0, x0)


def filters_before(result: Any, end: Any, t: Any) -> Any:
    """The filters up to the end of a group, where its last line would reach into the next one."""
    return result[:, :, :, :end] if t.has_ends and t.puts_channels_last else result


def out_extents(out: Any, t: Any) -> Any:
    """Filters, and depth, rows and columns of the result."""
    if t.puts_channels_last:
        return out.shape[4], (out.shape[1], out.shape[2], out.shape[3])
    return out.shape[1], (out.shape[2], out.shape[3], out.shape[4])


def bring(
    x: Any,
    held: Any,
    near: Any,
    corner: Any,
    rows: Any,
    own: Any,
    pitch: Any,
    window: Any,
    t: Any,
) -> None:
    """A part of the channels of the rows that a band depends on, channels last, with zeros around.

    `corner`: the depth, and the row and column of the padded array that the band begins at. `own`:
    the first of these channels, and the first one behind those of the group; for what a part lacks
    stand zeros.
    """
    depth, top, left = corner
    height = x.shape[1] if t.has_channels_last else x.shape[2]
    deep = x.shape[0] if t.has_channels_last else x.shape[1]
    inside = depth >= 0 and depth < deep
    for r in range((rows - 1) * window.stride[1] + window.spans[1]):
        y, at = top + r - window.before[1], r * pitch * t.packing.depth
        if inside and y >= 0 and y < height:
            if t.has_channels_last:
                bring_pixels(x[depth, y], held, at, own, left, pitch, window, t)
            else:
                bring_rows(x[:, depth, y], held, near, at, own, left, pitch, window, t)
        else:
            clear(held, at, pitch * t.packing.depth, t)


def clear(held: Any, at: Any, count: Any, t: Any) -> None:
    """Zeros, up to a line more than asked for."""
    p = t.packing
    for k in range(0, count, p.line):
        cp.store(held, at + k, pixels_as(cp.Line[p.factors, p.line](0), p), whole=True)


def pixels_as(v: Any, p: Any) -> Any:
    """Elements of the array as they are multiplied."""
    v = cp.Line[p.factors, p.line](v)
    return cp.bitcast(cp.bitcast(v, cp.u8) ^ 128, p.pixels) if p.is_moved else v


def zero_products(panels: Any, at: Any, length: Any, begins: Any, p: Any) -> Any:
    """The products of weights of a panel, from `at` on, by zeros that are brought: they are not 0
    where bytes are moved."""
    found = cp.local(p.lines, cp.Line[p.dtype, p.line], fill=0)
    if p.is_moved and begins:
        moved = cp.bitcast(cp.Line[cp.u8, p.word * p.line](128), p.pixels)
        size = p.word * p.line
        for k in range(0, length, p.word * p.step):
            for c in cp.unroll(range(p.lines)):
                line = cp.load(panels, at + k + c * size, line=size, fill=None)
                found[c] = cp.dot(moved, line, found[c])
    return found


def bring_pixels(
    row: Any, held: Any, at: Any, own: Any, left: Any, pitch: Any, window: Any, t: Any
) -> None:
    """One row that has channels last; what a line has too much, the next pixel overwrites."""
    p, width, first = t.packing, row.shape[0], left - window.before[2]
    if t.has_whole_rows:
        for k in range(0, pitch * p.depth, p.line):
            v = cp.load(row, first * p.depth + k, line=p.line)
            cp.store(held, at + k, pixels_as(v, p), whole=True)
        return
    for i in range(pitch):
        column, to = first + i, at + i * p.depth
        if column >= 0 and column < width:
            pixel = row[column, : own[1]]
            for c in range(0, p.depth, p.line):
                v = cp.load(pixel, own[0] + c, line=p.line)
                cp.store(held, to + c, pixels_as(v, p), whole=True)
        else:
            clear(held, to, p.depth, t)


def bring_rows(
    x: Any, held: Any, near: Any, at: Any, own: Any, left: Any, pitch: Any, window: Any, t: Any
) -> None:
    """One row of each channel, turned square by square.

    The last channels of some pixels come first: what a pixel has too much, the next one overwrites,
    and what a row has too much, the next row.
    """
    p, first = t.packing, left - window.before[2]
    squares = (p.depth + p.line - 1) // p.line
    for i in range(0, pitch, p.line):
        for square in range(min(squares, x.shape[0] + squares)):
            c = (squares - 1 - square) * p.line
            channel = own[0] + c
            if p.depth >= p.line and channel + p.line <= own[1]:
                for k in range(p.line):
                    bring_line(x[channel + k], near[k], first + i, t)
            else:
                # a bound of run time, so that rows are not unrolled, which takes long to compile
                for k in range(min(p.line, p.depth, x.shape[0] + p.line)):
                    row = x[min(channel + k, own[1] - 1)]
                    there = x.shape[1] if channel + k < own[1] else 0
                    bring_line(row[:there], near[k], first + i, t)
            put_turned(near, held, at + i * p.depth + c, t)


def bring_line(row: Any, near: Any, i: Any, t: Any) -> None:
    """A line of a channel; what lies ahead is fetched."""
    p = t.packing
    if t.fetched:
        cp.prefetch(row, i + t.fetched)
    cp.store(near, 0, pixels_as(cp.load(row, i, line=p.line), p), whole=True)


def put_turned(near: Any, held: Any, at: Any, t: Any) -> None:
    """A line of channels for each pixel of a square."""
    p = t.packing
    zero, count = cp.Line[p.pixels, p.line](0), min(p.line, p.depth)
    lines = tuple(cp.load(near[k], 0, line=p.line, fill=None) for k in range(count))
    found = transposed(lines + tuple(zero for _ in range(p.line - count)))
    for k in cp.unroll(range(p.line)):
        cp.store(held, at + k * p.depth, found[k], whole=True)


def places(q: Any, end: Any, wide: Any, pitch: Any, window: Any, t: Any) -> Any:
    """Where the windows of the pixels of a tile begin in the rows that were brought.

    Pixels are counted through the rows of a band, each `wide`; those that a tile has beyond the
    `end` are the last one again.
    """
    across, down = window.stride[2] * t.packing.depth, window.stride[1] * pitch * t.packing.depth
    starts = cp.local(t.pixels, cp.i64)
    column = q % wide
    start = q // wide * down + column * across
    for r in cp.unroll(range(t.pixels)):
        starts[r] = start
        if not t.wraps or q + r + 1 < end:
            start += across
            if t.wraps:
                column += 1
                if column == wide:
                    column = 0
                    start += down - wide * across
    return starts


def seen_from(
    q: Any, y0: Any, rows: Any, wide: Any, x: Any, is_whole: Any, window: Any, t: Any
) -> Any:
    """The rows of the window that a tile sees the array through: the first, the one behind the
    last; whether the tile begins a row of the result, and whether it ends one, of rows that are
    whole."""
    height = x.shape[2 if t.has_channels_last else 3]
    last = min(q + t.pixels, rows * wide) - 1
    begin, end = 0, window.kernel[1]
    if not t.packing.is_moved:
        begin, end = rows_seen(y0 + q // wide, y0 + last // wide, height, window)
    return begin, end, is_whole and q % wide == 0, is_whole and (q + t.pixels) % wide == 0


def rows_seen(first: Any, last: Any, height: Any, window: Any) -> Any:
    """The rows of the window that see the array anywhere from a row of the result to a `last` one:
    the first of them, and the one behind the last."""
    step, before, apart = window.stride[1], window.before[1], window.dilation[1]
    begin = (before - last * step + apart - 1) // apart
    end = (before - first * step + height + apart - 1) // apart
    return max(0, begin), min(window.kernel[1], end)


def multiplied(
    held: Any, panels: Any, at: Any, starts: Any, seen: Any, pitch: Any, window: Any, t: Any
) -> Any:
    """The products of some pixels and one panel, over what they see of the window: `seen_from`."""
    p = t.packing
    found = cp.local((t.pixels, p.step // p.wide), cp.Line[p.dtype, p.wide], fill=0)
    runs = 1 if window.dilation[2] == 1 and not skips_columns(window, t) else window.kernel[2]
    length = window.kernel[2] * p.depth // runs
    for b in range(seen[0], seen[1]):
        line = b * window.dilation[1] * pitch
        for run in range(runs):
            pixels = held[(line + run * window.dilation[2]) * p.depth :]
            panel = panels[at + (b * runs + run) * (length * p.step) :]
            if skips_columns(window, t) and run == 0 and seen[2]:
                add_run(found, pixels, starts, panel, length, (window.before[2], t.pixels), t)
            elif skips_columns(window, t) and run == runs - 1 and seen[3]:
                add_run(found, pixels, starts, panel, length, (0, t.pixels - window.after[2]), t)
            else:
                add_run(found, pixels, starts, panel, length, (0, t.pixels), t)
    return found


def skips_columns(window: Any, t: Any) -> bool:
    """Whether the first and the last tap of a row are left out where they meet the zeros beside it:
    a tenth of the products of 3x3 windows on rows of 7, which is worth two more copies of the
    loop."""
    least, most = min(window.before[2], window.after[2]), max(window.before[2], window.after[2])
    is_short = t.pixels <= SHORT_ROW and not t.wraps and not t.packing.is_moved
    return is_short and 0 < least <= most < t.pixels and window.stride[2] == 1


def add_run(
    found: Any, pixels: Any, starts: Any, panel: Any, length: Any, among: Any, t: Any
) -> None:
    """Add the products along one run of elements that lie densely, for the pixels `among`."""
    p = t.packing
    word, size, parts = p.word, p.word * p.step, p.step // p.wide
    same = tuple(e for _ in range(p.line) for e in range(p.word))
    for k in range(length // word):
        lines = tuple(
            cp.load(panel, k * size + c * word * p.wide, line=word * p.wide, fill=None)
            for c in range(parts)
        )
        if t.ahead:
            for c in cp.unroll(range(p.lines)):
                cp.prefetch(panel, (k + t.ahead) * size + c * word * p.line)
        for r in cp.unroll(range(among[0], among[1])):
            if word == 1:
                found[r, 0] = found[r, 0] + lines[0] * pixels[starts[r] + k]
            else:
                pair = cp.load(pixels, starts[r] + k * word, line=word, fill=None)[same]
                for c in cp.unroll(range(parts)):
                    found[r, c] = cp.dot(pair, lines[c], found[r, c])


def keep(found: Any, slot: Any, begins: Any, zero: Any, t: Any) -> None:
    """Put a tile into memory, without what `zero_products` are, or add it to what is there."""
    if begins:  # the branches are functions, so that names of one are none of the other
        put_tile(found, slot, zero, t)
    else:
        add_tile(found, slot, t)


def put_tile(found: Any, slot: Any, zero: Any, t: Any) -> None:
    """The first part of a tile."""
    p = t.packing
    for r in cp.unroll(range(t.pixels)):
        for c in cp.unroll(range(p.step // p.wide)):
            v = found[r, c] - zero[c] if p.is_moved else found[r, c]
            cp.store(slot[r], c * p.wide, v, whole=True)


def add_tile(found: Any, slot: Any, t: Any) -> None:
    """A further part of a tile."""
    p = t.packing
    for r in cp.unroll(range(t.pixels)):
        for c in cp.unroll(range(p.step // p.wide)):
            v = cp.load(slot[r], c * p.wide, line=p.wide, fill=None) + found[r, c]
            cp.store(slot[r], c * p.wide, v, whole=True)


def finish(
    slot: Any,
    result: Any,
    place: Any,
    width: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Store the sums of `width` pixels of a row, as channels of pixels or as pixels of channels."""
    n, z, y, i, f0, count = place
    p = t.packing
    if t.puts_channels_last:
        row = result[z, y]
        for r in range(width):
            for c in range((count + p.line - 1) // p.line):
                f = f0 + c * p.line
                v = line_of(slot, r, c, p)
                if len(biases):
                    v = v + cp.load(biases[0], f, line=p.line)
                if epilogue is not None:
                    v = applied_along(epilogue, v, (n, f, z, y, i + r), 1, extras)
                cp.store(row[i + r], f, v)
    else:
        for c in range((count + p.line - 1) // p.line):
            for r in range(0, width, p.line):
                lines = pixels_of(slot, r, c, width, p)
                at = n, z, y, i + r, f0 + c * p.line, count - c * p.line
                finish_turned(lines, result, at, i + width, biases, extras, epilogue, t)


def pixels_of(slot: Any, r: Any, c: Any, width: Any, p: Any) -> Any:
    """A line of filters for each pixel of a square; for those behind the row the last one again."""
    return tuple(line_of(slot, min(r + k, width - 1), c, p) for k in range(p.line))


def line_of(slot: Any, r: Any, c: Any, p: Any) -> Any:
    """A line of sums."""
    return cp.load(slot[r], c * p.line, line=p.line, fill=None)


def finish_turned(
    lines: Any, result: Any, place: Any, end: Any, biases: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """A line of filters for each pixel as a line of pixels for each filter; `end`: of the row."""
    n, z, y, i, f0, count = place
    p = t.packing
    found, turned = transposed(lines), cp.local(p.line, cp.Line[p.dtype, p.line])
    for lane in cp.unroll(range(p.line)):  # not `k`, whose type would be known in a second trace
        turned[lane] = found[lane]
    for k in range(min(p.line, count)):
        v = turned[k]
        if len(biases):
            v = v + biases[0][f0 + k]
        if epilogue is not None:
            v = applied_along(epilogue, v, (n, f0 + k, z, y, i), 4, extras)
        cp.store(result[f0 + k, z, y][:end], i, v)
