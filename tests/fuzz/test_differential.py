"""Generated kernels agree bit for bit on the interpreter and on LLVM without and with optimisation.

CI runs 2,000 kernels, other runs 200; `python -m tests.fuzz` runs as many as asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.differential import (
    arguments,
    check,
    generate,
    generate_wide,
    load_kernel,
    run,
    same_bits,
)
from tests.fuzz.finds import FINDS, WIDE_FINDS
from tests.fuzz.generator import Generator, Program

T = TypeVar("T")
KERNELS = 2000 if os.environ.get("CI") else 200
CHUNK = 50


@pytest.mark.parametrize("start", range(0, KERNELS, CHUNK))
def test_seeded_kernels(start: int) -> None:
    for seed in range(start, start + CHUNK):
        levels = (0, 2, 3) if seed % 4 == 0 else (0, 3)
        check(generate(seed), seed, levels)


@pytest.mark.parametrize("start", range(0, KERNELS // 2, CHUNK))
def test_seeded_kernels_of_more_forms(start: int) -> None:
    for seed in range(start, start + CHUNK):
        check(generate_wide(seed), seed, (0, 2) if seed % 4 == 0 else (2,))


@pytest.mark.parametrize("seed", WIDE_FINDS)
def test_finds_of_more_forms(seed: int) -> None:
    check(generate_wide(seed), seed, (0, 2, 3))


@pytest.mark.parametrize("seed", FINDS)
def test_finds(seed: int) -> None:
    check(generate(seed), seed, (0, 2, 3))


STEERED = """
def kernel(x, out):
    t = cp.UNIT_POS
    s = cp.shared(4, cp.i32)
    v, n, w = cp.i32(1), 2, 0
    while w < 3 and v < 5:
        w += 1
        v += 2
        n += 1
    for r in range(n):
        cp.sync_cube()
        s[t] = x[t] + v
        cp.sync_cube()
        v = s[0] % 7
        if x[0] == 1:
            break
    out[t] = v + n
"""


def test_loops_that_steer_barriers_run_once_for_the_cube() -> None:
    """Found by drawing: a uniform loop without a barrier decides how often units meet."""
    kernel = load_kernel(Program(STEERED, 4, 1, 1, ()))
    x, out, expected = (np.arange(4, dtype=np.int32) for _ in range(3))
    kernel[1, 4](x, out)
    kernel.configure(device="interpreter")[1, 4](x, expected)
    assert np.array_equal(out, expected)


class Drawn:
    """Decisions that Hypothesis makes, so that it can shrink them."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def choose(self, options: Sequence[T]) -> T:
        return self._data.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))  # pyright: ignore[reportArgumentType]
@given(st.data())
def test_drawn_kernels(data: st.DataObject) -> None:
    check(Generator(Drawn(data)).program(), 1, (0, 3))


def test_the_comparison_can_fail() -> None:
    """A kernel that is changed by one operator gives other memory."""
    program = generate(3)
    arrays = arguments(program, 3)
    expected = run(load_kernel(program), program, arrays)
    name = f"out_{program.types[0]}"
    program.source += f"    {name}[p] = cp.{program.types[0]}(p % 2)\n"
    found = run(load_kernel(program), program, arrays)
    assert not all(same_bits(expected[n], found[n]) for n in expected)
    assert same_bits(np.array([np.nan], np.float32), np.array([-np.nan], np.float32))
    assert not same_bits(np.array([0.0], np.float32), np.array([-0.0], np.float32))
