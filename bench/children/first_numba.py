"""Seconds to import numba and NumPy, compile a parallel function and run it."""

import time

BEGIN = time.perf_counter()

import numba  # noqa: E402 - the imports are what is timed
import numpy as np  # noqa: E402


@numba.njit(parallel=True)
def multiply_add(a, b, c, out):
    for i in numba.prange(out.size):
        out[i] = a[i] * b[i] + c[i]


if __name__ == "__main__":
    ones, out = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    multiply_add(ones, ones, ones, out)
    END = time.perf_counter()
    from bench.children.process import print_seconds

    assert (out == 2).all()
    print_seconds(BEGIN, END)
