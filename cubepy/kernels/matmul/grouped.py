"""Where groups of rows begin and end, which is known on the device alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.matmul.finish import finished
from cubepy.record import dataclass


def rows_of_group(group: Any, ends: Any, rows: Any) -> Any:
    """The first row of a group and the one behind its last; of the group behind the last one, the
    rows that no group has."""
    begin = cp.i64(0)
    for g in range(min(group, ends.shape[0])):
        begin = max(begin, cp.i64(ends[g]))
    begin = min(begin, rows)
    return begin, end_of_group(group, begin, ends, rows)


def end_of_group(group: Any, begin: Any, ends: Any, rows: Any) -> Any:
    """The row behind the last one of a group that begins at a row."""
    end = cp.i64(rows)
    if group < ends.shape[0]:
        end = min(max(begin, cp.i64(ends[group])), end)
    return end


def block_of_group(number: Any, ends: Any, rows: Any, height: Any) -> Any:
    """The group, the first row and the end of the group of a block, where groups are cut into
    blocks of so many rows, which are numbered; behind the last one, a row at an end."""
    group, begin, rest = cp.i64(0), cp.i64(0), cp.i64(number)
    end = end_of_group(group, begin, ends, rows)
    count = (end - begin + height - 1) // height
    while group < ends.shape[0] and rest >= count:
        rest, begin, group = rest - count, end, group + 1
        end = end_of_group(group, begin, ends, rows)
        count = (end - begin + height - 1) // height
    return group, min(begin + rest * height, end), end


@cp.cube
def put_all_zeros(
    out: cp.Tensor,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    sums: cp.Comptime[DType],
) -> None:
    """A unit for each row, where there are no groups."""
    if out.shape[0] > cp.ABSOLUTE_POS:
        zeros = cp.comptime(Zeros(sums))
        put_zeros(out, cp.ABSOLUTE_POS, 0, out.shape[1], 1, extras, epilogue, zeros)


@dataclass(frozen=True, slots=True)
class Zeros:
    """What rows that no group has are, in lines of `line` sums."""

    sums: DType
    line: int = 1


def put_zeros(
    out: Any, i: Any, first: Any, last: Any, step: Any, extras: Any, epilogue: Any, t: Any
) -> None:
    """The results of a row that no group has, lines of columns from `first` to `last`."""
    for j in range(first, last, step * t.line):
        v = finished(cp.Line[t.sums, t.line](0), (i, j), (), extras, epilogue)
        cp.store(out[i], j, v)
