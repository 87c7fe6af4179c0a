"""Kernels about what classes of the user define; `test_values.py` runs them.

Each is `kernel(x, out)` with one unit for each element of `out`; `x` is a matrix.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import cubepy as cp

CASES: list[Any] = []


def case(function: Any) -> Any:
    CASES.append(cp.cube(function))
    return function


class Pair(NamedTuple):
    a: Any
    b: Any = 3


@dataclass(frozen=True, order=True)
class Bits:
    x: Any
    y: Any = 5

    @cached_property
    def norm(self):
        return self.x * self.x + self.y

    @property
    def sum(self):
        return self.x + self.y

    def __call__(self, k, *, m=1):
        return self.x * k + m

    def __len__(self):
        return 4

    def __getitem__(self, k):
        return self.x if k == 0 else self.y

    def __contains__(self, v):
        return v == self.x

    def __and__(self, v):
        return Bits(self.x & v, self.y)

    def __ror__(self, v):
        return Bits(self.x | v, self.y)

    def __xor__(self, v):
        return Bits(self.x ^ v, self.y)

    def __lshift__(self, v):
        return Bits(self.x << v, self.y)

    def __rshift__(self, v):
        return Bits(self.x >> v, self.y)

    def __ior__(self, v):
        return Bits(self.x | v, self.y + 1)

    def __pos__(self):
        return Bits(self.x + 1, self.y)

    def __invert__(self):
        return Bits(~self.x, self.y)

    def __abs__(self):
        return abs(self.x) + 100


@dataclass(frozen=True)
class Above:
    x: Any

    def __bool__(self):
        return bool(self.x > 3)

    def __eq__(self, other):
        return self.x == other.x if isinstance(other, Above) else NotImplemented

    def __add__(self, other):
        return Above(self.x + other.x) if isinstance(other, Above) else NotImplemented


@dataclass(frozen=True)
class Below(Above):
    def __radd__(self, other):
        return Below(other.x - self.x)


@functools.total_ordering
@dataclass(frozen=True)
class Ordered:
    x: Any

    def __lt__(self, other):
        return self.x < other.x if isinstance(other, Ordered) else NotImplemented


@dataclass(frozen=True)
class Window:
    """A tensor from a place on."""

    tensor: Any
    start: Any

    def __getitem__(self, k):
        return self.tensor[self.start + k]

    def __setitem__(self, k, v):
        self.tensor[self.start + k] = v


@case
def changed_copies(x, out):
    i = cp.ABSOLUTE_POS
    p = Pair(x[0, i])._replace(b=x[1, i])
    q = Pair._make((x[2, i], 4))
    v = dataclasses.replace(Bits(x[0, i]), y=x[1, i])
    w = dataclasses.replace(v)
    out[i] = p.a + p.b * 10 + q.b * 100 + p._asdict()["b"] * 1000 + v.norm + v.sum + w.y


@case
def operators_of_classes(x, out):
    i = cp.ABSOLUTE_POS
    v = +(~((7 | (Bits(x[0, i]) >> 1)) & 5)) << 2
    v ^= 3
    v |= 4
    out[i] = v.x * 10 + v.y + abs(v) + 1000 * (x[0, i] in Bits(x[1, i]))
    a, b = Above(x[0, i]), Below(x[1, i])
    out[i] += (a + b).x * 7 + (a + a).x * 3 + (b + b).x


@case
def calls_lengths_and_items_of_objects(x, out):
    i = cp.ABSOLUTE_POS
    v, constant = Bits(x[0, i], x[1, i]), Bits(3, 4)
    n = v(2) + v(x[1, i], m=3) + len(v) * 100 + v[0] + v[1]
    out[i] = n + constant(x[0, i]) + constant[0] + constant[x[2, i]]


@case
def truth_of_objects(x, out):
    i = cp.ABSOLUTE_POS
    a, b = Above(x[0, i]), Above(x[1, i])
    n = 0
    if a:
        n = 5
    elif not b:
        n = 6
    while Above(n):
        n -= 1
    n += 10 * (a and b).x + 100 * (a or b).x
    n += 1000 if any((a, b)) else 0
    n += 2000 if all((a, b)) else 0
    n += 7 if bool(a) else 0
    for e in [e for e in (Bits(1), Above(1), Above(5)) if e]:
        n += e.x
    if (x[0, i],) and Bits(x[0, i]) and (lambda: n):
        n += 3
    f = None or (lambda: x[1, i])
    out[i] = n + f()


@case
def comparisons_of_classes(x, out):
    i = cp.ABSOLUTE_POS
    a, b = x[0, i], x[1, i]
    n = (Bits(a, 1) < Bits(b, 2)) + 2 * (Bits(a, b) >= Bits(b, a))
    n += 4 * (Above(a) == Above(b)) + 8 * (Above(a) != Above(b))
    s, t = Ordered(a), Ordered(b)
    n += 16 * (s < t) + 32 * (s <= t) + 64 * (s > t) + 128 * (s >= t)
    out[i] = n + 256 * (type(s) is Ordered) + 512 * (type(s) is not Bits)


@case
def items_that_classes_set(x, out):
    i = cp.ABSOLUTE_POS
    w = Window(out, i)
    w[0] = x[0, i]
    w[0] += w[0] * 10
    w[0] -= Window(x[1], i)[0]


@case
def starred_targets(x, out):
    i = cp.ABSOLUTE_POS
    a, *b = x[0, i], x[1, i], 3
    *c, (d, *e), f = (1, x[2, i], (x[3, i], 5, 6), 7)
    g, *h = range(4)
    [p, *q] = "a", 2
    (*r,) = x[0, i], x[1, i]
    n = 0
    for u, *v in ((1, 2, 3), (x[1, i], 5), (4,)):
        n = n * 10 + u + sum(v) + len(v)
    n += sum([s * sum(t) for s, *t in ((1, 2, 3), (4, x[2, i]))])
    for k in range(3):
        y, *w = x[k, i], x[k + 1, i], 2
        n += w[0] * y
    (y, *w), z = ("u", n, *r), len(p)
    out[i] = a + sum(b) * 10 + sum(c) + d * 3 + sum(e) + f + g + sum(h) + q[0] + n + r[1] + w[0] + z
