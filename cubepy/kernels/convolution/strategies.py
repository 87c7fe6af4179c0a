"""How convolutions are made: which kernel, and how it divides the work, by the target's caches."""

from __future__ import annotations

from math import prod

from cubepy.ir.types import DType
from cubepy.kernels.convolution.blocks import Bands, Packing
from cubepy.kernels.convolution.each import Each
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.weight_gradient import Sums
from cubepy.kernels.matmul.strategies import even_part, tile_extents
from cubepy.targets import Target

WIDE_TILE = (14, 2)
"""Pixels, and lines of filters, of tiles where registers are many: rows of networks are multiples
of 7 or 14 pixels."""
CUBES = 4
"""Cubes for each core."""
UNITS = 256


def is_blocked(target: Target, problem: Problem) -> bool:
    """Whether pixels are multiplied by lines of filters."""
    line = max(1, target.line_bytes // problem.sums.itemsize)
    filters = problem.group_filters
    many = problem.groups == 1 or filters % line == 0
    return target.kind in ("cpu", "interpreter") and many and filters >= 2


def each(problem: Problem) -> Each:
    """A unit for each result."""
    return Each(UNITS, problem.sums)


def packing(
    target: Target, filters: int, channels: int, groups: int, taps: int, sums: DType
) -> Packing:
    """Panels of which a part fills a quarter of the second cache."""
    line = max(1, target.line_bytes // sums.itemsize)
    most = _tile(target)[1]
    lines = min(most, -(-(filters // groups) // line))
    room = target.cache_bytes // 4 // (sums.itemsize * lines * line * taps)
    return Packing(lines, line, part_of(channels // groups, room, line), sums)


def part_of(channels: int, most: int, line: int) -> int:
    """Channels of a part: all, or whole lines with as few behind the last as can be."""
    if channels <= max(most, line):
        return channels
    lengths = range(line, max(most, line) + 1, line)
    return min(lengths, key=lambda n: (-(-channels // n) * n, -n))


def bands(target: Target, problem: Problem, p: Packing) -> Bands:
    """Bands whose part of the array and whose sums fill a quarter of the second cache each, and
    enough cubes for all cores."""
    window, (_, rows, columns) = problem.window, problem.results
    registers = prod(_tile(target))
    pixels = even_part(columns, max(1, min(registers // p.lines, WIDE_TILE[0])))
    across = -(-columns // pixels)
    pitch = (across * pixels - 1) * window.stride[2] + window.spans[2]
    room = target.cache_bytes // 4 // p.dtype.itemsize
    panels = p.panels(problem.group_filters)
    band = rows
    while band > 1 and (_held(problem, band, pitch, p) > room):
        band = -(-band // 2)
    wanted = CUBES * target.cores
    others = problem.batch * problem.results[0] * problem.groups
    share = panels
    while share > 1 and (share * band * across * pixels * p.step > room):
        share = -(-share // 2)
    while others * -(-rows // band) * -(-panels // share) < wanted:
        if share > 1 and share * p.step >= band * columns // 4:
            share = -(-share // 2)
        elif band > 1:
            band = -(-band // 2)
        elif share > 1:
            share = -(-share // 2)
        else:
            break
    return divided(problem, p, pixels, band, share)


def divided(problem: Problem, p: Packing, pixels: int, band: int, share: int) -> Bands:
    """Cubes of `band` rows and `share` panels, in tiles of so many pixels."""
    across = -(-problem.results[2] // pixels)
    pitch = (across * pixels - 1) * problem.window.stride[2] + problem.window.spans[2]
    return Bands(
        p,
        pixels,
        band,
        share,
        pitch,
        _held(problem, band, pitch, p),
        share * band * across,
        problem.has_channels_last,
        problem.puts_channels_last,
        problem.has_dense_rows and p.depth == problem.channels,
    )


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
