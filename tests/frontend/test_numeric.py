"""Numeric functions that take several operations or are operators, against Python and NumPy."""

import math
import operator
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


# Operators by name, kinds of floats, signs and angles

ODD = [0.0, -0.0, 1.5, -2.0, 7.0, math.inf, -math.inf, math.nan]
UNARY = "negative positive square reciprocal sign signbit isinf isfinite isnan logical_not"
ANGLES = "degrees radians rad2deg deg2rad"
BINARY = "add subtract multiply divide floor_divide remainder mod true_divide"
TRUTHS = "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor"
INTEGER = "bitwise_and bitwise_or bitwise_xor left_shift right_shift"


@cp.cube
def of_one(x, function: cp.Comptime, out):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = out.dtype(function(x[i]))


@cp.cube
def of_two(x, y, function: cp.Comptime, out):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = out.dtype(function(x[i], y[i]))


@cp.cube
def of_two_lines(x: cp.Lines[cp.f32], y: cp.Lines[cp.f32], function: cp.Comptime, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = cp.Line[cp.f32, x.line_size](function(x[i], y[i]))


def run_one(device: str, x: np.ndarray, function: Any, wanted: Any) -> np.ndarray:
    out = np.zeros(x.shape, np.asarray(wanted).dtype)
    of_one.configure(device=device).over(x)(x, function, out)
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", f"{UNARY} {ANGLES}".split())
def test_numpy_of_one_number(device: str, name: str):
    function, x = getattr(np, name), np.array(ODD, np.float32)
    with np.errstate(all="ignore"):
        wanted = function(x)
    found = run_one(device, x, function, wanted)
    np.testing.assert_allclose(found, wanted, 2e-7 if name in ANGLES.split() else 0)
    if wanted.dtype == np.float32 and name != "sign":
        np.testing.assert_array_equal(np.signbit(found)[:-1], np.signbit(wanted)[:-1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("name", UNARY.replace("reciprocal", "invert").split())
def test_numpy_of_one_integer(device: str, dtype: Any, name: str):
    x = np.array([0, 1, 7, 100], dtype)
    if dtype == np.int32:
        x = np.concatenate([x, -x])
    wanted = getattr(np, name)(x)
    if wanted.dtype.kind != "b":
        wanted = wanted.astype(dtype)
    np.testing.assert_array_equal(run_one(device, x, getattr(np, name), wanted), wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", f"{BINARY} {TRUTHS}".split())
def test_numpy_of_two_numbers(device: str, name: str):
    function = getattr(np, name)
    x, y = (np.array(v, np.float32).ravel() for v in np.meshgrid(ODD[2:5], ODD[2:5]))
    if name in TRUTHS.split():
        x, y = (np.array(v, np.float32).ravel() for v in np.meshgrid(ODD, ODD))
    wanted = function(x, y)
    out = np.zeros(x.shape, wanted.dtype)
    of_two.configure(device=device).over(x)(x, y, function, out)
    np.testing.assert_array_equal(out, wanted)
    lines = np.zeros(x.shape, np.float32)
    of_two_lines.configure(device=device, line_size=4).over(lines)(x, y, function, lines)
    np.testing.assert_array_equal(lines, wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", INTEGER.split())
def test_numpy_of_two_integers(device: str, name: str):
    x, y = np.array([12, -7, 1, 0], np.int32), np.array([5, 3, 4, 2], np.int32)
    out = np.zeros_like(x)
    of_two.configure(device=device).over(x)(x, y, getattr(np, name), out)
    np.testing.assert_array_equal(out, getattr(np, name)(x, y))


@pytest.mark.parametrize("device", DEVICES)
def test_kinds_of_floats_of_all_widths(device: str):
    import ml_dtypes

    for dtype in (np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        x = np.array(ODD, dtype)
        for function in (math.isinf, math.isfinite, cp.isinf, cp.isfinite):
            wanted = [bool(function(float(v))) for v in x]
            assert run_one(device, x, function, wanted).tolist() == wanted
    x = np.array([0, 448, math.nan], ml_dtypes.float8_e4m3fn)  # has no infinity
    assert run_one(device, x, math.isfinite, [True]).tolist() == [True, True, False]
    assert run_one(device, x, math.isinf, [True]).tolist() == [False] * 3


def test_comptime_numbers_stay_comptime():
    @cp.cube
    def kernel(out):
        cp.static_assert(np.sign(-2.5) == -1 and np.square(3) == 9 and np.signbit(-0.0))
        cp.static_assert(math.isinf(math.inf) and not np.isfinite(math.nan))
        cp.static_assert(np.add(1, 2) == 3 and np.less(1, 2) and not np.logical_and(1, 0))
        out[0] = math.degrees(math.pi)

    out = np.zeros(1)
    kernel[1, 1](out)
    assert out[0] == pytest.approx(180)


def test_reciprocals_of_integers_are_refused():
    with pytest.raises(cp.CompileError, match="E201.*reciprocal"):
        of_one.over(4)(np.ones(4, np.int32), np.reciprocal, np.ones(4, np.int32))


_add: Any = np.add


@pytest.mark.parametrize("function", [lambda x: _add(x), lambda x: np.sign(x, x)])
def test_wrong_numbers_of_arguments_are_refused(function: Any):
    with pytest.raises(cp.CompileError, match="E106"):
        of_one.over(4)(np.ones(4, np.float32), function, np.ones(4, np.float32))


@cp.cube
def complements(x, flag: cp.Comptime[bool], out):
    is_positive = x[0] > 0
    out[0] = 1 if ~flag else 0
    out[1] = 1 if ~is_positive else 0
    out[2] = cp.i32(~flag) + 10 * cp.i32(~is_positive)
    out[3] = 1 if operator.invert(flag) else 0
    out[4] = 1 if (~flag if is_positive else flag) else 0
    out[5] = ~5 + ~cp.i32(x[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("flag", [True, False])
def test_complements_of_bools_are_the_same_at_comptime(device: str, flag: bool):
    out = np.zeros(6, np.int32)
    complements.configure(device=device)[1, 1](np.array([flag], np.float32), flag, out)
    no = int(not flag)
    np.testing.assert_array_equal(out, [no, no, 11 * no, no, 0, -6 + ~int(flag)])
