"""Kernels whose loops run over what has its items at run time; `test_iterables.py` runs them.

Each is `kernel(x, m, n, out)`: 33 numbers, 9 rows of 7, an integer, and a unit for each of `x`.
"""

import math
from typing import Any

import cubepy as cp

CASES: list[Any] = []


def case(function: Any) -> Any:
    CASES.append(cp.cube(function))
    return function


WEIGHTS = (3, -1, 4, 1, -5, 9, 2)


@case
def tensors(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for v in x:
        total = total * 3 + v
    for row in m:
        for v in row:
            if v == x[i]:
                continue
            total = total * 5 + v
        if row[0] == n:
            break
    else:
        total += 1
    for v in m.flat:
        total ^= v
    for v in x[i:]:
        total = total * 7 - v
    out[i] = total


@case
def enumerated(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k, v in enumerate(x[: n % 5]):
        total = total * 3 + cp.i32(k) * v
    for k, row in enumerate(m, 2):
        total += cp.i32(k) * row[k % 3]
    for k, j in enumerate(range(n, n + 9, 2), x[i]):
        total = total * 5 + cp.i32(k * j)
    for k, v in enumerate((4, x[i], 6), n):
        total = total * 3 + cp.i32(k) * v
    out[i] = total


@case
def zipped(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for v, w in zip(x, m[i % 9]):
        total = total * 3 + v * w
    for v, w, k in zip(m[2], WEIGHTS, range(n, -100, -2)):
        total = total * 5 + v * w - cp.i32(k)
    for k, (v, w) in enumerate(zip(m[:, 1], m[:, 2])):
        total += (v - w) * cp.i32(k + 1)
    pairs = zip(x[n % 3 :], x)
    for v, w in pairs:
        total = total * 7 + v - w
    out[i] = total


@case
def backwards(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in reversed(range(n)):
        total = (total * 3 + k) % 1009
    for k in reversed(range(n % 4, n + 3, 4)):
        total = (total * 5 + k) % 1009
    for k in reversed(range(x[i], n, -3)):
        total = (total * 7 + k) % 1009
    for v in reversed(m[3]):
        total = (total * 3 + v) % 1009
    for row in reversed(m):
        total = (total * 5 + row[i % 7]) % 1009
    total += len(range(n)) + 10 * len(range(x[i], n, 3)) + 100 * len(range(n, x[i], -2))
    out[i] = cp.i32(total)


@case
def mapped(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for v in map(abs, m[i % 9]):
        total = total * 3 + v
    for v in map(lambda a, b: a * b - n, x, m[1]):
        total = total * 5 + v
    out[i] = total + sum(map(lambda v: v * v, x)) + max(map(abs, m[2]))


@case
def sums(x, m, n, out):
    i = cp.ABSOLUTE_POS
    row = m[i % 9]
    total = sum(row) + 3 * sum(x, 5) + sum(v * w for v, w in zip(row, m[0]))
    total += sum(x[k] for k in range(i, n)) + 7 * sum((v for v in row if v > 0), x[i])
    total += sum(v * w for v in row if v != n for w in m[:, 2] if w > v)
    total += sum(m[a, b] for a in range(3) for b in range(n % 5) if a != b)
    total += sum(x[k] for k in range(33) if x[k] > x[i])
    total += math.prod(v | 1 for v in row) + math.prod(m[:, 3], start=3)
    total += sum(1 for v in x if v > x[i])
    out[i] = total


@case
def extremes(x, m, n, out):
    i = cp.ABSOLUTE_POS
    row = m[i % 9]
    total = max(row) + 3 * min(v * v - n for v in row) + 5 * min(x[i:])
    total += 7 * max((v for v in row if v > x[i]), default=-3)
    total += 11 * min((v for v in row if v > 1000), default=x[i])
    place = max(range(7), key=lambda k: row[k] * row[k])
    least = min(range(i % 9 + 1), key=lambda k: m[k, 0])
    total += 100 * place + 1000 * least + max((x[i], n, 3), key=lambda v: v % 4)
    total += max(max(a, b) for a, b in zip(row, m[0]))
    out[i] = cp.i32(total)


@case
def functions_that_are_chosen(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for f in (min, max, sum, min):
        total = total * 7 + f(v - n for v in m[i % 9])
    for f in (any, all):
        total = total * 2 + (1 if f(v > n for v in m[i % 9]) else 0)
    for f, by in ((max, abs), (min, abs), (max, lambda v: -v)):
        total = total * 7 + f(m[i % 9], key=by) + f((v for v in x if v < n), key=by, default=1)
    out[i] = total


@case
def tests(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = 0
    if any(v == x[i] for v in x[i + 1 :]):
        total += 1
    if all(v > x[i] for v in m[i % 9]):
        total += 2
    if any(v > w for row in m for v, w in zip(row, m[2]) if w != n):
        total += 4
    if not all(m[a, b] != x[i] for a in range(n % 10) for b in range(7) if a < b):
        total += 8
    total += 16 if any(x[i:] for _ in range(0)) else 32
    if any(map(lambda v: v == n, x)):
        total += 64
    if all(x[k] < 1000 for k in range(33)):
        total += 128
    out[i] = total


def first_of(row, wanted):
    for k, v in enumerate(row):
        if v >= wanted:
            return k, v
    return -1, wanted


@case
def helpers(x, m, n, out):
    i = cp.ABSOLUTE_POS
    start = 100

    def inner(row):
        return sum(v * start for v in row) + max(k for k in range(n))

    k, v = first_of(m[i % 9], x[i])
    total = k * 10 + v + inner(m[1])
    found = 0
    for total_row in (sum(w for w in row if w != start) for row in (m[0], m[i % 9])):
        found = found * 3 + total_row
    out[i] = cp.i32(total + found)


@case
def what_changes_while_it_runs(x, m, n, out):
    i = cp.ABSOLUTE_POS
    steps = n
    for k in range(2):
        for v in m[i % 9]:
            steps += v
            if v == x[i]:
                steps *= 2
                break
        for j, v in enumerate(x[:n]):
            if j > k + 2:
                break
            steps -= v
    view = m[0]
    for _ in range(n % 3):
        view = m[1]
    for v in view:
        steps = steps * 3 + v
    out[i] = steps


def summed(items):
    return sum(v for v in items)


@case
def ranges_as_values(x, m, n, out):
    i = cp.ABSOLUTE_POS
    none, some = range(n, n - 3), range(n % 3, n)
    total = 1 if none else 2
    total += 4 if bool(some) and n > 0 else 8
    total += sum(1 for r in (none, None, some) if r) * 16
    total += 32 if any((none, 0)) else 64
    total += max(none, default=5) * 3 + summed(range(n, n + 9)) + max(some, key=abs, default=0)
    total += max((m.shape[0], 3), default=3) + min((v for v in ()), default=n)
    total += max(n, 3, key=lambda v: v % 4) + max((v for v in (n, x[i])), default=1)
    while range(total % 5):
        total += 1
    out[i] = cp.i32(total)


NESTED = ((3, 1, 4), (1, 5, 9))


@case
def known_beside_unknown(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = sum(a * cp.i32(b) for a, b in zip(x, range(1000000)))
    for _ in zip(x, ()):
        total += 100
    total += sum(a * b for a, b in zip(m[i % 9], NESTED[n % 2]))
    for k in reversed(range(70000)):
        if k < 69990:
            break
        total += cp.i32(k)
    for k, j in enumerate(range(n, n + 200000, 2)):
        total += cp.i32(k + j)
        if k > i:
            break
    total += cp.i32(min(range(3000), key=lambda k: x[k % 33] * 100 + k))
    total += sum(map(lambda a, b: a - cp.i32(b), x, range(100000)))
    out[i] = total


@case
def long_ranges(x, m, n, out):
    i = cp.ABSOLUTE_POS
    total = sum(x[k % 33] * k for k in range(500)) + sum(k * k for k in range(100))
    total += sum((k + j) * x[i] for k in range(80) for j in range(3))
    total += sum(WEIGHTS[k % 7] * x[k % 33] for k in range(90))
    total += 1 if any(x[k % 33] == k for k in range(1000)) else 0
    out[i] = cp.i32(total)
