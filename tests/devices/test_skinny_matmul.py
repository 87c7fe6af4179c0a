"""Products of few rows on GPUs, against f64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.array.array import Array
from cubepy.kernels.matmul import on_gpus
from cubepy.kernels.matmul.entry import _PLANS
from cubepy.kernels.matmul.problem import turned as turned_matrices
from cubepy.kernels.matmul.skinny import filled, thin
from cubepy.kernels.matmul.thin import Thin

RNG = np.random.default_rng(12)
DTYPES = {
    "bf16": (ml_dtypes.bfloat16, 2.0**-8),
    "f16": (np.float16, 2.0**-10),
    "f32": (np.float32, 2.0**-23),
}


def factor(shape: tuple[int, ...], dtype: Any, is_turned: bool, device: str) -> tuple[Any, Any]:
    """A random matrix on the device, dense along columns if turned, and its values."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if is_turned else shape
    values = RNG.standard_normal(stored).astype(np.float32).astype(dtype)
    placed = cp.asarray(values, device=device)
    exact = values.astype(np.float64)
    if not is_turned:
        return placed, exact
    return Array(turned_matrices(Array.__cubepy_memory__(placed))), exact.swapaxes(-1, -2)


def check(
    device: str,
    extents: tuple[int, int, int],
    *,
    turned: bool = True,
    batch: tuple[int, ...] = (),
    dtype: str = "bf16",
    bias: bool = False,
    epilogue: Any = None,
    precision: str | None = None,
) -> None:
    m, n, k = extents
    kind, rounding = DTYPES[dtype]
    x, a = factor((*batch, m, k), kind, False, device)
    y, b = factor((*batch, k, n), kind, turned, device)
    added = RNG.standard_normal(n).astype(np.float32).astype(kind)
    out = cp.asarray(np.full((*batch, m, n), np.nan, kind), device=device)
    options = {"bias": cp.asarray(added, device=device)} if bias else {}
    cp.kernels.matmul(x, y, out=out, epilogue=epilogue, precision=precision, **options)
    expected = a @ b + (added.astype(np.float64) if bias else 0)
    expected = np.maximum(expected, 0) if epilogue is not None else expected
    allowed = rounding * np.abs(expected) + 2.0**-22 * k * (np.abs(a) @ np.abs(b)) + 1e-7
    assert np.all(np.abs(out.numpy().astype(np.float64) - expected) <= allowed)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("m", [1, 2, 3, 8, 13, 24, 33, 50, 64])
def test_every_number_of_rows(cuda: str, m: int, turned: bool):
    check(cuda, (m, 1032, 1288), turned=turned)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("extents", [(1, 8, 8), (5, 16, 4104), (17, 24, 72), (64, 4104, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_extents(cuda: str, extents: tuple[int, int, int], dtype: str, turned: bool):
    check(cuda, extents, turned=turned, dtype=dtype)


def test_results_whose_rows_end_anywhere(cuda: str):
    for m, n in ((2, 129), (9, 131), (33, 8190), (64, 1)):
        check(cuda, (m, n, 264))
        check(cuda, (m, n, 264), bias=True, epilogue=relu)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("extents", [(1, 37, 301), (3, 71, 5), (8, 129, 1025)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_end_anywhere(cuda: str, extents: tuple[int, int, int], dtype: str, turned: bool):
    check(cuda, extents, turned=turned, dtype=dtype)


@pytest.mark.parametrize("turned", [True, False])
def test_lines_on_every_device(device: str, turned: bool):
    check(device, (2, 71, 301), turned=turned, dtype="f32")


@pytest.mark.parametrize("turned", [True, False])
def test_exact_products(cuda: str, turned: bool):
    check(cuda, (3, 520, 1032), turned=turned, precision="exact")


@pytest.mark.parametrize("batch", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("m", [1, 20])
def test_stacks(cuda: str, m: int, batch: tuple[int, ...]):
    check(cuda, (m, 136, 72), batch=batch)
    check(cuda, (m, 136, 72), batch=batch, turned=False)


def test_rows_that_a_stack_shares(cuda: str):
    kind = ml_dtypes.bfloat16
    x, a = factor((4, 256), kind, False, cuda)
    y, b = factor((3, 256, 136), kind, True, cuda)
    found = cp.kernels.matmul(x, y).numpy().astype(np.float64)
    np.testing.assert_allclose(found, a @ b, rtol=2.0**-8, atol=1e-3)


def test_vectors_of_one_axis(cuda: str):
    kind = ml_dtypes.bfloat16
    _, a = factor((1, 264), kind, False, cuda)
    y, b = factor((264, 136), kind, True, cuda)
    row = cp.asarray(a[0].astype(kind), device=cuda)
    found = cp.kernels.matmul(row, y).numpy().astype(np.float64)
    np.testing.assert_allclose(found, a[0] @ b, rtol=2.0**-8, atol=1e-3)


def relu(v: Any, index: Any) -> Any:
    return max(v, 0.0)


@pytest.mark.parametrize("m", [1, 7, 48])
def test_what_follows_the_sum(cuda: str, m: int):
    check(cuda, (m, 520, 328), bias=True)
    check(cuda, (m, 520, 328), epilogue=relu)
    check(cuda, (m, 136, 328), bias=True, epilogue=relu, turned=False)


CUTS = {
    "one": {"groups": 1, "columns": 64},
    "wide": {"groups": 4, "columns": 56},
    "narrow": {"groups": 1, "columns": 8},
    "two groups": {"groups": 2, "columns": 40},
    "two that share k": {"groups": 1, "columns": 48, "parts": 2},
    "eight that share k": {"groups": 2, "columns": 64, "parts": 8},
}


@pytest.fixture
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the strategy cut products in this way."""

    def chosen(target: Any, problem: Any) -> Thin:
        first = thin(target, problem)
        assert first is not None
        changes = {"parts": 1, "pieces": 1, "stages": 1, **CUTS[request.param]}
        return filled(target, replace(first, **changes), 1)

    _PLANS._made.clear()
    monkeypatch.setattr(on_gpus, "skinny", chosen)
    yield request.param
    _PLANS._made.clear()


@pytest.mark.parametrize("cut", CUTS, indirect=True)
def test_every_cut(hopper: str, cut: str):
    check(hopper, (30, 1032, 1288))
    check(hopper, (1, 520, 8))
    check(hopper, (32, 2056, 72))
    check(hopper, (27, 136, 4104), batch=(3,), bias=True)
