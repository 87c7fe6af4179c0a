"""Planes that go their own ways around plane operations, where they exchange through memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import cubepy as cp

DEVICES = ("interpreter", "cpu", "pocl", "metal_text")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, require_text_device: Callable[[str], None]) -> str:
    if request.param not in ("interpreter", "cpu"):
        require_text_device(request.param)
    return request.param


@cp.cube
def row_maxima(x, out):
    row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    if row < out.size:
        largest = -cp.f32(np.inf)
        for j in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM):
            largest = max(largest, x[row, j])
        largest = cp.plane_max(largest)
        if cp.plane_elect():
            out[row] = largest


def test_a_plane_for_each_row(device: str):
    x = np.random.default_rng(0).random((21, 100)).astype(np.float32)
    out = np.zeros(21, np.float32)
    row_maxima.configure(plane_dim=32, device=device).over(21, per="plane")(x, out)
    np.testing.assert_array_equal(out, x.max(axis=1))


@cp.cube
def nested(x, out):
    plane, i = cp.UNIT_POS // cp.PLANE_DIM, cp.UNIT_POS
    s = x[i]
    if plane < 3:
        if plane > 0:
            s = cp.plane_sum(s) + plane
            if plane == 2:
                out[i] = s
                return
        else:
            s = s + cp.plane_max(x[i])
        for k in range(out.shape[0] % 3 + 1):
            s = s + cp.plane_shuffle(s, k)
    else:
        s = s * 2
    out[i] = s + cp.plane_max(s)


def test_branches_in_branches_with_returns_and_loops(device: str):
    x = np.random.default_rng(1).integers(0, 100, 160).astype(np.int32)
    out = np.zeros(160, np.int32)
    nested.configure(plane_dim=32, device=device)[1, 160](x, out)
    planes = x.reshape(5, 32).astype(np.int64)
    expected = np.zeros((5, 32), np.int64)
    for plane, own in enumerate(planes):
        s = own
        if plane == 2:
            expected[plane] = own.sum() + 2
            continue
        if plane < 3:
            s = np.full(32, own.sum() + 1) if plane else own + own.max()
            for k in range(160 % 3 + 1):
                s = s + s[k]
        else:
            s = own * 2
        expected[plane] = s + s.max()
    np.testing.assert_array_equal(out, expected.reshape(-1))


@cp.cube
def own_trips(x, out):
    s = x[cp.UNIT_POS]
    for _ in range(cp.UNIT_POS // cp.PLANE_DIM):
        s += cp.plane_sum(s)
    out[cp.UNIT_POS] = s


def test_loops_that_planes_run_differently_are_refused():
    kernel = own_trips.configure(plane_dim=32)[1, 64]
    with pytest.raises(cp.UnsupportedError, match=r"E310: `cp\.plane_sum`.*opencl.*equally often"):
        kernel.inspect("i32[64]", "i32[64]", target="opencl")
    assert "__shfl" in kernel.inspect("i32[64]", "i32[64]", target="cuda:sm_90a")


@cp.cube
def divergent(x, out):
    if cp.UNIT_POS < 4:
        out[cp.UNIT_POS] = cp.plane_sum(x[cp.UNIT_POS])


@pytest.mark.parametrize("target", ["opencl", "cuda:sm_90a", "metal"])
def test_a_divergent_plane_operation_names_the_plane(target: str):
    with pytest.raises(cp.CompileError, match=r"E307: `plane_sum`.*units of the plane"):
        divergent.configure(plane_dim=32)[1, 64].inspect("i32[64]", "i32[64]", target=target)
