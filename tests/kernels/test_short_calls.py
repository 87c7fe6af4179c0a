"""Calls of prebuilt functions on torch's tensors that native code describes: from the third on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.jit.tables import native_executor
from cubepy.kernels.calls import call as calls
from tests.optional import require_package

torch = require_package("torch")

SCALE = 2.0


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls went the general way."""
    executor, inner, found = native_executor(), calls.run, [0]
    if executor is None or not executor.reads_tensors(torch.Tensor):
        pytest.skip("no tensors are described here")

    def counting(*args: Any, **kwargs: Any) -> Any:
        found[0] += 1
        return inner(*args, **kwargs)

    monkeypatch.setattr(calls, "run", counting)
    return found


def scaled(v: Any, index: Any) -> Any:
    """A function that captures a name."""
    return v * SCALE


def warm(call: Any) -> None:
    for _ in range(4):
        call()


def test_layouts_and_types(general: list[int]):
    base = torch.randn(40, 30)
    views = [base, base.T, base[3:9], base[::2, 1:], base[:0], base.double(), base[None, :, :]]
    views += [base.half().float(), base[:, :1], base.bfloat16()]
    for x in views:
        for _ in range(4):
            y = torch.randn(*x.shape[:-2], x.shape[-1], 5).to(x.dtype)
            torch.testing.assert_close(kernels.matmul(x, y), x @ y, rtol=2e-2, atol=2e-2)
    before = general[0]
    for x in views:
        y = torch.randn(*x.shape[:-2], x.shape[-1], 5).to(x.dtype)
        found = kernels.matmul(x, y)
        torch.testing.assert_close(found, x @ y, rtol=2e-2, atol=2e-2)
        assert found.is_contiguous() and found.dtype == x.dtype
    assert general[0] == before


def test_results_are_new_and_contiguous(general: list[int]):
    x = torch.randn(12, 10)
    warm(lambda: kernels.softmax(x))
    warm(lambda: kernels.softmax(x.T))
    before, kept = general[0], x.clone()
    one, two, turned = kernels.softmax(x), kernels.softmax(x), kernels.softmax(x.T)
    assert len({x.data_ptr(), one.data_ptr(), two.data_ptr()}) == 3 and torch.equal(x, kept)
    torch.testing.assert_close(turned, torch.softmax(x.T, -1))
    assert turned.is_contiguous()
    assert general[0] == before


def test_the_place_of_addresses_counts(general: list[int]):
    held = torch.randn(4096)
    for offset in (*range(20), *range(20)):
        x = held[offset : offset + 1024].view(16, 64)
        torch.testing.assert_close(kernels.sum(x, 1), x.sum(1), rtol=1e-4, atol=1e-4)


def test_optional_arrays_are_told_apart(general: list[int]):
    x, weight, bias = torch.randn(6, 8), torch.randn(8), torch.randn(8)
    layer_norm = torch.nn.functional.layer_norm
    for _ in range(5):
        for given in ((None, None), (weight, None), (weight, bias)):
            torch.testing.assert_close(
                kernels.layer_norm(x, (8,), *given), layer_norm(x, (8,), *given)
            )
    for _ in range(5):
        torch.testing.assert_close(kernels.matmul(x, x.T, bias=x[:, 0]), x @ x.T + x[:, 0])
        torch.testing.assert_close(kernels.matmul(x, x.T), x @ x.T)


def test_what_is_not_described(general: list[int]):
    x = torch.randn(6, 8)
    warm(lambda: kernels.softmax(x))
    graded = x.clone().requires_grad_()
    with pytest.raises(cp.Error, match="requires grad"):
        kernels.softmax(graded)
    with torch.no_grad():
        torch.testing.assert_close(kernels.softmax(graded), torch.softmax(x, -1))
    with pytest.raises(cp.Error, match="negated lazily"):
        kernels.softmax(torch.zeros(6, 8, dtype=torch.complex64).conj().imag)
    parameter = torch.nn.Parameter(x, requires_grad=False)
    torch.testing.assert_close(kernels.softmax(parameter), torch.softmax(x, -1))
    for other in (x.to_sparse(), x.to(torch.complex64), torch.empty(6, 8, device="meta")):
        with pytest.raises(cp.Error):
            kernels.softmax(other)
    np.testing.assert_allclose(kernels.softmax(x.numpy()), torch.softmax(x, -1), rtol=1e-5)


def test_names_that_changed_and_settings(general: list[int], monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(6, 8)
    for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0):
        monkeypatch.setattr(f"{__name__}.SCALE", scale)
        found = kernels.matmul(x, x.T, epilogue=cp.cube(scaled).function)
        torch.testing.assert_close(found, x @ x.T * scale)
    warm(lambda: kernels.softmax(x))
    before = general[0]
    with cp.settings(checked=True):
        torch.testing.assert_close(kernels.softmax(x), torch.softmax(x, -1))
    assert general[0] == before + 1
    with cp.tuning(level="off"):
        kernels.softmax(x)
    assert general[0] == before + 2


def test_updated_arguments_are_checked(general: list[int]):
    x, mean, var = torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3)
    for _ in range(5):
        kernels.batch_norm(x, mean, var, training=True)
        with pytest.raises(cp.LaunchError, match="overlaps"):
            kernels.batch_norm(x, mean, mean, training=True)
