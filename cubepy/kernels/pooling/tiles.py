"""The kernel of pooling for cubes of many units: each makes lines of outputs of a few rows.

A unit loads what its windows see of each row at once, whole lines and the elements beside them,
and combines along the columns first, which is done once for all windows that share a row. Nothing
is stored between units: neighbours find each other's elements in the nearest cache.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.pooling.numbers import (
    combined,
    divisors_of,
    finished,
    nothing,
    read,
    read_number,
)
from cubepy.kernels.pooling.problem import Pooling
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class TileTiling:
    """How a kernel goes through its data.

    `line`: outputs at a time. A unit makes the lines of `band` rows; a cube has `across` units side
    by side and `down` of them below each other.
    """

    line: int
    band: int
    across: int
    down: int


def beside(row: Any, j: Any, count: Any, how: Any, via: Any) -> Any:
    """Some elements of a row as lines of one, those outside as nothing.

    An index is moved inside instead of tested, so that no load waits for a branch.
    """
    n = row.shape[0]
    found = tuple(read_number(row[min(max(j + k, 0), n - 1)], via) for k in range(count))
    empty = tuple(cp.Line[v.dtype, 1](nothing(how, row.dtype)) for v in found)
    return tuple(cp.where(j + k >= 0 and j + k < n, found[k], empty[k]) for k in range(count))


def seen_columns(row: Any, j: Any, how: Any, tiling: Any, is_inside: Any, via: Any) -> Any:
    """The elements of a row that a line of windows from column `j` on sees, as one line."""
    window, line = how.window, tiling.line
    stride = window.stride[2]
    own = read(row, (j * stride,), line * stride, is_inside, how, via)
    for v in beside(row, j * stride - window.before, window.before, how, via)[::-1]:
        own = cp.concat(v, own)
    for v in beside(row, (j + line) * stride, window.behind, how, via):
        own = cp.concat(own, v)
    return own


def row_result(row: Any, j: Any, how: Any, tiling: Any, is_inside: Any, via: Any) -> Any:
    """What the columns of a line of windows give in one row."""
    window = how.window
    seen = seen_columns(row, j, how, tiling, is_inside, via)
    reach = (tiling.line - 1) * window.stride[2] + 1
    starts = tuple(k * window.dilation[2] for k in range(window.kernel[2]))
    return combined(tuple(seen[k : k + reach : window.stride[2]] for k in starts), how)


def result_of(x: Any, at: Any, j: Any, how: Any, tiling: Any, inside: Any, via: Any) -> Any:
    """As `row_result`, for `at` = [depth, row], which may be over the edge.

    For maxima stands the row at the edge instead, which the window sees as well, so that no load
    waits for a branch; for sums it counts as nothing.
    """
    depth, row = min(max(at[0], 0), x.shape[0] - 1), min(max(at[1], 0), x.shape[1] - 1)
    v = row_result(x[depth, row], j, how, tiling, inside, via)
    if how.is_max:
        return v
    is_there = depth == at[0] and row == at[1]
    return cp.where(is_there, v, cp.Line[v.dtype, tiling.line](nothing(how, v.dtype)))


def pool_tile(x: Any, out: Any, place: Any, how: Any, tiling: Any, inside: Any, via: Any) -> None:
    """The lines of outputs from `place` on, [n, channel, depth, row, column], in `band` rows."""
    window, band = how.window, tiling.band
    n, c, z, y, j = place
    front = z * window.stride[0] - window.padding[0]
    top = y * window.stride[1] - window.padding[1]
    count = (band - 1) * window.stride[1] + window.kernel[1]
    rows = tuple(
        combined(
            tuple(
                result_of(x[n, c], (front + d, top + r), j, how, tiling, inside, via)
                for d in range(window.kernel[0])
            ),
            how,
        )
        for r in range(count)
    )
    for k in cp.unroll(range(band)):
        if y + k < out.shape[3]:
            first = k * window.stride[1]
            v = combined(rows[first : first + window.kernel[1]], how)
            extents = x.shape[2:]
            divisor = divisors_of((z, y + k, j), tiling.line, extents, v.dtype, how)
            v = finished(v, (n, c, z, y + k, j), divisor, how, via)
            cp.store(out[n, c, z, y + k], j, v, hint="stream", whole=inside)


@cp.cube
def pool_tiles(
    x: cp.Tensor,
    out: cp.Tensor,
    extras: Any,
    how: cp.Comptime[Pooling],
    tiling: cp.Comptime[TileTiling],
    functions: cp.Comptime[Any],
) -> None:
    """A cube pools a tile of one plane of `x[n, channel, depth, row, column]`."""
    via, line = (*functions, extras), tiling.line
    width, height = line * cp.CUBE_DIM_X, tiling.band * cp.CUBE_DIM_Y
    across = (out.shape[4] + width - 1) // width
    down = (out.shape[3] + height - 1) // height
    n, c, z, tile = unravelled(cp.CUBE_POS_X // across, (*out.shape[:3], down))
    j = cp.CUBE_POS_X % across * width + cp.UNIT_POS_X * line
    y = tile * height + cp.UNIT_POS_Y * tiling.band
    if j < out.shape[4] and y < out.shape[3]:
        place = (n, c, z, y, j)
        if j + line <= out.shape[4] and (j + line) * how.window.stride[2] <= x.shape[4]:
            pool_tile(x, out, place, how, tiling, True, via)
        else:
            pool_tile(x, out, place, how, tiling, False, via)
