"""Planes whose units are lanes: every plane operation as the interpreter has it, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.passes.vectorise import Vectorised, vectorise

PLANES = (4, 8, 16, 32)


@cp.cube
def all_of_them(x: cp.Tensor, out: cp.Tensor):
    """A column for each operation."""
    i = cp.ABSOLUTE_POS
    v = x[i % x.size]
    lane = cp.UNIT_POS_PLANE
    out[0, i] = cp.plane_sum(v)
    out[1, i] = cp.plane_prod(v)
    out[2, i] = cp.plane_min(v)
    out[3, i] = cp.plane_max(v)
    out[4, i] = cp.plane_inclusive_sum(v)
    out[5, i] = cp.plane_exclusive_sum(v)
    out[6, i] = cp.plane_inclusive_prod(v)
    out[7, i] = cp.plane_exclusive_prod(v)
    out[8, i] = cp.plane_broadcast(v, 3)
    out[9, i] = cp.plane_shuffle(v, (lane * 5 + 3) % cp.PLANE_DIM)
    out[10, i] = cp.plane_shuffle(v, lane * 2 - 3)
    out[11, i] = cp.plane_shuffle_xor(v, 2)
    out[12, i] = cp.plane_shuffle_up(v, 3)
    out[13, i] = cp.plane_shuffle_down(v, 1)
    out[14, i] = cp.plane_shuffle_xor(v, lane % 4)
    out[15, i] = cp.plane_shuffle_up(v, lane % 3)
    out[16, i] = cp.plane_shuffle_down(v, cp.PLANE_POS + 1)
    out[17, i] = cp.plane_shuffle(v, cp.PLANE_POS % 3)


@cp.cube
def votes(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.u64]):
    """Some units return between; those left vote, elect and shuffle."""
    i = cp.ABSOLUTE_POS
    v = x[i % x.size]
    out[0, i] = cp.plane_ballot(v % 3 == 0)
    out[1, i] = cp.u64(cp.plane_all(v > 2))
    if v % 4 == 1:
        return
    out[2, i] = cp.plane_ballot(v % 2 == 0)
    out[3, i] = cp.u64(cp.plane_any(v > 20))
    out[4, i] = cp.u64(cp.plane_elect())
    out[5, i] = cp.u64(cp.plane_sum(v) + 1000)
    out[6, i] = cp.u64(cp.plane_min(v) + 1000)
    out[7, i] = cp.u64(cp.plane_shuffle_down(v, 1) + 1000)
    out[8, i] = cp.u64(cp.plane_exclusive_sum(v) + 1000)
    out[9, i] = cp.u64(cp.plane_broadcast(v, 1) + 1000)
    if cp.plane_any(v > 50):
        out[10, i] = cp.u64(cp.plane_max(v))
        if cp.plane_elect():
            out[11, i] = cp.u64(i)


@cp.cube
def loops(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Loops that planes run alike, and lanes' own loops between; shared memory of a plane."""
    held = cp.shared(64, cp.i32)
    t = cp.UNIT_POS
    v, n = x[cp.ABSOLUTE_POS % x.size], cp.i32(0)
    while cp.plane_any(v > 3):
        k = cp.i32(0)
        while k < v % 5:
            k += 1
            n += k
        v -= 1 + k
        held[t] = v
        cp.sync_plane()
        n ^= held[t ^ 1]
        cp.sync_plane()
        if cp.plane_sum(v) % 7 == 3:
            continue
        n += cp.plane_max(n) // 2
    for j in range(cp.PLANE_POS):
        n += cp.plane_shuffle_xor(n, 1) // (cp.i32(j) + 2)
    cp.sync_cube()
    held[t] = n
    cp.sync_cube()
    out[cp.ABSOLUTE_POS] = n + held[63 - t]


def _spied(monkeypatch: pytest.MonkeyPatch) -> list[Vectorised]:
    from cubepy.passes import vectorise as module

    found: list[Vectorised] = []

    def spy(*given: Any) -> Vectorised:
        found.append(vectorise(*given))
        return found[-1]

    monkeypatch.setattr(module, "vectorise", spy)
    return found


def _settings(plane: int) -> tuple[dict[str, Any], ...]:
    return {"device": "interpreter", "plane_dim": plane}, {"vectorise": True, "plane_dim": plane}


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "i8", "f2"])
def test_all_of_them(plane: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _spied(monkeypatch)
    rng = np.random.default_rng(plane)
    x = (rng.standard_normal(101) * 3).astype(np.dtype(dtype))
    x[7] = -0.0
    results: list[np.ndarray] = []
    for settings in _settings(plane):
        out = np.zeros((18, 192), x.dtype)
        with np.errstate(all="ignore"):
            all_of_them.configure(**settings)[3, 64](x, out)
        results.append(out)
    assert found[-1].lanes == plane, found[-1].remarks
    for row, (want, got) in enumerate(zip(*results, strict=True)):
        np.testing.assert_array_equal(got, want, err_msg=f"row {row}")
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want), err_msg=f"row {row}")


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("kernel", [votes, loops], ids=lambda k: k.__name__)
def test_planes_of_lanes(plane: int, kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _spied(monkeypatch)
    x = np.random.default_rng(plane).integers(0, 60, 157).astype(np.int32)
    results: list[np.ndarray] = []
    for settings in _settings(plane):
        out = np.zeros((12, 256), np.uint64) if kernel is votes else np.zeros(256, np.int32)
        kernel.configure(**settings)[4, 64](x, out)
        results.append(out)
    assert found[-1].lanes == plane, found[-1].remarks
    np.testing.assert_array_equal(results[1], results[0])


TARGETS = ("apple-m1", "neoverse-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")


@pytest.mark.parametrize("target", TARGETS)
def test_other_processors(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM verifies and translates lines of one to four registers."""
    found = _spied(monkeypatch)
    for plane in (4, 16):
        launcher = loops.configure(vectorise=True, plane_dim=plane)[4, 64]
        assert launcher.inspect("i32[157]", "i32[256]", target=f"cpu:{target}", stage="asm")
        assert found[-1].lanes == plane


def test_rows_that_are_no_planes() -> None:
    """Where planes go around the ends of rows they stay emulated."""
    launcher = loops.configure(vectorise=True, plane_dim=16)[4, (8, 8)]
    text = launcher.inspect("i32[157]", "i32[256]", stage="remarks")
    assert "rows of 8 units are not planes of 16" in text
