"""Divisions of what all units share, in branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def at_one_place(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        if i == 7:
            o[i] = x[(i + 4) % x.shape[0]]
        else:
            o[i] += 3


@cp.cube
def after_a_return(x: Any, o: Any):
    i = cp.i32(cp.ABSOLUTE_POS)
    if i >= o.size:
        return
    if i != 7:
        o[i] += 3
    else:
        o[i] = x[(i + 4) % x.shape[0]]


@cp.cube
def with_another_condition(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        if o[i] == 0 and i == 7:
            o[i] = x[(i * 2 - 3) % x.shape[0]]
        else:
            o[i] += 3


@pytest.mark.parametrize("kernel", [at_one_place, after_a_return, with_another_condition])
@pytest.mark.parametrize("way", [{}, {"vectorise": True}, {"checked": True}], ids=str)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_place_that_a_branch_knows(kernel: Any, way: dict[str, Any], size: int):
    x, o = np.arange(10.0, 10 + size), np.zeros(40)
    kernel.configure(**way).over(o)(x, o)
    expected = np.full(40, 3.0)
    expected[7] = x[11 % size]
    assert (o == expected).all()


@cp.cube
def of_arguments(a: cp.i64, b: cp.i64, x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        if x[i] > 0:
            o[i] = x[i] * (a // b) + (a + 2) % b
        elif b > 0 and a >= 0:
            o[i] = a % b


@pytest.mark.parametrize("b", [-3, 0, 4])
@pytest.mark.parametrize("a", [-7, 0, 9])
def test_what_holds_in_a_branch_alone_is_not_said_before_it(a: int, b: int):
    x = np.tile(np.array([1, -1, 0, 5]), 9)
    o = np.full_like(x, 77)
    of_arguments.over(o)(a, b, x, o)
    quotient, rest = (a // b, (a + 2) % b) if b else (0, 0)
    other = a % b if b > 0 and a >= 0 else 77
    assert (o == np.where(x > 0, x * quotient + rest, other)).all()


@cp.cube
def of_counts(a: cp.i64, b: cp.i64, x: Any, o: Any):
    i, rows = cp.ABSOLUTE_POS, max(b, 1)
    if i < o.size:
        if x[i] > 0:
            o[i] = (o.size + a) // rows * 1000 + (o.size + a) % rows + o.size // rows
        elif a > 0:
            o[i] = x[i] // a + a // rows + a % rows


@pytest.mark.parametrize("b", [-3, 0, 1, 4])
@pytest.mark.parametrize("a", [-70, -7, 0, 9])
@pytest.mark.parametrize("way", [{}, {"checked": True}, {"vectorise": False}], ids=str)
def test_what_holds_everywhere_is_said_of_what_goes_first(a: int, b: int, way: dict[str, Any]):
    x = np.tile(np.array([1, -1, 0, 5]), 9)
    o = np.full_like(x, 77)
    of_counts.configure(**way).over(o)(a, b, x, o)
    n, rows = o.size, max(b, 1)
    first = (n + a) // rows * 1000 + (n + a) % rows + n // rows
    second = x // a + a // rows + a % rows if a > 0 else np.full_like(x, 77)
    assert (o == np.where(x > 0, first, second)).all()


def test_divisions_by_counts_need_no_guard():
    x = np.zeros(36, np.int64)
    kernel, target = of_counts.over(x), "cpu:x86-64-v4"
    text = str(kernel.inspect(1, 1, x, x, stage="llvm", target=target))
    before, loop, _ = text.partition("\nvector")
    assert loop
    assert "udiv i64 %o_shape0.arg" in before


@cp.cube
def by_a_product(x: Any, o: Any):
    i, n = cp.ABSOLUTE_POS, x.shape[0]
    if i < o.size and 0 < n < 1000:
        o[i] = (n + 5) // (n * n)


@cp.cube
def by_a_count(x: Any, o: Any):
    i, n = cp.ABSOLUTE_POS, max(1, x.shape[0])
    if i < o.size:
        if n < 1000:
            o[i] = (n * n + 5) % (n * n)


@cp.cube
def in_a_condition(x: Any, o: Any):
    i, n = cp.ABSOLUTE_POS, x.shape[0]
    if i < o.size:
        if n < 1000 and i % (n * n) == 3:
            o[i] = 1


@pytest.mark.parametrize("kernel", [by_a_product, by_a_count, in_a_condition])
@pytest.mark.parametrize("way", [{}, {"vectorise": False}, {"checked": True}], ids=str)
def test_products_that_wrap_to_zero_where_no_guard_holds(kernel: Any, way: dict[str, Any]):
    o = np.full(8, 7)
    kernel.configure(**way).over(o)(np.broadcast_to(np.zeros(1), (2**32,)), o)
    assert (o == 7).all()
