"""Convolutions on GPUs in ordinary arithmetic, as products of matrices that are never in memory.

Rows of the product are pixels of all images, columns filters of a group, and k runs through the
channels of one tap after another. A step along k is one tap and `depth` channels, so a unit, which
copies elements of one pixel alone, finds once a step whether the tap lies in the array and where.
Both factors pass through shared memory, and each unit keeps a tile of sums in registers, as in
products of matrices. Where tiles are too few for all multiprocessors, k is cut into parts, whose
sums another kernel joins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass

LINE_BYTES = 16
"""Bytes of a line in shared memory."""
STAGES = 2
"""Steps in shared memory: one that is multiplied, and the next."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How pixels and filters are divided.

    A cube is `down` by `across` units, each of which makes `rows` by `columns` sums in steps of
    `depth` channels; `lanes` units that follow each other lie side by side. `is_whole`: the
    channels of a group are whole steps. `has_channels_last`: channels lie densely in the array,
    `puts_channels_last`: in the result, of which `line` elements are stored at once.
    """

    down: int
    across: int
    lanes: int
    rows: int
    columns: int
    depth: int
    sums: DType
    is_whole: bool
    has_channels_last: bool
    puts_channels_last: bool
    line: int

    @property
    def height(self) -> int:
        """Pixels of a cube."""
        return self.down * self.rows

    @property
    def width(self) -> int:
        """Filters of a cube."""
        return self.across * self.columns

    @property
    def units(self) -> int:
        """Units of a cube: at least one for each pixel."""
        return self.down * self.across

    @property
    def sharers(self) -> int:
        """Units that copy channels of the same pixel."""
        return self.units // self.height

    @property
    def row_line(self) -> int:
        """Neighbouring pixels of a unit."""
        return min(LINE_BYTES // self.sums.itemsize, self.rows)

    @property
    def column_line(self) -> int:
        """Neighbouring filters of a unit."""
        return min(LINE_BYTES // self.sums.itemsize, self.columns)

    @property
    def copy(self) -> int:
        """Channels of a pixel that are copied at once."""
        most = LINE_BYTES // self.sums.itemsize if self.has_channels_last else 1
        return min(most, self.depth // self.sharers)

    @property
    def pitch(self) -> int:
        """Elements of a row of pixels in shared memory: longer than the row where columns of it are
        stored at a time, so that units beside each other use different banks."""
        return self.height + (LINE_BYTES // self.sums.itemsize if self.copy > 1 else 0)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        return STAGES * self.depth * (self.pitch + self.width) * self.sums.itemsize


@cp.cube
def convolve_by_tiles(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    filters: int,
    share: int,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Tile],
) -> None:
    """A cube for each tile. `x` is [n, depth, row, column, channel], `weight` [group, tap, channel,
    filter] with whole tiles of filters, of which a group has `filters`.

    `out` is [n, depth, row, column, filter] where it has channels last, else [n, filter, ...]; with
    another axis in front it takes parts of the sums, each of `share` steps.
    """
    shares = cp.u32(weight.shape[3]) // t.width
    beside = shares * cp.u32(weight.shape[0])
    row, column = cp.u32(cp.CUBE_POS) // beside, cp.u32(cp.CUBE_POS) % beside
    steps = window.taps * ((cp.i32(weight.shape[2]) + t.depth - 1) // t.depth)
    if out.rank > 5:
        parts = cp.u32(out.shape[0])
        part, row = cp.i32(row % parts), row // parts
        into, span = out[part], (part * share, min(part * share + share, steps))
    else:
        into, span = out, (0, steps)
    p0, f0 = cp.i32(row) * t.height, cp.i32(column % shares) * t.width
    group = cp.i32(column // shares)
    found = cp.local((t.rows, t.columns // t.column_line), cp.Line[t.sums, t.column_line], fill=0)
    i, j = place_of_unit(t)
    extents = results_of(into, t)
    add_products(x, weight[group], (p0, f0, group), span, extents, (i, j), found, window, t)
    store_results(
        found, into, (p0 + i, f0 + j, group * filters), filters, biases, extras, epilogue, t
    )


def place_of_unit(t: Any) -> Any:
    """The first pixel and filter of a unit in its tile; blocks of 32 units are as square as can
    be, so that few lines serve all of them."""
    high, block, lane = 32 // t.lanes, cp.UNIT_POS // 32, cp.UNIT_POS % 32
    blocks = t.across // t.lanes
    i = block // blocks * (high * t.rows) + lane // t.lanes * t.row_line
    j = block % blocks * (t.lanes * t.columns) + lane % t.lanes * t.column_line
    return i, j


def results_of(out: Any, t: Any) -> Any:
    """The extents of pixels, [n, depth, row, column], as numbers that are divided by fast."""
    n, a, b, c = out.shape[:4] if t.puts_channels_last else (out.shape[0], *out.shape[2:])
    return cp.u32(n), cp.u32(a), cp.u32(b), cp.u32(c)


def pixel_at(p: Any, extents: Any) -> Any:
    """The image, depth, row and column of a pixel."""
    n, z, y, i = unravelled(cp.u32(p), extents)
    return cp.i32(n), cp.i32(z), cp.i32(y), cp.i32(i)


# Steps along k


def add_products(
    x: Any,
    weight: Any,
    corner: Any,
    span: Any,
    extents: Any,
    at: Any,
    found: Any,
    window: Any,
    t: Any,
) -> None:
    """Go through a span of steps: the next one comes to registers while one is multiplied."""
    p0, f0, group = corner
    channels = cp.i32(weight.shape[1])
    pixels = cp.shared((STAGES, t.depth, t.pitch), t.sums)
    factors = cp.shared((STAGES, t.depth, t.width), t.sums)
    pixel, share = pixel_of_unit(t)
    corners = corner_of(p0 + pixel, extents, window)
    lines = cp.local(t.depth // (t.sharers * t.copy), cp.Line[x.dtype, t.copy])
    columns = cp.local(count_columns(t), cp.Line[weight.dtype, t.column_line])
    parts = (channels + t.depth - 1) // t.depth
    tap, part = cp.u32(span[0] // parts), cp.i32(span[0] % parts)
    fetch_pixels(x, corners, tap, part, group, channels, share, lines, window, t)
    fetch_filters(weight[tap], part, f0, columns, t)
    put_pixels(lines, pixels[0], pixel, share, t)
    put_filters(columns, factors[0], t)
    cp.sync_cube()
    steps = span[1] - span[0]
    for step in range(steps):
        part = part + 1
        if part == parts:
            part = cp.i32(0)
            tap = tap + 1
        stage = step % STAGES
        if step + 1 < steps:
            fetch_pixels(x, corners, tap, part, group, channels, share, lines, window, t)
            fetch_filters(weight[tap], part, f0, columns, t)
        multiply_step(pixels[stage], factors[stage], at, found, t)
        if step + 1 < steps:
            put_pixels(lines, pixels[1 - stage], pixel, share, t)
            put_filters(columns, factors[1 - stage], t)
        cp.sync_cube()


def multiply_step(pixels: Any, factors: Any, at: Any, found: Any, t: Any) -> None:
    """Add the products of a step to the sums."""
    rows = cp.local(t.rows // t.row_line, cp.Line[t.sums, t.row_line])
    columns = cp.local(t.columns // t.column_line, cp.Line[t.sums, t.column_line])
    last = t.columns // t.column_line - 1
    for k in cp.unroll(range(t.depth)):
        for g in cp.unroll(range(t.rows // t.row_line)):
            rows[g] = cp.load(pixels[k], at[0] + row_of(g * t.row_line, t), t.row_line, fill=None)
        for g in cp.unroll(range(last + 1)):
            first = at[1] + column_of(g, t)
            columns[g] = cp.load(factors[k], first, line=t.column_line, fill=None)
        for r in cp.unroll(range(t.rows)):
            factor = rows[r // t.row_line][r % t.row_line]
            for e in cp.unroll(range(last + 1)):
                c = e if r % 2 == 0 else last - e
                found[r, c] = found[r, c] + columns[c] * factor


def row_of(r: Any, t: Any) -> Any:
    """How far the r-th pixel of a unit lies behind its first."""
    return r // t.row_line * (32 // t.lanes * t.row_line) + r % t.row_line


def column_of(g: Any, t: Any) -> Any:
    """How far the g-th line of filters of a unit lies behind its first."""
    return g * (t.lanes * t.column_line)


# A unit's part of the copies


def pixel_of_unit(t: Any) -> Any:
    """The pixel in a tile of which a unit copies channels, and which share of them: units that
    follow each other read what follows in memory."""
    if t.has_channels_last:
        return cp.UNIT_POS // t.sharers, cp.UNIT_POS % t.sharers
    return cp.UNIT_POS % t.height, cp.UNIT_POS // t.height


def corner_of(p: Any, extents: Any, window: Any) -> Any:
    """The image of a pixel, and where its window begins; another stands for one that is not."""
    n, z, y, i = pixel_at(min(p, cp.i32(product(extents)) - 1), extents)
    depth = z * window.stride[0] - window.before[0]
    row = y * window.stride[1] - window.before[1]
    return n, depth, row, i * window.stride[2] - window.before[2]


def fetch_pixels(
    x: Any,
    corner: Any,
    tap: Any,
    part: Any,
    group: Any,
    channels: Any,
    share: Any,
    lines: Any,
    window: Any,
    t: Any,
) -> None:
    """Bring a unit's channels of a step to registers; zeros stand for what is not there. `part`:
    how many steps of the tap are before this one."""
    n, depth, row, column = corner
    beside = window.kernel[1] * window.kernel[2]
    depth = depth + cp.i32(tap // beside) * window.dilation[0]
    row = row + cp.i32(tap % beside // window.kernel[2]) * window.dilation[1]
    column = column + cp.i32(tap % window.kernel[2]) * window.dilation[2]
    if is_inside(x, depth, row, column, window):
        source = x[n, depth, row, column]
        if t.is_whole:  # lines begin at multiples of the step, as compilers see
            first = (group * (channels // t.depth) + part) * t.depth
            for e in cp.unroll(range(lines.size)):
                c = first + channel_of(e, share, t)
                lines[e] = cp.load(source, c, line=t.copy, fill=None)
        else:
            seen = source[group * channels : (group + 1) * channels]
            for e in cp.unroll(range(lines.size)):
                c = part * t.depth + channel_of(e, share, t)
                lines[e] = cp.load(seen, c, line=t.copy, fill=0)
    else:
        for e in cp.unroll(range(lines.size)):
            lines[e] = cp.Line[x.dtype, t.copy](0)


def channel_of(e: Any, share: Any, t: Any) -> Any:
    """The first channel in a step of the e-th line of a unit."""
    return (e * t.sharers + share) * t.copy


def is_inside(x: Any, depth: Any, row: Any, column: Any, window: Any) -> Any:
    """Whether a tap lies in the array; `x` is [n, depth, row, column, channel]."""
    rows = row >= 0 and row < x.shape[2] and column >= 0 and column < x.shape[3]
    return rows and depth >= 0 and depth < x.shape[1]


def put_pixels(lines: Any, memory: Any, pixel: Any, share: Any, t: Any) -> None:
    """Store them as the type that is multiplied."""
    for e in cp.unroll(range(lines.size)):
        v = cp.Line[t.sums, t.copy](lines[e])
        for k in cp.unroll(range(t.copy)):
            memory[channel_of(e, share, t) + k, pixel] = v[k]


def count_columns(t: Any) -> Any:
    """Lines of filters of a step that a unit copies."""
    return -(-t.depth * t.width // (t.column_line * t.units))


def place_of_columns(e: Any, t: Any) -> Any:
    """The channel and the first filter of a unit's e-th line; the channel may be behind a step."""
    lines = t.width // t.column_line
    at = e * t.units + cp.UNIT_POS
    return at // lines, at % lines * t.column_line


def fetch_filters(weight: Any, part: Any, f0: Any, columns: Any, t: Any) -> None:
    """Bring a unit's lines of filters to registers; zeros stand for channels that are not there, in
    whose place there may be an infinity."""
    for e in cp.unroll(range(columns.size)):
        c, f = place_of_columns(e, t)
        channel = part * t.depth + c
        if is_step(c, t) and (t.is_whole or channel < weight.shape[0]):
            columns[e] = cp.load(weight[channel], f0 + f, line=t.column_line, fill=None)
        else:
            columns[e] = cp.Line[weight.dtype, t.column_line](0)


def put_filters(columns: Any, memory: Any, t: Any) -> None:
    """Store them as the type that is multiplied."""
    for e in cp.unroll(range(columns.size)):
        c, f = place_of_columns(e, t)
        if is_step(c, t):
            cp.store(memory[c], f, cp.Line[t.sums, t.column_line](columns[e]), whole=True)


def is_step(c: Any, t: Any) -> Any:
    """Whether a channel belongs to the step."""
    if t.depth * t.width % (t.column_line * t.units) == 0:
        return True
    return c < t.depth


# Results


def store_results(
    found: Any,
    out: Any,
    first: Any,
    filters: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Store what bias and epilogue make of a unit's sums, in lines along filters or along pixels; a
    loop goes through them where there is an epilogue.

    They are multiplied by a 1 that compilers do not see, as in products of matrices: else sums lie
    in registers that a line is stored from, in the banks of their factors.
    """
    along = t.columns if t.puts_channels_last else t.rows
    kept = cp.local((t.rows * t.columns // along, along), t.sums)
    one = t.sums(min(out.shape[0], 1))
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            v = found[r, c // t.column_line][c % t.column_line] * one
            if t.puts_channels_last:
                kept[r, c] = v
            else:
                kept[c, r] = v
    if epilogue is None:
        for r in cp.unroll(range(t.rows // row_step(t))):
            store_row(kept, out, first, r * row_step(t), filters, biases, extras, epilogue, t)
    else:
        for r in range(t.rows // row_step(t)):
            store_row(kept, out, first, r * row_step(t), filters, biases, extras, epilogue, t)


def row_step(t: Any) -> Any:
    """Pixels whose results are stored at once."""
    return 1 if t.puts_channels_last else t.line


def store_row(
    kept: Any,
    out: Any,
    first: Any,
    r: Any,
    filters: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """The results of all of a unit's filters from its pixel `r` on."""
    p, extents = first[0] + row_of(r, t), results_of(out, t)
    step = t.line if t.puts_channels_last else 1
    if p < cp.i32(product(extents)):
        n, z, y, i = pixel_at(p, extents)
        if epilogue is None:
            for c in cp.unroll(range(0, t.columns, step)):
                store_line(kept, out, (n, z, y, i), (r, c), first, filters, biases, extras, None, t)
        else:
            for c in range(0, t.columns, step):
                at = n, z, y, i
                store_line(kept, out, at, (r, c), first, filters, biases, extras, epilogue, t)


def store_line(
    kept: Any,
    out: Any,
    pixel: Any,
    at: Any,
    first: Any,
    filters: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """One line of results; `at`: the pixel and the filter, counted in the unit."""
    r, c = at
    inner = first[1] + column_of(c // t.column_line, t) + c % t.column_line
    if inner < filters:
        row, place = (r, c) if t.puts_channels_last else (c, r)
        v = cp.load(kept[row], place, line=t.line, fill=None)
        put_line(v, out, pixel, first[2] + inner, biases, extras, epilogue, t)


def put_line(
    v: Any, out: Any, pixel: Any, f: Any, biases: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """What bias and epilogue make of a line of sums, from a pixel and a filter on."""
    n, z, y, i = pixel
    if len(biases):
        v = v + cp.Line[t.sums, t.line](bias_at(biases[0], f, t))
    if epilogue is not None:
        axis = 1 if t.puts_channels_last else 4
        v = applied_along(epilogue, v, (n, f, z, y, i), axis, extras)
    if t.puts_channels_last:
        cp.store(out[n, z, y, i], f, v, whole=True)
    else:
        cp.store(out[n, f, z, y], i, v, whole=True)


def bias_at(bias: Any, f: Any, t: Any) -> Any:
    """The biases of a line of results."""
    if t.puts_channels_last:
        return cp.load(bias, f, line=t.line, fill=None)
    return bias[f]


@cp.cube
def join_parts(
    sums: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Tile],
) -> None:
    """A unit for each line of results, whose sums `sums` has in parts."""
    lines = out.shape[4] // t.line
    if product(out.shape[:4]) * lines > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS // lines, out.shape[:4])
        at = cp.ABSOLUTE_POS % lines * t.line
        v = cp.load(sums[(0, *where)], at, line=t.line, fill=None)
        for part in range(1, sums.shape[0]):
            v = v + cp.load(sums[(part, *where)], at, line=t.line, fill=None)
        if t.puts_channels_last:
            put_line(v, out, where, at, biases, extras, epilogue, t)
        else:
            n, f, z, y = where
            put_line(v, out, (n, z, y, at), f, biases, extras, epilogue, t)
