"""The short ways of repeated launches never skip a check: random sequences of calls, all ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cubepy as cp
from cubepy.jit.fast import FastPath
from cubepy.jit.kernel import CubeKernel
from cubepy.jit.native import NativeLaunches
from cubepy.jit.tables import native_executor
from cubepy.runtimes.native.launching.callables import SUPPORTED

try:
    import torch
except ImportError:
    torch = None

SIZE = 96
OFFSET = 0.0


@cp.cube
def scalars(x, y, out, factor, shift: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size and i < x.size and i < y.size:
        out.flat[i] = x.flat[i] * factor + y.flat[i] + shift + OFFSET


@cp.cube
def lines(
    x: cp.Lines[cp.f32],
    y: cp.Lines[cp.f32],
    out: cp.Lines[cp.f32],
    factor: cp.i8,
    shift: cp.Comptime,
):
    i = cp.ABSOLUTE_POS
    if i < out.size and i < x.size and i < y.size:
        out.flat[i] = x.flat[i] * factor + y.flat[i] + shift + OFFSET


class Arena:
    """One memory that all arrays of a sequence are views of, so that they may overlap."""

    def __init__(self) -> None:
        whole = np.zeros(4 * SIZE + 64, np.float32)
        start = -whole.ctypes.data % 64 // 4
        self.memory = whole[start : start + 4 * SIZE]
        self.memory[:] = np.arange(4 * SIZE)
        self._views: dict[Any, np.ndarray] = {}

    def view(self, place: tuple[Any, ...]) -> np.ndarray:
        """The same object for the same place, or a new one."""
        start, count, step, shape, flags, is_new = place
        key = place[:-1]
        if is_new or key not in self._views:
            found = self.memory[start : start + count * abs(step) : abs(step)]
            found = found[::-1] if step < 0 else found
            found = found[: len(found) // 2 * 2].reshape(2, -1) if shape == 2 else found
            found = found.T if shape == 2 and flags == "T" else found
            found = found.astype(flags) if flags in (">f4", "f8", "i4") else found[...]
            if flags == "r":
                found.flags.writeable = False
            self._views[key] = found
        return self._views[key]


places = st.tuples(
    st.sampled_from([0, 1, 8, 16, 32, 100, 128, 200]),
    st.sampled_from([0, 1, 16, 17, 32, 64]),
    st.sampled_from([1, 1, 1, 2, -1]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from(["", "", "", "", "T", "r", ">f4", "f8", "i4"]),
    st.booleans(),
)
kinds = st.tuples(*[st.sampled_from(["numpy", "numpy", "array", "torch"])] * 3)
numbers = st.sampled_from([1, 2, 3, 127, 128, -129, True, 1.5, 2.0, -0.0, np.float32(2), 2**70])
shifts = st.sampled_from([0, 1, 1.0, True, 0.0, -0.0, 2, "no"])
grids = st.sampled_from(["out", "x", 64, (2, 32), (32, 2), (4, 16), "fixed", "wide"])
calls = st.tuples(
    st.booleans(), places, places, places, numbers, shifts, grids, st.integers(0, 9), kinds
)


def as_kind(x: np.ndarray, kind: str) -> Any:
    """The array as another library's, if that takes it."""
    if kind == "array" and x.dtype.isnative:
        return cp.asarray(x)
    is_plain = x.dtype.isnative and x.flags.writeable and all(s >= 0 for s in x.strides)
    if kind == "torch" and is_plain and torch is not None:
        return torch.from_numpy(x)
    return x


def grid_of(kernel: CubeKernel, grid: Any, x: Any, out: Any) -> Any:
    if grid == "fixed":
        return kernel[2, 40]
    if grid == "wide":
        return kernel.over(out, cube_dim=8)
    return kernel.over(out if grid == "out" else x if grid == "x" else grid)


def play(sequence: list[Any], kernels: dict[bool, CubeKernel]) -> list[Any]:
    """What every call of the sequence did: the error's code, and the memory after it."""
    global OFFSET
    arena, results = Arena(), []
    for is_line, *where, number, shift, grid, offset, kinds in sequence:
        OFFSET = float(offset == 9)
        views = [arena.view(place) for place in where]
        x, y, out = (as_kind(view, kind) for view, kind in zip(views, kinds, strict=True))
        try:
            grid_of(kernels[is_line], grid, x, out)(x, y, out, number, shift)
            code = None
        except cp.Error as error:
            code = error.code
        results.append((code, arena.memory.tobytes(), views[2].tobytes()))
    return results


class NoFastPath(FastPath):
    def launch(self, grid: Any, args: Any) -> bool:
        return False


class NoNative(NativeLaunches):
    def learn(self, launcher: Any, prepared: Any, matcher: Any, took: int = 0) -> bool:
        return False


def kernels_of(way: type[FastPath]) -> dict[bool, CubeKernel]:
    found = {False: scalars.configure(), True: lines.configure()}
    for kernel in found.values():
        kernel.fast, kernel.native = way(kernel), NoNative(kernel)
    return found


NATIVE = {False: NativeLaunches(scalars.configure()), True: NativeLaunches(lines.configure())}
"""The same for all examples, so that plans meet launches that they were not made for."""


def native_kernels() -> dict[bool, CubeKernel]:
    found = kernels_of(NoFastPath)
    for is_line, kernel in found.items():
        kernel.native = NATIVE[is_line]
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))  # pyright: ignore[reportArgumentType]
@given(
    st.lists(calls, min_size=1, max_size=4), st.lists(st.integers(0, 7), min_size=1, max_size=12)
)
def test_all_ways_do_the_same(different: list[Any], order: list[int]):
    sequence = [different[k % len(different)] for k in order]
    expected = play(sequence, kernels_of(NoFastPath))
    assert play(sequence, kernels_of(FastPath)) == expected
    assert play(sequence, native_kernels()) == expected


def test_the_short_way_is_taken():
    """What the property compares is not always the slow way."""
    taken = 0

    class Counting(FastPath):
        def launch(self, grid: Any, args: Any) -> bool:
            nonlocal taken
            found = super().launch(grid, args)
            taken += found
            return found

    kernels = kernels_of(Counting)
    place = [(start, 32, 1, 1, "", False) for start in (0, 100, 200)]
    ways = [(is_line, (kind,) * 3) for is_line in (False, True) for kind in ("numpy", "array")]
    play([(is_line, *place, 2, 1, "out", 0, kinds) for is_line, kinds in ways] * 5, kernels)
    assert taken == 16


@pytest.mark.skipif(not SUPPORTED, reason="native launches need CPython with its lock, on Linux")
def test_there_are_native_launches():
    """Tests of native launches are skipped where there are none, also where their text is wrong."""
    assert native_executor() is not None


def test_the_native_way_is_taken(monkeypatch: pytest.MonkeyPatch):
    """Repeated launches do not come to Python, whatever they look like."""
    if native_executor() is None:
        pytest.skip("no native launches here")
    general = 0

    def counting(self: Any, grid: Any, args: Any) -> bool:
        nonlocal general
        general += 1
        return False

    monkeypatch.setattr(NoFastPath, "launch", counting)
    place = [(start, 32, 1, 1, "", False) for start in (0, 100, 200)]
    kinds = [("numpy",) * 3, ("array",) * 3]
    ways = [
        (is_line, *place, 2, shift, grid, 0, kind)
        for is_line in (False, True)
        for shift in (1, 1.0, True)
        for grid in ("out", "x", 64, (2, 32), "fixed")
        for kind in kinds
    ]
    play(ways * 3, native_kernels())
    general = 0
    play(ways, native_kernels())
    assert general == 0


def test_nothing_keeps_arrays_alive():
    import gc
    import weakref

    class Array(np.ndarray):
        pass

    out = np.zeros(64, np.float32)
    kernel = kernels_of(FastPath)[True]
    alive = []
    for kind in (np.ndarray, Array):
        for _ in range(3):
            whole = np.zeros(64, np.float32)
            x = whole.view(kind)
            kernel.over(out)(x, x, out, 1, 0)
            kernel.over(x)(x, x, out, 1, 0)
            alive += [weakref.ref(x), weakref.ref(whole)]
            del x, whole
    gc.collect()
    assert not any(ref() is not None for ref in alive)
