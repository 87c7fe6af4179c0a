"""Atomics and fences of the LLVM compiler: what they order, and what needs no lock."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp

ARM = "cpu:neoverse-n1"


@cp.cube
def last_cube_sums(x, partial, counter, out):
    last = cp.shared(1, cp.i32)
    if cp.UNIT_POS == 0:
        total = cp.f32(0)
        for k in range(cp.CUBE_POS, x.size, cp.CUBE_COUNT):
            total += x[k]
        partial[cp.CUBE_POS] = total
        cp.sync_storage()
        last[0] = cp.atomic.add(counter, 0, 1)
    cp.sync_cube()
    if last[0] == cp.CUBE_COUNT - 1:
        if cp.UNIT_POS == 0:
            total = cp.f32(0)
            for k in range(partial.size):
                total += partial[k]
            out[0] = total


def test_fences_order_stores_before_atomics_before_loads():
    """The store, the fence, an atomic that acquires, then the loads."""
    text = last_cube_sums.inspect("f32[?]", "f32[?]", "i32[1]", "f32[1]", target=ARM, stage="asm")
    fence, atomic = text.index("\tdmb\tish\n"), text.index("\tldadda\t")
    assert fence < atomic
    assert re.search(r"\tldr\ts\d|\tldp\t[qs]\d", text[atomic:])
    own = last_cube_sums.inspect("f32[?]", "f32[?]", "i32[1]", "f32[1]", stage="llvm")
    assert "fence seq_cst" in own


def test_the_last_cube_sees_what_others_wrote():
    x, out = np.ones(4096, np.float32), np.zeros(1, np.float32)
    for _ in range(200):
        partial, counter = np.full(256, np.nan, np.float32), np.zeros(1, np.int32)
        out[0] = 0
        last_cube_sums[256, 4](x, partial, counter, out)
        assert out[0] == 4096


@cp.cube
def updates(x, out, olds):
    """Every atomic on shared memory, by all units in turn."""
    held = cp.shared(8, x.dtype)
    t = cp.UNIT_POS
    if t < 8:
        held[t] = x[t]
    cp.sync_cube()
    v = x[t]
    olds[t, 0] = cp.atomic.add(held, 0, v)
    olds[t, 1] = cp.atomic.min(held, 1, v)
    olds[t, 2] = cp.atomic.max(held, 2, v)
    olds[t, 3] = cp.atomic.sub(held, 3, v)
    olds[t, 4] = cp.atomic.exchange(held, 4, v)
    olds[t, 5] = cp.atomic.cas(held, 5, x[3], v)
    cp.sync_cube()
    olds[t, 6] = cp.atomic.load(held, t % 8)
    if t < 8:
        out[t] = held[t]


TYPES = ["i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", *("bfloat16", "float8_e4m3fn")]


@pytest.mark.parametrize("name", [*TYPES, "float8_e5m2"])
@pytest.mark.parametrize("make", [lambda u: u, lambda u: u.configure(plane_dim=8)])
def test_atomics_on_shared_memory(name: str, make: Any):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    low = 0 if dtype.kind == "u" else -9
    x = np.random.default_rng(3).integers(low, 9, 24).astype(dtype)
    results = []
    for device in ("interpreter", "cpu"):
        out, olds = np.zeros(8, dtype), np.zeros((24, 7), dtype)
        make(updates).configure(device=device)[1, 24](x, out, olds)
        results.append((out.tobytes(), olds.tobytes()))
    assert results[0] == results[1]


def test_shared_memory_needs_no_locked_instruction():
    text = updates.inspect("i32[24]", "i32[8]", "i32[24,7]", target="cpu:x86-64-v3", stage="asm")
    assert "lock" not in text and "xchg" not in text
    assert "lock" in last_cube_sums.inspect(
        "f32[?]", "f32[?]", "i32[1]", "f32[1]", target="cpu:x86-64-v3", stage="asm"
    )


@cp.cube
def bits_of_bools(x, out):
    t = cp.UNIT_POS
    cp.atomic.or_(out, 0, x[t])
    cp.atomic.and_(out, 1, x[t])
    cp.atomic.xor(out, 2, x[t])
    cp.atomic.exchange(out, 3, x[t])


@pytest.mark.parametrize("device", ["interpreter", "cpu"])
def test_atomics_of_bools(device: str):
    x, out = np.array([True, True, False, True]), np.array([False, True, False, False])
    bits_of_bools.configure(device=device)[1, 4](x, out)
    assert out.view(np.uint8).tolist() == [1, 0, 1, 1]


@cp.cube
def sum_of_bools(x, out):
    cp.atomic.add(out, 0, x[cp.UNIT_POS])


def test_bools_have_no_sum():
    x = np.ones(4, bool)
    with pytest.raises(cp.CompileError, match=r"E201.*\n(.*\n)*.*or_, xor"):
        sum_of_bools[1, 4](x, x.copy())


@cp.cube
def sums(x, out):
    i = cp.ABSOLUTE_POS
    cp.atomic.add(out, 0, x[i])
    cp.atomic.max(out, 1, x[i])
    cp.atomic.min(out, 2, x[i])


@pytest.mark.parametrize("name", ["f2", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_are_added_by_all_cubes(name: str):
    """Sums that are exact where few are under way, and neighbours that share a word with them."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x = np.tile(np.array([1, -1], dtype), 4096)
    out = np.array([1, 0, 0, 7], dtype)
    with cp.settings(num_threads=4):  # the f8 of two bits has all integers up to 8
        sums[-(-x.size // 32), 32](x, out)
    assert out.astype(np.float64).tolist() == [1.0, 1.0, -1.0, 7.0]
