"""Sparse matrix (CSR) times vector: a plane per row, so that long rows are shared by its units."""

from typing import Any, NamedTuple

import numpy as np

import cubepy as cp


class CSR(NamedTuple):
    """Row i holds values[rows[i]:rows[i + 1]], in the columns of the same places."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@cp.cube
def spmv_kernel(matrix, x, out):
    # A NamedTuple (or frozen dataclass) of arrays is one argument.
    row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    if row < out.size:
        total = 0.0
        first, end = matrix.rows[row], matrix.rows[row + 1]
        for k in range(first + cp.UNIT_POS_PLANE, end, cp.PLANE_DIM):
            total += matrix.values[k] * x[matrix.columns[k]]
        total = cp.plane_sum(total)
        if cp.plane_elect():
            out[row] = total


def spmv(matrix: CSR, x: np.ndarray, **settings: Any) -> np.ndarray:
    """The product of a sparse matrix and a vector."""
    rows = len(matrix.rows) - 1
    out = np.empty(rows, x.dtype)
    spmv_kernel.configure(**settings).over(rows, per="plane")(matrix, x, out)
    return out


def compress(dense: np.ndarray) -> CSR:
    """The nonzero elements of a matrix, row by row."""
    i, j = np.nonzero(dense)
    ends = np.concatenate([[0], np.cumsum((dense != 0).sum(1))])
    return CSR(ends.astype(np.int32), j.astype(np.int32), dense[i, j])


def main() -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(500, 400)).astype(np.float32)
    dense[rng.random(dense.shape) < 0.9] = 0
    x = rng.normal(size=400).astype(np.float32)
    matrix = compress(dense)
    np.testing.assert_allclose(spmv(matrix, x), dense.astype(float) @ x, rtol=1e-4, atol=1e-5)
    print(f"spmv: {matrix.values.size} nonzero elements agree with NumPy")


if __name__ == "__main__":
    main()
