"""Transpose through a tile in shared memory, so that reads and writes both run along rows."""

from typing import Any

import numpy as np

import cubepy as cp

TILE = 32
ROWS = 8  # a cube has TILE x ROWS units; each moves TILE // ROWS elements


@cp.cube
def transpose_kernel(x, out):
    # One more column than needed: units that read a column hit different banks on a GPU.
    tile = cp.shared((TILE, TILE + 1), x.dtype)
    tx, ty = cp.UNIT_POS_X, cp.UNIT_POS_Y
    row, column = cp.CUBE_POS_Y * TILE, cp.CUBE_POS_X * TILE

    for k in range(ty, TILE, ROWS):
        if row + k < x.shape[0] and column + tx < x.shape[1]:
            tile[k, tx] = x[row + k, column + tx]
    cp.sync_cube()  # the tile is complete
    for k in range(ty, TILE, ROWS):
        if column + k < x.shape[1] and row + tx < x.shape[0]:
            out[column + k, row + tx] = tile[tx, k]


def transpose(x: np.ndarray, **settings: Any) -> np.ndarray:
    """x.T as a new array; `settings` are those of `kernel.configure`."""
    rows, columns = x.shape
    out = np.empty((columns, rows), x.dtype)
    cubes = (-(-columns // TILE), -(-rows // TILE))
    transpose_kernel.configure(**settings)[cubes, (TILE, ROWS)](x, out)
    return out


def main() -> None:
    x = np.random.default_rng(0).random((1000, 700), np.float32)
    np.testing.assert_array_equal(transpose(x), x.T)
    print(f"transpose: {x.shape[0]} x {x.shape[1]} equal to NumPy")


if __name__ == "__main__":
    main()
