"""Prebuilt functions in checked mode: as asked for at the call, and their faults are errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp


def asserts(v: Any) -> Any:
    assert v < 3, "it is small"
    return v


def test_a_fault_in_a_prebuilt_function_is_an_error():
    x = np.arange(8, dtype=np.float32)
    with (
        cp.settings(checked=True),
        pytest.raises(cp.CheckError, match="E703: .*it is small"),
    ):
        cp.kernels.map(asserts, x)


def test_checked_mode_counts_when_a_function_is_called_again():
    x = np.arange(8, dtype=np.float32)
    assert cp.kernels.map(asserts, x).tolist() == x.tolist()
    with cp.settings(checked=True), pytest.raises(cp.CheckError):
        cp.kernels.map(asserts, x)
    assert cp.kernels.map(asserts, x).tolist() == x.tolist()


@pytest.mark.parametrize("width", [157, 160])
def test_streamed_pooling_asks_for_addresses_beyond_its_result(width: int):
    x = np.random.default_rng(0).random((1, 2, 130, width), np.float32)
    out = np.empty((1, 2, 130, width), np.float32)
    with cp.settings(checked=True):
        cp.kernels.max_pool2d(x, 3, 1, 1, out=out)
    assert out[0, 0, 0, 0] == x[0, 0, :2, :2].max()
