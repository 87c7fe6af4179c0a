"""Boxes of ragged tensor maps: they begin at any row, and end where a count of rows ends."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def move(
    x: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    spans: cp.Tensor[cp.i32],
    first_head: cp.i32,
) -> None:
    """Copy rows of a span of each cube to the same place, through shared memory."""
    barrier = cp.shared(1, cp.u64)
    tile = cp.shared(x.box, x.dtype)
    if cp.UNIT_POS == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
    cp.sync_cube()
    if cp.UNIT_POS == 0:
        phase = cp.i32(0)
        begin, count = spans[cp.CUBE_POS, 0], spans[cp.CUBE_POS, 1]
        for row in range(0, count, x.box[2]):
            cp.cuda.bulk_wait()
            cp.cuda.barrier_expect(barrier, 0, x.nbytes)
            origin = *cp.cuda.ragged_rows(begin, count, row), first_head, 0
            cp.cuda.tensor_load(tile, (0, 0, 0, 0, 0), x, origin, barrier, 0)
            cp.cuda.barrier_wait(barrier, 0, phase)
            phase = phase ^ 1
            origin = *cp.cuda.ragged_rows(begin, count, row), first_head, 0
            cp.cuda.tensor_store(out, origin, tile, (0, 0, 0, 0, 0))
            cp.cuda.bulk_commit()
        cp.cuda.bulk_wait()


@cp.cube
def read(x: cp.cuda.TensorMap, out: cp.Tensor, begin: cp.i32, count: cp.i32) -> None:
    """All of one box."""
    barrier = cp.shared(1, cp.u64)
    tile = cp.shared(x.box, x.dtype)
    if cp.UNIT_POS == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
        origin = *cp.cuda.ragged_rows(begin, count), 0
        cp.cuda.tensor_load(tile, (0, 0, 0, 0), x, origin, barrier, 0)
    cp.sync_cube()
    cp.cuda.barrier_wait(barrier, 0, 0)
    for i in range(cp.UNIT_POS, tile.size, cp.CUBE_DIM):
        out.flat[i] = tile.flat[i]


@pytest.mark.parametrize("rows", [1, 8, 16, 64])
def test_only_rows_of_the_span_are_written(hopper: str, rows: int):
    x = np.random.default_rng(rows).standard_normal((1000, 6, 64)).astype(np.float16)
    placed = cp.asarray(x, device=hopper)
    out = cp.asarray(np.full_like(x, np.nan), device=hopper)
    spans = np.array([(3, 10), (13, 0), (13, 100), (200, 64), (264, 1), (900, 100)], np.int32)
    box = rows, 2, 64
    given, taken = (cp.cuda.tensor_map_ragged(m, box, swizzle=128) for m in (placed, out))
    move[len(spans), 32](given, taken, cp.asarray(spans, device=hopper), 2)
    expected = np.full_like(x, np.nan)
    for begin, count in spans:
        part = slice(begin, begin + count), slice(2, 4)
        expected[part] = x[part]
    np.testing.assert_array_equal(out.numpy(), expected)


def test_what_lies_behind_the_span_is_zero(hopper: str):
    x = np.random.default_rng(1).standard_normal((300, 64)).astype(np.float32)
    x[150:] = np.nan
    placed = cp.asarray(x, device=hopper)
    for begin, count in ((0, 150), (149, 1), (20, 100), (86, 64), (7, 0)):
        out = cp.asarray(np.full((64, 32), np.nan, np.float32), device=hopper)
        read[1, 128](cp.cuda.tensor_map_ragged(placed, (64, 32)), out, begin, count)
        expected = np.zeros((64, 32), np.float32)
        expected[: min(64, count)] = x[begin : begin + min(64, count), :32]
        np.testing.assert_array_equal(out.numpy(), expected)
