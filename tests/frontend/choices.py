"""Kernels that choose: unrolled loops, ternaries, logic and `match`; `test_control.py` runs them.

Each is `kernel(x, out)` with one unit for each element of `x`.
"""

from typing import Any

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
