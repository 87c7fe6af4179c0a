"""Products by `wgmma` on Hopper, against f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.matmul import strategies, waves
from cubepy.kernels.matmul.entry import _PLANS
from cubepy.kernels.matmul.problem import Problem
from cubepy.targets import Target

RNG = np.random.default_rng(11)
DTYPES = {"bf16": (ml_dtypes.bfloat16, 2.0**-8), "f16": (np.float16, 2.0**-10)}


@pytest.fixture
def hopper(cuda: str) -> str:
    """A GPU with `wgmma`."""
    if cp.device(cuda).target.arch != "sm_90a":
        pytest.skip("no Hopper GPU here")
    return cuda


def factor(shape: tuple[int, ...], dtype: Any, is_turned: bool, device: str) -> tuple[Any, Any]:
    """A random matrix on the device, dense along columns if turned, and its values."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if is_turned else shape
    values = RNG.standard_normal(stored).astype(dtype)
    placed = cp.asarray(values, device=device)
    exact = values.astype(np.float64)
    if not is_turned:
        return placed, exact
    return cp.kernels.transpose(placed), exact.swapaxes(-1, -2)


def check(
    device: str,
    extents: tuple[int, int, int],
    *,
    turned: tuple[bool, bool] = (False, True),
    batch: tuple[int, ...] = (),
    dtype: str = "bf16",
    bias: bool = False,
    epilogue: Any = None,
) -> None:
    m, n, k = extents
    kind, rounding = DTYPES[dtype]
    x, a = factor((*batch, m, k), kind, turned[0], device)
    y, b = factor((*batch, k, n), kind, turned[1], device)
    added = RNG.standard_normal(n).astype(np.float32).astype(kind)
    poison = np.full((*batch, m, n), np.nan, kind)
    out = cp.asarray(poison, device=device)
    options = {"bias": cp.asarray(added, device=device)} if bias else {}
    cp.kernels.matmul(x, y, out=out, epilogue=epilogue, **options)
    expected = a @ b + (added.astype(np.float64) if bias else 0)
    expected = np.maximum(expected, 0) if epilogue is not None else expected
    allowed = rounding * np.abs(expected) + 2.0**-22 * k * (np.abs(a) @ np.abs(b)) + 1e-7
    assert np.all(np.abs(out.numpy().astype(np.float64) - expected) <= allowed)


@pytest.fixture
def tiling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the strategy choose the tiles of this height and width."""

    def chosen(target: Target, problem: Problem) -> Any:
        found = waves.tilings(target, problem)
        return next(t for t in found if (t.height, t.width) == request.param)

    _PLANS._made.clear()
    monkeypatch.setattr(strategies, "pipelined", chosen)
    yield request.param
    _PLANS._made.clear()


@pytest.mark.parametrize("tiling", waves.RATES, indirect=True, ids=str)
def test_every_tiling(hopper: str, tiling: Any):
    check(hopper, (300, 520, 328))
    check(hopper, (64, 72, 1000))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout(hopper: str, left: bool, right: bool, dtype: str):
    check(hopper, (520, 392, 264), turned=(left, right), dtype=dtype)


@pytest.mark.parametrize("extents", [(128, 264, 8), (1, 8, 8), (2049, 1032, 72), (129, 257, 65)])
def test_odd_extents(hopper: str, extents: tuple[int, int, int]):
    check(hopper, extents)


@pytest.mark.parametrize("batch", [(3,), (2, 3), (2, 1, 3)])
def test_stacks(hopper: str, batch: tuple[int, ...]):
    check(hopper, (200, 136, 72), batch=batch)


def relu(v: Any, index: Any) -> Any:
    return max(v, 0.0)


def test_what_follows_the_sum(hopper: str):
    check(hopper, (300, 520, 328), bias=True)
    check(hopper, (300, 520, 328), epilogue=relu)
    check(hopper, (300, 136, 328), bias=True, epilogue=relu, turned=(True, False))
