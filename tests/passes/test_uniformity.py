"""What all units of a plane agree on: branches on it may hold operations of the plane."""

from __future__ import annotations

import inspect
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


def multiply(out: Any) -> None:
    sums = cp.Line[cp.f32, 4](0.0)
    sums = cp.cuda.mma(cp.Line[cp.u32, 4](0), cp.Line[cp.u32, 2](0), sums, cp.f16)
    out[cp.UNIT_POS] = sums[0]


def multiply_fragments(out: Any) -> None:
    a = cp.cmma.fragment("a", 16, 16, cp.f16, fill=1)
    b = cp.cmma.fragment("b", 16, 8, cp.f16, fill=1)
    total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    cp.cmma.mma(total, a, b)
    cp.cmma.store(cp.shared((16, 8), cp.f32), (0, 0), total)


def set_registers(out: Any) -> None:
    cp.cuda.increase_registers(160)


def load_matrix(out: Any) -> None:
    words = cp.cuda.ldmatrix(cp.shared((8, 8), cp.f16), (cp.UNIT_POS % 8, 0), count=1)
    out[cp.UNIT_POS] = cp.f32(words[0])


def sum_of_lanes(out: Any) -> None:
    out[cp.UNIT_POS] = cp.plane_sum(1.0)


@cp.cube
def returns_before(out: cp.Tensor[cp.f32], n: cp.i32, on: cp.Comptime[Any], do: cp.Comptime[Any]):
    if on() >= n:
        return
    do(out)


@cp.cube
def returns_in_a_loop(
    out: cp.Tensor[cp.f32], n: cp.i32, on: cp.Comptime[Any], do: cp.Comptime[Any]
):
    for k in range(n):
        do(out)
        if on() == k:
            return


@cp.cube
def returns_behind(out: cp.Tensor[cp.f32], n: cp.i32, on: cp.Comptime[Any], do: cp.Comptime[Any]):
    do(out)
    if on() >= n:
        return
    out[cp.UNIT_POS] += 1.0


@cp.cube
def returns_beside(out: cp.Tensor[cp.f32], n: cp.i32, on: cp.Comptime[Any], do: cp.Comptime[Any]):
    if n > 3:
        if on() >= n:
            return
        out[cp.UNIT_POS] += 1.0
    else:
        do(out)


MATRICES = [multiply, multiply_fragments, set_registers, load_matrix]


def text_of(kernel: Any, on: Callable[[], Any], do: Any, checked: bool = False) -> str:
    asked = kernel.configure(checked=checked)[1, 256]
    comptime = {"on": on, "do": do}
    return asked.inspect("f32[256]", "i32", target="cuda:sm_90a", comptime=comptime)


@pytest.mark.parametrize("kernel", [returns_before, returns_in_a_loop])
@pytest.mark.parametrize("do", MATRICES)
@pytest.mark.parametrize("name", ["position", "lane"])
def test_matrices_need_all_lanes_of_a_plane(kernel: Any, do: Any, name: str):
    lines, first = inspect.getsourcelines(kernel.function)
    place = first + [line.strip() for line in lines].index("return")
    with pytest.raises(cp.CompileError, match=rf"E307(.|\n)*plane(.|\n)*in line {place};"):
        text_of(kernel, VARYING[name], do)


@pytest.mark.parametrize("kernel", [returns_before, returns_in_a_loop])
@pytest.mark.parametrize("do", MATRICES)
@pytest.mark.parametrize("name", UNIFORM)
def test_whole_planes_may_return_before_matrices(kernel: Any, do: Any, name: str):
    assert "return;" in text_of(kernel, UNIFORM[name], do)


@pytest.mark.parametrize("kernel", [returns_behind, returns_beside])
@pytest.mark.parametrize("do", MATRICES)
def test_units_may_return_where_no_matrices_follow(kernel: Any, do: Any):
    assert text_of(kernel, VARYING["position"], do)


def test_sums_take_the_lanes_that_are_there():
    assert "__shfl" in text_of(returns_before, VARYING["position"], sum_of_lanes)


@pytest.mark.parametrize("do", MATRICES)
def test_failed_checks_are_no_returns(do: Any):
    @cp.cube
    def checked_before(
        out: cp.Tensor[cp.f32], n: cp.i32, on: cp.Comptime[Any], do: cp.Comptime[Any]
    ):
        out[on() + n] = 1.0
        do(out)

    assert "note_fault" in text_of(checked_before, VARYING["position"], do, checked=True)
