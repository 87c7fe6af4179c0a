"""How convolutions are divided for matrix units of processors: of f32 in parts, and of bf16 and
bytes as they are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

from cubepy.ir.types import DType, bf16, f32, i8, u8
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Problem, Window
from cubepy.kernels.convolution.split import SplitBands, SplitPacking, area_of, row_of, rows_of
from cubepy.kernels.convolution.split_runs import RunPacking, SplitRuns, row_length
from cubepy.kernels.convolution.strategies import START, has_ends, parts_of
from cubepy.kernels.convolution.unit_runs import UnitRunPacking, UnitRuns
from cubepy.kernels.convolution.units import UnitBands
from cubepy.kernels.matmul.problem import sums_of
from cubepy.kernels.matmul.split import PARTS
from cubepy.kernels.matmul.strategies import even_part, has_split_units
from cubepy.kernels.matmul.units import PANEL, ROW_BYTES, SIDE
from cubepy.targets import Target

LEAST_TAPS = 4
"""Taps of a window from which on weights are split for matrix units: pixels are brought once for
each of them."""
SPLIT_BLOCKS = 4
"""The most blocks of 32 channels that are brought at a time."""
SPLIT_PIXEL, SPLIT_TILE, SPLIT_WEIGHTS = 45, 420, 700
"""Cycles for 32 channels of a pixel that are brought, for the products of 32 pixels, filters and
channels, and for reading the weights of these, there."""
UNIT_PIXEL, UNIT_TILE, UNIT_WEIGHTS = 10, 75, 250
"""The same without splitting, for rows of 64 bytes."""
LEAST_FILTERS, LEAST_RUN = 8, 8
"""Filters, and elements of a row of a window, from which on it multiplies few channels."""
UNIT_SUMS = 4
"""Of the second cache, what sums may take there, as a divisor: they are added to often."""
CHUNK = 24 << 10
"""Bytes of weights there that stay in the first cache, of which processors with AMX have 48 KiB."""
LEAST_SIDE = 16
"""Filters and channels of a group from which on a matrix unit multiplies them."""
LEAST_STRIP = 128
"""Columns of the result from which on rows are not cut."""
SPLIT_RUN = 120
"""Cycles for 32 elements of a row of few channels."""
SPLIT_ROW = 1 << 13
"""Elements of a row that kernels have room for at least, so that extents that need no more share
one."""


def split_packing(
    target: Target, shape: tuple[int, ...], groups: int, dtype: DType
) -> SplitPacking | RunPacking | None:
    """Panels of f32 in parts for matrix units; None where there are none, or products are too few.
    Windows of one row go by no runs: rows of signals may be too long for a cube, which makes whole
    ones."""
    filters, channels, *kernel = shape
    if groups > 1 or dtype is not f32 or filters < PANEL or not has_split_units(target):
        return None
    if channels >= PANEL and prod(kernel) >= LEAST_TAPS:
        return SplitPacking(even_part(-(-channels // PANEL), SPLIT_BLOCKS) * PANEL)
    runs, rows = RunPacking(max(1, channels), kernel[-1]), prod(kernel[:-1])
    fills = 2 * runs.run > runs.blocks * PANEL and runs.run * rows >= 2 * PANEL
    return runs if channels <= SIDE and rows > 1 and fills else None


def _heights(rows: int, held: Callable[[int], int], most: int) -> list[int]:
    """Rows of a band that share them evenly, of those that hold no more than that, or one."""
    return [n for n in parts_of(rows) if n == 1 or held(n) <= most]


def split_runs(target: Target, problem: Problem, p: RunPacking) -> SplitRuns:
    """Bands as `split_bands` has them, of rows whose channels lie densely."""
    _, rows, columns = problem.results
    window, total = problem.window, p.panels(problem.filters)
    wide = -(-columns // SIDE) * SIDE
    line = row_length(wide, window, p)

    def held(band: int) -> int:
        """Elements."""
        return rows_of(band, window) * line

    def cost(band: int, panels: int) -> int:
        """Cycles."""
        cubes = problem.batch * problem.results[0] * -(-rows // band) * -(-total // panels)
        brought = held(band) // PANEL * SPLIT_RUN
        tiles = -(-band * wide // PANEL) * panels * window.kernel[1] * p.blocks * SPLIT_TILE
        return -(-cubes // target.cores) * (window.kernel[0] * (brought + tiles) + START)

    most = target.cache_bytes // 2 // (2 * PARTS + p.dtype.itemsize)
    heights = _heights(rows, held, most)
    band, panels, sums = _division(heights, wide, total, window.kernel[0], target, cost)
    return SplitRuns(
        p,
        band,
        panels,
        max(most, held(band)),
        max(SPLIT_ROW, line),
        sums,
        problem.has_channels_last,
        problem.puts_channels_last,
    )


def split_bands(target: Target, problem: Problem, p: SplitPacking) -> SplitBands:
    """The division with the least work for the busiest core, of those whose part of the array fills
    at most half of the second cache, or those of one row and as few channels as that needs."""
    rows, window, total = problem.results[1], problem.window, p.panels(problem.filters)
    others = problem.batch * problem.results[0]
    most = target.cache_bytes // 2 // ROW_BYTES
    strip, pitch = _strip(problem, most // PARTS // p.blocks)
    wide, strips = row_of(strip, pitch, window), -(-problem.results[2] // strip)
    taps = window.taps // window.kernel[0]

    def held(band: int, blocks: int) -> int:
        """Rows of 16 words."""
        return area_of(band, pitch, window) * blocks * PARTS

    blocks = next((n for n in reversed(parts_of(p.blocks)) if held(1, n) <= most), 1)
    rounds = p.parts(problem.channels) * window.kernel[0] * -(-p.blocks // blocks)

    def cost(band: int, panels: int) -> int:
        """Cycles."""
        cubes = others * -(-rows // band) * strips * -(-total // panels)
        brought = held(band, blocks) // PARTS * SPLIT_PIXEL
        tiles = -(-band * wide // PANEL) * panels * taps * blocks * SPLIT_TILE
        weights = panels * taps * blocks * SPLIT_WEIGHTS
        return -(-cubes // target.cores) * (rounds * (brought + tiles + weights) + START)

    heights = _heights(rows, lambda n: held(n, blocks), most)
    band, panels, sums = _division(heights, wide, total, rounds, target, cost)
    return SplitBands(
        p,
        band,
        strip,
        panels,
        blocks,
        max(most, held(band, blocks)),
        sums,
        problem.has_channels_last,
        problem.puts_channels_last,
    )


def _strip(problem: Problem, most: int) -> tuple[int, int]:
    """Columns of the result that a cube makes, and those of the array that they depend on: all, or
    so few of a long row, as those of signals are, that what one depends on has `most` pixels."""
    window, columns = problem.window, problem.results[2]
    strip, cuts = columns, 1
    while True:
        pitch = (strip - 1) * window.stride[2] + window.spans[2]
        if strip <= LEAST_STRIP or area_of(1, pitch, window) <= most:
            return strip, pitch
        cuts += 1
        strip = -(-columns // cuts // SIDE) * SIDE


def unit_bands(target: Target, problem: Problem, p: Packing) -> UnitBands:
    """Bands as `split_bands` has them, of elements as they are."""
    rows, window, total = problem.results[1], problem.window, p.panels(problem.group_filters)
    others = problem.batch * problem.results[0] * problem.groups
    most, parts = target.cache_bytes // 2 // ROW_BYTES, p.parts(problem.group_channels)
    strip, pitch = _strip(problem, most // parts)
    wide, strips = row_of(strip, pitch, window), -(-problem.results[2] // strip)
    taps = window.taps // window.kernel[0]

    def held(band: int, blocks: int) -> int:
        """Pixels of a block of channels."""
        return area_of(band, pitch, window) * blocks

    blocks = next((n for n in reversed(parts_of(parts)) if held(1, n) <= most), 1)
    rounds = window.kernel[0] * -(-parts // blocks)

    def cost(band: int, panels: int) -> int:
        """Cycles."""
        cubes = others * -(-rows // band) * strips * -(-total // panels)
        tiles = -(-band * wide * p.step // PANEL**2) * panels * taps * blocks * UNIT_TILE
        weights = panels * taps * blocks * UNIT_WEIGHTS
        each = rounds * (held(band, blocks) * UNIT_PIXEL + tiles + weights) + START
        return -(-cubes // target.cores) * each

    heights = _heights(rows, lambda n: held(n, blocks), most)
    band, panels, sums = _division(heights, wide, total, rounds, target, cost, UNIT_SUMS)
    return UnitBands(
        p,
        band,
        strip,
        panels,
        blocks,
        max(most, held(band, blocks)),
        sums,
        chunk_of(window, p),
        problem.has_channels_last,
        problem.puts_channels_last,
        has_ends(problem, p),
    )


def unit_packing(
    target: Target, shape: tuple[int, ...], groups: int, dtype: DType
) -> Packing | UnitRunPacking | None:
    """The same of bf16 and of bytes."""
    filters, channels, *kernel = shape[0] // groups, *shape[1:]
    if dtype not in (bf16, i8, u8) or not has_split_units(target):
        return None
    lines, run = 1 if filters <= SIDE else 2, channels * kernel[-1]
    is_few = groups == 1 and 0 < channels <= SIDE and prod(kernel[:-1]) > 1 and dtype is bf16
    if is_few and filters >= LEAST_FILTERS and run >= LEAST_RUN:
        depth = -(-run // PANEL) * PANEL
        packing = Packing(lines, SIDE, depth, f32, dtype, has_unit=True)
        return UnitRunPacking(channels, kernel[-1], packing)
    if min(filters, channels) >= LEAST_SIDE:
        depth = ROW_BYTES // dtype.itemsize
        return Packing(lines, SIDE, depth, sums_of(dtype), dtype, has_unit=True)
    return None


def unit_runs(target: Target, problem: Problem, p: UnitRunPacking) -> UnitRuns:
    """Bands as `unit_bands` has them, of rows whose channels lie densely."""
    _, rows, columns = problem.results
    window, total = problem.window, p.panels(problem.filters)
    wide = -(-columns // SIDE) * SIDE
    line = row_length(wide, window, p)

    def held(band: int) -> int:
        """Elements."""
        return rows_of(band, window) * line

    def cost(band: int, panels: int) -> int:
        """Cycles."""
        cubes = problem.batch * problem.results[0] * -(-rows // band) * -(-total // panels)
        tiles = -(-band * wide * p.step // PANEL**2) * panels * window.kernel[1] * p.blocks
        each = window.kernel[0] * (held(band) // PANEL * UNIT_PIXEL + tiles * UNIT_TILE) + START
        return -(-cubes // target.cores) * each

    most = target.cache_bytes // 2 // p.stored.itemsize
    heights = _heights(rows, held, most)
    rounds = window.kernel[0]
    band, panels, sums = _division(heights, wide, total, rounds, target, cost, UNIT_SUMS)
    row = p.step * p.packing.depth * p.stored.itemsize
    return UnitRuns(
        p,
        band,
        panels,
        max(most, held(band)),
        sums,
        max(1, min(window.kernel[1], CHUNK // row)),
        problem.has_channels_last,
        problem.puts_channels_last,
        problem.has_dense_rows,
    )


def chunk_of(window: Window, p: Packing) -> tuple[int, int]:
    """Blocks of channels and rows of the window whose weights fit `CHUNK`."""
    _, rows, columns = window.kernel
    tap = p.step * p.depth * p.factors.itemsize
    if rows * columns * tap > CHUNK:
        return 1, max(1, CHUNK // (columns * tap))
    return CHUNK // (rows * columns * tap), rows


def _division(
    heights: list[int],
    wide: int,
    total: int,
    rounds: int,
    target: Target,
    cost: Callable[[int, int], int],
    share: int = 1,
) -> tuple[int, int, int]:
    """Rows of a band and panels of a cube, and the pixels of sums that there is room for, of all
    panels where several rounds add to them: the division of the least cost, of those whose sums fit
    the second cache, or a share of it, or that of one row and panel."""

    def pixels(band: int, panels: int) -> int:
        return (-(-band * wide // PANEL) + 1) * PANEL * (panels if rounds > 1 else 1)

    most = target.cache_bytes // share // (PANEL * f32.itemsize)
    choices = list(product(heights, parts_of(total)))
    small = [c for c in choices if pixels(*c) <= most] or choices[:1]
    band, panels = min(small, key=lambda choice: cost(*choice))
    return band, panels, max(most, pixels(band, panels))
