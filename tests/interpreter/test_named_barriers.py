"""Barriers of some units on the interpreter: what they order, and units that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

UNITS = 12


def run(kernel: Any, plane_dim: int = 4, cubes: int = 1) -> np.ndarray:
    out = np.zeros(cubes * UNITS, np.int32)
    kernel.configure(device="interpreter", plane_dim=plane_dim)[cubes, UNITS](out)
    return out


@cp.cube
def relay(out):
    """The first plane writes, the second reads and passes on, the third reads that."""
    held = cp.shared(UNITS, cp.i32)
    u, p = cp.UNIT_POS, cp.UNIT_POS // 4
    if p == 0:
        held[u] = u + 1
        cp.sync_units(1, 8)
    elif p == 1:
        cp.sync_units(1, 8)
        held[u] = held[7 - u] * 10
        cp.sync_units(2, 8)
    else:
        cp.sync_units(2, 8)
        out[u] = held[u - 4] + held[u - 8]


def test_what_one_barrier_orders_others_pass_on():
    assert list(run(relay)[8:]) == [40 + 1, 30 + 2, 20 + 3, 10 + 4]


@cp.cube
def no_relay(out):
    held = cp.shared(UNITS, cp.i32)
    u, p = cp.UNIT_POS, cp.UNIT_POS // 4
    if p == 0:
        cp.sync_units(1, 8)
        held[u] = u
    elif p == 1:
        cp.sync_units(1, 8)
        cp.sync_units(2, 8)
    else:
        cp.sync_units(2, 8)
        out[u] = held[u - 8]


def test_what_comes_after_a_barrier_is_not_ordered_by_it():
    with pytest.raises(cp.CheckError, match="E711"):
        run(no_relay)


@cp.cube
def again(out):
    held = cp.shared(UNITS, cp.i32)
    u = cp.UNIT_POS
    if u // 4 < 2:
        held[u] = u
        cp.sync_units(1, 8)
        out[u] = held[7 - u]
        held[u] = 1  # the other plane may still read


def test_a_race_after_a_barrier_is_found():
    with pytest.raises(cp.CheckError, match="E711"):
        run(again)


@cp.cube
def two_counts(out):
    if cp.UNIT_POS // 4 == 0:
        cp.sync_units(3, 8)
    else:
        cp.sync_units(3, 12)


@cp.cube
def too_many(out):
    cp.sync_units(1, 8)


@cp.cube
def too_few(out):
    if cp.UNIT_POS // 4 == 0:
        return
    cp.sync_units(1, 12)


@cp.cube
def elsewhere(out):
    if cp.UNIT_POS // 4 == 0:
        cp.sync_units(1, 8)
    else:
        cp.sync_cube()


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (two_counts, "waits there for 12 units, not 8"),
        (too_many, "12 units have come, not 8"),
        (too_few, "8 of 12 units have come, and no other can"),
        (elsewhere, "4 of 8 units have come, and no other can"),
    ],
)
def test_units_that_do_not_fit_together(kernel: Any, text: str):
    with pytest.raises(cp.CheckError, match=text) as caught:
        run(kernel)
    assert caught.value.code == "E713"


@cp.cube
def within_a_plane(out):
    if cp.UNIT_POS % 4 < 2:
        cp.sync_units(1, cp.PLANE_DIM)


def test_part_of_a_plane_is_refused():
    with pytest.raises(cp.CheckError, match="E713"):
        run(within_a_plane)
    with pytest.raises(cp.CompileError, match="E307: `sync_units`.*plane"):
        within_a_plane[1, 64].inspect("i32[64]", target="cuda:sm_80")


@pytest.mark.parametrize(
    ("barrier", "count", "code"),
    [(0, 4, "E207"), (16, 4, "E207"), (1, 6, "E207"), (1, 0, "E207"), (1, 16, "E207")]
    + [(True, 4, "E207"), (1.0, 4, "E207"), ("x", 4, "E207")],
)
def test_numbers_that_are_refused(barrier: Any, count: Any, code: str):
    @cp.cube
    def kernel(out):
        cp.sync_units(barrier, count)

    with pytest.raises(cp.CompileError, match=code):
        run(kernel)


def test_the_number_is_comptime():
    @cp.cube
    def kernel(out):
        cp.sync_units(out[0], 4)

    with pytest.raises(cp.CompileError, match="E112"):
        run(kernel)
