"""Removing checks changes nothing: random kernels fault alike with and without `prove`.

A kernel is made from a comptime program of index arithmetic, guards, loops and reads. The
interpreter runs it as it is written; the CPU runs what is left after proofs. The first fault (its
code, line, index and extent) and all sums must be the same.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cp

SIZE = 8
NUMBERS = [-1, 0, 1, 2, 3, 4, 7, 8, 9]
HUGE = [2**62, 2**63 - 1, -(2**62), 2**47]
GIVEN = [(-3, 5), (0, 8), (1, 7), (8, 9), (3, -2), (2**62, 3), (-(2**63), 2**63 - 1), (12, 4)]


def value(e: Any, env: Any) -> Any:
    """The index that an expression is."""
    if e[0] == "var":
        return env[e[1] % len(env)]
    if e[0] == "number":
        return env[3] * 0 + e[1]  # comptime indices are tested when a kernel is compiled
    a, b = value(e[1], env), value(e[2], env)
    if e[0] == "add":
        return a + b
    if e[0] == "sub":
        return a - b
    if e[0] == "mul":
        return a * b
    if e[0] == "min":
        return min(a, b)
    if e[0] == "max":
        return max(a, b)
    if e[0] == "floordiv":
        return a // b
    if e[0] == "mod":
        return a % b
    if e[0] == "left":
        return a << b
    if e[0] == "right":
        return a >> b
    if e[0] == "whole":
        return a + max(0, (b - a) // 4) * 4
    return a if a < b else b + 1


def holds(e: Any, env: Any) -> Any:
    """A condition."""
    if e[0] == "and":
        return holds(e[1], env) and holds(e[2], env)
    if e[0] == "or":
        return holds(e[1], env) or holds(e[2], env)
    if e[0] == "not":
        return not holds(e[1], env)
    a, b = value(e[1], env), value(e[2], env)
    if e[0] == "lt":
        return a < b
    if e[0] == "le":
        return a <= b
    if e[0] == "gt":
        return a > b
    if e[0] == "ge":
        return a >= b
    return a == b if e[0] == "eq" else a != b


def run(body: Any, env: Any, x: Any, out: Any) -> None:
    """The statements of a body."""
    for s in body:
        if s[0] == "read":
            out[0] += x[value(s[1], env)]
        elif s[0] == "line":
            out[0] += cp.load(x, value(s[1], env), line=4, fill=None).sum()
        elif s[0] == "let":
            run(s[2], (*env, value(s[1], env)), x, out)
        elif s[0] == "if":
            if holds(s[1], env):
                run(s[2], env, x, out)
            else:
                run(s[3], env, x, out)
        elif s[0] == "for":
            for k in range(max(value(s[1], env), -9), min(value(s[2], env), 14), s[3]):
                run(s[4], (*env, k), x, out)
        else:
            for k in range(min(value(s[1], env), 14), max(value(s[2], env), -9), -s[3]):
                if holds(s[5], (*env, k)):
                    continue
                run(s[4], (*env, k), x, out)


@cp.cube
def program(body: cp.Comptime, x, a: cp.i64, b: cp.i64, out):
    start = (cp.UNIT_POS + a, cp.UNIT_POS + b, x.size, cp.UNIT_POS)
    run(body, start, x, out)


class Maker:
    """Programs of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def expression(self, depth: int = 2) -> Any:
        r = self._random
        if depth == 0 or r.random() < 0.3:
            if r.random() < 0.7:
                return "var", r.randrange(8)
            return "number", r.choice(HUGE if r.random() < 0.05 else NUMBERS)
        kinds = ("add", "sub", "mul", "min", "max", "floordiv", "mod", "whole", "choice", "add")
        kinds += ("left", "right") if r.random() < 0.3 else ()
        return r.choice(kinds), self.expression(depth - 1), self.expression(depth - 1)

    def condition(self, depth: int = 2) -> Any:
        r = self._random
        if depth and r.random() < 0.35:
            kind = r.choice(("and", "or", "not", "and"))
            return kind, self.condition(depth - 1), self.condition(depth - 1)
        kind = r.choice(("lt", "le", "gt", "ge", "eq", "ne", "lt", "ge"))
        return kind, self.expression(1), self.expression(1)

    def body(self, depth: int = 3) -> Any:
        return tuple(self.statement(depth) for _ in range(self._random.randint(1, 3)))

    def statement(self, depth: int) -> Any:
        r = self._random
        kind = r.choice(("read", "line", "let", "if", "if", "for", "down")) if depth else "read"
        if kind in ("read", "line"):
            return kind, self.expression()
        if kind == "let":
            return kind, self.expression(), self.body(depth - 1)
        if kind == "if":
            return kind, self.condition(), self.body(depth - 1), self.body(depth - 1)
        first, last = self.expression(1), self.expression(1)
        step = r.choice((1, 1, 2, 4))
        return kind, first, last, step, self.body(depth - 1), self.condition(1)


def outcome(device: str, body: Any, a: int, b: int) -> Any:
    """The sum, or what the first fault reports."""
    x, out = np.arange(1, SIZE + 1, dtype=np.float32), np.zeros(1, np.float32)
    try:
        program.configure(device=device, checked=True, line_size=1)[1, 1](body, x, a, b, out)
    except (cp.OutOfBoundsError, cp.CheckError) as error:
        return str(error)
    return float(out[0])


@pytest.mark.parametrize("seed", range(5))
def test_faults_stay(seed: int):
    body = Maker(seed).body()
    for a, b in GIVEN:
        assert outcome("cpu", body, a, b) == outcome("interpreter", body, a, b), (body, a, b)


def test_both_outcomes_are_common():
    found = [
        outcome("interpreter", Maker(seed).body(), a, b) for seed in range(8) for a, b in GIVEN
    ]
    faults = [f for f in found if isinstance(f, str)]
    assert len(faults) > len(found) / 8 and len(found) - len(faults) > len(found) / 8
    assert {f[:4] for f in faults} >= {"E701", "E702", "E704"}
