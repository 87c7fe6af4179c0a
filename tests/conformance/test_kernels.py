"""Prebuilt functions on every device, against NumPy in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.calls.libraries import serving
from cubepy.kernels.convolution.narrow import Filling, fill_rows

SLOW = {"pocl", "opencl:0", "oclgrind", "metal_text"}
"""Devices whose compilers take a second for each kernel."""
RNG = np.random.default_rng(7)


class On:
    """Calls prebuilt functions with arrays on a device, and gives their results as NumPy's."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_here = cp.device(device).uses_host_memory

    def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The result of a call whose NumPy arrays are moved to the device."""
        if self.is_here:
            with serving(self.device):
                return function(*args, **options)
        moved = {name: self.placed(x) for name, x in options.items()}
        found = function(*map(self.placed, args), **moved)
        return self.taken(found)

    def placed(self, x: Any) -> Any:
        """An argument on the device, with its strides."""
        if not isinstance(x, np.ndarray):
            return x
        order = sorted(range(x.ndim), key=lambda k: -abs(x.strides[k]))
        stored = cp.asarray(np.ascontiguousarray(x.transpose(order)), device=self.device)
        return _transposed(stored, np.argsort(order))

    def output(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """An array on the device for a result, full of bytes that are no result."""
        poison = np.full((*shape, np.dtype(dtype).itemsize), 0x5C, np.uint8).view(dtype)[..., 0]
        return poison if self.is_here else self.placed(poison)

    def taken(self, found: Any) -> Any:
        """A result, which lies on the device, as NumPy's."""
        if isinstance(found, tuple):
            return tuple(map(self.taken, found))
        if self.is_here:
            return found
        assert found.device == self.device
        return found.numpy()


def _transposed(x: Any, axes: Any) -> Any:
    from dataclasses import replace

    m = type(x).__cubepy_memory__(x)
    shape, strides = (tuple(v[k] for k in axes) for v in (m.shape, m.strides))
    return type(x)(replace(m, shape=shape, strides=strides))


@pytest.fixture
def on(device: str) -> On:
    return On(device)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def double_and_add(a: Any, b: Any) -> Any:
    return a * 2 + b


def test_map(on: On):
    x, y = numbers(3, 37), numbers(37)
    np.testing.assert_array_equal(on(cp.kernels.map, double_and_add, x, y), x * 2 + y)
    np.testing.assert_array_equal(on(cp.kernels.map, double_and_add, x.T, 1.0), x.T * 2 + 1)
    out = on.output((3, 37))
    on(cp.kernels.map, double_and_add, x, y, out=out)
    np.testing.assert_array_equal(on.taken(out), x * 2 + y)


def _logsumexp(x: np.ndarray, axis: Any) -> np.ndarray:
    return np.log(np.exp(x).sum(axis))


def _norm(x: np.ndarray, axis: Any) -> np.ndarray:
    return np.sqrt((x * x).sum(axis))


REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std")
OTHERS = {"logsumexp": _logsumexp, "norm": _norm}


@pytest.mark.parametrize("name", [*REDUCTIONS, *OTHERS])
def test_reductions(on: On, name: str):
    x = (np.abs(numbers(3, 4, 70)) + 0.5) / 1.2  # no product of some of them overflows
    x[1, 2] = 0
    reference = OTHERS.get(name) or getattr(np, name)
    # tests/kernels has all axes on the CPU.
    for axis in (None, 0, 2, (0, 2)) if on.device == "cuda:0" else (0, (0, 2)):
        found = on(getattr(cp.kernels, name), x, axis)
        expected = np.asarray(reference(x.astype("f8"), axis))
        assert np.shape(found) == expected.shape
        np.testing.assert_allclose(np.asarray(found, "f8"), expected, 3e-5, 1e-5)
    if name in ("var", "std"):
        x = numbers(150, 150)
        np.fill_diagonal(x, np.inf)  # whose distance from the mean is no number
        for axis in (0, 1):
            assert np.isnan(on(getattr(cp.kernels, name), x, axis)).all()


@pytest.mark.parametrize("dtype", ["f2", "i1", "u2", "i4", "?"])
def test_reductions_of_small_types(on: On, dtype: str):
    x = RNG.integers(0, 2 if dtype == "?" else 9, (5, 37)).astype(dtype)
    for name in ("sum", "max"):
        for axis in (0, 1):
            found = on(getattr(cp.kernels, name), x, axis)
            np.testing.assert_array_equal(found, getattr(np, name)(x, axis))


def test_max_pool2d(on: On):
    x = numbers(2, 3, 12, 19)
    views = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    found, where = on(cp.kernels.max_pool2d, x, 3, 2, return_indices=True)
    np.testing.assert_array_equal(found, views.max((4, 5)))
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(2, 3, -1), where.reshape(2, 3, -1), 2).reshape(found.shape),
        found,
    )
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(on(cp.kernels.max_pool2d, last, 3, 2), found)


def test_average_and_adaptive_pooling(on: On):
    x = numbers(2, 3, 9, 14)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    wide = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2]
    parts = np.stack(
        [x[..., j * 14 // 4 : -(-(j + 1) * 14 // 4)].sum((2, 3)) / 36 for j in range(4)]
    )
    for y in (x, last):
        found = on(cp.kernels.avg_pool2d, y, 3, 2, 1)
        np.testing.assert_allclose(found, views.mean((4, 5)), 1e-5, 1e-5)
        found = on(cp.kernels.adaptive_avg_pool2d, y, (1, 4))
        np.testing.assert_allclose(found[:, :, 0], parts.transpose(1, 2, 0), 1e-4, 1e-5)


def test_max_pool3d(on: On):
    x = numbers(2, 3, 4, 6, 7)
    views = np.lib.stride_tricks.sliding_window_view(x, (2, 3, 2), (2, 3, 4))[:, :, ::2, ::3, ::2]
    found, where = on(cp.kernels.max_pool3d, x, (2, 3, 2), return_indices=True)
    np.testing.assert_array_equal(found, views.max((5, 6, 7)))
    taken = np.take_along_axis(x.reshape(2, 3, -1), where.reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(taken.reshape(found.shape), found)


def times_and_more(v: Any, index: Any, factors: Any) -> Any:
    return v * factors[index[0]]


@pytest.mark.parametrize("m", [3, 21])
@pytest.mark.parametrize("dtype", ["f4", "i1"])
def test_matmul(on: On, m: int, dtype: str):
    a, b = (10 * numbers(m, 19)).astype(dtype), (10 * numbers(19, 23)).astype(dtype)
    exact = a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(on(cp.kernels.matmul, a, b), exact, 1e-5, 1e-4)
    turned = np.ascontiguousarray(b.T).T
    np.testing.assert_allclose(on(cp.kernels.matmul, a, turned), exact, 1e-5, 1e-4)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_matmul_of_8_bit_floats(on: On, name: str):
    a, b = (numbers(*shape).astype(name) for shape in ((7, 19), (19, 23)))
    exact = a.astype("f8") @ b.astype("f8")
    found = np.asarray(on(cp.kernels.matmul, a, b), "f8")
    np.testing.assert_allclose(found, exact, 2.0**-7, 1e-4)
    rows = on(cp.kernels.gather, a, np.array([6, -1, 0]), mode="slices")
    np.testing.assert_array_equal(rows.view("u1"), a[[6, -1, 0]].view("u1"))


def test_matmul_with_all(on: On):
    a, b, bias, factors = numbers(2, 9, 12), numbers(12, 18), numbers(18), numbers(2)
    found = on(cp.kernels.matmul, a, b, bias=bias)
    np.testing.assert_allclose(found, a.astype("f8") @ b + bias, 1e-5, 1e-4)
    if on.is_here:
        found = on(cp.kernels.matmul, a, b, epilogue=(times_and_more, factors))
        np.testing.assert_allclose(found, a.astype("f8") @ b * factors[:, None, None], 1e-5, 1e-4)


def of_rows(a: Any, b: Any, s: Any, t: Any) -> Any:
    return cp.kernels.matmul(cp.kernels.Quantised(a, s), cp.kernels.Quantised(b, t).T)


def of_bits(x: Any, q: Any, s: Any, z: Any) -> Any:
    return cp.kernels.matmul(x, cp.kernels.Quantised(q, s, z, 1, 16, "uint4").T)


@pytest.mark.parametrize("m", [3, 21])
def test_matmul_of_quantised_factors(on: On, m: int):
    a, b = (10 * numbers(m, 48)).astype("i1"), (10 * numbers(19, 48)).astype("i1")
    s, t = abs(numbers(m, 1)) + 0.1, abs(numbers(19, 1)) + 0.1
    exact = (a * s.astype("f8")) @ (b * t.astype("f8")).T
    np.testing.assert_allclose(on(of_rows, a, b, s, t), exact, 1e-5, 1e-3)
    q, scale = b.astype("i4") & 15, abs(numbers(19, 3)) + 0.1
    zero = np.arange(57, dtype="i4").reshape(19, 3) % 16
    wide = (q - np.repeat(zero, 16, 1)) * np.repeat(scale.astype("f8"), 16, 1)
    packed = (q[:, ::2] | q[:, 1::2] << 4).astype("u1")
    x = numbers(m, 48)
    np.testing.assert_allclose(on(of_bits, x, packed, scale, zero), x @ wide.T, 1e-5, 1e-3)


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution with one zero around, in f64."""
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    return np.einsum("nchwyx,fcyx->nfhw", windows, w.astype("f8"))


@pytest.mark.parametrize("last", [False, True])
def test_conv2d(on: On, last: bool):
    x, w, bias = numbers(2, 3, 5, 6), numbers(5, 3, 3, 3), numbers(5)
    seen = x
    if last:
        seen = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    found = on(cp.kernels.conv2d, seen, w, bias, padding=1)
    np.testing.assert_allclose(found, convolved(x, w) + bias[:, None, None], 1e-5, 1e-4)


def test_conv2d_of_points(on: On):
    x, w = numbers(2, 3, 5, 6), numbers(5, 3, 1, 1)
    exact = np.einsum("nchw,fc->nfhw", x.astype("f8"), w[:, :, 0, 0].astype("f8"))
    np.testing.assert_allclose(on(cp.kernels.conv2d, x, w), exact, 1e-5, 1e-4)


@pytest.mark.parametrize("precision", ["winograd2x2", "winograd4x4"])
def test_conv2d_of_squares(on: On, precision: str):
    def packed(x: Any, w: Any, bias: Any) -> Any:
        weight = cp.kernels.prepack(w, precision=precision)
        return cp.kernels.conv2d(x, weight, bias, padding=1)

    for rows, columns in ((5, 6), (2, 7), (9, 3)):
        x, w, bias = numbers(2, 3, rows, columns), numbers(5, 3, 3, 3), numbers(5)
        found = on(packed, x, w, bias)
        np.testing.assert_allclose(found, convolved(x, w) + bias[:, None, None], 1e-4, 1e-3)


@pytest.mark.parametrize("channels", [1, 3, 6])
def test_pixels_that_are_filled_up(device: str, channels: int):
    """What convolutions of few channels copy, which Hopper alone multiplies."""
    x = RNG.standard_normal((2, channels, 1, 5, 6)).astype("f4")
    wide = -(-channels // 4) * 4
    out = np.full((2, 1, 8, 10, wide), np.nan, "f4")
    many = 1 if cp.device(device).target.kind in ("cpu", "interpreter") else 32
    f, share = Filling(wide, False), 3
    fill = fill_rows.configure(device=device)[16 * -(-10 * wide // f.line // share), many]
    fill(x, out, before=(0, 2, 1), f=f, share=share)
    expected = np.zeros_like(out)
    expected[:, 0, 2:7, 1:7, :channels] = x[:, :, 0].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(out, expected)


def test_transpose_and_where(on: On):
    x = numbers(2, 37, 70)
    for axes in (None, (0, 2, 1), (1, 0, 2)):
        np.testing.assert_array_equal(on(cp.kernels.transpose, x, axes), x.transpose(axes))
    small = x[0].astype(np.int8)
    np.testing.assert_array_equal(on(cp.kernels.transpose, small), small.T)
    found = on(cp.kernels.where, x > 0, x, np.float32(0))
    np.testing.assert_array_equal(found, np.maximum(x, 0))


def test_gather_and_scatter(on: On):
    x, values = numbers(5, 37), RNG.integers(-9, 9, (4, 37)).astype(np.float32)
    rows, each = np.array([4, -1, 0, 4]), RNG.integers(-5, 5, (2, 37))
    np.testing.assert_array_equal(on(cp.kernels.gather, x, rows), x[rows])
    found = on(cp.kernels.gather, x, each)
    np.testing.assert_array_equal(found, np.take_along_axis(x, each, 0))
    last = on(cp.kernels.scatter, x, rows, values)
    np.testing.assert_array_equal(last[[4, 0, 1]], [values[3], values[2], x[1]])
    expected = np.ones((5, 37), np.float32)
    np.add.at(expected, rows, values)
    for ordered in (True, False):
        start = np.ones((5, 37), np.float32)
        found = on(cp.kernels.scatter, start, rows, values, 0, "add", deterministic=ordered)
        np.testing.assert_array_equal(found, expected)
    found = on(cp.kernels.scatter, np.zeros(5, np.int32), rows, rows.astype("i4"), 0, "max")
    np.testing.assert_array_equal(found, [0, 0, 0, 0, 4])


def test_random_numbers(on: On):
    """The same bits on all devices, those of `tests/kernels/test_random.py` on the CPU."""
    random = cp.kernels.random
    names = ("bits", "uniform", "bernoulli", "normal")
    for name in names[1:] if on.device in SLOW else names:
        draw, dtype = getattr(random, name), {"bits": np.uint32, "bernoulli": np.bool_}.get(name)
        expected = draw(70, seed=2**63 + 5, offset=3, dtype=dtype)
        found = on(draw, seed=2**63 + 5, offset=3, out=on.output((70,), expected.dtype))
        if name == "normal":
            np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
        else:
            np.testing.assert_array_equal(found, expected)


def test_quantisation(on: On):
    x, scale = 9 * numbers(4, 34), np.array([0.5, 1, 2, 0.25], np.float32)
    q = np.clip(np.rint(x / scale[:, None]), -8, 7).astype(np.int8)
    found = on(cp.kernels.quantize, x, scale, None, "int4", 0)
    np.testing.assert_array_equal(found, (q[:, ::2] & 15) | (q[:, 1::2].astype(np.uint8) << 4))
    back = on(cp.kernels.dequantize, found, scale, axis=0, packed="int4")
    np.testing.assert_array_equal(back, q * scale[:, None])
    whole = on(cp.kernels.quantize, x, scale, None, "int8", 0)
    np.testing.assert_array_equal(whole, np.clip(np.rint(x / scale[:, None]), -128, 127))


def test_positions(on: On):
    x = RNG.integers(-9, 9, (3, 4, 70)).astype(np.float32)
    x[1, 2, 50] = np.nan
    for axis in (None, 0, 1, 2):
        np.testing.assert_array_equal(on(cp.kernels.argmax, x, axis), np.argmax(x, axis))
    small = np.nan_to_num(x).astype(np.int8)
    np.testing.assert_array_equal(on(cp.kernels.argmin, small, 2), small.argmin(2))


@pytest.mark.parametrize("dtype", ["f4", "i1"])
def test_scans(on: On, dtype: str):
    x = RNG.integers(-3, 4, (3, 5, 300)).astype(dtype)
    for axis in (0, 2) if on.device in SLOW else (None, 0, 1, 2):
        found = on(cp.kernels.cumsum, x, axis)
        np.testing.assert_array_equal(found, np.cumsum(x, axis, "f8"))
    signs = np.sign(x) + (x == 0).astype(dtype)
    np.testing.assert_array_equal(on(cp.kernels.cumprod, signs, 2), np.cumprod(signs, 2))


@pytest.mark.parametrize("dtype", ["f4", "i1"])
def test_sorting(on: On, dtype: str):
    n = {"interpreter": 40, "oclgrind": 150}.get(on.device, 1100)
    x = RNG.integers(-9, 9, (2, 3, n)).astype(dtype)
    for axis, descending in ((2, False), (0, True)):
        values, indices = on(cp.kernels.sort, x, axis, descending)
        expected = np.argsort(-x if descending else x, axis, kind="stable")
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis))
    values, indices = on(cp.kernels.topk, x, 5)
    expected = np.argsort(-x, 2, kind="stable")[..., :5]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 2))


def test_normalisation(on: On):
    x, weight = numbers(6, 70), numbers(70)
    wide = np.exp(x.astype("f8"))
    for axis in (0, 1):
        expected = wide / wide.sum(axis, keepdims=True)
        np.testing.assert_allclose(on(cp.kernels.softmax, x, axis), expected, 1e-5)
        found = on(cp.kernels.log_softmax, x, axis)
        np.testing.assert_allclose(found, np.log(expected), 1e-4, 1e-5)
    centred = x - x.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(on(cp.kernels.layer_norm, x, 70, weight), expected, 1e-4, 1e-5)
    expected = x / np.sqrt((x**2).mean(1, keepdims=True) + 0.5)
    np.testing.assert_allclose(on(cp.kernels.rms_norm, x, 70, eps=0.5), expected, 1e-4, 1e-5)


def between(on: On, x: np.ndarray, first: int) -> tuple[Any, Any]:
    """The rows of `x` on the device within longer rows, from element `first` of them on: the whole
    array, and a function that gives the view of such an array."""
    n = x.shape[1]
    whole = np.full((x.shape[0], n + 5), 9, x.dtype)
    whole[:, first : first + n] = x
    return whole if on.is_here else on.placed(whole), lambda y: y[:, first : first + n]


@pytest.mark.parametrize("dtype", ["f4", "bf16"])
def test_rows_that_begin_anywhere(on: On, dtype: str):
    """Neither rows nor arrays begin at multiples of a line; what is beside results stays."""
    numpy_type = ml_dtypes.bfloat16 if dtype == "bf16" else np.dtype(dtype)
    tolerance = 1e-2 if dtype == "bf16" else 1e-5
    lengths = (77,) if on.device in SLOW else (1, 77, 519, 1003, 4097)
    for n in lengths[:3] if on.device == "interpreter" else lengths:
        x, w = numbers(5, n).astype(numpy_type), numbers(n).astype(numpy_type)
        wide = x.astype("f8")
        powers = np.exp(wide - wide.max(1, keepdims=True))
        spread = np.sqrt((wide**2).mean(1, keepdims=True) + 0.5)
        for function, more, expected in (
            (cp.kernels.softmax, (), powers / powers.sum(1, keepdims=True)),
            (cp.kernels.rms_norm, (n, w, 0.5), wide / spread * w.astype("f8")),
        ):
            np.testing.assert_allclose(on(function, x, *more).astype("f8"), expected, tolerance)
            source, part = between(on, x, 3)
            out, _ = between(on, np.full_like(x, 7), 2)
            on(function, part(source), *more, out=out[:, 2 : 2 + n])
            found = on.taken(out).astype("f8")
            np.testing.assert_allclose(found[:, 2 : 2 + n], expected, tolerance)
            assert (np.delete(found, np.s_[2 : 2 + n], 1) == 9).all()
        np.testing.assert_array_equal(on(cp.kernels.argmax, x, 1), np.argmax(wide, 1))


def centred_over(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    centred = x - x.mean(axes, keepdims=True, dtype="f8")
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_channel_norms(on: On, last: bool):
    x, weight, mean, var = numbers(3, 4, 5, 7), numbers(4), numbers(4), np.ones(4, np.float32)
    seen = x
    if last:
        seen = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    w = weight[:, None, None]
    found = on(cp.kernels.batch_norm, seen, mean, var, weight)
    expected = (x - mean[:, None, None]) / np.sqrt(1 + 1e-5) * w
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    found = on(cp.kernels.batch_norm, seen, weight=weight, training=True)
    np.testing.assert_allclose(found, centred_over(x, (0, 2, 3)) * w, 1e-4, 1e-5)
    found = on(cp.kernels.group_norm, seen, 2, weight)
    expected = centred_over(x.reshape(3, 2, 2, 5, 7), (2, 3, 4)).reshape(x.shape) * w
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    large = seen * np.float32(1e15) + np.float32(1e20)  # whose squares overflow
    found = on(cp.kernels.batch_norm, large, training=True)
    np.testing.assert_allclose(found, centred_over(large, (0, 2, 3)), 0.02, 0.02)
    found = on(cp.kernels.instance_norm, large)
    np.testing.assert_allclose(found, centred_over(large, (2, 3)), 0.02, 0.02)
    running = updated_by_batch_norm(on, seen, mean, var)
    np.testing.assert_allclose(running[0], 0.9 * mean + 0.1 * x.mean((0, 2, 3)), 1e-4, 1e-5)
    np.testing.assert_allclose(running[1], 0.9 + 0.1 * x.var((0, 2, 3), ddof=1), 1e-4, 1e-5)
    infinite = seen.copy("K")
    infinite[0, 0, 0, 0], infinite[1, 1, 2, 3] = np.inf, -np.inf
    infinite[0, 2, 0, 0], infinite[2, 2, 4, 6] = np.inf, -np.inf
    running = updated_by_batch_norm(on, infinite, mean, var)
    np.testing.assert_array_equal(running[0][:3], [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(np.isnan(running[1]), [True, True, True, False])


def updated_by_batch_norm(on: On, x: np.ndarray, *running: np.ndarray) -> list[Any]:
    """What becomes of the running mean and variance."""
    held = [m * 1 if on.is_here else on.placed(m * 1) for m in running]
    on(cp.kernels.batch_norm, x, *held, training=True)
    return [on.taken(m) for m in held]


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, sees: np.ndarray) -> np.ndarray:
    scores = np.where(sees, q.astype("f8") @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def test_attention(on: On):
    q, k, v = numbers(4, 21, 9), numbers(2, 37, 9), numbers(2, 37, 18)
    wide = np.repeat(k, 2, 0), np.repeat(v, 2, 0)
    sees = RNG.random((21, 37)) < 0.7
    sees[:, 0] = True
    found = on(cp.kernels.attention, q, k, v, mask=sees)
    np.testing.assert_allclose(found, attended(q, *wide, sees), 1e-4, 1e-5)
    unseen = on(cp.kernels.attention, q, k, np.full_like(v, np.nan), mask=np.zeros_like(sees))
    assert (unseen == 0).all()
    found = on(cp.kernels.attention, q, k, v, causal=True)
    expected = attended(q, *wide, np.tril(np.ones((21, 37), bool)))
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    near = np.tril(np.triu(np.ones((21, 37), bool), -5), 3)
    found = on(cp.kernels.attention, q, k, v, window=(5, 3))
    np.testing.assert_allclose(found, attended(q, *wide, near), 1e-4, 1e-5)


def test_attention_of_sequences(on: On):
    starts, ends = np.array([0, 9, 10, 23], np.int32), np.array([0, 20, 23, 40], np.int32)
    q, k, v = numbers(23, 4, 9), numbers(40, 2, 9), numbers(40, 2, 18)
    found = on(cp.kernels.attention_ragged, q, k, v, starts, ends, causal=True)
    lengths, table = np.diff(ends), np.array([[5, 2, 0], [1, 9, 9], [4, 3, 6]], np.int32)
    pages = [np.full((7, 8, *x.shape[1:]), np.nan, np.float32) for x in (k, v)]
    for s, begin in enumerate(ends[:-1]):
        for i in range(lengths[s]):
            for page, x in zip(pages, (k, v), strict=True):
                page[table[s, i // 8], i % 8] = x[begin + i]
        mine, own = slice(starts[s], starts[s + 1]), slice(begin, ends[s + 1])
        sides = [x[p].swapaxes(0, 1) for x, p in ((q, mine), (k, own), (v, own))]
        wide = sides[0], *(np.repeat(x, 2, 0) for x in sides[1:])
        count, keys = sides[0].shape[1], sides[1].shape[1]
        sees = np.tril(np.ones((count, keys), bool), keys - count)
        expected = attended(wide[0], wide[1], wide[2], sees).swapaxes(0, 1)
        np.testing.assert_allclose(found[mine], expected, 1e-4, 1e-5)
    options = {"q_offsets": starts, "causal": True}
    again = on(cp.kernels.attention_paged, q, *pages, table, lengths, **options)
    np.testing.assert_allclose(again, found, 1e-5, 1e-6)


def test_attention_of_8_bits(on: On):
    """Where weights are rounded to f8e4m3 too, an error is a 16th of what was added at most."""
    for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        small = [numbers(*shape).astype(kind) for shape in ((2, 21, 16), (1, 37, 16), (1, 37, 32))]
        q, k, v = (x.astype("f8") for x in small)
        sees = np.tril(np.ones((21, 37), bool))
        expected, bound = attended(q, k, v, sees), attended(q, k, np.abs(v), sees)
        found = on(cp.kernels.attention, *small, causal=True)
        assert found.dtype == np.float32
        assert (np.abs(found - expected) <= bound * 2.0**-3.9 + 1e-3).all()
        found = on(cp.kernels.attention, *small, causal=True, dtype="f16")
        assert found.dtype == np.float16
        assert (np.abs(found - expected) <= bound * 2.0**-3.9 + 2e-3).all()


def test_gradients_of_attention(on: On):
    q, k, v, grad = numbers(4, 21, 9), numbers(2, 37, 9), numbers(2, 37, 18), numbers(4, 21, 18)
    exact = [x.astype("f8") for x in (q, np.repeat(k, 2, 0), np.repeat(v, 2, 0), grad)]
    ahead = np.arange(37) - np.arange(21)[:, None]
    sees = (ahead <= 3) & (ahead >= -9) & (RNG.random((21, 37)) < 0.7) | (ahead == 0)
    scores = np.where(sees, exact[0] @ exact[1].swapaxes(1, 2), -np.inf)
    logs = np.log(np.exp(scores / 3).sum(-1))
    weights = np.exp(scores / 3 - logs[..., None])
    slopes = exact[3] @ exact[2].swapaxes(1, 2)
    slopes = weights * (slopes - (weights * slopes).sum(-1, keepdims=True)) / 3
    result = (weights @ exact[2]).astype("f4")
    arrays = q, k, v, result, logs.astype("f4"), grad
    found = on(cp.kernels.attention_grad, *arrays, mask=sees, window=(9, 3))
    by_k, by_v = slopes.swapaxes(1, 2) @ exact[0], weights.swapaxes(1, 2) @ exact[3]
    expected = (
        slopes @ exact[1],
        by_k.reshape(2, 2, 37, 9).sum(1),
        by_v.reshape(2, 2, 37, 18).sum(1),
    )
    for x, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, wanted, 1e-4, 1e-5)


def test_gradients_of_convolutions(on: On):
    x, w, g = numbers(2, 3, 5, 6), numbers(4, 3, 3, 3), numbers(2, 4, 3, 3)
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 2), (1, 2)))
    by_x, by_w = np.zeros_like(padded), np.zeros(w.shape)
    for a in range(3):
        for b in range(3):
            met = slice(None), slice(None), slice(a, a + 5, 2), slice(b, b + 5, 2)
            by_x[met] += np.einsum("nfyx,fc->ncyx", g.astype("f8"), w[:, :, a, b])
            by_w[:, :, a, b] = np.einsum("nfyx,ncyx->fc", g.astype("f8"), padded[met])
    options = {"stride": 2, "padding": 1}
    found = on(cp.kernels.conv_transpose2d, g, w, None, **options, output_padding=(0, 1))
    np.testing.assert_allclose(found, by_x[:, :, 1:6, 1:7], 1e-4, 1e-4)
    found = on(cp.kernels.conv2d_weight_grad, x, w.shape, g, **options)
    np.testing.assert_allclose(found, by_w, 1e-4, 1e-4)


def weighed(v: Any, index: Any, factors: Any) -> Any:
    return v * factors[index] + index[0] + 0.5 * index[1]


def test_bias_and_epilogue_of_groups(on: On):
    x, w, bias, factors = numbers(9, 20), numbers(3, 20, 17), numbers(3, 17), numbers(9, 17)
    expected = np.zeros((9, 17))
    for group, rows in enumerate((slice(0, 2), slice(2, 2), slice(2, 8))):
        expected[rows] = x[rows].astype("f8") @ w[group] + bias[group]
    place = np.indices(expected.shape)
    finished = expected * factors + place[0] + 0.5 * place[1]
    ends = np.array([2, 1, 8], "i4")
    given = (x, w, ends)
    found = on(cp.kernels.grouped_matmul, *given, bias=bias)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)
    factors = factors if on.is_here else on.placed(factors)
    found = on(cp.kernels.grouped_matmul, *given, bias=bias, epilogue=(weighed, factors))
    np.testing.assert_allclose(found, finished, 1e-4, 1e-4)


def test_epilogue_of_transposed_convolutions(on: On):
    x, w, factors = numbers(2, 3, 4, 3), numbers(3, 4, 3, 2), numbers(2, 4, 9, 6)
    plain = on(cp.kernels.conv_transpose2d, x, w, stride=2)
    place = np.indices(plain.shape)
    expected = plain * factors + place[0] + 0.5 * place[1]
    factors = factors if on.is_here else on.placed(factors)
    found = on(cp.kernels.conv_transpose2d, x, w, stride=2, epilogue=(weighed, factors))
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


def doubled(v: Any) -> Any:
    return v * 2


def test_functions_on_read_and_on_write(on: On):
    x = numbers(3, 37)
    found = on(cp.kernels.sum, x, 1, prologue=doubled, epilogue=doubled)
    np.testing.assert_allclose(found, x.sum(1, dtype="f8") * 4, 1e-5, 1e-5)
    found = on(cp.kernels.rms_norm, x, 37, eps=1.0, prologue=doubled)
    expected = 2 * x / np.sqrt((4 * x.astype("f8") ** 2).mean(1, keepdims=True) + 1)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
