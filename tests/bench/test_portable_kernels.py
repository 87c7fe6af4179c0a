"""The kernels of one source that `bench.gpu` times, on every device of this machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from bench import portable_kernels as kernels
from tests.guarded import Guarded


def is_here(name: str) -> bool:
    return any(device.name == name for device in cp.devices())


@pytest.fixture(params=["cpu", "interpreter", "opencl:0", "cuda:0"])
def device(request: pytest.FixtureRequest) -> Any:
    if not is_here(request.param):
        pytest.skip(f"no device {request.param} here")
    return request.param


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def units_of(device: str) -> int:
    """Units of a cube that shares a row: several planes on a GPU, one unit on a CPU."""
    return 4 * cp.device(device).target.plane_dim if device.startswith(("cuda", "opencl")) else 1


def close(found: np.ndarray, expected: np.ndarray, bound: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("n", [1, 1000, 4099])
def test_elementwise(device: str, n: int):
    x, out = floats(n), Guarded((n,), np.float32)
    kernels.copy.configure(device=device).over(out.array)(x, out.array)
    np.testing.assert_array_equal(out.array, x)
    kernels.gated_gelu.configure(device=device).over(out.array)(x, out.array)
    wide = x.astype(np.float64)
    v = wide * 1.5 + 0.5
    gelu = v * 0.5 * (1 + np.vectorize(math.erf)(v / math.sqrt(2)))
    close(out.array, gelu / (1 + np.exp(-wide)), 2e-6)
    out.check(out.array)


@pytest.mark.parametrize("shape", [(3, 64), (5, 1000)])
def test_rows_and_columns(device: str, shape: tuple[int, int]):
    x, units = floats(*shape), units_of(device)
    wide = x.astype(np.float64)
    rows, few = np.full(shape[0], np.nan, np.float32), np.full(7, np.nan, np.float32)
    kernels.sum_rows.configure(device=device)[shape[0], units](x, rows)
    close(rows, wide.sum(1), 1e-4)
    kernels.sum_shares.configure(device=device)[7, units](x, few)
    close(few.sum(), wide.sum(), 1e-4)
    columns = Guarded((2, shape[1]), np.float32)
    grid = (-(-shape[1] // units), 2), (units, 1)
    kernels.sum_columns.configure(device=device)[grid](x, columns.array, -(-shape[0] // 2))
    close(columns.array.sum(0), wide.sum(0), 1e-5)
    columns.check(columns.array)


@pytest.mark.parametrize("columns", [32, 4096])
def test_softmax(device: str, columns: int):
    x, out = floats(3, columns), Guarded((3, columns), np.float32)
    kernel = kernels.softmax_rows.configure(device=device, line_size=4)
    kernel[3, units_of(device)](x, out.array, columns // 4)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    close(out.array, powers / powers.sum(1, keepdims=True), 2e-6)
    out.check(out.array)


@pytest.mark.parametrize("window", [(3, 1, 1), (3, 2, 1), (2, 2, 0), (2, 1, 0)], ids=str)
@pytest.mark.parametrize("band", [1, 3])
def test_max_pool(device: str, window: tuple[int, int, int], band: int):
    size, stride, pad = window
    x = floats(2, 22, 64)
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    views = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))
    expected = views[:, ::stride, ::stride].max((-2, -1))
    out = Guarded(expected.shape, np.float32)
    kernel = kernels.max_pool.configure(device=device, line_size=4)
    lines = -(-expected.shape[2] // 4)
    grid = (lines, -(-expected.shape[1] // band), 2)
    kernel[grid, 1](x, out.array, size, stride, pad, band)
    np.testing.assert_array_equal(out.array, expected)
    out.check(out.array)
