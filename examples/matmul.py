"""Matrix product with tiles in shared memory, for any sizes.

This is the kernel that CUDA's guide begins with: each element of a and b is read from global memory
once for each tile instead of once for each product. It is not the fastest form on any device.
"""

from typing import Any

import numpy as np

import cubepy as cp


@cp.cube
def matmul_kernel(a, b, c, TILE: cp.Comptime[int]):
    a_tile = cp.shared((TILE, TILE), a.dtype)
    b_tile = cp.shared((TILE, TILE), b.dtype)
    tx, ty = cp.UNIT_POS_X, cp.UNIT_POS_Y
    row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    rows, columns, inner = a.shape[0], b.shape[1], a.shape[1]

    total = 0.0
    for k in range(0, inner, TILE):
        # Units outside the matrices load zeros instead of leaving: all must reach the barriers.
        a_tile[ty, tx] = a[row, k + tx] if row < rows and k + tx < inner else 0.0
        b_tile[ty, tx] = b[k + ty, column] if k + ty < inner and column < columns else 0.0
        cp.sync_cube()
        for t in cp.unroll(range(TILE)):
            total += a_tile[ty, t] * b_tile[t, tx]
        cp.sync_cube()
    if row < rows and column < columns:
        c[row, column] = total


def matmul(a: np.ndarray, b: np.ndarray, tile: int = 16, **settings: Any) -> np.ndarray:
    """a @ b."""
    c = np.empty((a.shape[0], b.shape[1]), a.dtype)
    matmul_kernel.configure(**settings).over(c, cube_dim=(tile, tile))(a, b, c, tile)
    return c


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((200, 300), np.float32), rng.random((300, 150), np.float32)
    np.testing.assert_allclose(matmul(a, b), a.astype(float) @ b.astype(float), rtol=1e-5)
    print("matmul: 200 x 300 x 150 agrees with NumPy")


if __name__ == "__main__":
    main()
