"""Long checks of launches: `python -m tests.launch.soak threads | kernels | forks [N]`.

`threads`: 8 threads launch N times (1,000,000) in all, on inputs that all read and now and then
replace, and on arrays of their own; results are compared as they go. `kernels`: N kernels (1,000)
are compiled and dropped; what stays behind is printed. `forks`: N children (200) are forked while
threads compile and launch, and launch too.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cp

THREADS = 8


def axpy(x, y, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def threads(count: int) -> None:
    """Launches of threads that share one kernel and its inputs."""
    kernel, wrong = cp.cube(axpy), []
    each = count // THREADS
    shared = [np.linspace(-1, 1, 10 + k, dtype=np.float32) for k in range(7)]

    def work(seed: int, times: int) -> None:
        rng = np.random.default_rng(seed)
        arrays = [rng.normal(size=x.size).astype(np.float32) for x in shared]
        outs = [np.full_like(y, np.nan) for y in arrays]
        for k in range(times):
            x, y, out, a = shared[k % 7], arrays[k % 7], outs[k % 7], float(k % 5)
            kernel.over(out)(shared[k % 7], y, out, a)
            if k % 64 == seed:
                shared[k % 7] = x.copy()  # nobody but a launch holds the other one from now on
            if k % 1000 < 7 and not np.allclose(out, x * a + y, rtol=1e-5, atol=1e-6):
                wrong.append((seed, k))

    run_together([lambda seed=seed: work(seed, 1000) for seed in range(THREADS)])
    before, began = resident(), time.perf_counter()
    run_together([lambda seed=seed: work(seed, each) for seed in range(THREADS)])
    seconds, grown = time.perf_counter() - began, resident() - before
    print(f"{each * THREADS} launches of {THREADS} threads in {seconds:.1f} s, {len(wrong)} wrong")
    print(f"{grown / 2**20:.2f} MiB more than after the first {1000 * THREADS}")
    assert not wrong, wrong[:3]


def kernels(count: int) -> None:
    """Kernels that are compiled and dropped."""
    x, out = np.ones(16, np.float32), np.zeros(16, np.float32)

    def make(number: int) -> None:
        @cp.cube
        def made(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
            out[0] = x[0] + number

        made[1, 1](x, out)
        assert out[0] == 1 + number

    for number in range(50):
        make(number)
    gc.collect()
    before = resident()
    for number in range(50, 50 + count):
        make(number)
    gc.collect()
    grown = (resident() - before) / 2**20
    ctypes.CDLL(None).malloc_trim(0)  # of glibc: what is free goes back to the system
    kept = (resident() - before) / 2**20
    print(f"{count} kernels dropped: {grown:.2f} MiB stay behind, {kept:.2f} without free memory")


def forks(count: int) -> None:
    """Children that are forked at any moment launch what is compiled and what is not."""
    kernel, is_over = cp.cube(axpy), threading.Event()

    def launch(seed: int) -> None:
        x, out = np.full(32 + seed, 2, np.float32), np.zeros(32 + seed, np.float32)
        while not is_over.is_set():
            kernel.over(out)(x, x, out, 2.0)
            other = cp.cube(axpy)
            other.over(out)(x, x, out, 3.0)
            assert (out == 8).all()

    def fork(number: int) -> None:
        child = os.fork()
        if not child:
            signal.alarm(60)
            x, out = np.full(99, 2, np.float32), np.zeros(99, np.float32)
            for made in (kernel, cp.cube(axpy)):
                made.over(out)(x, x, out, float(number))
            os._exit(0 if (out == 2 * number + 2).all() else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0, (number, status)

    def fork_all() -> None:
        try:
            for number in range(count):
                fork(number)
        finally:
            is_over.set()

    run_together([fork_all, *(lambda seed=seed: launch(seed) for seed in range(3))])
    print(f"{count} children forked while threads compile and launch")


def run_together(actions: list[Any]) -> None:
    """Run each in a thread; the first failure is this one's."""
    failures: list[BaseException] = []

    def run(action: Any) -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else ""
    usual = {"threads": 1_000_000, "kernels": 1000, "forks": 200}
    {"threads": threads, "kernels": kernels, "forks": forks}[which](
        int(sys.argv[2]) if len(sys.argv) > 2 else usual[which]
    )
