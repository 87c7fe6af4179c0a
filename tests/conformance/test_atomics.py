"""Each atomic with a step, on every device: units of several cubes update the same elements."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir import ops
from cubepy.ir.opdef import OpDef, TypingError
from cubepy.ir.types import DType, f32, i32, i64, u32
from tests.conformance.operations import numpy_type
from tests.guarded import Guarded

WRITTEN: dict[OpDef, Any] = {
    ops.ATOMIC_ADD: cp.atomic.add,
    ops.ATOMIC_MUL: cp.atomic.mul,
    ops.ATOMIC_MIN: cp.atomic.min,
    ops.ATOMIC_MAX: cp.atomic.max,
    ops.ATOMIC_AND: cp.atomic.and_,
    ops.ATOMIC_OR: cp.atomic.or_,
    ops.ATOMIC_XOR: cp.atomic.xor,
}
ROWS = [row for row in ops.ATOMICS if row.step is not None]
BINS = 5


@cp.cube
def update(f: cp.Comptime, x, out):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        f(out, i % out.size, x[i])


@cp.cube
def update_shared(f: cp.Comptime, x, out):
    bins = cp.shared(BINS, out.dtype)
    if cp.UNIT_POS == 0:
        for k in range(out.size):
            bins[k] = out[k]
    cp.sync_cube()
    for i in range(cp.UNIT_POS, x.size, cp.CUBE_DIM):
        f(bins, i % out.size, x[i])
    cp.sync_cube()
    if cp.UNIT_POS == 0:
        for k in range(out.size):
            out[k] = bins[k]


def test_every_atomic_is_written():
    assert list(WRITTEN) == ROWS


@pytest.mark.parametrize("dtype", [i32, u32, i64, f32], ids=str)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_updates_of_all_units_count(device: str, is_slow: bool, row: OpDef, dtype: DType):
    step = row.step
    assert step is not None and step.meaning is not None
    try:
        step.rule((dtype, dtype), {})
    except TypingError:
        return  # bits of floats; the errors' tests refuse them
    rng = np.random.default_rng(7)
    count = 60 if is_slow else 700
    low = 1 if dtype in (u32, f32) else -9
    x = rng.integers(low, 9, count).astype(numpy_type(dtype))
    if dtype is f32:  # sums and products without rounding, in any order
        x = np.where(rng.random(count) < 0.5, 0.5, 2).astype(np.float32)
    start = rng.integers(1, 9, BINS).astype(x.dtype)
    if device == "metal_text" and dtype is i64:  # Metal has atomics of 32 bits
        with pytest.raises(cp.UnsupportedError, match="E310"):
            update.configure(device=device)[1, 64](WRITTEN[row], x, start)
        return
    for kernel, cubes in ((update, -(-count // 64)), (update_shared, 1)):
        out = Guarded(start.shape, start.dtype)
        out.array[:] = start
        kernel.configure(device=device)[cubes, 64](WRITTEN[row], x, out.array)
        for k in range(BINS):
            expected = reduce(partial(step.meaning, dtype), x[k::BINS].tolist(), start[k].item())
            assert out.array[k] == expected, (kernel, k)
        out.check(out.array)


@cp.cube
def last_cube_sums(x, parts, done, out):
    """Each cube writes a part; the one that comes last adds all of them."""
    if cp.UNIT_POS == 0:
        part = 0
        for k in range(8):
            part += x[cp.CUBE_POS * 8 + k]
        parts[cp.CUBE_POS] = part
        cp.sync_storage()
        if cp.atomic.add(done, 0, 1) == cp.CUBE_COUNT - 1:
            cp.sync_storage()
            for k in range(cp.CUBE_COUNT):
                out[0] += parts[k]


def test_what_is_written_before_a_fence_is_seen_after_an_atomic(device: str, is_slow: bool):
    if device == "oclgrind":
        pytest.skip("Oclgrind orders nothing by fences: it reports what they make right as a race")
    cubes = 20 if is_slow else 500
    x = np.random.default_rng(8).integers(0, 100, 8 * cubes).astype(np.int32)
    if device == "metal_text":
        with pytest.raises(cp.UnsupportedError, match="E310: `cp.sync_storage`"):
            last_cube_sums.configure(device=device)[cubes, 32](x, x, x, x)
        return
    for _ in range(3):
        parts = np.full(cubes, -1, np.int32)
        done, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
        last_cube_sums.configure(device=device)[cubes, 32](x, parts, done, out)
        assert out[0] == x.sum() and done[0] == cubes
