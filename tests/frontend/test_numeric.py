"""`round` to digits, `fmin`, `fmax`, `clip` and `fmod`, against Python and NumPy."""

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cp

DEVICES = ["cpu", "interpreter"]


def floats(device: str) -> np.ndarray:
    generator, n = np.random.default_rng(), 5000 if device == "cpu" else 200
    return np.concatenate(
        [
            generator.normal(size=n) * 10.0 ** generator.integers(-12, 25, n),
            np.round(generator.normal(size=n) * 100, 3) + 0.0005,
            generator.integers(-1000, 1000, n) + 0.5,
            generator.integers(-(10**6), 10**6, n) * 5 / 1000,
            2.0 ** generator.uniform(45, 60, n),
            [2.675, 0.5, 1.5, 2.5, -0.5, 0.0, -0.0, 1e308, -1e-320, math.inf, -math.inf],
        ]
    )


@cp.cube
def rounded(x, digits: cp.Comptime, out):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = round(x[i], digits)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("digits", [0, 1, 2, 7, 22, -1, -3, -20])
def test_round_to_digits_as_in_python(device: str, digits: int):
    x = floats(device)
    out = np.empty_like(x)
    rounded.configure(device=device).over(x)(x, digits, out)
    wanted = np.array([round(float(v), digits) if math.isfinite(v) else v for v in x])
    assert [p for p in zip(x, out, wanted, strict=True) if repr(p[1]) != repr(p[2])] == []


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_round_of_narrow_floats(dtype: Any):
    x = np.random.default_rng().uniform(-30, 30, 5000).astype(dtype)
    out = np.empty_like(x)
    rounded.over(x)(x, 2, out)
    wanted = np.array([round(float(v), 2) for v in x]).astype(np.float32).astype(dtype)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("digits", [-2, -1, 0, 3])
def test_round_of_integers(dtype: Any, digits: int):
    limits = np.iinfo(dtype)
    x = np.random.default_rng().integers(limits.min // 2, limits.max // 2, 3000, dtype)
    x = np.concatenate([x, np.arange(100, dtype=dtype)])
    out = np.empty_like(x)
    rounded.over(x)(x, digits, out)
    wanted = [round(int(v), digits) for v in x]
    np.testing.assert_array_equal(out, np.array(wanted, np.int64).astype(dtype))


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 11), (np.float64, -23), (np.int8, -3)])
def test_digits_that_no_power_of_ten_serves_are_refused(dtype: Any, digits: int):
    x = np.zeros(4, dtype)
    with pytest.raises(cp.CompileError, match="E207: the number of digits of round"):
        rounded.over(x)(x, digits, x)


def test_digits_are_comptime():
    @cp.cube
    def kernel(x, out):
        out[0] = round(x[0], out.size)

    with pytest.raises(cp.CompileError, match="E112: the number of digits"):
        kernel[1, 1](np.zeros(3), np.zeros(3))


PAIRS = {
    "fmin": (lambda a, b: np.fmin(a, b), np.fmin),
    "fmax": (lambda a, b: np.fmax(a, b), np.fmax),
    "fmod": (lambda a, b: math.fmod(a, b), np.fmod),
    "numpy's fmod": (lambda a, b: np.fmod(a, b), np.fmod),
    "clip": (lambda a, b: np.clip(a, b, 2), lambda a, b: np.clip(a, b, 2)),
    "clip above": (lambda a, b: np.clip(a, None, b), lambda a, b: np.clip(a, None, b)),
    "clip by name": (
        lambda a, b: np.clip(a, a_min=-1, a_max=b),
        lambda a, b: np.clip(a, a_min=-1, a_max=b),
    ),
    "round": (lambda a, b: np.round(a, decimals=0) + b, lambda a, b: np.round(a, decimals=0) + b),
}


@cp.cube
def pairwise(function: cp.Comptime, a, b, out):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        out[i] = function(a[i], b[i])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("name", PAIRS)
def test_as_in_numpy(name: str, dtype: Any, device: str):
    generator = np.random.default_rng()
    a, b = (generator.normal(size=300) * 5).astype(dtype), generator.normal(size=300) * 3
    b = b.astype(dtype)
    if dtype is not np.int32:
        a[:8] = [np.nan, 1, np.nan, np.inf, -0.0, 2, 1e30, -np.inf]
        b[:8] = [1, np.nan, np.nan, 3, 5, np.inf, 1e-3, np.nan]
    b[(b == 0)] = 1
    function, reference = PAIRS[name]
    out = np.empty_like(a)
    pairwise.configure(device=device).over(a)(function, a, b, out)
    with np.errstate(all="ignore"):
        wanted = reference(a, b)
    np.testing.assert_array_equal(out, wanted)
    if name.endswith("fmod"):
        finite = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(out[finite]), np.signbit(wanted[finite]))
