"""The steps as a user of Numba writes them. Imported only where Numba is installed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

try:
    import numba
except ImportError:  # the package is imported without its peers, too
    numba = None


def _parallel(function: Any) -> Any:
    if numba is None:
        return function
    return numba.njit(parallel=True, fastmath={"contract"}, error_model="numpy")(function)


prange: Any = numba.prange if numba else range


@_parallel
def develop(x, out, exposure, contrast, white):  # flat arrays of f32
    e, c, gain = np.float32(exposure), np.float32(contrast), np.float32(1 / white)
    for i in prange(x.size):
        out[i] = (np.float32(1) - math.exp(-e * x[i] ** c)) * gain


@_parallel
def edges(x, out):
    two = np.float32(2)
    for r in prange(out.shape[0]):
        for c in range(out.shape[1]):
            across = x[r, c + 2] - x[r, c] + two * (x[r + 1, c + 2] - x[r + 1, c])
            across += x[r + 2, c + 2] - x[r + 2, c]
            down = x[r + 2, c] - x[r, c] + two * (x[r + 2, c + 1] - x[r, c + 1])
            down += x[r + 2, c + 2] - x[r, c + 2]
            out[r, c] = math.sqrt(across * across + down * down)


@_parallel
def stretch(x, out):  # flat arrays of f32
    low, high = x[0], x[0]
    for i in prange(x.size):
        low = min(low, x[i])
        high = max(high, x[i])
    gain = np.float32(1) / (high - low)
    for i in prange(x.size):
        out[i] = (x[i] - low) * gain


@_parallel
def pool(x, out, size):
    for row in prange(out.shape[0] * out.shape[1]):
        plane, r = row // out.shape[1], row % out.shape[1]
        for c in range(out.shape[2]):
            brightest = x[plane, r * size, c * size]
            for dy in range(size):
                for dx in range(size):
                    brightest = max(brightest, x[plane, r * size + dy, c * size + dx])
            out[plane, r, c] = brightest
