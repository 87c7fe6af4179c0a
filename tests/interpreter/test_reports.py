"""Each kind of report: what it says, where it points, and its attributes."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp

HERE = str(Path(__file__))
F32 = np.float32


def line_of(mark: str) -> int:
    """The number of the line with this comment."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [k for k, text in enumerate(lines, 1) if text.endswith(f"# {mark}")]
    return number


def report(kernel, grid, *args, **settings) -> Any:
    """The error of a launch on the interpreter."""
    with pytest.raises(cp.Error) as caught:
        kernel.configure(device="interpreter", **settings)[grid](*args)
    return caught.value


def check(error, code: str, message: str, mark: str, unit=(0, 0, 0), cube: int = 0) -> None:
    first = str(error).splitlines()[0]
    assert first == f"{code}: {message}"
    line = line_of(mark)
    assert f"{HERE}:{line}:" in str(error).splitlines()[1]
    assert (error.line, error.unit, error.cube) == (line, unit, cube)
    assert (error.kernel, error.code) == (message.split(":")[0], code)


# Bounds, division, assertions


@cp.cube
def too_far(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = x[i + 1]  # too far


def test_out_of_bounds():
    x = np.zeros(8, F32)
    error = report(too_far, (2, 4), x, x.copy())
    where = "unit (3, 0, 0) of cube 1"
    message = f"too_far: index 8 is out of bounds for axis 0 of `x` with extent 8, in {where}"
    check(error, "E701", message, "too far", (3, 0, 0), 1)
    assert isinstance(error, cp.OutOfBoundsError) and isinstance(error, IndexError)
    assert (error.argument, error.axis, error.index) == ("x", 0, 8)
    assert "guard the access" in str(error) and "^^^^^" in str(error)


@cp.cube
def shared_too_far(x):
    s = cp.shared((2, 4), cp.f32)
    s[cp.UNIT_POS_Y, cp.UNIT_POS_X] = 1.0  # shared too far


def test_out_of_bounds_in_shared_memory():
    error = report(shared_too_far, (1, (4, 3)), np.zeros(8, F32))
    where = "unit (0, 2, 0) of cube 0"
    message = (
        f"shared_too_far: index 2 is out of bounds for axis 0 of `s` with extent 2, in {where}"
    )
    check(error, "E701", message, "shared too far", (0, 2, 0))


@cp.cube
def divided(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = x[i] // x[i - i]  # divided


def test_division_by_zero():
    x, out = np.arange(4, dtype=np.int32), np.ones(4, np.int32)
    divided.configure(device="interpreter")[1, 4](x, out)  # 0 by definition
    assert not out.any()
    error = report(divided, (1, 4), x, out, checked=True)
    message = "divided: an integer is divided by zero in unit (0, 0, 0) of cube 0"
    check(error, "E702", message, "divided")


@cp.cube
def asserted(x):
    v = x[cp.UNIT_POS]
    assert v < 3, "v is small"  # asserted


def test_failed_assertion():
    error = report(asserted, (1, 4), np.arange(4, dtype=F32))
    message = "asserted: assertion failed: v is small, in unit (3, 0, 0) of cube 0"
    check(error, "E703", message, "asserted", (3, 0, 0))
    assert isinstance(error, cp.CheckError)


# Races


@cp.cube
def read_after_write(x, out):
    s = cp.shared(4, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]  # raw writes
    out[t] = s[t] if t == 0 else s[t - 1]  # raw reads


def test_a_race_of_a_read_with_a_write():
    error = report(read_after_write, (1, 4), np.zeros(4, F32), np.zeros(4, F32))
    message = (
        "read_after_write: data race on element 0 of `s`: unit (1, 0, 0) of cube 0 reads it here, "
        f"unit (0, 0, 0) of cube 0 writes it at {HERE}:{line_of('raw writes')}"
    )
    check(error, "E711", message, "raw reads", (1, 0, 0))
    assert "put cp.sync_cube() between the two, or use cp.atomic" in str(error)
    assert error.argument == "s"


@cp.cube
def write_after_read(x, out):
    t = cp.UNIT_POS
    v = x[(t + 1) % x.size]  # war reads
    x[t] = v  # war writes


def test_a_race_of_a_write_with_a_read():
    error = report(write_after_read, (1, 4), np.zeros(4, F32), np.zeros(4, F32))
    message = (
        "write_after_read: data race on element 1 of `x`: unit (1, 0, 0) of cube 0 writes it here, "
        f"unit (0, 0, 0) of cube 0 reads it at {HERE}:{line_of('war reads')}"
    )
    check(error, "E711", message, "war writes", (1, 0, 0))


@cp.cube
def write_after_write(out):
    out[cp.UNIT_POS // 2] = 1.0  # waw


def test_a_race_of_two_writes():
    error = report(write_after_write, (1, 4), np.zeros(4, F32))
    message = (
        "write_after_write: data race on element 0 of `out`: unit (1, 0, 0) of cube 0 writes it "
        f"here, unit (0, 0, 0) of cube 0 writes it at {HERE}:{line_of('waw')}"
    )
    check(error, "E711", message, "waw", (1, 0, 0))


@cp.cube
def cubes_share(out):
    if cp.UNIT_POS == 0:
        out[cp.CUBE_POS // 2] += 1.0  # across


def test_a_race_across_cubes():
    error = report(cubes_share, (2, 4), np.zeros(4, F32))
    message = (
        "cubes_share: data race on element 0 of `out`: unit (0, 0, 0) of cube 1 reads it here, "
        f"unit (0, 0, 0) of cube 0 writes it at {HERE}:{line_of('across')}"
    )
    check(error, "E711", message, "across", cube=1)
    assert "let one cube own the element" in str(error)


@cp.cube
def mixed(out):
    t = cp.UNIT_POS
    if t == 0:
        cp.atomic.add(out, 0, 1.0)  # mixed atomic
    else:
        out[0] = 2.0  # mixed plain


def test_a_race_of_a_write_with_an_atomic():
    error = report(mixed, (1, 2), np.zeros(1, F32))
    message = (
        "mixed: data race on element 0 of `out`: unit (1, 0, 0) of cube 0 writes it here, "
        f"unit (0, 0, 0) of cube 0 updates it at {HERE}:{line_of('mixed atomic')}"
    )
    check(error, "E711", message, "mixed plain", (1, 0, 0))


@cp.cube
def plane_barrier_is_not_enough(x, out):
    s = cp.shared(16, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    cp.sync_plane()
    out[t] = s[(t + 8) % 16]  # planes


def test_a_plane_barrier_does_not_order_planes():
    x = np.zeros(16, F32)
    error = report(plane_barrier_is_not_enough, (1, 16), x, x.copy(), plane_dim=8)
    assert error.code == "E712" and "with cp.sync_cube() between" in str(error)
    assert error.line == line_of("planes")


@cp.cube
def aliased(x, out):
    t = cp.UNIT_POS
    out[t] = x[x.size - 1 - t]  # aliased


def test_a_race_between_two_arguments_of_one_array():
    x = np.zeros(4, F32)
    error = report(aliased, (1, 4), x, x)
    assert error.code == "E711" and error.line == line_of("aliased")


@cp.cube
def no_races(x, out):
    s = cp.shared(4, cp.f32)
    t = cp.UNIT_POS
    s[t] = x[t]
    cp.sync_cube()
    v = s[3 - t] + x[0]
    cp.sync_cube()
    s[3 - t] = v
    cp.sync_cube()
    out[t] = s[t]


def test_barriers_order_accesses():
    x, out = np.arange(4, dtype=F32), np.zeros(4, F32)
    no_races.configure(device="interpreter")[1, 4](x, out)
    assert list(out) == [0, 1, 2, 3]


# Reads that nothing wrote


@cp.cube
def unset_local(out):
    a = cp.local(4, cp.f32)
    for k in range(3):
        a[k] = 1.0
    out[cp.UNIT_POS] = a[cp.UNIT_POS]  # unset


def test_a_read_that_nothing_wrote():
    error = report(unset_local, (1, 4), np.zeros(4, F32))
    message = (
        "unset_local: element 3 of `a` is read before anything wrote it, in "
        "unit (3, 0, 0) of cube 0"
    )
    check(error, "E712", message, "unset", (3, 0, 0))
    assert "fill=0" in str(error)


# Divergence


@cp.cube
def divergent_barrier(x):
    if cp.UNIT_POS < 2:
        cp.sync_cube()  # divergent
    x[cp.UNIT_POS] = 1.0  # passed by


def test_a_divergent_barrier():
    error = report(divergent_barrier, (1, 4), np.zeros(4, F32))
    message = (
        "divergent_barrier: unit (0, 0, 0) of cube 0 waits at `sync_cube`, but unit (2, 0, 0) of "
        f"cube 0 ended without it (line {line_of('passed by')})"
    )
    check(error, "E713", message, "divergent")
    assert "the same for all units of the cube" in str(error)


@cp.cube
def two_barriers(x):
    if cp.UNIT_POS < 2:
        cp.sync_cube()  # one barrier
    else:
        cp.sync_cube()  # other barrier


def test_two_barriers_do_not_meet():
    error = report(two_barriers, (1, 4), np.zeros(4, F32))
    message = (
        "two_barriers: unit (0, 0, 0) of cube 0 waits at `sync_cube`, but unit (2, 0, 0) of cube 0 "
        f"waits at `sync_cube` at {HERE}:{line_of('other barrier')}"
    )
    check(error, "E713", message, "one barrier")


@cp.cube
def different_iterations(x):
    for k in range(4):
        if (k + cp.UNIT_POS) % 2 == 0:
            cp.sync_cube()  # iterations


def test_one_barrier_in_different_iterations():
    error = report(different_iterations, (1, 2), np.zeros(4, F32))
    message = (
        "different_iterations: unit (0, 0, 0) of cube 0 waits at `sync_cube`, but "
        "unit (1, 0, 0) of cube 0 is in another iteration of the loop"
    )
    check(error, "E713", message, "iterations")


@cp.cube
def divergent_sum(x):
    i = cp.UNIT_POS
    if i % 8 < 4:
        x[i] = cp.plane_sum(x[i])  # divergent sum


def test_a_divergent_plane_operation():
    error = report(divergent_sum, (1, 16), np.zeros(16, F32), plane_dim=8)
    first = str(error).splitlines()[0]
    assert first.startswith(
        "E713: divergent_sum: unit (0, 0, 0) of cube 0 waits at `plane_sum`, but unit (4, 0, 0) of "
        "cube 0 ended without it"
    )
    assert error.line == line_of("divergent sum") and "of the plane" in str(error)


def test_a_plane_of_one_unit_never_diverges():
    divergent_sum.configure(device="interpreter")[1, 16](np.zeros(16, F32))


# Errors as exceptions


@cp.cube
def reads_at(x, i):
    v = x[i]  # in the helper
    return v


@cp.cube
def calls_helper(x, out):
    out[cp.UNIT_POS] = reads_at(x, cp.UNIT_POS + 2)  # in the kernel


def test_the_traceback_ends_in_the_users_lines():
    error = report(calls_helper, (1, 4), np.zeros(4, F32), np.zeros(4, F32))
    frames = traceback.extract_tb(error.__traceback__)
    assert [(f.filename, f.lineno, f.name) for f in frames[-2:]] == [
        (HERE, line_of("in the kernel"), "calls_helper"),
        (HERE, line_of("in the helper"), "reads_at"),
    ]
    assert "called from" in str(error)
    inner = error.__traceback__
    while inner and inner.tb_next:
        inner = inner.tb_next
    assert inner and inner.tb_frame.f_locals["UNIT_POS"] == 2
    assert inner.tb_frame.f_locals["i"] == 4


def test_every_launch_raises_again():
    x = np.zeros(8, F32)
    launcher = too_far.configure(device="interpreter")[2, 4]
    for _ in range(3):
        with pytest.raises(cp.OutOfBoundsError):
            launcher(x, x.copy())


def test_defects_of_ours_are_not_swallowed(monkeypatch):
    from cubepy.runtimes.interpreter.memory import Buffer

    def broken(*args):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Buffer, "load", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        too_far.configure(device="interpreter")[1, 1](np.zeros(8, F32), np.zeros(8, F32))
