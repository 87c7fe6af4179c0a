"""Scratch memory of threads, and the kernels whose arrays lie there."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import cubepy as cp
from cubepy.config import settings
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


def test_what_the_system_has_not_is_reported_once():
    assert not scratch.lacking()
    assert take(HALF_OF_ALL_ADDRESSES) == 0
    assert (scratch.lacking(), scratch.lacking()) == (HALF_OF_ALL_ADDRESSES, 0)
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


def test_lack_of_memory_is_a_device_error():
    """The system is not asked for all memory here: the word is set as the native code sets it."""
    x, out = np.arange(1024, dtype=np.int32), np.zeros(1024, np.int32)
    word = ctypes.c_int64.from_address(scratch.lacking_address())
    for _ in range(4):  # native code launches from the third on
        word.value = 12345
        with pytest.raises(cp.DeviceError, match="E504.*12345"):
            arrays_of_units[1, 1024](x, out)
        arrays_of_units[1, 1024](x, out)
