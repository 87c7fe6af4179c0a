"""Kernels that the tests of the command line load from this file."""

from __future__ import annotations

from enum import Enum

import cubepy as cp

if __name__ == "__main__":
    raise SystemExit("the command line imports this file; it does not run it")


@cp.cube
def double(v: cp.f32) -> cp.f32:
    return v + v


@cp.cube
def double_all(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = double(x.flat[i])


@cp.cube
def add_times(x, out, a: cp.f32, n: cp.Comptime[int], f: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        value = x.flat[i] * a
        for _ in cp.unroll(range(n)):
            value = f(value)
        out.flat[i] = value


@cp.cube
def broken(x, out):
    out.flat[cp.ABSOLUTE_POS] = undefined_name  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


class Step(Enum):
    ONE = 1
    TEN = 10


@cp.cube
def step(x, by: cp.Comptime[Step]):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        x.flat[i] += 10 if by is Step.TEN else 1


not_a_kernel = 3
