"""Products of many rows by few columns on CPUs, against f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels
from cubepy.ir.types import bf16, f32, f64, i8
from cubepy.kernels.matmul.narrow import Narrow, multiply_narrow
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem
from cubepy.kernels.matmul.strategies import choose, narrow_height
from cubepy.targets import parse_target
from tests.guarded import Guarded

EXTENTS = ((64, 1, 1), (65, 3, 6), (130, 10, 17), (97, 33, 32), (29, 64, 50))
"""Rows, elements of k, and columns; pairs of k are neighbours in memory."""


def moved(v: Any, index: Any, by: Any) -> Any:
    return v * 2 + by[index]


def laid(x: np.ndarray, dense: str) -> np.ndarray:
    """The factor, or its transpose, as a kernel takes one that is dense along `dense`."""
    return x if dense == ROWS else np.ascontiguousarray(x.T)


@pytest.mark.parametrize(
    ("extents", "left", "pairs", "right"),  # all pairs
    [
        (extents, left, pairs, (ROWS, COLUMNS)[(i + k) % 2])
        for i, extents in enumerate(EXTENTS)
        for k, (left, pairs) in enumerate(((ROWS, False), (COLUMNS, False), (ROWS, True)))
    ],
)
def test_the_kernel(draw: Any, extents: Any, left: str, right: str, pairs: bool):
    m, k, n = extents
    kind = ml_dtypes.bfloat16 if pairs else np.float32
    a, b = (draw.array(shape, "f4").astype(kind) for shape in ((m, k), (k, n)))
    by, bias = draw.array((m, n), "f4"), draw.array((1, n), "f4")
    lines = -(-n // 16)
    t = Narrow(5, lines, 16, 64, left, right, bf16 if pairs else f32, f32)
    out = Guarded((m, n))
    biases = (np.broadcast_to(bias, (m, n)),)
    launch = multiply_narrow[-(-m // 20), 1]
    launch(laid(a, left), laid(b, right), out.array, biases, (by, (m, n)), 20, moved, t)
    expected = (a.astype("f8") @ b.astype("f8") + bias) * 2 + by
    np.testing.assert_allclose(out.array, expected, 1e-4, 1e-4)
    assert out.is_fenced


def test_nothing_beyond_an_odd_row_is_multiplied():
    """The element behind its last one is the next row's, or nobody's."""
    a = np.ones((300, 3), ml_dtypes.bfloat16)
    a[1::2] = np.inf
    t = Narrow(4, 1, 16, 8, ROWS, ROWS, bf16, f32)
    out = Guarded((300, 5))
    multiply_narrow[3, 1](a, np.ones((3, 5), a.dtype), out.array, (), (), 100, None, t)
    assert (out.array[::2] == 3).all()
    assert np.isinf(out.array[1::2]).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "bfloat16"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_dtypes(draw: Any, dtype: str, batch: tuple[int, ...]):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    a, b = (draw.array((*batch, *shape), "f4") for shape in ((500, 7), (7, 9)))
    a, b = ((8 * x).round().astype(kind) for x in (a, b))
    found = kernels.matmul(a, b)
    expected = a.astype("f8") @ b.astype("f8")
    tolerance = {"f2": 2e-3, "bfloat16": 1e-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(found.astype("f8"), expected, tolerance, 1e-6)


def problem(m: int, k: int, n: int, kind: Any = f32, left: str = ROWS) -> Problem:
    sums = f32 if kind is bf16 else kind
    return Problem(m, n, k, (), sums, sums, kind, left, ROWS, elements=kind, dtype=kind)


def test_they_are_chosen_where_columns_are_few_and_short():
    target = parse_target("cpu:znver4")
    for given, is_narrow in (
        (problem(1000, 3, 6), True),
        (problem(1000, 128, 64), True),
        (problem(1000, 129, 64), False),
        (problem(1000, 128, 65), False),
        (problem(100, 3, 6), False),
        (problem(1000, 64, 33, f64), False),
        (problem(1000, 64, 32, f64), True),
        (problem(1000, 64, 32, i8), False),
        (problem(1000, 64, 32, bf16), True),
        (problem(200, 64, 32, bf16), False),
        (problem(1000, 64, 32, bf16, COLUMNS), False),
    ):
        t = choose(target, given)
        assert isinstance(t, Narrow) is is_narrow, given
        if isinstance(t, Narrow):
            assert t.factors is (bf16 if given.elements is bf16 else given.sums)
            assert t.step >= given.n
            assert narrow_height(target, given, t) % t.rows == 0


def test_pairs_of_the_longest_column_have_room():
    """An odd element of k has a partner, which is 0."""
    t = choose(parse_target("cpu:sapphirerapids"), problem(1000, 31, 64, bf16))
    assert isinstance(t, Narrow)
    a, b = (np.ones(shape, ml_dtypes.bfloat16) for shape in ((300, 31), (31, 64)))
    out = Guarded((300, 64))
    multiply_narrow.configure(checked=True)[3, 1](a, b, out.array, (), (), 100, None, t)
    assert (out.array == 31).all()


def test_matrix_units_have_longer_columns():
    target = parse_target("cpu:sapphirerapids")
    assert isinstance(choose(target, problem(1000, 31, 6)), Narrow)
    assert not isinstance(choose(target, problem(1000, 32, 6)), Narrow)
