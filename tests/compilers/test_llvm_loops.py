"""Loops in LLVM: ranges at the edge of 64 bits run as in Python, loops over units in vectors."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from bench.stencils import flat_stencil_of_numbers
from cubepy.compilers.llvm import unit_loops

HIGH, LOW = 2**63 - 1, -(2**63)
MANY = 20
RANGES = [
    (HIGH - 5, HIGH, 3),
    (HIGH - 5, HIGH, 1),
    (LOW + 4, LOW, -3),
    (LOW + 4, LOW, -1),
    (0, HIGH, HIGH - 1),
    (0, HIGH, HIGH),
    (HIGH, LOW, LOW),
    (HIGH, LOW, -HIGH),
    (LOW, HIGH, HIGH),
    (LOW, HIGH, 2**62),
    (HIGH - 1, HIGH, 7),
    (0, 9, LOW),
    (LOW, LOW + 3, 2),
    (LOW + 3, LOW, -2),
    (5, 0, -2),
    (0, 5, 2),
    (0, 0, 3),
    (3, 0, 2),
]


@cp.cube
def counted(out, start: cp.i64, stop: cp.i64, step: cp.i64):
    trips = 0
    last = cp.i64(0)
    for k in range(start, stop, step):
        trips += 1
        last = k
        if trips >= MANY:
            break
    out[0] = trips
    out[1] = last


@cache
def counted_by(step: int) -> Any:
    @cp.cube
    def fixed(out, start: cp.i64, stop: cp.i64):
        trips = 0
        last = cp.i64(0)
        for k in range(start, stop, step):
            if trips < 0:
                continue
            trips += 1
            last = k
            if trips >= MANY:
                break
        out[0] = trips
        out[1] = last

    return fixed


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_ranges_end(device: str, bounds: tuple[int, int, int]):
    positions = range(*bounds)
    seen = [k for k, _ in zip(positions, range(MANY), strict=False)]
    wanted = [len(seen), seen[-1] if seen else 0]
    for kernel, args in ((counted, bounds), (counted_by(bounds[2]), bounds[:2])):
        out = np.zeros(2, np.int64)
        kernel.configure(device=device)[1, 1](out, *args)
        assert out.tolist() == wanted


@cp.cube
def by_way_of(d, k: int):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < d.shape[0] and j < d.shape[1]:
        d[i, j] = min(d[i, j], d[i, k] + d[k, j])


def test_units_do_not_wait_for_each_others_stores():
    """No tests for overlap, and no copy of the loop for where there is some."""
    text = by_way_of.inspect("f32[?,?]", "i64", stage="llvm", target="cpu:x86-64-v4")
    assert "vector.body" in text and "memcheck" not in text
    d = np.random.default_rng(5).uniform(0, 1, (70, 70)).astype(np.float32)
    np.fill_diagonal(d, 0)
    expected = d.copy()
    for k in range(70):
        expected = np.minimum(expected, expected[:, k, None] + expected[None, k])
        by_way_of[(1, 70), (128, 1)](d, k)
    np.testing.assert_array_equal(d, expected)


@cp.cube
def turned_by_units(x, out):
    """An array of each unit, and the same one for all that run in turn."""
    held = cp.local(4, cp.f32)
    i = cp.ABSOLUTE_POS
    for k in cp.unroll(range(4)):
        held[(k + i) % 4] = x[i] + k
    out[i] = held[0] * 10 + held[3]


def test_arrays_of_units_are_not_shared_by_lanes():
    x, out, wanted = np.arange(512, dtype=np.float32), *np.zeros((2, 512), np.float32)
    turned_by_units[2, 256](x, out)
    turned_by_units.configure(device="interpreter")[2, 256](x, wanted)
    np.testing.assert_array_equal(out, wanted)


@cp.cube
def smoothed(x, out):
    p = cp.ABSOLUTE_POS
    if p < out.size:
        out[p] = x[p] + x[p + 1] + x[p + 2]


@pytest.mark.parametrize("kernel", [smoothed, flat_stencil_of_numbers])
def test_units_do_not_keep_loads_of_their_neighbours(kernel: Any):
    """A loop that carried them would depend on itself; a vector of it would be put together."""
    x = np.arange(1026, dtype=np.float32)
    out = np.zeros(1024, np.float32)
    numbers = () if kernel is smoothed else (32, 32)
    text = kernel.over(out).inspect(x, out, *numbers, target="cpu:skylake-avx512", stage="llvm")
    assert "fsub <16 x float>" in text or "fadd <16 x float>" in text
    assert "vector.recur" not in text


@cp.cube
def tree_sum(x, out, n: int):
    s = cp.shared(64, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    cp.sync_cube()
    for k in cp.unroll(range(3)):
        if t < 32 >> k:
            s[t] += s[t + (32 >> k)]
        cp.sync_cube()
    width = 4
    while width > 0:
        if width > t:
            s[t] += s[t + width]
        cp.sync_cube()
        width //= 2
    if t < n:
        out[t] = s[0] + t
    cp.sync_cube()
    if t < n // 2:
        out[t] = -out[t]
    cp.sync_cube()
    if n >= t:
        out[t] += 1


@pytest.mark.parametrize("n", [-3, 0, 1, 5, 64, 100])
@pytest.mark.parametrize("plane_dim", [1, 8])
def test_segments_run_for_the_units_below_a_limit(n: int, plane_dim: int):
    x, out, wanted = np.arange(64, dtype=np.float32), *np.zeros((2, 64), np.float32)
    tree_sum.configure(plane_dim=plane_dim)[1, 64](x, out, n)
    units = np.arange(64)
    wanted[units < n] = x.sum() + units[units < n]
    wanted[units < n // 2] *= -1
    wanted[units <= n] += 1
    np.testing.assert_array_equal(out, wanted)


@cp.cube
def unrolled_tree_sum(x, out):
    s = cp.shared(64, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    cp.sync_cube()
    for k in cp.unroll(range(6)):
        if t < 32 >> k:
            s[t] += s[t + (32 >> k)]
        cp.sync_cube()
    out[t] = s[0]


def test_segments_of_some_units_need_no_masks():
    launch = unrolled_tree_sum[1, 64]
    text = launch.inspect("f32[64]", "f32[64]", target="cpu:x86-64-v4", stage="llvm")
    assert "<4 x float>" in text and "masked" not in text


@cp.cube
def inverted(m, out):
    i = cp.ABSOLUTE_POS
    if i < m.shape[0]:
        a, b, c, d = m[i, 0, 0], m[i, 1, 1], m[i, 2, 2], m[i, 0, 2]
        out[i, 0, 0], out[i, 1, 1], out[i, 2, 2], out[i, 0, 2] = b * c, a * c, a * b, -d * b


@cp.cube
def scanned(x, out):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        total = cp.i32(0)
        for k in range(x.shape[1]):
            total += cp.i32(x[i, k])
            out[i, k] = total


def test_records_that_llvm_would_gather_stay_scalar(monkeypatch: pytest.MonkeyPatch):
    """In the version for the extents that places imply."""
    found, decide = list[bool](), unit_loops.goes_by_records

    def noted(*given: Any) -> bool:
        found.append(decide(*given))
        return found[-1]

    monkeypatch.setattr(unit_loops, "goes_by_records", noted)
    m = np.random.default_rng(1).standard_normal((101, 3, 3))
    out = np.zeros_like(m)
    with cp.settings(cache=False):
        inverted.over(101)(m, out)
    assert found == [True, False]
    right = np.zeros_like(m)
    right[:, 0, 0], right[:, 1, 1] = m[:, 1, 1] * m[:, 2, 2], m[:, 0, 0] * m[:, 2, 2]
    right[:, 2, 2], right[:, 0, 2] = m[:, 0, 0] * m[:, 1, 1], -m[:, 0, 2] * m[:, 1, 1]
    np.testing.assert_allclose(out, right, 1e-12)


@pytest.mark.parametrize("columns", [1, 7, 8, 40, 129])
def test_running_integers(columns: int):
    x = np.random.default_rng(2).integers(0, 256, (9, columns)).astype(np.uint8)
    out = np.zeros(x.shape, np.int32)
    scanned.over(9)(x, out)
    np.testing.assert_array_equal(out, x.cumsum(axis=1))
    text = scanned.over(9).inspect(x, out, target="cpu", stage="llvm")
    assert ".epil" in text  # iterations that unrolling leaves over
