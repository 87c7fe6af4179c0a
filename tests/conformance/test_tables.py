"""Constant tables, indexed at run time, on every device and for every scalar type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import DTYPES, DType, bool_, f64, index
from tests.conformance.operations import bits_of, numpy_type

TYPES = [t for t in DTYPES if t is not index]
SPECIAL = [0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 3e4, 0.1]


def entries(dtype: DType, count: int) -> Any:
    """A table with the numbers at which a spelling may go wrong, among random ones."""
    kind = numpy_type(dtype)
    rng = np.random.default_rng(count)
    if dtype.is_float:
        values = np.where(
            rng.random(count) < 0.5, rng.choice(SPECIAL, count), rng.normal(size=count)
        )
        return values.astype(np.float32).astype(kind) if dtype is not f64 else values
    if dtype is bool_:
        return rng.random(count) < 0.5
    info = np.iinfo(kind)
    table = rng.integers(info.min, info.max, count, kind, endpoint=True)
    table[:2] = info.min, info.max
    return table


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_arrays_of_each_type(device: str, lacks: set[DType], dtype: DType):
    if dtype in lacks:
        pytest.skip(f"the device has no {dtype}")
    short, long = entries(dtype, 3), entries(dtype, 37)

    @cp.cube
    def kernel(at, a, b):
        i = cp.ABSOLUTE_POS
        if i < at.size:
            a[i] = short[at[i] % 3]
            b[i] = long[at[i]]

    at = np.random.default_rng(1).integers(0, 37, 100).astype(np.int32)
    a, b = (np.ones(100, long.dtype) for _ in range(2))
    kernel.configure(device=device)[2, 64](at, a, b)
    for found, wanted in ((a, short[at % 3]), (b, long[at])):
        nan = found != found
        np.testing.assert_array_equal(nan, wanted != wanted)
        np.testing.assert_array_equal(bits_of(found)[~nan], bits_of(wanted)[~nan])


MATRIX = np.arange(35, dtype=np.int16).reshape(5, 7) * 100
STENCIL = ((-1, 0.25), (1, 0.5), (4, 0.1), (7, 1e-3), (2, 3))
NESTED = (((1, 2), (3, 4), (5, 6)), ((7, 8), (9, 10), (11, 12)))
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
LARGE = np.random.default_rng(2).random(1000).astype(np.float32)


@cp.cube
def look(at, to, ints, floats):
    i = cp.ABSOLUTE_POS
    if i < at.size:
        k, j = at[i], to[i]
        step, weight = STENCIL[k]
        total = 0
        for p in range(len(PRIMES)):
            total += PRIMES[p] * (p + k)
        ints[0, i] = MATRIX[k, j]
        ints[1, i] = step * 1000 + NESTED[k % 2][j % 3][i % 2]
        ints[2, i] = total
        ints[3, i] = MATRIX[k][2] + MATRIX[1, j] + len(MATRIX) + MATRIX.shape[1]
        floats[0, i] = weight
        floats[1, i] = LARGE[(k * 7919 + j) % 1000]


def test_rows_columns_and_literals(device: str):
    rng = np.random.default_rng(3)
    at, to = rng.integers(0, 5, 90).astype(np.int32), rng.integers(0, 7, 90).astype(np.int32)
    ints, floats = np.full((4, 90), -1, np.int32), np.full((2, 90), -1, np.float32)
    look.configure(device=device)[2, 64](at, to, ints, floats)
    steps = np.array([s for s, _ in STENCIL])[at]
    nested = np.array(NESTED)[at % 2, to % 3, np.arange(90) % 2]
    np.testing.assert_array_equal(ints[0], MATRIX[at, to])
    np.testing.assert_array_equal(ints[1], steps * 1000 + nested)
    sums = [sum(p * (q + k) for q, p in enumerate(PRIMES)) for k in at]
    np.testing.assert_array_equal(ints[2], sums)
    np.testing.assert_array_equal(ints[3], MATRIX[at, 2] + MATRIX[1, to] + 5 + 7)
    np.testing.assert_array_equal(floats[0], np.array([w for _, w in STENCIL], np.float32)[at])
    np.testing.assert_array_equal(floats[1], LARGE[(at * 7919 + to) % 1000])


@cp.cube
def look_outside(at, x, out, rows):
    i = cp.ABSOLUTE_POS
    if i < at.size:
        out[i] = x[i] + PRIMES[at[i]] + (5, 7)[at[i]]
        rows[i] = MATRIX[at[i], at[i]]


FAR = [-(2**63), 2**63 - 1, 2**62, -1, 8, 5, 7, 0, 3]


def test_outside_is_some_entry_or_a_fault(device: str):
    at = np.array(FAR)
    x = np.zeros(len(FAR), np.int32)
    out, rows = np.full_like(x, -1), np.full(len(FAR), -1, np.int16)
    kernel = look_outside.configure(device=device)
    if device != "interpreter":
        kernel[1, 16](at, x, out, rows)
        inside = np.array(PRIMES)[at.clip(0, 7)] + np.array((5, 7))[at.clip(0, 1)]
        np.testing.assert_array_equal(out, inside)
        np.testing.assert_array_equal(rows, MATRIX[at.clip(0, 4), at.clip(0, 6)])
    for k in range(7):
        with pytest.raises(cp.OutOfBoundsError) as caught:
            kernel.configure(checked=True)[1, 1](at[k : k + 1], x, out, rows)
        bound = 8 if not 0 <= FAR[k] < 8 else 2
        name = "PRIMES" if bound == 8 else "(5, 7)"
        found = caught.value
        assert (found.argument, found.axis, found.index, found.extent) == (name, 0, FAR[k], bound)


def test_literals_of_a_table_take_the_type_that_they_meet(device: str, lacks: set[DType]):
    tenths = (0.1, 0.2, 0.3, 0.7, 1.1, 1.3)

    @cp.cube
    def kernel(x, at, out, wide):
        i = cp.UNIT_POS
        out[i] = x[i] * tenths[at[i]] + (tenths[at[i]] if i > 2 else 0.9)
        wide[i] = (3_000_000_000, 1, 2, 3, 4, 5)[at[i]] + (1 if i < 3 else 2)

    dtype = np.float32 if f64 in lacks else np.float64
    x, at = np.linspace(1, 2, 6).astype(dtype), np.array([5, 0, 2, 3, 1, 4], np.int32)
    out, wide = np.zeros(6, dtype), np.zeros(6, np.int64)
    kernel.configure(device=device, contract=False)[1, 6](x, at, out, wide)
    chosen = np.array(tenths, dtype)[at]
    expected = x * chosen + np.where(np.arange(6) > 2, chosen, dtype(0.9))
    np.testing.assert_array_equal(out, expected)
    numbers = np.array([3_000_000_000, 1, 2, 3, 4, 5])[at]
    np.testing.assert_array_equal(wide, numbers + np.where(np.arange(6) < 3, 1, 2))
