"""Python's arithmetic on every type, in corners and at random, as scalars and as lines."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.guarded import Guarded

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@cp.cube
def divide(x: cp.Lines, y: cp.Lines, floor: cp.Lines, rest: cp.Lines, both: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        a, b = x.flat[i], y.flat[i]
        floor.flat[i], rest.flat[i] = a // b, a % b
        q, r = divmod(a, b)
        both.flat[i] = q + r


@cp.cube
def truncate(x: cp.Lines, y: cp.Lines, quotient: cp.Lines, rest: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        quotient.flat[i] = cp.div_trunc(x.flat[i], y.flat[i])
        rest.flat[i] = cp.rem_trunc(x.flat[i], y.flat[i])


@cp.cube
def shift(x: cp.Lines, y: cp.Lines, left: cp.Lines, right: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        left.flat[i], right.flat[i] = x.flat[i] << y.flat[i], x.flat[i] >> y.flat[i]


def pairs(kind: Any, count: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Corners with each other, then random numbers of all sizes; all pairs of bytes."""
    info = np.iinfo(kind)
    if info.bits == 8:
        every = np.arange(info.min, info.max + 1).astype(kind)
        return np.repeat(every, 256), np.tile(every, 256)
    corners = {
        info.min,
        info.min + 1,
        info.max,
        info.max - 1,
        0,
        1,
        2,
        3,
        7,
        10,
        255,
        256,
        info.bits,
        info.bits - 1,
        info.max // 2,
        *((-1, -2, -3, -7, -256) if info.min else ()),
    }
    rng = np.random.default_rng(info.bits)
    wild = rng.integers(info.min, info.max, (2, count), kind, endpoint=True)
    wild >>= rng.integers(0, info.bits, (2, count)).astype(kind)
    a, b = (
        np.array([c[k] for c in [(a, b) for a in corners for b in corners]], kind) for k in (0, 1)
    )
    return np.concatenate([a, wild[0]]), np.concatenate([b, wild[1]])


def wrap(values: list[int], kind: Any) -> np.ndarray:
    bits = np.iinfo(kind).bits
    unsigned = np.array([v & ((1 << bits) - 1) for v in values], np.uint64)
    return unsigned.astype(f"u{bits // 8}").view(kind)


def python_pairs(kind: Any) -> tuple[Any, Any, list[tuple[int, int]]]:
    x, y = pairs(kind)
    return x, y, list(zip(x.tolist(), y.tolist(), strict=True))


WIDTHS = pytest.mark.parametrize("width", [1, 4, "auto"])


@WIDTHS
@pytest.mark.parametrize("kind", INTEGERS, ids=lambda k: k.__name__)
def test_integer_division(kind: Any, width: Any):
    x, y, numbers = python_pairs(kind)
    outs = [Guarded(x.shape, kind) for _ in range(5)]
    arrays = [o.array for o in outs]
    divide.configure(line_size=width).over(x)(x, y, *arrays[:3])
    floor = [a // b if b else 0 for a, b in numbers]
    rest = [a % b if b else 0 for a, b in numbers]
    outs[0].check(wrap(floor, kind))
    outs[1].check(wrap(rest, kind))
    outs[2].check(wrap([q + r for q, r in zip(floor, rest, strict=True)], kind))
    truncate.configure(line_size=width).over(x)(x, y, *arrays[3:])
    quotient = [
        abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0 for a, b in numbers
    ]
    outs[3].check(wrap(quotient, kind))
    outs[4].check(
        wrap([a - q * b if b else 0 for (a, b), q in zip(numbers, quotient, strict=True)], kind)
    )


@WIDTHS
@pytest.mark.parametrize("kind", INTEGERS, ids=lambda k: k.__name__)
def test_shifts(kind: Any, width: Any):
    x, y, numbers = python_pairs(kind)
    bits = np.iinfo(kind).bits
    left, right = Guarded(x.shape, kind), Guarded(x.shape, kind)
    shift.configure(line_size=width).over(x)(x, y, left.array, right.array)
    left.check(wrap([a << b if 0 <= b < bits else 0 for a, b in numbers], kind))
    right.check(wrap([a >> b if 0 <= b < bits else -(a < 0) for a, b in numbers], kind))


@pytest.mark.parametrize("kind", INTEGERS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 10, 64, 100, -1, -2, -3, -8, "min", "max", 0])
def test_division_by_constants(kind: Any, divisor: Any):
    info = np.iinfo(kind)
    divisor = {"min": info.min, "max": info.max}.get(divisor, divisor)
    if not info.min <= divisor <= info.max:
        pytest.skip("no such number in this type")

    @cp.cube
    def kernel(x, out, d: cp.Comptime):
        i = cp.ABSOLUTE_POS
        if i < x.size:
            out[i, 0], out[i, 1] = x[i] // d, x[i] % d
            out[i, 2], out[i, 3] = cp.div_trunc(x[i], x.dtype(d)), d // x[i]

    x = np.unique(pairs(kind)[0])
    out = Guarded((x.size, 4), kind)
    kernel.over(x.size)(x, out.array, divisor)
    rows = [
        (
            a // divisor,
            a % divisor,
            int(math.trunc(a / divisor))
            if abs(a) < 2**50
            else abs(a) // abs(divisor) * (1 if (a < 0) == (divisor < 0) else -1),
            divisor // a if a else 0,
        )
        if divisor
        else (0, 0, 0, 0)
        for a in x.tolist()
    ]
    out.check(wrap([v for row in rows for v in row], kind).reshape(-1, 4))


def float_pairs(kind: Any) -> tuple[np.ndarray, np.ndarray]:
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.0,
        7.0,
        -7.0,
        1e-3,
        100.0,
        5.5,
        math.inf,
        -math.inf,
        math.nan,
        float(ml_dtypes.finfo(kind).tiny),
        float(ml_dtypes.finfo(kind).max),
    ]
    rng = np.random.default_rng(1)
    a, b = ([p[k] for p in [(a, b) for a in special for b in special]] for k in (0, 1))
    wild = rng.normal(size=(2, 2000)) * 2.0 ** rng.integers(-6, 7, (2, 2000))
    return (np.concatenate([a, wild[0]]).astype(kind), np.concatenate([b, wild[1]]).astype(kind))


def exact_floor(a: float, b: float) -> float:
    """The floor of the exact quotient; Python's `//` where it is that."""
    if math.isinf(b) and math.isfinite(a):
        return a // b
    if math.isinf(a) and b:
        return math.nan
    if not (math.isfinite(a) and math.isfinite(b)) or not a or not b:
        with np.errstate(all="ignore"):
            return float(np.floor(np.divide(a, b)))
    from fractions import Fraction

    whole = math.floor(Fraction(a) / Fraction(b))
    if abs(whole) >= 2**1024:
        return math.inf if whole > 0 else -math.inf
    return float(whole) if whole else math.copysign(0.0, a * b)


@WIDTHS
@pytest.mark.parametrize("kind", FLOATS, ids=lambda k: k.__name__)
def test_float_division(kind: Any, width: Any):
    x, y = float_pairs(kind)
    outs = [Guarded(x.shape, kind) for _ in range(3)]
    divide.configure(line_size=width).over(x)(x, y, *[o.array for o in outs])
    numbers = list(zip(x.tolist(), y.tolist(), strict=True))
    with np.errstate(all="ignore"):
        floor = np.array([exact_floor(float(a), float(b)) for a, b in numbers]).astype(kind)
        rest = np.mod(x.astype(np.float64), y.astype(np.float64)).astype(kind)
    usual = np.abs(floor.astype(np.float64)) < 2.0 ** (ml_dtypes.finfo(kind).nmant)
    usual |= ~np.isfinite(floor.astype(np.float64))
    found = outs[0].array
    np.testing.assert_array_equal(found[usual].astype(np.float64), floor[usual].astype(np.float64))
    with np.errstate(all="ignore"):
        close = floor.astype(np.float64) * float(1 + 2 * ml_dtypes.finfo(kind).eps)
        assert (np.abs(found[~usual].astype(np.float64)) <= np.abs(close[~usual])).all()
    outs[1].check(rest)


@pytest.mark.parametrize("kind", FLOATS, ids=lambda k: k.__name__)
def test_minimum_and_maximum(kind: Any):
    @cp.cube
    def kernel(x: cp.Lines, y: cp.Lines, low: cp.Lines, high: cp.Lines):
        i = cp.ABSOLUTE_POS
        if i < x.size:
            low.flat[i], high.flat[i] = min(x.flat[i], y.flat[i]), max(x.flat[i], y.flat[i])

    x, y = float_pairs(kind)
    low, high = Guarded(x.shape, kind), Guarded(x.shape, kind)
    kernel.over(x)(x, y, low.array, high.array)
    a, b = x.astype(np.float64), y.astype(np.float64)
    zeros = (a == 0) & (b == 0)
    least = np.where(zeros, np.where(np.signbit(a) | np.signbit(b), -0.0, 0.0), np.minimum(a, b))
    most = np.where(zeros, np.where(np.signbit(a) & np.signbit(b), -0.0, 0.0), np.maximum(a, b))
    low.check(least.astype(kind))
    high.check(most.astype(kind))


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS], ids=lambda k: k.__name__)
def test_powers(kind: Any):
    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        if i < x.size:
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = x[i] ** 0, x[i] ** 1, x[i] ** 2, x[i] ** 5

    x = np.array([0, 1, 2, 3, 5, 7, 11]).astype(kind)
    out = Guarded((7, 4), kind)
    kernel.over(7)(x, out.array)
    x64 = x.astype(object if kind in INTEGERS else np.float64)
    columns = [x64**n for n in (0, 1, 2, 5)]
    if kind in INTEGERS:
        out.check(
            wrap([int(v) for row in zip(*columns, strict=True) for v in row], kind).reshape(7, 4)
        )
    else:
        with np.errstate(over="ignore"):
            expected = np.stack(columns, 1).astype(kind).astype(float)
        np.testing.assert_allclose(out.array.astype(float), expected, rtol=2e-2)


@cp.cube
def masks(x: cp.Tensor, out: cp.Tensor):
    i = cp.ABSOLUTE_POS
    out[0, i], out[1, i] = x[i] & -1, -2 & x[i]
    out[2, i], out[3, i] = x[i] | -1, -8 | x[i]
    out[4, i], out[5, i] = x[i] ^ -1, -2 ^ x[i]


@pytest.mark.parametrize("kind", INTEGERS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_masks_that_are_negative_literals(kind: Any, device: str):
    x = np.array([0, 1, 5, 100, np.iinfo(kind).max, np.iinfo(kind).min], kind)
    out = np.zeros((6, x.size), kind)
    masks.configure(device=device)[1, x.size](x, out)
    one, two, eight = (np.array(-n).astype(kind) for n in (1, 2, 8))
    expected = [x & one, x & two, x | one, x | eight, x ^ one, x ^ two]
    np.testing.assert_array_equal(out, expected)
