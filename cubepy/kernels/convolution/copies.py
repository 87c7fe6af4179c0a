"""Dense copies of strided arrays, for kernels that walk along rows."""

from __future__ import annotations

from math import prod
from typing import Any

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.calls.positions import unravelled


@cp.cube
def copy_rows(x: cp.Tensor, out: cp.Tensor, line: cp.Comptime[int]) -> None:
    """Copy each row, which lies along the last axis; one cube each."""
    where = unravelled(cp.CUBE_POS, out.shape[: out.rank - 1])
    copy_row(x[where], out[where], line)


def copy_row(x: Any, out: Any, line: Any) -> None:
    """Copy one row by lines."""
    for k in range(0, out.shape[0], line):
        cp.store(out, k, cp.load(x, k, line=line))


def copy_dense(planner: Planner, x: Memory, out: Memory) -> None:
    """A copy along the last axis, row by row."""
    line = max(1, planner.target.line_bytes // x.dtype.itemsize)
    planner.launch(copy_rows, prod(x.shape[:-1]), x=x, out=out, line=line)
