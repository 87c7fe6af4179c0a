"""Kernels of divergent control flow: their units as lanes compute what units one by one do."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.fuzz.finds import LANES_FINDS
from tests.fuzz.lanes import CONSTRUCTS
from tests.fuzz.units_as_lanes import census, check, generate

KERNELS = 24
CHUNK = 12
RARE = (417, 73, 41)
"""The first kernels that have what is rarest."""


@pytest.mark.parametrize("start", range(0, KERNELS, CHUNK))
def test_kernels(start: int) -> None:
    taken = [check(seed) for seed in range(start, start + CHUNK)]
    assert sum(taken) > CHUNK // 2


@pytest.mark.parametrize("seed", LANES_FINDS)
def test_finds(seed: int) -> None:
    assert check(seed)


def test_most_kernels_are_taken() -> None:
    """The pass refuses lines, planes that fit nowhere, and barriers behind a jump of some units."""
    _, refusals, lanes = census(range(12))
    assert sum(lanes.values()) > 8
    assert all(any(w in text for w in ("lines", "barrier")) for text in refusals), refusals


def test_all_constructs_are_written() -> None:
    found: set[str] = set()
    for seed in (*RARE, *range(3000)):
        found.update(generate(seed).constructs())
        if found == set(CONSTRUCTS):
            break
    assert found == set(CONSTRUCTS), set(CONSTRUCTS) - found


def test_memory_around_arrays_is_out_of_reach() -> None:
    """As the fault of a unit that is off would be noticed."""
    script = (
        "import ctypes, numpy as np\n"
        "from tests.fuzz.guarded import Guarded\n"
        "array = Guarded(1, 64).copy(0, np.arange(3, dtype=np.int32), {at_end})\n"
        "assert array.tolist() == [0, 1, 2]\n"
        "print('copied', flush=True)\n"
        "ctypes.c_int32.from_address(array.ctypes.data + {offset}).value\n"
    )
    for at_end, offset in ((True, 12), (False, -4)):
        text = script.format(at_end=at_end, offset=offset)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert done.returncode == -signal.SIGSEGV, done.stderr
        assert done.stdout == "copied\n"
