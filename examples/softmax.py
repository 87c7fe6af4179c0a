"""Softmax of each row: a plane per row, and SIMD lines as wide as the device allows.

On a GPU 32 units share a row, each with loads of up to 16 bytes. On a CPU one unit walks along the
row in steps of a whole vector register. The source is the same.
"""

import math
from typing import Any

import numpy as np

import cubepy as cp


@cp.cube
def softmax_kernel(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    cp.static_assert(x.line_axis in (None, 1), "lines run along rows: pass a row-major matrix")
    row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    lane, step, lines = cp.UNIT_POS_PLANE, cp.PLANE_DIM, x.shape[1]
    if row < x.shape[0]:
        # The last line of a row may lack lanes. They load as -inf, which no maximum picks and
        # whose exponential is 0; stores skip them.
        largest = -math.inf
        for j in range(lane, lines, step):
            largest = max(largest, cp.load(x, (row, j), fill=-math.inf).max())
        largest = cp.plane_max(largest)

        total = 0.0
        for j in range(lane, lines, step):
            total += cp.exp(cp.load(x, (row, j), fill=-math.inf) - largest).sum()
        scale = 1 / cp.plane_sum(total)

        for j in range(lane, lines, step):
            out[row, j] = cp.exp(x[row, j] - largest) * scale


def softmax(x: np.ndarray, **settings: Any) -> np.ndarray:
    """exp(x) / exp(x).sum() along the last axis of a matrix, without overflow."""
    out = np.empty_like(x)
    softmax_kernel.configure(**settings).over(x.shape[0], per="plane")(x, out)
    return out


def reference(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main() -> None:
    x = np.random.default_rng(0).normal(0, 20, (300, 1003)).astype(np.float32)
    np.testing.assert_allclose(softmax(x), reference(x), rtol=1e-5, atol=1e-30)
    print(f"softmax: {x.shape[0]} rows of {x.shape[1]} agree with NumPy")


if __name__ == "__main__":
    main()
