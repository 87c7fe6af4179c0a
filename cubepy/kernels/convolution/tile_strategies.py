"""How pixels and filters are multiplied in tiles on GPUs without tensor cores."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.tiles import Tile
from cubepy.record import dataclass
from cubepy.targets import Target

FEWEST, MANY = (8, 2), (8, 64)
"""Filters of a group from which on pixels and filters are multiplied in tiles on GPUs, where each
result is a sum of so many elements: fewer filters where sums are longer."""
MOST_PIXELS = (1 << 31) - (1 << 10)
"""Pixels that 32 bits number, and those of a tile."""
DEPTHS = (16, 8, 4)
"""Channels of a step there."""
TESTED_DEPTH = 8
"""The most channels of a step that may end within it, where units have the most sums: what says
which of them are there takes registers too."""
STEP = 96
"""What a unit does in a step beside its products, in their time: addresses, copies, a barrier."""
LEAST_STEPS, MOST_PARTS, JOIN = 8, 64, 400_000
"""Steps that are worth a part of k, the most parts, and what joining them takes, in products."""
TILE_SUMS = {4: 64, 8: 16}
"""The most sums of a unit, by their bytes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Units down and across, so many of them side by side, and the pixels and filters of each.

    `alone`, `full`: shares of what a multiprocessor can do, with one cube, and with as many as
    there is room for.
    """

    down: int
    across: int
    lanes: int
    rows: int
    columns: int
    alone: float
    full: float


SHAPES = (
    Shape(16, 16, 8, 8, 8, 0.55, 0.72),
    Shape(16, 16, 8, 8, 4, 0.42, 0.58),
    Shape(32, 8, 8, 8, 4, 0.42, 0.58),
    Shape(16, 16, 8, 4, 4, 0.28, 0.42),
    Shape(32, 8, 8, 4, 4, 0.28, 0.42),
    Shape(64, 4, 4, 4, 4, 0.28, 0.42),
    Shape(16, 16, 8, 4, 2, 0.18, 0.30),
    Shape(64, 4, 4, 4, 2, 0.18, 0.30),
)


def tile(target: Target, problem: Problem, line: int) -> Tile | None:
    """Pixels by filters, in the tiles that take the least time; None where a unit for each result
    is better. `line`: elements of the result that may be stored at once."""
    p = problem
    length = p.group_channels * p.window.taps
    worth = any(p.group_filters >= n and length >= k for n, k in zip(FEWEST, MANY, strict=True))
    if not is_wide(target) or not worth:
        return None
    if p.batch * prod(p.results) >= MOST_PIXELS:
        return None
    shapes = [s for s in SHAPES if s.rows * s.columns <= TILE_SUMS[p.sums.itemsize]]
    made = [(_tile_of(p, s, depth, line), s) for s in shapes for depth in _depths(p, s)]
    units = target.max_cube_dim
    fits = [m for m in made if m[0].shared_bytes <= target.shared_bytes and m[0].units <= units]
    if not fits:
        return None
    return min(fits, key=lambda m: _duration(target, p, *m))[0]


def _depths(problem: Problem, s: Shape) -> list[int]:
    """Channels that a step may have."""
    is_full = s.rows * s.columns == max(TILE_SUMS.values())
    most = TESTED_DEPTH if is_full else DEPTHS[0]
    return [n for n in DEPTHS if n <= most or problem.group_channels % n == 0]


def _tile_of(problem: Problem, s: Shape, depth: int, line: int) -> Tile:
    p = problem
    extents = s.down, s.across, s.lanes, s.rows, s.columns
    is_whole = p.group_channels % depth == 0
    made = Tile(
        *(*extents, depth, p.sums, is_whole, p.has_channels_last, p.puts_channels_last, 1),
    )
    most = made.column_line if p.puts_channels_last else made.row_line
    along = p.group_filters if p.puts_channels_last else p.results[2]
    return replace(made, line=gcd(along, most, line))


def _steps(problem: Problem, t: Tile) -> int:
    """Steps along k."""
    return problem.window.taps * -(-problem.group_channels // t.depth)


def _tiles(problem: Problem, t: Tile) -> int:
    pixels = problem.batch * prod(problem.results)
    return problem.groups * -(-pixels // t.height) * -(-problem.group_filters // t.width)


def parts_of_tiles(target: Target, problem: Problem, t: Tile) -> tuple[int, int]:
    """Parts of k, and the steps of each: all, unless tiles leave most multiprocessors idle."""
    steps = _steps(problem, t)
    wanted = target.multiprocessors // _tiles(problem, t)
    share = -(-steps // max(1, min(wanted, steps // LEAST_STEPS, MOST_PARTS)))
    return -(-steps // share), share


def _duration(target: Target, problem: Problem, t: Tile, s: Shape) -> float:
    """The time of the multiprocessor that has the most cubes."""
    parts, share = parts_of_tiles(target, problem, t)
    most = -(-_tiles(problem, t) * parts // target.multiprocessors)
    products = t.height * t.width * t.depth * max(1 / s.alone, most / s.full)
    joining = JOIN if parts > 1 else 0
    return share * (products + STEP * t.units * most) + joining
