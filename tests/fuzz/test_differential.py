"""Generated kernels agree bit for bit on the interpreter and on LLVM without and with optimisation.

The tests run some hundred kernels; `python -m tests.fuzz` runs as many as asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cubepy as cp
from cubepy.compilers.cuda import toolchain
from cubepy.targets import parse_target
from tests.fuzz.barriers import NOT_ALL, NOT_TOGETHER, RETURNED
from tests.fuzz.differential import (
    arguments,
    check,
    check_barriers,
    generate,
    generate_barriers,
    generate_wide,
    load_kernel,
    run,
    same_bits,
)
from tests.fuzz.finds import FINDS, WIDE_FINDS
from tests.fuzz.generator import Generator, Program
from tests.optional import require_package

T = TypeVar("T")
KERNELS, CHUNK = 80, 20


@pytest.mark.parametrize("start", range(0, KERNELS, CHUNK))
def test_seeded_kernels(start: int) -> None:
    for seed in range(start, start + CHUNK):
        levels = (0, 2, 3) if seed % 4 == 0 else (0, 3)
        check(generate(seed), seed, levels, lanes=seed % 4 == 1)


@pytest.mark.parametrize("start", range(0, KERNELS // 2, CHUNK))
def test_seeded_kernels_of_more_forms(start: int) -> None:
    for seed in range(start, start + CHUNK):
        check(generate_wide(seed), seed, (0, 2) if seed % 4 == 0 else (2,), lanes=seed % 4 == 1)


@pytest.mark.parametrize("seed", WIDE_FINDS)
def test_finds_of_more_forms(seed: int) -> None:
    check(generate_wide(seed), seed, (0, 2, 3))


@pytest.mark.parametrize("start", range(0, KERNELS // 4, CHUNK // 2))
def test_barriers_of_units(start: int) -> None:
    for seed in range(start, start + CHUNK // 2):
        check_barriers(seed, (0, 2) if seed % 8 == 0 else (2,))


def test_barriers_of_units_are_of_all_kinds() -> None:
    programs = [generate_barriers(seed)[0] for seed in range(100)]
    reasons = {reason for program in programs for reason in program.refusals}
    assert reasons == {NOT_ALL, NOT_TOGETHER, RETURNED}
    assert any("sync_units" in p.source and not p.refusals for p in programs)


def test_nvrtc_takes_barriers_of_units() -> None:
    """As CUDA C, where planes are warps; else they are refused as elsewhere. Nothing runs."""
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
    for seed in range(12):
        program, _ = generate_barriers(seed, parse_target("cuda:sm_80"))
        chosen = load_kernel(program).configure(plane_dim=program.plane_dim)
        launcher, arrays = chosen[program.cubes, program.cube_dim], arguments(program, seed)
        warps = program.plane_dim == 32
        with (
            nullcontext()
            if warps or not program.refusals
            else pytest.raises(cp.UnsupportedError, match="|".join(program.refusals))
        ):
            text = launcher.inspect(**arrays, target="cuda:sm_80", stage="ptx" if warps else None)
            assert ("sync_units" in program.source) == ("barrier.sync" in text) or not warps


@pytest.mark.parametrize("seed", FINDS)
def test_finds(seed: int) -> None:
    check(generate(seed), seed, (0, 2, 3))


CONTROLLING = """
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


def test_loops_that_control_barriers_run_once_for_the_cube() -> None:
    """Found by drawing: a uniform loop without a barrier decides how often a barrier runs."""
    kernel = load_kernel(Program(CONTROLLING, 4, 1, 1, ()))
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
