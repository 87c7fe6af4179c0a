"""Softmax along long axes that are not the densest, against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels


def softened(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@cp.cube
def unchanged(v: Any, index: Any) -> Any:
    return v


@pytest.mark.parametrize("epilogue", [None, unchanged])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((300_001, 2), 0), ((2, 100_003, 3), 1), ((70_001, 40), 0), ((63, 9), 0), ((65, 70), 0)],
)
def test_errors_do_not_grow_with_rows(shape: tuple[int, ...], axis: int, epilogue: Any):
    x = np.random.default_rng().standard_normal(shape, np.float32)
    expected = softened(x, axis)
    found = kernels.softmax(x, axis, epilogue=epilogue)
    np.testing.assert_allclose(found, expected, rtol=4e-6, atol=0)
    found = kernels.log_softmax(x, axis, epilogue=epilogue)
    np.testing.assert_allclose(found, np.log(expected), rtol=4e-7, atol=2e-6)


def test_as_many_rows_as_f32_cannot_count():
    rows = (1 << 24) + 64
    x = np.zeros((rows, 2), np.float32)
    np.testing.assert_allclose(kernels.softmax(x, 0)[::4099] * rows, 1, rtol=1e-6)
