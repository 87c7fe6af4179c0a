"""Loops that stride over the grid: the loop over units goes inside, and results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def scaled(x, out):
    for k in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM):
        out[k] = x[k] * 3 + k


@cp.cube
def counted(x, out):
    held = cp.shared(16, cp.i32)
    for k in range(cp.UNIT_POS, 16, cp.CUBE_DIM):
        held[k] = 0
    cp.sync_cube()
    offset = x[cp.UNIT_POS % x.size] * 0
    for k in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM):
        if x[k] % 3 != 1:
            for j in range(x[k] % 4):
                if j == 2:
                    break
                cp.atomic.add(held, (x[k] + j) % 16, 1 + offset)
    cp.sync_cube()
    for k in range(cp.UNIT_POS, 16, cp.CUBE_DIM):
        cp.atomic.add(out, k, held[k])


@cp.cube
def by_cube(x, out):
    for k in range(cp.UNIT_POS, x.size, cp.CUBE_DIM):
        if k % cp.CUBE_COUNT == cp.CUBE_POS:
            out[k] = x[k] + 1


@cp.cube
def left_as_it_is(x, out):
    """Steps within the cube, sums of a unit and loops that stop early."""
    total = 0
    for k in range(cp.UNIT_POS, min(x.size, 40), 8):
        total += x[k]
    for k in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM):
        if x[k] < 0:
            break
        out[k] = x[k] + total


@pytest.mark.parametrize("kernel", [scaled, counted, by_cube, left_as_it_is])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 320, 1001])
@pytest.mark.parametrize("grid", [(1, 16), (3, 32), (2, 37)])
def test_beside_the_interpreter(kernel: Any, n: int, grid: tuple[int, int]):
    x = np.random.default_rng(n).integers(0, 1000, n).astype(np.int32)
    outs = []
    for device in ("interpreter", "cpu"):
        out = np.zeros(max(n, 16), np.int32)
        kernel.configure(device=device)[grid](x, out)
        outs.append(out)
    np.testing.assert_array_equal(*outs)


def test_the_inner_loop_goes_along_memory():
    text = scaled.inspect("f32[?]", "f32[?]", target="cpu:x86-64-v4", stage="llvm")
    assert "load <16 x float>" in text and "gather" not in text


def test_a_stride_to_the_edge_of_64_bits_ends():
    @cp.cube
    def far(out, n: int):
        for k in range(cp.ABSOLUTE_POS, n, cp.CUBE_COUNT * (1 << 60)):
            cp.atomic.add(out, k // (1 << 60), 1)

    out = np.zeros(8, np.int64)
    far[1, 32](out, 2**63 - 1)
    assert out.tolist() == [32] * 8
