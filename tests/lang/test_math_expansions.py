"""The expansions of elementary functions keep the OpenCL full-profile bounds and special values.

`python -m tests.lang.test_math_expansions [step] [dtype]` prints the table of measured errors, for
f32 unary functions over every step-th of all 2**32 inputs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import mpmath as mp
import numpy as np
import pytest

from cubepy.lang.math.table import HOMES, expansion
from tests.lang.numpy_language import ROOT, expansions, fma_f32, fma_f64, ulp_errors

EXPANSIONS = expansions()
BOUNDS = {
    "exp": 3,
    "exp2": 3,
    "exp10": 3,
    "expm1": 3,
    "log": 3,
    "log2": 3,
    "log10": 3,
    "log1p": 2,
    "sin": 4,
    "cos": 4,
    "tan": 5,
    "asin": 4,
    "acos": 4,
    "atan": 5,
    "atan2": 6,
    "sinh": 4,
    "cosh": 4,
    "tanh": 5,
    "asinh": 4,
    "acosh": 4,
    "atanh": 5,
    "erf": 16,
    "erfc": 16,
    "pow": 16,
    "rsqrt": 2,
    "cbrt": 2,
    "hypot": 4,
    "sigmoid": 4,
}
WIDE: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "erfc": np.vectorize(math.erfc, otypes=[float]),
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "hypot": np.hypot,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
EXACT: dict[str, Callable[..., Any]] = {
    "exp": mp.exp,
    "exp2": lambda x: mp.power(2, x),
    "exp10": lambda x: mp.power(10, x),
    "expm1": mp.expm1,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": mp.log10,
    "log1p": mp.log1p,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "atan2": mp.atan2,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "pow": mp.power,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": mp.cbrt,
    "hypot": mp.hypot,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
}
BINARY = ("pow", "atan2", "hypot")
ODD = (
    "expm1",
    "log1p",
    "sin",
    "tan",
    "asin",
    "atan",
    "sinh",
    "tanh",
    "asinh",
    "atanh",
    "erf",
    "cbrt",
)
INF, NAN = math.inf, math.nan
SPECIAL = {  # (input, result), besides NaN -> NaN and the odd functions' zeros and denormals
    "exp": [(-INF, 0), (INF, INF), (0, 1), (1e4, INF), (-1e4, 0)],
    "exp2": [(-INF, 0), (INF, INF), (0, 1), (3, 8), (-126, 2.0**-126), (-140, 2.0**-140)],
    "exp10": [(-INF, 0), (INF, INF), (0, 1)],
    "expm1": [(-INF, -1), (INF, INF)],
    "log": [(0, -INF), (-0.0, -INF), (1, 0), (INF, INF), (-1, NAN), (-INF, NAN)],
    "log2": [(0, -INF), (-0.0, -INF), (1, 0), (INF, INF), (-1, NAN), (2.0**-140, -140), (8, 3)],
    "log10": [(0, -INF), (-0.0, -INF), (1, 0), (INF, INF), (-1, NAN)],
    "log1p": [(-1, -INF), (INF, INF), (-2, NAN), (-INF, NAN)],
    "sin": [(INF, NAN), (-INF, NAN)],
    "cos": [(INF, NAN), (-INF, NAN), (0, 1), (-0.0, 1)],
    "tan": [(INF, NAN), (-INF, NAN)],
    "asin": [(1.5, NAN), (-INF, NAN)],
    "acos": [(1, 0.0), (1.5, NAN), (-INF, NAN)],
    "atan": [],
    "sinh": [(INF, INF), (-INF, -INF), (1e4, INF)],
    "cosh": [(INF, INF), (-INF, INF), (0, 1), (1e4, INF)],
    "tanh": [(INF, 1), (-INF, -1), (50, 1)],
    "asinh": [(INF, INF), (-INF, -INF)],
    "acosh": [(INF, INF), (1, 0), (0.5, NAN), (-2, NAN), (-1e30, NAN), (-INF, NAN)],
    "atanh": [(1, INF), (-1, -INF), (2, NAN), (-INF, NAN)],
    "erf": [(INF, 1), (-INF, -1), (20, 1)],
    "erfc": [(INF, 0), (-INF, 2), (0, 1), (30, 0)],
    "rsqrt": [(0, INF), (-0.0, -INF), (INF, 0), (-1, NAN), (4, 0.5)],
    "cbrt": [(INF, INF), (-INF, -INF), (27, 3), (-8, -2)],
    "sigmoid": [(INF, 1), (-INF, 0), (0, 0.5)],
    "atan2": [
        ((0, 1), 0),
        ((-0.0, 1), -0.0),
        ((0, 0), 0),
        ((-0.0, 0), -0.0),
        ((INF, 1), math.pi / 2),
        ((1, INF), 0),
        ((-1, INF), -0.0),
        ((INF, INF), math.pi / 4),
        ((0, -0.0), math.pi),
        ((-0.0, -1), -math.pi),
        ((-1, -INF), -math.pi),
        ((-INF, -INF), -3 * math.pi / 4),
        ((NAN, 1), NAN),
        ((1, NAN), NAN),
        ((0, NAN), NAN),
    ],
    "hypot": [((INF, NAN), INF), ((NAN, -INF), INF), ((NAN, 1), NAN), ((0, -0.0), 0), ((3, 4), 5)],
    "pow": [
        ((2, 0), 1),
        ((NAN, 0), 1),
        ((NAN, -0.0), 1),
        ((1, NAN), 1),
        ((1, INF), 1),
        ((-1, INF), 1),
        ((-1, -INF), 1),
        ((-1, 3), -1),
        ((-1, NAN), NAN),
        ((-2, 0.5), NAN),
        ((-2, 3), -8),
        ((-2, 2), 4),
        ((0, 3), 0),
        ((-0.0, 3), -0.0),
        ((-0.0, 2), 0),
        ((-0.0, 0.5), 0),
        ((0, -1), INF),
        ((-0.0, -1), -INF),
        ((-0.0, -2), INF),
        ((0, INF), 0),
        ((0, -INF), INF),
        ((-INF, 3), -INF),
        ((-INF, 2), INF),
        ((-INF, 0.5), INF),
        ((-INF, -3), -0.0),
        ((-INF, -2), 0),
        ((INF, -1), 0),
        ((INF, 0.5), INF),
        ((0.5, INF), 0),
        ((0.5, -INF), INF),
        ((2, INF), INF),
        ((2, -INF), 0),
        ((-2, INF), INF),
        ((-0.5, -INF), INF),
        ((2, NAN), NAN),
        ((2, 1e4), INF),
        ((2, -1e4), 0),
        ((-2, 1e4), INF),
        ((10, 2), 100),
    ],
}
CASES = sorted(key for key in EXPANSIONS if key[1] in ("f32", "f64"))
COARSE = sorted(key for key in EXPANSIONS if key[1] in ("f16", "bf16"))
SCALAR = {"f32": np.float32, "f64": np.float64}


def bit_sample(dtype: str, count: int, seed: int) -> Any:
    """Uniform over bit patterns: all exponents, denormals, infinities and NaN."""
    kind = {"f32": np.uint32, "f64": np.uint64}[dtype]
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(kind).max, count, kind, endpoint=True).view(SCALAR[dtype])


def plain_sample(dtype: str, count: int, seed: int) -> Any:
    """Moderate values of several scales, where most functions have their structure."""
    rng = np.random.default_rng(seed)
    scales = 2.0 ** rng.integers(-8, 10, count)
    return (rng.normal(size=count) * scales).astype(SCALAR[dtype])


def samples(name: str, dtype: str, count: int) -> Iterator[tuple[Any, ...]]:
    """Arguments for a function: bit patterns, moderate values and what it finds hard."""
    if name not in BINARY:
        yield (bit_sample(dtype, count, 1),)
        yield (plain_sample(dtype, count, 2),)
        yield ((1 + plain_sample(dtype, count, 3) / 1024),)
        return
    yield bit_sample(dtype, count, 1), bit_sample(dtype, count, 2)
    yield plain_sample(dtype, count, 3), plain_sample(dtype, count, 4)
    if name == "pow":
        info = np.finfo(SCALAR[dtype])
        x = np.abs(
            np.concatenate([1 + plain_sample(dtype, count, 5) / 1024, bit_sample(dtype, count, 6)])
        )
        x = x[(x > 0) & (x < np.inf) & (x != 1)]
        power = np.random.default_rng(7).uniform(info.minexp - 60, info.maxexp + 9, len(x))
        yield x, (power / np.log2(x.astype(np.float64))).astype(SCALAR[dtype])


def reference(name: str, dtype: str, arguments: tuple[Any, ...]) -> Any:
    """A wider type's result: f64 for f32; for f64 the 64-bit significand of x86's long double."""
    wide = np.float64 if dtype == "f32" else np.longdouble
    with np.errstate(all="ignore"):
        return WIDE[name](*(a.astype(wide) for a in arguments))


def errors(name: str, dtype: str, arguments: tuple[Any, ...]) -> Any:
    return ulp_errors(EXPANSIONS[name, dtype](*arguments), reference(name, dtype, arguments))


def wide_is_wide(name: str, dtype: str) -> bool:
    """Whether NumPy's wider type can judge this function; mpmath does, otherwise."""
    return dtype == "f32" or (np.finfo(np.longdouble).nmant >= 63 and name not in ("erf", "erfc"))


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_bound_over_a_dense_sample(name: str, dtype: str) -> None:
    if not wide_is_wide(name, dtype):
        pytest.skip("no wider NumPy function here; the mpmath sample judges it")
    for arguments in samples(name, dtype, 30_000 if dtype == "f32" else 8_000):
        found = errors(name, dtype, arguments)
        worst = int(np.argmax(found))
        assert found[worst] <= BOUNDS[name], [a[worst] for a in arguments]


@pytest.mark.parametrize(("name", "dtype"), COARSE)
def test_every_input_of_16_bits(name: str, dtype: str) -> None:
    """Coarse expansions give f32, which are rounded once more: within 0.51 ULP of the type."""
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        found, exact = EXPANSIONS[name, dtype](x.astype(np.float32)).astype(kind), WIDE[name](wide)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wide))
    real = ~np.isnan(wide)
    assert (np.signbit(found) == np.signbit(exact))[real].all()
    assert (abs(found[real].astype(np.float64)) <= 1).all() or name != "erf"
    info = ml_dtypes.finfo(kind)
    exponent = np.maximum(np.frexp(exact[real])[1] - 1, int(info.minexp))
    off = abs(found[real].astype(np.float64) - exact[real]) * 2.0 ** (info.nmant - exponent)
    assert off.max() <= 0.51


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_bound_against_mpmath(name: str, dtype: str) -> None:
    for arguments in samples(name, dtype, 150):
        got = EXPANSIONS[name, dtype](*arguments)
        for index, value in enumerate(got):
            point = [float(a[index]) for a in arguments]
            if all(map(math.isfinite, point)):
                assert exact_error(name, point, value) <= BOUNDS[name], (point, value)


def exact_error(name: str, point: list[float], got: Any) -> float:
    """The error of `got` in ULP against mpmath; 0 where the function is not real (NaN wanted)."""
    info = np.finfo(got.dtype)
    if not in_domain(name, point):
        return 0.0
    with mp.workprec(2400 if abs(point[0]) > 2.0**200 else 400):
        exact = EXACT[name](*map(mp.mpf, point))
        if isinstance(exact, mp.mpc):
            return 0.0 if np.isnan(got) else INF
        if np.isnan(got):
            return INF
        edge = mp.ldexp(1, int(info.maxexp))
        exact = min(max(exact, -edge), edge)
        value = mp.mpf(float(got)) if np.isfinite(got) else mp.sign(float(got)) * edge
        exponent = max(int(mp.frexp(exact)[1]), int(info.minexp) + 1) - (info.nmant + 1)
        return float(abs(value - exact) / mp.ldexp(1, exponent))


def in_domain(name: str, point: list[float]) -> bool:
    """Whether mpmath can take the point quickly (poles and huge exponents are special values)."""
    x = point[0]
    if name in ("exp", "exp2", "exp10", "expm1", "sinh", "cosh", "tanh", "sigmoid", "erf", "erfc"):
        return abs(x) < 2000
    if name in ("log", "log2", "log10", "rsqrt"):
        return x > 0
    if name == "log1p":
        return x > -1
    if name == "atanh":
        return abs(x) < 1
    if name == "pow":
        return x > 0 and abs(point[1] * math.log2(x)) < 4000
    return name not in ("cbrt", "asin", "acos") or (0 < x < 1)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_special_values(name: str, dtype: str) -> None:
    pairs = [(x if isinstance(x, tuple) else (x,), y) for x, y in SPECIAL[name]]
    if name not in BINARY:
        pairs.append(((NAN,), NAN))
    if name in ODD and name != "cbrt":
        tiny = float(np.finfo(SCALAR[dtype]).smallest_subnormal)
        pairs += [((0.0,), 0.0), ((-0.0,), -0.0)]
        pairs += [] if name == "erf" else [((tiny,), tiny), ((-5 * tiny,), -5 * tiny)]
    kind = SCALAR[dtype]
    columns = [np.array(column, kind) for column in zip(*(p[0] for p in pairs), strict=True)]
    got = EXPANSIONS[name, dtype](*columns)
    want = np.array([p[1] for p in pairs], kind)
    assert got.dtype == kind
    np.testing.assert_array_max_ulp(got[np.isfinite(want)], want[np.isfinite(want)], 2)
    np.testing.assert_array_equal(got[~np.isfinite(want)], want[~np.isfinite(want)])
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize(("name", "value"), [("exp", 1), ("exp2", 1), ("cos", 1), ("cosh", 1)])
def test_even_and_exponential_functions_are_exactly_one_near_zero(name: str, value: int) -> None:
    x = np.array([0, -0.0, 1e-45, -1e-45, 1e-20], np.float32)
    np.testing.assert_array_equal(EXPANSIONS[name, "f32"](x), np.float32(value))


def test_erf_and_tanh_stay_within_one() -> None:
    x = np.linspace(-12, 12, 200_001, dtype=np.float32)
    for name in ("erf", "tanh"):
        assert np.max(np.abs(EXPANSIONS[name, "f32"](x))) == 1


def test_huge_arguments_of_the_circular_functions() -> None:
    x = np.array([2.0**17 + 1, 1e6, 16777216, 1e10, 1e22, 3.4e38, -(2.0**127)], np.float32)
    for name in ("sin", "cos", "tan"):
        assert errors(name, "f32", (x,)).max() <= 3


def test_arguments_next_to_multiples_of_a_right_angle() -> None:
    """The reduced argument is tiny there, so the reduction must carry its bits."""
    with mp.workprec(2400):
        near = [float(k * mp.pi / 2) for k in (1, 2, 3, 710, 2**20 - 1, 2**40 + 1, 3**400)]
    for dtype, points in (("f32", near[:6]), ("f64", [*near, 6381956970095103 * 2.0**797])):
        x = np.array(points, SCALAR[dtype])
        for name in ("sin", "cos", "tan"):
            for point, got in zip(x, EXPANSIONS[name, dtype](x), strict=True):
                assert exact_error(name, [float(point)], got) <= BOUNDS[name], (name, point)


def test_the_emulated_fma_rounds_once() -> None:
    rng = np.random.default_rng(11)
    for dtype, emulated in ((np.float32, fma_f32), (np.float64, fma_f64)):
        a, b = (rng.normal(size=300).astype(dtype) for _ in range(2))
        c = (-(a * b) * (1 + rng.integers(-2, 3, 300) * np.finfo(dtype).eps)).astype(dtype)
        c[:100] *= dtype(2.0**-20)
        with mp.workprec(400):
            exact = [
                mp.mpf(float(x)) * mp.mpf(float(y)) + mp.mpf(float(z))
                for x, y, z in zip(a, b, c, strict=True)
            ]
        with mp.workprec(24 if dtype is np.float32 else 53):
            want = np.array([float(+e) for e in exact])
        np.testing.assert_array_equal(emulated(a, b, c), want.astype(dtype))


def table(step: int, dtype: str) -> None:
    """Print the largest error of every function and where it is."""
    for name, kind in CASES:
        if kind != dtype:
            continue
        best: tuple[float, list[float]] = (-1.0, [])
        for arguments in dense(name, kind, step):
            if wide_is_wide(name, kind):
                found = errors(name, kind, arguments)
            else:
                got = EXPANSIONS[name, kind](*arguments)
                found = np.array(
                    [
                        exact_error(name, [float(a[i]) for a in arguments], got[i])
                        if np.isfinite(arguments[0][i])
                        else 0
                        for i in range(len(got))
                    ]
                )
            worst = int(np.argmax(found))
            best = max(best, (float(found[worst]), [float(a[worst]) for a in arguments]))
        print(f"{name:8} {kind} {best[0]:8.3f} (bound {BOUNDS[name]:2}) at {best[1]}", flush=True)


def dense(name: str, dtype: str, step: int) -> Iterator[tuple[Any, ...]]:
    if name in BINARY or dtype == "f64":
        fast = wide_is_wide(name, dtype)
        yield from samples(name, dtype, 2**32 // step // 64 if fast else 3000)
        return
    chunk = step * 2**19
    for start in range(0, 2**32, chunk):
        bits = np.arange(start, min(2**32, start + chunk), step, dtype=np.uint64)
        yield (bits.astype(np.uint32).view(np.float32),)


if __name__ == "__main__":
    table(
        int(sys.argv[1]) if len(sys.argv) > 1 else 9973, sys.argv[2] if len(sys.argv) > 2 else "f32"
    )


def test_the_table_knows_each_expansion() -> None:
    """Each stands in the module that the table names, and no module is left out."""
    folder = ROOT / "cubepy" / "lang" / "math"
    files = {f.stem for f in folder.glob("*.py") if "EXPANSIONS = {" in f.read_text()}
    assert files == {home + suffix for home in HOMES for suffix in ("", "_f64")}
    for name, element in EXPANSIONS:
        assert expansion(name, element) is not None
    assert {name for name, _ in EXPANSIONS} == {n for names in HOMES.values() for n in names}
    assert expansion("exp", "f16") is None
