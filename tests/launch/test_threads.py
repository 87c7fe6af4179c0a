"""Launches of many threads while what they use is replaced: arrays, captures, functions, defaults.

With Python's global lock these are rare moments; without it (free-threaded Python) usual ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Barrier, Event, Thread
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.lang.containers import listed

THREADS = 8
LAUNCHES = 300


@cp.cube
def axpy(x, y, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


@cp.cube
def power(v, n: cp.Comptime[int]):
    total = v * 0 + 1
    for _ in range(n):
        total = total * v
    return total


def together(*actions: Callable[[], Any]) -> None:
    """Run each in a thread, all from one moment on; their first failure is this one's."""
    barrier, failures = Barrier(len(actions)), []

    def run(action: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            action()
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def replacing(change: Callable[[int], Any], work: Callable[[int], Any]) -> None:
    """`change` what threads `work` with, as long as they do."""
    over = Event()

    def keep_changing() -> None:
        k = 0
        while not over.is_set():
            change(k)
            k += 1

    changing = Thread(target=keep_changing)
    changing.start()
    try:
        together(*[lambda seed=seed: work(seed) for seed in range(THREADS)])
    finally:
        over.set()
        changing.join()


def test_own_and_shared_arrays():
    """Threads read one input, and write arrays of their own and rows of one."""
    shared, rows = np.arange(33, dtype=np.float32), np.zeros((THREADS, 33), np.float32)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for k in range(LAUNCHES):
            y = rng.normal(size=33).astype(np.float32)
            out = np.full_like(y, np.nan)
            axpy.over(out)(shared, y, out, 2.0)
            axpy.over(rows[seed])(shared, y, rows[seed], k % 5)
            np.testing.assert_allclose(out, shared * 2 + y, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(rows[seed], shared * (k % 5) + y, rtol=1e-6, atol=1e-6)

    together(*[lambda seed=seed: work(seed) for seed in range(THREADS)])


def test_arrays_that_nobody_else_holds_any_more():
    """The launch alone keeps its arrays, of every size and of results that come from the pool."""
    held: list[Any] = [np.full(n, n, np.float32) for n in (3, 200, 30_000)]

    def change(k: int) -> None:
        n = (3, 200, 30_000)[k % 3]
        held[k % 3] = (
            np.full(n, n, np.float32) if k % 2 else cp.kernels.map(lambda v: v, held[k % 3])
        )

    def work(seed: int) -> None:
        for k in range(LAUNCHES):
            x = held[(seed + k) % 3]
            out = np.full_like(x, np.nan)
            axpy.over(out)(held[(seed + k) % 3], x, out, 1.0)
            assert (out == 2 * x.size).all()

    replacing(change, work)


FACTOR = 1
TERMS = [1, 1]


@cp.cube
def captures(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * FACTOR + TERMS[0] * 16 + TERMS[1] * 256


def test_captured_names_that_change():
    """A launch reads names while they change, as Python does; what it compiled for them then is not
    what later launches take."""

    def change(k: int) -> None:
        global FACTOR, TERMS
        FACTOR = 1 + k % 3
        TERMS = [k % 5, k % 5]

    x = np.ones(5, np.float32)
    outs = [np.zeros(5, np.float32) for _ in range(THREADS)]
    bounds = [captures.over(out).bind(x, out) for out in outs]

    def work(seed: int) -> None:
        out, bound = outs[seed], bounds[seed]
        launch = captures.over(out)
        for k in range(LAUNCHES):
            out[:] = np.nan
            bound() if k % 2 else launch(x, out)
            assert len(set(out)) == 1 and out[0] % 16 in (1, 2, 3) and out[0] < 4 + 4 * (16 + 256)

    replacing(change, work)
    for k in range(15):
        change(k)
        for out, bound in zip(outs, bounds, strict=True):
            wanted = 1 + k % 3 + k % 5 * (16 + 256)
            bound()
            assert (out == wanted).all(), (out, wanted)
            captures.over(out)(x, out)
            assert (out == wanted).all(), (out, wanted)


def test_helpers_that_are_replaced():
    def once(v):
        return v + 1

    def twice(v):
        return v + 2

    def helper(v):
        return v + 1

    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = helper(x.flat[i]) + helper(x.flat[i]) * 16

    def change(k: int) -> None:
        helper.__code__ = (once if k % 2 else twice).__code__

    x = np.ones(5, np.float32)

    def work(seed: int) -> None:
        out = np.zeros(5, np.float32)
        for _ in range(LAUNCHES):
            kernel.over(out)(x, out)
            assert len(set(out)) == 1 and out[0] % 16 in (2, 3) and out[0] // 16 in (2, 3)

    replacing(change, work)
    for k in range(4):
        change(k)
        for out in (np.zeros(5, np.float32), np.zeros((1, 5), np.float32)[0]):
            kernel.over(out)(x, out)
            assert (out == (2 if k % 2 else 3) * 17).all()


def test_a_header_that_another_thread_reads(monkeypatch: pytest.MonkeyPatch):
    """Whoever sees that the defaults are others takes the new ones, and not those of before."""
    import inspect

    def function(out, by=1.0):
        out[0] = by

    kernel, out = cp.cube(function), np.zeros(1, np.float32)
    kernel[1, 1](out)
    assert out[0] == 1
    begun, goes_on, original = Event(), Event(), inspect.signature

    def slow(*args: Any, **kwargs: Any) -> Any:
        if not begun.is_set():
            begun.set()
            assert goes_on.wait(60)
        return original(*args, **kwargs)

    monkeypatch.setattr(inspect, "signature", slow)
    function.__defaults__ = (2.0,)
    outs = [np.zeros(1, np.float32) for _ in "12"]
    threads = [Thread(target=kernel[1, 1], args=(out,)) for out in outs]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.2)  # it may wait for the first
    goes_on.set()
    for thread in threads:
        thread.join()
    assert outs[0][0] == outs[1][0] == 2


def test_kernels_that_share_helpers_compile_at_once():
    """Each thread compiles kernels of its own, which inline the same functions."""

    def work(seed: int) -> None:
        for n in (0, 3):

            @cp.cube
            def kernel(x, out, n: cp.Comptime[int]):
                i = cp.ABSOLUTE_POS
                if i < out.size:
                    out.flat[i] = power(x.flat[i], n) + seed

            x, out = np.full(7, 2, np.float32), np.zeros(7, np.float32)
            kernel.over(out)(x, out, n)
            assert (out == 2**n + seed).all()
            assert "fmul" in kernel.over(out).inspect(x, out, 2, stage="llvm")

    together(*[lambda seed=seed: work(seed) for seed in range(THREADS)])


NAMES: dict[str, int] = {"by": 2}
WORDS = {1, 2}


def test_containers_that_change_in_place():
    """A launch compares what a kernel captured while another thread adds to it and takes away."""

    def change(k: int) -> None:
        for n in range(200):
            NAMES[str(n)] = n
            WORDS.add(n)
        for n in range(200):
            del NAMES[str(n)]
            WORDS.discard(n)

    def scaled(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * NAMES["by"] + (7777 in WORDS)

    kernel = cp.cube(scaled)

    def work(seed: int) -> None:
        x, out = np.ones(5, np.float32), np.zeros(5, np.float32)
        for _ in range(3):
            kernel.over(out)(x, out)
            assert (out == 2).all()

    replacing(change, work)


def test_what_changes_while_it_is_listed():
    """As where another thread adds to a dictionary between two items; deep recursion is none."""
    tries: list[type[RuntimeError]] = [RuntimeError, RuntimeError]

    class Changing:
        def __iter__(self) -> Iterator[int]:
            yield 1
            if tries:
                raise tries.pop()
            yield 2

    assert listed(Changing()) == [1, 2]
    tries.append(RecursionError)
    with pytest.raises(RecursionError):
        listed(Changing())


class Scale:
    """A comptime object, whose class gets and loses attributes while kernels are compiled."""

    by = 2

    def __index__(self) -> int:
        return self.by

    def times(self, n: int) -> int:
        """Run by Python at comptime."""
        return self.by * n


SCALE = Scale()


def test_classes_that_change_while_kernels_compile(tmp_path: Any):
    """Traces and keys on disk walk through classes that another thread changes."""

    def change(k: int) -> None:
        setattr(Scale, f"extra{k % 40}", k)
        if k % 40 == 39:
            for n in range(40):
                delattr(Scale, f"extra{n}")

    def scaled(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * SCALE.times(3) + range(5)[SCALE]

    def work(seed: int) -> None:
        x, out = np.ones(5, np.float32), np.zeros(5, np.float32)
        with cp.settings(cache=True, cache_dir=str(tmp_path)):
            for _ in range(5):
                cp.cube(scaled).over(out)(x, out)
                assert (out == 8).all()

    replacing(change, work)


def test_the_interpreter_and_checked_kernels():
    def work(seed: int) -> None:
        x, out = np.full(5, seed, np.float32), np.zeros(5, np.float32)
        for k in range(20):
            axpy.configure(device="interpreter").over(out)(x, x, out, k)
            assert (out == seed * (k + 1)).all()
            axpy.configure(checked=True).over(out)(x, x, out, 1.0)
            assert (out == 2 * seed).all()

    together(*[lambda seed=seed: work(seed) for seed in range(THREADS)])


def test_prebuilt_functions():
    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for n in range(3, 8):
            x = rng.integers(-4, 5, (n, n)).astype(np.float32)
            assert cp.kernels.sum(x) == x.sum()
            np.testing.assert_array_equal(cp.kernels.matmul(x, x), x @ x)
            np.testing.assert_array_equal(cp.kernels.map(abs, x), abs(x))

    together(*[lambda seed=seed: work(seed) for seed in range(THREADS)])


FIRST_USE = """
import sys, threading
import numpy as np
import cubepy as cp

@cp.cube
def fill(out, value):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = value

@cp.autotuned(space={"n": [1, 2]})
def tuned(out, config):
    fill.over(out)(out, config["n"] * 0 + 3)

barrier, failures = threading.Barrier(8), []

def work(k):
    barrier.wait()
    try:
        for n in (9, 70_000):
            out = np.zeros(n, np.float32)
            fill.over(out)(out, k)
            assert (out == k).all()
            for _ in range(3):
                tuned(out)
            assert (out == 3).all()
        fill.over(out).inspect(out, k, target="cuda:sm_80")
        assert cp.device("cpu") is cp.device("cpu")
        return_value = cp.kernels.sum(np.ones(n, np.float32))
        assert return_value == n
    except BaseException as error:
        failures.append(error)
        raise

threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for t in threads: t.start()
for t in threads: t.join()
sys.exit(len(failures))
"""


@pytest.mark.parametrize("attempt", range(3))
def test_first_use_by_many_threads(attempt: int, tmp_path: Any):
    """All that is imported and made on first use, asked for by all threads at the same moment."""
    script = tmp_path / "first.py"
    script.write_text(FIRST_USE)
    environment = os.environ | {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stderr


def test_the_global_lock_stays_off():
    """Nothing that CubePy imports switches it on again, where Python is built without it."""
    if not hasattr(sys, "_is_gil_enabled") or "t" not in sys.abiflags:
        return
    code = (
        "import sys, numpy as np, cubepy as cp\n"
        "assert cp.kernels.sum(np.ones(9, np.float32)) == 9\n"
        "import ml_dtypes\nsys.exit(sys._is_gil_enabled())"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr
