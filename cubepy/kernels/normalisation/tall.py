"""Softmax down few long columns by many units: maxima and sums of parts of columns first."""

from __future__ import annotations

from math import prod
from typing import Any

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.jit.grid import Over
from cubepy.kernels.calls.axes import Axis
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.epilogues import applied
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.normalisation.problem import Normalisation
from cubepy.kernels.reduction.launches import Reducer
from cubepy.kernels.reduction.problem import Reduction, exp_of_distance
from cubepy.targets import Target

LEAST_ROWS, BUSY_UNITS, UNITS = 64, 256, 128
"""Rows from which on columns are worth parts, units that each multiprocessor should have, without
parts, and units of a cube."""


def is_tall(target: Target, rows: int, units: int) -> bool:
    """Whether so many units, each of which has whole columns, would leave a device idle."""
    return is_wide(target) and rows >= LEAST_ROWS and units < BUSY_UNITS * target.multiprocessors


def launch_tall_columns(planner: Planner, op: Normalisation, x: Memory, out: Memory) -> None:
    """Softmax, or its logarithm, along the last axis but one; columns lie side by side."""
    *outer, rows, columns = x.shape
    kept = (*outer, columns)
    top, total = (planner.scratch(kept, op.dtype) for _ in range(2))
    given = (*x.strides[:-2], x.strides[-1])
    axes = [
        Axis(n, (step, one, other))
        for n, step, one, other in zip(kept, given, total.strides, top.strides, strict=True)
    ]
    down = [Axis(rows, (x.strides[-2],))]
    largest = Reduction("max", op.dtype, prologue=op.prologue)
    into_top = [Axis(a.extent, (a.strides[0], a.strides[2])) for a in axes]
    Reducer(planner, largest, 1).launch(x, top, into_top, down)
    powers = Reduction("sum", op.dtype, read=exp_of_distance, prologue=op.prologue)
    Reducer(planner, powers, 1, top).launch(x, total, axes, down)
    line = max(1, planner.target.line_bytes // x.dtype.itemsize)
    count = prod((*outer, rows)) * -(-columns // line)
    planner.launch(
        soften_given,
        Over(-(-count // UNITS), "cube", UNITS),
        x=x,
        top=top,
        total=total,
        out=out,
        op=op,
        line=line,
    )


@cp.cube
def soften_given(
    x: cp.Tensor,
    top: cp.Tensor,
    total: cp.Tensor,
    out: cp.Tensor,
    op: cp.Comptime[Normalisation],
    line: cp.Comptime[int],
) -> None:
    """A unit makes a line of results, from the maxima and the sums of its columns."""
    columns, items = out.shape[-1], product(out.shape[:-1])
    lines = (columns + line - 1) // line
    if items * lines > cp.ABSOLUTE_POS:
        where, at = unravelled(cp.ABSOLUTE_POS // lines, out.shape[:-1]), cp.ABSOLUTE_POS % lines
        kept = where[:-1]
        put_line(x[where], top[kept], total[kept], out[where], at * line, op, line)


def put_line(row: Any, top: Any, total: Any, out: Any, j: Any, op: Any, line: Any) -> None:
    """Results from column `j` on. Those of columns whose maximum is infinite are NaN, as no
    distance from it is a number."""
    v = op.dtype(cp.load(row, j, line=line))
    v = v if op.prologue is None else op.dtype(applied(op.prologue, v, ()))
    most = cp.load(top, j, line=line)
    distance, all_powers = v - most, cp.load(total, j, line=line) + (most - most)
    if op.name == "softmax":
        cp.store(out, j, cp.exp(distance) / all_powers)
    else:
        cp.store(out, j, distance - cp.log(all_powers))
