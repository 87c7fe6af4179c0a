"""The model of types and numbers: right by NumPy, and able to find what is wrong.

The tests compare some programs on the interpreter and the CPU with it;
`python -m tests.fuzz --family typed` as many as asked for.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from tests.fuzz.finds import TYPED_FINDS
from tests.fuzz.typed import numbers, oracle, rules
from tests.fuzz.typed.rules import FLOATS, INTEGERS, Weak
from tests.optional import require_package

PROGRAMS = 40
NUMPY_NAMES = {**{t: oracle.NUMPY[t] for t in INTEGERS}, "f16": "float16", "f32": "float32"}


def floats(count: int) -> list[float]:
    """Numbers of many sizes, and some between two neighbours of narrower types."""
    rng = random.Random(7)
    plain = [rng.uniform(-2, 2) * 2.0 ** rng.randint(-160, 130) for _ in range(count)]
    halves = [(1 + rng.randrange(4096) / 4096) * 2.0 ** rng.randint(-30, 17) for _ in range(count)]
    return [0.0, -0.0, math.inf, -math.inf, math.nan, *plain, *halves]


@pytest.mark.parametrize("t", ["f16", "f32"])
def test_rounding_is_that_of_numpy(t: str) -> None:
    with np.errstate(over="ignore"):
        for x in floats(2000):
            assert oracle.same(numbers.rounded(x, t), float(np.dtype(NUMPY_NAMES[t]).type(x)), t), x


@pytest.mark.optional("ml_dtypes")
@pytest.mark.parametrize("t", ["bf16", "f8e4m3", "f8e5m2"])
def test_rounding_of_narrow_floats_is_that_of_ml_dtypes(t: str) -> None:
    types = require_package("ml_dtypes")
    name = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}[t]
    for x in floats(2000):
        narrow = float(np.float32(x)) if math.isfinite(x) and abs(x) < 1e38 else 1.0
        assert oracle.same(numbers.rounded(narrow, t), float(getattr(types, name)(narrow)), "f32")


@pytest.mark.parametrize("t", ["i8", "u8", "i16", "u16"])
def test_integers_are_those_of_numpy(t: str) -> None:
    rng = random.Random(3)
    low, high = rules.limits(t)
    dtype: Any = np.dtype(NUMPY_NAMES[t]).type
    same = {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod}
    same |= {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}
    with np.errstate(over="ignore", divide="ignore"):
        for a, b in ((rng.randint(low, high), rng.randint(low, high)) for _ in range(3000)):
            for symbol, function in same.items():
                expected = int(function(dtype(a), dtype(b)))
                assert numbers.WHOLE[symbol](a, b, t) == expected, (symbol, a, b)


def test_common_types_are_symmetric_and_hold_both() -> None:
    for a, b in itertools.product((*INTEGERS, *FLOATS), repeat=2):
        t = rules.common(a, b)
        assert t == rules.common(b, a)
        assert t is None or isinstance(t, str)
        if t in INTEGERS:
            assert all(
                rules.limits(t)[k] * s >= rules.limits(a)[k] * s for k, s in ((0, -1), (1, 1))
            )
    assert rules.common("u64", "i8") is None
    assert rules.common(Weak((0.1,)), "f16") == "f16"
    assert rules.common(Weak((300,)), "u8") is None
    assert rules.common(Weak((2**63,)), Weak((-2,))) is None
    number = rules.common(Weak((0,)), Weak((0.0,)))
    assert isinstance(number, Weak) and number.is_float
    assert rules.joined(Weak((0,)), "u8") == "i32"
    assert rules.joined(Weak((0.0,)), "f16") == "f32"


def test_the_comparison_can_fail() -> None:
    """A result that is off by one, or by the sign of a zero, is found."""
    batch = oracle.make(range(8))
    found = {
        name: np.array([v for _, _, values in held for v in values], object)
        for name, held in batch.expected.items()
    }
    oracle.compare(batch, found, "the model itself")
    for name, held in batch.expected.items():
        place = next((k for k, v in enumerate(held[0][2]) if v is not None and v == v), None)
        if place is not None:
            wrong = {**found, name: found[name].copy()}
            wrong[name][place] = -1.0 if wrong[name][place] == 1 else 1
            with pytest.raises(oracle.Wrong):
                oracle.compare(batch, wrong, "a wrong device")
    assert not oracle.same(0.0, -0.0, "f32")
    assert oracle.same(math.nan, -math.nan, "f32")


@pytest.mark.parametrize("start", range(0, PROGRAMS, oracle.BATCH))
def test_seeded_programs(start: int) -> None:
    oracle.check(range(start, start + oracle.BATCH), ("interpreter", "cpu"))


@pytest.mark.parametrize("seed", TYPED_FINDS)
def test_finds(seed: int) -> None:
    oracle.check([seed], ("interpreter", "cpu"))
