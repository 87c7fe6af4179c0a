"""Scratch memory of threads, and the kernels whose arrays lie there."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.config import settings
from cubepy.jit.tables import native_executor
from cubepy.runtimes.native import scratch
from cubepy.runtimes.native.linker import compile_text

HALF_OF_ALL_ADDRESSES = 1 << 62


def take(nbytes: int) -> int:
    address = scratch.symbols()[scratch.TAKE]
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(address)(nbytes) or 0


@pytest.mark.parametrize("nbytes", [1, 1000, scratch.SMALL, scratch.LARGE, 3 * scratch.LARGE + 5])
def test_memory_is_aligned_and_can_be_written(nbytes: int):
    address = take(nbytes)
    assert address and address % 64 == 0
    ctypes.memset(address, 0x5A, nbytes)
    assert ctypes.string_at(address + nbytes - 1, 1) == b"\x5a"


def test_a_thread_keeps_its_memory_and_others_have_their_own():
    mine, other = take(5000), []
    assert take(100) == mine == take(5000)
    thread = threading.Thread(target=lambda: other.extend((take(5000), take(4000))))
    thread.start()
    thread.join()
    assert other[0] == other[1] != mine


def test_what_the_system_has_not_is_null():
    assert take(HALF_OF_ALL_ADDRESSES) == 0
    assert take(100)


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_the_text_of_every_system_compiles(system: str):
    assert compile_text(scratch.text(system))


@cp.cube
def arrays_of_units(x, out):
    """Half a dozen blocks of a cube, most of whole pages, that live across barriers."""
    t = cp.UNIT_POS
    held = cp.local(67, cp.i32, fill=0)
    first, second = cp.shared(1024, cp.i32), cp.shared(5000, cp.i32)
    for k in range(67):
        held[k] = x[t] * k
    v = x[t] // 3
    first[t] = x[t]
    for k in range(5):
        if 5 * t + k < 5000:
            second[5 * t + k] = t + k
    cp.sync_cube()
    total = v
    for k in range(67):
        total += held[(k + t) % 67] * cp.i32(k + 1)
    neighbour = first[(t + 1) % cp.CUBE_DIM]
    cp.sync_cube()
    first[t] = total + second[(17 * t) % 5000]
    cp.sync_cube()
    out[cp.ABSOLUTE_POS] = first[cp.CUBE_DIM - 1 - t] + neighbour + total


def arrays_expected(x: np.ndarray) -> np.ndarray:
    t, k = np.arange(x.size)[:, None], np.arange(67)
    total = x // 3 + (x[:, None] * ((k + t) % 67) * (k + 1)).sum(1)
    first = total + np.array([(17 * j % 5000) // 5 + (17 * j % 5000) % 5 for j in range(x.size)])
    return first[::-1] + np.roll(x, -1) + total


@pytest.mark.parametrize("units", [1024, 1000])
def test_arrays_of_all_units_lie_in_scratch_memory(units: int):
    x = np.random.default_rng(units).integers(-1000, 1000, units).astype(np.int32)
    out = np.zeros(16 * units, np.int32)
    arrays_of_units[16, units](x, out)
    np.testing.assert_array_equal(out.reshape(16, -1), np.tile(arrays_expected(x), (16, 1)))


def test_many_threads_of_python_launch_at_once():
    x = np.arange(1024, dtype=np.int32)
    outs = [np.zeros(8 * 1024, np.int32) for _ in range(6)]
    threads = [threading.Thread(target=arrays_of_units[8, 1024], args=(x, o)) for o in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        np.testing.assert_array_equal(out.reshape(8, -1), np.tile(arrays_expected(x), (8, 1)))


@cp.cube
def one_large_array(x, out):
    held = cp.local(4_000_000, cp.f32)
    for k in range(held.shape[0]):
        held[k] = x[k % 7]
    out[cp.ABSOLUTE_POS] = held[3_999_999 - cp.ABSOLUTE_POS]


def test_a_unit_may_have_an_array_of_16_mb():
    x, out = np.arange(7, dtype=np.float32), np.zeros(5, np.float32)
    one_large_array[5, 1](x, out)
    assert out.tolist() == [(3_999_999 - k) % 7 for k in range(5)]


@cp.cube
def an_array_of_each_unit(x):
    held = cp.local(70_000, cp.f32)
    held[cp.UNIT_POS] = x[cp.UNIT_POS]
    cp.sync_cube()
    x[cp.UNIT_POS] = held[cp.UNIT_POS] + 1.0


def test_too_large_arrays_are_refused_at_their_line_or_allowed():
    x = np.zeros(512, np.float32)
    with pytest.raises(cp.CompileError, match="E308.*143360000 bytes") as caught:
        an_array_of_each_unit[1, 512](x)
    assert caught.value.span is not None and "70_000" in str(caught.value)
    assert not x.any()
    with settings(scratch_bytes=200 << 20):
        an_array_of_each_unit[1, 512](x)
    assert (x == 1.0).all()


@cp.cube
def asks_for_too_much(x):
    held = cp.local(1 << 59, cp.f32)
    for k in range(x.size):
        held[k] = x[k]
    x[0] += held[x.size - 1]


@pytest.fixture
def lacking() -> Iterator[Any]:
    """A compiled kernel that no system has the scratch memory for."""
    kernel = cp.cube(asks_for_too_much.function)
    with settings(scratch_bytes=1 << 62):
        with pytest.raises(cp.DeviceError):
            kernel[1, 1](np.ones(3, np.float32))
        yield kernel


@pytest.mark.parametrize("cubes", [1, 1000])
def test_lack_of_memory_is_a_device_error(lacking: Any, cubes: int):
    x = np.ones(3, np.float32)
    launch = lacking[cubes, 1]
    bound = launch.bind(x)
    for run in (lambda: launch(x), bound, lambda: launch(x), bound):
        with pytest.raises(cp.DeviceError, match=r"E504.* 2305843009213\d{6} "):
            run()
    assert (x == 1).all()


LACKING = """
import resource
import sys
import threading

import numpy as np

import cubepy as cp
from cubepy.jit.kernel import Launcher


@cp.cube
def large(x, out):
    held = cp.local(1 << 27, cp.f32)
    for k in range(x.size):
        held[k] = x[k]
    out[cp.ABSOLUTE_POS] = held[x.size - 1]


@cp.cube
def small(x, out):
    held = cp.local(1 << 16, cp.f32)
    for k in range(x.size):
        held[k] = x[k]
    out[cp.ABSOLUTE_POS] = held[x.size - 1]


cubes = int(sys.argv[1])
x, barrier = np.ones(3, np.float32), threading.Barrier(5)
failed, wrong, general = [0] * 4, [], 0
inner = Launcher._prepared


def counting(*args):
    global general
    general += 1
    return inner(*args)


def work(number):
    out = np.zeros(cubes, np.float32)
    small[cubes, 1](x, out)  # this thread has the memory of this one
    barrier.wait()
    barrier.wait()
    for _ in range(300):
        try:
            large[cubes, 1](x, out)
        except cp.DeviceError as error:
            failed[number] += str(4 << 27)[:5] in str(error)
        try:
            out[:] = 0
            small[cubes, 1](x, out)
            assert (out == 1).all()
        except BaseException as error:
            wrong.append(error)


threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for thread in threads:
    thread.start()
out = np.zeros(cubes, np.float32)
for _ in range(4):  # native code launches from the third on
    large[cubes, 1](x, out)
    small[cubes, 1](x, out)
barrier.wait()
Launcher._prepared = counting
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
barrier.wait()
for thread in threads:
    thread.join()
print(failed, wrong, general)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
@pytest.mark.parametrize("cubes", [1, 3])
def test_each_launch_that_lacks_memory_says_so(cubes: int, tmp_path: Path):
    """Also where others do at the same time; and those that have enough say nothing."""
    script = tmp_path / "lacking.py"
    script.write_text(LACKING)
    environment = {**os.environ, "CUBEPY_SCRATCH_BYTES": str(1 << 30), "CUBEPY_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(cubes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr
    is_native = native_executor() is not None
    assert done.stdout.startswith("[300, 300, 300, 300] []"), done.stdout
    assert done.stdout.endswith(" 0\n") or not is_native
