"""Factors that are copied before they are multiplied, to rows that begin at lines of 16 bytes."""

from __future__ import annotations

from dataclasses import replace

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.ir.types import bf16, f16, f32
from cubepy.jit.grid import Fixed
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul.problem import (
    BOX_UNIT,
    COLUMNS,
    MOST_PLACES,
    ROWS,
    Problem,
    has_boxes,
    is_dense,
    turned,
)
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.targets import Target

LEAST = 2048
"""Extents from which on a product is so much longer than its copies that tiles of Hopper win."""
UNITS = 128


def is_worth_copies(target: Target, problem: Problem) -> bool:
    """Whether copies of the factors and the product of these are faster than other tiles."""
    extents = problem.m, problem.n, problem.k
    if target.arch != "sm_90a" or problem.batch or min(extents) < LEAST:
        return False
    if max(extents) > MOST_PLACES:
        return False
    if is_rounded(problem):
        along_k = problem.left == ROWS and problem.right == COLUMNS
        return not (along_k and problem.has_factor_boxes)
    return problem.elements in (bf16, f16) and not problem.has_factor_boxes


def is_rounded(problem: Problem) -> bool:
    """Whether factors are taken as tf32, by tensor cores that want them dense along k."""
    return problem.elements is f32 and problem.precision == "tf32"


def aligned(planner: Planner, x: Memory, axis: int | None = None) -> Memory:
    """A matrix, or its copy, that is dense along an axis, -1 or -2, else along any, and whose lines
    along that begin where boxes may."""
    if axis is None:
        axis = -2 if not is_dense(x, -1) and is_dense(x, -2) else -1
    seen = x if axis == -1 else turned(x)
    if has_boxes(seen):
        return x
    made = replace(in_lines(planner, seen), shape=seen.shape)
    return made if axis == -1 else turned(made)


def in_lines(planner: Planner, x: Memory) -> Memory:
    """A copy of a matrix in rows of whole lines of 16 bytes; what is behind the columns of `x` is
    not set."""
    rows, columns = x.shape
    line = BOX_UNIT // x.dtype.itemsize
    made = planner.scratch((rows, -(-columns // line) * line), x.dtype)
    into = replace(made, shape=x.shape)
    if is_dense(x, -1):
        planner.launch(align, Fixed((rows, 1, 1), (UNITS, 1, 1)), x=x, out=into, line=line)
    else:
        copy_transposed(planner, x, into)
    return made


@cp.cube
def align(x: cp.Tensor, out: cp.Tensor, line: cp.Comptime[int]) -> None:
    """A cube copies a row, a line in each unit at a time."""
    row = cp.CUBE_POS
    for c in range(cp.UNIT_POS * line, out.shape[1], cp.CUBE_DIM * line):
        cp.store(out, (row, c), cp.load(x, (row, c), line=line))
