"""Products of groups of rows with a matrix each, as in mixtures of experts.

The rows of a group follow each other; where each group ends is known on the device alone. So cubes
find the group of a row while they run; `experts_on_hopper` has the way by tensor cores.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
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
    t: cp.Comptime[Rows],
) -> None:
    """A cube for each row of `x` [rows, k]; `weights` [groups, k, n], `out` [rows, n]."""
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
            out[row, c] = out.dtype(sums.sum())
        else:
            cp.store(out[row], c, out.dtype(sums))


def group_of_row(row: Any, ends: Any) -> Any:
    """The first group that ends behind a row; the number of groups where none does."""
    group = cp.i64(0)
    while group < ends.shape[0] and row >= ends[group]:
        group += 1
    return group
