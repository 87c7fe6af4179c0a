"""Cross-entropy and norms with a residual, against torch in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.optional import require_package


def logits(rows: int, classes: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(rows).normal(size=(rows, classes)) * 4).astype(dtype)


@pytest.fixture
def torch() -> Any:
    return require_package("torch")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (7, 33), (40, 1000)])
def test_cross_entropy(torch: Any, rows: int, classes: int, reduction: str):
    x = logits(rows, classes)
    target = np.random.default_rng(classes).integers(0, classes, rows)
    target[2::3] = -100
    given = torch.tensor(x).double(), torch.tensor(target)
    expected = torch.nn.functional.cross_entropy(*given, reduction=reduction).numpy()
    found = cp.kernels.cross_entropy(x, target, reduction=reduction)
    assert np.asarray(found).dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_cross_entropy_of_narrow_floats_strides_and_one_row(torch: Any):
    wide = logits(30, 20, np.float16)
    x, target = wide[::2, ::2], np.arange(15, dtype=np.int32) % 10
    given = torch.tensor(np.ascontiguousarray(x)).double(), torch.tensor(target).long()
    expected = float(torch.nn.functional.cross_entropy(*given))
    assert cp.kernels.cross_entropy(x, target) == np.float16(expected)
    one = cp.kernels.cross_entropy(x[0], np.array(3), reduction="none")
    expected = float(torch.nn.functional.cross_entropy(given[0][0], torch.tensor(3)))
    assert abs(float(one) - expected) < 5e-3


def test_cross_entropy_of_no_class_and_of_nothing():
    x = logits(3, 4)
    found = cp.kernels.cross_entropy(x, np.array([1, 4, -1]), reduction="none")
    assert np.isfinite(found[0]) and np.isnan(found[1:]).all()
    assert np.isnan(cp.kernels.cross_entropy(x[:0], np.zeros(0, np.int64)))
    assert np.isnan(cp.kernels.cross_entropy(x, np.full(3, -100)))
    assert cp.kernels.cross_entropy(x, np.full(3, 7), ignore_index=7, reduction="sum") == 0


def test_cross_entropy_refuses_what_does_not_fit():
    x = logits(3, 4)
    with pytest.raises(cp.LaunchError, match=r"`target` has shape \(2,\), but `x` has \(3, 4\)"):
        cp.kernels.cross_entropy(x, np.zeros(2, np.int64))
    with pytest.raises(cp.LaunchError, match="mean, sum or none"):
        cp.kernels.cross_entropy(x, np.zeros(3, np.int64), reduction="max")
    with pytest.raises(cp.LaunchError, match="`ignore_index` is 4294967296, which no i32 is"):
        cp.kernels.cross_entropy(x, np.zeros(3, np.int32), ignore_index=1 << 32)
    for dtype in (np.float32, np.uint32):
        with pytest.raises(TypeError, match="`target` has dtype"):
            cp.kernels.cross_entropy(x, np.zeros(3, dtype))


@pytest.mark.parametrize("shape", [(5, 64), (3, 700), (2, 3, 33)])
def test_norms_with_a_residual(torch: Any, shape: tuple[int, ...]):
    rng = np.random.default_rng(shape)
    x, residual = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    n, weight = shape[-1], rng.normal(size=shape[-1]).astype(np.float32)
    both, wide = torch.tensor(x + residual).double(), torch.tensor(weight).double()
    expected = torch.nn.functional.rms_norm(both, (n,), wide, 1e-5).numpy()
    found, total = cp.kernels.rms_norm(x, n, weight, 1e-5, residual=residual)
    np.testing.assert_array_equal(total, x + residual)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    expected = torch.nn.functional.layer_norm(both, (n,), wide).numpy()
    given = x.copy(), residual.copy()
    cp.kernels.layer_norm(given[0], n, weight, residual=given[1], out=given)
    np.testing.assert_array_equal(given[1], x + residual)
    np.testing.assert_allclose(given[0], expected, rtol=1e-5, atol=1e-5)


def test_a_residual_of_another_shape_is_refused():
    x = logits(3, 4)
    with pytest.raises(cp.LaunchError, match=r"`residual` is f32 of shape \(4,\), but `x` is f32"):
        cp.kernels.rms_norm(x, 4, residual=x[0])
    with pytest.raises(cp.LaunchError, match="`out` is one array twice"):
        cp.kernels.rms_norm(x, 4, residual=x.copy(), out=(x, x))
    both = np.empty_like(x)
    with pytest.raises(cp.LaunchError, match="overlaps"):
        cp.kernels.rms_norm(x, 4, residual=x.copy(), out=(both, both))


def test_tensors_without_elements_are_two_results(torch: Any):
    x = torch.empty(3, 0, 4)
    out = torch.empty(3, 0, 4), torch.empty(3, 0, 4)
    assert cp.kernels.rms_norm(x, 4, residual=torch.empty(3, 0, 4), out=out)[1] is out[1]


@pytest.mark.parametrize("rows", [1 << 23, (1 << 24) + 5])
def test_sums_of_many_losses_do_not_stop(rows: int):
    x, target = np.zeros((1, 2), np.float32), np.zeros(1, np.int32)
    x, target = (np.broadcast_to(v, (rows, *v.shape[1:])) for v in (x, target))
    found = cp.kernels.cross_entropy(x, target)
    np.testing.assert_allclose(found, np.log(2), rtol=1e-6)
    found = cp.kernels.cross_entropy(x, target, reduction="sum")
    np.testing.assert_allclose(found, rows * np.log(2), rtol=1e-6)


def test_infinite_losses_stay_so_in_sums():
    x = np.zeros((40, 3), np.float32)
    x[7, 0] = -np.inf
    target = np.zeros(40, np.int64)
    assert cp.kernels.cross_entropy(x, target, reduction="sum") == np.inf
    target[9] = 5  # no class
    assert np.isnan(cp.kernels.cross_entropy(x, target))
