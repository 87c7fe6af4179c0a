"""Kernels that choose: unrolled loops, ternaries, logic and `match`; `test_control.py` runs them.

Each is `kernel(x, out)` with one unit for each element of `x`.
"""

from typing import Any

import numpy as np

import cubepy as cp

CASES: list[Any] = []


def case(function: Any) -> Any:
    CASES.append(cp.cube(function))
    return function


# Unrolled loops


@case
def unrolled(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in cp.unroll(range(4)):
        cp.static_assert(cp.comptime(k) < 4)
        total = total * 2 + k
    for k, name in enumerate(("a", "bb", "ccc")):
        total += k * len(name)
    for a, (b, c) in ((1, (2, 3)), (4, (5, 6))):
        total += a * b - c
    for a, b in zip((1, 2), (3, 4)):
        total += a * b
    for k in reversed((1, 2)):
        total = total * 3 + k
    out[i] = total + x[i]


@case
def unrolled_comptime_jumps(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in cp.unroll(range(10)):
        if k == 2:
            continue
        if k == 6:
            break
        total += k
    else:
        total = -1000
    for k in cp.unroll(range(3)):
        total += k
    else:
        total += 50
    out[i] = total + x[i]


@case
def unrolled_runtime_jumps(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in cp.unroll(range(6)):
        if x[i] == k:
            continue
        total += 1 + k
        if x[i] < k * 2:
            break
        if k == 4:
            break
        total += 100
    else:
        total += 1000
    out[i] = total


@case
def unrolled_else(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in (1, 4, 9):
        if x[i] == k:
            total = k
            break
    else:
        total = -1
    out[i] = total


@case
def unrolled_in_runtime(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for a in range(3):
        for k in (1, 2, 3):
            if a + k == x[i]:
                break
            for b in range(2):
                if b == x[i]:
                    continue
                if b + k > x[i] + 4:
                    break
                total += 1
            total += k * 10
        else:
            continue
        total += 1000
    out[i] = total


@case
def unrolled_return(x, out):
    i = cp.ABSOLUTE_POS
    for k in cp.unroll(range(5)):
        out[i] = k
        if x[i] == k:
            return
    out[i] = 55


@case
def unrolled_comptime_break_beside_a_runtime_one(x, out):
    """What follows a comptime break is not looked at, also where other jumps are of the unit."""
    i = cp.ABSOLUTE_POS
    total = 0
    for a in cp.unroll(range(9)):
        if a == 3:
            break
        cp.static_assert(a < 3)
        if x[i] == a:
            break
        total += a + 1
    else:
        total += 100
    out[i] = total


@case
def name_kept_after_unrolled_loop(x, out):
    i = cp.ABSOLUTE_POS
    for k in cp.unroll(range(5)):
        last = x[i] + k
        if last > 7:
            out[i] = 1
    out[i] = last + k  # pyright: ignore[reportOperatorIssue]


# Expressions that choose


@case
def ternaries(x, out):
    i = cp.ABSOLUTE_POS
    a = x[i] if x[i] > 0 else -x[i]
    b = 1 if x[i] > 3 else 2 if x[i] > 0 else 3
    c = x[i + 1] if i + 1 < x.size else -99
    d = x[x[i]] if x[i] >= 0 else (x[-x[i]] if i > 3 else 5)
    e = 7 if cp.PLANE_DIM == 1 else x[1000]
    out[i] = a + 10 * b + 100 * c + d + e


@case
def chained(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    if 0 <= x[i] < 10:
        total += 1
    if -5 < x[i] <= 3 != x[i]:
        total += 10
    if i < 30 < x.size < 100:
        total += 100
    if 1 < 2 < 3 > x[i]:
        total += 1000
    out[i] = total


@case
def guarded_loads(x, out):
    """Whatever is not asked for is not read: these indices lie outside."""
    i = cp.ABSOLUTE_POS
    total = 0
    if i + 20 < x.size and x[i + 20] > 10:
        total += 1
    if i + 20 >= x.size or x[i + 20] > 10:
        total += 10
    if i + 20 < x.size <= x[i + 20] + 23:
        total += 100
    if not (i < 5 or x[i - 5] > 3) and (i > 30 or x[i + 1] < 0):
        total += 1000
    flag = i + 20 < x.size and x[i + 20] > 10 and i > 2
    if flag:
        total += 10000
    out[i] = total


@case
def logic(x, out):
    i = cp.ABSOLUTE_POS
    a, b = x[i] > 3, x[i] < 7
    total = 0
    if a and b:
        total += 1
    if a or b:
        total += 2
    if not a and True:
        total += 4
    if a ^ b:
        total += 8
    if (a & b) | (not b):
        total += 16
    if x[i] and not x[i] % 2:
        total += 32
    if a == b:
        total += 64
    out[i] = total


@case
def match_numbers(x, out):
    i = cp.ABSOLUTE_POS
    match x[i]:
        case -1:
            r = 5
        case 0 | 1 | 2:
            r = 6
        case n if n > 15:
            r = n
        case _:
            r = -8
    out[i] = r


@case
def match_comptime(x, out):
    i = cp.ABSOLUTE_POS
    mode, pair = "scale", (1, 2)
    match mode:
        case "add":
            r = x[i] + 1
        case "scale" | "mul":
            r = x[i] * 3
    match pair:
        case (1, b):
            r += b
    match (x[i], 4):
        case (3, 4):
            r = 1000
        case (_, 4):
            r += 1
    out[i] = r


CODES = np.array([4, 9], np.int32)


@case
def match_scalars_of_numpy(x, out):
    i = cp.ABSOLUTE_POS
    r, q = 0, 7
    match CODES[0]:
        case 9:
            r = -1
        case 4 as q:
            r = q * 10
    match CODES[1]:
        case 3 | 9 as q if x[i] > 3:
            r += q
        case _ as n:
            r -= n
    for n in range(3):
        match CODES[0]:
            case 4 as n:
                r += n
    out[i] = r + q


@case
def match_without_default(x, out):
    i = cp.ABSOLUTE_POS
    r = 1
    match x[i] % 4:
        case 1:
            r = 2
        case 2:
            for k in range(3):
                if k == 1:
                    break
                r += 5
    out[i] = r


@case
def match_with_guards(x, out):
    i = cp.ABSOLUTE_POS
    r = 0
    match x[i]:
        case 1 | 2 if i > 13:
            r = 1
        case 2:
            r = 2
        case n if n < 0 and x[-n] > 3:
            r = 3
    match (bool(x[i] > 0), x[i] % 2):
        case (True, 0):
            r += 10
        case (False, k) if k == 1:
            r += 20
    out[i] = r


@case
def captures_are_bound_where_the_pattern_holds(x, out):
    i = cp.ABSOLUTE_POS
    n, m = 5, 6
    match (x[i], x[i] % 3, 4):
        case (n, _, 5):
            r = 1
        case (n, 1, m) if m == 4:
            r = n
        case (m, 2, _) if m > 8:
            r = m * 10
        case _:
            r = n * 100 + m
    out[i] = r * 10 + n + m * 7


@case
def captures_of_alternatives(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    match (v % 3, v, 1):
        case (0, n, 2) | (0, n, 1) | (n, 1, _):
            r = n
        case (1, n, *rest) | (n, *rest, 1) if n > 2:
            r = n * 10 + rest[0]
        case whole:
            r = -whole[1]
    match (v % 2, v):
        case ((0 | 1) as k, (-3 | 4 | 11) as n) | (k, n):
            r += k * 1000 + n
    out[i] = r


@case
def captures_of_a_guard_that_fails(x, out):
    i = cp.ABSOLUTE_POS
    n = 0
    while n < 3:
        match (x[i] + n, n):
            case (k, 0 | 1) if k % 2 and x[k % 7] < 3:
                n += k % 4
            case (k, 2):
                n = k + 50
        n += 1
    out[i] = n


# Operands of `and` and `or`


@case
def operands_of_logic(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    a = (v % 3 and v % 2) or 5
    b = v or -4
    c = v and v * 2
    d = (v > 3 and v) + (v > 3 or v)
    e = 0 or v
    f = 1 and v
    out[i] = a + 10 * b + 1000 * c + 7 * d + e + 3 * f


@case
def operands_of_logic_run_only_where_they_decide(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    found = v > 0 and v < 33 and x[v]
    other = ((v < 0 or v >= 33) and 1000) or x[abs(v) % 33] or -7
    out[i] = found + other


@case
def operands_of_logic_as_conditions(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    n = 0
    if v and cp.u64(abs(v)) and not (v % 2 and cp.f32(v)):
        n += 1
    while (v % 5 and n < 40) or n == 1:
        n += 3
    out[i] = n + (10 if v % 3 and cp.u64(abs(v) % 2) else 20)


def half_or(value, other):
    return value / 2 or other


@case
def operands_of_logic_in_helpers(x, out):
    i = cp.ABSOLUTE_POS
    v = cp.f64(x[i])
    out[i] = cp.i32(half_or(v, v - 3) * 2)


@case
def what_is_no_number_in_branches(x, out):
    """Functions, dtypes, ranges and flat views are bound in each arm, and used in it."""
    i = cp.ABSOLUTE_POS
    v = x[i]
    if v > 2:
        by = v * 2
        f, t, r = lambda w: w + by, cp.i8, range(3)
        s = x[2:].flat
        n = t(f(v * 50)) + s[1]
    else:
        by = 3
        f, t, r = lambda w: w - by, cp.i16, cp.unroll((4, 7))
        s = x[1:].flat
        n = t(f(v)) + s[0]
    if v % 2 == 0:
        for k in r if v is None else (1, 2):
            n += k
        same = "scale"
    else:
        same = "scale"
    out[i] = n + by + len(same)


# Parameters of nested functions


@case
def parameters_of_nested_functions(x, out):
    i = cp.ABSOLUTE_POS
    scale = x[i] + 1

    def mix(a, /, b, *rest, k=2, last, **more):
        total = a * k + b + last
        for r in rest:
            total = total * 3 + r
        for name in more:
            total += len(name) * more[name]
        for name, value in more.items():
            total += len(name) - value
        return total

    weigh = lambda *values, by=scale: sum(values) * by
    n = mix(x[i], 2, last=5)
    n += mix(1, b=x[i], last=2, k=7, six=x[i])
    n -= mix(1, 2, 3, x[i], last=4, **{"by": 1})
    out[i] = n + weigh(1, x[i], 3) - weigh(x[i], by=2)


@case
def parameters_that_may_be_none(x, out):
    i = cp.ABSOLUTE_POS

    def scaled(v, by=None):
        if by is None:
            by = v * 2
        if v > 3:
            by += 1
        return v + by

    total = 0
    for k in range(3):
        total += scaled(x[i] + cp.i32(k)) - scaled(x[i], cp.i32(k))
    out[i] = total


# Membership, and comparison of tuples


@case
def membership(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    n = 0
    if v in (2, 3, x[0]):
        n += 1
    if v not in (2, v + 1, 5):
        n += 2
    if v % 4 in range(1, 3) and v in range(-9, 20, 3) and v not in range(7, -20, -7):
        n += 4
    if v in cp.comptime(()):
        n += 8
    if v in {1: "a", 7: "b"}:
        n += 16
    if (v, 1) in ((2, 1), (x[i], 0), (4, v % 3)):
        n += 32
    if v / 2 in range(0, 5):
        n += 64
    out[i] = n


@case
def comparison_of_tuples(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    n = 0
    if x.shape == out.shape and x.shape != (7,) and x.shape != (v, v):
        n += 1
    if (v % 3, v) < (1, 4):
        n += 2
    if (v % 3, v) >= (v % 2, 3, 1):
        n += 4
    if (v % 3, (v % 2, 1)) <= (1, (v % 5, 0)):
        n += 8
    if (v % 2,) > () and (v, 1) == (v, 1):
        n += 16
    if (v % 2, 1) > (v % 3, v % 4):
        n += 32
    out[i] = n


# Assignment in expressions


@case
def walrus(x, out):
    i = cp.ABSOLUTE_POS
    n = 0
    if (v := x[i]) > 3:
        n = v
    n += (w := v * 2) + w
    out[i] = n + v


@case
def walrus_that_may_not_run(x, out):
    i = cp.ABSOLUTE_POS
    n = 0
    last = -1
    if i > 2 and (v := x[i - 3]) > 0 and v % 2 == 0 and x[v % 33] != (last := v):
        n = v
    elif i > 5 or (v := x[i]) < 0:
        n = -2
    n += (a + 1) if (i % 2 == 1 and (a := x[i])) else 7
    out[i] = n * 10 + last


@case
def walrus_in_a_loop(x, out):
    i = cp.ABSOLUTE_POS
    n = x[i]
    steps = 0
    while (rest := n % 5) > 1 and (more := rest * 2) < 9:
        n += more + 1
        steps += 1
        if steps > 20:
            break
    total = 0
    doubled = sum([(total := total + k) for k in (1, 2, v2)]) if (v2 := x[i]) else 5
    out[i] = n * 100 + steps * 10 + rest + total + doubled


@case
def walrus_in_defaults(x, out):
    """They run where the function is made, in the scope around it."""
    i = cp.ABSOLUTE_POS
    v, w = x[i], 1
    total = 0
    for k in range(3):
        total += v * w
        f = lambda q, r=(v := v + 1): q + r + v
        if k != x[i]:

            def g(q, *, r=(w := w * 2)):
                return q + r + w

            total += g(k)
        total += f(k)
    out[i] = total * 10 + v + w


@case
def walrus_in_a_guard(x, out):
    i = cp.ABSOLUTE_POS
    n = 0
    match x[i] % 4:
        case 1 | 2 if (half := x[i] // 2) > 1:
            n = half
        case k:
            n = k - 100
    out[i] = n
