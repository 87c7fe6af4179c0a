"""The last words of a process that a kernel crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")

SCRIPT = """
import os, signal, sys, threading
import numpy as np, cubepy as cp

@cp.cube
def stray(out, far: cp.i64):
    out[cp.ABSOLUTE_POS + far] = 1.0

@cp.cube
def fine(out):
    out[cp.ABSOLUTE_POS] = 1.0

out = np.zeros(64, np.float32)
fine[1, 64](out)
"""
WORDS = "cubepy: the process crashed while the kernel `stray` ran; rerun with CUBEPY_CHECKED=1\n"


def run(end: str, *options: str) -> tuple[int, str]:
    kept = {"CUBEPY_CACHE": "1"}  # each would compile the pool and the launcher again
    environment = os.environ | kept | {"CUBEPY_NUM_THREADS": "2", "PYTHONFAULTHANDLER": ""}
    done = subprocess.run(
        [sys.executable, *options, "-c", SCRIPT + end],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("cubes", [1, 4096])
def test_a_kernel_that_crashes_is_named(cubes: int):
    assert run(f"stray[{cubes}, 1](out, 1 << 44)") == (-signal.SIGSEGV, WORDS)


@pytest.mark.parametrize("cubes", [1, 4096, 1 << 18])
def test_a_kernel_that_was_launched_natively_is_named(cubes: int):
    """In a thread with the GIL, and in a team without it, whose threads crash together."""
    end = f"""
far = stray[{cubes}, 1]
out = np.zeros({cubes}, np.float32)
for _ in range(5):
    far(out, 0)
    fine[1, 64](out)
far(out, 1 << 44)
"""
    assert run(end) == (-signal.SIGSEGV, WORDS)


def test_a_kernel_of_another_thread_is_named():
    end = "t = threading.Thread(target=stray[1, 1], args=(out, 1 << 44)); t.start(); t.join()"
    assert run(end) == (-signal.SIGSEGV, WORDS)


def test_faulthandler_still_reports():
    for end in ("", "import faulthandler; faulthandler.enable()\n"):
        options = () if end else ("-X", "faulthandler")
        code, text = run(end + "stray[1, 1](out, 1 << 44)", *options)
        assert code == -signal.SIGSEGV
        assert WORDS in text and "Fatal Python error: Segmentation fault" in text


def test_other_crashes_are_not_a_kernels():
    assert run("import ctypes; ctypes.string_at(8)") == (-signal.SIGSEGV, "")
    assert run("os.kill(os.getpid(), signal.SIGSEGV)") == (-signal.SIGSEGV, "")


def test_a_handler_of_the_user_comes_after():
    end = """
before = signal.signal(signal.SIGFPE, lambda *_: print("mine", file=sys.stderr))
os.kill(os.getpid(), signal.SIGFPE)
fine[1, 64](out)
"""
    assert run(end) == (0, "mine\n")
