"""Independent references in float64: plain NumPy and `math`, none of the code under test."""

import math

import numpy as np

from bench.arrays import to_f64

_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: np.ndarray) -> np.ndarray:
    """x * Phi(x), with the error function of `math`."""
    x = to_f64(x)
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c."""
    return to_f64(a) * to_f64(b) + to_f64(c)


def max_pool2d(x: np.ndarray, kernel: int, stride: int, padding: int) -> np.ndarray:
    """Maxima over windows of an NCHW array, which is padded with -inf."""
    edge = (padding, padding)
    padded = np.pad(to_f64(x), [(0, 0), (0, 0), edge, edge], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    return windows[:, :, ::stride, ::stride].max(axis=(-2, -1))
