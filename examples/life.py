"""Conway's game of life on a torus; each cube loads its tile and the cells around it once."""

from typing import Any

import numpy as np

import cubepy as cp

TILE = 16
HALO = TILE + 2


@cp.cube
def life_kernel(cells, out):
    tile = cp.shared((HALO, HALO), cp.i32)
    rows, columns = cells.shape
    top, left = cp.CUBE_POS_Y * TILE, cp.CUBE_POS_X * TILE

    # There are more cells in the tile than units, so each unit loads one or two.
    for k in range(cp.UNIT_POS, HALO * HALO, TILE * TILE):
        y, x = k // HALO, k % HALO
        # % is Python's: the row above row 0 is the last row.
        tile[y, x] = cells[(top + y - 1) % rows, (left + x - 1) % columns]
    cp.sync_cube()

    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < rows and j < columns:
        y, x = cp.UNIT_POS_Y, cp.UNIT_POS_X
        alive = -tile[y + 1, x + 1]
        for dy in cp.unroll(range(3)):
            for dx in cp.unroll(range(3)):
                alive += tile[y + dy, x + dx]
        lives = alive == 3 or (alive == 2 and tile[y + 1, x + 1] == 1)
        out[i, j] = 1 if lives else 0


def life(cells: np.ndarray, generations: int, **settings: Any) -> np.ndarray:
    """The cells (0 or 1) after some generations."""
    cells, other = cells.copy(), np.empty_like(cells)
    step = life_kernel.configure(**settings).over(cells.shape, cube_dim=(TILE, TILE))
    for _ in range(generations):
        step(cells, other)
        cells, other = other, cells
    return cells


def reference(cells: np.ndarray, generations: int) -> np.ndarray:
    for _ in range(generations):
        around = sum(
            np.roll(cells, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx
        )
        cells = ((around == 3) | ((around == 2) & (cells == 1))).astype(cells.dtype)
    return cells


def main() -> None:
    cells = np.random.default_rng(0).integers(0, 2, (100, 150), np.uint8)
    np.testing.assert_array_equal(life(cells, 50), reference(cells, 50))
    print("life: 50 generations of 100 x 150 cells equal to NumPy")


if __name__ == "__main__":
    main()
