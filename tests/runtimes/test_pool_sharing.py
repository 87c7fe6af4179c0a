"""The pool when launches meet, when few cubes take long, and when somebody presses Ctrl-C."""

from __future__ import annotations

import ctypes
import math
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
from cubepy.runtimes.native.interrupts import LEFT
from cubepy.runtimes.native.linker import Library, compile_text, link
from cubepy.runtimes.native.pool import (
    CUT,
    INLINE,
    JOBS,
    RESUME,
    SHARE,
    UNFINISHED,
    Pool,
    address_of,
    cpu_quota,
    get_pool,
    interrupts_of_main,
    usable_cores,
)

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

declare i32 @raise(i32)

; A signal comes when Python has looked for the last time, and then cubes run.
define i64 @inline(ptr %run, ptr %entry, ptr %args, i64 %count) {
  %r = call i32 @raise(i32 2)
  %reached = call i64 %run(ptr %entry, ptr %args, i64 0, i64 %count, i64 10000000)
  ret i64 %reached
}

define void @share(ptr %run, ptr %state, ptr %entry, ptr %args, i64 %count, ptr %status) {
  %r = call i32 @raise(i32 2)
  call void %run(ptr %state, ptr %entry, ptr %args, i64 0, i64 %count, i64 1, ptr %status)
  ret void
}

; args: how many cubes are to meet, how many came, whether somebody was alone for 30 seconds. Nobody
; leaves before so many came: they ran at the same time, in as many threads. The first cube of all
; takes a millisecond and waits for none: others help where it took long.
define void @meet(ptr %args, i64 %begin, i64 %end) {
  %wanted = load i64, ptr %args
  %came.p = getelementptr i64, ptr %args, i64 1
  %alone.p = getelementptr i64, ptr %args, i64 2
  br label %run
run:
  %i = phi i64 [ %begin, %0 ], [ %i.1, %last ]
  %is.first = icmp eq i64 %i, 0
  br i1 %is.first, label %first, label %come
first:
  %f = call i32 @usleep(i32 1000)
  br label %last
come:
  %old = atomicrmw add ptr %came.p, i64 1 seq_cst
  br label %wait
wait:
  %turn = phi i64 [ 0, %come ], [ %turn.1, %nap ]
  %came = load atomic i64, ptr %came.p seq_cst, align 8
  %few = icmp slt i64 %came, %wanted
  br i1 %few, label %nap, label %last
nap:
  %r = call i32 @usleep(i32 1000)
  %turn.1 = add i64 %turn, 1
  %is.late = icmp sgt i64 %turn.1, 30000
  br i1 %is.late, label %late, label %wait
late:
  store atomic i64 1, ptr %alone.p seq_cst, align 8
  store atomic i64 %wanted, ptr %came.p seq_cst, align 8
  br label %last
last:
  %i.1 = add i64 %i, 1
  %more = icmp slt i64 %i.1, %end
  br i1 %more, label %run, label %done
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def entries() -> Library:
    return link(compile_text(TEXT, level=1), ["sleep", "meet", "inline", "share"])


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(4)
    yield made
    made.close()


def run(pool: Pool, entries: Library, seconds: float, count: int, grain: int) -> None:
    """A launch whose cubes only sleep; every cube runs once."""
    args = np.zeros(count + 1, np.int64)
    args[0] = round(seconds * 1e6)
    pool.run(entries.address["sleep"], args.ctypes.data, count, grain)
    assert (args[1:] == 1).all()


def do_meet(pool: Pool, entries: Library, wanted: int, count: int, grain: int) -> bool:
    """Whether so many cubes of a launch run at the same time."""
    args = np.array([wanted, 0, 0], np.int64)
    pool.run(entries.address["meet"], args.ctypes.data, count, grain)
    return not args[2]


def test_few_cubes_that_take_long_are_shared(pool: Pool, entries: Library):
    """The launch was thought to be small, as its elements are few."""
    assert do_meet(pool, entries, 4, 8, 8)
    run(pool, entries, 0.01, 2, 100)


def test_launches_at_the_same_time_share_the_cores(pool: Pool, entries: Library):
    """None runs alone."""
    met: list[bool] = []
    together = threading.Barrier(JOBS)

    def work() -> None:
        together.wait()
        met.append(do_meet(pool, entries, 2, 16, 1))

    threads = [threading.Thread(target=work) for _ in range(JOBS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == [True] * JOBS


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


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("grain", [1, 50, 10_000])
def test_an_interrupt_ends_a_launch(entries: Library, threads: int, grain: int):
    pool = Pool(threads)
    args = np.zeros(10_001, np.int64)
    args[0] = 2000
    with Signals(0.3, math.inf), pytest.raises(KeyboardInterrupt):
        pool.run(entries.address["sleep"], args.ctypes.data, 10_000, grain)
    ran = args[1:].sum()
    assert ran < 5_000, "it took as long as 2.5 seconds with 4 threads, 10 with one"
    time.sleep(0.05)
    assert args[1:].sum() == ran and set(args[1:]) == {0, 1}, "a worker went on"
    run(pool, entries, 0.001, 40, 1)
    pool.close()


class Signals:
    """Sends SIGINT to this process every `seconds`, `count` times or until the block ends. The
    handler raises while the pool runs, and only then, so that no test ends by a signal that came
    too late."""

    def __init__(self, seconds: float, count: float = 1, raises: bool = True) -> None:
        self.sent = self.taken = 0
        self._is_over = False
        self._raises = raises
        self._count = count
        self._thread = threading.Thread(target=self._send, args=(seconds,))

    def __enter__(self) -> Signals:
        self._before = signal.signal(signal.SIGINT, self._take)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = math.isinf(self._count)
        self._thread.join()
        signal.signal(signal.SIGINT, self._before)

    def _send(self, seconds: float) -> None:
        while self.sent < self._count and not self._is_over:
            time.sleep(seconds)
            self.sent += 1
            os.kill(os.getpid(), signal.SIGINT)

    def _take(self, _: int, frame: Any) -> None:
        while frame is not None and frame.f_code is not Pool.run.__code__:
            frame = frame.f_back
        if frame is not None:
            self.taken += 1
            if self._raises:
                raise KeyboardInterrupt


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_an_interrupt_ends_cubes_that_take_long(entries: Library, threads: int, count: int):
    """Cubes of a minute: those of the caller and those of workers are left."""
    pool = Pool(threads)
    args = np.zeros(count + 1, np.int64)
    args[0] = 60_000_000
    for grain in (1, count):
        with Signals(0.2, math.inf), pytest.raises(KeyboardInterrupt):
            pool.run(entries.address["sleep"], args.ctypes.data, count, grain)
        assert not args[1:].any(), "a cube ran to its end"
        run(pool, entries, 0.001, 40, 1)
    pool.close()


@pytest.mark.parametrize("count", [1, 9])
def test_many_interrupts_leave_no_worker_behind(pool: Pool, entries: Library, count: int):
    """Some come while others are served."""
    args = np.zeros(count + 1, np.int64)
    args[0] = 20_000_000
    with Signals(1e-4, math.inf) as signals:  # the last may come when the pool does not run
        ended = 0
        while signals.sent < 300 or ended < 10:
            try:
                pool.run(entries.address["sleep"], args.ctypes.data, count, 1)
            except KeyboardInterrupt:
                ended += 1
            assert not args[1:].any(), "a cube ran to its end"
    run(pool, entries, 0.001, 40, 1)


class Pressed(Exception):
    """Raised for SIGINT, so that a test fails by it and no session ends."""


@pytest.fixture
def presses() -> Iterator[None]:
    def press(*_: object) -> None:
        raise Pressed

    before = signal.signal(signal.SIGINT, press)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform != "linux", reason="cubes are left on Linux alone")
@pytest.mark.usefixtures("presses")
def test_an_interrupt_just_before_cubes_begin_ends_them(entries: Library):
    args = np.zeros(2, np.int64)
    args[0] = 20_000_000
    of_main = interrupts_of_main()
    of_main.listen()
    inline = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    run_inline, sleep = address_of(INLINE), entries.address["sleep"]
    reached = inline(entries.address["inline"])(run_inline, sleep, args.ctypes.data, 1)
    assert reached == LEFT and not args[1]
    with pytest.raises(Pressed):
        of_main.raise_again()


@pytest.mark.skipif(sys.platform != "linux", reason="cubes are left on Linux alone")
@pytest.mark.usefixtures("presses")
def test_an_interrupt_just_before_shared_cubes_begin_ends_them(pool: Pool, entries: Library):
    count = 9
    args = np.zeros(count + 1, np.int64)
    args[0] = 20_000_000
    interrupts_of_main().listen()
    status = (ctypes.c_int64 * 3)()
    pointers = [ctypes.c_void_p] * 4
    share = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64, ctypes.c_void_p)
    resume = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(address_of(RESUME))
    entry = entries.address["sleep"]
    began = share(entries.address["share"])
    began(address_of(SHARE), pool.state_address, entry, args.ctypes.data, count, status)
    while status[0] == UNFINISHED:
        resume(pool.state_address, status)
    assert status[0] == CUT and not args[1:].any()
    with pytest.raises(Pressed):
        interrupts_of_main().raise_again()
    run(pool, entries, 0.001, 40, 1)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_handler_that_does_not_raise_lets_cubes_go_on(entries: Library, threads: int):
    pool = Pool(threads)
    args = np.zeros(9, np.int64)
    with Signals(0.01, 20, raises=False) as signals:
        while signals.sent < 20:
            args[:] = 0
            args[0] = 1000
            pool.run(entries.address["sleep"], args.ctypes.data, 8, 1)
            assert (args[1:] == 1).all()
    assert signals.taken > 0
    pool.close()


def test_a_handler_may_run_cubes_of_its_own(pool: Pool, entries: Library):
    def handle(*_: object) -> None:
        run(pool, entries, 0.001, 1, 1)
        run(pool, entries, 0.001, 40, 1)
        ran.append(1)

    ran: list[int] = []
    before = signal.signal(signal.SIGINT, handle)
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        for count in (1, 8):
            run(pool, entries, 0.3, count, 1)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert ran == [1]


def test_a_signal_while_python_handles_another_is_not_a_cubes(pool: Pool, entries: Library):
    def handle(*_: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append("first")
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        except KeyboardInterrupt:
            seen.append("second")

    seen: list[str] = []
    before = signal.signal(signal.SIGINT, handle)
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        run(pool, entries, 0.3, 1, 1)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert seen == ["first", "second"]


def test_threads_but_the_main_one_end_their_cubes(pool: Pool, entries: Library):
    """Python handles signals in the main thread alone; what others launched goes on."""
    done: list[bool] = []

    def work() -> None:
        run(pool, entries, 0.05, 20, 1)
        done.append(True)

    thread = threading.Thread(target=work)
    with Signals(0.02, 5) as signals:
        thread.start()
        thread.join()
    assert done and signals.taken == 0


SCRIPT = """
import os, signal, subprocess, sys
import numpy as np, cubepy as cp

def busy(out, times: int):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v = out.flat[i]
        for _ in range(times):
            v = cp.sqrt(v * v + 1.0)
        out.flat[i] = v

signal.signal(signal.SIGINT, signal.default_int_handler)
for elements, launches in ((16, 0), (16, 4), (700, 0), (700, 4), (1 << 18, 0), (1 << 18, 4)):
    out = np.ones(elements, np.float32)
    launch = cp.cube(busy).over(out)  # no launch of it was native yet
    for none in (0, -1):  # compiled for small numbers and others: imports lose signals
        launch(out, none)
    for _ in range(launches):  # the second is native, and holds the GIL if the kernel was short
        launch(out, -1)
    for _ in range(2):
        kill = f"sleep 0.15; kill -INT {os.getpid()}"
        try:  # a signal that comes too early ends no process
            sent = subprocess.Popen(["/bin/sh", "-c", kill], start_new_session=True)
            launch(out, 1_000_000_000_000)
        except KeyboardInterrupt:
            print("left", elements, launches, flush=True)
        sent.wait()
        for _ in range(3):
            out[:] = 3
            launch(out, 1)
            assert np.allclose(out, np.sqrt(10)), out
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_a_kernel(threads: int):
    """A kernel of hours, whose cubes take as long; of one cube, of some and of many, when it is
    launched for the first time and when launches are native."""
    environment = os.environ | {"CUBEPY_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("left") == 12, done.stdout


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
