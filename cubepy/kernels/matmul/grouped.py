"""Products of groups of rows with a matrix each, as in mixtures of experts.

The rows of a group follow each other; where each group ends is known on the device alone. So cubes
find the group of a row while they run; `experts_on_cpus` and `experts_on_hopper` have faster ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.matmul.finish import finished, finished_number
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Rows:
    """A cube of `units` makes one row, `line` columns in each unit at a time; where matrices are
    `turned`, dense along k, one column of lines along k."""

    units: int
    line: int
    sums: Any
    turned: bool


@cp.cube
def multiply_rows_of_groups(
    x: cp.Tensor,
    weights: cp.Tensor,
    ends: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Rows],
) -> None:
    """A cube for each row of `x` [rows, k]; `weights` [groups, k, n], `out` [rows, n], a bias
    [groups, rows, n]."""
    row = cp.CUBE_POS
    group = group_of_row(row, ends)
    step = 1 if t.turned else t.line
    for c in range(cp.UNIT_POS * step, out.shape[1], cp.CUBE_DIM * step):
        sums = cp.Line[t.sums, t.line](0)
        if group < weights.shape[0]:
            for i in range(0, x.shape[1], t.line // step):
                if t.turned:
                    values = cp.load(weights[group, :, c], i, line=t.line)
                else:
                    values = cp.load(weights[group, i], c, line=t.line)
                left = cp.load(x[row], i, line=t.line) if t.turned else x[row, i]
                sums = sums + t.sums(left) * t.sums(values)
        if t.turned:
            v = sums.sum()
            if len(biases) and group < weights.shape[0]:
                v = v + t.sums(biases[0][group, row, c])
            out[row, c] = out.dtype(finished_number(v, (row, c), (), extras, epilogue))
        else:
            if len(biases) and group < weights.shape[0]:
                sums = sums + t.sums(cp.load(biases[0][group, row], c, line=t.line))
            cp.store(out[row], c, out.dtype(finished(sums, (row, c), (), extras, epilogue)))


def group_of_row(row: Any, ends: Any) -> Any:
    """The first group that ends behind a row; the number of groups where none does."""
    group = cp.i64(0)
    while group < ends.shape[0] and row >= ends[group]:
        group += 1
    return group


def rows_of_group(group: Any, ends: Any, rows: Any) -> Any:
    """The first row of a group and the one behind its last; of the group behind the last one, the
    rows that no group has."""
    begin, end = cp.i64(0), cp.i64(rows)
    for g in range(min(group, ends.shape[0])):
        begin = max(begin, cp.i64(ends[g]))
    if group < ends.shape[0]:
        end = min(max(begin, cp.i64(ends[group])), rows)
    return min(begin, rows), end
