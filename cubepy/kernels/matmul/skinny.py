"""Products of few rows on GPUs: which kernel makes them, how they are cut, and their launches.

Such a product takes as long as its right factor, the weights, takes to come from memory. So all
multiprocessors read as much of them, at the same time: cubes make as many columns each as lets all
of them run at once, or in whole waves, and shared memory is filled with what is on its way.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import bf16, f16
from cubepy.jit.grid import Fixed
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul.grids import WORD, has_async
from cubepy.kernels.matmul.maps import boxes
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem
from cubepy.kernels.matmul.strategies import power_above
from cubepy.kernels.matmul.thin import DEPTH, Thin, multiply_thin
from cubepy.kernels.matmul.vectors import Vectors, multiply_vectors
from cubepy.lang import pipelines
from cubepy.targets import Target

MOST_ROWS = 64
"""Rows up to which the way of the weights from memory takes longer than all else."""
STEP = 8
"""Rows and columns of cubes are multiples of this: one repetition of a swizzle."""
FEW_ROWS = 32
"""Rows up to which cubes need not be wide: what they read of the left factor is not much."""
MOST_PARTS = 8
RESERVED = 1024
"""Shared memory that each cube of a multiprocessor needs beside its own."""
LEAST_STAGES, MOST_STAGES, MOST_PIECES = 4, 14, 4
"""A stage has as many pieces of k as leave so many stages: weights come in long runs."""
VECTOR_ROWS, VECTOR_UNITS, VECTOR_LINES = 8, 128, 16
"""Rows that need no matrix units, units of a cube, and lines that each has on their way."""
SHORT = 96
"""A k that keeps the units of a cube busy: H100, 65536 dense columns of 10, 64 and 128: 16, 16 and
18 us, where tiles take 4, 9 and 18."""
LONG_CUBES, LONG_PART, LEAST_PARTS = 8, 1 << 12, 4
"""Cubes of a multiprocessor that share a long k, elements that each has at least, and parts of it
that save more than their sum takes."""
LINE_BYTES = 16
NARROW = 16
"""Columns up to which tiles would have too little of rows that are dense."""
ROW_ELEMENTS = 64
"""Columns of a multiple of so many elements are aligned for lines; one row needs no more there."""


def skinny(target: Target, problem: Problem) -> Thin | Vectors | None:
    """The kernel for a product of few rows on a GPU; None where others are better."""
    if problem.left != ROWS or problem.m > MOST_ROWS:
        return None
    is_row = problem.m == 1 and problem.right == COLUMNS and problem.k % ROW_ELEMENTS == 0
    return (None if is_row else thin(target, problem)) or vectors(target, problem)


def parts_of_long(target: Target, problem: Problem, t: Thin | Vectors) -> int:
    """Into how many parts a long k is cut, a power of two, where columns are so few that most
    multiprocessors would have none; whole lines of them, and worth the launch that adds them."""
    cubes = -(-problem.n // t.columns) * (t.parts if isinstance(t, Thin) else 1)
    most = min(LONG_CUBES * target.multiprocessors // cubes, problem.k // LONG_PART)
    parts = 1
    while 2 * parts <= most and problem.k % (2 * parts * ROW_ELEMENTS) == 0:
        parts *= 2
    return parts if parts >= LEAST_PARTS else 1


# By tensor cores


def thin(target: Target, problem: Problem) -> Thin | None:
    """How cubes share the weights on Hopper; None on other targets, and for other factors."""
    takes = problem.has_factor_boxes and problem.elements in (bf16, f16)
    if target.arch != "sm_90a" or not takes:
        return None
    by_columns = problem.right == COLUMNS
    t, per_sm = by_width(target, problem) if by_columns else by_tiles(target, problem)
    return filled(target, t, per_sm)


def by_width(target: Target, problem: Problem) -> tuple[Thin, int]:
    """Tiles of any width, and the cubes that a multiprocessor has at once, where columns are dense.

    Each multiprocessor makes equally many columns: in one cube if they are few, in several else.
    """
    rows, share = _rounded(problem.m), problem.n * problem.batches / target.multiprocessors
    if share <= pipelines.ROWS:
        width = _rounded(ceil(max(share, min(rows / 2, problem.n), 2 * STEP)))
        parts = _parts(target, problem, width)
        return _tile(problem, 1, width, parts), 1 if parts < 3 else 2
    groups, per_sm = (1, 2) if rows <= FEW_ROWS else (2, 1)
    return in_waves(target, problem, groups, per_sm), per_sm


def in_waves(target: Target, problem: Problem, groups: int, per_sm: int) -> Thin:
    """Tiles as wide as make whole waves of so many cubes of a multiprocessor."""
    width = problem.n * problem.batches / target.multiprocessors / per_sm
    while width > groups * pipelines.ROWS:
        width /= 2
    return _tile(problem, groups, _rounded(ceil(width / groups)), 1)


def other_cuts(target: Target, problem: Problem) -> dict[str, Thin]:
    """What the autotuner may try in place of the rule, by what distinguishes it."""
    found: dict[str, Thin] = {}
    for groups, per_sm in ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1)):
        if problem.right == COLUMNS:
            t = in_waves(target, problem, groups, per_sm)
        else:
            t = _tile(problem, groups, DEPTH, 1)
        t = filled(target, t, per_sm)
        if t.stages > 1:
            found[f"{t.groups}x{t.columns}, {t.pieces}x{t.stages}"] = t
    return found


def by_tiles(target: Target, problem: Problem) -> tuple[Thin, int]:
    """The same for tiles of 64 columns, where rows are dense."""
    tiles = problem.batches * -(-problem.n // DEPTH)
    if tiles <= target.multiprocessors:
        parts = _parts(target, problem, DEPTH)
        return _tile(problem, 1, DEPTH, parts), 1 if parts < 3 else 2
    if tiles <= 2 * target.multiprocessors:
        return _tile(problem, 1, DEPTH, 1), 2
    return _tile(problem, 4, DEPTH, 1), 1


def _tile(problem: Problem, groups: int, columns: int, parts: int) -> Thin:
    """Tiles in rings of one stage of one piece."""
    assert problem.elements is not None
    rows = _rounded(problem.m)
    return Thin(groups, columns, rows, 1, 1, parts, problem.right, problem.elements)


def _parts(target: Target, problem: Problem, width: int) -> int:
    """How many cubes share k, so that all multiprocessors have one."""
    tiles = problem.batches * -(-problem.n // width)
    return max(1, min(MOST_PARTS, target.multiprocessors // tiles, problem.k // (4 * DEPTH)))


def filled(target: Target, t: Thin, per_sm: int) -> Thin:
    """With as many pieces and stages as so many cubes of a multiprocessor have memory for."""
    room = target.shared_bytes // per_sm - (0 if per_sm == 1 else RESERVED)
    pieces = max(1, min(MOST_PIECES, room // (LEAST_STAGES * t.stage_bytes)))
    t = replace(t, pieces=pieces)
    while t.stages < MOST_STAGES and replace(t, stages=t.stages + 1).shared_bytes <= room:
        t = replace(t, stages=t.stages + 1)
    return t


def launch_thin(
    planner: Planner, problem: Problem, a: Memory, b: Memory, out: Memory, t: Thin, finish: Any
) -> None:
    """A launch over all tiles; `b` is dense along rows, `finish` what is done with sums."""
    count = problem.batches * -(-problem.n // t.width) * t.parts
    planner.launch(
        multiply_thin.configure(cluster=t.parts),
        Fixed((count, 1, 1), (t.units, 1, 1)),
        a=boxes(a, (t.rows, DEPTH)),
        b=boxes(b, t.right_box),
        out=out,
        k=problem.k,
        t=t,
        **finish,
    )


# By ordinary arithmetic


def vectors(target: Target, problem: Problem) -> Vectors | None:
    """Lines of 16 bytes for each unit; None where others are faster.

    Others are for more rows than units can multiply meanwhile, for a k so short that most units of
    a cube would have nothing of it, and from two rows on where tiles copy lines of rows of the
    right factor while they multiply (H100, 8x1024 by 8192 columns: 18 us, by vectors 31).
    """
    if problem.m > VECTOR_ROWS or problem.k < SHORT:
        return None
    is_word = problem.dtype is problem.factors and problem.factors.itemsize == WORD
    has_lines = is_word and problem.runs[1] * WORD == LINE_BYTES
    is_wide = problem.right == ROWS and problem.n > NARROW
    if is_wide and problem.m > 1 and has_lines and has_async(target):
        return None
    line = LINE_BYTES // problem.dtype.itemsize
    if problem.right == COLUMNS:
        columns = min(4 if problem.m > 1 else 8, power_above(problem.n))
        return Vectors(
            *(problem.m, columns, VECTOR_UNITS, line, VECTOR_LINES // columns),
            *(problem.right, problem.sums),
        )
    line = min(line, power_above(problem.n))
    columns = min(4 * line, power_above(problem.n))
    return Vectors(
        problem.m, columns, 2 * VECTOR_UNITS, line, VECTOR_LINES // 2, problem.right, problem.sums
    )


def launch_vectors(
    planner: Planner, problem: Problem, a: Memory, b: Memory, out: Memory, t: Vectors, finish: Any
) -> None:
    """A launch over all columns; `b` is dense along rows."""
    count = problem.batches * -(-problem.n // t.columns)
    grid = Fixed((count, 1, 1), (t.units, 1, 1))
    planner.launch(multiply_vectors, grid, a=a, b=b, out=out, t=t, **finish)


def _rounded(n: int) -> int:
    return max(STEP, -(-n // STEP) * STEP)
