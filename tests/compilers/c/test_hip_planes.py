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
