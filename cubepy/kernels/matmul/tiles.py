"""Products on GPUs: tiles of both factors in shared memory, tiles of the result in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished_number
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Tiles:
    """A cube of `side` by `side` units makes `rows` by `columns` results in each; `depth` elements
    of k are in shared memory at a time."""

    side: int
    rows: int
    columns: int
    depth: int
    factors: DType
    sums: DType

    @property
    def height(self) -> int:
        """Rows of a cube."""
        return self.side * self.rows

    @property
    def width(self) -> int:
        """Columns of a cube."""
        return self.side * self.columns


@cp.cube
def multiply_tiles(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Tiles],
) -> None:
    """A cube for each tile of each product [..., m, k] by [..., k, n]; tiles of a column of cubes
    follow each other, so that they share the right factor."""
    m, n = out.shape[out.rank - 2], out.shape[out.rank - 1]
    down, across = (m + t.height - 1) // t.height, (n + t.width - 1) // t.width
    where = unravelled(cp.CUBE_POS // (down * across), out.shape[: out.rank - 2])
    x, y, z = chosen(a, where), chosen(b, where), chosen(out, where)
    i0 = cp.CUBE_POS % down * t.height
    j0 = cp.CUBE_POS // down % across * t.width
    left = cp.shared((t.depth, t.height + 1), t.factors)
    right = cp.shared((t.depth, t.width), t.factors)
    found = cp.local((t.rows, t.columns), t.sums, fill=0)
    ty, tx = cp.UNIT_POS // t.side, cp.UNIT_POS % t.side
    for k0 in range(0, x.shape[1], t.depth):
        bring(x, y, left, right, i0, j0, k0, t)
        cp.sync_cube()
        for k in range(t.depth):
            column = tuple(t.sums(left[k, ty + r * t.side]) for r in range(t.rows))
            row = tuple(t.sums(right[k, tx + c * t.side]) for c in range(t.columns))
            for r in cp.unroll(range(t.rows)):
                for c in cp.unroll(range(t.columns)):
                    found[r, c] = found[r, c] + column[r] * row[c]
        cp.sync_cube()
    for r in cp.unroll(range(t.rows)):
        for c in cp.unroll(range(t.columns)):
            i, j = i0 + ty + r * t.side, j0 + tx + c * t.side
            if i < m and j < n:
                z[i, j] = finished_number(found[r, c], (*where, i, j), biases, extras, epilogue)


def bring(x: Any, y: Any, left: Any, right: Any, i0: Any, j0: Any, k0: Any, t: Any) -> None:
    """One step's tiles of both factors, with zeros outside of them."""
    units = t.side * t.side
    for e in cp.unroll(range(0, t.height * t.depth, units)):
        i, k = (e + cp.UNIT_POS) // t.depth, (e + cp.UNIT_POS) % t.depth
        inside = i0 + i < x.shape[0] and k0 + k < x.shape[1]
        left[k, i] = t.factors(x[i0 + i, k0 + k]) if inside else t.factors(0)
    for e in cp.unroll(range(0, t.depth * t.width, units)):
        k, j = (e + cp.UNIT_POS) // t.width, (e + cp.UNIT_POS) % t.width
        inside = k0 + k < y.shape[0] and j0 + j < y.shape[1]
        right[k, j] = t.factors(y[k0 + k, j0 + j]) if inside else t.factors(0)
