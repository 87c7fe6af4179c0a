"""Dataclasses and tuples in kernels: rebinding under runtime control, methods and operators."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp


@dataclass(frozen=True)
class Vec:
    x: Any
    y: Any

    def __add__(self, other):
        return Vec(self.x + other.x, self.y + other.y)

    def __mul__(self, factor):
        return Vec(self.x * factor, self.y * factor)

    def __rmul__(self, factor):
        return self * factor

    def __neg__(self):
        return Vec(-self.x, -self.y)

    def plus(self, other):
        return self + other


class Pair(NamedTuple):
    a: Any
    b: Any

    def swapped(self):
        return Pair(self.b, self.a)


def run(kernel, *args):
    out = np.full(2, np.nan, np.float32)
    kernel[1, 1](*args, out)
    return out.tolist()


def test_a_record_that_begins_as_a_constant_changes_in_a_loop():
    @cp.cube
    def kernel(n: int, out):
        p = Vec(1.0, 1.0)
        for i in range(n):
            p = Vec(2.0, 3.0)
        out[0], out[1] = p.x, p.y

    assert run(kernel, 3) == [2, 3]
    assert run(kernel, 0) == [1, 1]


def test_a_record_is_accumulated_in_a_loop():
    @cp.cube
    def kernel(a, out):
        p = Vec(0.0, 0.0)
        for i in range(4):
            p = p.plus(Vec(a, 1.0))
        out[0], out[1] = p.x, p.y

    assert run(kernel, 2.5) == [10, 4]


@pytest.mark.parametrize("a", [2.0, -2.0])
def test_records_and_tuples_are_assigned_in_branches(a):
    @cp.cube
    def record(a, out):
        p = Vec(a, a * 2)
        if a > 0:
            p = p + p
        out[0], out[1] = p.x, p.y

    @cp.cube
    def plain(a, out):
        p = (a, 0.0)
        if a > 0:
            p = (p[1], p[0])
        out[0], out[1] = p

    @cp.cube
    def both_arms(a, out):
        p = Vec(0.0, 0.0)
        if a > 0:
            p = Vec(a, 1.0)
        else:
            p += Vec(1.0, a)
        out[0], out[1] = p.x, p.y

    assert run(record, a) == ([4, 8] if a > 0 else [-2, -4])
    assert run(plain, a) == ([0, 2] if a > 0 else [-2, 0])
    assert run(both_arms, a) == ([2, 1] if a > 0 else [1, -2])


@pytest.mark.parametrize("a", [2.0, -2.0])
def test_views_are_rebound_in_branches(a):
    @cp.cube
    def kernel(x, a, out):
        row = x[0]
        if a > 0:
            row = x[1]
        out[0], out[1] = row[0], row[1]

    x = np.array([[1, 2], [3, 4]], np.float32)
    assert run(kernel, x, a) == ([3, 4] if a > 0 else [1, 2])


def test_operators_and_methods_of_constants_take_runtime_values():
    @cp.cube
    def kernel(a, out):
        unit = Vec(1.0, 2.0)
        p = 3 * -(unit * a) + unit
        p *= 2.0
        q = Pair(p.x, p.y).swapped()
        out[0], out[1] = q

    assert run(kernel, 1.0) == [-8, -4]


def test_a_record_does_not_become_another_class():
    @dataclass(frozen=True)
    class Other:
        x: Any
        y: Any

    @cp.cube
    def kernel(a, out):
        p = Vec(a, a)
        if a > 0:
            p = Other(a, a)
        out[0] = p.x

    with pytest.raises(cp.CompileError, match="E206"):
        run(kernel, 1.0)


def test_comparisons_that_a_class_defines():
    @dataclass(frozen=True)
    class Length:
        metres: Any

        def __lt__(self, other):
            return self.metres < other.metres

        def __eq__(self, other):
            return self.metres == other.metres

    @cp.cube
    def kernel(a, out):
        x, y = Length(a), Length(2.0)
        out[0] = 10 * (x < y) + (x == y)
        out[1] = 10 * (x > y)

    @cp.cube
    def generated(a, out):
        out[0] = Vec(a, a) == Vec(1.0, 1.0)

    assert run(kernel, 1.0) == [10, 0]
    assert run(kernel, 2.0) == [1, 0]
    assert run(kernel, 3.0) == [0, 10]
    with pytest.raises(cp.CompileError, match="E201: `==` does not take a `Vec`"):
        run(generated, 1.0)
