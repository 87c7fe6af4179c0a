"""The host memory pool: reuse, bounds, lifetimes and refusals."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.runtimes.cpu.memory import HUGE_PAGE, MemoryPool, Statistics, class_size, get_memory

MIB = 1 << 20


@pytest.fixture
def memory() -> MemoryPool:
    return MemoryPool(limit=64 * MIB)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_class_sizes_waste_little() -> None:
    for nbytes in (1, 63, 64, 65, 512, 513, 1000, 65_537, 1_000_003, HUGE_PAGE - 1):
        assert nbytes <= class_size(nbytes) <= max(nbytes * 1.126, nbytes + 63)
        assert class_size(nbytes) % 64 == 0
    for nbytes in (HUGE_PAGE, HUGE_PAGE + 1, 10**7, 16 * MIB, 16 * MIB + 1, 10**9, 10**12):
        assert class_size(nbytes) % HUGE_PAGE == 0
        assert nbytes <= class_size(nbytes) <= max(nbytes * 1.126, nbytes + HUGE_PAGE - 1)
    assert class_size(0) == 64


def test_a_class_size_is_its_own_class() -> None:
    for nbytes in (1, 100, 600, 70_000, 3 * MIB, 17 * MIB, 10**9):
        assert class_size(class_size(nbytes)) == class_size(nbytes)


@pytest.mark.parametrize("nbytes", [0, 1, 100, 5000, 65_536, 300_001, 2 * MIB, 5 * MIB])
def test_blocks_are_aligned_and_writable(memory: MemoryPool, nbytes: int) -> None:
    blocks: list[Any] = [memory.empty(nbytes) for _ in range(5)]
    for fill, block in enumerate(blocks):
        assert block.nbytes >= nbytes
        assert block.address % (HUGE_PAGE if nbytes >= HUGE_PAGE else 64) == 0
        np.frombuffer(block, np.uint8).fill(fill)
    for fill, block in enumerate(blocks):
        assert (np.frombuffer(block, np.uint8) == fill).all()


@pytest.mark.parametrize("shape", [(1 << 14,), (300, 700), (3, 5, 7, 2000), 100_000])
@pytest.mark.parametrize("dtype", ["f4", np.float64, np.dtype("i8"), "c16", "f2"])
def test_arrays_are_ordinary(memory: MemoryPool, shape: object, dtype: object) -> None:
    array = memory.allocate_array(shape, dtype)  # type: ignore[arg-type]
    like = np.empty(shape, dtype)  # type: ignore[call-overload]
    assert (array.shape, array.dtype, array.strides) == (like.shape, like.dtype, like.strides)
    assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
    array.fill(3)
    assert (array == 3).all()


def test_memory_comes_back_when_the_array_dies(memory: MemoryPool) -> None:
    array = memory.allocate_array((1024, 1024), "f4")
    size, first = 4 * MIB, address(array)
    assert memory.statistics() == Statistics(in_use=size, cached=0, peak=size)
    del array
    assert memory.statistics() == Statistics(in_use=0, cached=size, peak=size)
    again = memory.allocate_array((1000, 1040), "f4")
    assert address(again) == first
    assert memory.statistics() == Statistics(in_use=size, cached=0, peak=size)


def test_a_view_keeps_the_memory(memory: MemoryPool) -> None:
    array = memory.allocate_array((1024, 1024), "f4")
    array.fill(7)
    view = array[5:9].T.view(np.int32)[::2]
    first = address(array)
    del array
    assert memory.statistics().in_use == 4 * MIB
    other = memory.allocate_array((1024, 1024), "f4")
    other.fill(0)
    assert address(other) != first
    assert (view.view(np.float32) == 7).all()
    del view
    assert memory.statistics() == Statistics(in_use=4 * MIB, cached=4 * MIB, peak=8 * MIB)


def test_a_cycle_gives_its_memory_back(memory: MemoryPool) -> None:
    import gc

    cycle: list[object] = [memory.allocate_array(1 << 18, "f4")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert memory.statistics().in_use == 0


def test_cached_bytes_are_bounded(memory: MemoryPool) -> None:
    arrays = [memory.allocate_array(MIB * size, "u1") for size in (8, 16, 32, 24, 12, 6)]
    last = address(arrays[-1])
    while arrays:
        del arrays[0]
    after = memory.statistics()
    assert after.in_use == 0 and 0 < after.cached <= memory.limit
    assert address(memory.allocate_array(MIB * 6, "u1")) == last


def test_a_block_over_the_limit_is_not_kept() -> None:
    memory = MemoryPool(limit=MIB)
    memory.empty(2 * MIB)
    assert memory.statistics().cached == 0
    MemoryPool(limit=0).empty(100)


def test_release_gives_all_back(memory: MemoryPool) -> None:
    for nbytes in (100, 100_000, 3 * MIB):
        memory.empty(nbytes)
    kept = memory.empty(100)
    assert memory.statistics().cached > 0
    memory.release()
    assert memory.statistics().cached == 0
    assert memory.statistics().in_use == kept.nbytes
    memory.empty(100_000)
    assert list(memory._backing) != []


def test_zero_sizes(memory: MemoryPool) -> None:
    for shape in ((0,), (3, 0, 5), (0, 1 << 40)):
        assert memory.allocate_array(shape, "f8").shape == shape
    assert memory.allocate_array((), "f8").shape == ()
    assert memory.empty(0).nbytes > 0


@pytest.mark.parametrize("nbytes", [1 << 55, (1 << 63) - 1, 1 << 63, 1 << 100])
def test_impossible_sizes_are_memory_errors(memory: MemoryPool, nbytes: int) -> None:
    with pytest.raises(MemoryError, match=r"\d+ bytes"):
        memory.empty(nbytes)
    assert memory.statistics().in_use == 0


def test_overflowing_shapes_are_memory_errors(memory: MemoryPool) -> None:
    for shape in ((1 << 40, 1 << 40), (np.int64(1 << 62), np.int64(4))):
        with pytest.raises(MemoryError):
            memory.allocate_array(shape, "f8")  # type: ignore[arg-type]


def test_negative_sizes_are_refused(memory: MemoryPool) -> None:
    memory.empty(1)
    with pytest.raises(ValueError, match="negative"):
        memory.empty(-1)
    for shape in (-3, (-1000, -1000), (2, -3)):
        with pytest.raises(ValueError, match="negative"):
            memory.allocate_array(shape, "f8")


def test_python_objects_are_refused(memory: MemoryPool) -> None:
    with pytest.raises(TypeError, match="Python objects"):
        memory.allocate_array(5, object)


def test_threads_share_the_pool(memory: MemoryPool) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        kept: list[np.ndarray] = []
        for turn in range(200):
            array = memory.allocate_array(70_000 + 9000 * ((seed + turn) % 5), np.uint8)
            array.fill(seed)
            kept.append(array)
            if len(kept) > 4 and not (kept.pop(0) == seed).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = memory.statistics()
    assert not wrong and after.in_use == 0 and after.cached <= memory.limit
    assert after.cached == sum(kind.size * len(kind.free) for kind in memory._kinds.values())


def test_the_collector_may_free_inside_an_allocation(memory: MemoryPool) -> None:
    class Greedy:
        """Allocates when it dies, which may be while the pool's lock is held."""

        def __init__(self) -> None:
            self.me, self.array = self, memory.allocate_array(100_000, "u1")

        def __del__(self) -> None:
            memory.allocate_array(200_000, "u1")

    import gc

    threshold = gc.get_threshold()
    gc.set_threshold(3, 2, 2)
    try:
        for _ in range(500):
            Greedy()
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert memory.statistics().in_use == 0


def test_the_shared_pool_is_one() -> None:
    usual = get_memory().limit
    assert get_memory() is get_memory() and usual > 0
    with cp.settings(pool_bytes=5 * MIB):
        blocks = [get_memory().empty(2 * MIB) for _ in range(8)]
        del blocks
        assert get_memory().statistics().cached <= 5 * MIB
    assert get_memory().limit == usual


SCRIPT = """
import os, threading
from cubepy.runtimes.cpu.memory import get_memory
memory = get_memory()

def churn():
    while True:
        memory.allocate_array(100_000, "u1")

keep = [memory.allocate_array(n, "u1") for n in (10, 100_000, 5_000_000)]
cycle = [memory.allocate_array(100_000, "u1")]
cycle.append(cycle)
for _ in range(2):
    threading.Thread(target=churn, daemon=True).start()
for _ in range(20 if hasattr(os, "fork") else 0):
    pid = os.fork()
    if pid == 0:
        memory.allocate_array(100_000, "u1").fill(1)
        memory.release()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_fork_and_exit_with_live_arrays() -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
