"""Lines of one lane: as scalars they compute what the interpreter's lines of one lane do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

N = 77


@cp.cube
def lanes(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v = x[i]
        both = cp.concat(v, v * 2)
        turned = cp.concat(both[1:], both[:1])
        out[i] = turned[0] * 8 + turned[1] + v[i % 1] + v.sum() + v.max() + both[::2]


@cp.cube
def carried(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v, total = x[i], x[i] * 0
        for k in range(5):
            if k % 2 == 0:
                total += cp.where(v > 0.25 * k, v, -v)
            else:
                total = cp.fma(total, v, cp.exp(v))
        chosen = total if i % 3 == 0 else v
        out[i] = chosen


@cp.cube
def masked(x, out):
    i = cp.ABSOLUTE_POS
    v = cp.load(x, i - 3, line=1, fill=2.5)
    cp.store(out, i - 1, v + cp.Line[cp.f32, 1](0.5))


@cp.cube
def bits(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        word = cp.bitcast(x[i], cp.u32)
        mask = x.lane_mask(i)
        out[i] = cp.where(mask & (word % 2 == 1), cp.bitcast(word ^ 5, cp.f32), x[i])


@cp.cube
def exchanged(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    t = cp.UNIT_POS
    tile = cp.shared(8, cp.Line[cp.f32, x.line_size])
    tile[t] = x[t] + cp.plane_shuffle_xor(x[t], 1 % cp.PLANE_DIM)
    cp.sync_cube()
    out[t] = tile[7 - t] * cp.plane_sum(tile[t])


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("kernel", [lanes, carried, masked, bits], ids=lambda k: k.__name__)
def test_same_as_lines(kernel: Any, checked: bool):
    x = np.random.default_rng(3).standard_normal(N).astype(np.float32)
    out, wanted = np.full((2, N), 77, np.float32)
    kernel.configure(device="interpreter", line_size=1).over(N)(x, wanted)
    kernel.configure(line_size=1, checked=checked).over(N)(x, out)
    np.testing.assert_array_equal(out.view(np.int32), wanted.view(np.int32))


@pytest.mark.parametrize("plane_dim", [1, 4])
def test_same_between_units(plane_dim: int):
    x = np.random.default_rng(3).standard_normal(8).astype(np.float32)
    out, wanted = np.full((2, 8), 77, np.float32)
    chosen = exchanged.configure(line_size=1, plane_dim=plane_dim)
    chosen.configure(device="interpreter")[1, 8](x, wanted)
    chosen[1, 8](x, out)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("kernel", [lanes, carried, bits], ids=lambda k: k.__name__)
def test_nothing_of_one_lane_is_left(kernel: Any):
    text = kernel.configure(line_size=1)[1, 8].inspect(f"f32[{N}]", f"f32[{N}]", stage="llvm")
    assert "<1 x" not in text
