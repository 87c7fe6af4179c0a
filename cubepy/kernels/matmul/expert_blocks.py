"""How products of groups of rows are divided on CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cubepy.array.memory import Memory
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul.blocks import Blocks
from cubepy.kernels.matmul.experts_on_cpus import Experts, multiply_groups_in_blocks
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem, is_dense, sums_of, turned
from cubepy.kernels.matmul.strategies import (
    FEW,
    divide,
    dots,
    in_blocks,
    lanes,
    rounded,
    streams,
    tile_extents,
)
from cubepy.kernels.matmul.streams import Dots, Streams
from cubepy.record import dataclass
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.kernels.matmul.experts import Groups

CUBES = 4
"""Cubes for each core, where all rows are of one group."""
LEAST_ROWS = 64
"""Rows that are worth packing the right factor for, once more."""
MANY = 64
"""Rows that groups have on the average from which on no code is made for those of few."""
FEW_AT_ONCE, ALONE = 4, 4
"""Rows of a group of few that are multiplied at once; one, where groups have no more rows than
these on the average. Code for both would take as long again to compile."""


def launch_blocks(planner: Planner, g: Groups) -> None:
    """Add the launch of the products of all groups."""
    target, problem = planner.target, problem_of(g)
    rows, columns = g.out.shape
    t = choose(target, problem, rows)
    share = _share(target, problem, t, rows)
    sums: tuple[Memory, ...] = ()
    if problem.k > share.depth and g.out.dtype is not problem.sums:
        sums = (planner.scratch(g.out.shape, problem.sums),)
    planner.launch(
        multiply_groups_in_blocks,
        (g.count + 1) * share.down * -(-columns // share.width),
        x=turned(g.x) if problem.left == COLUMNS else g.x,
        weights=turned(g.weights) if problem.right == COLUMNS else g.weights,
        sums=sums,
        width=share.width,
        down=share.down,
        least=share.least,
        depth=share.depth,
        **g.beside,
        t=t,
    )


def problem_of(g: Groups) -> Problem:
    """A stack of products, each of as many rows as a group has on the average."""
    (rows, columns), k = g.out.shape, g.x.shape[1]
    sums = sums_of(g.x.dtype)
    left = ROWS if is_dense(g.x, -1) or not is_dense(g.x, -2) else COLUMNS
    right = ROWS if is_dense(g.weights, -1) or not is_dense(g.weights, -2) else COLUMNS
    return Problem(
        *(-(-rows // g.count), columns, k, (g.count,), sums, sums, g.out.dtype, left, right),
        is_finished=bool(g.biases) or g.epilogue is not None or g.out.dtype is not sums,
        elements=g.x.dtype,
        has_dense_rows=is_dense(g.x, -1),
        dtype=g.x.dtype,
    )


def choose(target: Target, problem: Problem, rows: int) -> Experts:
    """A way for groups of few rows, unless most have many, or elements of rows lie apart; and
    blocks, unless all `rows` are few: of tiles of all rows that registers hold."""
    line = lanes(target, problem)
    few = _few(target, problem) if problem.left == ROWS and problem.m < MANY else None
    if few is not None and rows <= FEW:
        return Experts(few, None, line, problem.sums)
    blocks = in_blocks(target, problem)
    if isinstance(blocks, Blocks):
        blocks = replace(
            blocks, rows=tile_extents(target)[0], rest=0, fetches=problem.right == ROWS
        )
    return Experts(few, blocks, line, problem.sums)


def _few(target: Target, problem: Problem) -> Streams | Dots:
    """How groups of few rows are multiplied."""
    rows = 1 if problem.m <= ALONE else FEW_AT_ONCE
    way = dots if problem.right == COLUMNS else streams
    return replace(way(target, replace(problem, batch=(), m=rows)), groups=FEW // rows)


@dataclass(frozen=True, slots=True)
class Share:
    """A cube has `width` columns of a group, and one of `down` shares of its rows, of at least
    `least` rows, in steps of `depth` along k."""

    width: int
    down: int
    least: int
    depth: int


def _share(target: Target, problem: Problem, t: Experts, rows: int) -> Share:
    """Columns as a cache holds them, and shares of rows so large that each core has some cubes if
    all rows are of one group: smaller ones would pack the right factor once more in vain."""
    if t.blocks is None:
        width = rounded(-(-problem.n // (CUBES * target.cores)), t.line)
        return Share(width, 1, FEW, problem.k)
    step, most = t.blocks.step, -(-rows // LEAST_ROWS)
    narrow = rounded(-(-problem.n // -(-target.cores // most)), step)
    width = min(t.blocks.width // step * step, narrow)
    across = -(-problem.n // width)
    least = max(LEAST_ROWS, -(-rows * across // (CUBES * target.cores)))
    least = rounded(least, t.blocks.rows)
    return Share(width, -(-rows // least), least, divide(target, problem, t.blocks).depth)
