"""What every program may use: classes with members of all kinds, and a log of side effects."""

from __future__ import annotations

HEAD = """from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod
from operator import add, mul, sub
from typing import Any, NamedTuple


class Pair(NamedTuple):
    a: Any
    b: Any

    @property
    def less(self):
        return self.a - self.b

    def more(self, v):
        return Pair(self.a + v, self.less)


@dataclass(frozen=True)
class Duo:
    a: Any
    b: Any

    def swapped(self):
        return Duo(self.b, self.a)

    def step(self, v):
        for k in range(3):
            if self.a > v:
                return Duo(self.a - v, self.b)
            if k == 1 and self.b > v:
                return self.swapped()
            v = v + self.b
        return Duo(self.b, v)

    def __add__(self, v):
        if isinstance(v, Duo):
            return Duo(self.a - v.b, self.b + v.a)
        return Duo(self.a + v, self.b)

    def __iadd__(self, v):
        return Twin(self.b, self.a - v).swapped()

    def __lt__(self, other):
        return self.a < other.b

    def __and__(self, v):
        return Duo(self.a, v) if not isinstance(v, Duo) else NotImplemented

    def __rand__(self, v):
        return Duo(v - self.a, self.b)

    def __call__(self, v, k=1):
        return self.a * k - v

    def __getitem__(self, k):
        return self.a if k % 2 == 0 else self.b

    def __setitem__(self, k, v):
        self.b[k] = v

    def __bool__(self):
        return bool(self.a > self.b)

    def __contains__(self, v):
        return self.a == v or self.b == v

    @cached_property
    def gap(self):
        return self.a - self.b if self else self.b


@dataclass(frozen=True)
class Twin(Duo):
    def swapped(self):
        return Duo(self.a, self.b)


def held(numbers, name):
    return numbers[name] > numbers["first"]


def note(log, v):
    log[0] = (log[0] + 1) % 12
    log[log[0] + 1] += cp.i32(v)
    return v


def digest(log):
    total = cp.i32(0)
    for k in range(13):
        total = total * 31 + log[k]
    return total


"""
