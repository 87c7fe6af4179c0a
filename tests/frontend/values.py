"""Kernels about values: tuples, calls, closures, views, locals; `test_values.py` runs them.

Each is `kernel(x, out)` with one unit for each element of `out`; `x` is a matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cubepy as cp

CASES: list[Any] = []
WEIGHTS = (1, -2, 3)
SHIFT = 5


def case(function: Any) -> Any:
    CASES.append(cp.cube(function))
    return function


@case
def unpacking(x, out):
    i = cp.ABSOLUTE_POS
    a, b = x[0, i], x[1, i]
    a, b = b, a
    (c, d), e = (a + 1, b - 1), 7
    [f, g] = c, d
    h = k = f * 2
    pair = (h, k, e)
    first, second, third = pair
    out[i] = a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + first + second * third


@case
def swaps_in_loops(x, out):
    i = cp.ABSOLUTE_POS
    a, b, c = 0, 1, x[0, i]
    for _ in range(7):
        a, b = b, a + b
        if b % 2 == 0:
            b, c = c, b
    out[i] = a + b * 100 + c


@case
def tuples_that_change(x, out):
    i = cp.ABSOLUTE_POS
    best = (0, -1)
    for k in range(4):
        if x[k, i] > best[0]:
            best = (x[k, i], k)
    pair = best if best[1] > 1 else (7, 8)
    out[i] = best[0] * 10 + best[1] + pair[0] + pair[1]


@case
def augmented_names(x, out):
    i = cp.ABSOLUTE_POS
    v = x[0, i]
    v += 3
    v -= x[1, i]
    v *= 2
    v //= 3
    v %= 17
    v <<= 2
    v >>= 1
    v |= 8
    v &= 127
    v ^= 21
    out[i] = v


@case
def augmented_items(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = x[0, i]
    out[i] += 3
    out[i] *= x[1, i]
    out[i] //= 2
    out[i] %= 100
    out[i] -= out[i] // 7
    out[i] ^= 5


def bump(out, i):
    out[i] = out[i] + 1
    return 10


@case
def order_of_evaluation(x, out):
    """The old value is read before the right-hand side runs; then it is stored."""
    i = cp.ABSOLUTE_POS
    out[i] = x[0, i]
    out[i] += bump(out, i)
    v = out[i] + bump(out, i) * out[i]
    out[i] = v


# Functions


@cp.cube
def weighted(v, weights=WEIGHTS, *, shift=0):
    total = shift
    for w in weights:
        total = total * 2 + w * v
    return total


def many(first, *rest, scale=1, **named):
    total = first
    for r in rest:
        total += r * scale
    return total + named["a"] * 3 + len(rest)


@case
def calls(x, out):
    i = cp.ABSOLUTE_POS
    v = x[0, i]
    pair = (v, 2)
    out[i] = (
        weighted(v)
        + weighted(v, (1, 2), shift=v)
        + weighted(shift=1, v=v)
        + many(v, 1, 2, scale=3, a=v)
        + many(*pair, a=1)
        + many(v, *pair, *WEIGHTS, a=2)
    )


@case
def lambdas(x, out):
    i = cp.ABSOLUTE_POS
    v = x[0, i]
    add, mul = lambda a, b=2: a + b, lambda a, b=3: a * b
    compose = lambda f, g: lambda a: f(g(a))
    both = compose(add, mul)
    out[i] = add(v) + 10 * mul(v) + 100 * both(v) + (lambda: v * 1000)()


def make_adder(n):
    def adder(v):
        return v + n + SHIFT

    return adder


ADDERS = tuple(make_adder(n) for n in (1, 20))


@case
def closures(x, out):
    i = cp.ABSOLUTE_POS
    total = x[0, i]
    factor = x[1, i]

    def scaled(v, by=3):
        return v * factor + by

    for f in ADDERS:
        total = f(total)
    factor = factor + 1
    out[i] = scaled(total) + scaled(total, by=total) + make_adder(7)(total)


@case
def functions_as_values(x, out):
    i = cp.ABSOLUTE_POS
    table = {"double": lambda v: v * 2, "square": lambda v: v * v}
    total = 0
    for name in ("double", "square"):
        total += table[name](x[0, i])
    apply = [lambda v: v + 1, abs, lambda v: -v][1]
    out[i] = total + apply(x[0, i])


def power(v, n):
    """Comptime recursion."""
    if n == 0:
        return 1
    half = power(v, n // 2)
    return half * half * v if n % 2 else half * half


@case
def recursion(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = power(x[0, i], 5) + power(x[0, i] % 3, 9)


@case
def comprehensions(x, out):
    i = cp.ABSOLUTE_POS
    values = [x[k, i] for k in range(4) if k != 2]
    pairs = tuple((a, a + 1) for a in values)
    out[i] = sum(values) + sum(a * b for a, b in pairs) + max(values) + min(v + 1 for v in values)


# Structures


class Point(NamedTuple):
    a: Any
    b: Any


@dataclass(frozen=True)
class Body:
    place: Any
    speed: Any = 2

    def moved(self, steps):
        return Body(self.place + self.speed * steps, self.speed)

    @property
    def double(self):
        return self.place * 2

    @staticmethod
    def unit():
        return 3


@case
def structures(x, out):
    i = cp.ABSOLUTE_POS
    p = Point(x[0, i], b=x[1, i])
    q = Point(*p)
    body = Body(q.a, speed=p.b)
    far = body.moved(3)
    fixed = Body(4).moved(2)
    a, b = p
    out[i] = a + p[1] * 2 + far.place + far.speed + fixed.place + b + body.unit()


@case
def structures_in_loops(x, out):
    i = cp.ABSOLUTE_POS
    body = Body(x[0, i], 1)
    p = Point(0, x[1, i])
    for k in range(5):
        if body.place > 3:
            body = Body(body.place - 5, body.speed + 1)
        else:
            body = body.moved(cp.i32(k))
        p = Point(p.b, p.a + cp.i32(k))
    out[i] = body.place + body.speed * 100 + p.a - p.b


class Span(NamedTuple):
    """A NamedTuple whose members compute with runtime items."""

    first: Any
    last: Any

    @property
    def length(self):
        return self.last * 2 - self.first

    def grown(self, by):
        return Span(self.first - by, self.last + by)


@dataclass(frozen=True)
class Total:
    value: Any

    def __add__(self, other):
        return Total(self.value + (other.value if isinstance(other, Total) else other))

    def __iadd__(self, other):
        return Total(self.value * 3 + other)


@dataclass(frozen=True)
class Weighted(Total):
    weight: Any = 2


@case
def members_of_classes(x, out):
    i = cp.ABSOLUTE_POS
    a, b = x[0, i], x[1, i]
    span = Span(a, b)
    total = Total(a)
    total += b
    items = Total(a) + Weighted(b, 5)
    n = sum((Total(a), items, Total(2)), Total(1)).value
    if isinstance(Weighted(a), Total) and not isinstance(total, Weighted):
        n += 1000
    out[i] = span.length + 10 * span.grown(2).length + 100 * total.value + n


def is_three(numbers):
    return numbers["a"] == 3


@case
def dicts_of_runtime_numbers(x, out):
    i = cp.ABSOLUTE_POS
    numbers = {"a": x[0, i], "b": 2}
    more = numbers | {"c": x[1, i]}
    n = 0
    if is_three(numbers):
        n += 1
    if 3 in more.values() and ("a", 3) in more.items():
        n += 2
    for name, value in more.items():
        n = n * 10 + value * len(name)
    out[i] = n + len(more) + more["c"] + numbers.get("b", 7)


@case
def names_that_change_their_kind(x, out):
    """On a straight path, also in loops and arms."""
    i = cp.ABSOLUTE_POS
    t = (x[0, i], x[1, i])
    t = t[0] - t[1]
    row = x[1]
    row = out[i:]
    row[0] = t
    functions = []
    functions = [*functions, lambda: 3]
    functions = [*functions, lambda: x[2, i]]
    for k in range(3):
        u = Point(x[k, i], 2)
        u = u.a * u.b
        out[i] += u
        v = x[k]
        v = v[i]
        if v > 1:
            w = (v, 1)
            w = (*w, k)
            w = sum(w)
            f = lambda q: q + 1
            f = f(w)
            out[i] += f
    some = ()
    for k in (1, 2, 3):
        some = (*some, x[k, i])
    body = Body(x[0, i])
    body = body.double
    body = "text"
    body = len(body)
    numbers = {"a": 1}
    out[i] += sum(some) + functions[0]() * functions[1]() + body + numbers.get("b", x[3, i])


# Views


@case
def views(x, out):
    i = cp.ABSOLUTE_POS
    row = x[1]
    part = x[1:3, 2:]
    column = x[:, i % x.shape[1]]
    total = row[i] + part[0, 1] + part[1][0] + column[2] + part.shape[0] * 100 + part.shape[1]
    every = x[::2, 1::3]
    total += every[1, 2] + every.shape[0] + every.shape[1] + len(every)
    deep = x[1:][1:][0][3:]
    total += deep[0] + deep.shape[0] + deep.size + x[0:2].size
    out[i] = total + x[...][2, 1]


@case
def views_of_runtime_bounds(x, out):
    i = cp.ABSOLUTE_POS
    part = x[i % 4, i % 3 : 2 + i % 5]
    total = part.size * 1000
    for k in range(part.size):
        total += part[k]
    out[i] = total


@case
def views_that_move(x, out):
    i = cp.ABSOLUTE_POS
    row = x[0]
    for k in range(1, 4):
        if x[k, i] > row[i]:
            row = x[k]
    out[i] = row[i] + row[0]


@case
def views_that_take_their_arrays_name(x, out):
    i = cp.ABSOLUTE_POS
    total = x[0, 8] + i
    x = x[1:, 1:]
    total += x[0, 0] * 3 + x.shape[0]
    x = x[:, ::2]
    row, other = x[0], x[1]
    if total > 4:
        row = row[1:]
    else:
        row = row[::2]
    for k in range(i % 3):
        row, other = other[k:], row
    out[i] = total + row[0] * 5 + other[1] * 7 + row.shape[0] + x[2, 1]


@case
def views_that_helpers_return(x, out):
    i = cp.ABSOLUTE_POS

    def later(part, n):
        part = part[1:]
        if n > 1:
            return part[::2]
        part = part[n:]
        return part

    row = later(x[i % 4], i % 3)
    out[i] = row[1] * 10 + row.shape[0]


@case
def flat_views(x, out):
    i = cp.ABSOLUTE_POS
    total = x.flat[i + 3]
    total += x[1:3].flat[i] + x[:, 2:7].flat[i % 20] + x[::2, ::2].flat[i % 7]
    out[i] = total


@case
def stores_through_views(x, out):
    i = cp.ABSOLUTE_POS
    half = out[i:]
    half[0] = x[0, i]
    half[0:1][0] += x[1, i]


# Locals


@case
def locals_join(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k in range(3):
        total += x[k, i]
    if total > 4:
        flag = True
    else:
        flag = total < -4
    count = 0
    count += flag
    count += x[0, i] > 1
    out[i] = total + count


@case
def constants(x, out):
    i = cp.ABSOLUTE_POS
    n = len(WEIGHTS) + SHIFT
    name = f"{n}-{SHIFT:03d}"
    size = int(math.sqrt(n * 2)) if name == "8-005" else 0
    big = np.int32(3) + WEIGHTS[1]
    text = "a" in "abc" and "z" not in ("x", "y") and WEIGHTS is not None
    out[i] = x[0, i] * size + big + text + (2**10 >> 3) + divmod(17, 5)[1] + round(2.5)


@case
def builtins(x, out):
    i = cp.ABSOLUTE_POS
    a, b = x[0, i], x[1, i]
    q, r = divmod(a, b)
    total = abs(a) + min(a, b, 3) * max(a, b) + q + r + int(a) + bool(b) * 2
    total += any((a > 3, b > 3)) + all([a > 0, b > 0]) * 2 + len((a, b)) + pow(a, 2) + round(a)
    total += isinstance(3, int) + sum((a, b, 1)) + max((a, b))
    out[i] = total


@case
def deletes_nothing(x, out):
    """Docstrings, `pass`, annotations and expressions that stand alone."""
    i = cp.ABSOLUTE_POS
    "a string"
    x[0, i] + 1  # pyright: ignore[reportUnusedExpression]
    v: int
    w: int = x[0, i]
    pass
    ...
    out[i] = w


LETTERS = b"abc"
COUNTS = np.array([3, 1, 2])


@case
def constant_bytes_and_arrays(x, out):
    i = cp.ABSOLUTE_POS
    total = 0
    for k, c in enumerate(LETTERS):
        total += c * (k + 1)
    for c, n in zip(reversed(LETTERS), COUNTS):
        total -= c * n
    total += sum(COUNTS) + max(COUNTS) * min(COUNTS) + tuple(LETTERS)[1] + list(COUNTS)[2]
    total += sum(map(lambda n: n * n, COUNTS)) + any(COUNTS) + all(LETTERS)
    out[i] = x[0, i] + total
