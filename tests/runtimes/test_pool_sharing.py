"""The pool when launches meet, when few cubes take long, and when somebody presses Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.runtimes.native import pool as pool_module
from cubepy.runtimes.native.linker import Library, compile_text, link
from cubepy.runtimes.native.pool import JOBS, Pool, cpu_quota, get_pool, usable_cores

TEXT = """
declare i32 @usleep(i32)

; args: how long each cube sleeps in microseconds, then a counter of each cube.
define void @sleep(ptr %args, i64 %begin, i64 %end) {
  %time = load i64, ptr %args
  %micros = trunc i64 %time to i32
  br label %run
run:
  %i = phi i64 [ %begin, %0 ], [ %i.1, %run ]
  %r = call i32 @usleep(i32 %micros)
  %i.1 = add i64 %i, 1
  %p = getelementptr i64, ptr %args, i64 %i.1
  %old = atomicrmw add ptr %p, i64 1 monotonic
  %more = icmp slt i64 %i.1, %end
  br i1 %more, label %run, label %done
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def entries() -> Library:
    return link(compile_text(TEXT, level=1), ["sleep"])


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(4)
    yield made
    made.close()


def run(pool: Pool, entries: Library, seconds: float, count: int, grain: int) -> float:
    """The time that a launch takes whose cubes only sleep; every cube runs once."""
    args = np.zeros(count + 1, np.int64)
    args[0] = round(seconds * 1e6)
    began = time.perf_counter()
    pool.run(entries.address["sleep"], args.ctypes.data, count, grain)
    took = time.perf_counter() - began
    assert (args[1:] == 1).all()
    return took


def test_few_cubes_that_take_long_are_shared(pool: Pool, entries: Library):
    """The launch was thought to be small, as its elements are few."""
    assert run(pool, entries, 0.1, 8, 8) < 0.6
    assert run(pool, entries, 0.1, 2, 100) < 0.35


def test_launches_at_the_same_time_share_the_cores(pool: Pool, entries: Library):
    took: list[float] = []
    threads = [
        threading.Thread(target=lambda: took.append(run(pool, entries, 0.05, 16, 1)))
        for _ in range(JOBS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(took) < 0.6, "one ran alone, which takes 0.8 s"


def test_many_launches_at_the_same_time(pool: Pool, entries: Library):
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for k in range(60):
                run(pool, entries, 0.0, 1 + (seed * 7 + k) % 50, 1 + k % 4)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3 * JOBS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, as it does not in what a shell runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("grain", [1, 50, 10_000])
def test_an_interrupt_ends_a_launch(entries: Library, threads: int, grain: int):
    pool = Pool(threads)
    args = np.zeros(10_001, np.int64)
    args[0] = 2000
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        pool.run(entries.address["sleep"], args.ctypes.data, 10_000, grain)
    assert time.perf_counter() - began < 2.5, "of 5 seconds with 4 threads, of 20 with one"
    ran = args[1:].sum()
    time.sleep(0.05)
    assert args[1:].sum() == ran and set(args[1:]) == {0, 1}, "a worker went on"
    run(pool, entries, 0.001, 40, 1)
    pool.close()


@pytest.mark.usefixtures("interrupts")
def test_a_second_interrupt_does_not_leave_workers_behind(pool: Pool, entries: Library):
    """Cubes of 0.3 s: the second signal comes while the first is served."""
    args = np.zeros(1001, np.int64)
    args[0] = 300_000
    timers = [
        threading.Timer(s, lambda: os.kill(os.getpid(), signal.SIGINT)) for s in (0.1, 0.15, 0.2)
    ]
    for timer in timers:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        pool.run(entries.address["sleep"], args.ctypes.data, 1000, 1)
    ran = args[1:].sum()
    for timer in timers:
        timer.join()
    time.sleep(0.4)
    assert args[1:].sum() == ran and ran <= 8
    run(pool, entries, 0.001, 40, 1)


SCRIPT = """
import os, signal, sys, threading, time
import numpy as np, cubepy as cp

@cp.cube
def busy(out, times: int):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v = out.flat[i]
        for _ in range(times):
            v = cp.sqrt(v * v + 1.0)
        out.flat[i] = v

out = np.ones(1 << 22, np.float32)
busy.over(out)(out, 1)
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
began = time.perf_counter()
try:
    busy.over(out)(out, 2_000)
except KeyboardInterrupt:
    took = time.perf_counter() - began
else:
    sys.exit("no interrupt came")
out[:] = 3
busy.over(out)(out, 1)
assert np.allclose(out, np.sqrt(10)), out
print(took)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_a_kernel(threads: int):
    environment = os.environ | {"CUBEPY_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2.5, "of many seconds"


# How many threads


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(root)


QUOTAS: dict[str, tuple[dict[str, str], float | None]] = {
    "none": ({}, None),
    "v2": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
    "v2, all": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
    "v2, of a level above": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
        },
        3.0,
    ),
    "v1": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/box\n3:memory:/box\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
        },
        0.5,
    ),
    "v1, mounted at its own root": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        2.0,
    ),
    "v1, all": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        None,
    ),
    "nonsense": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "what\n"}, None),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_quotas_of_containers(name: str, tmp_path: Path):
    files, wanted = QUOTAS[name]
    assert cpu_quota(write(tmp_path, files)) == wanted


def test_the_quota_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool_module, "cpu_quota", lambda: 0.5)
    assert usable_cores() == 1
    monkeypatch.setattr(pool_module, "cpu_quota", lambda: 1e6)
    assert usable_cores() == len(os.sched_getaffinity(0))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks")
def test_a_later_change_of_affinity_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool_module, "REFRESH", 0.0)
    everywhere = os.sched_getaffinity(0)
    before = get_pool()
    try:
        os.sched_setaffinity(0, {min(everywhere)})
        assert get_pool().threads == 1
    finally:
        os.sched_setaffinity(0, everywhere)
    assert get_pool() is before


def test_the_setting_counts_after_the_pool_was_made():
    device: Any = cp.device("cpu")
    usual = device.pool
    for threads in (1, 3, 2):
        with cp.settings(num_threads=threads):
            assert device.pool.threads == threads
    assert device.pool is usual
