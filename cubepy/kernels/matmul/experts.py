"""Products of groups of rows: `grouped_matmul`."""

from __future__ import annotations

from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, i32, i64
from cubepy.jit.grid import Fixed
from cubepy.kernels.calls.arguments import wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.matmul.experts_on_hopper import BOX_ROWS, Grouped, multiply_groups
from cubepy.kernels.matmul.grouped import Rows, multiply_rows_of_groups
from cubepy.kernels.matmul.maps import boxes
from cubepy.kernels.matmul.problem import (
    COLUMNS,
    ROWS,
    Problem,
    check_factors,
    has_boxes,
    is_dense,
    result_of,
    sums_of,
    turned,
)
from cubepy.kernels.matmul.waves import grouped
from cubepy.lang.pipelines import ROW_BYTES, box

_PLANS = Plans()
UNITS, LINE = 128, 4
"""Units of a cube that makes a row on a GPU, and columns of each."""


def grouped_matmul(x: Any, weights: Any, ends: Any, *, out: Any = None) -> Any:
    """Products of groups of rows with one matrix each, as in mixtures of experts.

    `x`: (rows, k), its groups one after another; `weights`: (groups, k, n), any strides, the same
    dtype; `ends`: (groups,) of i32 or i64, the row before which each group ends, so that groups
    may be empty. An end below an earlier one, or behind the last row, counts as that. Rows that no
    group has give zeros. Gives (rows, n), an array of the library of `x`, or fills `out`.

    Dtypes, rounding and errors are those of `matmul`. `ends` is read by the kernel alone: nothing
    waits for it, and nothing checks it.
    """

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, *arrays)

    return call(
        _PLANS, "grouped_matmul", ("x", "weights", "ends"), (x, weights, ends), (), make, out
    )


def _plan(planner: Planner, x: Memory, weights: Memory, ends: Memory) -> None:
    check_factors("grouped_matmul", x, weights)
    _check_extents(x, weights, ends)
    (m, k), (groups, _, n) = x.shape, weights.shape
    out = planner.result(Shape((m, n), result_of(x.dtype)))
    if 0 in (m, n):
        return
    right = ROWS if is_dense(weights, -1) or not is_dense(weights, -2) else COLUMNS
    stored = weights if right == ROWS else turned(weights)
    sums = sums_of(x.dtype)
    problem = Problem(
        *(m, n, k, (), sums, sums, out.dtype, ROWS, right),
        elements=x.dtype,
        has_boxes=groups > 0 and all(map(has_boxes, (x, stored, out))),
    )
    t = grouped(planner.target, problem, groups)
    if t is None:
        _launch_rows(planner, (x, weights, ends, out), sums, right == COLUMNS)
    else:
        _launch_groups(planner, problem, (x, stored, ends, out), t)


def _check_extents(x: Memory, weights: Memory, ends: Memory) -> None:
    """E601 for shapes that do not fit, E602 for ends that are no integers."""
    if len(x.shape) != 2 or len(weights.shape) != 3 or x.shape[1] != weights.shape[1]:
        reason = f"`x` has shape {x.shape} and `weights` {weights.shape}"
        raise wrong("grouped_matmul", reason, "they are (rows, k) and (groups, k, n)")
    if ends.shape != weights.shape[:1] or ends.dtype not in (i32, i64):
        reason = f"`ends` is {ends.dtype} of shape {ends.shape}"
        raise wrong("grouped_matmul", reason, "it has an i32 or i64 for each matrix of `weights`")


def _launch_rows(
    planner: Planner, operands: tuple[Memory, ...], sums: DType, is_turned: bool
) -> None:
    x, weights, ends, out = operands
    target = planner.target
    is_cpu = target.kind in ("cpu", "interpreter")
    line = max(1, target.line_bytes // sums.itemsize) if is_cpu else LINE
    line = 1 if is_turned and not is_dense(x, -1) else line
    units = 1 if is_cpu else UNITS
    planner.launch(
        multiply_rows_of_groups,
        Fixed((x.shape[0], 1, 1), (units, 1, 1)),
        x=x,
        weights=weights,
        ends=ends,
        out=out,
        t=Rows(units, line, sums, is_turned and is_dense(x, -1)),
    )


def _launch_groups(
    planner: Planner, problem: Problem, operands: tuple[Memory, ...], t: Grouped
) -> None:
    """One cube for each multiprocessor, if there are as many tiles."""
    x, weights, ends, out = operands
    across = -(-problem.n // t.height)
    tiles = (problem.m // t.width + t.groups + 1) * across
    planner.launch(
        multiply_groups.configure(cubes_per_sm=1),
        Fixed((min(planner.target.multiprocessors, tiles), 1, 1), (t.units, 1, 1)),
        x=boxes(x, (BOX_ROWS, ROW_BYTES // t.factors.itemsize)),
        weights=boxes(weights, box(t.height, t.factors, t.left_turned)),
        ends=ends,
        out=out,
        k=problem.k,
        t=t,
    )
