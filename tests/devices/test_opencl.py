"""OpenCL devices: what they can do decides on the source; sub-groups are planes."""

from __future__ import annotations

import sys
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.runtimes.opencl import device
from cubepy.runtimes.registry import find_device
from tests.devices.conftest import require
from tests.devices.kernels import increment


@cp.cube
def meet(x, sums, up, first):
    p = cp.UNIT_POS + cp.CUBE_POS * cp.CUBE_DIM
    v = x[p]
    sums[p] = cp.plane_sum(v)
    up[p] = cp.plane_shuffle_up(v, 1)
    first[p] = cp.plane_broadcast(v, 0)


@pytest.fixture
def opencl() -> str:
    return require("opencl:0")


@pytest.fixture
def with_subgroups(opencl: str) -> str:
    if "subgroups" not in cp.device(opencl).target.features:
        pytest.skip("opencl:0 has no sub-groups; the driver of intel-opencl-rt has")
    return opencl


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.float16, np.float64])
@pytest.mark.parametrize("dim", [64, (32, 2, 1), (4, 4, 4), (24, 2, 1)])
def test_planes(opencl: str, dim: int | tuple[int, int, int], dtype: type):
    """Planes are counted through the whole cube, also where rows of units are short or odd."""
    plane = max(16, cp.device(opencl).target.plane_dim)
    units = int(np.prod(dim))
    x = np.random.default_rng(4).integers(0, 5, 3 * units).astype(dtype)
    sums, up, first = (np.zeros_like(x) for _ in range(3))
    meet.configure(device=opencl, plane_dim=plane)[3, dim](x, sums, up, first)
    rows = x.reshape(-1, plane)
    np.testing.assert_array_equal(sums, np.repeat(rows.sum(1, dtype=dtype), plane))
    np.testing.assert_array_equal(up, np.hstack([rows[:, :1], rows[:, :-1]]).ravel())
    np.testing.assert_array_equal(first, np.repeat(rows[:, 0], plane))


def test_f16_is_computed_as_it_is(with_subgroups: str):
    assert {"fp16", "fp64", "int64_atomics"} <= cp.device(with_subgroups).target.features


def text(dim: int | tuple[int, int, int]) -> str:
    launcher = meet.configure(plane_dim=32)[1, dim]
    return launcher.inspect(*["i32[192]"] * 4, target="opencl:subgroups")


def test_kernels_ask_for_the_size_of_planes():
    assert "__attribute__((intel_reqd_sub_group_size(32)))" in text(64)
    assert "sub_group_shuffle" in text((32, 2, 1))


def test_planes_that_go_on_in_the_next_row_are_no_subgroups():
    found = text((8, 8, 1))
    assert "sub_group" not in found and "barrier(" in found


@cp.cube
def keep(x, out, n: int):
    p = cp.ABSOLUTE_POS
    value, v = x[p], 0.0
    for _ in range(n):
        cp.sync_cube()
        v = -value
    out[p] = v


def test_a_loop_with_barriers_keeps_what_it_does_not_change(opencl: str):
    """A driver gave every unit the value of another one."""
    x, out = np.arange(1.0, 65.0), np.zeros(64)
    keep.configure(device=opencl)[2, 32](x, out, 3)
    np.testing.assert_array_equal(out, -x)


@cp.cube
def stores_behind(x: cp.Tensor[cp.f32], marks: cp.Tensor[cp.i32], out: cp.Tensor[cp.f32]):
    turned = cp.shared(64, cp.f32)
    u, n = cp.UNIT_POS, marks[0]
    if n > 0:
        turned[u] = x[u]
        cp.sync_cube()
        found = turned[63 - u]
        if u // 16 < n:
            cp.store(out, u, cp.Line[cp.f32, 4](found))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_branch_with_a_barrier_keeps_the_conditions_behind_it(opencl: str, n: int):
    x, out = np.arange(64, dtype=np.float32), np.full(256, -1, np.float32)
    stores_behind.configure(device=opencl)[1, 64](x, np.array([n], np.int32), out)
    assert (out != -1).sum() == (16 * n + 3 if n else 0)


def test_arrays_of_threads_die_in_order(opencl: str, monkeypatch: pytest.MonkeyPatch):
    """Memory is freed by one thread, and only after the work that was enqueued on it."""
    monkeypatch.setattr(device, "DYING_BYTES", 1 << 16)
    failed: list[BaseException] = []

    def work(value: int) -> None:
        try:
            for k in range(150):
                x = cp.full(4096, value, device=opencl)
                others = [cp.empty(4096, device=opencl) for _ in range(k % 5)]
                increment.over(x)(x)
                assert (x.numpy() == value + 1).all()
                del x, others
        except BaseException as error:
            failed.append(error)

    increment.over(4096)(cp.zeros(4096, device=opencl))
    threads = [Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


class Late:
    """A queue that allocates while it waits, as other threads may."""

    def __init__(self, dying: device.Dying, died: list[bytes]) -> None:
        self.dying, self.died = dying, died

    def finish(self) -> None:
        self.died.append(b"late")
        self.dying.add(self.died[-1])


def test_what_dies_during_a_wait_is_kept(opencl: str):
    made = device.OpenclDevice(0, None)
    made.__dict__["_queue"] = Late(made._dying, [])
    made._dying.add(b"early")
    made.synchronize()
    assert made._dying.take() == [b"late"]


@cp.cube
def fenced(x):
    x[cp.UNIT_POS] = 1
    cp.sync_storage()
    cp.atomic.add(x, 0, 1)


def test_a_fence_is_one_of_the_device_where_the_language_has_it(opencl: str):
    source = fenced[1, 2].inspect("i32[2]", target="opencl")
    assert "atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst" in source
    found: Any = find_device(opencl)
    x = np.zeros(2, np.int32)
    launcher = fenced.configure(device=opencl)[1, 2]
    launcher(x)
    assert x[1] == 1
    version = int(found._device.version.split()[1][0])
    code = SimpleNamespace(code=source.encode())
    wanted = {1: device.STANDARD, **device.NEWER}[version]
    assert found._standard(code) == (
        device.NEWER[3] if "subgroups" in found.target.features else wanted
    )


def test_memory_is_found_while_another_thread_allocates(opencl: str):
    runtime: Any = find_device(opencl)
    kept = [runtime.allocate(640) for _ in range(2000)]

    def allocate() -> None:
        held: list[Any] = []
        for _ in range(300):
            held = [*held[-20:], runtime.allocate(64)]

    before, thread = sys.getswitchinterval(), Thread(target=allocate)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        while thread.is_alive():
            extents = [runtime.allocation_at(m.address + 639) for m in kept[:9]]
            assert extents == [(m.address, m.address + 640) for m in kept[:9]]
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert runtime.allocation_at(8) is None


def test_memory_that_dies_in_threads_is_taken_once():
    """Also while another thread counts it, as allocations do."""
    dying, is_over = device.Dying(), Event()
    failed: list[BaseException] = []
    found: list[int] = []

    def watch() -> None:
        try:
            while not is_over.is_set():
                assert dying.nbytes >= 0
        except BaseException as error:
            failed.append(error)

    def die(first: int) -> None:
        for k in range(first, first + 20_000):
            dying.add(np.empty(k % 7, np.uint8))
            if k % 500 == 0:
                found.append(len(dying.take()))

    watching = [Thread(target=watch) for _ in range(2)]
    adding = [Thread(target=die, args=(20_000 * k,)) for k in range(3)]
    for thread in (*watching, *adding):
        thread.start()
    for thread in adding:
        thread.join()
    is_over.set()
    for thread in watching:
        thread.join()
    assert not failed
    assert sum(found) + len(dying.take()) == 60_000
