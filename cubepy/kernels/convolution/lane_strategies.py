"""How convolutions of few channels a group are divided on CPUs."""

from __future__ import annotations

from itertools import product
from math import prod

from cubepy.array.memory import Memory
from cubepy.ir.types import DType
from cubepy.kernels.convolution.lanes import Lanes
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.strategies import (
    LONG,
    LONG_ROWS,
    MOST_STRIDE,
    NAMED_TAPS,
    START,
    parts_of,
)
from cubepy.kernels.matmul.strategies import even_part, is_cpu, power_above, tile_extents
from cubepy.record import dataclass
from cubepy.targets import Target

MOST_TAPS, MOST_TILE = 8, 14
"""On CPUs: taps of a row that are in registers at a time, and pixels of a tile, at most."""
BRINGING, TURNING, FINISHING, APART = 6, 10, 8, 20
"""Cycles for a line that is brought, with channels last and turned, for a line of results, and for
each place in memory that lines with channels last are brought from."""
FAR, MOST_HELD = 3, 1 << 17
"""How much longer lines take that are not near, which windows with gaps are worth, and the most
lines that a cube has room for: 8 MiB."""


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
    line = min(target.line_bytes // sums.itemsize, power_above(shape[0]))
    few = 0 < channels <= line and 2 * filters <= line
    return is_cpu(target) and groups > 1 and few and shape[-1] <= NAMED_TAPS


@dataclass(frozen=True, slots=True)
class _Work:
    """What bands and strips cost, for lines of so many groups in tiles of so many pixels, where so
    many lines are `near`."""

    target: Target
    problem: Problem
    groups: int
    pixels: int
    near: int

    @property
    def lines(self) -> int:
        """Lines of filters."""
        return -(-self.problem.groups // self.groups)

    def pitch(self, strip: int) -> int:
        """Pixels of the array that a row of tiles depends on; all, where rows follow each other."""
        p, window = self.problem, self.problem.window
        seen = (max(strip, self.pixels) - 1) * window.stride[2] + window.spans[2]
        return max(seen, window.before[2] + p.extents[2]) if strip == p.results[2] else seen

    def held(self, band: int, strip: int) -> int:
        """Lines that a cube brings for each line of filters."""
        window = self.problem.window
        high = (band - 1) * window.stride[1] + window.spans[1]
        return window.kernel[0] * high * self.pitch(strip) * self.problem.group_channels

    def cost(self, lines: int, band: int, strip: int) -> float:
        """Cycles of the busiest core."""
        p, (rows, columns) = self.problem, self.problem.results[1:]
        others = p.batch * p.results[0] * -(-self.lines // lines)
        cubes = others * -(-rows // band) * -(-columns // strip)
        bring = BRINGING if p.has_channels_last else TURNING
        if p.has_channels_last and lines < self.lines:
            bring += APART // lines
        held = lines * self.held(band, strip)
        if held > self.near:
            bring *= FAR
        work = held * bring + lines * band * strip * self.each
        return -(-cubes // self.target.cores) * (work + START)

    @property
    def each(self) -> int:
        """Cycles for a line of results."""
        return self.problem.window.taps * self.problem.group_channels + FINISHING

    def cheapest(self) -> tuple[int, int, int] | None:
        """Lines of a cube, rows of a band and columns of a strip: those with the least work for the
        busiest core; None where even one row, of as few columns as a tile, is too much to hold."""
        rows, columns = self.problem.results[1:]
        strips = [*reversed(parts_of(columns)), self.pixels]
        near = (n for n in strips if self.held(1, n) <= self.near)
        strip = next(near, next((n for n in strips if self.held(1, n) <= MOST_HELD), 0))
        if not strip:
            return None
        most = max(1, self.near // self.held(1, strip)) if self.problem.has_channels_last else 1
        choices = [
            (lines, band, strip)
            for lines, band in product(parts_of(self.lines), parts_of(rows))
            if lines <= most and lines * self.held(band, strip) <= MOST_HELD
        ]
        return min(choices, key=lambda choice: self.cost(*choice))


def division(
    target: Target, problem: Problem, x: Memory, out: Memory, is_placed: bool
) -> Division | None:
    """Lines of filters of few channels a group on CPUs; an eighth of the second cache is near for
    what they bring. `is_placed`: somebody asks for the place of a result."""
    p = problem
    shape = (p.filters, p.group_channels, *p.window.kernel)
    if not takes_lanes(target, shape, p.groups, p.sums) or min(p.results) < 1:
        return None
    if _has_better_lines(target, p):
        return None
    line = min(target.line_bytes // p.sums.itemsize, power_above(p.filters))
    pixels, taps = _tile(target, p)
    groups = min(line // p.group_filters, line // p.group_channels, p.groups)
    most = target.cache_bytes // 8 // LONG
    work = _Work(target, p, groups, pixels, most)
    found = work.cheapest()
    if found is None:
        return None
    lines, band, strip = found
    is_one = strip == p.results[2]
    t = Lanes(
        Packing(1, line, p.group_channels, p.sums, p.sums),
        groups,
        p.group_filters,
        pixels,
        taps,
        max(most, lines * work.held(band, strip)),
        pixels + (0 if p.puts_channels_last else max(most // 2, band * max(strip, pixels))),
        p.has_channels_last,
        p.puts_channels_last,
        groups * p.group_channels == line and p.channels % line == 0,
        is_one and not p.has_channels_last and _are_dense(x) and p.window.before[2] >= 0,
        is_one and not p.puts_channels_last and _are_dense(out) and not is_placed,
    )
    return Division(t, lines, band, strip, work.pitch(strip))


def _has_better_lines(target: Target, problem: Problem) -> bool:
    """Whether lines of pixels are fuller than those of filters would be."""
    line = target.line_bytes // problem.sums.itemsize
    is_last = problem.has_channels_last or problem.puts_channels_last
    is_long = problem.results[2] >= LONG_ROWS * line and problem.window.taps <= NAMED_TAPS
    is_served = is_long and problem.window.stride[2] <= MOST_STRIDE
    return not is_last and problem.filters < line and is_served


def _tile(target: Target, problem: Problem) -> tuple[int, int]:
    """Pixels of a tile, and taps of a row that are in registers with them."""
    registers = 28 if prod(tile_extents(target)) >= 24 else 13
    taps = even_part(problem.window.kernel[2], min(MOST_TAPS, registers // 3))
    return even_part(problem.results[2], min(MOST_TILE, registers - taps)), taps


def _are_dense(x: Memory) -> bool:
    """Whether the rows of planes [..., row, column] follow each other."""
    return x.strides[4] == x.dtype.itemsize and x.strides[3] == x.shape[4] * x.strides[4]
