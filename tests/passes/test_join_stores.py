"""Branches that both store to one place: `join_stores`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

RNG = np.random.default_rng(48)


@cp.cube
def thresholds(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        error = 0
        for k in range(x.shape[1]):
            v = x[i, k] + error
            if v >= 128:
                out[i, k] = 255
                error = v - 255
            else:
                out[i, k] = 0
                error = v


@cp.cube
def three_ways(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        for k in range(x.shape[1]):
            if x[i, k] > 200:
                out[i, k] = 3
            elif x[i, k] > 100:
                out[i, k] = x[i, k] // 2
            else:
                out[i, k] = 1


@cp.cube
def two_places(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        for k in range(1, x.shape[1]):
            if x[i, k] > 100:
                out[i, k] = 5
                out[i, k - 1] = 7
            else:
                out[i, k - 1] = 1
                out[i, k] = 2


@cp.cube
def read_between(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        for k in range(1, x.shape[1]):
            if x[i, k] > 100:
                out[i, k] = 5
                out[i, 0] += out[i, k]
            else:
                out[i, k] = 2


@cp.cube
def one_jumps(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        for k in range(x.shape[1]):
            if x[i, k] > 250:
                out[i, k] = 9
                break
            else:
                out[i, k] = 2


KERNELS = [thresholds, three_ways, two_places, read_between, one_jumps]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_results_are_those_of_the_interpreter(kernel: Any):
    x = RNG.integers(0, 256, (37, 19))
    found, right = np.zeros_like(x), np.zeros_like(x)
    kernel.configure(vectorise=True).over(37)(x, found)
    kernel.configure(device="interpreter").over(37)(x, right)
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(("kernel", "stores"), [(thresholds, 1), (three_ways, 1), (two_places, 4)])
def test_lanes_store_once(kernel: Any, stores: int):
    """Places that differ are stored to apart: only the last ones are joined."""
    x = np.zeros((37, 19), np.int64)
    launcher = kernel.configure(vectorise=True).over(37)
    remarks = launcher.inspect(x, x.copy(), target="cpu:x86-64-v4", stage="remarks")
    assert remarks.count("scatter of lanes") == stores, remarks
