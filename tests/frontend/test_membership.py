"""`x in range(...)` against Python, for numbers of all types near the ends of the range."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import cubepy as cp

RANGES = (
    range(-100, 127, 3),
    range(120, -110, -7),
    range(0, 400, 4),
    range(-1, 300, 50),
    range(-2_000_000_000, 2_000_000_000, 7),
    range(0, 2**40, 12345),
    range(-(2**63), 2**63 - 1, 2**61),
    range(5),
    range(3, 3),
    range(0, 256, 200),
    range(1, 9000, 2049),
    range(0, 9000, 2049),
    range(1, 2**26, 16777217),
    range(16777217, 16777220),
    range(16777217, 2**40, 3),
)
TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")


def numbers(t: str, of: range) -> np.ndarray:
    """Some of a type that are in a range, beside it, and anywhere."""
    if t[0] == "f":
        near = [n + d for n in of[:9] for d in (0, 0.5, 1, -1)]
        with np.errstate(over="ignore"):
            return np.array([*near, -0.0, 2.0**24, 1e10, 1e19, np.nan, np.inf, -np.inf], t)
    info = np.iinfo(t)
    near = [random.choice(of) + d for d in (0, 0, 0, 1) for _ in range(8)] if of else []
    every = [*near, *range(-3, 9), int(info.min), int(info.max)]
    return np.array([n for n in every if info.min <= n <= info.max], t)


def is_in(v: float, of: range) -> bool:
    """As Python says it, which would compare a float with one item after the other."""
    return math.isfinite(v) and int(v) == v and int(v) in of


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("of", RANGES, ids=str)
def test_membership(of: range, t: str):
    x = numbers(t, of)
    out = np.full(len(x), 7, np.int32)
    expected = [int(is_in(v, of)) for v in x.tolist()]

    @cp.cube
    def known(x: Any, out: Any):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = 1 if x[i] in of else 0

    @cp.cube
    def given(x: Any, start: int, stop: int, out: Any):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = 1 if x[i] in range(start, stop, of.step) else 0

    if t == "u8" and (of.start < 0 or of.stop < 0):
        with pytest.raises(cp.CompileError, match="E202: u64 and index have no common type"):
            known.over(out)(x, out)
        return
    known.over(out)(x, out)
    assert out.tolist() == expected
    if t != "u8":
        out[:] = 7
        given.over(out)(x, of.start, of.stop, out)
        assert out.tolist() == expected
