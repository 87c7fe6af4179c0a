"""Convolutions of few channels a group on GPUs, where pixels lie side by side.

Neighbouring units have neighbouring columns, and each makes some rows of its column, of some
filters of a group: what it sees of a row passes through registers once, for all of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.epilogues import applied_along
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.convolution.groups import first_channel
from cubepy.kernels.convolution.planes import first_of, put
from cubepy.kernels.convolution.problem import Window
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Columns:
    """A unit makes `rows` of a column, of `filters` of a group of `channels`; `units` to a cube."""

    rows: int
    filters: int
    channels: int
    units: int
    sums: DType


@cp.cube
def convolve_columns(
    x: cp.Tensor,
    weight: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    window: cp.Comptime[Window],
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Columns],
) -> None:
    """A unit makes a part of one column. `x` and `out` are [n, channel, depth, row, column],
    `weight` is [filter, channel, depth, row, column]."""
    rows = cp.i32(out.shape[3])
    bands = (cp.u32(rows) + t.rows - 1) // t.rows
    lines, columns = cp.u32(out.shape[1]) // t.filters, cp.u32(out.shape[4])
    extents = (cp.u32(out.shape[0]), lines, cp.u32(out.shape[2]), bands, columns)
    if product(extents) > cp.u32(cp.ABSOLUTE_POS):
        place = unravelled(cp.u32(cp.ABSOLUTE_POS), extents)
        n, line, z, band, i = (cp.i32(k) for k in place)
        f, y = line * t.filters, min(band * t.rows, rows - t.rows)
        found = cp.local((t.filters, t.rows), t.sums, fill=0)
        if len(biases) > 0:
            for e in cp.unroll(range(t.filters)):
                for r in cp.unroll(range(t.rows)):
                    found[e, r] = t.sums(biases[0][f + e])
        c0 = first_channel(f, x.shape[1], out.shape[1], t)
        for c in range(t.channels):
            add_plane(x[n, c0 + c], weight, found, (z, y, i), (f, c), window, t)
        for e in cp.unroll(range(t.filters)):
            for r in cp.unroll(range(t.rows)):
                v = cp.Line[t.sums, 1](found[e, r])
                if epilogue is not None:
                    v = applied_along(epilogue, v, (n, f + e, z, y + r, i), 4, extras)
                put(out[n, f + e, z, y + r], i, v, 1)


def add_plane(x: Any, weight: Any, found: Any, place: Any, of: Any, window: Any, t: Any) -> None:
    """Add the products of one channel `x`, [depth, row, column], to the sums at `place`."""
    depth, row, column = tuple(first_of(place[k], k, window) for k in range(3))
    (f, c), taps = of, window.kernel[2]
    for a in range(window.kernel[0]):
        d = depth + cp.i32(a) * window.dilation[0]
        if d >= 0 and d < x.shape[0]:
            factors = cp.local((t.filters, window.kernel[1], taps), t.sums)
            for e in cp.unroll(range(t.filters)):
                for b in cp.unroll(range(window.kernel[1])):
                    for k in cp.unroll(range(taps)):
                        factors[e, b, k] = t.sums(weight[f + e, c, a, b, k])
            for s in cp.unroll(rows_seen(t.rows, window)):
                if row + s >= 0 and row + s < x.shape[1]:
                    add_row(x[d, row + s], factors, found, (s, column), window, t)


def add_row(row: Any, factors: Any, found: Any, at: Any, window: Any, t: Any) -> None:
    """Add the products of a row of the array, which is `at[0]` rows behind the first that is seen,
    from column `at[1]` on."""
    (s, first), step = at, window.stride[1]
    for k in cp.unroll(range(window.kernel[2])):
        i, v = first + k * window.dilation[2], t.sums(0)
        if i >= 0 and i < row.shape[0]:
            v = t.sums(row[i])
        for b in cp.unroll(range(window.kernel[1])):
            r = s - b * window.dilation[1]
            if r % step == 0 and 0 <= r < t.rows * step:
                for e in cp.unroll(range(t.filters)):
                    found[e, r // step] = found[e, r // step] + v * factors[e, b, k]


def rows_seen(rows: int, window: Window) -> list[int]:
    """What neighbouring rows of results see, in rows behind the first."""
    taps, step, apart = window.kernel[1], window.stride[1], window.dilation[1]
    return sorted({r * step + b * apart for r in range(rows) for b in range(taps)})
