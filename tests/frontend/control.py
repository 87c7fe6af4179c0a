"""Kernels of control flow: loops, branches, jumps and returns; `test_control.py` runs them.

Each is `kernel(x, out)` with one unit for each element of `x`.
"""

from typing import Any

import cubepy as cp

CASES: list[Any] = []


def case(function: Any) -> Any:
    CASES.append(cp.cube(function))
    return function


@case
def if_elif_else(x, out):
    i = cp.ABSOLUTE_POS
    if x[i] < -3:
        out[i] = 1
    elif x[i] < 0:
        out[i] = 2
    elif x[i] == 0:
        pass
    else:
        if x[i] > 10:
            out[i] = 3
        else:
            out[i] = 4


@case
def comptime_branches(x, out):
    i = cp.ABSOLUTE_POS
    n = 3
    if n > 2:
        out[i] = x[i]
    else:
        out[i] = undefined_name(x)  # noqa: F821 - never looked at  # pyright: ignore[reportUndefinedVariable]
    if cp.PLANE_DIM == 0:
        out.nothing()


@case
def assigned_in_all_arms(x, out):
    i = cp.ABSOLUTE_POS
    if x[i] < 0:
        y = -1
    elif x[i] == 0:
        y = 0
    else:
        y = x[i] * 2
    out[i] = y


@case
def for_range(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in range(x[i]):
        total += k * k
    for k in range(2, x[i], 3):
        total += k
    for k in range(x[i], -5, -2):
        total -= k
    for _ in range(5):
        total += 1
    out[i] = total


@case
def loop_variable_assigned(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in range(4):
        k = k * 2
        total += k
    for k in range(3):
        total += k
    out[i] = total + x[i]


@case
def runtime_steps(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    if x[i] != 0:
        for k in range(10, -10, x[i]):
            total = total * 2 + k
        for k in range(-10, 10, x[i]):
            total = total + k * k
    out[i] = total


@case
def while_loops(x, out):
    i = cp.ABSOLUTE_POS
    n = x[i]
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    while False:
        steps = 99
    out[i] = steps


@case
def while_true(x, out):
    i = cp.ABSOLUTE_POS
    n = x[i]
    while True:
        n += 7
        if n > 20:
            break
    out[i] = n


@case
def while_with_and(x, out):
    i = cp.ABSOLUTE_POS
    k = i
    while k < x.size and x[k] < 5:
        k += 1
    out[i] = k


@case
def break_and_continue(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in range(20):
        if k == x[i]:
            continue
        if k > x[i] + 3:
            break
        total += k
        if k % 3 == 0:
            continue
        total += 100
    out[i] = total


@case
def nested_loops(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for a in range(6):
        if a == x[i]:
            continue
        b = 0
        while b < 6:
            b += 1
            if b == a:
                continue
            if a * b > x[i]:
                break
            for c in range(b):
                if c == 2:
                    break
                total += c + b
        else:
            total += 1000
    out[i] = total


@case
def else_of_loops(x, out):
    i = cp.ABSOLUTE_POS
    found = -1
    for k in range(8):
        if k * k == x[i]:
            found = k
            break
    else:
        found = 100
    n = 0
    while n < 5:
        n += 1
        if n == x[i]:
            break
    else:
        found += 1000
    for k in range(0):
        found = 7
    else:
        found += 10000
    out[i] = found


@case
def else_with_continue(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for a in range(5):
        for b in range(a):
            if b == x[i]:
                break
        else:
            total += 1
            continue
        total += 10
    out[i] = total


@case
def break_in_else(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    while total < 50:
        for b in range(4):
            if b == x[i]:
                break
        else:
            break
        total += 7
    out[i] = total


@case
def returns_from_kernels(x, out):
    i = cp.ABSOLUTE_POS
    if x[i] < -5:
        return
    out[i] = 1
    for k in range(10):
        if k == x[i]:
            return
        out[i] = k + 2
        while k > 7:
            if x[i] == 15:
                return
            k -= 1
    if x[i] > 10:
        out[i] = 77
        return
    out[i] = 88


@case
def return_from_endless_loop(x, out):
    i = cp.ABSOLUTE_POS
    k = 0
    while True:
        out[i] = k
        if k >= x[i]:
            return
        k += 1


# Helpers


@cp.cube
def sign(v):
    if v < 0:
        return -1
    if v == 0:
        return 0
    return 1


def first_divisor(n):
    """A plain function, with returns inside of two loops."""
    if n < 2:
        return n
    for k in range(2, 40):
        while n % k == 0:
            if k > 2:
                return k
            return 2
    return -1


def search(x, wanted):
    for a in range(4):
        for b in range(4):
            for c in (1, 2):
                if a * b * c == wanted:
                    return a, b * 10 + c
            if a + b == wanted:
                return b, a
    return -1, -1


def from_while(n):
    while True:
        if n > 20:
            return n
        n = n + 6


def nothing_returned(out, i, v):
    if v > 3:
        out[i] = v
        return
    for k in range(3):
        if v == k:
            return
    out[i] = -7


def all_paths(v):
    if v > 4:
        return v * 2
    else:
        for k in range(3):
            if k == v:
                return k + 100
        else:
            return -v


def comptime_return(v, flag):
    if flag:
        return v + 1
    return v - 1


@case
def helpers(x, out):
    i = cp.ABSOLUTE_POS
    a, b = search(x, x[i])
    out[i] = sign(x[i]) + 10 * first_divisor(x[i]) + 100 * a + 1000 * b


@case
def more_helpers(x, out):
    i = cp.ABSOLUTE_POS
    nothing_returned(out, i, x[i])
    v = all_paths(x[i])
    if x[i] % 2 == 0:
        out[i] = from_while(x[i]) + v
    elif x[i] > 0:
        out[i] = comptime_return(x[i], True) * comptime_return(x[i], False)


@case
def helper_in_loops(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in range(5):
        v = all_paths(x[i] + k)
        if sign(v) < 0:
            continue
        total += first_divisor(k + x[i])
        if from_while(total) > 60:
            break
    out[i] = total


def outer(v):
    def inner(w):
        if w > 5:
            return w
        return inner_most(w) + v

    def inner_most(w):
        while w < v:
            w += 3
            if w == 4:
                return 44
        return w

    for k in range(3):
        if inner(v + k) % 2 == 0:
            return inner(k)
    return inner(v)


@case
def nested_functions(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = outer(x[i])


# Loops over comptime sequences that are left under runtime control


@case
def targets_behind_unrolled_loops(x, out):
    """A target keeps the item at which the loop was left."""
    i = cp.ABSOLUTE_POS
    n = 0
    for k in (1, 5, 9):
        if x[i] == k:
            break
        n += k
    for a, (b, c) in enumerate(((1, x[i]), (3, x[i] + 1), (5, 2))):
        if x[i] > a + 4:
            continue
        if b > x[i]:
            break
        n += b
    else:
        n += a
    m = 7
    for m in cp.unroll(range(4)):
        if m * 3 == x[i]:
            break
        n = n + m
    out[i] = n + k * 10 + a * 100 + b * 1000 + c * 10000 + m * 7


@case
def targets_of_nested_unrolled_loops(x, out):
    i = cp.ABSOLUTE_POS
    n = 0
    for q in (x[i], 2):
        for r in (3, 4):
            if r > q:
                break
        if r == 4:
            continue
        n += r * q
    for s in (r for r in (7, 3, 5) if r != 3):
        if x[i] == s:
            break
    out[i] = n * 10 + q + s


def marked(out, i, v):
    out[i] += 1
    return v


@case
def generators_run_with_the_loop(x, out):
    """Each item is computed where its iteration begins, and functions see the names of the time."""
    i = cp.ABSOLUTE_POS
    n = 0
    for f in (lambda: w for w in (1, 2, 3)):
        n = n * 3 + f()
    for g in (lambda v=w: w * 7 + v for w in (1, 2, 3)):
        n = n * 2 + g()
        if n > x[i] * 10:
            break
    out[i] = n
    for v in (out[i] + w for w in range(3)):
        out[i] = v
    for v in (marked(out, i, w) for w in (5, 1, 8)):
        if v == x[i]:
            break
        out[i] += v
    else:
        out[i] += 100


@case
def any_and_all_go_no_further(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = 0
    a, b = x[i], x[(i + 1) % 3]
    n = 100 * any(marked(out, i, v) > 4 for v in (1, a, b))
    n += 1000 * all(marked(out, i, v) > 2 for v in (a, b, 9))
    n += 10000 * any(marked(out, i, v) > 4 for v in (1, 7, a))
    if any((hit := v) > 3 for v in (a, b)):
        n += hit
    n += 7 * all(v for v in ()) + 3 * any(v for v in (0, False))
    n += 1 << 20 if any(marked(out, i, v * w) > 4 for v in (a, 1) for w in (b, v)) else 0
    n += 1 << 21 if all(marked(out, i, v) > w for v in (a, b) if a for w in (v - 1, 0)) else 0
    n += 5 * any(v > w for v in (a, b) if v > 2 for w in (1, b) if w != 3 and v)
    n += 1 << 22 if any(v for k in range(3) for v in range(k) if v > 5) else 0
    out[i] += n
