"""Barriers of some units of a cube: where whole planes take different branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

UNITS = 128
ROUNDS = 3


@cp.cube
def specialised(x, out):
    """Two halves of a cube reverse their parts again and again, each at its own pace."""
    held = cp.shared(UNITS, cp.i32)
    u = cp.UNIT_POS
    if u // cp.PLANE_DIM < 64 // cp.PLANE_DIM:
        for k in range(ROUNDS):
            held[u] = x[u] + k
            cp.sync_units(1, 64)
            out[u] += held[63 - u]
            cp.sync_units(1, 64)
    else:
        held[u] = x[u] * 2
        cp.sync_units(15, 64)
        out[u] = held[191 - u]
    cp.sync_cube()
    out[u] += held[(u + 1) % UNITS]


@cp.cube
def all_units(x, out):
    held = cp.shared(UNITS, cp.i32)
    u = cp.UNIT_POS
    for k in range(x.size // UNITS):
        held[u] = x[u + k * UNITS]
        cp.sync_units(1, cp.CUBE_DIM)
        out[u + k * UNITS] = held[UNITS - 1 - u]
        cp.sync_units(2, cp.CUBE_DIM)


@cp.cube
def some_units(x):
    if cp.UNIT_POS // cp.PLANE_DIM < 64 // cp.PLANE_DIM:
        cp.sync_units(1, UNITS)
    x[cp.UNIT_POS] = 1


def has_named_barriers(device: str) -> bool:
    return device.startswith(("cuda", "interpreter"))


def test_halves_of_a_cube(device: str):
    x = np.random.default_rng(0).integers(0, 1000, UNITS).astype(np.int32)
    out = np.zeros_like(x)
    kernel = specialised.configure(device=device)
    if device == "interpreter":
        kernel = kernel.configure(plane_dim=32)
    if not has_named_barriers(device):
        with pytest.raises(cp.UnsupportedError, match="E310: `cp.sync_units`"):
            kernel[1, UNITS](x, out)
        assert not out.any()
        return
    kernel[1, UNITS](x, out)
    low, high = x[:64], x[64:] * 2
    held = np.concatenate([low + ROUNDS - 1, high])
    own = np.concatenate([sum(low[::-1] + k for k in range(ROUNDS)), high[::-1]])
    np.testing.assert_array_equal(out, own + np.roll(held, -1))


def test_all_units_meet_on_every_device(device: str):
    x = np.arange(3 * UNITS, dtype=np.int32)
    out = np.full_like(x, -1)
    all_units.configure(device=device)[1, UNITS](x, out)
    np.testing.assert_array_equal(out, x.reshape(3, UNITS)[:, ::-1].reshape(-1))


def test_units_that_do_not_come_are_found(device: str):
    if device.startswith("cuda"):
        return  # there it would wait for ever
    x = np.zeros(UNITS, np.int32)
    error = (cp.CheckError, "64 of 128 units") if device == "interpreter" else None
    kind, text = error or (cp.UnsupportedError, "all units of the cube")
    with pytest.raises(kind, match=text):
        some_units.configure(device=device)[1, UNITS](x)


@cp.cube
def behind_a_return(x, out):
    if x[cp.UNIT_POS] == 3:
        return
    cp.sync_units(1, UNITS)
    out[cp.UNIT_POS] = 1


@cp.cube
def returns_in_a_loop(x, out, n: int):
    for k in range(n):
        cp.sync_units(1, UNITS)
        out[cp.UNIT_POS] += k
        if x[cp.UNIT_POS] == k:
            return


@cp.cube
def returns_in_another_branch(x, out):
    if cp.CUBE_POS == 1:
        if x[cp.UNIT_POS] == 3:
            return
    else:
        cp.sync_units(1, UNITS)
    out[cp.UNIT_POS] = 1


@cp.cube
def continues(x, out):
    for k in range(3):
        cp.sync_units(1, UNITS)
        if x[cp.UNIT_POS] == k:
            continue
        out[cp.UNIT_POS] += 1


@pytest.mark.parametrize("kernel", [behind_a_return, returns_in_a_loop], ids=["once", "loop"])
def test_units_that_returned_do_not_arrive(device: str, kernel: Any):
    if device.startswith("cuda"):
        return  # there it would wait for ever
    x, out = np.arange(UNITS, dtype=np.int32), np.zeros(UNITS, np.int32)
    is_checked = device == "interpreter"
    kind, text = (
        (cp.CheckError, "E713") if is_checked else (cp.UnsupportedError, "units that returned")
    )
    with pytest.raises(kind, match=text):
        numbers = (3,) if kernel is returns_in_a_loop else ()
        kernel.configure(device=device)[1, UNITS](x, out, *numbers)


def test_units_that_continue_or_return_elsewhere(device: str):
    x, out = np.arange(UNITS, dtype=np.int32), np.zeros(UNITS, np.int32)
    continues.configure(device=device)[1, UNITS](x, out)
    np.testing.assert_array_equal(out, 3 - (x < 3))
    returns_in_another_branch.configure(device=device)[1, UNITS](x, out)
    assert (out == 1).all()
