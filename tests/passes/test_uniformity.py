"""What all units of a plane agree on: branches on it may hold operations of the plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cubepy as cp

UNIFORM: dict[str, Callable[[], Any]] = {
    "quotient": lambda: cp.UNIT_POS // 32,
    "quotient of a cast": lambda: cp.i32(cp.UNIT_POS) // 128,
    "cast of a cast": lambda: cp.u8(cp.i32(cp.UNIT_POS)) // 64,
    "shift": lambda: cp.i32(cp.UNIT_POS) >> 5,
    "quotient within a warpgroup": lambda: cp.i32(cp.UNIT_POS) % 128 // 32,
    "from the second plane on": lambda: (cp.i32(cp.UNIT_POS) - 32) // 128,
    "along an axis": lambda: cp.u32(cp.UNIT_POS_X) // 64,
    "of the launch": lambda: cp.u32(cp.ABSOLUTE_POS + 32) // 32,
    "number": lambda: cp.PLANE_POS,
}
VARYING: dict[str, Callable[[], Any]] = {
    "position": lambda: cp.UNIT_POS,
    "lane": lambda: cp.i32(cp.UNIT_POS) % 32,
    "quotient by half a plane": lambda: cp.i32(cp.UNIT_POS) // 16,
    "small shift": lambda: cp.i32(cp.UNIT_POS) >> 4,
    "remainder by an odd number": lambda: cp.UNIT_POS % 48 // 32,
    "moved by one": lambda: (cp.i32(cp.UNIT_POS) + 1) // 32,
    "doubled": lambda: cp.UNIT_POS * 2 // 32,
    "negative quotient": lambda: (300 - cp.i32(cp.UNIT_POS)) // 32,
    "position as a float": lambda: cp.f32(cp.UNIT_POS) // 32,
}


@cp.cube
def branches(out: cp.Tensor[cp.f32], on: cp.Comptime[Any]):
    if on() == 1:
        out[cp.UNIT_POS] = cp.plane_sum(1.0)


def compiled(on: Callable[[], Any], units: Any = 256) -> str:
    return branches[1, units].inspect("f32[256]", target="cuda:sm_90a", comptime={"on": on})


@pytest.mark.parametrize("name", UNIFORM)
def test_planes_agree(name: str):
    assert "__shfl" in compiled(UNIFORM[name])


@pytest.mark.parametrize("name", VARYING)
def test_planes_do_not_agree(name: str):
    with pytest.raises(cp.CompileError, match="E307"):
        compiled(VARYING[name])


def test_rows_of_odd_planes_do_not_agree():
    """Planes go along X first: of rows of 48 units the second plane has parts of two."""
    assert "__shfl" in compiled(lambda: cp.UNIT_POS // 32, (48, 16))
    with pytest.raises(cp.CompileError, match="E307"):
        compiled(lambda: cp.UNIT_POS_X // 32, (48, 16))
