"""Units that jump behind the last barrier on their way do not disturb the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def cont_tail(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    acc = 0.0
    for k in range(n):
        s[t] = x[t] + k
        cp.sync_cube()
        v = s[(t + 1) % 8]
        cp.sync_cube()
        if (t + k) % 2 == 0:
            continue
        acc += v
    out[t] = acc


@cp.cube
def cont_nested(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    acc = 0.0
    for k in range(n):
        cp.sync_cube()
        s[t] = x[t] + k
        cp.sync_cube()
        if k % 2 == 0:
            if t < 3:
                continue
            acc += 1.0
        else:
            cp.sync_cube()
            acc += s[(t + 1) % 8]
            cp.sync_cube()
        acc += 2.0
    out[t] = acc


@cp.cube
def ret_else(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    if t < n:
        out[t] = -1.0
        return
    else:
        cp.sync_cube()
        out[t] = s[7 - t]


@cp.cube
def ret_loop(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    acc = 0.0
    for k in range(n):
        s[t] = x[t] + k
        cp.sync_cube()
        acc += s[(t + 1) % 8]
        cp.sync_cube()
        if t == k:
            out[t] = acc
            return
    out[t] = -acc


@cp.cube
def ret_nested(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    acc = 0.0
    for k in range(n):
        s[t] = x[t] + k
        cp.sync_cube()
        acc += s[(t + 1) % 8]
        cp.sync_cube()
        if k > 1:
            if t == k:
                out[t] = acc
                return
            acc += 1.0
        else:
            cp.sync_cube()
            acc += 2.0
    out[t] = -acc


@cp.cube
def ret_path(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    cp.sync_cube()
    if n > 3:
        if t > 3:
            return
        out[t] = s[7 - t]
    else:
        if t > 5:
            return
        cp.sync_cube()
        out[t] = s[t]
    out[t] += 1.0


@cp.cube
def two_jumps(x, out, n: cp.i64):
    """Both ways of a branch go on after it, and one of them jumps deeper inside."""
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    total, count = 0.0, 0
    for k in range(n):
        cp.sync_cube()
        s[t] = x[t] + k
        cp.sync_cube()
        if t % 2 == 0:
            if t == k:
                continue
            total += s[7 - t]
        elif t > 5:
            count += 10
            continue
        count += 1
        if total > 40.0:
            total -= 1.0
            continue
        total += 0.5
    out[t] = total * 1000.0 + count


KERNELS = [cont_tail, cont_nested, ret_else, ret_loop, ret_nested, ret_path, two_jumps]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_jumps_behind_the_last_barrier(device: str, kernel: Any):
    x = np.arange(8, dtype=np.float32) ** 2
    if device == "pocl" and kernel is ret_path:
        pytest.skip("PoCL 3.1 stores in both branches around a barrier; see docs/testing.md")
    own = cp.device(device).target.plane_dim
    for plane in {own, 4} if own == 1 else {own}:
        for n in (0, 1, 3, 5):
            out, wanted = np.zeros((2, 8), np.float32)
            kernel.configure(device="interpreter", plane_dim=plane)[1, 8](x, wanted, n)
            kernel.configure(device=device, plane_dim=plane)[1, 8](x, out, n)
            np.testing.assert_array_equal(out, wanted)


@cp.cube
def jumps_over_a_barrier(x, n: cp.i64):
    for k in range(n):
        if cp.UNIT_POS == k:
            continue
        cp.sync_cube()
        x[cp.UNIT_POS] += 1.0


def test_jumps_over_a_barrier_are_refused(device: str):
    x = np.zeros(8, np.float32)
    with pytest.raises(cp.Error, match="E307|E713"):
        jumps_over_a_barrier.configure(device=device)[1, 8](x, 3)


# Bounds of barriers that units find with effects of their own, and on which they agree


@cp.cube
def counted_bound(m, hits, x, out, first: cp.i64):
    """`rounds` is computed by a loop that counts; some units have returned before."""
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    if t < first:
        return
    rounds, last = 0, 0
    while m[rounds] > 0:
        cp.atomic.add(hits, 0, 1)
        last += m[rounds]
        rounds += 1
    for _ in range(last):
        cp.sync_cube()
        v = s[(t + 1) % 8]
        cp.sync_cube()
        s[t] = v + rounds
    out[t] = s[t] + last


@cp.cube
def counted_choice(m, hits, x, out, first: cp.i64):
    """A branch that some loop of units decides, beside a value that they do not share."""
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    own, k = 0.0, 0
    while m[k] > 0:
        own += x[t] * k
        cp.atomic.add(hits, 0, 2)
        k += 1
    if k > first:
        s[t] = own
        cp.sync_cube()
        out[t] = s[7 - t]
    else:
        out[t] = own + k


@pytest.mark.parametrize("kernel", [counted_bound, counted_choice], ids=lambda k: k.__name__)
def test_units_agree_on_what_each_computes(device: str, kernel: Any):
    x, m = np.arange(8, dtype=np.float32) ** 2, np.array([2, 1, 3, 0], np.int32)
    for first in (0, 1, 2, 5, 8):
        out, wanted = np.zeros((2, 8), np.float32)
        hits, expected = np.zeros((2, 1), np.int32)
        kernel.configure(device="interpreter")[1, 8](m, expected, x, wanted, first)
        for checked in (False, True):
            out[:], hits[:] = 0, 0
            kernel.configure(device=device, checked=checked)[1, 8](m, hits, x, out, first)
            np.testing.assert_array_equal(out, wanted)
            assert hits == expected
