"""The extremes of two numbers that reductions are made of."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.calls.extremes import greater_of, less_of

NUMBERS = (0.0, -0.0, 1.0, -2.0, 65504.0, np.inf, -np.inf, np.nan)
FUNCTIONS = {"max": greater_of, "min": less_of}


@cp.cube
def extremes(f: cp.Comptime, a: cp.Lines, b: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = f(a.flat[i], b.flat[i])


@pytest.mark.parametrize("dtype", ("f2", "f4", "f8"))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_of_either_wins(name: str, dtype: str):
    pairs = np.array(list(itertools.product(NUMBERS, repeat=2)), dtype).T.copy()
    out = np.zeros_like(pairs[0])
    extremes.over(out)(FUNCTIONS[name], *pairs, out)
    np.testing.assert_array_equal(out, {"max": np.maximum, "min": np.minimum}[name](*pairs))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_processors_take_their_own_instruction(name: str):
    arguments: Any = (FUNCTIONS[name], *["f32[64]"] * 3)
    text = extremes.configure(line_size=8).inspect(*arguments, target="cpu:x86-64-v3", stage="asm")
    assert f"v{name}ps" in text
