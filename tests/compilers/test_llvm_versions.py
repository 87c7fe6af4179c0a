"""Loops over units without their dear branches, where no unit takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def flat(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = cp.sin(x[i]) * cp.cos(x[i] * 0.5)


@cp.cube
def in_place(x, out):
    """The second one reads what the first one wrote, so that it is not asked for before."""
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = cp.sin(x[i])
        out[i] = cp.sin(out[i] * 1e6) + x[i] * 0.0


@cp.cube
def with_barriers(x, out):
    held = cp.shared(256, x.dtype)
    t = cp.UNIT_POS
    inside = cp.ABSOLUTE_POS < x.size
    held[t] = cp.sin(x[cp.ABSOLUTE_POS] if inside else x.dtype(0))
    cp.sync_cube()
    if inside:
        out[cp.ABSOLUTE_POS] = cp.sin(held[t] * 1e6)


@cp.cube
def along_axes(x, out):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    k = i * 64 + j
    if j < 64 and k < x.size:
        out[k] = cp.sin(x[k])


KERNELS = [
    (flat, lambda n: (-(-n // 256), 256)),
    (in_place, lambda n: (-(-n // 96), 96)),
    (with_barriers, lambda n: (-(-n // 256), 256)),
    (along_axes, lambda n: ((1, -(-n // 64)), (64, 1))),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel, grid", KERNELS, ids=lambda k: getattr(k, "__name__", ""))
@pytest.mark.parametrize("n", [1, 255, 2048, 2049, 9000])
def test_huge_arguments_anywhere(kernel: Any, grid: Any, n: int, dtype: type):
    """None, some, and one at either end, beside the same kernel in cubes too small for versions."""
    rng = np.random.default_rng(n)
    for places in ([], [0], [n - 1], rng.integers(0, n, 5).tolist()):
        x = rng.uniform(-50, 50, n).astype(dtype)
        x[places] = dtype(3e9)
        found, wanted = np.zeros((2, n), dtype)
        cubes, units = grid(n)
        kernel[cubes, units](x, found)
        if kernel is along_axes:
            kernel[(64, cubes[1]), (1, 1)](x, wanted)
        elif kernel is with_barriers:
            kernel[-(-n // 32), 32](x, wanted)
        else:
            kernel[n, 1](x, wanted)
        np.testing.assert_array_equal(found, wanted)
        if kernel is flat:
            wide = x.astype(np.float64)
            exact = np.sin(wide) * np.cos(wide * 0.5)
            np.testing.assert_allclose(found, exact, rtol=0, atol=4 * np.finfo(dtype).eps)


def test_dear_branches_behind_a_guard_that_is_no_bound_are_for_lanes():
    text = along_axes.inspect("f32[?]", "f32[?]", target="cpu:x86-64-v4", stage="remarks")
    assert "units are lanes of lines of 16" in text


def test_the_cheap_version_does_not_hold_the_dear_branch():
    """Payne and Hanek's product of 64 bits stands once, in the loop for units that need it."""
    text = flat.inspect("f32[?]", "f32[?]", target="cpu:x86-64-v4", stage="llvm")
    assert "vector.body" in text
    assert text.count("or <16 x i1>") or text.count("or <16 x i8>"), "units are asked in lanes"
