"""How convolutions of few channels a group are divided."""

from __future__ import annotations

from itertools import product
from math import gcd, prod

from cubepy.array.memory import Memory
from cubepy.ir.types import DType
from cubepy.kernels.calls.cubes import MOST_SHARED, is_wide
from cubepy.kernels.convolution.blocks import Packing
from cubepy.kernels.convolution.columns import Columns
from cubepy.kernels.convolution.groups import Strips
from cubepy.kernels.convolution.lanes import Lanes
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.strategies import (
    LONG_ROWS,
    MOST_PIXELS,
    NAMED_TAPS,
    START,
    UNITS,
    parts_of,
)
from cubepy.kernels.matmul.strategies import even_part, is_cpu, tile_extents
from cubepy.record import dataclass
from cubepy.targets import Target

FEW_CHANNELS, STRIP, STRIP_UNITS = 16, 8, 256
"""The most channels of a group; pixels of a strip, at most; and units of a multiprocessor from
which on strips are that long, and lines."""
STRIP_SUMS, MOST_PRODUCTS = 16, 512
"""Of columns: sums of a unit, and its products, which are unrolled, at most."""
LANE, LEAST_LANE, GROUP_LINE, LEAST_LINE = 8, 4, 4, 2
"""Of strips: the most and the least bytes of a line of channels each of which is a group, and the
filters of a line of larger groups."""
MOST_TAPS, MOST_TILE = 8, 14
"""On CPUs: taps of a row that are in registers at a time, and pixels of a tile, at most."""
FEW_TAPS = 25
"""Taps up to which lines of pixels of few filters are better than lines of these."""
BRINGING, TURNING, FINISHING, APART = 6, 10, 8, 20
"""Cycles for a line that is brought, with channels last and turned, for a line of results, and for
each place in memory that lines with channels last are brought from."""


def strips(target: Target, problem: Problem, x: DType) -> Strips | None:
    """Strips of pixels of few channels a group, where channels lie densely on GPUs."""
    p, size = problem, x.itemsize
    is_depthwise = p.group_channels == 1 and p.filters == p.groups
    last = p.has_channels_last and p.puts_channels_last
    served = p.groups > 1 and 0 < p.group_channels <= FEW_CHANNELS and min(p.results) > 0
    if not (is_wide(target) and last and served) or p.window.kernel[2] > NAMED_TAPS:
        return None
    if p.group_channels & (p.group_channels - 1) or p.batch * prod(p.results) >= MOST_PIXELS:
        return None
    line = gcd(LANE // size, p.channels) if is_depthwise else gcd(GROUP_LINE, p.group_filters)
    least = max(1, LEAST_LANE // size) if is_depthwise else LEAST_LINE
    columns, rows = p.results[2], p.batch * p.results[0] * p.results[1]
    pixels, units = even_part(columns, STRIP), STRIP_UNITS * target.multiprocessors
    while line > least and rows * (p.filters // line) * -(-columns // pixels) < units:
        line //= 2
    while pixels > 1 and rows * (p.filters // line) * -(-columns // pixels) < units:
        pixels = even_part(columns, pixels // 2)
    across = even_part(p.filters // line, target.plane_dim)
    while across:
        t = Strips(line, pixels, across, UNITS // across, p.group_channels, is_depthwise, p.sums)
        if t.shared_bytes(p.window) <= min(MOST_SHARED, target.shared_bytes):
            return t
        across //= 2
    return None


def columns(target: Target, problem: Problem) -> Columns | None:
    """Columns of pixels of few channels a group, where pixels lie densely on GPUs."""
    p, window = problem, problem.window
    last = p.has_channels_last or p.puts_channels_last
    served = p.groups > 1 and 0 < p.group_channels <= FEW_CHANNELS and min(p.results) > 0
    area = window.kernel[1] * window.kernel[2]
    if not is_wide(target) or last or not served or area > NAMED_TAPS:
        return None
    count = p.batch * p.filters * prod(p.results)
    if count >= MOST_PIXELS:
        return None
    filters = gcd(GROUP_LINE, p.group_filters)
    while filters > 1 and filters * area > NAMED_TAPS:
        filters //= 2
    most = min(STRIP, STRIP_SUMS // filters, MOST_PRODUCTS // (filters * area))
    rows = even_part(p.results[1], max(1, most))
    while rows > 1 and count // (rows * filters) < STRIP_UNITS * target.multiprocessors:
        rows = even_part(p.results[1], rows // 2)
    return Columns(rows, filters, p.group_channels, UNITS, p.sums)


@dataclass(frozen=True, slots=True)
class Division:
    """Lanes, and lines of a cube, rows of a band, columns of a strip, and pixels that the memory of
    a row is for."""

    lanes: Lanes
    lines: int
    band: int
    strip: int
    pitch: int


def takes_lanes(target: Target, shape: tuple[int, ...], groups: int, sums: DType) -> bool:
    """Whether a line of filters has several groups of them on CPUs; `shape`: of the weights."""
    filters, channels = shape[0] // groups, shape[1]
    line = min(target.line_bytes // sums.itemsize, _power_above(shape[0]))
    few = 0 < channels <= line and 2 * filters <= line
    return is_cpu(target) and groups > 1 and few and shape[-1] <= NAMED_TAPS


def division(
    target: Target, problem: Problem, x: Memory, out: Memory, is_placed: bool
) -> Division | None:
    """Lines of filters of few channels a group on CPUs. The band is the one with the least work for
    the busiest core, of those whose part of the array fills at most an eighth of the second cache.

    `is_placed`: somebody asks for the place of a result.
    """
    p, window = problem, problem.window
    shape = (p.filters, p.group_channels, *window.kernel)
    if not takes_lanes(target, shape, p.groups, p.sums) or min(p.results) < 1:
        return None
    if _has_better_lines(target, p):
        return None
    line = min(target.line_bytes // p.sums.itemsize, _power_above(p.filters))
    groups = min(line // p.group_filters, line // p.group_channels, p.groups)
    rows, columns = p.results[1:]
    pixels, taps = _tile(target, p)
    most = target.cache_bytes // 8 // (line * p.sums.itemsize)

    def pitch(strip: int) -> int:
        """Pixels of the array that a row of tiles depends on."""
        seen = (max(strip, pixels) - 1) * window.stride[2] + window.spans[2]
        return max(seen, window.before[2] + p.extents[2]) if strip == columns else seen

    def held(band: int, strip: int) -> int:
        """Lines."""
        high = (band - 1) * window.stride[1] + window.spans[1]
        return window.kernel[0] * high * pitch(strip) * p.group_channels

    total = -(-p.groups // groups)
    bring = BRINGING if p.has_channels_last else TURNING

    def cost(lines: int, band: int, strip: int) -> float:
        """Cycles."""
        others = p.batch * p.results[0] * -(-total // lines)
        cubes = others * -(-rows // band) * -(-columns // strip)
        apart = APART / lines if p.has_channels_last and lines < total else 0
        brought = held(band, strip) * (bring + apart)
        made = band * strip * (window.taps * p.group_channels + FINISHING)
        return -(-cubes // target.cores) * (lines * (brought + made) + START)

    strip = next((n for n in reversed(parts_of(columns)) if held(1, n) <= most), pixels)
    least = min(total, max(1, most // held(1, strip)))
    counts = [n for n in parts_of(total) if n <= least] if p.has_channels_last else [1]
    choices = [
        (n, band)
        for n, band in product(counts or [1], parts_of(rows))
        if band == 1 or n * held(band, strip) <= most
    ]
    lines, band = min(choices, key=lambda choice: cost(*choice, strip))
    is_one = strip == columns
    t = Lanes(
        Packing(1, line, p.group_channels, p.sums, p.sums),
        groups,
        p.group_filters,
        pixels,
        taps,
        max(most, lines * held(band, strip)),
        pixels + (0 if p.puts_channels_last else max(most // 2, band * strip)),
        p.has_channels_last,
        p.puts_channels_last,
        groups * p.group_channels == line and p.channels % line == 0,
        is_one and not p.has_channels_last and _are_dense(x),
        is_one and not p.puts_channels_last and _are_dense(out) and not is_placed,
    )
    return Division(t, lines, band, strip, pitch(strip))


def _has_better_lines(target: Target, problem: Problem) -> bool:
    """Whether lines of pixels are fuller than those of filters would be."""
    line = target.line_bytes // problem.sums.itemsize
    is_last = problem.has_channels_last or problem.puts_channels_last
    is_long = problem.results[2] >= LONG_ROWS * line and problem.window.taps <= FEW_TAPS
    return not is_last and problem.filters < line and is_long and problem.window.stride[2] == 1


def _tile(target: Target, problem: Problem) -> tuple[int, int]:
    """Pixels of a tile, and taps of a row that are in registers with them."""
    registers = 28 if prod(tile_extents(target)) >= 24 else 13
    taps = even_part(problem.window.kernel[2], min(MOST_TAPS, registers // 3))
    return even_part(problem.results[2], min(MOST_TILE, registers - taps)), taps


def _are_dense(x: Memory) -> bool:
    """Whether the rows of planes [..., row, column] follow each other."""
    return x.strides[4] == x.dtype.itemsize and x.strides[3] == x.shape[4] * x.strides[4]


def _power_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
