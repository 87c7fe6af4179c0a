"""Launches from many threads, after a fork, under other thread counts, and inside each other."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import cubepy as cp

THREADS = 24


@cp.cube
def polynomial(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32], n: cp.Comptime[int]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        y = x.flat[i]
        total = y * 0
        for k in range(n):
            total = total * y + 1
        out.flat[i] = total


def expected(x: np.ndarray, n: int) -> np.ndarray:
    total = np.zeros_like(x, np.float64)
    for _ in range(n):
        total = (total * x + 1).astype(np.float32).astype(np.float64)
    return total.astype(np.float32)


def storm(action: Any) -> None:
    """Run `action(k)` in THREADS threads that start together; their failures are this one's."""
    barrier, failures = threading.Barrier(THREADS), []

    def work(k: int) -> None:
        barrier.wait()
        try:
            action(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_a_storm_of_first_calls_compiles_once(compiled: list[Any]):
    x = np.linspace(0, 0.5, 1000, dtype=np.float32)
    kernel = cp.cube(polynomial.function)

    def call(k: int) -> None:
        for _ in range(5):
            out = np.full_like(x, np.nan)
            kernel.over(out)(x, out, 4)
            np.testing.assert_allclose(out, expected(x, 4), rtol=1e-6)

    storm(call)
    assert len(compiled) == len(set(compiled)) <= 4, "once for each alignment"


def test_a_storm_of_different_kernels():
    x = np.linspace(0, 0.5, 5000, dtype=np.float32)
    kernel = cp.cube(polynomial.function)

    def call(k: int) -> None:
        for n in range(k % 6, k % 6 + 4):
            out = np.full_like(x, np.nan)
            kernel.over(out)(x, out, n)
            np.testing.assert_allclose(out, expected(x, n), rtol=1e-6)

    storm(call)


def test_a_storm_of_configurations():
    """Settings share what is compiled; `configure` in threads must not lose or mix any."""
    x = np.linspace(0, 0.5, 777, dtype=np.float32)
    kernel = cp.cube(polynomial.function)

    def call(k: int) -> None:
        with cp.settings(opt_level=3):
            found = kernel.configure(line_size=(1, 3, 4, 16)[k % 4], contract=bool(k % 2))
            out = np.full_like(x, np.nan)
            found.over(out)(x, out, 5)
            np.testing.assert_allclose(out, expected(x, 5), rtol=1e-6)

    storm(call)


def test_the_short_way_in_threads():
    """More kinds of launches than are kept, from many threads."""
    from cubepy.jit import fast

    kernel = cp.cube(polynomial.function)
    limit, fast.LIMIT = fast.LIMIT, 7
    try:

        def call(k: int) -> None:
            for n in range(1, 30):
                x = np.full(n, 0.5, np.float32)
                out = np.full_like(x, np.nan)
                kernel.over(out)(x, out, 2)
                assert (out == 1.5).all()

        storm(call)
    finally:
        fast.LIMIT = limit


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork():
    x = np.linspace(0, 0.5, 200_000, dtype=np.float32)
    out = np.empty_like(x)
    polynomial.over(out)(x, out, 3)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=_child, args=(x, results)) for _ in range(3)]
    for child in children:
        child.start()
    for _ in children:
        sums = [float(expected(x, n).sum(dtype=np.float64)) for n in (3, 4)]
        assert results.get(timeout=60) == pytest.approx(sums, rel=1e-9)
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    polynomial.over(out)(x, out, 3)
    np.testing.assert_array_equal(out, expected(x, 3))


def _child(x: np.ndarray, results: Any) -> None:
    """Launches what the parent compiled, and something new."""
    sums = []
    for n in (3, 4):
        out = np.full_like(x, np.nan)
        polynomial.over(out)(x, out, n)
        sums.append(float(out.sum(dtype=np.float64)))
    results.put(sums)


COUNT_THREADS = """
import os, numpy as np, cubepy as cp
@cp.cube
def fill(out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = i
before = len(os.listdir("/proc/self/task"))
out = np.zeros(3_000_000, np.int64)
for _ in range(3):
    fill.over(out)(out)
assert (out == np.arange(out.size)).all()
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads with Linux")
@pytest.mark.parametrize("count", [1, 2, 5])
def test_number_of_threads(count: int, tmp_path: Any):
    script = tmp_path / "count.py"
    script.write_text(COUNT_THREADS)
    environment = os.environ | {"CUBEPY_NUM_THREADS": str(count)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == count - 1, "the caller is one of them"


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "5000"])
def test_wrong_number_of_threads(text: str, tmp_path: Any):
    script = tmp_path / "wrong.py"
    script.write_text(COUNT_THREADS)
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"CUBEPY_NUM_THREADS": text},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "E506" in done.stderr and "CUBEPY_NUM_THREADS" in done.stderr and text in done.stderr


def test_launches_inside_of_launches():
    """`__array_interface__` runs Python in the middle of one launch's checks; it may launch too."""

    class Inner:
        def __init__(self, array: np.ndarray) -> None:
            self.array, self.shape = array, array.shape

        @property
        def __array_interface__(self) -> Any:
            out = np.empty(4, np.float32)
            polynomial.over(out)(np.zeros(4, np.float32), out, 2)
            assert (out == 1).all()
            return self.array.__array_interface__

    x = np.full(100, 0.5, np.float32)
    out = np.empty_like(x)
    for _ in range(3):
        polynomial.over(out)(Inner(x), out, 2)
        assert (out == 1.5).all()
