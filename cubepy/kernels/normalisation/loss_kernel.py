"""Kernels of losses: statistics of rows without a result for each element."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.cubes import cube_sum
from cubepy.kernels.normalisation.kernel import row_statistics
from cubepy.kernels.normalisation.problem import Normalisation, RowTiling
from cubepy.kernels.reduction.kernel import two_sum


@cp.cube
def entropy_rows(
    x: cp.Tensor,
    target: cp.Tensor,
    out: cp.Tensor,
    ignored: cp.Comptime[int],
    op: cp.Comptime[Normalisation],
    tiling: cp.Comptime[RowTiling],
) -> None:
    """A cube makes the losses of `band` rows; its units share one row after the other, or groups
    of them take a row each."""
    rows, first = x.shape[0], cp.CUBE_POS * tiling.band
    if tiling.across < tiling.units:
        i = first + cp.UNIT_POS // tiling.across
        loss = loss_of(x[min(i, rows - 1)], target[min(i, rows - 1)], ignored, op, tiling)
        if i < rows and cp.UNIT_POS % tiling.across == 0:
            out[i] = loss
    else:
        for r in range(first, min(first + tiling.band, rows)):
            found = loss_of(x[r], target[r], ignored, op, tiling)
            if cp.UNIT_POS == 0:
                out[r] = found


def loss_of(row: Any, target: Any, ignored: Any, op: Any, tiling: Any) -> Any:
    """The loss of one row."""
    classes = row.shape[0]
    picked = op.dtype(row[min(max(cp.i64(target), 0), classes - 1)])
    top, total = row_statistics(row, op, tiling)
    loss = cp.log(total) + (top - picked)
    loss = cp.where(target >= 0 and target < classes, loss, op.dtype(float("nan")))
    return cp.where(target == ignored, op.dtype(0), loss)


@cp.cube
def add_losses(
    losses: cp.Tensor,
    target: cp.Tensor,
    out: cp.Tensor,
    ignored: cp.Comptime[int],
    is_mean: cp.Comptime[bool],
    counts: cp.Comptime[DType],
    line: cp.Comptime[int],
) -> None:
    """One cube adds all losses, or makes their mean over the rows that count: in lines, of which
    each takes what the sum before it has rounded off. Rows are numbered in `counts`."""
    n = losses.shape[0]
    total, error = cp.Line[losses.dtype, line](0), cp.Line[losses.dtype, line](0)
    count = cp.Line[counts, line](0)
    for i in range(cp.UNIT_POS * line, n, cp.CUBE_DIM * line):
        total, error = two_sum(total, cp.load(losses, i, line=line) + error)
        error = cp.where(error == error, error, losses.dtype(0))  # NaN, of infinite sums
        counted = cp.load(target, i, line=line, fill=ignored) != ignored
        count += cp.where(counted, counts(1), counts(0))
    found = cube_sum((total + error).sum())
    number = cube_sum(count.sum())
    if cp.UNIT_POS == 0:
        out[0] = found / losses.dtype(number) if is_mean else found
