"""Products of groups of rows with a matrix each, on GPUs: the tiles of `fragments` and `tiles`,
each within a group. `experts_on_hopper` has the way by `wgmma`.

Where groups end is read by the kernel. There are as many cubes as the groups can be cut into at
most; those that are too many make a tile of no elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cubepy as cp
from cubepy.jit.grid import Fixed
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul import fragments, tiles
from cubepy.kernels.matmul.fragments import Fragments
from cubepy.kernels.matmul.grids import choose_grid
from cubepy.kernels.matmul.grouped import Zeros, block_of_group, put_zeros
from cubepy.kernels.matmul.problem import COLUMNS, Problem, turned
from cubepy.kernels.matmul.tiles import Tiles

if TYPE_CHECKING:
    from cubepy.kernels.matmul.experts import Groups


def launch_tiles(planner: Planner, g: Groups, problem: Problem) -> None:
    """Add the launch; `problem`: a stack of products, each of as many rows as a group has on the
    average."""
    t = choose_grid(planner.target, problem)
    rows, columns = g.out.shape
    blocks = rows // t.height + g.count + 1
    planner.launch(
        multiply_groups_in_tiles,
        Fixed((blocks * -(-columns // t.width), 1, 1), (t.units, 1, 1)),
        x=g.x,
        weights=turned(g.weights) if problem.right == COLUMNS else g.weights,
        **g.beside,
        t=t,
    )


@cp.cube
def multiply_groups_in_tiles(
    x: cp.Tensor,
    weights: cp.Tensor,
    ends: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Fragments | Tiles],
) -> None:
    """A cube for each tile. `x` is [rows, k], `weights` [groups, k, n] or [groups, n, k]; `out`
    [rows, n], a bias [groups, rows, n]."""
    across = (out.shape[1] + t.width - 1) // t.width
    block, column = cp.CUBE_POS // across, cp.CUBE_POS % across * t.width
    group, row, end = block_of_group(block, ends, out.shape[0], t.height)
    count = ends.shape[0]
    if group == count:
        last = min(column + t.width, out.shape[1])
        zeros = cp.comptime(Zeros(t.sums))
        for i in range(row, min(row + t.height, end)):
            put_zeros(out, i, column + cp.UNIT_POS, last, cp.CUBE_DIM, extras, epilogue, zeros)
    stop = end if group < count and row < end else cp.i64(0)
    inner = x.shape[1] if stop > 0 else 0
    chosen = min(group, count - 1)
    some = tuple([bias[chosen] for bias in biases])
    own, z = x[: max(end, 1), :inner], out[:stop]
    if isinstance(t, Fragments):
        fragments.make_tile(own, weights[chosen], z, (row, column), (), some, extras, epilogue, t)
    else:
        tiles.make_tile(own, weights[chosen], z, (row, column), (), some, extras, epilogue, t)
