"""Barriers, planes and atomics on the interpreter, through launches."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp


def on(kernel, **settings):
    return kernel.configure(device="interpreter", **settings)


# Barriers


@cp.cube
def tree_sum(x, out):
    s = cp.shared(64, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[cp.ABSOLUTE_POS]
    cp.sync_cube()
    n = cp.CUBE_DIM // 2
    while n > 0:
        if t < n:
            s[t] += s[t + n]
        cp.sync_cube()
        n = n // 2
    if t == 0:
        out[cp.CUBE_POS] = s[0]


def test_a_tree_reduction():
    x = np.arange(256, dtype=np.float32)
    out = np.zeros(4, np.float32)
    on(tree_sum)[4, 64](x, out)
    assert (out == x.reshape(4, 64).sum(1)).all()


@cp.cube
def tiled_transpose(x, out):
    tile = cp.shared((8, 9), cp.f32)
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < x.shape[0] and j < x.shape[1]:
        tile[cp.UNIT_POS_Y, cp.UNIT_POS_X] = x[i, j]
    cp.sync_cube()
    i = cp.CUBE_POS_X * 8 + cp.UNIT_POS_Y
    j = cp.CUBE_POS_Y * 8 + cp.UNIT_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = tile[cp.UNIT_POS_X, cp.UNIT_POS_Y]


def test_a_tiled_transpose():
    x = np.random.default_rng(1).random((19, 13), np.float32)
    out = np.zeros((13, 19), np.float32)
    on(tiled_transpose)[(2, 3), (8, 8)](x, out)
    assert (out == x.T).all()


@cp.cube
def reversed_in_place(x):
    i = cp.UNIT_POS
    if i >= x.size:
        return
    v = x[x.size - 1 - i]
    cp.sync_cube()
    x[i] = v


def test_units_that_returned_count_as_present():
    x = np.arange(5, dtype=np.float32)
    on(reversed_in_place)[1, 8](x)
    assert list(x) == [4, 3, 2, 1, 0]


@cp.cube
def wait_for(v):
    cp.sync_cube()
    return v + 1


@cp.cube
def helper_waits(x, out):
    s = cp.shared(4, cp.i32)
    s[cp.UNIT_POS] = x[cp.UNIT_POS]
    cp.sync_cube()
    for _ in range(3):
        s[cp.UNIT_POS] = wait_for(s[(cp.UNIT_POS + 1) % 4])
        cp.sync_cube()
    out[cp.UNIT_POS] = s[cp.UNIT_POS]


def test_barriers_inside_helpers():
    out = np.zeros(4, np.int32)
    on(helper_waits)[1, 4](np.arange(4, dtype=np.int32), out)
    assert list(out) == [6, 3, 4, 5]


# Planes


@cp.cube
def reductions(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    out[0, i] = cp.plane_sum(v)
    out[1, i] = cp.plane_prod(v)
    out[2, i] = cp.plane_min(v)
    out[3, i] = cp.plane_max(v)
    out[4, i] = cp.plane_inclusive_sum(v)
    out[5, i] = cp.plane_exclusive_sum(v)
    out[6, i] = cp.plane_inclusive_prod(v)
    out[7, i] = cp.plane_exclusive_prod(v)


def butterfly(values, combine):
    """What the table promises: lane k with lane k xor d, for d = n / 2, ..., 1."""
    d = len(values) // 2
    while d:
        values = [combine(values[k], values[k ^ d]) for k in range(len(values))]
        d //= 2
    return values


def scan(values, combine, start):
    sums = [np.float32(start)]
    for v in values:
        sums.append(combine(sums[-1], v))
    return sums[1:], sums[:-1]


@pytest.mark.parametrize("width", [1, 8, 32])
def test_reductions_and_scans_are_exact(width):
    x = np.random.default_rng(2).normal(1, 0.3, 64).astype(np.float32)
    out = np.zeros((8, 64), np.float32)
    on(reductions, plane_dim=width)[2, 32](x, out)
    for start in range(0, 64, width):
        plane, found = list(x[start : start + width]), out[:, start : start + width]
        for row, combine in enumerate((np.add, np.multiply, np.minimum, np.maximum)):
            assert list(found[row]) == butterfly(plane, combine)
        for row, combine, unit in ((4, np.add, 0), (6, np.multiply, 1)):
            inclusive, exclusive = scan(plane, combine, unit)
            assert list(found[row]) == inclusive and list(found[row + 1]) == exclusive


@cp.cube
def exchanges(x, out):
    i = cp.ABSOLUTE_POS
    v = x[i]
    lane = cp.UNIT_POS_PLANE
    out[0, i] = cp.plane_shuffle(v, (lane + 3) % cp.PLANE_DIM)
    out[1, i] = cp.plane_shuffle_xor(v, 1)
    out[2, i] = cp.plane_shuffle_up(v, 2)
    out[3, i] = cp.plane_shuffle_down(v, 2)
    out[4, i] = cp.plane_broadcast(v, 5)
    out[5, i] = cp.where(cp.plane_any(v > 40), 1, 0)
    out[6, i] = cp.where(cp.plane_all(v > 10), 1, 0)
    out[7, i] = cp.where(cp.plane_elect(), 1, 0)
    out[8, i] = cp.i32(cp.plane_ballot(v % 3 == 0))


def test_shuffles_and_votes():
    x = np.arange(64, dtype=np.int32)
    out = np.zeros((9, 64), np.int32)
    on(exchanges, plane_dim=8)[2, 32](x, out)
    planes = x.reshape(8, 8)
    assert (out[0].reshape(8, 8) == np.roll(planes, -3, 1)).all()
    assert (out[1] == x ^ 1).all()
    lanes = np.arange(8)
    assert (out[2].reshape(8, 8) == np.where(lanes < 2, planes, planes - 2)).all()
    assert (out[3].reshape(8, 8) == np.where(lanes > 5, planes, planes + 2)).all()
    assert (out[4].reshape(8, 8) == planes[:, 5:6]).all()
    assert (out[5] == np.repeat(planes.max(1) > 40, 8)).all()
    assert (out[6] == np.repeat(planes.min(1) > 10, 8)).all()
    assert (out[7].reshape(8, 8) == (lanes == 0)).all()
    ballots = ((planes % 3 == 0) << lanes).sum(1)
    assert (out[8] == np.repeat(ballots, 8)).all()


@cp.cube
def after_returns(x, out):
    i = cp.ABSOLUTE_POS
    if i % 2 == 0:
        return
    out[0, i] = cp.plane_sum(x[i])
    out[1, i] = cp.plane_max(x[i])
    out[2, i] = cp.i32(cp.plane_ballot(True))
    out[3, i] = cp.where(cp.plane_elect(), 1, 0)
    out[4, i] = cp.plane_shuffle_xor(x[i], 1)


def test_units_that_returned_give_the_identity():
    x = -np.arange(1, 13, dtype=np.int32)
    out = np.zeros((5, 12), np.int32)
    on(after_returns, plane_dim=8)[1, 12](x, out)
    assert list(out[0, 1::2]) == [-20] * 4 + [-22] * 2
    assert list(out[1, 1::2]) == [-2] * 4 + [-10] * 2
    assert list(out[2, 1::2]) == [0b10101010] * 4 + [0b1010] * 2
    assert list(out[3, 1::2]) == [1, 0, 0, 0, 1, 0]
    assert not out[4].any()


@cp.cube
def plane_neighbours(x, out):
    s = cp.shared(32, cp.f32)
    i = cp.UNIT_POS
    s[i] = x[i]
    cp.sync_plane()
    out[i] = s[i ^ 1]


def test_a_plane_barrier_orders_its_units():
    x = np.arange(32, dtype=np.float32)
    out = np.zeros_like(x)
    on(plane_neighbours, plane_dim=8)[1, 32](x, out)
    assert (out == x.reshape(-1, 2)[:, ::-1].ravel()).all()


@cp.cube
def line_planes(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    out[cp.UNIT_POS] = cp.plane_sum(x[cp.UNIT_POS])


def test_planes_of_lines():
    x = np.arange(32, dtype=np.float32)
    out = np.zeros_like(x)
    on(line_planes, plane_dim=8, line_size=4)[1, 8](x, out)
    assert (out.reshape(8, 4) == x.reshape(8, 4).sum(0)).all()


# Atomics


@cp.cube
def histogram(x, counts, seen):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        seen[i] = cp.atomic.add(counts, x[i], 1)


def test_atomic_adds_across_cubes():
    x = np.random.default_rng(3).integers(0, 5, 100).astype(np.int32)
    counts, seen = np.zeros(5, np.int32), np.zeros(100, np.int32)
    on(histogram).over(x, cube_dim=16)(x, counts, seen)
    assert (counts == np.bincount(x, minlength=5)).all()
    assert all(sorted(seen[x == v]) == list(range(counts[v])) for v in range(5))


@cp.cube
def every_atomic(x, out):
    i = cp.UNIT_POS
    v = cp.i32(i) + 1
    cp.atomic.sub(out, 0, v)
    cp.atomic.min(out, 1, v)
    cp.atomic.max(out, 2, v)
    cp.atomic.and_(out, 3, v)
    cp.atomic.or_(out, 4, v)
    cp.atomic.xor(out, 5, v)
    cp.atomic.exchange(out, 6, v)
    cp.atomic.cas(out, 7, v - 1, v)
    x[i] = cp.atomic.load(out, 6)


def test_the_other_atomics():
    x, out = np.zeros(4, np.int32), np.array([0, 9, 0, 7, 0, 0, 0, 0], np.int32)
    on(every_atomic)[1, 4](x, out)
    assert list(out) == [-10, 1, 4, 0, 7, 4, 4, 4] and list(x) == [1, 2, 3, 4]


@cp.cube
def last_block_sums(x, partial, counter, out):
    """The cube that comes last reads what the others wrote: a fence and an atomic order them."""
    last = cp.shared(1, cp.i32)
    if cp.UNIT_POS == 0:
        partial[cp.CUBE_POS] = x[cp.CUBE_POS] * 2
        cp.sync_storage()
        last[0] = cp.atomic.add(counter, 0, 1)
    cp.sync_cube()
    if last[0] == cp.CUBE_COUNT - 1:
        if cp.UNIT_POS == 0:
            total = cp.f32(0)
            for k in range(partial.size):
                total += partial[k]
            out[0] = total


def test_fences_and_atomics_order_cubes():
    x, partial = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    counter, out = np.zeros(1, np.int32), np.zeros(1, np.float32)
    on(last_block_sums)[6, 4](x, partial, counter, out)
    assert out[0] == 30


# Memory


@cp.cube
def every_type(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = x[i]


@pytest.mark.parametrize(
    "dtype",
    ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
    + ["bfloat16", "float8_e4m3fn", "float8_e5m2"],
)
def test_every_element_type(dtype):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.array([0, 1, 1.5, 100], np.float32).astype(dtype)
    out = np.zeros(4, dtype)
    on(every_type)[1, 4](x, out)
    assert x.tobytes() == out.tobytes()


def test_strided_and_reversed_arrays():
    x = np.arange(24, dtype=np.float32)[::-3]
    out = np.zeros(16, np.float32)[::-2]
    on(every_type)[1, 8](x, out)
    assert (out == x).all()


@cp.cube
def in_place(x, y):
    i = cp.ABSOLUTE_POS
    y[i] = x[i] + 1


def test_an_array_given_twice():
    x = np.arange(8, dtype=np.float32)
    on(in_place)[2, 4](x, x)
    assert list(x) == [1, 2, 3, 4, 5, 6, 7, 8]


@cp.cube
def partial_lines(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2


def test_lines_with_missing_lanes():
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    out = np.zeros_like(x)
    on(partial_lines).over(out)(x, out)
    assert (out == 2 * x).all()


def test_empty_launches():
    x = np.zeros(0, np.float32)
    on(every_type)[0, 4](x, x.copy())
    on(every_type).over(x)(x, x.copy())


# The device


def test_the_device_is_listed_after_the_cpu():
    names = [d.name for d in cp.devices()]
    assert names[0] == "cpu" and "interpreter" in names
    device = cp.device("interpreter")
    assert device.target.kind == "interpreter" and device.target.plane_dim == 1
    assert device.properties.cores == 1


def test_inspection_shows_python():
    text = every_type.inspect("f32[8]", "f32[8]", target="interpreter")
    assert "def every_type(_unit, UNIT_POS" in text and ".store(" in text


@cp.cube
def say(x):
    print("unit", cp.UNIT_POS, f"has {x[cp.UNIT_POS]} of {{}}")


def test_print(capsys):
    on(say)[1, 2](np.array([1.5, 2.5], np.float32))
    assert capsys.readouterr().out == "unit 0 has 1.5 of {}\nunit 1 has 2.5 of {}\n"
