"""Functions of `math` and NumPy that are made of the language's own, beside these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.ulp import ulps

DEVICES = ("cpu", "interpreter")
FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)


@cp.cube
def of_one(function: cp.Comptime, x: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = out.dtype(function(x.flat[i]))


@cp.cube
def of_two(function: cp.Comptime, x: cp.Lines, y: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = out.dtype(function(x.flat[i], y.flat[i]))


def computed(device: str, function: Any, out: Any, *arrays: Any, line_size: int = 1) -> Any:
    found = np.zeros(arrays[0].shape, out)
    kernel = of_one if len(arrays) == 1 else of_two
    kernel.configure(device=device, line_size=line_size).over(found)(function, *arrays, found)
    return found


def edges(dtype: Any) -> Any:
    """Zeros, the ends of each range, infinities, NaN, and numbers of all sizes."""
    info = ml_dtypes.finfo(dtype)
    least, most = float(info.smallest_subnormal), float(info.max)
    small = float(info.smallest_normal)
    one = [0, least, 3 * least, small, small - least, 0.5, 1, 1.5, 2, 2.5, 3, 7, most / 2, most]
    generator = np.random.default_rng(3)
    low, high = math.log2(small), math.log2(most)
    some = 2.0 ** generator.uniform(low - 3, high - 1, 40) * generator.choice([-1, 1], 40)
    return np.array([*one, *(-v for v in one), math.inf, -math.inf, math.nan, *some]).astype(dtype)


def pairs(dtype: Any) -> tuple[Any, Any]:
    x, y = np.meshgrid(edges(dtype), edges(dtype))
    return x.ravel(), y.ravel()


def reference(function: Callable[..., Any], dtype: Any, *arrays: Any) -> Any:
    """In Python's floats; NaN where it raises."""

    def one(*values: float) -> Any:
        try:
            return function(*values)
        except (ValueError, OverflowError):
            return math.nan

    with np.errstate(all="ignore"):
        return np.array([one(*map(float, v)) for v in zip(*arrays, strict=True)]).astype(dtype)


def assert_same(found: Any, wanted: Any) -> None:
    """Equal, signs of zeros too."""
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))
    known = ~np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(wanted)[known])


_any: Any = math


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_parts_of_floats(device: str, dtype: Any):
    x = edges(dtype)
    for function in (math.frexp, math.modf):
        for part in (0, 1):
            found = computed(device, lambda v, f=function, k=part: f(v)[k], np.float64, x)
            assert_same(found, reference(lambda v, f=function, k=part: f(v)[k], np.float64, x))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_neighbours(device: str, dtype: Any):
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        wanted = np.nextafter(x, y)
    assert_same(computed(device, np.nextafter, dtype, x, y), wanted)
    assert_same(computed(device, _any.nextafter, dtype, x, y), wanted)
    x = edges(dtype)
    a = np.abs(x)
    with np.errstate(all="ignore"):
        above = np.nextafter(a, np.array(math.inf, dtype)).astype(np.float64) - a.astype(np.float64)
        below = a.astype(np.float64) - np.nextafter(a, np.array(0, dtype)).astype(np.float64)
    ends = np.isinf(above) & ~np.isinf(a.astype(np.float64))
    wanted = np.where(np.isinf(a.astype(np.float64)), np.inf, np.where(ends, below, above))
    assert_same(computed(device, _any.ulp, dtype, x), wanted.astype(dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_ldexp(device: str, dtype: Any):
    powers = np.array(
        [0, 1, -1, 5, 130, -140, -149, -30, 300, -300, 1100, -1074, 5000, -5000, 2**31 - 1]
    )
    x, n = (v.ravel() for v in np.meshgrid(edges(dtype), powers.astype(np.int32)))
    with np.errstate(all="ignore"):
        if dtype in (np.float32, np.float64):
            wanted = np.ldexp(x, n)
        else:
            wanted = np.ldexp(x.astype(np.float64), n).astype(dtype)
    assert_same(computed(device, math.ldexp, dtype, x, n), wanted)
    assert_same(computed(device, np.ldexp, dtype, x, n.astype(np.int64)), wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_remainder(device: str, dtype: Any):
    x, y = pairs(dtype)
    wanted = reference(math.remainder, dtype, x, y)
    assert_same(computed(device, math.remainder, dtype, x, y), wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_steps_and_comparisons(device: str, dtype: Any):
    x, y = pairs(dtype)
    wide = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        assert_same(computed(device, np.heaviside, dtype, x, y), np.heaviside(*wide).astype(dtype))
    for function in (np.isposinf, np.isneginf):
        found = computed(device, function, np.bool_, x)
        np.testing.assert_array_equal(found, function(wide[0]))
    if dtype == np.float64:
        y = np.concatenate([y, x * (1 + 1e-9), x * (1 + 3e-9), x + 1e-8])
        x = np.concatenate([x] * 4)
        found = computed(device, math.isclose, np.bool_, x, y)
        np.testing.assert_array_equal(found, reference(math.isclose, np.bool_, x, y))
        functions: tuple[Callable[..., Any], ...] = (
            np.isclose,
            lambda a, b: np.isclose(a, b, rtol=1e-9, atol=0.0),
            lambda a, b: np.isclose(a, b, equal_nan=True),
        )
        for function in functions:
            found = computed(device, function, np.bool_, x, y)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(found, function(x, y))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_logarithms_of_sums(device: str, name: str):
    """The bound, 4 ULP, is one of the greater operand where the result is smaller."""
    generator = np.random.default_rng(5)
    for dtype, wide in (
        (np.float32, np.float64),
        (np.float16, np.float64),
        (np.float64, np.longdouble),
    ):
        x, y = (np.concatenate([generator.normal(size=3000) * s for s in (1, 30)]) for _ in "xy")
        x, y = x.astype(dtype), y.astype(dtype)
        wanted = getattr(np, name)(x.astype(wide), y.astype(wide))
        found = computed(device, getattr(np, name), dtype, x, y)
        size = np.maximum(np.abs(wanted), np.maximum(np.abs(x), np.abs(y)).astype(wide))
        unit = np.abs(np.spacing(size.astype(dtype))).astype(wide)
        assert (np.abs(found.astype(wide) - wanted) <= 4 * unit).all()
    ends = np.array([math.inf, -math.inf, math.nan, 0, 5], np.float32)
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x, y)
    np.testing.assert_allclose(computed(device, getattr(np, name), np.float32, x, y), wanted, 1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_sinc(device: str):
    """8 ULP, of the exact function: NumPy's is not 0 at integers."""
    generator = np.random.default_rng(7)
    x = np.concatenate([generator.normal(size=3000) * s for s in (1e-20, 1, 100)]).astype(
        np.float32
    )
    wide = x.astype(np.float64)
    rest = wide - np.rint(wide)
    sine = np.sin(np.pi * rest) * np.where(np.rint(wide) % 2 == 1, -1, 1)
    with np.errstate(all="ignore"):
        wanted = np.where(wide == 0, 1, sine / (np.pi * wide))
    assert ulps(computed(device, np.sinc, np.float32, x), wanted).max() <= 8
    ends = np.array([0, -0.0, 1, -2, 3e9, 0.5, -0.5, math.inf, math.nan], np.float64)
    found = computed(device, np.sinc, np.float64, ends)
    np.testing.assert_allclose(found, [1, 1, 0, 0, 0, 2 / np.pi, 2 / np.pi, np.nan, np.nan], 1e-15)


INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_functions_of_integers(device: str, dtype: str):
    info = np.iinfo(dtype)
    some = [0, 1, 2, 3, 12, 18, 100, 127, info.max, info.max - 1, info.max // 3]
    generator = np.random.default_rng(9)
    some += [int(v) for v in generator.integers(0, info.max, 20, dtype, endpoint=True)]
    squares = [k * k + d for k in (3, 15, 181, 46340, 3037000499, 2**32 - 1) for d in (-1, 0, 1)]
    roots = np.array([v for v in (*some, *squares) if v <= info.max], dtype)
    wanted = [math.isqrt(int(v)) for v in roots]
    assert computed(device, math.isqrt, dtype, roots).tolist() == wanted
    below = np.array([0, *(-v for v in some[:5] if dtype[0] == "i"), info.min], dtype)
    assert not computed(device, math.isqrt, dtype, below[below <= 0]).any()
    signed = [*(-v for v in some), info.min] if dtype[0] == "i" else []
    x, y = (v.ravel() for v in np.meshgrid(*[np.array([*some, *signed], dtype)] * 2))
    for function in (math.gcd, np.gcd):
        wanted = np.gcd(x, y).tolist()  # of the least integer by itself, or by 0, that wraps
        assert computed(device, function, dtype, x, y).tolist() == wanted
    wanted = np.lcm(x, y).tolist()
    assert computed(device, _any.lcm, dtype, x, y).tolist() == wanted


def test_lines():
    x, y = (
        generator.normal(size=64).astype(np.float32) for generator in [np.random.default_rng(1)] * 2
    )
    for function in (np.nextafter, math.remainder, np.heaviside, np.logaddexp, math.isclose):
        found = computed("cpu", function, np.float32, x, y, line_size=8)
        np.testing.assert_array_equal(found, computed("cpu", function, np.float32, x, y))
    a, b = (np.arange(64, dtype=np.int32) * k % 91 for k in (17, 35))
    found = computed("cpu", math.gcd, np.int32, a, b, line_size=4)
    np.testing.assert_array_equal(found, np.gcd(a, b))
    n = np.arange(64, dtype=np.int32) - 32
    np.testing.assert_array_equal(
        computed("cpu", math.ldexp, "f4", x, n, line_size=8), np.ldexp(x, n)
    )


@pytest.mark.parametrize("device", DEVICES)
def test_lengths_and_products(device: str):
    @cp.cube
    def kernel(x, out):
        out[0] = math.hypot(x[0], x[1], x[2])
        out[1] = math.hypot(x[0])
        out[2] = math.dist((x[0], x[1], 3.0), (1.0, x[2], 2.0))
        out[3] = math.prod(x.shape) + math.prod((x[0], x[1])) + math.prod((x[1],), start=2)
        out[4] = math.prod(()) + math.gcd(12, 18) + math.hypot(3, 4) + math.hypot()
        out[5] = math.gcd(x.shape[0] * 4, 18, 27) + np.fix(x[0])

    x, out = np.array([-2.5, 1e200, 3]), np.zeros(6)
    kernel.configure(device=device)[1, 1](x, out)
    wanted = [
        math.hypot(*x),
        2.5,
        math.dist((x[0], x[1], 3.0), (1.0, x[2], 2.0)),
        3 + x[0] * x[1] + 2 * x[1],
        1 + 6 + 5,
        math.gcd(12, 18, 27) - 2,
    ]
    np.testing.assert_allclose(out, wanted, 1e-15)


def test_what_they_refuse():
    def launch(function: Any, *arrays: Any) -> None:
        computed("cpu", function, np.float32, *arrays)

    x = np.ones(4, np.float32)
    with pytest.raises(cp.CompileError, match="(?s)E201.*integer"):
        launch(math.ldexp, x, x)
    with pytest.raises(cp.CompileError, match="(?s)E201.*integers"):
        launch(math.gcd, x, x)
    with pytest.raises(cp.CompileError, match="E207.*as many coordinates"):
        launch(lambda v: math.dist((v,), (v, v)), x)
    with pytest.raises(cp.CompileError, match="E106"):
        launch(math.nextafter, x)
