"""Loops along a row of each unit's own: left to LLVM, which vectorises them; `row_loops`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

ALONG = "LLVM vectorises along their rows"
RNG = np.random.default_rng(45)


@cp.cube
def doubled(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(out.shape[1]):
            out[i, k] = x[i, k] * 2


@cp.cube
def smoothed(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0] - 2:
        for k in range(1, out.shape[1] - 1):
            out[i + 1, k] = x[i, k] + x[i + 2, k] + x[i + 1, k - 1] + x[i + 1, k + 1]


@cp.cube
def some_doubled(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(out.shape[1]):
            if x[i, k] > 3:
                out[i, k] = x[i, k] * 2


@cp.cube
def backwards(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(out.shape[1]):
            out[i, k] = x[i, out.shape[1] - 1 - k]


@cp.cube
def summed_up(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        total = x.dtype(0)
        for k in range(out.shape[1]):
            total += x[i, k]
            out[i, k] = total


@cp.cube
def summed_up_in_place(out):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(1, out.shape[1]):
            out[i, k] += out[i, k - 1]


@cp.cube
def product(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(x.shape[1]):
            for j in range(out.shape[1]):
                out[i, j] += x[i, k] * y[k, j]


WRITING: tuple[tuple[Any, Any], ...] = (
    (doubled, lambda x, out: x * 2),
    (
        smoothed,
        lambda x, out: np.pad(
            x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:], 1, constant_values=7
        ),
    ),
    (some_doubled, lambda x, out: np.where(x > 3, x * 2, 7)),
    (backwards, lambda x, out: x[:, ::-1]),
    (summed_up, lambda x, out: np.cumsum(x, 1, dtype=x.dtype)),
)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
@pytest.mark.parametrize(("kernel", "reference"), WRITING, ids=lambda f: getattr(f, "__name__", ""))
def test_units_that_write_rows_stay_scalar(kernel: Any, reference: Any, dtype: str):
    """Small whole numbers, so that all orders of a sum give the same."""
    x = RNG.integers(0, 9, (37, 61)).astype(dtype)
    for choice in ("auto", True):
        out = np.full_like(x, 7)
        launcher = kernel.configure(vectorise=choice).over(len(x))
        launcher(x, out)
        np.testing.assert_array_equal(out, reference(x, out))
        assert (ALONG in launcher.inspect(x, out, stage="remarks")) == (choice == "auto")


def test_rows_that_are_read_where_they_are_written():
    x = RNG.integers(0, 9, (33, 70)).astype(np.float32)
    out = x.copy()
    launcher = summed_up_in_place.over(len(x))
    launcher(out)
    np.testing.assert_array_equal(out, np.cumsum(x, 1))
    assert ALONG not in launcher.inspect(out, stage="remarks")
    left, right = RNG.integers(0, 9, (2, 40, 40)).astype(np.float32)
    out = np.zeros_like(left)
    product.over(len(left))(left, right, out)
    np.testing.assert_array_equal(out, left @ right)


@cp.cube
def weighted(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        total = cp.i32(0)
        for k in range(x.shape[1]):
            total += cp.i32(x[i, k]) * y[k] + 1
        out[i] = total


@cp.cube
def counted(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        total, most = cp.i32(0), x[i, 0]
        for k in range(x.shape[1]):
            most = max(most, x[i, k])
            if x[i, k] > 3:
                total += 1
            elif x[i, k] < 1:
                total += 2
        out[i] = total + cp.i32(most) * y[0]


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "f4"])
def test_units_that_join_rows_stay_scalar(dtype: str):
    x, y = RNG.integers(0, 9, (37, 61)).astype(dtype), RNG.integers(-9, 9, 61).astype(np.int32)
    count = (x > 3).sum(1) + 2 * (x < 1).sum(1) + x.max(1) * y[0]
    for kernel, wanted in ((weighted, x.astype(np.int32) @ y + 61), (counted, count)):
        for choice in ("auto", True):
            out = np.full(len(x), 7, np.int32)
            launcher = kernel.configure(vectorise=choice).over(len(x))
            launcher(x, y, out)
            np.testing.assert_array_equal(out, wanted.astype(np.int32))
            assert (ALONG in launcher.inspect(x, y, out, stage="remarks")) == (choice == "auto")


def test_other_loops_become_lanes():
    """Where LLVM would go one by one, and where neighbouring units access neighbours."""

    @cp.cube
    def sums(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            total = cp.f32(0)
            for k in range(x.shape[1]):
                total += x[i, k]
            out[i] = total

    @cp.cube
    def smooth(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < x.shape[0]:
            last = cp.f32(0)
            for k in range(x.shape[1]):
                last = 0.9 * last + x[i, k]
            out[i] = last

    @cp.cube
    def columns(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < out.shape[1]:
            for k in range(out.shape[0]):
                out[k, i] = x[k, i] * 2

    @cp.cube
    def halves(x: cp.Tensor[cp.f16], out: cp.Tensor[cp.f16]):
        i = cp.ABSOLUTE_POS
        if i < out.shape[0]:
            for k in range(out.shape[1]):
                out[i, k] = x[i, k] * 2

    given = (
        (sums, "f32[37,61]", "f32[37]"),
        (smooth, "f32[37,61]", "f32[37]"),
        (columns, "f32[37,61]", "f32[37,61]"),
        (halves, "f16[37,61]", "f16[37,61]"),
    )
    for kernel, x, out in given:
        remarks = kernel.over(61).inspect(x, out, target="cpu:x86-64-v3", stage="remarks")
        assert "units are lanes" in remarks and ALONG not in remarks
