"""Planes of AMD in HIP C++: what clang does with a barrier, and what the head bounds."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.c import hip_text


@cp.cube
def swap(v, out):
    t = cp.i32(cp.UNIT_POS)
    x = v[t]
    s = cp.shared(64, cp.f32)
    s[t] = 0.0
    cp.sync_cube()
    if x > 0:
        s[t] = x
    cp.sync_plane()
    if x > 0:
        w = s[63 - t]
    else:
        w = s[t ^ 1] * 3
    out[t] = w


def test_a_barrier_of_a_plane_is_not_copied_into_branches():
    v, out = (np.zeros(64, np.float32) for _ in range(2))
    text = hip_text.optimised(swap[1, 64].inspect(v, out, target="hip:gfx942"), "gfx942")
    assert text.count("call void @llvm.amdgcn.wave.barrier()") == 1
    assert text.count('fence syncscope("wavefront")') == 2


@pytest.mark.parametrize(("units", "cubes", "waves"), [(256, 4, 4), (64, 16, 4), (1024, 2, 8)])
def test_the_head_bounds_the_planes_of_a_simd(units: int, cubes: int, waves: int):
    v, out = (np.zeros(units, np.float32) for _ in range(2))
    held = swap.configure(cubes_per_sm=cubes)
    text = held[1, units].inspect(v, out, target="hip:gfx942")
    assert f"__launch_bounds__({units}, {waves})" in text
    hip_text.optimised(text, "gfx942")


@cp.cube
def move_halves(v: cp.Tensor[cp.f16], lines: cp.Tensor[cp.f16], out: cp.Tensor[cp.f16]):
    t = cp.UNIT_POS
    two = cp.load(lines, 2 * t, line=2)
    out[t] = cp.plane_shuffle(v[t], 3)
    out[t + 64] = cp.plane_shuffle_xor(two[1], 1)
    out[t + 128] = cp.plane_shuffle_up(v[t], 1)
    out[t + 192] = cp.plane_shuffle_down(v[t], 1)


def test_shuffles_move_the_bits_of_halves():
    """A conversion to f32 and back would make a quiet NaN of one that signals."""
    text = move_halves[1, 64].inspect("f16[64]", "f16[128]", "f16[256]", target="hip:gfx942")
    assert text.count("__shfl") == 4
    assert "float" not in text.replace("_Float16", "")
    code = hip_text.optimised(text, "gfx942")
    assert "fpext" not in code and "fptrunc" not in code
