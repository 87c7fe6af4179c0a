"""Small floats round once, from every type, against exact rational arithmetic on every device."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import DType, bf16, f8e4m3, f8e5m2, f16, f32, f64, i32, i64, u32, u64
from tests.conformance.operations import numpy_type

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")
SMALL = (f16, bf16, f8e4m3, f8e5m2)
SOURCES = (f64, f32, i64, u64, i32, u32, *SMALL)
COUNT = 1500


@cache
def magnitudes(dtype: DType) -> list[Fraction]:
    """All finite values from zero upwards; the place of a value is its bit pattern."""
    kind = numpy_type(dtype)
    patterns = np.arange(1 << dtype.bits - 1, dtype=f"u{dtype.itemsize}")
    values = patterns.view(kind).astype(np.float64)
    return [Fraction(float(v)) for v in values[np.isfinite(values)]]


def nearest(dtype: DType, value: Fraction) -> float:
    """The value rounded to nearest even, by search; beyond the largest infinity, or NaN."""
    known, size = magnitudes(dtype), abs(value)
    sign = -1.0 if value < 0 else 1.0
    place = bisect_left(known, size)
    step = known[-1] - known[-2]
    if place == len(known):
        odd = len(known) % 2 == 0  # the pattern of the largest value is odd
        beyond = size - known[-1] > step / 2 or (odd and size - known[-1] == step / 2)
        if not beyond:
            return sign * float(known[-1])
        return float("nan") if dtype is f8e4m3 else sign * float("inf")
    if known[place] == size:
        return sign * float(size)
    low, high = known[place - 1], known[place]
    if size - low == high - size:
        return sign * float(low if place % 2 else high)
    return sign * float(low if size - low < high - size else high)


def ties(dtype: DType, rng: np.random.Generator, count: int) -> list[Fraction]:
    """Points half way between neighbours, and above the largest value."""
    known = magnitudes(dtype)
    places = rng.integers(0, len(known) - 1, count)
    found = [(known[k] + known[k + 1]) / 2 for k in places]
    last = known[-1] + (known[-1] - known[-2]) / 2
    return [*found, last, known[-1], known[1] / 2, known[1] * Fraction(3, 4)]


def inputs(source: DType, target: DType, rng: np.random.Generator) -> np.ndarray:
    """Values of the source near ties of the target, and any bit patterns."""
    kind = np.dtype(numpy_type(source))
    random = np.frombuffer(rng.bytes(COUNT * kind.itemsize), kind)
    middle = ties(target, rng, COUNT)
    if source.is_float:
        near = np.array([float(m) for m in middle]).astype(kind)
        near = near * rng.choice([-1, 1], near.size).astype(kind)
        bits = near.view(f"i{kind.itemsize}").astype(np.int64)
        by = rng.choice([-1, 1], near.size) << rng.integers(0, kind.itemsize * 4, near.size)
        moved = (bits + by).astype(f"i{kind.itemsize}").view(kind)
        return np.concatenate([random, near, moved])
    limits = np.iinfo(kind)
    whole = [int(m) for m in middle if 1 <= m <= limits.max]
    whole += [(n << int(s)) for n, s in zip(whole, rng.integers(0, 40, len(whole)), strict=True)]
    whole = [n + d for n in whole for d in (-1, 0, 1)] + [limits.min, limits.max]
    signed = [-n for n in whole if limits.min < 0]
    fitting = [n for n in (*whole, *signed) if limits.min <= n <= limits.max]
    return np.concatenate([random, np.array(fitting, kind)])


@cp.cube
def converted(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = out.dtype(x[i])


def settle(device: str, types: tuple[DType, ...], lacks: set[DType]) -> None:
    for dtype in types:
        if dtype in lacks:
            pytest.skip(f"the device has no {dtype}")


def compare(out: np.ndarray, expected: list[float], given: np.ndarray) -> None:
    found, wanted = out.astype(np.float64), np.array(expected)
    same = (found == wanted) & (np.signbit(found) == np.signbit(wanted))
    same |= np.isnan(found) & np.isnan(wanted)
    bad = np.flatnonzero(~same)
    assert not bad.size, [(given[k], found[k], wanted[k]) for k in bad[:5]]


def expected_cast(value: Any, target: DType) -> float:
    if isinstance(value, np.integer):
        return nearest_of(target, int(value))
    number = float(value)
    if number != number:
        return number
    if number in (float("inf"), float("-inf")):
        return float("nan") if target is f8e4m3 else number
    return nearest_of(target, number) if number else number


@cache
def nearest_of(target: DType, number: int | float) -> float:
    """`nearest` of a number that is not -0.0, which every device asks for."""
    return nearest(target, Fraction(number))


@pytest.mark.parametrize("target", SMALL, ids=str)
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_conversions_round_once(
    device: str, lacks: set[DType], is_slow: bool, source: DType, target: DType
):
    settle(device, (source, target), lacks)
    rng = np.random.default_rng([source.bits, target.bits])
    x = inputs(source, target, rng)
    if is_slow:
        x = x[rng.permutation(x.size)[:512]]
    out = np.zeros(x.size, numpy_type(target))
    converted.configure(device=device)[-(-x.size // 64), 64](x, out)
    compare(out, [expected_cast(v, target) for v in x], x)


@cp.cube
def fused(a, b, c, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = a[i] * b[i] + c[i]


def from_patterns(dtype: DType, patterns: Any) -> np.ndarray:
    return np.asarray(patterns).astype(f"u{dtype.itemsize}").view(numpy_type(dtype))


def factors(
    dtype: DType, rng: np.random.Generator, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three parts: anything; a sum that something tiny decides; products that c nearly cancels,
    half of them beyond the largest value or below the smallest."""
    known = magnitudes(dtype)
    limit, one, sign = len(known), known.index(Fraction(1)), 1 << dtype.bits - 1
    signs = rng.integers(0, 2, (3, 3, count)) * sign
    a, b, c = (rng.integers(0, limit, (3, count)) for _ in range(3))
    a[1] = one + rng.integers(0, limit // 8, count)
    b[1] = one + rng.integers(-limit // 8, limit // 8, count)
    c[1] = rng.integers(1, limit // 4, count)
    edge = np.where(rng.integers(0, 2, count), limit, 0)
    b[2] = np.clip(one + edge - a[2] + rng.integers(-limit // 16, limit // 16, count), 0, limit - 1)
    left, right = (from_patterns(dtype, n.ravel() | k.ravel()) for n, k in zip((a, b), signs[:2]))
    third = from_patterns(dtype, c.ravel() | signs[2].ravel())
    for k in range(2 * count, 3 * count):
        product = nearest(dtype, -Fraction(float(left[k])) * Fraction(float(right[k])))
        third[k] = (
            product if abs(product) < float("inf") else np.copysign(float(known[-1]), product)
        )
    return left, right, third


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_fused_multiply_add_rounds_once(
    device: str, lacks: set[DType], is_slow: bool, dtype: DType
):
    settle(device, (dtype,), lacks)
    rng = np.random.default_rng(dtype.bits)
    a, b, c = factors(dtype, rng, 200 if is_slow else 2000)
    given = [tuple(Fraction(float(v)) for v in row) for row in zip(a, b, c, strict=True)]
    exact = [x * y + z for x, y, z in given]
    keep = np.array([bool(v) for v in exact])  # the sign of an exact zero is another test's
    if dtype is bf16 and f64 in lacks:  # products beyond f32 round twice there
        products = [abs(x * y) for x, y, _ in given]
        keep &= [Fraction(2) ** -120 < p < Fraction(2) ** 127 for p in products]
    out = np.zeros(a.size, a.dtype)
    fused.configure(device=device)[-(-a.size // 64), 64](a, b, c, out)
    wanted = [nearest(dtype, v) for v, kept in zip(exact, keep, strict=True) if kept]
    compare(out[keep], wanted, np.stack([a, b, c], 1)[keep])


def test_the_search_is_right():
    for dtype in SMALL:
        kind = numpy_type(dtype)
        known = magnitudes(dtype)
        for v in (known[5], (known[5] + known[6]) / 2, known[-1] * 2, known[9] * Fraction(99, 98)):
            with np.errstate(over="ignore"):
                theirs = np.array([float(v)], np.float64).astype(kind).astype(np.float64)[0]
            ours = nearest(dtype, v)
            assert theirs == ours or (theirs != theirs and ours != ours)
    assert ml_dtypes.bfloat16(1.0) == 1.0


@cp.cube
def signed_alike(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = cp.copysign(x[i], y[i])


@pytest.mark.parametrize("dtype", [f8e4m3, f8e5m2], ids=str)
def test_every_number_of_8_bits_has_a_sign(device: str, lacks: set[DType], dtype: DType):
    settle(device, (dtype,), lacks)
    signs = from_patterns(dtype, np.arange(256))
    ones, out = np.ones(256, signs.dtype), np.zeros(256, signs.dtype)
    signed_alike.configure(device=device)[4, 64](ones, signs, out)
    counts = np.ones(256, bool)
    if device not in ("cpu", "interpreter"):  # GPUs convert NaN to one of theirs
        counts = ~np.isnan(signs.astype(np.float32))
    assert np.array_equal(np.signbit(out.astype(np.float32))[counts], np.arange(256)[counts] >= 128)


@cp.cube
def beyond(x, out):
    out[0], out[1] = cp.f8e4m3(-1e9), cp.f8e4m3(float("-inf"))
    for k in range(x.shape[0]):
        out[k + 2] = cp.f8e4m3(x[k])


@pytest.mark.parametrize("dtype", [f16, bf16, f32], ids=str)
def test_what_is_beyond_f8e4m3_keeps_its_sign(device: str, lacks: set[DType], dtype: DType):
    settle(device, (dtype, f8e4m3), lacks)
    x = np.array([-np.inf, -500.0, 500.0, np.inf, -1e4, 1e4]).astype(numpy_type(dtype))
    out = np.zeros(8, numpy_type(f8e4m3))
    beyond.configure(device=device)[1, 1](x, out)
    found = out.astype(np.float32)
    assert np.isnan(found).all()
    assert np.array_equal(np.signbit(found[2:]), np.signbit(x.astype(np.float32)))
    assert np.signbit(found[:2]).all()
