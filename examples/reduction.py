"""Two reductions: a tree in shared memory, and one that leaves the adding to planes."""

from typing import Any

import numpy as np

import cubepy as cp

CUBE = 256


@cp.cube
def tree_sum_kernel(x, partial):
    """Each cube adds a share of `x` and writes one number."""
    shared = cp.shared(CUBE, x.dtype)
    unit = cp.UNIT_POS

    total = 0.0
    for i in range(cp.ABSOLUTE_POS, x.size, CUBE * cp.CUBE_COUNT):  # CUDA's grid-stride loop
        total += x.flat[i]
    shared[unit] = total
    cp.sync_cube()

    width = CUBE // 2
    while width > 0:  # the same for all units, so the barrier inside is legal
        if unit < width:
            shared[unit] += shared[unit + width]
        cp.sync_cube()
        width = width // 2

    if unit == 0:
        partial[cp.CUBE_POS] = shared[0]


def tree_sum(x: np.ndarray, cubes: int = 16, **settings: Any) -> float:
    """The sum of all elements: two launches, for the cubes do not wait for each other."""
    kernel = tree_sum_kernel.configure(**settings)
    partial, total = np.empty(cubes, x.dtype), np.empty(1, x.dtype)
    kernel[cubes, CUBE](x, partial)
    kernel[1, CUBE](partial, total)
    return float(total[0])


@cp.cube
def row_sums_kernel(x, out):
    """A plane per row: no shared memory and no barrier. On a CPU a plane is one unit."""
    row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    if row < x.shape[0]:  # true or false for a whole plane
        total = 0.0
        for j in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM):
            total += x[row, j]
        total = cp.plane_sum(total)  # on a CPU: total itself
        if cp.plane_elect():
            out[row] = total


def row_sums(x: np.ndarray, **settings: Any) -> np.ndarray:
    """x.sum(axis=1)."""
    out = np.empty(x.shape[0], x.dtype)
    row_sums_kernel.configure(**settings).over(x.shape[0], per="plane")(x, out)
    return out


def main() -> None:
    x = np.random.default_rng(0).random((1000, 777), np.float32)
    np.testing.assert_allclose(tree_sum(x), x.sum(dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(row_sums(x), x.sum(axis=1, dtype=np.float64), rtol=1e-5)
    print(f"reduction: tree and planes agree with NumPy on {x.size} elements")


if __name__ == "__main__":
    main()
