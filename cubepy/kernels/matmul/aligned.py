"""Factors whose rows the copy engine cannot describe, as copies with longer rows."""

from __future__ import annotations

from dataclasses import replace

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.ir.types import bf16, f16
from cubepy.jit.grid import Fixed
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul.problem import BOX_UNIT, Problem, has_boxes, is_dense, turned
from cubepy.targets import Target

LEAST = 2048
"""Extents from which on a product is so much longer than its copies that tiles of Hopper win."""
UNITS = 128


def is_worth_copies(target: Target, problem: Problem) -> bool:
    """Whether copies of the factors and the product of these are faster than other tiles."""
    if target.arch != "sm_90a" or problem.elements not in (bf16, f16) or problem.batch:
        return False
    least = min(problem.m, problem.n, problem.k)
    return not problem.has_factor_boxes and least >= LEAST


def aligned(planner: Planner, x: Memory) -> Memory:
    """A matrix, or its copy, whose rows, or columns if these are dense, begin where boxes may."""
    is_turned = not is_dense(x, -1) and is_dense(x, -2)
    seen = turned(x) if is_turned else x
    if has_boxes(seen):
        return x
    rows, columns = seen.shape
    line = BOX_UNIT // x.dtype.itemsize
    made = planner.scratch((rows, -(-columns // line) * line), x.dtype)
    made = replace(made, shape=seen.shape)
    planner.launch(align, Fixed((rows, 1, 1), (UNITS, 1, 1)), x=seen, out=made, line=line)
    return turned(made) if is_turned else made


@cp.cube
def align(x: cp.Tensor, out: cp.Tensor, line: cp.Comptime[int]) -> None:
    """A cube copies a row, a line in each unit at a time."""
    row = cp.CUBE_POS
    for c in range(cp.UNIT_POS * line, out.shape[1], cp.CUBE_DIM * line):
        cp.store(out, (row, c), cp.load(x, (row, c), line=line))
