"""Dense copies of strided arrays, for kernels that walk along rows."""

from __future__ import annotations

from typing import Any

import cubepy as cp
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
