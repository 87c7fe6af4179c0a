"""Literals that are chosen or held at run time, and the types of the locals that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

X: dict[Any, Any] = {
    np.float64: 3.3,
    np.float32: 3.3,
    np.float16: 3.3,
    np.int64: 5,
    np.uint64: 2**63 + 5,
    np.uint32: 3000000001,
    np.uint8: 200,
}


def run(function: Any, x: Any, flag: int = 0, out: Any = np.float64, device: Any = None) -> Any:
    """The results of `function(x, flag, out)`, one unit, which are two at most."""
    kernel, results = cp.cube(function), np.zeros(2, out)
    if device is not None:
        kernel = kernel.configure(device=device)
    kernel[1, 1](np.array([X[x]], x), flag, results)
    return results


@pytest.fixture(params=[None, "interpreter"], ids=["cpu", "interpreter"])
def device(request: pytest.FixtureRequest) -> Any:
    return request.param


# Chosen


def early(flag):
    if flag > 0:
        return 0.1
    if flag < -5:
        return 0.3
    return 0.2


def chosen(flag):
    return 0.1 if flag > 0 else (0.3 if flag < -5 else 0.2)


def selected(flag):
    return cp.where(flag > 0, 0.1, cp.where(flag < -5, 0.3, 0.2))


def assigned(flag):
    h = 0.2
    if flag > 0:
        h = 0.1
    elif flag < -5:
        h = 0.3
    return h


def in_arms(flag):
    if flag > 0:
        h = 0.1
    elif flag < -5:
        h = 0.3
    else:
        h = 0.2
    return h


def matched(flag):
    match flag:
        case 1:
            h = 0.1
        case -9:
            h = 0.3
        case _:
            h = 0.2
    return h


def in_a_tuple(flag):
    pair = (3, 0.1) if flag > 0 else (4, 0.2)
    if flag < -5:
        pair = (5, 0.3)
    return pair[1]


def carried(flag):
    h = 0.5
    g = 0.1
    for _ in range(3):
        h = g
        if flag <= 0:
            g = 0.3 if flag < -5 else 0.2
    return h


def in_arithmetic(flag):
    h = 0.05
    if flag <= 0:
        h = 0.15 if flag < -5 else 0.1
    g = abs(-h)
    return g * 2.0


def extreme(flag):
    a = 0.1 if flag > 0 else 0.4
    return min(max(a, 0.05), 0.3 if flag < -5 else 0.2)


PICKS = (early, chosen, selected, assigned, in_arms, matched, in_a_tuple, carried, extreme)


@pytest.mark.parametrize("flag", [1, 0, -9])
@pytest.mark.parametrize("pick", [*PICKS, in_arithmetic], ids=lambda f: f.__name__)
def test_a_chosen_literal_has_the_precision_of_what_it_meets(pick: Any, flag: int, device: Any):
    def kernel(x, flag: cp.i32, out):
        h = pick(flag)
        out[0] = x[0] * h
        out[1] = h

    h = in_arithmetic(flag) if pick is in_arithmetic else {1: 0.1, 0: 0.2, -9: 0.3}[flag]
    assert run(kernel, np.float64, flag, device=device).tolist() == [3.3 * h, h]
    single = run(kernel, np.float32, flag, np.float32, device)
    assert single.tolist() == [np.float32(3.3) * np.float32(h), np.float32(h)]
    half = run(kernel, np.float16, flag, np.float16, device)
    assert half.tolist() == [np.float16(3.3) * np.float16(h), np.float16(h)]


def test_one_literal_meets_two_types(device: Any):
    def kernel(x, flag: cp.i32, out):
        h = 0.1
        if flag > 0:
            h = 0.2
        out[0] = x[0] * h
        out[1] = cp.f32(x[0]) * h

    single = float(np.float32(3.3) * np.float32(0.2))
    assert run(kernel, np.float64, 1, device=device).tolist() == [3.3 * 0.2, single]


def test_a_held_literal_is_rounded_once():
    value = 1.0 + 2.0**-11 + 2.0**-40  # f32 rounds to the middle of two numbers of f16

    def kernel(x, flag: cp.i32, out):
        h = 1.0
        if flag > 0:
            h = value
        out[0] = x[0] * 0 + h

    assert run(kernel, np.float16, 1)[0] == float(np.float16(value)) != float(np.float16(1))


def test_integers_chosen_at_run_time(device: Any):
    def add(x, flag: cp.i32, out):
        out[0] = x[0] + (3000000000 if flag > 0 else 1)
        out[1] = x[0] + cp.where(flag > 0, 2, 100)

    assert run(add, np.int64, 1, np.int64, device).tolist() == [3000000005, 7]
    assert run(add, np.uint32, 1, np.uint32, device).tolist() == [
        (3000000001 + 3000000000) % 2**32,
        3000000003,
    ]

    def beyond(x, flag: cp.i32, out):
        m = 0
        if flag > 0:
            m = 18446744073709551615
        out[0] = x[0] - m
        n = 9223372036854775813
        if flag > 0:
            n = 1
        out[1] = n

    wanted = [(2**63 + 5 - (2**64 - 1)) % 2**64, 1]
    assert run(beyond, np.uint64, 1, np.uint64, device).tolist() == wanted
    assert run(beyond, np.uint64, 0, np.uint64, device)[1] == 9223372036854775813


def test_arithmetic_on_choices_is_that_of_their_literals():
    def kernel(x, flag: cp.i32, out):
        a = 200 if flag > 0 else 1
        out[0] = x[0] + (a + (55 if flag > 0 else 7))
        out[1] = x[0] + (a // 3 if a > 100 else -a + 2)

    assert run(kernel, np.uint8, 1, np.int64).tolist() == [(200 + 255) % 256, (200 + 66) % 256]
    assert run(kernel, np.uint8, 0, np.int64).tolist() == [208, 201]


def too_large(x, flag: cp.i32, out):
    out[0] = x[0] + (300 if flag > 0 else 1)


def too_large_held(x, flag: cp.i32, out):
    k = 1
    for _ in range(2):
        out[0] = x[0] + k
        if flag > 0:
            k = 300


def too_large_stored(x, flag: cp.i32, out):
    x[0] = cp.where(flag > 0, -1, 1)


def too_large_returned(x, flag: cp.i32, out):
    def pick():
        if flag > 0:
            return 256
        return 0

    out[0] = max(x[0], pick())


@pytest.mark.parametrize(
    "kernel", [too_large, too_large_held, too_large_stored, too_large_returned]
)
def test_a_chosen_literal_must_fit(kernel: Any):
    with pytest.raises(cp.CompileError, match=r"E203.*(300|-1|256).*u8"):
        run(kernel, np.uint8)


# Locals


def test_sums_that_start_from_a_literal():
    def kernel(x, flag: cp.i32, out):
        s = 0
        for _ in range(10):
            s += x[0]
        out[0] = s
        for k in cp.unroll(range(4)):
            s += x[0]
        out[1] = s

    assert run(kernel, np.uint8).tolist() == [2000, 2800]
    assert run(kernel, np.uint64, out=np.uint64)[0] == (2**63 + 5) * 10 % 2**64


def test_types_flow_against_the_order_of_statements():
    def kernel(x, flag: cp.i32, out):
        a = 0.0
        b = 0.0
        c = 0.0
        d = 0.0
        for _ in range(6):
            a = b + a
            b = c * 1.0 + b
            c = d + c
            d = d + x[0]
        out[0] = a

    a = b = c = d = 0.0
    for _ in range(6):
        a, b, c, d = b + a, c + b, d + c, d + 3.3
    assert run(kernel, np.float64)[0] == pytest.approx(a, rel=1e-15)


def test_a_rebound_name_is_a_new_local(device: Any):
    def kernel(x, flag: cp.i32, out):
        h = x[0]
        h = h * 31
        out[0] = h
        r = (h * 3) >> 2
        h = cp.i32(r)
        if h < 0:
            h = -h
        out[1] = h

    h = 3000000001 * 31 % 2**32
    r = np.array(h * 3 % 2**32 >> 2).astype(np.int32)
    assert run(kernel, np.uint32, device=device).tolist() == [h, abs(int(r))]


def test_paths_join_in_a_common_type(device: Any):
    def kernel(x, flag: cp.i32, out):
        v = x[0]
        out[0] = v * 3000000000
        if flag > 0:
            v = cp.i32(-1)
        out[1] = v

    wrapped = 3000000001 * 3000000000 % 2**32
    assert run(kernel, np.uint32, 0, device=device).tolist() == [wrapped, 3000000001]
    assert run(kernel, np.uint32, 1, device=device).tolist() == [wrapped, -1]


def test_a_loop_may_change_a_type_and_back():
    def kernel(x, flag: cp.i32, out):
        t = x[0]
        for k in range(4):
            t = cp.i64(t) * 3
            if k == flag:
                t = cp.u32(t)
                continue
            t = cp.u32(t)
        out[0] = t
        for k in range(2):
            t = cp.f64(k) + 0.5
            out[1] = t

    assert run(kernel, np.uint32, 2).tolist() == [3000000001 * 81 % 2**32, 1.5]


def test_a_name_is_reused_for_another_sum():
    def kernel(x, flag: cp.i32, out):
        s = 0
        for _ in range(3):
            s += cp.u8(100)
        out[0] = s // 7
        s = 0.0
        for _ in range(3):
            s += x[0]
        out[1] = s

    total = 0.0
    for _ in range(3):
        total += 3.3
    assert run(kernel, np.float64).tolist() == [42, total]


def cast_to_its_own_type(x, flag, out):
    chosen = cp.f32(16777217.0 if flag == 0 else 3)
    held = 0.1
    if flag == 0:
        held = 0.2
    out[0] = cp.f64(cp.i64(chosen))
    out[1] = cp.f32(held) * x[0]


def test_a_cast_gives_a_literal_a_type_also_its_own(device: Any):
    """Found by fuzzing: the literal gave way again to what it met behind the cast."""
    expected = [16777216.0, float(np.float32(0.2)) * 3.3]
    assert list(run(cast_to_its_own_type, np.float64, device=device)) == expected


def cast_then_refused_otherwise(x, flag, out):
    out[0] = cp.i64(2**63 - 1 if flag == 0 else 1) + x[0]


def test_a_cast_literal_need_not_fit_what_it_meets(device: Any):
    """An i64 that is chosen widens u32, which does not hold it."""
    found = run(cast_then_refused_otherwise, np.uint32, out=np.int64, device=device)
    assert found[0] == (2**63 - 1 + 3000000001) - 2**64


def lane_in_a_loop(x, flag, out):
    line = cp.load(x, 0, line=4, fill=2)
    line = line + x[0]
    v, w = line[3], line.sum()
    for _ in range(2):
        v = v + x[0]
        w = w * 2
    out[0] = v
    out[1] = w


def test_a_lane_of_a_line_that_was_bound_anew_is_a_scalar(device: Any):
    """Found by fuzzing: a loop gave the local of the lane the type of the line."""
    assert list(run(lane_in_a_loop, np.int64, device=device)) == [17, 4 * (10 + 3 * 7)]


# Literals that a loop makes a type of


@cp.cube
def held_and_changed(x, out):
    h = 0.125
    t = h
    for i in range(x.size):
        t = t * h + x[i]
        h += 0.25
    out[0] = t


@cp.cube
def changed_before(x, out):
    h = 0.5
    for i in range(x.size):
        h += 0.25
    t = h
    for i in range(x.size):
        t = t * h + x[i]
    out[0] = t


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("kernel", [held_and_changed, changed_before])
def test_a_name_that_begins_as_a_literal_joins_what_a_loop_makes_of_it(kernel: Any, dtype: Any):
    x = np.array([3, 1, 4, 1], dtype)
    for device in ("cpu", "interpreter"):
        found, expected = np.zeros(1), [0.0]
        kernel.configure(device=device)[1, 1](x, found)
        kernel.function(x.astype(np.float64), expected)
        np.testing.assert_allclose(found, expected, rtol=1e-7)
        assert found[0] == expected[0], "all of it is exact"
