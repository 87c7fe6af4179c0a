"""Units that wait for one whose check has failed end, by the interpreter of PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.artifact import FAULT_WORDS
from tests.compilers.ptx import launching
from tests.compilers.ptx.machine import Machine
from tests.compilers.ptx.warps import Hang

N = 128


@pytest.fixture(autouse=True)
def nvrtc() -> None:
    launching.require()


@cp.cube
def wait_in_memory(x: cp.Tensor[cp.i32], at: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Each unit arrives at two barriers, one after the other, that all wait for."""
    i = cp.i32(cp.UNIT_POS)
    tile = cp.shared(N, cp.i32)
    barriers = cp.shared(2, cp.u64)
    if i == 0:
        cp.cuda.barrier_init(barriers, 0, N)
        cp.cuda.barrier_init(barriers, 1, N)
    cp.sync_cube()
    for k in range(2):
        tile[i] = x[at[i]] + k
        cp.cuda.barrier_arrive(barriers, k)
        cp.cuda.barrier_wait(barriers, k, 0)
        out[i] += tile[N - 1 - i]
        cp.sync_cube()


@cp.cube
def wait_in_halves(x: cp.Tensor[cp.i32], at: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Two planes of each half wait at three barriers, then all at one."""
    i = cp.i32(cp.UNIT_POS)
    tile = cp.shared(N, cp.i32)
    for k in range(3):
        if i // 64 == 0:
            tile[i] = x[at[i]] + k
            cp.sync_units(1, 64)
            out[i] += tile[63 - i]
            cp.sync_units(1, 64)
        else:
            tile[i] = x[at[i]] + k
            cp.sync_units(2, 64)
            out[i] += tile[191 - i]
            cp.sync_units(2, 64)
    tile[i] = x[at[i]]
    cp.sync_units(1, N)
    out[i] += tile[N - 1 - i]


KERNELS = [wait_in_memory, wait_in_halves]


def expected(kernel: Any, x: np.ndarray, at: np.ndarray) -> np.ndarray:
    found = x[at]
    if kernel is wait_in_memory:
        return 2 * found[::-1] + 1
    halves = np.concatenate([found[:64][::-1], found[64:][::-1]])
    return 3 * halves + 3 + found[::-1]


def launched(kernel: Any, at: np.ndarray, **options: Any) -> tuple[Machine, Any, list[int]]:
    """The machine, the result and the fault record of a checked launch."""
    arrays = [np.arange(100, 100 + N, dtype=np.int32), at, np.zeros(N, np.int32)]
    asked = kernel.configure(checked=True, **options)[options.get("cluster", 1), N]
    machine = Machine(asked.inspect(*arrays, target=launching.TARGET, stage="ptx"))
    record = np.zeros(FAULT_WORDS, np.uint64)
    words = [word for array in arrays for word in (array.ctypes.data, array.size)]
    machine.launch([*words, record.ctypes.data], (1, 1, 1), (N, 1, 1))
    return machine, arrays[2], record.tolist()


def launch(kernel: Any, at: np.ndarray) -> tuple[Any, list[int]]:
    return launched(kernel, at)[1:]


def shuffled() -> np.ndarray:
    return np.random.default_rng(3).permutation(N).astype(np.int32)


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_a_fault_all_wait_for_all(kernel: Any):
    at = shuffled()
    out, record = launch(kernel, at)
    np.testing.assert_array_equal(out, expected(kernel, np.arange(100, 100 + N), at))
    assert record == [0] * FAULT_WORDS


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("unit", [0, 31, 40, 127])
def test_a_fault_of_one_unit_ends_the_others(kernel: Any, unit: int):
    at = shuffled()
    at[unit] = N + 7
    _, record = launch(kernel, at)
    assert (record[0], record[2], record[4:6]) == (1, unit, [N + 7, N])


@pytest.mark.parametrize("kernel", KERNELS)
def test_faults_of_whole_planes_end_the_others(kernel: Any):
    at = shuffled()
    at[32:64] = -5
    _, record = launch(kernel, at)
    assert (record[0], record[2], np.int64(np.uint64(record[4]))) == (1, 32, -5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_without_checks_look_at_no_record(kernel: Any):
    at = shuffled()
    arrays = [np.arange(100, 100 + N, dtype=np.int32), at, np.zeros(N, np.int32)]
    text = kernel[1, N].inspect(*arrays, target=launching.TARGET)
    assert "note_fault" not in text and "atomicAdd" not in text
    assert text.count("barrier.sync") == (3 if kernel is wait_in_halves else 0)


def test_the_machine_tells_a_wait_without_end():
    @cp.cube
    def never(x: cp.Tensor[cp.i32]):
        barrier = cp.shared(1, cp.u64)
        if cp.UNIT_POS == 0:
            cp.cuda.barrier_init(barrier, 0, 2)
        cp.sync_cube()
        cp.cuda.barrier_wait(barrier, 0, 0)
        x[0] = 1

    x = np.zeros(1, np.int32)
    machine = launching.compiled(never, 32, [x])
    with pytest.raises(Hang):
        machine.launch([x.ctypes.data], (1, 1, 1), (32, 1, 1))


@cp.cube
def wait_for_cluster(x: cp.Tensor[cp.i32], at: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Three barriers of the cluster in a loop, and one at the end."""
    i = cp.i32(cp.UNIT_POS)
    tile = cp.shared(N, cp.i32)
    for k in range(3):
        tile[i] = x[at[i]] + k
        cp.cuda.cluster_sync()
        out[i] += tile[i ^ 1]
        cp.sync_cube()
    if out[i] > 0:
        out[i] += x[at[i ^ 1]]
    cp.cuda.cluster_sync()


@cp.cube
def fail_in_a_cube(x: cp.Tensor[cp.i32], at: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Some cubes have a first number that is no index."""
    out[cp.UNIT_POS] = x[at[cp.CUBE_POS]]
    for _ in range(4):
        cp.cuda.cluster_sync()


@pytest.mark.parametrize("kernel", [wait_for_cluster, fail_in_a_cube])
def test_clusters_synchronise_without_a_fault(kernel: Any):
    at = shuffled()
    machine, out, record = launched(kernel, at, cluster=2)
    x = np.arange(100, 100 + N)
    wanted = 4 * x[at][np.arange(N) ^ 1] + 3 if kernel is wait_for_cluster else x[at[0]]
    np.testing.assert_array_equal(out, np.broadcast_to(wanted, N))
    assert not record[0] and machine.arrivals_of_clusters == 4 * N


@pytest.mark.parametrize("kernel", [wait_for_cluster, fail_in_a_cube])
@pytest.mark.parametrize("last", [1, 40, N])
def test_units_with_a_fault_wait_for_their_cluster(kernel: Any, last: int):
    """Others of the cluster may access the shared memory of the cube as long as it is there."""
    at = shuffled()
    at[:last] = N
    machine, _, record = launched(kernel, at, cluster=2)
    assert record[0] == 1 and record[4:6] == [N, N]
    assert machine.arrivals_of_clusters == 4 * N


@cp.cube
def wait_in_a_cluster(x: cp.Tensor[cp.i32], at: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    barrier = cp.shared(1, cp.u64)
    if cp.UNIT_POS == 0:
        cp.cuda.barrier_init(barrier, 0, N)
    cp.cuda.cluster_sync()
    if x[at[cp.UNIT_POS]] > 0:
        cp.cuda.barrier_arrive(barrier, 0)
    cp.cuda.barrier_wait(barrier, 0, 0)
    cp.sync_units(1, N)
    cp.cuda.cluster_sync()
    out[cp.UNIT_POS] = 1


def test_waits_in_clusters_end_but_not_their_units():
    at = shuffled()
    at[40] = N
    machine, _, record = launched(wait_in_a_cluster, at, cluster=2)
    assert record[0] == 1 and record[2] == 40
    assert machine.arrivals_of_clusters == 2 * N - 1
