"""How convolutions of few channels a group are divided on GPUs."""

from __future__ import annotations

from math import gcd, prod

from cubepy.ir.types import DType
from cubepy.kernels.calls.cubes import MOST_SHARED, is_wide
from cubepy.kernels.convolution.columns import Columns
from cubepy.kernels.convolution.groups import Strips
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.strategies import NAMED_TAPS, UNITS
from cubepy.kernels.convolution.tile_strategies import MOST_PIXELS
from cubepy.kernels.matmul.strategies import even_part
from cubepy.targets import Target

FEW_CHANNELS, STRIP, STRIP_UNITS = 16, 8, 256
"""The most channels of a group; pixels of a strip, at most; and units of a multiprocessor from
which on strips are that long, and lines."""
STRIP_SUMS, MOST_PRODUCTS = 16, 512
"""Of columns: sums of a unit, and its products, which are unrolled, at most."""
LANE, LEAST_LANE, GROUP_LINE, LEAST_LINE = 8, 4, 4, 2
"""Of strips: the most and the least bytes of a line of channels each of which is a group, and the
filters of a line of larger groups."""


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
