"""Blocks of units: the same results as unit by unit, loads that are done once for a block."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.passes import jam_units as pass_
from examples.matmul import matmul_kernel

BLOCKS: list[tuple[int, int]] = []
"""The blocks that were made."""


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collects the blocks, which are made whether or not they save loads."""
    from cubepy.passes import vectorise

    def spy(*given: Any) -> Any:
        made = pass_.jam_units(*given)
        BLOCKS.append(made[1])
        return made

    monkeypatch.setattr(vectorise, "jam_units", spy)
    monkeypatch.setattr(pass_, "GAIN", 9.0)


@cp.cube
def control(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Branches and loops that rows of units take alike and differently, around barriers too."""
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    ty, tx = cp.UNIT_POS_Y, cp.UNIT_POS_X
    held = cp.shared((8, 32), cp.i32)
    own = cp.local(4, cp.i32)
    for k in range(4):
        own[k] = cp.i32(ty * 7 + k)
    s, odd, last = cp.i32(0), cp.i32(0), cp.i32(-1)
    for k in range(x.shape[0]):
        held[ty, tx] = x[k, j % x.shape[1]] + s
        if x[k, 0] % 5 == 4:
            odd += held[ty, tx]
        cp.sync_cube()
        for _ in range(ty % 3):
            s += held[(ty + 1) % 8, tx] + own[k % 4]
        if ty % 2 == 0:
            s += held[7 - ty, 31 - tx]
        if (ty + tx) % 3 == 0:
            own[(k + tx) % 4] += s
        n = cp.i32(0)
        while n < tx:
            n += 3
            if n > ty:
                last = n
                break
        if x[k, 0] % 7 == 6:
            s += 100
            cp.sync_cube()
            continue
        if k > 9:
            s = -s
            break
        cp.sync_cube()
    else:
        s += 7
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = s * 31 + odd + last + own[tx % 4]


@cp.cube
def positions(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Where units are, by all names; atomics of each; values that change places."""
    held = cp.shared(64, cp.i32)
    t = cp.UNIT_POS
    a, b = cp.i32(t), cp.i32(cp.ABSOLUTE_POS)
    for k in range(x.shape[0]):
        held[t] = a + x[k, 0]
        cp.sync_cube()
        a, b = b, held[(t + 5) % 64] + b // 3
        cp.sync_cube()
    place = cp.UNIT_POS_X + 8 * (cp.UNIT_POS_Y + 4 * cp.UNIT_POS_Z)
    far = cp.ABSOLUTE_POS_X + 16 * (cp.ABSOLUTE_POS_Y + 8 * cp.ABSOLUTE_POS_Z)
    cp.atomic.add(out, (0, 0), cp.i32(far) + a)
    cp.atomic.max(out, (0, 1), b)
    out.flat[2 + cp.ABSOLUTE_POS] = a * 3 + b + cp.i32(place) * 11


@cp.cube
def strips(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Where cubes are, in a kernel of tiles."""
    held = cp.shared((4, 16), cp.i32)
    t, u = cp.UNIT_POS_X, cp.UNIT_POS_Y
    s = cp.i32(0)
    for k in range(x.shape[0]):
        held[u, t] = x[k, t]
        cp.sync_cube()
        s += held[0, t] * held[u, 0]
        cp.sync_cube()
    i, j, n = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X, cp.ABSOLUTE_POS_Z
    where = cp.CUBE_POS_X * 10 + cp.CUBE_POS_Y * 1000 + cp.CUBE_POS_Z * 100000
    out[n, i, j] += cp.i32(where) + s


@pytest.mark.parametrize("cubes", [(1, 1, 1), (7, 3, 1), (19, 2, 2)])
def test_strips(cubes: tuple[int, int, int]) -> None:
    """Each cube runs once, and knows where it is."""
    x = np.random.default_rng(3).integers(0, 30, (3, 16)).astype(np.int32)
    found: list[np.ndarray] = []
    for settings in ({"vectorise": False}, {"vectorise": True}):
        out = np.zeros((cubes[2], cubes[1] * 4, cubes[0] * 16), np.int32)
        strips.configure(**settings)[cubes, (16, 4)](x, out)
        found.append(out)
    assert any(x * y > 1 for x, y in BLOCKS)
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (12, 40)])
def test_control(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[1])
    x = rng.integers(0, 30, shape).astype(np.int32)
    found: list[np.ndarray] = []
    for settings in ({"device": "interpreter"}, {"vectorise": False}, {"vectorise": True}):
        out = np.full((11, 45), -1, np.int32)
        control.configure(**settings)[(2, 2), (32, 8)](x, out)
        found.append(out)
    assert any(x * y > 1 for x, y in BLOCKS)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_positions() -> None:
    x = np.random.default_rng(3).integers(0, 30, (5, 1)).astype(np.int32)
    found: list[np.ndarray] = []
    for settings in ({"device": "interpreter"}, {"vectorise": False}, {"vectorise": True}):
        out = np.zeros((2, 512), np.int32)
        positions.configure(**settings)[(2, 2, 2), (8, 4, 2)](x, out)
        found.append(out)
    assert any(x * y > 1 for x, y in BLOCKS)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 1, 1), np.float32),
        ((17, 33, 9), np.float32),
        ((40, 21, 65), np.float32),
        ((35, 310, 7), np.float32),
        ((1, 1, 1), np.float64),
        ((17, 33, 9), np.float64),
        ((35, 70, 7), np.float64),  # which the interpreter takes ten times as long for
    ],
)
def test_products(shape: tuple[int, int, int], dtype: Any) -> None:
    rng = np.random.default_rng(shape[0])
    m, n, k = shape
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    found: list[np.ndarray] = []
    for settings in ({"device": "interpreter"}, {"vectorise": True}):
        c = np.full((m, n), np.nan, dtype)
        matmul_kernel.configure(**settings).over(c, cube_dim=(16, 16))(a, b, c, 16)
        found.append(c)
    assert any(x * y > 1 for x, y in BLOCKS)
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize(
    ("target", "block"),
    [("cpu:x86-64-v3", (2, 4)), ("cpu:x86-64-v4", (1, 8)), ("cpu:neoverse-v1", (2, 4))],
)
def test_blocks_that_save_loads(
    target: str, block: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_, "GAIN", 0.75)
    launcher = matmul_kernel.configure(vectorise=True).over((64, 64), cube_dim=(16, 16))
    specs = ("f32[64,64]",) * 3
    text = launcher.inspect(*specs, 16, target=target, stage="remarks")
    assert BLOCKS[-1] == block
    assert f"blocks of {block[0]} x {block[1]} lines of units" in text
    assert launcher.inspect(*specs, 16, target=target, stage="asm")


def test_tiles_inside_are_loaded_without_masks() -> None:
    """And with masks at the edges: there is a copy of each."""
    launcher = matmul_kernel.configure(vectorise=True).over((64, 64), cube_dim=(16, 16))
    text = launcher.inspect(*("f32[64,64]",) * 3, 16, target="cpu:x86-64-v3", stage="llvm")
    assert len(re.findall(r"call <8 x float> @llvm.masked.load", text)) == 16
    assert len(re.findall(r"load <8 x float>, ptr %[^,]*, align 4", text)) >= 16


def test_nothing_is_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose units share no load keeps its units."""
    monkeypatch.setattr(pass_, "GAIN", 0.75)

    @cp.cube
    def kernel(x: cp.Tensor[cp.f32]):
        t = cp.UNIT_POS
        held = cp.shared(256, cp.f32)
        for _ in range(3):
            held[t] = x[cp.ABSOLUTE_POS]
            cp.sync_cube()
            x[cp.ABSOLUTE_POS] = held[255 - t]
            cp.sync_cube()

    kernel.configure(vectorise=True)[1, 256].inspect("f32[256]")
    assert BLOCKS[-1] == (1, 1)
