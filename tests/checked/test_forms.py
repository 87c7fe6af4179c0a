"""Faulty accesses that need kernels of their own: line tensors, layouts, slices, lanes, loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.checked.lines import line_of
from tests.guarded import Guarded

DEVICES = ["cpu", "interpreter"]
F32 = np.float32


@cp.cube
def line_tensor(x: cp.Lines[cp.f32], out, i: cp.i64):
    out[0] = x[i].sum()  # line_tensor


@cp.cube
def line_tensor_2d(x: cp.Lines[cp.f32], out, i: cp.i64):
    out[0] = x[1, i].sum()  # line_tensor_2d


@cp.cube
def line_tensor_flat(x: cp.Lines[cp.f32], out, i: cp.i64):
    out[0] = x.flat[i].sum()  # line_tensor_flat


@cp.cube
def line_tensor_write(x: cp.Lines[cp.f32], out, i: cp.i64):
    x[i] = cp.Line[cp.f32, x.line_size](1.0)  # line_tensor_write


@cp.cube
def shared_lines(x, out, i: cp.i64):
    s = cp.shared(4, cp.Line[cp.f32, 4])
    s[i] = cp.Line[cp.f32, 4](1.0)  # shared_lines
    out[0] = s[i].sum()


@cp.cube
def slice_below(x, out, i: cp.i64):
    out[0] = x[i:][2]  # slice_below


@cp.cube
def slice_of_lines(x: cp.Lines[cp.f32], out, i: cp.i64):
    out[0] = x[i:][0].sum()  # slice_of_lines


@cp.cube
def slice_cut(x, out, i: cp.i64):
    out[0] = x[1:i][i]  # slice_cut


@cp.cube
def columns(x, out, i: cp.i64):
    out[0] = x[i, 1]  # columns


@cp.cube
def flat_of_columns(x, out, i: cp.i64):
    out[0] = x.flat[i]  # flat_of_columns


@cp.cube
def scalar(x, out, i: cp.i64):
    out[0] = x.flat[i]  # scalar


@cp.cube
def chosen_lane(x, out, i: cp.i64):
    line = cp.load(x, 0, line=4)
    out[0] = line[i]  # chosen_lane


@cp.cube
def too_many_trips(x, out, i: cp.i64):
    total = 0.0
    for k in range(i):
        total += x[k]  # too_many_trips
    out[0] = total


@cp.cube
def backwards(x, out, i: cp.i64):
    total = 0.0
    for k in range(7, i, -1):
        total += x[k]  # backwards
    out[0] = total


@cp.cube
def wrong_axis(x, out, i: cp.i64):
    if i < x.shape[1]:
        out[0] = x[i, 0]  # wrong_axis


@cp.cube
def guard_of_the_other(x, out, i: cp.i64):
    if i >= 0 and i < x.size:
        out[i] = x.flat[i]  # guard_of_the_other


@cp.cube
def off_by_one(x, out, i: cp.i64):
    if i <= x.size:
        out[0] = x[i]  # off_by_one


@cp.cube
def short_circuited(x, out, i: cp.i64):
    if i > 5 and x[i] > 0:  # short_circuited
        out[0] = 1.0


@cp.cube
def in_a_condition(x, out, i: cp.i64):
    while x[i] < 1:  # in_a_condition
        i += 3
    out[0] = 1.0


@cp.cube
def chosen_value(x, out, i: cp.i64):
    out[0] = x[i] if i > 3 else x[0]  # chosen_value


@cp.cube
def converted(x, out, i: cp.i64):
    out[0] = x[cp.u8(i)]  # converted


@cp.cube
def matched(x, out, i: cp.i64):
    match i:
        case 8:
            out[0] = x[i]  # matched
        case _:
            out[0] = x[7]


# kernel, shape of x, index given -> (argument, axis, index, extent), a legal index
CASES: list[tuple[Any, Any, int, tuple[str, int, int, int], int | None]] = [
    (line_tensor, (32,), 8, ("x", 0, 8, 8), 7),
    (line_tensor, (30,), 8, ("x", 0, 8, 8), 7),
    (line_tensor, (30,), -1, ("x", 0, -1, 8), 0),
    (line_tensor_2d, (3, 8), 2, ("x", 1, 2, 2), 1),
    (line_tensor_flat, (3, 8), 6, ("x", 0, 6, 6), 5),
    (line_tensor_flat, (3, 7), 6, ("x", 0, 6, 6), 5),
    (line_tensor_write, (32,), 8, ("x", 0, 8, 8), 7),
    (line_tensor_write, (30,), 2**59, ("x", 0, 2**59, 8), 7),
    (shared_lines, (8,), 4, ("s", 0, 4, 4), 3),
    (shared_lines, (8,), -1, ("s", 0, -1, 4), 0),
    (slice_below, (8,), -1, ("x", 0, -1, 8), 5),
    (slice_below, (8,), 6, ("x", 0, 2, 2), 5),
    (slice_below, (8,), 2**62, ("x", 0, 2, 0), 5),
    (slice_of_lines, (32,), 2**61 + 1, ("x", 0, 0, 0), 7),
    (slice_of_lines, (32,), -1, ("x", 0, -1, 8), 7),
    (slice_cut, (8,), 3, ("x", 0, 3, 2), None),
    (slice_cut, (8,), -3, ("x", 0, -3, 0), None),
    (columns, (4, 6), 4, ("x", 0, 4, 4), 3),
    (flat_of_columns, (4, 6), 24, ("x", 0, 24, 24), 23),
    (flat_of_columns, (4, 6), -1, ("x", 0, -1, 24), 0),
    (scalar, (), 1, ("x", 0, 1, 1), 0),
    (chosen_lane, (8,), 4, ("line", 0, 4, 4), 3),
    (chosen_lane, (8,), -1, ("line", 0, -1, 4), 0),
    (too_many_trips, (8,), 9, ("x", 0, 8, 8), 8),
    (backwards, (8,), -2, ("x", 0, -1, 8), -1),
    (wrong_axis, (4, 6), 4, ("x", 0, 4, 4), 3),
    (wrong_axis, (4, 6), -1, ("x", 0, -1, 4), 0),
    (guard_of_the_other, (4, 6), 8, ("out", 0, 8, 8), 7),
    (off_by_one, (8,), 8, ("x", 0, 8, 8), 7),
    (off_by_one, (8,), -1, ("x", 0, -1, 8), 0),
    (short_circuited, (8,), 8, ("x", 0, 8, 8), 2),
    (in_a_condition, (8,), 1, ("x", 0, 10, 8), None),
    (chosen_value, (8,), 8, ("x", 0, 8, 8), -5),
    (converted, (8,), -1, ("x", 0, 255, 8), 256),
    (matched, (8,), 8, ("x", 0, 8, 8), 9),
]
FORTRAN = (columns, flat_of_columns)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{c[1]}-{c[2]}")
def test_fault(case: Any, device: str):
    kernel, shape, given, reported, legal = case
    x, out = Guarded(shape), Guarded(8)
    x.array[...], out.array[...] = 0, 0
    seen = x.array.reshape(shape[::-1]).T if kernel in FORTRAN else x.array
    launcher = kernel.configure(device=device, checked=True, line_size=4)[1, 1]
    with pytest.raises(cp.OutOfBoundsError) as caught:
        launcher(seen, out.array, given)
    error = caught.value
    assert (error.argument, error.axis, error.index, error.extent) == reported, str(error)
    assert (error.kernel, error.line) == (kernel.__name__, line_of(__file__, kernel.__name__))
    assert (error.code, error.unit, error.cube) == ("E701", (0, 0, 0), 0)
    assert x.is_fenced and out.is_fenced
    if legal is not None:
        launcher(seen, out.array, legal)
        assert x.is_fenced and out.is_fenced


@cp.cube
def partial_line(x, out, i: cp.i64):
    cp.store(out, 0, cp.load(x, i, line=4, fill=9))
    cp.store(out.flat, 4, cp.load(x.flat, i, line=4, fill=7))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("i", [-(2**40), -5, -4, -1, 0, 4, 6, 8, 2**60])
def test_lines_with_a_fill_may_leave_the_tensor(i: int, device: str):
    x, out = Guarded(8), Guarded(8)
    x.array[...] = np.arange(8)
    partial_line.configure(device=device, checked=True)[1, 1](x.array, out.array, i)
    lanes = range(i, i + 4)
    wanted = [float(k) if 0 <= k < 8 else fill for fill in (9, 7) for k in lanes]
    out.check(wanted)
    assert x.is_fenced


@cp.cube
def far_line(x, out, i: cp.i64):
    cp.store(out, 0, cp.load(x, i, line=4, fill=9))  # far_line


@pytest.mark.parametrize("device", DEVICES)
def test_the_place_of_a_line_is_index_arithmetic(device: str):
    x, out = np.zeros(8, F32), np.zeros(8, F32)
    with pytest.raises(cp.CheckError, match=r"the index 8 - -9223372036854775808 leaves") as caught:
        far_line.configure(device=device, checked=True)[1, 1](x, out, -(2**63))
    assert caught.value.line == line_of(__file__, "far_line")


@cp.cube
def prefetched(x, out, i: cp.i64):
    cp.prefetch(x, i)
    out[0] = x[0]


@pytest.mark.parametrize("device", DEVICES)
def test_prefetches_take_any_address(device: str):
    x, out = np.ones(8, F32), np.zeros(8, F32)
    prefetched.configure(device=device, checked=True)[1, 1](x, out, 10**6)
    assert out[0] == 1


@cp.cube
def a_view_by_name(x, out, i: cp.i64):
    row = x[2]
    out[0] = row[i]  # a_view_by_name


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_tells_the_axis_of_its_tensor(device: str):
    x, out = np.ones((4, 6), F32), np.zeros(8, F32)
    with pytest.raises(cp.OutOfBoundsError) as caught:
        a_view_by_name.configure(device=device, checked=True)[1, 1](x, out, 6)
    assert (caught.value.axis, caught.value.extent) == (1, 6)


@cp.cube
def aligned(x, out, i: cp.i64):
    out[0] = cp.f32(cp.misalignment(x, i, line=4))


@pytest.mark.parametrize("device", DEVICES)
def test_the_alignment_of_any_address_may_be_asked_for(device: str):
    x, out = np.ones(8, F32), np.zeros(8, F32)
    launcher = aligned.configure(device=device, checked=True)[1, 1]
    for i in (0, 9, 1001, -3):
        launcher(x, out, i)
        assert out[0] == (x.ctypes.data // 4 + i) % 4
