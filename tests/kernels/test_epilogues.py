"""Functions of the user that depend on no element: their number is that of all lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels

T = np.array([3], np.float32)
EPILOGUES: tuple[Any, ...] = (
    lambda v, i: 3,
    lambda v, i: cp.sqrt(cp.f32(9)),
    (lambda v, i, t: t[0], T),
)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


CALLS: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda e: kernels.matmul(ones(19, 23), ones(23, 29), epilogue=e),
    "matmul of a row": lambda e: kernels.matmul(ones(1, 23), ones(23, 29), epilogue=e),
    "conv2d": lambda e: kernels.conv2d(ones(1, 8, 9, 9), ones(8, 8, 3, 3), epilogue=e),
    "one channel": lambda e: kernels.conv2d(ones(1, 1, 5, 7), ones(1, 1, 3, 3), epilogue=e),
    "max_pool2d": lambda e: kernels.max_pool2d(ones(1, 3, 9, 37), 2, epilogue=e),
    "avg_pool1d": lambda e: kernels.avg_pool1d(ones(1, 3, 41), 3, epilogue=e),
}


@pytest.mark.parametrize("name", CALLS)
def test_constant_epilogues(name: str):
    for epilogue in EPILOGUES:
        found = CALLS[name](epilogue)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.full(found.shape, 3))


def test_constant_prologues():
    for prologue in (lambda v: 3, lambda v: cp.f32(3)):
        found = kernels.max_pool2d(ones(1, 3, 9, 37), 2, prologue=prologue)
        np.testing.assert_array_equal(found, np.full(found.shape, 3))
