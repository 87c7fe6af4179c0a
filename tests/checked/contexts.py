"""Where a faulty access stands: kernels around an access of `accesses`, and who is at fault.

Only the unit `who` of the launch (or, in `some_units`, every third one) gets the index `bad`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cubepy as cp

GRID = (3, 8)
"""Cubes, and units of each."""


@dataclass(frozen=True)
class Context:
    """Code around an access, and the units of the launch that are at fault."""

    function: Callable[..., Any]
    faulty: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def who(self) -> int:
        """The unit that the kernel gets as its argument."""
        return self.faulty[0]


@cp.cube
def in_branch(f: cp.Comptime, x, bad, who, out):
    if who == cp.ABSOLUTE_POS:
        out[who] = f(x, bad, 1.0)


@cp.cube
def in_else(f: cp.Comptime, x, bad, who, out):
    if who != cp.ABSOLUTE_POS:
        out[cp.ABSOLUTE_POS] = 2.0
    elif bad == 123456789:
        out[who] = 3.0
    else:
        out[who] = f(x, bad, 1.0)


@cp.cube
def in_loop(f: cp.Comptime, x, bad, who, out):
    for k in range(4):
        if who == cp.ABSOLUTE_POS:
            out[who] = f(x, bad if k == 2 else 0, 1.0)


@cp.cube
def in_nested_loops(f: cp.Comptime, x, bad, who, out):
    for j in range(2):
        for k in range(j, 3):
            if who == cp.ABSOLUTE_POS and j + k == 3:
                out[who] = f(x, bad, 1.0)


@cp.cube
def in_while(f: cp.Comptime, x, bad, who, out):
    k = 0
    while k < 5:
        k += 1
        if who != cp.ABSOLUTE_POS:
            continue
        out[who] = f(x, bad if k == 3 else 0, 1.0)


@cp.cube
def in_unrolled_loop(f: cp.Comptime, x, bad, who, out):
    if who == cp.ABSOLUTE_POS:
        for k in cp.unroll(range(3)):
            out[who] = f(x, bad if k == 1 else 0, 1.0)


@cp.cube
def inner(f: cp.Comptime, x, i):
    return f(x, i + 0, 1.0)


@cp.cube
def outer(f: cp.Comptime, x, i):
    return inner(f, x, i) * 2.0


@cp.cube
def in_helpers(f: cp.Comptime, x, bad, who, out):
    if who == cp.ABSOLUTE_POS:
        out[who] = outer(f, x, bad)


@cp.cube
def after_return(f: cp.Comptime, x, bad, who, out):
    if who != cp.ABSOLUTE_POS:
        return
    out[who] = f(x, bad, 1.0)


@cp.cube
def after_barrier(f: cp.Comptime, x, bad, who, out):
    out[cp.ABSOLUTE_POS] = 0.5
    cp.sync_cube()
    if who == cp.ABSOLUTE_POS:
        out[who] = f(x, bad, 1.0)


@cp.cube
def between_barriers(f: cp.Comptime, x, bad, who, out):
    for k in range(3):
        cp.sync_cube()
        if who == cp.ABSOLUTE_POS and k == 1:
            out[who] = f(x, bad, 1.0)
        cp.sync_cube()
    out[cp.ABSOLUTE_POS] = 0.5


@cp.cube
def some_units(f: cp.Comptime, x, bad, who, out):
    if cp.ABSOLUTE_POS % 3 == who:
        out[cp.ABSOLUTE_POS] = f(x, bad, 1.0)


@cp.cube
def guarded_too_late(f: cp.Comptime, x, bad, who, out):
    v = 0.0
    if who == cp.ABSOLUTE_POS:
        v = f(x, bad, 1.0)
    if bad >= 0 and bad < x.size:
        out[cp.ABSOLUTE_POS] = v


ALL = tuple(range(1, GRID[0] * GRID[1], 3))
LATE = (21,)
CONTEXTS = [
    Context(in_branch, (13,)),
    Context(in_branch, LATE),
    Context(in_else, (13,)),
    Context(in_loop, (0,)),
    Context(in_nested_loops, (13,)),
    Context(in_while, LATE),
    Context(in_unrolled_loop, (13,)),
    Context(in_helpers, (13,)),
    Context(after_return, (13,)),
    Context(after_barrier, (13,)),
    Context(between_barriers, LATE),
    Context(some_units, ALL),
    Context(guarded_too_late, (13,)),
]
