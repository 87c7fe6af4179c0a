"""Conversions against NumPy and ml_dtypes; exhaustive for floats of 8 and 16 bits."""

import math

import ml_dtypes
import numpy as np
import pytest

from cubepy.ir.numbers import convert, from_bits, limits, round_to, to_bits, wrap
from cubepy.ir.types import (
    DTYPES,
    DType,
    bf16,
    bool_,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    index,
    u64,
)

SMALL = (f8e4m3, f8e5m2, f16, bf16)
INTEGERS = tuple(d for d in DTYPES if d.is_integer and d is not index)
NUMPY = {
    d: np.dtype(getattr(ml_dtypes, d.numpy_name, None) or d.numpy_name)
    for d in DTYPES
    if d.numpy_name
}


def all_numbers(dtype: DType) -> np.ndarray:
    """Every number of a small float type, as f64, by bit pattern."""
    bits = np.arange(1 << dtype.bits, dtype=f"uint{dtype.bits}")
    with np.errstate(invalid="ignore"):
        return bits.view(NUMPY[dtype]).astype(np.float64)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_bits_of_small_floats(dtype: DType) -> None:
    for bits, expected in enumerate(all_numbers(dtype).tolist()):
        number = from_bits(bits, dtype)
        if math.isnan(expected):
            assert math.isnan(number)
            assert math.copysign(1, number) == math.copysign(1, expected)
            assert math.copysign(1, from_bits(to_bits(number, dtype), dtype)) == (
                math.copysign(1, number)
            )
        else:
            assert (number, math.copysign(1, number)) == (expected, math.copysign(1, expected))
            assert to_bits(number, dtype) == bits


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_rounding_between_neighbours(dtype: DType) -> None:
    """At, just below and just above the middle of all neighbours, and beyond the largest."""
    numbers = all_numbers(dtype)
    numbers = np.unique(numbers[np.isfinite(numbers) & (numbers >= 0)])
    beyond = 2 * numbers[-1] - numbers[-2]
    middles = (numbers / 2 + np.append(numbers[1:], beyond) / 2).astype(np.float32)
    down, up = np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf))
    values = np.concatenate([middles, down, up])
    with np.errstate(over="ignore"):
        expected = values.astype(NUMPY[dtype]).astype(np.float64).tolist()
    for value, wanted in zip(values.tolist(), expected, strict=True):
        found = round_to(dtype, value)
        assert found == wanted or (math.isnan(found) and math.isnan(wanted)), value


def test_f32_rounds_as_numpy() -> None:
    generator = np.random.default_rng(1)
    values = generator.integers(0, 1 << 63, 5000, dtype=np.uint64).view(np.float64)
    near = np.ldexp(generator.uniform(1, 2, 5000), generator.integers(-152, 129, 5000))
    with np.errstate(over="ignore"):
        for value in [*values[np.isfinite(values)].tolist(), *near.tolist()]:
            assert round_to(f32, value) == float(np.float32(value))


@pytest.mark.parametrize("dtype", [*SMALL, f32, f64], ids=str)
def test_special_floats(dtype: DType) -> None:
    assert math.isnan(round_to(dtype, math.nan))
    assert math.copysign(1, round_to(dtype, -0.0)) == -1
    infinity = round_to(dtype, math.inf)
    assert math.isnan(infinity) if dtype is f8e4m3 else infinity == math.inf
    if dtype is not f64:
        assert str(round_to(dtype, -1e39)) == str(round_to(dtype, -math.inf))
    assert str(round_to(dtype, -1e-300 if dtype is not f64 else -0.0)) == "-0.0"


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap(dtype: DType) -> None:
    low, high = limits(dtype)
    info = np.iinfo(NUMPY[dtype])
    assert (low, high) == (int(info.min), int(info.max))
    for value in (0, 1, -1, low, high, low - 1, high + 1, 12345678901, -(1 << 63), (1 << 64) - 1):
        bits = np.uint64(value & ((1 << 64) - 1))
        expected = int(bits.astype(NUMPY[dtype]))
        assert wrap(value, dtype) == convert(value, dtype) == expected
        assert from_bits(to_bits(expected, dtype), dtype) == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_floats_saturate(dtype: DType) -> None:
    low, high = limits(dtype)
    assert convert(math.nan, dtype) == 0
    assert (convert(-math.inf, dtype), convert(math.inf, dtype)) == (low, high)
    assert (convert(-1e30, dtype), convert(1e30, dtype)) == (low, high)
    assert (convert(1.9, dtype), convert(-0.9, dtype)) == (1, 0)
    assert convert(-1.9, dtype) == max(low, -1)
    assert convert(float(high), dtype) == high


def test_integers_become_floats() -> None:
    generator = np.random.default_rng(2)
    for value in generator.integers(-(1 << 63), (1 << 63) - 1, 2000, dtype=np.int64).tolist():
        assert convert(value, f64) == float(np.int64(value).astype(np.float64))
        assert convert(value, f32) == float(np.int64(value).astype(np.float32))
        assert convert(value % 65504, f16) == float(np.float64(value % 65504).astype(np.float16))


def test_bools() -> None:
    assert [convert(x, bool_) for x in (0, 2, -0.0, math.nan, True)] == [
        False,
        True,
        False,
        True,
        True,
    ]
    assert (convert(True, i8), convert(True, f32), convert(True, u64)) == (1, 1.0, 1)
    assert from_bits(3, bool_) is True
    assert f32(0.1) == float(np.float32(0.1))
