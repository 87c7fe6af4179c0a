"""`cp.cmma`: products of small matrices that a plane computes together, as fragments.

A fragment is a tile that the plane holds: `fragment` makes one, `load` and `store` move it, `mma`
multiplies. Written in the language: where there are no matrix units every unit computes the tile,
and the first one of the plane stores it.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import UNIT_POS_PLANE, local, sync_plane


def fragment(rows: int, columns: int, dtype: Any, fill: Any = None) -> Any:
    """A tile of `rows` x `columns` (comptime) elements; uninitialised unless filled."""
    return local((rows, columns), dtype, fill)


def load(tile: Any, x: Any, index: Any) -> None:
    """tile[r, c] = x[i + r, j + c], with index = (i, j); zero outside of `x`. Converts."""
    i, j = index
    for r in range(tile.shape[0]):
        for c in range(tile.shape[1]):
            inside = i + r < x.shape[0] and j + c < x.shape[1]
            tile[r, c] = x[i + r, j + c] if inside else tile.dtype(0)


def mma(accumulator: Any, a: Any, b: Any) -> None:
    """accumulator += a @ b, in the type of the accumulator, one fused step for each k in order.

    Shapes: (m, n), (m, k), (k, n). Every unit of the plane must arrive.
    """
    for r in range(accumulator.shape[0]):
        for c in range(accumulator.shape[1]):
            total = accumulator[r, c]
            for k in range(a.shape[1]):
                total = total + accumulator.dtype(a[r, k]) * accumulator.dtype(b[k, c])
            accumulator[r, c] = total


def store(x: Any, index: Any, tile: Any) -> None:
    """x[i + r, j + c] = tile[r, c], with index = (i, j); what lies outside of `x` is dropped."""
    i, j = index
    if UNIT_POS_PLANE == 0:
        for r in range(tile.shape[0]):
            for c in range(tile.shape[1]):
                if i + r < x.shape[0] and j + c < x.shape[1]:
                    x[i + r, j + c] = tile[r, c]
    sync_plane()
