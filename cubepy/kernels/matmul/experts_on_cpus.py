"""Products of groups of rows with a matrix each, on CPUs: the blocks of `blocks`, `units` and
`split`, each within a group, and for groups of few rows the ways of `streams`.

Where groups end is read by the kernel. A cube has some columns of a group's result, and a share of
its rows; smaller groups have fewer shares, and the other cubes of these nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.matmul import split, units
from cubepy.kernels.matmul.blocks import Blocks, add_rows, memory_of
from cubepy.kernels.matmul.grouped import put_zeros, rows_of_group
from cubepy.kernels.matmul.split import Split
from cubepy.kernels.matmul.streams import Dots, Streams, dot_rows, multiply_rows
from cubepy.kernels.matmul.units import Units
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Experts:
    """`few`: how groups of few rows are multiplied, with columns of its own for each cube, and
    `blocks`: how others are; None for a way that is not needed. Lines of `line` sums."""

    few: Streams | Dots | None
    blocks: Blocks | Units | Split | None
    line: int
    sums: DType

    @property
    def most_few(self) -> int:
        """The most rows that are few."""
        return 0 if self.few is None else self.few.rows * self.few.groups


@cp.cube
def multiply_groups_in_blocks(
    x: cp.Tensor,
    weights: cp.Tensor,
    ends: cp.Tensor,
    out: cp.Tensor,
    sums: Any,
    biases: Any,
    extras: Any,
    width: int,
    down: int,
    least: int,
    depth: int,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Experts],
) -> None:
    """A cube for `width` columns of each group, and of its rows one of `down` shares, none of which
    has fewer than `least`; in steps of `depth` along k.

    `x` is [rows, k], or [k, rows] where it is dense along columns; `weights` [groups, k, n] or
    [groups, n, k]; `out` [rows, n]; a bias [groups, rows, n]. `sums`: empty, or memory for sums
    between steps where `out` cannot hold them.
    """
    across = (out.shape[1] + width - 1) // width
    group, cube = cp.CUBE_POS // (across * down), cp.CUBE_POS % (across * down)
    begin, end = rows_of_group(group, ends, out.shape[0])
    if group == ends.shape[0]:
        for i in range(begin + cube, end, across * down):
            put_zeros(out, i, 0, out.shape[1], 1, extras, epilogue, t)
    elif begin < end:
        finish = tuple([bias[group] for bias in biases]), extras, epilogue
        which = cube, across * down
        if t.blocks is None or (t.few is not None and end - begin <= t.most_few):
            multiply_few(x, weights[group], out, begin, end, which, finish, t.few)
        else:
            rows = t.blocks.rows
            each = max(least, ((end - begin + down - 1) // down + rows - 1) // rows * rows)
            first, j0 = begin + cube // across * each, cube % across * width
            place = first, min(first + each, end), j0, min(width, out.shape[1] - j0)
            if first < end:
                multiply_share(x, weights[group], out, sums, place, end, depth, finish, t.blocks)


def multiply_share(
    x: Any, y: Any, out: Any, sums: Any, place: Any, end: Any, depth: Any, finish: Any, t: Any
) -> None:
    """Make the rows and columns that a cube has, `place`, of a group whose rows end at `end`."""
    biases, extras, epilogue = finish
    own = x[:end] if t.left == "rows" else x[:, :end]
    result = out, (sums[0] if len(sums) else out)[:end], ()
    if isinstance(t, Blocks):
        multiply_block(own, y, result, place, depth, biases, extras, epilogue, t)
    elif isinstance(t, Units):
        units.multiply_block(own, y, result, place, depth, biases, extras, epilogue, t)
    else:
        split.multiply_block(own, y, result, place, depth, biases, extras, epilogue, t)


def multiply_few(
    x: Any, y: Any, out: Any, first: Any, end: Any, which: Any, finish: Any, t: Any
) -> None:
    """Make the columns that a cube has of the few rows of a group, from `first` to `end`; `which`:
    the cube, of how many."""
    biases, extras, epilogue = finish
    multiply = multiply_rows if isinstance(t, Streams) else dot_rows
    for j in range(which[0] * t.width, out.shape[1], which[1] * t.width):
        place = (), first, j, min(t.width, out.shape[1] - j)
        multiply(x[first:end], y, out, place, biases, extras, epilogue, t)


def multiply_block(
    x: Any,
    y: Any,
    result: Any,
    place: Any,
    depth: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    t: Any,
) -> None:
    """Make the rows and columns of the result that a cube has by multiply-adds, as in `units`."""
    first, end, j0, columns = place
    inner = x.shape[1] if t.left == "rows" else x.shape[0]
    tiles = (columns + t.step - 1) // t.step
    memory = memory_of(t)
    for k0 in range(0, max(inner, 1), depth):
        part = k0, min(depth, inner - k0), k0 + depth >= inner
        for i0 in range(first, end, t.rows):
            at = i0, j0, tiles, i0 == first
            height = least_height(end - i0, t.rows)
            for h in cp.unroll(heights(t.rows)):
                if height == h:
                    add_rows(x, y, result, biases, extras, epilogue, memory, at, part, h, t)


def heights(rows: Any) -> Any:
    """The rows of the tiles that there are: of the last ones of groups, and of whole ones."""
    return (max(1, rows // 3), rows)


def least_height(rows: Any, most: Any) -> Any:
    """The rows of the least tile that holds some rows; of a whole one if none does."""
    least = heights(most)[0]
    return cp.i64(least if rows <= least else most)
