"""How norms read rows: lines in the type of the computation, after the caller's prologue."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied
from cubepy.kernels.calls.positions import count_up


def read_line(row: Any, j: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """A line in the type of the computation; `fill` is None for one that is whole."""
    v = cp.load(row, j, line=tiling.line, fill=fill)
    return v if v.dtype == op.dtype else op.dtype(v)


def read_input(row: Any, j: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """A line of what is normalised; lanes behind the end are `fill`."""
    return with_prologue(row, j, read_line(row, j, op, tiling, fill), op, tiling, fill)


def with_prologue(row: Any, j: Any, v: Any, op: Any, tiling: Any, fill: Any) -> Any:
    """A line of a row in the type of the computation, after the caller's prologue."""
    v = v if v.dtype == op.dtype else op.dtype(v)
    if op.prologue is None:
        return v
    v = op.dtype(applied(op.prologue, v, ()))
    if fill is None:
        return v
    return cp.where(is_inside(row, j, tiling), v, cp.Line[op.dtype, tiling.line](fill))


def is_inside(row: Any, j: Any, tiling: Any) -> Any:
    """Which lanes of a line are elements of the row."""
    return count_up(tiling.line, cp.i32) < cp.i32(min(row.shape[0] - j, tiling.line))


def read_element(row: Any, j: Any, op: Any) -> Any:
    """One element as a line of one."""
    v = cp.Line[op.dtype, 1](op.dtype(row[j]))
    return v if op.prologue is None else op.dtype(applied(op.prologue, v, ()))
