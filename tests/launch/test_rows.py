"""Positions divided into rows: what is true at the ends of rows, for every width and on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from bench.stencils import flat_stencil


def by_numpy(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, 1)
    sides = padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]
    v = x * 4
    for side in sides:
        v = v - side
    return v


SHAPES = [(1, 1), (1, 2), (2, 1), (3, 3), (1, 300), (300, 1), (7, 64), (64, 7), (5, 255), (5, 256)]
SHAPES += [(5, 257), (33, 100), (0, 4), (4, 0), (9, 1023)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strided", [False, True])
def test_stencils_by_flat_index(shape: tuple[int, int], strided: bool) -> None:
    x = np.random.default_rng(3).integers(-9, 9, shape).astype(np.float32)  # sums are exact
    if strided:
        x = np.repeat(x, 2, axis=1)[::-1, ::2][::-1]
    out = np.full(shape, np.nan, np.float32)
    flat_stencil.over(x.size)(x, out)
    assert out.tolist() == by_numpy(x).tolist()


@cp.cube
def compare_all(out: cp.Tensor[cp.i64], w: int, a: int, b: int):
    """Comparisons near the begin, near the end, and anywhere in a row."""
    p = cp.ABSOLUTE_POS
    if p < out.size:
        i, j = p // w, p % w
        v = i * 7 + j
        if j == 0:
            v += 1 << 10
        if j >= w - 1:
            v += 1 << 11
        if j + 1 == w:
            v += 1 << 12
        if j < 2:
            v += 1 << 13
        if 3 <= j:
            v += 1 << 14
        if j != a:
            v += 1 << 15
        if j - 2 > b:
            v += 1 << 16
        if j + 5 <= b:
            v += 1 << 17
        if i == 1:
            v += 1 << 18
        if i != a:
            v += 1 << 19
        if a > j:
            v += 1 << 20
        if i < 1 or j > i:
            v += 1 << 21
        out[p] = v


def expected(n: int, w: int, a: int, b: int) -> list[int]:
    found = []
    for p in range(n):
        i, j = (p // w, p % w) if w else (0, 0)
        tests = [j == 0, j >= w - 1, j + 1 == w, j < 2, j >= 3, j != a, j - 2 > b, j + 5 <= b]
        tests += [i == 1, i != a, a > j, i < 1 or j > i]
        found.append(i * 7 + j + sum(1 << (10 + k) for k, t in enumerate(tests) if t))
    return found


@pytest.mark.parametrize("w", [0, 1, 2, 3, 5, 64, 77, 256, 300, 5000, -1, -7])
@pytest.mark.parametrize(("a", "b"), [(0, 0), (3, 50), (-1, -9), (2**62, -(2**62)), (1, 2**63 - 1)])
def test_comparisons_in_rows(w: int, a: int, b: int) -> None:
    out = np.zeros(1000, np.int64)
    low, high = -(2**63) + 10, 2**63 - 10
    if b > high or b < low:
        b = high
    compare_all.over(out)(out, w, a, b)
    assert out.tolist() == expected(1000, w, a, b)


@cp.cube
def fixed_width(out: cp.Tensor[cp.i32], w: cp.Comptime):
    p = cp.ABSOLUTE_POS
    if p < out.size:
        j = p % w
        out[p] = p // w * 3 + j + (100 if j == w - 1 else 0) + (1000 if j == 0 else 0)


@pytest.mark.parametrize("w", [1, 2, 63, 64, 100, 1024, 4096])
def test_constant_widths(w: int) -> None:
    out = np.zeros(3000, np.int32)
    fixed_width.over(out)(out, w)
    p = np.arange(3000)
    j = p % w
    assert (out == p // w * 3 + j + 100 * (j == w - 1) + 1000 * (j == 0)).all()


@cp.cube
def leaves_early(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32], w: int):
    """The division stands where the divisor is known not to be 0, and nowhere else."""
    p = cp.ABSOLUTE_POS
    if p >= out.size or w == 0:
        return
    if x[p] > 0:
        out[p] = p % w
        return
    out[p] = p // w


@pytest.mark.parametrize("w", [0, 1, 3, 100])
def test_units_that_return_do_not_divide(w: int) -> None:
    x = np.random.default_rng(1).integers(-3, 3, 500).astype(np.int32)
    out = np.full(500, -7, np.int32)
    leaves_early.over(out)(x, out, w)
    p = np.arange(500)
    want = np.where(x > 0, p % w, p // w) if w else np.full(500, -7)
    assert (out == want).all()


@cp.cube
def divides_by_a_guarded_extent(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    p = cp.ABSOLUTE_POS
    if p < out.size:
        if x.shape[0] > 0:
            out[p] = out.size // x.shape[0] + p % x.shape[0]


def test_guards_keep_their_divisions() -> None:
    for n in (0, 1, 3, 100):
        out = np.full(300, 5, np.int32)
        divides_by_a_guarded_extent.over(out)(np.zeros(n, np.int32), out)
        want: Any = 300 // n + np.arange(300) % n if n else np.full(300, 5)
        assert (out == want).all(), n
