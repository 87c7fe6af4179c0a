"""Lanes within one row of an image, whose width the launch says: `rows_of_lanes`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

COPY = "a copy for lines within one row"
RNG = np.random.default_rng(49)


@cp.cube
def box(x, out, w: int, r: int):
    p = cp.ABSOLUTE_POS
    if p < out.shape[0]:
        y, i = p // w, p % w
        h = out.shape[0] // w
        for e in range(-r, r + 1):
            for d in range(-r, r + 1):
                row, column = max(0, min(y + e, h - 1)), max(0, min(i + d, w - 1))
                out[p] += x[row * w + column] * (d + 2 * e + 9)


@cp.cube
def by_divmod(x, out, w: int, r: int):
    p = cp.ABSOLUTE_POS
    y, i = divmod(p, w)
    if p >= out.shape[0]:
        return
    for d in range(r + 1):
        if i - d >= 0:
            out[p] += x[y * w + i - d] * (y + d)


@cp.cube
def of_the_row(x, out, w: int, r: int):
    p = cp.ABSOLUTE_POS
    if p < out.shape[0]:
        total = x.dtype(0)
        for k in range(r):
            total += x[(p // w) * w + (p % w + k) % w] + p // w
        out[p] = total


@cp.cube
def of_other_widths(x, out, w: int, r: int):
    p = cp.ABSOLUTE_POS
    if p < out.shape[0]:
        a, b = p % w, p % (w + 1)
        for k in range(r):
            out[p] += x[min(a + k, w - 1)] - x[max(b - k, 0)]


@cp.cube
def of_known_width(x, out, w: int, r: int):
    p = cp.ABSOLUTE_POS
    if p < out.shape[0]:
        y, i = divmod(p, 50)
        for d in range(-r, r + 1):
            out[p] += x[min(y * 50 + max(0, min(i + d, 49)), out.shape[0] - 1)] * (y + d)


@cp.cube
def two_results(x, out, w: int, r: int):
    p = cp.ABSOLUTE_POS
    if p < out.shape[0]:
        a, b = x[p] * 0, x[p] * 0
        if x[p] > 0:
            for k in range(r):
                a += x[p % w + k]
            b = a
        out[p] = a + 2 * b


KERNELS = [box, by_divmod, of_the_row, of_known_width, two_results, of_other_widths]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("w", [1, 3, 15, 16, 17, 40, 64])
def test_results_are_those_of_the_interpreter(kernel: Any, w: int):
    n = w * int(RNG.integers(1, 9))
    x = RNG.integers(-99, 99, n + 65)
    found, right = np.zeros(n, np.int64), np.zeros(n, np.int64)
    r = int(RNG.integers(0, 5))
    kernel.configure(vectorise=True).over(n)(x, found, w, r)
    kernel.configure(device="interpreter").over(n)(x, right, w, r)
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("kernel", KERNELS[:4], ids=lambda kernel: kernel.__name__)
def test_no_lane_gathers_within_a_row(kernel: Any):
    x, out = np.zeros((2, 800), np.float32)
    remarks = kernel.over(800).inspect(x, out, 40, 3, target="cpu:x86-64-v4", stage="remarks")
    assert COPY in remarks and "units are lanes" in remarks, remarks
    assert "gather" not in remarks, remarks
