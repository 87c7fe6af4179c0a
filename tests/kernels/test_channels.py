"""Batch, group and instance norm against f64, with the error of their formulas as the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels.calls.plans import Plans
from cubepy.kernels.normalisation import group_launches
from tests.guarded import Guarded

EPS = {"f2": 2.0**-10, "f4": 2.0**-23, "f8": 2.0**-52}


def normalised(x: np.ndarray, axes: Any, eps: float = 1e-5) -> np.ndarray:
    wide = x.astype("f8")
    centred = wide - wide.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + eps)


def bound(x: np.ndarray, axes: Any, dtype: str) -> np.ndarray:
    """A sum of n numbers is off by at most n / 64 + 64 roundings of their absolute sum, by its
    order in lines; a distance from the mean by as much of the largest number."""
    wide = np.abs(x.astype("f8"))
    n = x.size / wide.mean(axes).size
    computed = EPS["f8" if dtype == "f8" else "f4"]
    spread = np.sqrt(wide.var(axes, keepdims=True)) + 1e-3
    off = (n / 64 + 64) * computed * wide.max(axes, keepdims=True) / spread
    return off * (1 + wide.max(axes, keepdims=True) / spread) + EPS[dtype] * 8


def channels(v: np.ndarray, rank: int) -> np.ndarray:
    return v.astype("f8").reshape(-1, *[1] * (rank - 2))


@pytest.mark.parametrize("dtype", EPS)
def test_batch_norm(draw, dtype):
    shape = draw.pick.choice([(5, 3, 37), (2, 6, 3, 5), (40, 18)])
    x = draw.layout((draw.numbers.standard_normal(shape) * 2 + 3).astype(dtype))
    if draw.pick.random() < 0.5:
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    count = shape[1]
    weight, bias, mean = draw.numbers.standard_normal((3, count)).astype(dtype)
    var = (draw.numbers.random(count) + 0.5).astype(dtype)
    w, b = channels(weight, x.ndim), channels(bias, x.ndim)
    axes = tuple(k for k in range(x.ndim) if k != 1)
    tolerance = 64 * EPS[dtype]

    found = kernels.batch_norm(x, mean, var, weight, bias[::-1][::-1], eps=0.1)
    scale = np.sqrt(channels(var, x.ndim) + 0.1)
    expected = (x.astype("f8") - channels(mean, x.ndim)) / scale * w + b
    np.testing.assert_allclose(found, expected, tolerance, tolerance)

    means, variances = mean.copy(), var.copy()
    found = kernels.batch_norm(x, means, variances, weight, bias, True, 0.25)
    off = np.abs(found.astype("f8") - (normalised(x, axes) * w + b))
    assert np.all(off <= bound(x, axes, dtype) * (np.abs(w) + 1) * 4 + EPS[dtype] * np.abs(b))
    wide = x.astype("f8")
    expected = 0.75 * mean.astype("f8") + 0.25 * wide.mean(axes)
    np.testing.assert_allclose(means, expected, tolerance, tolerance)
    expected = 0.75 * var.astype("f8") + 0.25 * wide.var(axes, ddof=1)
    np.testing.assert_allclose(variances, expected, tolerance, tolerance)


@pytest.mark.parametrize("dtype", EPS)
def test_group_norm(draw, dtype):
    shape = draw.pick.choice([(2, 6, 37), (3, 8, 3, 5)])
    x = draw.layout((draw.numbers.standard_normal(shape) * 2 + 3).astype(dtype))
    weight, bias = draw.numbers.standard_normal((2, shape[1])).astype(dtype)
    for groups in (2, draw.pick.choice([1, shape[1]])):
        split = x.reshape(shape[0], groups, -1)
        expected = normalised(split, 2).reshape(shape)
        expected = expected * channels(weight, x.ndim) + channels(bias, x.ndim)
        off = np.repeat(bound(split, 2, dtype), split.shape[2], 2).reshape(shape)
        found = kernels.group_norm(x, groups, weight, bias).astype("f8")
        limit = off * (1 + np.abs(channels(weight, x.ndim))) * 4 + EPS[dtype] * np.abs(expected)
        assert np.all(np.abs(found - expected) <= limit)
    found = kernels.instance_norm(x, None, None, weight)
    np.testing.assert_array_equal(found, kernels.group_norm(x, shape[1], weight))


def test_large_slabs_are_combined_from_parts(draw):
    x = (draw.numbers.standard_normal((9, 2, 300, 300)) + 1000).astype("f4")
    found = kernels.batch_norm(x, training=True)
    np.testing.assert_allclose(found, normalised(x, (0, 2, 3)), 0, 1e-3)


@cp.cube
def shifted(v: Any, index: Any, shifts: Any) -> Any:
    return v * 2 + shifts[index[0], index[1]]


def test_epilogue_is_told_where_it_is(draw):
    x = draw.numbers.standard_normal((3, 4, 5, 7)).astype("f4")
    shifts = draw.numbers.standard_normal((3, 4)).astype("f4")
    added = shifts[:, :, None, None].astype("f8")
    for y in (x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)[:, :1]):
        s = np.ascontiguousarray(shifts[:, : y.shape[1]])
        a = added[:, : y.shape[1]]
        found = kernels.batch_norm(y, training=True, epilogue=(shifted, s))
        np.testing.assert_allclose(found, normalised(y, (0, 2, 3)) * 2 + a, 1e-4, 1e-4)
        ones = np.ones(y.shape[1], "f4")
        found = kernels.batch_norm(y, ones, ones, epilogue=(shifted, s))
        np.testing.assert_allclose(found, (y - 1.0) / np.sqrt(1 + 1e-5) * 2 + a, 1e-4, 1e-4)
    found = kernels.group_norm(x, 2, epilogue=(shifted, shifts))
    expected = normalised(x.reshape(3, 2, -1), 2).reshape(x.shape) * 2 + added
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


@pytest.fixture
def beside(monkeypatch):
    """Small arrays are normalised by lines of several groups, too."""
    monkeypatch.setattr(group_launches, "LEAST_GROUPED", 1)
    monkeypatch.setattr("cubepy.kernels.normalisation.channels._PLANS", Plans())


GROUPED = (
    ((2, 6, 5, 7), 3),
    ((1, 16, 9, 31), 4),
    ((3, 40, 33), 10),
    ((2, 64, 3, 5, 4), 64),
    ((2, 48, 2, 1), 2),
    ((1, 80, 1, 40), 5),
    ((2, 3, 70, 71), 3),
)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("dtype", EPS)
def test_groups_side_by_side(draw, dtype):
    shape, groups = draw.pick.choice(GROUPED)
    whole = (draw.numbers.standard_normal(shape) * 2 + 3).astype(dtype)
    weight, bias = draw.numbers.standard_normal((2, 2 * shape[1])).astype(dtype)
    weight, bias = weight[::2], bias[: shape[1]][::-1]
    last = channels_last(whole)
    wider = channels_last(np.repeat(whole, 2, 1))[:, : shape[1]]
    for x in (last, wider, last[:, :, ::-1], last[::-1], last[:, :, :1]):
        split = x.reshape(shape[0], groups, -1)
        w, b = channels(weight, x.ndim), channels(bias, x.ndim)
        expected = normalised(split, 2).reshape(x.shape) * w + b
        off = np.repeat(bound(split, 2, dtype), split.shape[2], 2).reshape(x.shape)
        limit = off * (1 + np.abs(w)) * 4 + EPS[dtype] * np.abs(expected)
        found = kernels.group_norm(x, groups, weight, bias)
        assert np.all(np.abs(found.astype("f8") - expected) <= limit)
        out = np.empty(x.shape, dtype)
        kernels.group_norm(x, groups, weight, bias, out=out)
        assert np.all(np.abs(out.astype("f8") - expected) <= limit)


@pytest.mark.usefixtures("beside")
def test_groups_side_by_side_far_from_zero_and_not_finite(draw):
    x = channels_last((draw.numbers.standard_normal((2, 18, 101, 30)) + 1000).astype("f4"))
    x[0, 1, 7, 3], x[1, 4, 100, 0], x[1, 17, 0, 0] = np.nan, np.inf, -np.inf
    found = kernels.group_norm(x, 9)
    with np.errstate(invalid="ignore"):
        expected = normalised(x.reshape(2, 9, -1), 2).reshape(x.shape)
    np.testing.assert_allclose(found, expected, 0, 1e-3)
    assert np.isnan(found).reshape(2, 9, -1).all(2).sum() == 3
    flat = np.full((1, 4, 6, 7), 3, "f4")
    np.testing.assert_array_equal(kernels.instance_norm(channels_last(flat)), 0 * flat)


@cp.cube
def doubled(v: Any) -> Any:
    return v * 2 + 1


@pytest.mark.usefixtures("beside")
def test_groups_side_by_side_fused_and_in_place(draw):
    for shape in ((3, 4, 5, 7), (2, 36, 9, 3)):
        x = channels_last(draw.numbers.standard_normal(shape).astype("f4"))
        shifts = draw.numbers.standard_normal(shape[:2]).astype("f4")
        expected = normalised(x.reshape(shape[0], 2, -1), 2, 1e-5 / 4).reshape(shape) * 2
        expected = expected + shifts[:, :, None, None]
        call = {"prologue": doubled, "epilogue": (shifted, shifts)}
        np.testing.assert_allclose(kernels.group_norm(x, 2, **call), expected, 1e-4, 1e-4)
        count, last = x.size, (shape[0], *shape[2:], shape[1])
        fence = Guarded((count,), x.dtype, draw.pick.randrange(9))
        out = np.moveaxis(fence.array.reshape(last), -1, 1)
        assert kernels.group_norm(x, 2, out=out, **call) is out
        assert fence.is_fenced
        np.testing.assert_allclose(out, expected, 1e-4, 1e-4)
        kernels.group_norm(x, 2, out=x, **call)
        np.testing.assert_array_equal(x, out)


def test_results_are_written_where_they_belong(draw):
    x = draw.numbers.standard_normal((5, 4, 37)).astype(np.float32)
    out = Guarded(x.shape, x.dtype, draw.pick.randrange(9))
    for call in (
        lambda v, **k: kernels.batch_norm(v, training=True, **k),
        lambda v, **k: kernels.group_norm(v, 2, **k),
        lambda v, **k: kernels.layer_norm(v, 37, **k),
        lambda v, **k: kernels.softmax(v, 0, **k),
    ):
        assert call(x, out=out.array) is out.array
        out.check(out.array)
        again = x.copy()
        call(again, out=again)
        np.testing.assert_array_equal(again, out.array)
        with pytest.raises(LaunchError, match="overlaps"):
            call(again[1:], out=again[:-1])
    assert kernels.group_norm(np.empty((0, 4, 3), "f4"), 2).shape == (0, 4, 3)


def test_norms_of_axes_that_lie_apart(draw):
    x = draw.numbers.standard_normal((3, 5, 4)).astype(np.float32)
    weight = draw.numbers.standard_normal((4, 5)).astype(np.float32)
    y = x.transpose(0, 2, 1)
    expected = normalised(y, (1, 2)) * weight
    np.testing.assert_allclose(kernels.layer_norm(y, (4, 5), weight), expected, 1e-4, 1e-5)
    expected = y / np.sqrt((y.astype("f8") ** 2).mean((1, 2), keepdims=True) + 0.5)
    np.testing.assert_allclose(kernels.rms_norm(y, (4, 5), eps=0.5), expected, 1e-5, 1e-5)


def test_refused():
    x, ones = np.zeros((2, 3, 4), np.float32), np.ones(3, np.float32)
    with pytest.raises(LaunchError, match="`running_mean` and `running_var` are None"):
        kernels.batch_norm(x)
    with pytest.raises(LaunchError, match="one of `running_mean` and `running_var`"):
        kernels.batch_norm(x, ones)
    with pytest.raises(LaunchError, match=r"`weight` has shape \(2,\).*is \(3,\)"):
        kernels.batch_norm(x, ones, ones, np.ones(2, np.float32))
    with pytest.raises(LaunchError, match="has no variance"):
        kernels.batch_norm(x[:1, :, :1], training=True)
    with pytest.raises(LaunchTypeError, match="`bias` has dtype f64, but `x` has f32"):
        kernels.group_norm(x, 3, None, np.ones(3))
    with pytest.raises(LaunchError, match=r"`num_groups` is 2, and `x` has shape \(2, 3, 4\)"):
        kernels.group_norm(x, 2)
    with pytest.raises(LaunchTypeError, match="`num_groups`"):
        kernels.group_norm(x, 1.5)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="that is updated overlaps|are updated|updated"):
        kernels.batch_norm(x, ones, ones, training=True)
    fixed = ones.copy()
    fixed.flags.writeable = False
    with pytest.raises(LaunchError, match="`running_mean` is updated, but it is read-only"):
        kernels.batch_norm(x, fixed, ones, training=True)
    assert np.all(ones == 1)


@pytest.mark.optional("torch")
def test_as_torch(require_package):
    torch = require_package("torch")
    norm = torch.nn.functional
    x = torch.randn(4, 6, 9, 9)
    for y in (x, x.contiguous(memory_format=torch.channels_last), x.bfloat16()):
        weight, bias = torch.randn(2, 6, dtype=y.dtype)
        tolerance = 2e-2 if y.dtype is torch.bfloat16 else 1e-5
        means = [torch.zeros(6, dtype=y.dtype), torch.zeros(6, dtype=y.dtype)]
        variances = [torch.ones(6, dtype=y.dtype), torch.ones(6, dtype=y.dtype)]
        for training in (True, False):
            found = kernels.batch_norm(y, means[0], variances[0], weight, bias, training)
            expected = norm.batch_norm(y, means[1], variances[1], weight, bias, training)
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
            assert found.stride() == expected.stride()
        torch.testing.assert_close(means[0], means[1])
        torch.testing.assert_close(variances[0], variances[1])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(2, 6, 37), (1, 4, 70_001), (3, 32, 9, 9)])
def test_channels_of_one_number_are_near_zero(draw, shape, last):
    """The mean is off by a rounding of it, and by what sums of its own error round."""
    each = (draw.numbers.standard_normal(shape[1]) * 10).astype("f4")
    one = np.broadcast_to(each.reshape(-1, *[1] * (len(shape) - 2)), shape)
    x = np.moveaxis(np.ascontiguousarray(np.moveaxis(one, 1, -1)), -1, 1) if last else one.copy()
    off = np.abs(each).max() * (2 + x.size / 1000) * EPS["f4"] / np.sqrt(1e-5)
    same = np.full_like(x, each[0])
    for found in (
        kernels.instance_norm(x),
        kernels.batch_norm(x, training=True),
        kernels.group_norm(same, 2),
    ):
        assert np.abs(found).max() <= off


@pytest.mark.parametrize("last", [False, True])
def test_a_number_unlike_the_rest_leaves_the_rest_right(draw, last):
    shape = (2, 512, 512, 4) if last else (2, 4, 512, 512)
    x = draw.numbers.standard_normal(shape).astype("f4")
    x = np.moveaxis(x, -1, 1) if last else x
    x[:, :, 0, 0] = 1e6
    for found, axes in (
        (kernels.instance_norm(x), (2, 3)),
        (kernels.batch_norm(x, training=True), (0, 2, 3)),
    ):
        error = np.abs(found - normalised(x, axes))
        error[:, :, 0, 0] = 0
        assert error.max() < 1e-6
