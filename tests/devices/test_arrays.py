"""`cp.asarray` and friends, views and copies, on devices with memory of their own."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp
from tests.devices.kernels import add, increment, scale


@pytest.mark.parametrize("dtype", ["f32", "i64", "u8", "f16", "bf16", "bool"])
def test_there_and_back(device: str, dtype: str):
    held = np.asarray(cp.asarray(np.arange(35).reshape(5, 7), dtype=dtype).numpy())
    there = cp.asarray(held, device=device)
    assert there.device == device and there.shape == (5, 7) and there.dtype == dtype
    np.testing.assert_array_equal(there.numpy(), held)
    np.testing.assert_array_equal(there.to("cpu").numpy(), held)


def test_views(device: str):
    held = np.random.default_rng(1).normal(size=(6, 8, 5)).astype(np.float32)
    there = cp.asarray(held, device=device)
    for key in [0, (1, 2), (slice(1, 5, 2),), (..., -1), (None, 3), (slice(None, None, -1), 2)]:
        np.testing.assert_array_equal(there[key].numpy(), held[key])
    np.testing.assert_array_equal(there.reshape(-1, 5).numpy(), held.reshape(-1, 5))
    np.testing.assert_array_equal([a.numpy() for a in there[2]], held[2])
    assert there[1, 2, 3].item() == held[1, 2, 3]
    with pytest.raises(ValueError, match="copy"):
        there[:, ::2].reshape(-1)
    with pytest.raises(IndexError):
        there[[0, 1]]


def test_kernels_write_views(device: str):
    there = cp.zeros((8, 6), device=device)
    increment.over(there)(there)
    part = there[1:7:2, ::-2]
    increment.over(part)(part)
    expected = np.ones((8, 6), np.float32)
    expected[1:7:2, ::-2] += 1
    np.testing.assert_array_equal(there.numpy(), expected)


def test_launches_follow_arguments(device: str):
    dtype = np.float32 if device.startswith("metal") else np.float64  # Metal has no double
    held = [np.random.default_rng(k).normal(size=1003).astype(dtype) for k in (1, 2)]
    x, y = (cp.asarray(a, device=device) for a in held)
    out = cp.empty(1003, dtype, device)
    add.over(out)(x, y, out)
    np.testing.assert_array_equal(out.numpy(), x.numpy() + y.numpy())


def test_queued_launches_keep_their_order(device: str):
    x = cp.zeros(1 << 16, device=device)
    for _ in range(50):
        increment.over(x)(x)
    np.testing.assert_array_equal(x.numpy(), np.full(1 << 16, 50, np.float32))


def test_arrays_may_die_while_kernels_run(device: str):
    out = cp.empty(1 << 20, device=device)
    for k in range(20):
        x = cp.full(1 << 20, k, device=device)
        scale.over(out)(x, 2.0, out)
        del x
    np.testing.assert_array_equal(out.numpy(), np.full(1 << 20, 38, np.float32))


def test_two_places_are_refused(device: str):
    x, y = cp.zeros(4, device=device), np.zeros(4, np.float32)
    with pytest.raises(cp.LaunchError, match=f"E418.*`y` is on cpu, but `x` is on {device}"):
        add.over(y)(x, y, y)


def test_empty_and_scalar_arrays(device: str):
    nothing = cp.empty((0, 3), device=device)
    increment.over(nothing)(nothing)
    assert nothing.numpy().shape == (0, 3)
    one = cp.asarray(2.5, dtype="f32", device=device)
    increment.over(one)(one)
    assert one.item() == 3.5 and one.shape == ()
