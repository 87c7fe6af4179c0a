"""Products, means, variances, norms and truth of arrays against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.errors import LaunchError


def logsumexp(x: np.ndarray, axis: Any) -> np.ndarray:
    return np.log(np.exp(x).sum(axis))


def norm(x: np.ndarray, axis: Any) -> np.ndarray:
    return np.sqrt((x * x).sum(axis))


REFERENCES = {"mean": np.mean, "var": np.var, "std": np.std, "norm": norm, "logsumexp": logsumexp}
SHAPES = ((4, 5, 70), (33, 1025))
EPS = {"f2": 2.0**-10, "f4": 2.0**-23, "i2": 2.0**-52}


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("name", REFERENCES)
def test_against_f64(draw, name, dtype):
    for shape in draw.pick.sample(SHAPES, 1):
        x = draw.layout((draw.numbers.standard_normal(shape) + 0.5).astype(dtype))
        for axis in draw.pick.sample((None, 0, x.ndim - 1, (0, x.ndim - 1)), 2):
            found = getattr(kernels, name)(x, axis)
            expected = REFERENCES[name](x.astype(np.longdouble), axis)
            assert found.dtype == (dtype if dtype[0] == "f" else "f8")
            bound = 16 * EPS[dtype] * (np.abs(expected) + 1)
            assert np.all(np.abs(found - expected) <= bound), (shape, axis)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?"])
def test_products_and_truth(draw, dtype):
    for shape in draw.pick.sample(((3, 5, 40), (6, 33)), 1):
        x = (draw.numbers.random(shape) < 0.97).astype(dtype)
        x[x != 0] *= draw.numbers.choice([1, 1, 1, 2], np.count_nonzero(x)).astype(dtype)
        x = draw.layout(x)
        for axis in (None, 0, -1):
            for name in ("prod", "any", "all"):
                found = getattr(kernels, name)(x, axis)
                expected = getattr(np, name)(x, axis)
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)


def test_special_values():
    x = np.array([[np.nan, 0], [0, 0], [-np.inf, -np.inf], [np.inf, 1]], np.float32)
    assert kernels.any(x, 1).tolist() == [True, False, True, True]
    assert kernels.all(x, 1).tolist() == [False, False, True, True]
    np.testing.assert_array_equal(kernels.logsumexp(x, 1)[2:], [-np.inf, np.inf])
    assert np.isnan(kernels.logsumexp(x, 1)[0])
    np.testing.assert_allclose(kernels.logsumexp(np.full(9, 1e4, np.float32)), 1e4 + np.log(9))
    assert kernels.var(np.full((3, 50), 1e8, np.float32), 1).tolist() == [0, 0, 0]


def test_nothing():
    x = np.empty((0, 3), np.float32)
    assert kernels.prod(x, 0).tolist() == [1, 1, 1]
    assert kernels.any(x, 0).tolist() == [False] * 3
    assert kernels.all(x, 0).tolist() == [True] * 3
    assert np.isnan(kernels.mean(x, 0)).all()
    assert np.isnan(kernels.var(x, 0)).all()
    assert kernels.logsumexp(x, 0).tolist() == [-np.inf] * 3
    assert kernels.norm(x, 0).tolist() == [0, 0, 0]
    assert kernels.mean(x, 1).shape == (0,)


def test_options(draw):
    x = draw.numbers.standard_normal((6, 70)).astype(np.float32)
    np.testing.assert_allclose(kernels.var(x, 1, correction=1), x.var(1, ddof=1), 1e-5)
    assert np.isinf(kernels.std(x[:, :2], 1, correction=3)).all()
    np.testing.assert_allclose(kernels.std(x, 1, ddof=1), x.std(1, ddof=1), 1e-5)
    with pytest.raises(LaunchError, match="both `correction` and `ddof` are given"):
        kernels.var(x, correction=1, ddof=1)
    for order in (1, 2, np.inf, -np.inf):
        expected = np.linalg.norm(x.astype("f8"), order, 1)
        np.testing.assert_allclose(kernels.norm(x, 1, ord=order), expected, 1e-5)
    assert kernels.mean(x, (0, 1), keepdims=True).shape == (1, 1)
    np.testing.assert_array_equal(kernels.std(x, dim=0), kernels.std(x, 0))
    out = np.empty(6, np.float32)
    assert kernels.logsumexp(x, 1, out=out) is out
    with pytest.raises(LaunchError, match="`ord` is 3"):
        kernels.norm(x, ord=3)


@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "logsumexp", "norm"])
def test_functions_of_the_caller(draw, name):
    factor = draw.pick.choice([0.5, 2.0])
    shape = draw.pick.choice([(37, 5), (3, 130, 20), (2, 3000)])
    x = draw.layout(draw.numbers.standard_normal(shape).astype("f4"))
    for axis in draw.pick.sample((0, x.ndim - 1, None), 2):
        found = getattr(kernels, name)(
            x, axis, prologue=lambda v: cp.exp(v * factor), epilogue=lambda v: v * 3 + 1
        )
        inner = np.exp(x.astype("f8") * factor)
        plain = getattr(kernels, name)(inner, axis)
        np.testing.assert_allclose(np.asarray(found, "f8"), plain * 3 + 1, 2e-5)


def test_functions_that_give_constants(draw):
    x = draw.numbers.standard_normal((5, 37)).astype("f4")
    for axis in (0, 1):
        found = kernels.sum(x, axis, prologue=lambda v: 1.0)
        np.testing.assert_array_equal(found, np.full(37 if axis == 0 else 5, x.shape[axis], "f4"))
        found = kernels.sum(x, axis, epilogue=lambda v: 2.0)
        np.testing.assert_array_equal(found, np.full(37 if axis == 0 else 5, 2, "f4"))
    found = kernels.softmax(x, epilogue=lambda v, index: 3.0)
    np.testing.assert_array_equal(found, np.full(x.shape, 3, "f4"))
