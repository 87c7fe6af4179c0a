"""Oclgrind finds what is planted: otherwise its silence about the other tests would say nothing.

What it has to be silent about are all tests of the device `oclgrind`: cooperation, conformance,
examples, and generated kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.c import oclgrind
from tests.compilers.c.oclgrind import Reported
from tests.golden.kernels import histogram, transpose, tree_sum

BARRIER = re.compile(r"barrier\([A-Z_| ]*\);")
Edit = Callable[[str], str]


@pytest.fixture(autouse=True)
def device(require_text_device: Any) -> str:
    require_text_device("oclgrind")
    return "oclgrind"


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Edit], list[str]]:
    """`sources = edit(f)`: kernels run as `f` makes them of their text, which is kept."""
    run = oclgrind.run

    def install(change: Edit) -> list[str]:
        sources: list[str] = []

        def changed(request: dict[str, Any], used: Any) -> list[str]:
            sources.append(request["source"])
            return run(request | {"source": change(sources[-1])}, used)

        monkeypatch.setattr(oclgrind, "run", changed)
        return sources

    return install


# Races


def sum_tree() -> None:
    x, partial = np.arange(100, dtype=np.float32), np.zeros(2, np.float32)
    tree_sum.configure(device="oclgrind")[2, 16](x, partial)
    assert partial.sum() == x.sum()


def turn() -> None:
    x = np.random.default_rng(1).normal(size=(33, 20)).astype(np.float32)
    out = np.zeros((20, 33), np.float32)
    transpose.configure(device="oclgrind")[(1, 2), (32, 4)](x, out)
    np.testing.assert_array_equal(out, x.T)


def count() -> None:
    x = np.random.default_rng(2).integers(0, 256, 300, np.uint8)
    counts = np.zeros(256, np.int32)
    histogram.configure(device="oclgrind")[2, 32](x, counts)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


@cp.cube
def rounds(x, out, turns: int):
    v = x[cp.UNIT_POS]
    for _ in range(turns):
        v += cp.plane_shuffle_xor(v, 3)
    out[cp.UNIT_POS] = v


def exchange() -> None:
    """In a loop memory is used again, so that the barrier behind the reads is needed too."""
    x, out = np.arange(16), np.zeros(16, np.int64)
    rounds.configure(device="oclgrind", plane_dim=8)[1, 16](x, out, 2)
    np.testing.assert_array_equal(out, 2 * (x + (x ^ 3)))


def without_barrier(number: int) -> Edit:
    """A barrier less, counted from the first of the text."""

    def change(source: str) -> str:
        found = list(BARRIER.finditer(source))[number]
        return source[: found.start()] + ";" + source[found.end() :]

    return change


@pytest.mark.parametrize("run", [sum_tree, turn, count, exchange])
def test_a_barrier_less_is_a_race(edit: Any, run: Callable[[], None]):
    """Each barrier of the text is needed, and is missed."""
    sources = edit(str)
    run()
    barriers = len(BARRIER.findall(sources[0]))
    assert barriers in (1, 2)
    for number in range(barriers):
        edit(without_barrier(number))
        with pytest.raises(Reported, match="data race at local memory"):
            run()


@cp.cube
def collide(out, same: cp.Comptime):
    i = cp.ABSOLUTE_POS
    out[i % 2] = 7 if same else i


@pytest.mark.parametrize("same", [False, True])
def test_two_cubes_write_to_one_place(device: str, same: bool):
    with pytest.raises(Reported, match="Write-write data race at global memory"):
        collide.configure(device=device)[2, 2](np.zeros(2, np.int64), same)


@cp.cube
def watch(flag, out, atomic: cp.Comptime):
    if cp.UNIT_POS == 0:
        if atomic:
            cp.atomic.add(flag, 0, 1)
        else:
            flag[0] = 1
    else:
        out[cp.UNIT_POS] = cp.atomic.load(flag, 0)


def test_atomic_loads_race_with_stores(device: str):
    """But not with what is atomic, though Oclgrind thinks so."""
    flag, out = np.zeros(1, np.int32), np.zeros(4, np.int32)
    watch.configure(device=device)[1, 4](flag, out, True)
    with pytest.raises(Reported, match="Read-write data race at global memory"):
        watch.configure(device=device)[1, 4](flag, out, False)


def test_only_the_races_of_atomic_loads_are_left_out():
    load = "%1 = load volatile i32, i32 addrspace(1)* %p"
    swap = "%2 = call spir_func i32 @_Z14atomic_cmpxchgPU3AS1Viii(i32 addrspace(1)* %p)"
    race = "Read-write data race at global memory\n\n\tFirst\n\t  {}\n\n\tSecond\n\t  {}\n"
    mine, other = race.format(load, swap), race.format(load, "store i32 1, i32* %p")
    plain = race.format(load.replace("volatile ", ""), swap)
    assert oclgrind.reports(f"\n{mine}\n\n{other}\n\n{plain}") == [other.strip(), plain.strip()]
    assert len(oclgrind.reports(f"\n{mine}" * oclgrind.MOST)) == oclgrind.MOST, "it ends then"


# Addresses


@cp.cube
def read_at(x, out, k: int):
    out[cp.UNIT_POS] = x[cp.UNIT_POS + k]


@cp.cube
def write_at(x, out, k: int):
    out[cp.UNIT_POS + k] = x[cp.UNIT_POS]


@cp.cube
def read_shared(x, out, k: int):
    tile = cp.shared(4, cp.f32)
    tile[cp.UNIT_POS] = x[cp.UNIT_POS]
    cp.sync_cube()
    out[cp.UNIT_POS] = tile[cp.UNIT_POS + k]


@cp.cube
def read_local(x, out, k: int):
    mine = cp.local(4, cp.f32, 0)
    out[cp.UNIT_POS] = x[cp.UNIT_POS] + mine[cp.UNIT_POS + k]


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        (read_at, "Invalid read of size 4 at global"),
        (write_at, "Invalid write of size 4 at global"),
        (read_shared, "Invalid read of size 4 at local"),
        (read_local, "Invalid read of size 4 at private"),
    ],
)
@pytest.mark.parametrize("k", [1, -1, 1000])
def test_wrong_addresses(device: str, kernel: Any, what: str, k: int):
    x, out = cp.zeros(4, cp.f32, device=device), cp.zeros(4, cp.f32, device=device)
    kernel[1, 4](x, out, 0)
    with pytest.raises(Reported, match=what):
        kernel[1, 4](x, out, k)


def test_arrays_that_begin_anywhere_are_guarded_too(device: str):
    x, whole = np.ones(4, np.float32), np.zeros(32, np.float32)
    start = next(k for k in range(1, 17) if whole[k:].ctypes.data % 64 == 8)
    out = whole[start : start + 4]
    chosen = write_at.configure(device=device)
    chosen[1, 4](x, out, 0)
    np.testing.assert_array_equal(out, x)
    with pytest.raises(Reported, match="wrote before its array"):
        chosen[1, 4](x, out, -2)
    with pytest.raises(Reported, match="Invalid write of size 4 at global"):
        chosen[1, 4](x, out, 1)


# Barriers


def test_a_barrier_that_some_units_pass_by(edit: Any):
    edit(lambda source: BARRIER.sub(r"if (get_local_id(0) < 3) \g<0>", source, count=1))
    with pytest.raises(Reported, match=r"\d x Work-group divergence detected"):
        turn()


# Values


@cp.cube
def half_filled(x, out):
    tile = cp.shared(8, cp.f32)
    if cp.UNIT_POS < 4:
        tile[cp.UNIT_POS] = x[cp.UNIT_POS]
    cp.sync_cube()
    out[cp.UNIT_POS] = tile[cp.UNIT_POS]


@cp.cube
def filled_here(x, out):
    mine = cp.local(8, cp.f32)
    mine[cp.UNIT_POS] = 1
    out[cp.UNIT_POS] = mine[int(x[cp.UNIT_POS])]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("kernel", [half_filled, filled_here])
def test_memory_that_was_never_written(device: str, kernel: Any, checked: bool):
    x, out = np.zeros(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(Reported, match=r"Uninitialized value written to global memory"):
        kernel.configure(device=device, checked=checked)[1, 8](x, out)


def test_an_array_that_was_never_written(device: str):
    x, out = cp.empty(4, cp.f32, device=device), cp.zeros(4, cp.f32, device=device)
    with pytest.raises(Reported, match=r"Uninitialized value written to global memory"):
        read_at[1, 4](x, out, 0)
    x = cp.empty(4, cp.f32, device=device)
    write_at[1, 4](cp.zeros(4, cp.f32, device=device), x, 0)
    read_at[1, 4](x, out, 0)


# The way there


def test_what_cannot_be_built_is_told(edit: Any):
    edit(lambda source: source.replace("barrier(", "barrierr("))
    with pytest.raises(Reported, match="barrierr"):
        count()


def test_a_simulator_that_ended_is_told_and_followed_by_another(edit: Any):
    oclgrind.child().end()
    with pytest.raises(Reported, match="Oclgrind ended"):
        count()
    count()
