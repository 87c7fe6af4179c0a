"""Loops over windows that borders cut: `version_windows`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import cubepy as cp

COPY = "a copy for windows that no border cuts"
RNG = np.random.default_rng(47)
N = 77


@cp.cube
def cut_bounds(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(max(0, i - r), min(x.shape[0], i + r + 1)):
            out[i] += x[k] * (k - i + 2)


@cp.cube
def chosen_start(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        first = i - r + 1
        if first < 0:
            first = 0
        for k in range(first, i + 1):
            out[i] += x[k]


@cp.cube
def clamped(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(-r, r + 1):
            out[i] += x[max(0, min(i + d, x.shape[0] - 1))] * (d + 5)


@cp.cube
def periodic(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(-r, r + 1):
            out[i] += x[(i - d) % x.shape[0]] * (d + 5)


@cp.cube
def behind_a_condition(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(-r, r + 1):
            if 0 <= i + d < x.shape[0]:
                out[i] += x[i + d] * (d + 5)


@cp.cube
def skipped(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(-r, r + 1):
            if i + d < 0 or x.shape[0] <= i + d:
                continue
            out[i] += x[i + d] * (d + 5)


@cp.cube
def reflected(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(-r, r + 1):
            k = i + d
            if k < 0:
                k = -k
            if k >= x.shape[0]:
                k = 2 * x.shape[0] - 2 - k
            out[i] += x[k] * (d + 5)


@cp.cube
def ended(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(r):
            if i - d < 0:
                break
            out[i] += x[i - d] * (d + 1)


@cp.cube
def before_the_loop(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        left, right = max(i - 1, 0) + 1, i + 1
        if right == x.shape[0]:
            right = 0
        for d in range(r):
            out[i] += (x[left - 1] + x[right] * 3) * (d + 1)


@cp.cube
def two_loops(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for e in range(r):
            for d in range(-e, r + 1 - e):
                out[i] += x[max(0, min(i + d - 2 * e, x.shape[0] - 1))] * (d + 5)


@cp.cube
def moving_end(x, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(i - r, i + r + 1, 2):
            out[i] += x[min(max(k, 0), x.shape[0] - 1)]


KERNELS = [
    *(cut_bounds, chosen_start, clamped, periodic, behind_a_condition, skipped),
    *(reflected, ended, before_the_loop, two_loops, moving_end),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("r", [0, 1, 4, 40, 76])
def test_results_are_those_of_the_interpreter(kernel: Any, r: int):
    x = RNG.integers(-1000, 1000, N)
    found, right = np.zeros(N, np.int64), np.zeros(N, np.int64)
    kernel.configure(vectorise=True).over(N)(x, found, r)
    kernel.configure(device="interpreter").over(N)(x, right, r)
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_no_lane_gathers_away_from_borders(kernel: Any):
    arrays = np.zeros((2, N), np.float32)
    remarks = kernel.over(N).inspect(*arrays, 3, target="cpu:x86-64-v4", stage="remarks")
    assert COPY in remarks and "units are lanes" in remarks, remarks
    assert "gather" not in remarks and "while any lane" not in remarks, remarks


@cp.cube
def ends_far(x, out, first: int, last: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(first, last):
            if i + d >= x.shape[0]:
                break
            if i + d >= 0:
                out[i] += x[i + d]


@pytest.mark.parametrize("last", [2**40, 2**62, sys.maxsize])
def test_bounds_that_a_sum_with_a_position_may_wrap(last: int):
    """A loop that ends early may have any."""
    x, out = np.arange(N) + 1, np.zeros(N, np.int64)
    ends_far.configure(vectorise=True).over(N)(x, out, -3, last)
    right = [x[max(i - 3, 0) :].sum() for i in range(N)]
    np.testing.assert_array_equal(out, right)


@cp.cube
def some_far(x, out, far: int, count: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(count):
            if x[d] > 0:
                if i + far + d < x.shape[0]:
                    out[i] += x[i + far + d]


@pytest.mark.parametrize("far", [3, 2**62, sys.maxsize - N, sys.maxsize - 2 * N])
def test_places_that_wrap_where_nobody_computes_them(far: int):
    x, out = np.zeros(N, np.int64), np.zeros(N, np.int64)
    x[0] = 7
    some_far.configure(vectorise=True).over(N)(x, out, far, N)
    assert not out.any()


def test_sums_of_equal_parts_are_followed_once():
    """Each is twice the one before, of which there are 2**40 then."""
    out = np.zeros(N, np.int64)
    doubled.configure(vectorise=True).over(N)(out, 3)
    assert out.tolist() == [min(i, 5) + 5 + 5 for i in range(N)]


@cp.cube
def doubled(out, n: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(n):
            far = d
            for _ in cp.unroll(range(40)):
                far = far + far
            out[i] += min(i + far, 5)


@pytest.mark.parametrize("bounds", [(5, 5), (5, -5), (sys.maxsize, 0), (0, -sys.maxsize - 1)])
def test_loops_that_do_not_run(bounds: tuple[int, int]):
    x, out = np.ones(N), np.zeros(N)
    between.configure(vectorise=True).over(N)(x, out, *bounds)
    assert not out.any()


@cp.cube
def between(x, out, first: int, last: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for d in range(first, last):
            out[i] += x[max(0, min(i + d, x.shape[0] - 1))]


@cp.cube
def other_arrays_decide(x, ends, out, r: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(max(0, i - r), min(ends[i], x.shape[0])):
            out[i] += x[k]


def test_limits_of_each_unit_stay():
    x, ends = RNG.standard_normal(N).astype("f4"), RNG.integers(-3, N + 9, N)
    out = np.zeros(N, np.float32)
    other_arrays_decide.configure(vectorise=True).over(N)(x, ends, out, 5)
    right = [x[max(0, i - 5) : max(0, ends[i])].sum() for i in range(N)]
    np.testing.assert_allclose(out, right, 1e-4, 1e-4)
    arrays = np.zeros(N, "f4"), np.zeros(N, np.int64), np.zeros(N, "f4")
    remarks = other_arrays_decide.over(N).inspect(*arrays, 5, target="cpu", stage="remarks")
    assert COPY not in remarks


@cp.cube
def box(x, out, r: int):
    y, i = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if y < out.shape[0] and i < out.shape[1]:
        for v in range(max(0, y - r), min(x.shape[0], y + r + 1)):
            for u in range(max(0, i - r), min(x.shape[1], i + r + 1)):
                out[y, i] += x[v, u]


@pytest.mark.parametrize("r", [0, 2, 9])
@pytest.mark.parametrize("shape", [(3, 5), (20, 53), (1, 300)])
def test_windows_of_images(shape: tuple[int, int], r: int):
    x, out = RNG.integers(0, 99, shape), np.zeros(shape, np.int64)
    box.configure(vectorise=True).over(shape)(x, out, r)
    high, wide = shape
    for y in range(high):
        for i in range(wide):
            own = x[max(0, y - r) : y + r + 1, max(0, i - r) : i + r + 1]
            assert out[y, i] == own.sum()
