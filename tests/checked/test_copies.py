"""Copies of NVIDIA's hardware in checked kernels: what they test, without what they copy.

The operations of the hardware are left out of the IR, whose checks the interpreter then runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

FAR = 1 << 40


@cp.cube
def start_present(x: cp.Tensor[cp.f32], numbers: cp.Tensor[cp.i64]):
    at, low, high = numbers[0], numbers[1], numbers[2]
    tile = cp.shared(128, cp.f32)
    cp.cuda.async_copy(tile, 4 * cp.UNIT_POS, x, at, 4, present=(at >= low) & (at < high))


@cp.cube
def start_present_row(x: cp.Tensor, numbers: cp.Tensor[cp.i64]):
    place = numbers[0], numbers[1]
    tile = cp.shared((2, 8), cp.f32)
    cp.cuda.async_copy(tile, (1, 0), x, place, 4, present=numbers[2])


@cp.cube
def start_bulk_load(x: cp.Tensor[cp.f32], numbers: cp.Tensor[cp.i64]):
    place, at, n = numbers[0], numbers[1], numbers[2]
    tile = cp.shared(64, cp.f32)
    barrier = cp.shared(1, cp.u64)
    cp.cuda.bulk_load(tile, place, x, at, n, barrier, 0)


@cp.cube
def start_bulk_store(x: cp.Tensor[cp.f32], numbers: cp.Tensor[cp.i64]):
    place, at, n = numbers[0], numbers[1], numbers[2]
    tile = cp.shared(64, cp.f32)
    cp.cuda.bulk_store(x, at, tile, place, n)


def ir_of(kernel: Any, *arguments: Any, checked: bool = True) -> str:
    asked = kernel.configure(checked=checked)[1, 1]
    return asked.inspect(*arguments, target="cuda:sm_90", stage="ir")


def run(kernel: Any, x: np.ndarray, *numbers: int) -> None:
    """Run the checks of a kernel."""
    arguments = x, np.array(numbers, np.int64)
    lines = ir_of(kernel, *arguments).splitlines()
    kept = "\n".join([line for line in lines if "cuda_" not in line])
    cp.from_ir(kept).configure(device="interpreter")[1](*arguments)


def fault(kernel: Any, x: np.ndarray, *numbers: int) -> Any:
    with pytest.raises(cp.Error) as raised:
        run(kernel, x, *numbers)
    return raised.value


def row(extent: int) -> np.ndarray:
    return np.zeros(extent, np.float32)


@pytest.mark.parametrize("at", [0, 96])
def test_what_is_present_may_reach_the_end(at: int):
    run(start_present, row(100), at, -FAR, FAR)


@pytest.mark.parametrize(("at", "first"), [(-4, -4), (100, 100), (97, 100), (FAR, FAR)])
def test_what_is_present_must_exist(at: int, first: int):
    """Both ends of the copy are tested."""
    found = fault(start_present, row(100), at, -FAR, 2 * FAR)
    assert found.code == "E701"
    assert (found.argument, found.index, found.extent) == ("x", first, 100)


LARGEST = (1 << 63) - 1


@pytest.mark.parametrize("at", [-4, 97, 100, FAR, -FAR, LARGEST, -LARGEST - 1])
def test_what_is_not_present_may_lie_anywhere(at: int):
    run(start_present, row(100), at, 0, 0)


def test_every_axis_of_what_is_present_is_tested():
    x = np.zeros((3, 8), np.float32)
    run(start_present_row, x, 2, 4, 1)
    found = fault(start_present_row, x, 3, 4, 1)
    assert (found.axis, found.index, found.extent) == (0, 3, 3)
    found = fault(start_present_row, x, 2, 5, 2)
    assert (found.axis, found.index, found.extent) == (1, 8, 8)
    run(start_present_row, x, -FAR, FAR, 0)


@pytest.mark.parametrize("kernel", [start_bulk_load, start_bulk_store])
def test_bulk_copies_may_reach_both_ends(kernel: Any):
    run(kernel, row(100), 0, 36, 64)
    run(kernel, row(100), 63, 99, 1)
    run(kernel, row(100), 64, 100, 0)


@pytest.mark.parametrize("kernel", [start_bulk_load, start_bulk_store])
@pytest.mark.parametrize(
    ("place", "at", "n", "argument", "index"),
    [
        (0, 37, 64, "x", 100),
        (0, -1, 64, "x", -1),
        (1, 0, 64, "tile", 64),
        (-1, 0, 64, "tile", -1),
        (64, 0, 1, "tile", 64),
        (0, FAR, 1, "x", FAR),
    ],
)
def test_bulk_copies_of_a_count_of_run_time_are_tested(
    kernel: Any, place: int, at: int, n: int, argument: str, index: int
):
    found = fault(kernel, row(100), place, at, n)
    assert (found.code, found.argument, found.index) == ("E701", argument, index)


@pytest.mark.parametrize(
    ("kernel", "name"), [(start_bulk_load, "load"), (start_bulk_store, "store")]
)
@pytest.mark.parametrize("n", [-1, -FAR, -LARGEST - 1, 1 << 30, LARGEST])
def test_bytes_of_bulk_copies_fit_a_word(kernel: Any, name: str, n: int):
    found = fault(kernel, row(100), 0, 0, n)
    assert found.code == "E703"
    assert f"cp.cuda.bulk_{name} takes 0 to 1073741823 elements" in str(found)


@cp.cube
def expect(x: cp.Tensor[cp.f32], numbers: cp.Tensor[cp.i64]):
    barrier = cp.shared(1, cp.u64)
    cp.cuda.barrier_expect(barrier, 0, numbers[0])


@pytest.mark.parametrize("n", [-1, 1 << 20, LARGEST])
def test_barriers_wait_for_bytes_that_they_can_count(n: int):
    run(expect, row(1), 0)
    run(expect, row(1), (1 << 20) - 1)
    found = fault(expect, row(1), n)
    assert found.code == "E703"
    assert "barrier_expect takes 0 to 1048575 bytes" in str(found)


@pytest.mark.parametrize("kernel", [start_present, start_bulk_load, start_bulk_store])
def test_kernels_without_checks_have_none(kernel: Any):
    assert "check " not in ir_of(kernel, row(100), np.zeros(3, np.int64), checked=False)
