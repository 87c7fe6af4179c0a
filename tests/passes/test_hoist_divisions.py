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
