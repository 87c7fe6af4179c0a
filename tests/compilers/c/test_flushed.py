"""Metal and some devices of OpenCL take denormal f32 for 0; what is none in memory stays."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.compilers.c import metal_text

SWITCH = """
#include <xmmintrin.h>
extern "C" unsigned swap(unsigned word) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(word);
    return before;
}
"""
FLUSHING = 0x1F80 | 0x8040
"""The word of x86 in which denormal results and operands are 0."""


@pytest.fixture(scope="module")
def swap(
    tmp_path_factory: pytest.TempPathFactory, require_text_device: Callable[[str], None]
) -> Any:
    require_text_device("metal_text")
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the control word that flushes is one of x86")
    folder: Path = tmp_path_factory.mktemp("flushed")
    (folder / "swap.cpp").write_text(SWITCH)
    command = [metal_text.find_clang(), "-shared", "-fPIC", "-o", str(folder / "swap.so")]
    subprocess.run([*command, str(folder / "swap.cpp")], check=True)
    found = ctypes.CDLL(str(folder / "swap.so")).swap
    found.argtypes, found.restype = (ctypes.c_uint,), ctypes.c_uint
    return found


@contextmanager
def flushing(swap: Any) -> Iterator[None]:
    before = swap(FLUSHING)
    try:
        yield
    finally:
        swap(before)


@cp.cube
def widen(x, out):
    out[cp.ABSOLUTE_POS] = cp.f32(x[cp.ABSOLUTE_POS])


@cp.cube
def extremes(x, y, low, high):
    i = cp.ABSOLUTE_POS
    low[i] = min(x[i], y[i])
    high[i] = max(x[i], y[i])


@cp.cube
def double(x, out):
    out[cp.ABSOLUTE_POS] = x[cp.ABSOLUTE_POS] + x[cp.ABSOLUTE_POS]


def test_it_flushes(swap: Any):
    x, out = np.full(2, 2.0**-140, np.float32), np.ones(2, np.float32)
    with flushing(swap):
        double.configure(device="metal_text")[2, 1](x, out)
    assert not out.any()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_small_floats(swap: Any, name: str):
    x = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))
    wanted, out = x.astype(np.float32), np.zeros(256, np.float32)
    with flushing(swap):
        widen.configure(device="metal_text")[256, 1](x, out)
    np.testing.assert_array_equal(out, wanted)


def test_an_extremum_is_one_of_both(swap: Any):
    words = np.array([0, 1, 5, 10, 1 << 20, (1 << 23) - 1, 1 << 23], np.uint32)
    words = np.concatenate((words, words | 1 << 31))
    x, y = (v.ravel().copy().view(np.float32) for v in np.meshgrid(words, words))
    found = np.zeros((2, x.size), np.float32)
    with flushing(swap):
        extremes.configure(device="metal_text")[x.size, 1](x, y, *found)
    given = np.stack((x.view(np.uint32), y.view(np.uint32)))
    for result in found.view(np.uint32):
        assert (given == result).any(0).all()
