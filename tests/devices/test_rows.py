"""Prebuilt functions whose cubes share rows, on a GPU of NVIDIA against torch in f64 on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.optional import require_package

SHAPES = [(3, 1), (5, 7), (33, 64), (7, 1000), (130, 512), (3, 4099), (9, 16384), (2, 70001)]


@pytest.fixture
def torch(cuda: str) -> Any:
    return require_package("torch")


def numbers(*shape: int) -> np.ndarray:
    return (np.random.default_rng(shape).normal(size=shape) * 3 + 1).astype(np.float32)


def on_gpu(x: np.ndarray) -> Any:
    return cp.asarray(x, device="cuda:0")


def check(found: Any, expected: Any, bound: float = 2e-6) -> None:
    got, wanted = found.numpy().astype(np.float64), expected.numpy()
    assert got.shape == wanted.shape
    scale = np.abs(wanted).max()
    assert np.abs(got - wanted).max() <= bound * scale


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(torch: Any, shape: tuple[int, int]):
    x = numbers(*shape)
    wide = torch.tensor(x).double()
    check(cp.kernels.softmax(on_gpu(x)), torch.softmax(wide, 1))
    check(cp.kernels.log_softmax(on_gpu(x)), torch.log_softmax(wide, 1))
    same = on_gpu(x)
    cp.kernels.softmax(same, out=same)
    check(same, torch.softmax(wide, 1))


def test_softmax_of_infinities(torch: Any):
    for n in (40, 5000, 80000):
        x = numbers(4, n)
        x[0], x[1, : n // 2], x[2, 3], x[3, 5] = -np.inf, -np.inf, np.inf, np.nan
        found = cp.kernels.softmax(on_gpu(x)).numpy()
        assert np.isnan(found[[0, 2, 3]]).all()
        expected = torch.softmax(torch.tensor(x[1]).double(), 0).numpy()
        np.testing.assert_allclose(found[1], expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_norms_of_rows(torch: Any, shape: tuple[int, int]):
    x, n = numbers(*shape), shape[1]
    w, b, residual = numbers(n), numbers(n, 1)[:, 0], numbers(*shape[::-1]).T.copy()
    wide = [torch.tensor(a).double() for a in (x, w, b)]
    found = cp.kernels.layer_norm(on_gpu(x), n, on_gpu(w), on_gpu(b))
    check(found, torch.nn.functional.layer_norm(wide[0], (n,), *wide[1:]), 4e-6)
    found, both = cp.kernels.rms_norm(on_gpu(x), n, on_gpu(w), 1e-5, residual=on_gpu(residual))
    np.testing.assert_array_equal(both.numpy(), x + residual)
    total = torch.tensor(x + residual).double()
    check(found, torch.nn.functional.rms_norm(total, (n,), wide[1], 1e-5), 4e-6)


@pytest.mark.parametrize("shape", [(1061, 14340), (5, 220, 15004), (2200, 16384)])
def test_rows_that_pass(torch: Any, shape: tuple[int, ...]):
    """On GPUs with a copy engine and room for some of these rows in shared memory."""
    x, n = numbers(*shape), shape[-1]
    w, b = numbers(n), numbers(n, 1)[:, 0]
    wide = [torch.tensor(a).double() for a in (x, w, b)]
    apart = np.full((*shape[:-1], n + 8), np.nan, np.float32)
    apart[..., :n] = x
    found = cp.kernels.rms_norm(on_gpu(apart)[..., :n], n, on_gpu(w), 1e-5)
    check(found, torch.nn.functional.rms_norm(wide[0], (n,), wide[1], 1e-5), 4e-6)
    expected = torch.nn.functional.layer_norm(wide[0], (n,), *wide[1:])
    out = on_gpu(np.full(shape, np.nan, np.float32))
    cp.kernels.layer_norm(on_gpu(x), n, on_gpu(w), on_gpu(b), out=out)
    check(out, expected, 4e-6)
    found = cp.kernels.layer_norm(on_gpu(x), n, on_gpu(w), on_gpu(b), prologue=one_more)
    check(found, torch.nn.functional.layer_norm(wide[0] * wide[0] + 1, (n,), *wide[1:]), 4e-6)
    same = on_gpu(x)
    cp.kernels.layer_norm(same, n, on_gpu(w), on_gpu(b), epilogue=twice_and_row, out=same)
    rows = torch.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    check(same, expected * 2 + rows, 4e-6)


def one_more(v: Any) -> Any:
    return v * v + 1


def twice_and_row(v: Any, index: Any) -> Any:
    return v * 2 + index[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_cross_entropy(torch: Any, shape: tuple[int, int], reduction: str):
    x = numbers(*shape)
    target = np.random.default_rng(1).integers(0, shape[1], shape[0])
    target[1] = -100
    found = cp.kernels.cross_entropy(on_gpu(x), on_gpu(target), reduction=reduction)
    given = torch.tensor(x).double(), torch.tensor(target)
    check(found, torch.nn.functional.cross_entropy(*given, reduction=reduction))


@pytest.mark.parametrize("kind", ["random", "few", "same", "nan"])
@pytest.mark.parametrize(("shape", "k"), [((3, 5000), 8), ((2, 20001), 100), ((2, 1500), 256)])
def test_topk_of_long_rows(torch: Any, shape: tuple[int, int], k: int, kind: str):
    x = numbers(*shape)
    if kind == "few":
        x = np.round(x)
    if kind == "same":
        x[:] = 2
    if kind == "nan":
        x[:, ::100] = np.nan
    for largest in (True, False):
        values, indices = cp.kernels.topk(on_gpu(x), k, largest=largest)
        wanted = torch.sort(torch.tensor(x), dim=1, descending=largest, stable=True)
        np.testing.assert_array_equal(values.numpy(), wanted[0][:, :k].numpy())
        np.testing.assert_array_equal(indices.numpy(), wanted[1][:, :k].numpy())


@pytest.mark.parametrize("shape", [(33, 70), (3, 20000), (3000, 6), (700, 130)])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_variance(torch: Any, shape: tuple[int, int], axis: int | None):
    x = numbers(*shape) + np.float32(100)
    expected = np.asarray(x.astype(np.float64).var(axis))
    found = np.asarray(cp.kernels.var(on_gpu(x), axis).numpy())
    np.testing.assert_allclose(found, expected, rtol=3e-6)
    expected = np.asarray(x.astype(np.float64).std(axis, ddof=1))
    found = np.asarray(cp.kernels.std(on_gpu(x), axis, correction=1).numpy())
    np.testing.assert_allclose(found, expected, rtol=3e-6)


@pytest.mark.parametrize("shape", [(3, 4, 5, 7), (2, 6, 28, 28)])
def test_norms_of_channels(torch: Any, shape: tuple[int, ...]):
    x, w, b = numbers(*shape) + 30, numbers(shape[1]), numbers(shape[1], 1)[:, 0]
    wide = [torch.tensor(a).double() for a in (x, w, b)]
    functional = torch.nn.functional
    found = cp.kernels.batch_norm(on_gpu(x), None, None, on_gpu(w), on_gpu(b), True)
    check(found, functional.batch_norm(wide[0], None, None, *wide[1:], training=True), 4e-6)
    found = cp.kernels.group_norm(on_gpu(x), 2, on_gpu(w), on_gpu(b))
    check(found, functional.group_norm(wide[0], 2, *wide[1:]), 4e-6)


WINDOWS = [(3, 1, 1), (3, 2, 1), (2, 2, 0), (5, 1, 2), (7, 2, 3), ((3, 2), (1, 2), (1, 1))]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("shape", [(2, 3, 13, 17), (1, 2, 16, 32), (2, 1, 70, 264)])
def test_pools(torch: Any, shape: tuple[int, ...], window: Any):
    x = numbers(*shape)
    functional = torch.nn.functional
    for ceil in (False, True):
        seen = x.copy()
        seen[0, 0, 3, 5] = np.nan
        expected = functional.max_pool2d(torch.tensor(seen), *window, ceil_mode=ceil).numpy()
        found = cp.kernels.max_pool2d(on_gpu(seen), *window, ceil_mode=ceil).numpy()
        np.testing.assert_array_equal(found, expected)
        for counts in (False, True):
            wide = torch.tensor(x).double()
            expected = functional.avg_pool2d(wide, *window, ceil, counts)
            check(cp.kernels.avg_pool2d(on_gpu(x), *window, ceil, counts), expected)
