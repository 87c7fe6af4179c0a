"""Arrays for benchmarks: touched, and at an address that we choose.

NumPy puts large arrays 16 bytes behind a page, so that every 64-byte vector straddles two cache
lines; all contenders get aligned arrays instead, and rows about alignment ask for an offset.
"""

import math

import numpy as np

PAGE = 4096


def make_empty(shape: tuple[int, ...], offset: int = 0) -> np.ndarray:
    """An f32 array that starts `offset` elements behind a page boundary; its pages are touched."""
    nbytes = math.prod(shape) * 4
    memory = np.empty(nbytes + 2 * PAGE, np.uint8)
    memory.fill(0)
    start = -memory.ctypes.data % PAGE + 4 * offset
    return memory[start : start + nbytes].view(np.float32).reshape(shape)


def make_random(shape: tuple[int, ...], seed: int = 0, offset: int = 0) -> np.ndarray:
    """Normally distributed f32 values, the same for every run."""
    array = make_empty(shape, offset)
    np.random.default_rng(seed).standard_normal(dtype=np.float32, out=array)
    return array


def to_f64(array: np.ndarray) -> np.ndarray:
    """A copy in f64, for references."""
    return array.astype(np.float64)
