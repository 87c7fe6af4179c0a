"""Loop fission: barriers that all units reach work, others are refused at their line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.checked.lines import line_of


@cp.cube
def by_position(x, out, n: cp.i64):
    if cp.UNIT_POS < 2:
        cp.sync_cube()  # by_position
    out[cp.UNIT_POS] = x[0]


@cp.cube
def by_trips(x, out, n: cp.i64):
    for _ in range(cp.UNIT_POS):
        cp.sync_cube()  # by_trips
    out[cp.UNIT_POS] = x[0]


@cp.cube
def by_memory(x, out, n: cp.i64):
    if x[cp.UNIT_POS] > 0:
        cp.sync_cube()  # by_memory
    out[cp.UNIT_POS] = x[0]


@cp.cube
def by_while(x, out, n: cp.i64):
    k = cp.UNIT_POS
    while k < 4:
        cp.sync_cube()  # by_while
        k += 1
    out[cp.UNIT_POS] = x[0]


@cp.cube
def by_break(x, out, n: cp.i64):
    for k in range(n):
        if k == cp.UNIT_POS:
            break
        cp.sync_cube()  # by_break
    out[cp.UNIT_POS] = x[0]


@pytest.mark.parametrize("kernel", [by_position, by_trips, by_memory, by_while, by_break])
def test_divergent_barriers_are_refused(kernel: Any):
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(cp.CompileError) as caught:
        kernel[1, 8](x, out, 3)
    assert caught.value.code == "E307" and not out.any()
    assert caught.value.span is not None
    assert caught.value.span.line == line_of(__file__, kernel.__name__)


@cp.cube
def uniform(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    for k in range(n):
        cp.sync_cube()
        v = s[(t + 1) % 8]
        cp.sync_cube()
        if n > 1 or cp.CUBE_POS == 5:
            cp.sync_cube()
        s[t] = v + cp.f32(k)
    out[t] = s[t]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_uniform_barriers_work(n: int):
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    uniform[1, 8](x, out, n)
    assert out.tolist() == (np.roll(x, -n) + sum(range(n))).tolist()


@cp.cube
def some_leave(x, out, n: cp.i64):
    s = cp.shared(8, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    if t < n:
        return
    cp.sync_cube()
    out[t] = s[7 - t] + 1.0
    if t % 2 == 0:
        return
    cp.sync_cube()
    out[t] += 10.0


@pytest.mark.parametrize("plane", [1, 8])
@pytest.mark.parametrize("n", [0, 3, 8])
def test_units_that_returned_do_nothing_more(n: int, plane: int):
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    some_leave.configure(plane_dim=plane)[1, 8](x, out, n)
    wanted = [0.0 if t < n else 8.0 - t + (10.0 if t % 2 else 0.0) for t in range(8)]
    assert out.tolist() == wanted


@cp.cube
def cubes_leave(x, out):
    t = cp.UNIT_POS
    if cp.ABSOLUTE_POS == 2:
        return
    cp.sync_cube()
    out[cp.ABSOLUTE_POS] = x[t] + 1.0


def test_every_cube_begins_with_all_units():
    x, out = np.zeros(4, np.float32), np.zeros(16, np.float32)
    cubes_leave[4, 4](x, out)
    assert out.tolist() == [0.0 if k == 2 else 1.0 for k in range(16)]


@cp.cube
def plane_sums(x, out):
    t = cp.UNIT_POS
    if t == 1:
        return
    out[t] = cp.plane_sum(x[t % 12])


@pytest.mark.parametrize("units", [8, 9, 12, 15])
def test_the_padding_of_the_last_plane_takes_no_part(units: int):
    x, out = np.ones(16, np.float32), np.zeros(16, np.float32)
    plane_sums.configure(plane_dim=8)[1, units](x, out)
    sums = [7.0] * 8 + [units - 8.0] * (units - 8) + [0.0] * (16 - units)
    assert out.tolist() == [0.0 if t == 1 else s for t, s in enumerate(sums)]


@cp.cube
def rows_turn(x, out):
    """Rows of a cube differ in what they do, and each is a plane: it meets for itself."""
    held = cp.shared((4, 8), x.dtype)
    row, t = cp.UNIT_POS_Y, cp.UNIT_POS_X
    for step in range(row):
        held[row, t] = x[row, t] + step
        cp.sync_plane()
        out[row, t] = held[row, 7 - t]
        cp.sync_plane()


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_planes_meet_without_plane_operations(device: str):
    x, out = np.arange(32, dtype=np.float32).reshape(4, 8), np.full((4, 8), -1, np.float32)
    rows_turn.configure(device=device, plane_dim=8)[1, (8, 4)](x, out)
    steps = np.arange(-1, 3)[1:, None]
    np.testing.assert_array_equal(out[1:], x[1:, ::-1] + steps)
    assert (out[0] == -1).all()


def test_rows_that_planes_do_not_fill_may_not_differ():
    x = np.zeros((4, 8), np.float32)
    with pytest.raises(cp.CompileError, match="E307.*sync_plane"):
        rows_turn.configure(plane_dim=16)[1, (8, 4)](x, x.copy())


FAR = 1 << 40
"""Elements behind which nothing can be read: a kernel that does crashes the process."""


@cp.cube
def trips_from_memory(x, out, n: cp.i64, far: cp.i64):
    if cp.ABSOLUTE_POS >= n:
        return
    trips = x[cp.CUBE_POS * far]
    seen = cp.shared(8, cp.i32)
    for j in range(trips):
        seen[cp.UNIT_POS] = j
        cp.sync_cube()
        if x[cp.CUBE_POS * far + j % 2] > j:
            cp.sync_cube()
            out[cp.ABSOLUTE_POS] += seen[7 - cp.UNIT_POS]
        cp.sync_cube()


@cp.cube
def trips_of_planes(x, out, n: cp.i64, far: cp.i64):
    if cp.ABSOLUTE_POS >= n:
        return
    trips = x[cp.ABSOLUTE_POS // 8 * far]
    for j in range(trips):
        out[cp.ABSOLUTE_POS] += cp.plane_max(cp.i32(j))


@cp.cube
def trips_after_some_trips(x, out, n: cp.i64, far: cp.i64):
    """Units return one by one, until the last cube (or plane) has none left in a loop."""
    i = cp.ABSOLUTE_POS
    for k in range(12):
        if i >= n - k:
            return
        trips = x[0 if k < n else far]
        for j in range(trips):
            cp.sync_cube()
            out[i] += cp.plane_max(cp.i32(j))


@pytest.mark.parametrize("plane", [1, 8])
@pytest.mark.parametrize("kernel", [trips_from_memory, trips_of_planes, trips_after_some_trips])
def test_cubes_and_planes_without_active_units_load_nothing(kernel: Any, plane: int):
    x, outs = np.full(2, 3, np.int32), []
    for device in ("interpreter", "cpu"):
        out = np.zeros(8, np.int32)
        kernel.configure(device=device, plane_dim=plane)[4, 16](x, out, 8, FAR)
        outs.append(out.tolist())
    assert outs[0] == outs[1] and any(outs[0])


@cp.cube
def plane_of_some(x):
    if cp.UNIT_POS % 3 == 0:
        x[cp.UNIT_POS] = cp.plane_sum(x[cp.UNIT_POS])


@pytest.mark.parametrize("target", ["cpu", "opencl", "cuda:sm_80", "metal"])
def test_errors_name_the_plane(target: str):
    with pytest.raises(cp.CompileError, match="E307.*units of the plane, which must"):
        plane_of_some.configure(plane_dim=32).inspect("f32[?]", target=target)


@cp.cube
def planes_by_other_names(out: cp.Tensor[cp.i32]):
    held = cp.shared(64, cp.i32)
    p, x = cp.UNIT_POS, cp.UNIT_POS_X
    held[p] = cp.i32(p)
    cp.sync_cube()
    values = (
        *((p % 32) // 8, (p % 16) >> 3, cp.i32(p) >> 3, (cp.i32(p) % 16 + 24) // 8, cp.i8(p) // 8),
        *((cp.ABSOLUTE_POS + 16) % 32 // 8, x // 8, cp.ABSOLUTE_POS_X // 8, (cp.i32(p) - 32) // 8),
        *(cp.ABSOLUTE_POS_X % 24 // 8, cp.i16(p % 48) >> 4),
    )
    total = cp.i32(0)
    for j in cp.unroll(range(11)):
        value = cp.i32(values[j])
        if value % 2 == 0:
            total = total * 3 + value + cp.plane_sum(held[p])
        out[cp.ABSOLUTE_POS * 11 + j] = value + total


@pytest.mark.parametrize("dim", [(32, 2), (16, 2, 2), (64,)])
def test_what_is_made_of_positions_is_that_of_the_plane(dim: tuple[int, ...]):
    results = [np.full(128 * 11, -1, np.int32) for _ in range(3)]
    for options, out in zip(
        ({"device": "interpreter"}, {}, {"vectorise": True}), results, strict=True
    ):
        planes_by_other_names.configure(plane_dim=8, **options)[2, dim](out)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
