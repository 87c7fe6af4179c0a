"""What NVVM makes of CUDA C, run by an interpreter of PTX: no GPU is needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.miscompiled_kernels import CASES
from cubepy.passes.legalise import hide_guards
from tests.compilers.ptx import launching
from tests.compilers.ptx.machine import Machine, Unknown
from tests.fuzz.flow import oracle

UNITS = 16
PROGRAMS = 40


@pytest.fixture(autouse=True)
def nvrtc() -> None:
    launching.require()


def edges() -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.integers(-(1 << 31), 1 << 31, UNITS).astype(np.int32)
    y = rng.integers(-(1 << 15), 1 << 15, UNITS).astype(np.int16)
    x[:4], y[:6] = (-(1 << 31), -1, 0, 5), (-(1 << 15), 7, -1, 0, -9, 2)
    return [x, y, np.zeros(UNITS, np.int32)]


@pytest.mark.parametrize("name", CASES)
def test_kernels_that_were_miscompiled(name: str):
    kernel, expected = CASES[name]
    x, y, out = edges()
    launching.launch(kernel, UNITS, [x, y, out])
    np.testing.assert_array_equal(out, expected(x, y))


def test_a_guard_that_is_shown_is_split_wrongly(monkeypatch: pytest.MonkeyPatch):
    """So the test above can fail, and NVVM still does it."""
    monkeypatch.setattr(hide_guards, "hide_guards", lambda kernel: kernel)
    kernel, expected = CASES["guard in a loop"]
    x, y, out = edges()
    launching.launch(kernel, UNITS, [x, y, out])
    assert np.any(out != expected(x, y))


GUARDS: dict[str, Callable[[Any, Any], Any]] = {
    "below": lambda k, y: k < y,
    "up to": lambda k, y: k <= y,
    "above": lambda k, y: k > y,
    "turned": lambda k, y: y >= k,
    "next": lambda k, y: k + 1 <= y,
    "difference": lambda k, y: y - k >= 0,
    "both": lambda k, y: (k >= y) & (k < 5),
    "none": lambda k, y: not (k <= y),
}


def counted(guard: Any, is_while: bool) -> Any:
    """A kernel with a loop under a branch, and a guard in it."""

    def by_range(y, out):
        i = cp.UNIT_POS
        v = i + 1
        if y[i] != 100:
            for k in range(i & 7):
                if guard(k, y[i]):
                    v = (v % 7 - 3) * 3 + k
                else:
                    v = v ^ 5
        out[i] = v

    def by_while(y, out):
        i = cp.UNIT_POS
        v, k = i + 1, 0
        if y[i] != 100:
            while k < i & 7:
                if guard(k, y[i]):
                    v = (v % 7 - 3) * 3 + k
                else:
                    v = v ^ 5
                k += 1
        out[i] = v

    return by_while if is_while else by_range


@pytest.mark.parametrize(("guard", "is_while"), itertools.product(GUARDS, (False, True)), ids=str)
def test_guards_in_loops(guard: str, is_while: bool):
    kernel = cp.cube(counted(GUARDS[guard], is_while))
    y = np.array([*range(-4, 9), -(1 << 31) + 9, (1 << 31) - 9, -1], np.int64)
    found, expected = np.zeros((2, UNITS), np.int64)
    kernel[1, UNITS](y, expected)
    launching.launch(kernel, UNITS, [y, found])
    np.testing.assert_array_equal(found, expected)


def test_programs_with_control_flow():
    """What Python returns; programs with instructions that the interpreter lacks are few."""
    ran = sum(oracle.check_device(seed, oracle.PTX, has_f64=True) for seed in range(PROGRAMS))
    assert ran > PROGRAMS * 3 // 4


def test_barriers_and_shared_memory():
    @cp.cube
    def turned(x, out):
        i = cp.UNIT_POS
        tile = cp.shared(UNITS, cp.f32)
        tile[i] = x[i] * 1.5
        cp.sync_cube()
        out[i] = tile[UNITS - 1 - i] / 3

    x, out = np.arange(UNITS, dtype=np.float32), np.zeros(UNITS, np.float32)
    launching.launch(turned, UNITS, [x, out])
    np.testing.assert_array_equal(out, (x * np.float32(1.5))[::-1] / np.float32(3))


def test_what_the_interpreter_lacks_is_named():
    @cp.cube
    def waves(x):
        x[cp.UNIT_POS] = cp.plane_sum(x[cp.UNIT_POS])

    with pytest.raises(Unknown, match=r"shfl\.sync"):
        launching.compiled(waves, 32, [np.zeros(32, np.float32)])


def test_accesses_outside_of_a_variable_are_found():
    text = """
.visible .entry kernel(
	.param .u64 kernel_param_0
)
{
	.local .align 4 .b8 	held[8];
	.reg .b64 	%rd<3>;
	mov.u64 	%rd1, held;
	ld.local.u32 	%r1, [%rd1+8];
	ret;
}
"""
    with pytest.raises(AssertionError, match="outside of its variable"):
        Machine(text).launch([0], (1, 1, 1), (1, 1, 1))
