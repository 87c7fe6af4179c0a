"""Reductions against NumPy's, and float sums against exact ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from tests.guarded import Guarded

DTYPES = ("f4", "f4", "f4", "f8", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")


def random_axes(pick: Any, rank: int) -> Any:
    if pick.random() < 0.25:
        return None
    chosen = pick.sample(range(rank), pick.randint(0, rank))
    axes = tuple(a - rank * (pick.random() < 0.5) for a in chosen)
    return axes[0] if len(axes) == 1 and pick.random() < 0.5 else axes


def random_shape(pick: Any) -> tuple[int, ...]:
    rank = pick.choice((0, 1, 2, 2, 3, 4))
    shape = tuple(pick.choice((0, 1, 2, 3, 7, 17, 64, 511, 513, 1000)) for _ in range(rank))
    while math.prod(shape) > 10**6:
        shape = tuple(max(1, n // 2) for n in shape)
    return shape


def assert_sum(found: Any, x: np.ndarray, axis: Any, keepdims: bool) -> None:
    """Within an ULP of the exact sum, and a rounding of the largest partial sums."""
    exact = np.sum(x, axis, np.longdouble, keepdims=keepdims)
    size = np.sum(np.abs(x), axis, np.longdouble, keepdims=keepdims)
    eps = np.finfo(x.dtype).eps
    bound = eps * np.abs(exact) + 4 * eps * size * (x.dtype != np.float16)
    assert np.all(np.abs(found.astype(np.longdouble) - exact) <= bound)


@pytest.mark.parametrize("name", ("sum", "max", "min"))
def test_any_axes_and_strides(draw, name):
    ours, theirs = getattr(kernels, name), getattr(np, name)
    for _ in range(10):
        shape = random_shape(draw.pick)
        dtype = np.dtype(draw.pick.choice(DTYPES))
        x = draw.layout(draw.array(shape, dtype))
        axis, keepdims = random_axes(draw.pick, len(shape)), draw.pick.random() < 0.4
        case = str((name, x.shape, x.strides, dtype, axis, keepdims))
        try:
            expected = theirs(x, axis=axis, keepdims=keepdims)
        except ValueError:
            with pytest.raises(LaunchError):
                ours(x, axis, keepdims)
            continue
        found = ours(x, axis, keepdims)
        assert type(found) is type(expected) and found.dtype == expected.dtype, case
        out = Guarded(expected.shape, expected.dtype, draw.pick.randrange(9))
        assert ours(x, axis, keepdims, out=out.array) is out.array
        out.check(out.array)
        np.testing.assert_array_equal(found, out.array)
        if name == "sum" and dtype.kind == "f":
            assert_sum(found, x, axis, keepdims)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=case)


@pytest.mark.parametrize("axis", (None, 0, 1, 2, (0, 1), (1, 2), (0, 2)))
def test_large_arrays(draw, axis):
    x = draw.numbers.standard_normal((64, 70, 513)).astype(np.float32)
    assert_sum(kernels.sum(x, axis), x, axis, False)
    x[draw.pick.randrange(64), 3, 5] = np.nan
    np.testing.assert_array_equal(kernels.max(x, axis), np.max(x, axis))
    np.testing.assert_array_equal(kernels.min(x[:, ::-1], axis), np.min(x[:, ::-1], axis))


@pytest.mark.parametrize("axis", (None, 0, 1))
def test_sums_are_as_exact_as_numpys(draw, axis):
    uniform = draw.numbers.random((1500, 1500), np.float32)
    constant = np.full((1500, 1500), draw.pick.random() + 0.01, np.float32)
    for x in (uniform, constant):
        exact = np.sum(x, axis, np.float64)
        ours = np.abs(kernels.sum(x, axis) - exact)
        assert np.all(ours <= 6 * 2.0**-24 * exact)
        if x is uniform and axis is not None:
            theirs = np.abs(np.sum(x, axis) - exact)
            assert ours.mean() <= theirs.mean()


def test_special_numbers():
    inf, nan = np.inf, np.nan
    x = np.zeros((3, 5000), np.float32)
    x[:, 7], x[1, 4000], x[2, 9] = inf, -inf, nan
    np.testing.assert_array_equal(kernels.sum(x, 1), [inf, nan, nan])
    np.testing.assert_array_equal(kernels.max(x, 1), [inf, inf, nan])
    np.testing.assert_array_equal(kernels.min(x, 1), [0, -inf, nan])
    np.testing.assert_array_equal(kernels.sum(x.T.copy(), 0), [inf, nan, nan])
    low = np.full((2, 300), -inf, np.float32)
    np.testing.assert_array_equal(kernels.max(low, 1), [-inf, -inf])


def test_half_precision_adds_in_single():
    x = np.full(5000, 1, np.float16)
    assert kernels.sum(x) == 5000 and kernels.sum(x).dtype == np.float16
    assert kernels.sum(np.stack([x, x], 1), 0).tolist() == [5000, 5000]


def test_integers_wrap_in_64_bits():
    x = np.full(4, 2**62, np.int64)
    assert kernels.sum(x) == np.sum(x) == 0
    assert kernels.sum(np.full(300, 255, np.uint8)) == 300 * 255


def test_nothing():
    assert kernels.sum(np.zeros(0, np.float32)) == 0
    np.testing.assert_array_equal(kernels.sum(np.zeros((3, 0), np.int32), 1), [0, 0, 0])
    assert kernels.max(np.zeros((0, 3), np.float32), 1).shape == (0,)
    for function in (kernels.max, kernels.min):
        with pytest.raises(ValueError, match="no m"):
            function(np.zeros((0, 3), np.float32), 0)


def test_dim_is_axis():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(kernels.sum(x, dim=1), np.sum(x, 1))
    with pytest.raises(LaunchError, match="both"):
        kernels.sum(x, 1, dim=1)


@pytest.mark.parametrize("axis", (2, -3, (0, 0), (0, -2)))
def test_refused_axes(axis):
    with pytest.raises(LaunchError, match="axis"):
        kernels.sum(np.zeros((2, 3)), axis)


def test_refused_arguments():
    x = np.zeros((4, 4))
    for bad in (np.zeros(3), np.zeros(4, np.float32), x[0], np.broadcast_to(0.0, 4), [0] * 4):
        with pytest.raises(LaunchError):
            kernels.sum(x, 0, out=bad)
    with pytest.raises(LaunchTypeError):
        kernels.sum([1, 2])
    with pytest.raises(LaunchTypeError):
        kernels.sum(x, 1.5)


@pytest.mark.optional("torch")
def test_torch(draw, require_package):
    torch = require_package("torch")
    x = torch.from_numpy(draw.array((5, 6, 70), np.float32))
    for axis in (None, 0, -1, (0, 2)):
        axes = (0, 1, 2) if axis is None else axis
        assert torch.equal(kernels.sum(x, axis), torch.sum(x, axes))
        assert torch.equal(kernels.max(x, dim=axis), torch.amax(x, axes))
        y = x.transpose(0, 2)
        assert torch.equal(kernels.min(y, axis), torch.amin(y, axes))
    assert kernels.sum(x).ndim == 0 and isinstance(kernels.sum(x), torch.Tensor)
    assert kernels.sum(x.to(torch.bfloat16)).dtype == torch.bfloat16
    assert kernels.sum(x > 0).dtype == torch.int64
    out = torch.empty(6, 70)
    assert kernels.sum(x, 0, out=out) is out
    with pytest.raises(LaunchError, match="grad"):
        kernels.sum(x.clone().requires_grad_())
