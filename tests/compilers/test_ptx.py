"""What NVVM makes of CUDA C, run by an interpreter of PTX: no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.miscompiled_kernels import CASES
from cubepy.passes.legalise import hide_extrema, hide_guards
from tests.compilers.ptx import launching
from tests.compilers.ptx.machine import Machine, Unknown
from tests.fuzz.flow import oracle

UNITS = 16
PROGRAMS = 8


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


@pytest.mark.parametrize("name", ["guard in a loop", "loop that a wrapped sum ends"])
def test_a_guard_that_is_shown_is_taken_wrongly(name: str, monkeypatch: pytest.MonkeyPatch):
    """So the test above can fail, and NVVM still does it."""
    for step in (hide_guards, hide_extrema):
        monkeypatch.setattr(step, step.__name__.rpartition(".")[2], lambda kernel: kernel)
    kernel, expected = CASES[name]
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


@pytest.mark.parametrize("is_while", [False, True])
@pytest.mark.parametrize("guard", GUARDS)
def test_guards_in_loops(guard: str, is_while: bool):
    kernel = cp.cube(counted(GUARDS[guard], is_while))
    y = np.array([*range(-4, 9), -(1 << 31) + 9, (1 << 31) - 9, -1], np.int64)
    found, expected = np.zeros((2, UNITS), np.int64)
    kernel[1, UNITS](y, expected)
    launching.launch(kernel, UNITS, [y, found])
    np.testing.assert_array_equal(found, expected)


ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "wrapped": lambda k, x: k + x < x,
    "wrapped or equal": lambda k, x: k + x <= x,
    "turned": lambda k, x: x > x + k,
    "from the next": lambda k, x: k + 1 + x < x,
    "by twos": lambda k, x: k * 2 + x < x,
    "beside another sum": lambda k, x: k + x < x + 1,
    "difference": lambda k, x: x - k > x,
}


def ended(end: Any, dtype: Any, step: int) -> Any:
    """A kernel with a loop that such a condition ends."""

    def kernel(x, n, out):
        i = cp.UNIT_POS
        found = cp.i32(i)
        for k in range(0, n[i], step):
            found = found * 3 + cp.i32(k)
            if end(dtype(k), x[i]):
                break
            found += 7
        out[i] = found

    return kernel


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("dtype", ["i32", "u32", "i64"])
@pytest.mark.parametrize("end", ENDS)
def test_sums_that_end_loops(end: str, dtype: str, step: int):
    kernel = cp.cube(ended(ENDS[end], getattr(cp, dtype), step))
    t = np.dtype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    least, most = np.iinfo(t).min, np.iinfo(t).max
    x = np.array([least, least + 1, 0, 1, 2, 7, most - 4, most - 1] * 2).astype(t)
    x[8:12], n = most, np.array([*range(8), *range(8, 0, -1)], np.int32)
    found, expected = np.zeros((2, UNITS), np.int32)
    kernel[1, UNITS](x, n, expected)
    launching.launch(kernel, UNITS, [x, n, found])
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
    def told(x):
        print(x[cp.UNIT_POS])

    with pytest.raises(Unknown, match="call"):
        launching.compiled(told, 32, [np.zeros(32, np.float32)])


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


MOST = 64
"""Units of the largest of these cubes."""


@cp.cube
def exchanged(x, out):
    """Plane operations of units of which some have left."""
    i = cp.UNIT_POS
    v = x[i]
    if v == 7:
        out[i] = -1
        return
    out[i] = cp.plane_sum(v) + cp.i32(cp.plane_ballot(v > 3) & 0xFFFF)
    out[1 * MOST + i] = cp.plane_inclusive_sum(v) * 10 + cp.plane_min(v)
    out[2 * MOST + i] = cp.plane_shuffle_xor(v, 5) + cp.plane_shuffle(v, i * 3)
    out[3 * MOST + i] = 1 if cp.plane_any(v == 2) and cp.plane_elect() else 0


@cp.cube
def exchanged_floats(x, out):
    i = cp.UNIT_POS
    for k, v in enumerate((x[i], cp.f16(x[i]), cp.bf16(x[i]), cp.f64(x[i]))):
        out[k * MOST + i] = cp.f32(cp.plane_prod(v) + cp.plane_shuffle_up(v, 2) / cp.plane_max(v))


@pytest.mark.parametrize("target", ["cuda:sm_75", "cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("units", [64, 45, 7])
def test_planes(units: int, target: str):
    x = np.random.default_rng(units).integers(0, 9, units).astype(np.int32)
    for kernel, given in ((exchanged, x), (exchanged_floats, x.astype(np.float32) + 0.5)):
        found, expected = np.zeros((2, 4 * MOST), given.dtype)
        launching.launch(kernel, units, [given, found], target)
        planes = kernel.configure(device="interpreter", plane_dim=32)
        planes[1, units](given, expected)
        np.testing.assert_array_equal(found, expected)


@cp.cube
def updated(x, out):
    """Each atomic on memory of the launch and of the cube; sums of floats are exact."""
    i = cp.ABSOLUTE_POS
    held = cp.shared(4, x.dtype)
    held[cp.UNIT_POS % 4] = 0
    cp.sync_cube()
    cp.atomic.add(held, i % 4, x[i])
    cp.atomic.add(out, i % 4, x[i])
    cp.atomic.sub(out, 4 + i % 4, x[i])
    cp.atomic.mul(out, 8 + i % 4, 2)
    cp.atomic.min(out, 12 + i % 4, x[i])
    cp.atomic.max(out, 16 + i % 4, x[i])
    cp.sync_cube()
    if cp.UNIT_POS < 4:
        cp.atomic.add(out, 20 + cp.UNIT_POS, held[cp.UNIT_POS])


TYPES = (np.int16, np.int32, np.uint64, np.float16, np.float32, np.float64)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
def test_atomics(dtype: type):
    x = np.random.default_rng(6).integers(0, 9, 32).astype(dtype)
    found, expected = np.ones((2, 24), dtype)
    launching.launch(updated, 16, [x, found], cubes=2)
    updated.configure(device="cpu")[2, 16](x, expected)
    np.testing.assert_array_equal(found, expected)


@cp.cube
def crowded(x, out):
    """More shared memory than a kernel may declare."""
    i = cp.UNIT_POS
    tile, flags = cp.shared(13000, cp.f32), cp.shared(UNITS, cp.u8)
    tile[i * 800], flags[i] = x[i], i
    cp.sync_cube()
    out[i] = tile[(UNITS - 1 - i) * 800] + flags[i ^ 3]


def test_shared_memory_of_the_launch():
    x, out = np.arange(UNITS, dtype=np.float32), np.zeros(UNITS, np.float32)
    machine = launching.compiled(crowded, UNITS, [x, out])
    words = [array.ctypes.data for array in (x, out)]
    machine.launch(words, (1, 1, 1), (UNITS, 1, 1), 13000 * 4 + UNITS)
    np.testing.assert_array_equal(out, x[::-1] + (np.arange(UNITS) ^ 3))


def test_units_that_miss_an_exchange_are_found():
    text = """
    .visible .entry kernel(
        .param .u64 kernel_param_0
    )
    {
        mov.u32 %r1, %tid.x;
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra $L__BB0_1;
        shfl.sync.idx.b32 %r2|%p2, %r1, 0, 31, -1;
    $L__BB0_1:
        bar.sync 0;
        ret;
    }
    """
    with pytest.raises(AssertionError, match="some for the warp"):
        Machine(text).launch([0], (1, 1, 1), (UNITS, 1, 1))
