"""How convolutions are made: which kernel, and how it divides the work, by the target's caches."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, f32
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.convolution.blocks import Bands
from cubepy.kernels.convolution.dots import Dots
from cubepy.kernels.convolution.each import Each
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.planes import Planes
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.weight_gradient import Sums
from cubepy.kernels.convolution.weight_products import Products
from cubepy.kernels.convolution.winograd import TAPS, Basis, Squares
from cubepy.kernels.matmul.strategies import (
    even_part,
    has_dots,
    has_split_units,
    power_above,
    tile_extents,
)
from cubepy.targets import Target

WIDE_TILE = (14, 2)
"""Pixels, and lines of filters, of tiles where registers are many: rows of networks are multiples
of 7 or 14 pixels."""
CUBES = 4
"""Cubes for each core, of kernels whose cubes share nothing."""
MOVED, TURNED, READ = 0.5, 0.8, 4
"""Cycles in which a cube brings an element of the array, as it lies or turned, and a line of
weights (Zen 5)."""
ONE_PRODUCT = ("znver1", "znver4", "icelake-client", "tigerlake", "rocketlake", "cannonlake")
"""CPUs that multiply and add one line in a cycle, of 64 bytes or, Zen 1, 32; others two."""
UNEVEN = 0.1
"""How much of the work of a cube a core may wait for others."""
UNITS = 256
NAMED_TAPS = 64
"""Taps of a channel that kernels name, at most, of convolutions by lines."""
FEW_FILTERS, LONG_ROWS, MOST_STRIDE = 4, 4, 4
"""There: the most filters of a group, or channels, that are few; lines of a row from which on few
filters of many channels are made so; and the longest stride along rows."""
START = 5000
"""Cycles that a cube takes to start, roughly."""
FEW_BYTES = 4096
"""Of a cube of Winograd's form: what is not counted of its memory, as for alignment, at most."""
WORTH = 1.05
"""How much more work another form must have for Winograd's to be chosen unasked."""
TILE_START = 2
"""Squares that a tile has time for while another one starts."""
CHANGED = 4
"""Cycles for each position of a line of elements or products that changes its basis."""
FAR_SQUARES, FAR_READ = 2, 6
"""How many times the squares that the second cache holds a cube may make, and the cycles in which a
line of one comes from farther away."""
SQUARES = 7
"""Of what number squares of a row are multiples where a row is cut, so that tiles fill them."""
BROUGHT, RUN = 64, 256
"""The most channels that are brought at a time, so that arrays of many channels share a kernel;
more where windows have so few taps that less than `RUN` products would be added in registers."""
FEW_PIXELS = 1 << 18
"""Elements of weights from which on networks give them few pixels, 14x14 or 7x7."""
MANY_CHANNELS = 8
"""Channels from which on one more, which makes them pairs, does not matter."""
LONG = 64
"""Bytes of a line of a cache."""
AHEAD = 16
"""Lines of a panel that are prefetched ahead, where lines are as long as those of caches. Tiles of
shorter lines load as often as they multiply for each two products: there prefetches cost more than
they save (Zen 3: 12 % of a 3x3 window)."""
ROWS_AHEAD = 256
"""Bytes of a channel that are prefetched ahead, there: rows of many channels are brought side by
side, which no prefetcher of a processor follows."""
FEW_PLACES = 6
"""Pixels of a tile whose addresses leave registers for others, so that it may go on in the next row
of a band: none of them is made in vain, whatever the length of rows."""
POINTS = 112
"""Pixels of a row, where rows may be as long as one likes: long ones are turned in fewer lines than
many short ones, and a few of them share the work."""


def is_blocked(shape: tuple[int, ...], groups: int) -> bool:
    """Whether pixels are multiplied by lines of filters on CPUs; `shape`: of the weights."""
    filters, channels = shape[0] // groups, shape[1]
    return filters >= 2 and channels > 0


def stays_matrix(
    target: Target, shape: tuple[int, ...], groups: int, dtype: DType, sums: DType
) -> bool:
    """Whether weights are better multiplied as a matrix than in panels: those of windows of one
    element, but for large ones, which arrays of few pixels have, where products of matrices have
    the same instructions."""
    is_point = groups == 1 and all(n == 1 for n in shape[2:])
    has_others = dtype is not sums or (dtype is f32 and has_split_units(target))
    return is_point and (has_others or prod(shape) < FEW_PIXELS)


def goes_by_lines(target: Target, problem: Problem, x: Memory, out: Memory) -> bool:
    """Whether lines of results are made tap by tap from lines of the array: where filters are so
    few that lines of them would be empty; on CPUs."""
    p, last = problem, problem.has_channels_last or problem.puts_channels_last
    dense = all(m.strides[4] == m.dtype.itemsize or m.shape[4] == 1 for m in (x, out))
    if is_wide(target) or last or not dense or not p.group_channels:
        return False
    if p.window.taps > NAMED_TAPS or p.group_filters > FEW_FILTERS:
        return False
    columns, line = p.results[2], target.line_bytes // p.sums.itemsize
    is_wide_image = p.group_channels <= FEW_FILTERS or columns >= LONG_ROWS * line
    return p.groups > 1 or (columns > 1 and is_wide_image and _takes_lines(p))


def dots(target: Target, problem: Problem) -> Dots | None:
    """Dot products of runs, where few filters see pixels whose channels lie side by side."""
    p, w = problem, problem.window
    is_one = p.groups == 1 and p.filters <= FEW_FILTERS and w.dilation[2] == 1
    if is_wide(target) or not (is_one and p.has_dense_rows and p.group_channels):
        return None
    run = w.kernel[2] * p.channels
    line = max(1, target.line_bytes // p.sums.itemsize)
    band = p.results[1]
    while band > 1 and p.batch * p.results[0] * -(-p.results[1] // band) < CUBES * target.cores:
        band = -(-band // 2)
    return Dots(p.filters, p.channels, min(line, max(2, power_above(run))), band, p.sums)


def _takes_lines(problem: Problem) -> bool:
    """Whether what a line of results sees of a row is not much more than a line."""
    return problem.window.stride[2] <= MOST_STRIDE


def planes(target: Target, problem: Problem) -> Planes:
    """Rows of planes for each cube, and enough of them for all cores."""
    _, rows, columns = problem.results
    line = min(max(1, target.line_bytes // problem.sums.itemsize), power_above(columns + 1) // 2)
    if not _takes_lines(problem):
        line = 1
    count = problem.batch * problem.results[0] * problem.filters
    band = rows
    while band > 1 and count * -(-rows // band) < CUBES * target.cores:
        band = -(-band // 2)
    return Planes(line, band, problem.sums)


def each(problem: Problem) -> Each:
    """A unit for each result."""
    return Each(UNITS, problem.sums)


def packing(
    target: Target, filters: int, channels: int, groups: int, taps: int, dtype: DType, sums: DType
) -> Packing:
    """Panels of which a part fills at most a quarter of the second cache."""
    has_words = _fills_words(channels // groups, dtype) and has_dots(target, dtype)
    factors = dtype if has_words else sums
    word = sums.itemsize // factors.itemsize
    line = max(1, target.line_bytes // sums.itemsize)
    most = _tile(target)[1]
    lines = max(1, min(most, -(-(filters // groups) // line)))
    room = target.cache_bytes // 4 // (factors.itemsize * lines * line * taps)
    depth = part_of(channels // groups, min(room, max(BROUGHT, RUN // taps)), line)
    return Packing(lines, line, -(-max(1, depth) // word) * word, sums, factors)


def _fills_words(channels: int, dtype: DType) -> bool:
    """Whether words of several channels multiply more than they waste."""
    if dtype.bits == 8:
        return channels > 1
    return channels % 2 == 0 or channels >= MANY_CHANNELS


def part_of(channels: int, most: int, line: int) -> int:
    """Channels of a part: all, or whole lines where the last part has nearly as many, or parts
    that are as equal as can be."""
    if channels <= max(most, line):
        return channels
    lengths = range(max(line, most // 2 // line * line), max(most, line) + 1, line)
    found = min(lengths, key=lambda n: (-(-channels // n) * n, -n))
    waste = -(-channels // found) * found - channels
    return found if waste <= channels // 16 else even_part(channels, max(most, line))


def point_columns(target: Target, problem: Problem, p: Packing) -> int:
    """The number of pixels of a row that is nearest to `POINTS`, of those that divide the pixels of
    the result, where a row fits the cache's part for a band."""
    count, columns = prod(problem.results), problem.results[2]
    most = min(4 * POINTS, target.cache_bytes // 4 // (p.dtype.itemsize * p.depth))
    whole = [n for n in range(columns, most + 1) if count % n == 0]
    return min(whole, key=lambda n: max(n, POINTS) / min(n, POINTS), default=columns)


def bands(target: Target, problem: Problem, p: Packing) -> Bands:
    """Bands whose part of the array and whose sums fill a quarter of the second cache each, shared
    out so that the busiest core has least to do."""
    rows = problem.results[1]
    most = min(prod(_tile(target)) // p.lines, WIDE_TILE[0])
    wraps = most <= FEW_PLACES
    room = target.cache_bytes // 4 // p.dtype.itemsize
    panels = p.panels(problem.group_filters)
    band, strip = _cut(problem, p, most, room)
    pixels = most if wraps else even_part(strip, most)
    wide = _row(problem, strip, pixels, wraps)[0]
    share = panels
    while share > 1 and _summed(problem, band * wide, share, p) * p.step > room:
        share = -(-share // 2)
    whole = divided(problem, p, pixels, band, strip, share, wraps)
    if target.kind == "cpu":  # the interpreter's memory costs time
        whole = replace(
            whole,
            held=max(room, whole.held),
            sums=max(room // p.step, whole.sums),
        )
    heights = [n for n in parts_of(rows) if n <= band]
    shares = [n for n in parts_of(panels) if n <= share]
    choices = [(height, n) for height in reversed(heights) for n in reversed(shares)]
    band, share = min(choices, key=lambda choice: _effort(target, problem, whole, *choice))
    return replace(whole, band=band, panels=share)


def _effort(target: Target, problem: Problem, t: Bands, band: int, share: int) -> float:
    """Cycles of the busiest core, if cubes make `band` rows of `share` panels."""
    p, window, (depth, rows, columns) = t.packing, problem.window, problem.results
    strips = -(-columns // t.strip)
    shares = problem.groups * -(-p.panels(problem.group_filters) // share)
    cubes = problem.batch * depth * -(-rows // band) * strips * shares
    wide, pitch = _row(problem, t.strip, t.pixels, t.wraps)
    seen = ((band - 1) * window.stride[1] + window.spans[1]) * pitch * window.kernel[0]
    moved = MOVED if problem.has_channels_last else TURNED
    taps = window.taps * -(-problem.group_channels // p.word)
    products = share * p.lines * taps * (band * wide / _rate(target) + READ)
    each = START + moved * seen * problem.group_channels + products
    return (-(-cubes // target.cores) + UNEVEN) * each


def _rate(target: Target) -> int:
    """Products of lines in a cycle."""
    return 1 if target.arch in ONE_PRODUCT else 2


def _cut(problem: Problem, p: Packing, pixels: int, room: int) -> tuple[int, int]:
    """Rows and columns of the result that a cube makes, whose part of the array fits: whole rows,
    or strips of tiles where a row is too long, as those of signals are."""
    _, band, columns = problem.results

    def held(band: int, strip: int) -> int:
        return _held(problem, band, _row(problem, strip, pixels, False)[1], p)

    while band > 1 and held(band, columns) > room:
        band = -(-band // 2)
    strips = (-(-columns // n // pixels) * pixels for n in range(2, columns // pixels + 1))
    if held(band, columns) <= room:
        return band, columns
    return band, next((n for n in strips if held(1, n) <= room), min(pixels, columns))


def divided(
    problem: Problem,
    p: Packing,
    pixels: int,
    band: int,
    strip: int,
    share: int,
    wraps: bool = False,
) -> Bands:
    """Cubes of `band` rows of `strip` columns and `share` panels, in tiles of so many pixels."""
    wide, pitch = _row(problem, strip, pixels, wraps)
    is_long = p.line * p.dtype.itemsize >= LONG
    return Bands(
        p,
        pixels,
        band,
        strip,
        share,
        _held(problem, band, pitch, p),
        _summed(problem, band * wide + pixels, share, p),
        problem.has_channels_last,
        problem.puts_channels_last,
        problem.has_dense_rows and problem.groups == 1 and p.depth == problem.channels,
        wraps,
        has_ends(problem, p),
        AHEAD if is_long else 0,
        ROWS_AHEAD // p.dtype.itemsize if is_long else 0,
    )


def has_ends(problem: Problem, p: Packing) -> bool:
    """Whether the last line of a group's filters reaches into the next group's."""
    return problem.groups > 1 and problem.group_filters % p.line > 0


def _row(problem: Problem, strip: int, pixels: int, wraps: bool) -> tuple[int, int]:
    """Pixels of a row of tiles, and of the array that they depend on."""
    window = problem.window
    wide = strip if wraps else -(-strip // pixels) * pixels
    return wide, (wide - 1) * window.stride[2] + window.spans[2]


def _summed(problem: Problem, pixels: int, share: int, p: Packing) -> int:
    """Pixels of a panel that a cube has sums of at a time: of all its panels where they are added
    to, part by part."""
    is_one = p.parts(problem.group_channels) * problem.window.kernel[0] == 1
    return pixels if is_one else share * pixels


def squares_for(
    target: Target, problem: Problem, p: Packing, size: int | None, scratch_bytes: int
) -> Squares | None:
    """How a convolution is made in Winograd's form of squares of that `size`; None where it cannot
    be, for 0, where no size is asked for and it is more work, and where a cube may not have so much
    memory."""
    w, is_flat = problem.window, problem.extents[0] == problem.results[0] == 1
    is_square = w.kernel == (1, TAPS, TAPS) and is_flat and problem.groups == 1
    is_dense = w.stride == w.dilation == (1, 1, 1)
    takes = p.word == 1 and not p.has_unit and p.dtype.is_float
    if size == 0 or not (is_square and is_dense and takes):
        return None
    t = squares(target, problem, p, Basis(size or 2))
    if t.elements * p.dtype.itemsize + FEW_BYTES > scratch_bytes:
        return None
    if size is not None:
        return t
    b = bands(target, problem, p)
    effort = squares_effort(target, problem, t, (t.images, t.down, t.across, t.panels))
    return t if effort * WORTH < _effort(target, problem, b, b.band, b.panels) else None


def squares(target: Target, problem: Problem, p: Packing, s: Basis) -> Squares:
    """The division with the least work for the busiest core, of those whose squares fill the second
    cache twice at most; rows of squares are cut where it does not hold one, and images are made
    together where several fit."""
    rows, columns = _rows_of_squares(problem, s)
    pitch = -(-problem.channels // p.line) * p.line + p.line
    room = _near_squares(target, p, s, pitch)
    across = columns if columns <= room else min(columns, max(SQUARES, room // SQUARES * SQUARES))
    room = max(room * FAR_SQUARES, across)
    cuts = [(1, down, across) for down in range(1, min(rows, room // across) + 1)]
    together = parts_of(problem.batch) if across == columns else []
    cuts += [(n, rows, across) for n in together if 1 < n <= room // (rows * across)]
    choices = ((*cut, n) for cut in cuts for n in parts_of(p.panels(problem.filters)))
    brought = replace(p, depth=min(BROUGHT, pitch - p.line))
    first = divided(problem, brought, 1, s.size, problem.results[2], 1)
    t = Squares(s, p, 1, 1, across, 1, pitch, 1, room, replace(first, sums=0))
    best = min(choices, key=lambda cut: squares_effort(target, problem, t, cut))
    images, down, across, panels = best
    count = images * down * across
    room = max(1 if target.kind == "interpreter" else room, count)  # memory costs it time
    held = (s.size + TAPS - 1) * (room * s.size + TAPS - 1) * brought.depth  # of one long row
    bands = replace(t.bands, band=down * s.size, held=held)
    tile = _tile_of_squares(target, p, count)
    return replace(t, images=images, down=down, panels=panels, tile=tile, room=room, bands=bands)


def _near_squares(target: Target, p: Packing, s: Basis, pitch: int) -> int:
    """Squares that the second cache holds, the last one perhaps in part."""
    return -(-target.cache_bytes // (p.dtype.itemsize * s.positions * pitch))


def _rows_of_squares(problem: Problem, s: Basis) -> tuple[int, int]:
    """Rows of squares, and squares of a row."""
    rows, columns = (-(-n // s.size) for n in problem.results[1:])
    return rows, columns


def _tile_of_squares(target: Target, p: Packing, count: int) -> int:
    """Squares in registers, of a few numbers, each of which is another kernel: those with which the
    last tile has few squares too many."""
    most = min(prod(_tile(target)) // p.lines, WIDE_TILE[0])
    tiles = {n for n in (most, most // 2, 8, 4, 2, 1) if 1 <= n <= min(most, count)}
    return min(tiles, key=lambda n: (-(-count // n) * (n + TILE_START), -n))


def squares_effort(
    target: Target, problem: Problem, t: Squares, cut: tuple[int, int, int, int]
) -> float:
    """Cycles of the busiest core, if cubes make so many squares of so many images, `down` and
    `across`, by so many panels."""
    (images, down, across, panels), s, p, channels = cut, t.basis, t.packing, problem.channels
    rows, columns = _rows_of_squares(problem, s)
    shares = -(-p.panels(problem.filters) // panels)
    cubes = -(-problem.batch // images) * -(-rows // down) * -(-columns // across) * shares
    count, moved = images * down * across, MOVED if problem.has_channels_last else TURNED
    tile = _tile_of_squares(target, p, count)
    brought = moved * images * (down * s.size + 2) * (across * s.size + 2) * channels
    changed = CHANGED * count * (-(-channels // p.line) + panels * p.lines)
    weights = CHANGED * panels * p.lines * channels
    products = panels * p.lines * channels * (-(-count // tile) * tile / _rate(target) + READ)
    if count > _near_squares(target, p, s, t.pitch):
        products += panels * count * channels / p.line * FAR_READ
    each = START + brought + s.positions * (changed + weights + products)
    return (-(-cubes // target.cores) + UNEVEN) * each


def parts_of(total: int) -> list[int]:
    """The sizes of parts into which so many can be shared as evenly as can be, the least first."""
    found, count = list[int](), 1
    while count <= total:
        size = -(-total // count)
        found.append(size)
        count = -(-total // (size - 1)) if size > 1 else total + 1
    return found[::-1]


def _held(problem: Problem, band: int, pitch: int, p: Packing) -> int:
    """Elements of the array that a band depends on."""
    window = problem.window
    return ((band - 1) * window.stride[1] + window.spans[1]) * pitch * p.depth


def _tile(target: Target) -> tuple[int, int]:
    rows, lines = tile_extents(target)
    return WIDE_TILE if rows * lines >= 24 else (rows, lines)


def weight_sums(target: Target, problem: Problem) -> Sums:
    """As many filters as the registers hold sums of, beside all taps of a row where these fit."""
    if target.kind not in ("cpu", "interpreter"):
        return Sums(1, 1, 1, UNITS, problem.sums)
    registers = 24 if prod(_tile(target)) >= 24 else 10
    taps = min(problem.window.kernel[2], registers)
    filters = max(1, min(8, registers // taps, problem.group_filters))
    return Sums(filters, taps, max(1, target.line_bytes // problem.sums.itemsize), 1, problem.sums)


def weight_products(target: Target, problem: Problem) -> Products | None:
    """Blocks of filters by lines of channels; None where lines would be mostly empty, or blocks
    end in another group."""
    if target.kind not in ("cpu", "interpreter"):
        return None
    line = max(1, target.line_bytes // problem.sums.itemsize)
    filters = 8 if prod(_tile(target)) >= 24 else 4
    lines = -(-problem.group_channels // line)
    if 2 * problem.group_channels < line or 2 * problem.group_filters < filters:
        return None
    if problem.groups > 1 and (problem.group_channels % line or problem.group_filters % filters):
        return None
    return Products(filters, 2 if lines % 2 == 0 else 1, line, problem.sums)
