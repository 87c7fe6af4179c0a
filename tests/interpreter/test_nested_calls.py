"""Helpers that call helpers, on the interpreter."""

import numpy as np

import cubepy as cp


def square(x):
    return x * x


def squares(x):
    return square(x) + square(x + 1)


def test_helpers_call_helpers():
    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = squares(x[i]) + squares(squares(x[i]))

    x, out = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    kernel.configure(device="interpreter").over(out)(x, out)
    np.testing.assert_array_equal(out, [1 + 1 + 4, 5 + 25 + 36, 13 + 169 + 196])
