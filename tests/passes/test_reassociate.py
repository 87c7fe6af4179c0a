"""Extremes of several values whose operands a loop carries: random recurrences, on the CPU and as
they are written."""

from __future__ import annotations

import linecache
import random
from typing import Any

import numpy as np
import pytest

import cubepy as cp

NUMBERS = (0.0, -0.0, np.nan, np.inf, 1.0, -1.0, 2.5)


def tree(r: random.Random, leaves: list[str], function: str) -> str:
    """The least or greatest of some values, in any order and with any brackets."""
    if len(leaves) == 1:
        return leaves[0]
    cut = r.randrange(1, len(leaves))
    word = function if r.random() < 0.9 else {"min": "max", "max": "min"}[function]
    return f"{word}({tree(r, leaves[:cut], function)}, {tree(r, leaves[cut:], function)})"


def recurrence(seed: int) -> Any:
    """A kernel that carries three values, which extremes join with what it reads."""
    r = random.Random(seed)
    leaves = ["a", "b", "c", "v", "w", "a + v", "c - w", "x[0, j]", "b"]
    lines = ["def kernel(x, out):", "    a, b, c = x[0, 0], x[1, 0], x[1, 1]"]
    lines += ["    for j in range(x.shape[1]):", "        v, w = x[0, j], x[1, j]"]
    for name in r.sample("abc", 3):
        chosen = [r.choice(leaves) for _ in range(r.randint(2, 6))]
        found = tree(r, chosen, r.choice(("min", "max")))
        if r.random() < 0.3:
            lines += ["        if v < w:", f"            {name} = {found}"]
        else:
            lines += [f"        {name} = {found}" + r.choice(("", " * 0.5", " + v", ""))]
    lines += [f"        out[{k}, j] = {name}" for k, name in enumerate("abc")]
    name = f"<reassociate {seed}>"
    linecache.cache[name] = (1, None, [line + "\n" for line in lines], name)
    scope: dict[str, Any] = {}
    exec(compile("\n".join(lines), name, "exec"), scope)
    return cp.cube(scope["kernel"])


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_results_are_those_of_the_program(block: int, dtype: str):
    rng = np.random.default_rng()
    for seed in range(10 * block, 10 * block + 10):
        kernel = recurrence(seed)
        x = rng.standard_normal((2, 23)).astype(dtype)
        x[rng.random(x.shape) < 0.1] = rng.choice(NUMBERS)
        found, expected = np.zeros((3, 23), dtype), np.zeros((3, 23), dtype)
        kernel[1, 1](x, found)
        kernel.configure(device="interpreter")[1, 1](x, expected)
        np.testing.assert_array_equal(found, expected, err_msg=f"seed {seed}")
        signs = np.signbit(found) != np.signbit(expected)
        assert not (signs & ~np.isnan(expected)).any(), seed
