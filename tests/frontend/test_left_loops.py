"""Names that a loop alone binds, behind it: what each `break` leaves it with stays bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.frontend.oracle import check_one_unit

WAYS: tuple[dict[str, Any], ...] = (
    {"device": "cpu"},
    {"device": "interpreter"},
    {"checked": True},
)


def leaves_while_true(x: Any, o: Any) -> None:
    i = 0
    while True:
        v = x[i] * 2
        if v > 3:
            break
        i += 1
    o[0] = v


def returns_in_else(x: Any, o: Any) -> None:
    for i in range(x.shape[0]):
        if x[i] > 3:
            break
    else:
        return
    o[0] = i


def leaves_with_a_tuple(x: Any, o: Any) -> None:
    while True:
        p = (x[0], x[1])
        if p[1] > 0:
            break
    o[0] = p[0] + p[1]


def inside_a_loop(x: Any, o: Any) -> None:
    for j in range(3):
        while True:
            v = x[j]
            if v >= j:
                break
        o[0] += v


def nested(x: Any, o: Any) -> None:
    i = 0
    while True:
        if x[i] > 1:
            v = x[i]
            while True:
                u = v * 2
                if u > 2:
                    break
            if u > 5:
                break
        i += 1
    o[0] = u + v


def another_type_next(x: Any, o: Any) -> None:
    while True:
        v = x[0]
        if v >= 0:
            break
    o[0] = v
    while True:
        v = cp.i32(3)
        if x[1] > 0:
            break
    o[0] += v
    for k in range(3):
        v = v + 1
    o[0] += v
    if x[2] > 1:
        v = 10
    o[0] += v


def a_tuple_then_a_number(x: Any, o: Any) -> None:
    while True:
        while True:
            t = (x[0], x[1] + 1)
            if t[0] >= 0:
                break
        if t[1] > 0:
            break
    v = t[0] + t[1]
    t = x[3]
    o[0] = t + v


def else_has_another(x: Any, o: Any) -> None:
    total = 0.0
    for j in range(4):
        for i in range(9):
            if x[i] > j:
                best = x[i]
                break
        else:
            best = x[8] * 100
        total += best
    o[0] = total


def assigned_again(x: Any, o: Any) -> None:
    i = 0
    while True:
        if x[i] > 2:
            v = 1
            break
        i += 1
    w = v * x[i]
    v = x[i] + 0.5
    o[0] = v + w


def while_with_else(x: Any, o: Any) -> None:
    n = 0
    while n < 5:
        if x[n] > 3:
            hit = x[n]
            break
        n += 1
    else:
        hit = -1.0
    o[0] = hit


def of_a_helper(x: Any, n: Any) -> Any:
    while True:
        v = x[n]
        if v > 2:
            return v * 2
        n = n + 1
        if n > 5:
            break
    return v


def returns_or_breaks(x: Any, o: Any) -> None:
    o[0] = of_a_helper(x, 0) + of_a_helper(x, 4)


def two_breaks(x: Any, o: Any) -> None:
    k = 0
    while True:
        if x[k] > 5:
            v = x[k] * 2
            break
        if x[k] > 2 and k > 3:
            v = 1
            break
        k += 1
    o[0] = v


def two_breaks_or_else(x: Any, o: Any) -> None:
    for j in range(4):
        for i in range(9):
            if x[i] > j * 4:
                best = x[i], j
                break
            if i * j == 15:
                best = (i, 0.5)
                break
        else:
            best = x[0], 7.5
        o[0] += best[0] * 10 + best[1]


def a_known_number_of_times(x: Any, o: Any) -> None:
    for i in range(2, 8):
        v = x[i]
        if v > 4:
            break
        if v > 100:
            v = 7
            continue
        o[0] += v + 1
    o[0] += v
    o[0] += i


def all_ends_bind(x: Any, o: Any) -> None:
    for i in range(6):
        if x[i] < 2:
            last = x[i] * 3
            continue
        if x[i] > 30:
            last = 5
            break
        last = i
    else:
        o[0] = 100
    o[0] += last


def else_reads_what_the_last_step_bound(x: Any, o: Any) -> None:
    for i in range(6):
        seen = x[i]
        if seen > 50:
            break
    else:
        seen = seen * 3
    o[0] = seen


def unrolled(x: Any, o: Any) -> None:
    for k in cp.unroll(range(5)):
        v = x[k] * 2
        if v > 3:
            break
    o[0] = v
    o[0] += k


def unrolled_with_else(x: Any, o: Any) -> None:
    for limit in cp.unroll((1.5, 20, 3)):
        for k in cp.unroll((2, 1, 4)):
            if x[k] > limit:
                v = x[k] * limit
                break
        else:
            v = limit
        o[0] += v


def unrolled_and_continued(x: Any, o: Any) -> None:
    for k in cp.unroll(range(5)):
        if k > 0:
            o[0] += v  # noqa: F821 - bound by the step before
        if x[k] < 2:
            v = 1
            continue
        v = x[k] + 1.5
        if v > 4:
            break
    o[0] += v


def unrolled_and_left_where_not_continued(x: Any, o: Any) -> None:
    for k in cp.unroll(range(5)):
        o[0] += k + 1
        if x[k] < 2:
            continue
        break
    o[0] += k * 10


def bound_where_the_other_arm_returns(x: Any, o: Any) -> None:
    if x[5] > 4:
        v, p = x[2], (x[3], 0.5)
        k = p[0] > 2
        part = x[2 if k else 1 :]
    else:
        return
    o[0] = v + p[0] + p[1] + part[1]


def bound_where_the_other_arm_continues(x: Any, o: Any) -> None:
    for k in range(4):
        if x[k] > 1:
            v = x[k]
        else:
            continue
        o[0] += v * 2


def one_in_the_other(x: Any, o: Any) -> None:
    while True:
        while True:
            if x[1] > 100:
                v = x[3]
                break
            if x[1] > 0:
                v = x[5] + 1
                break
        if v > 3:
            w = v * 2
            break
        if v > 2:
            w = 0
            break
    o[0] = w + v


def one_after_the_other(x: Any, o: Any) -> None:
    for k in range(x.shape[0]):
        if x[k] > 5:
            v = x[k]
            break
        if x[k] > 4:
            v = x[k] + 1
            break
    else:
        v = x[0]
    n = 0
    while True:
        n += 1
        if x[n] > 2:
            v = x[1]
            break
        if n > 3:
            break
    o[0] = v


def several_names(x: Any, o: Any) -> None:
    k = 0
    while True:
        if x[k] > 5:
            a, b, c = k, x[k], True
            break
        if x[k] > 3 and k > 8:
            a, b, c = 3, 2.5, False
            break
        k += 1
    o[0] = a + b + (1 if c else 0)


KERNELS = (
    leaves_while_true,
    returns_in_else,
    leaves_with_a_tuple,
    inside_a_loop,
    nested,
    another_type_next,
    a_tuple_then_a_number,
    else_has_another,
    assigned_again,
    while_with_else,
    returns_or_breaks,
    two_breaks,
    two_breaks_or_else,
    a_known_number_of_times,
    all_ends_bind,
    else_reads_what_the_last_step_bound,
    unrolled,
    unrolled_with_else,
    unrolled_and_continued,
    unrolled_and_left_where_not_continued,
    bound_where_the_other_arm_returns,
    bound_where_the_other_arm_continues,
    one_in_the_other,
    one_after_the_other,
    several_names,
)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_as_python_has_it(function: Any, way: dict[str, Any]):
    check_one_unit(function, **way)


@cp.cube
def searches(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        k = 0
        while True:
            v = x[(i * 7 + k) % x.size]
            if v > 0.9:
                break
            k += 1
        for j in range(50):
            if x[(i + j) % x.size] < 0.1:
                q = x[(i + j) % x.size]
                break
        else:
            q = v * 0 - 1
        o[i] = v + q * 10 + k


@pytest.mark.parametrize(
    "options",
    [{}, {"vectorise": True}, {"vectorise": False}, {"plane_dim": 32}, {"checked": True}],
    ids=str,
)
def test_units_leave_loops_at_different_times(options: dict[str, Any]):
    x, found = np.random.default_rng().random(1000), np.zeros(3000)
    expected = np.zeros(3000)
    for i in range(expected.size):
        turned = np.roll(x, -i * 7)
        k = int((turned > 0.9).argmax())
        near = np.roll(x, -i)[:50]
        least = near[near < 0.1]
        expected[i] = turned[k] + (least[0] if least.size else -1.0) * 10 + k
    searches.configure(**options).over(found)(x, found)
    assert (found == expected).all()


def one_way_without(x: Any, o: Any) -> None:
    i = 0
    while True:
        if x[i] > 100:
            break
        v = x[i]
        if v > 3:
            break
        i += 1
    o[0] = v


def unrolled_without(x: Any, o: Any) -> None:
    for k in cp.unroll(range(4)):
        if x[k] > 100:
            break
        v = x[k]
        if v > 3:
            break
    o[0] = v


def a_break_of_some_step_without(x: Any, o: Any) -> None:
    for k in cp.unroll(range(4)):
        if k == 0:
            if x[0] > 100:
                break
        v = x[k]
        if v > 3:
            break
    else:
        v = 3
    o[0] = v


def no_common_kind(x: Any, o: Any) -> None:
    while True:
        if x[0] > 0:
            v = (x[0], x[1])
            break
        if x[1] > 0:
            v = x[1]
            break
    o[0] = v


def may_not_run(x: Any, o: Any) -> None:
    for k in range(x.shape[0]):
        v = x[k]
    o[0] = v


def ends_by_its_test(x: Any, o: Any) -> None:
    k = 0
    while x[k] < 5:
        v = x[k]
        if v > 3:
            break
        k += 1
    o[0] = v


@pytest.mark.parametrize(
    "function",
    [
        one_way_without,
        unrolled_without,
        a_break_of_some_step_without,
        may_not_run,
        ends_by_its_test,
    ],
)
def test_names_that_a_way_does_not_set(function: Any):
    with pytest.raises(cp.CompileError, match="E103: `v` is not set on every path"):
        cp.cube(function)[1, 1](np.arange(9.0), np.zeros(1))


def assigned_on_the_way(x: Any, o: Any) -> None:
    for k in range(x.shape[0]):
        if x[k] > 3:
            v = x[k]
            break
    else:
        v = x[0]
    for k in range(3):
        if v > k and (v := x[k] + 10) > 11:
            o[0] += v
    o[0] += v


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_name_that_may_be_assigned_next(way: dict[str, Any]):
    """By a `:=` that may not run; it is the same name."""
    x, expected, found = np.arange(9.0), np.zeros(1), np.zeros(1)
    assigned_on_the_way(x, expected)
    cp.cube(assigned_on_the_way).configure(**way)[1, 1](x, found)
    assert found[0] == expected[0]


def memory_of_the_last_step(x: Any, o: Any) -> None:
    k = 0
    while True:
        v = cp.local(4, cp.f32, fill=1)
        v[0] += x[k]
        k += 1
        if k == 4:
            break
    o[0] = v[0]


def memory_in_a_tuple(x: Any, o: Any) -> None:
    for k in range(5):
        v = (x[k], cp.local(4, cp.f32, fill=1))
        if v[0] > 2:
            break
    else:
        return
    o[0] = v[1][0]


def part_of_memory(x: Any, o: Any) -> None:
    while True:
        s = cp.local(4, cp.f32, fill=1)
        v = s[1:]
        if v[0] > 0:
            break
    o[0] = v[0]


@pytest.mark.parametrize("function", [memory_of_the_last_step, memory_in_a_tuple, part_of_memory])
def test_memory_of_a_loop_ends_with_it(function: Any):
    with pytest.raises(cp.CompileError, match="E103: `v` is not set on every path"):
        cp.cube(function)[1, 1](np.arange(9.0), np.zeros(1))


def memory_from_before(x: Any, o: Any) -> None:
    s = cp.local(4, cp.f64, fill=1)
    while True:
        v = s[1:]
        v[0] += x[1]
        if v[0] > 3:
            break
    o[0] = v[0]


def names_of_others(x: Any, o: Any) -> None:
    half = lambda n: n * 0.5

    def third(m: Any) -> Any:
        n = m
        return n / 3

    sums = sum([n for n in (1.0, 2.0)], x[2])
    while True:
        n = 2
        t = cp.local(n, cp.f64, fill=1)
        o[0] += half(t[0]) + third(t[1]) + sums
        if o[0] > 4:
            break


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("function", [memory_from_before, names_of_others])
def test_what_is_none_of_the_loop(function: Any, way: dict[str, Any]):
    found = np.zeros(1)
    cp.cube(function).configure(**way)[1, 1](np.arange(9.0), found)
    assert found[0] == (4 if function is memory_from_before else 5.5 + 1 / 3)
