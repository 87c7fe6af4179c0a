"""The pool on other operating systems: their code, run here on stand-ins of their calls.

What they sleep with becomes Linux's futex, and their threads those of POSIX, so the protocol and
what it assumes of the calls are tested, though not the calls themselves.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from cubepy.runtimes.native import pool as pools
from cubepy.runtimes.native import pool_ir
from cubepy.runtimes.native.linker import Library, compile_text, link
from cubepy.runtimes.native.pool import Pool
from cubepy.runtimes.native.systems import MACHINES, machine_of
from tests.runtimes.test_pool import BODIES, entries_text, launch

SYSTEMS = ("linux", "darwin", "win32")
STAND_INS = """
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @clock_gettime(i32, ptr)

@waits = global i64 0

define internal void @sleep(ptr %word, i32 %value, i64 %ns) {
  %time = alloca { i64, i64 }
  store i64 0, ptr %time
  %rest = getelementptr i8, ptr %time, i64 8
  store i64 %ns, ptr %rest
  %ever = icmp eq i64 %ns, 0
  %limit = select i1 %ever, ptr null, ptr %time
  %n = atomicrmw add ptr @waits, i64 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i64 128, i32 %value, ptr %limit)
  ret void
}

define internal void @rouse(ptr %word, i32 %number) {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i64 129, i32 %number)
  ret void
}

define i64 @waited() {
  %n = load atomic i64, ptr @waits seq_cst, align 8
  ret i64 %n
}

define i32 @__ulock_wait(i32 %how, ptr %word, i64 %value, i32 %us) {
  %known = icmp eq i32 %how, 16777217
  br i1 %known, label %go, label %done
go:
  %low = trunc i64 %value to i32
  %wide = zext i32 %us to i64
  %ns = mul i64 %wide, 1000
  call void @sleep(ptr %word, i32 %low, i64 %ns)
  br label %done
done:
  ret i32 0
}

define i32 @__ulock_wake(i32 %how, ptr %word, i64 %unused) {
  %one = icmp eq i32 %how, 16777217
  %number = select i1 %one, i32 1, i32 2147483647
  call void @rouse(ptr %word, i32 %number)
  ret i32 0
}

define i32 @WaitOnAddress(ptr %word, ptr %held, i64 %bytes, i32 %ms) {
  %value = load i32, ptr %held
  %ever = icmp eq i32 %ms, -1
  %wide = zext i32 %ms to i64
  %scaled = mul i64 %wide, 1000000
  %ns = select i1 %ever, i64 0, i64 %scaled
  call void @sleep(ptr %word, i32 %value, i64 %ns)
  ret i32 1
}

define void @WakeByAddressSingle(ptr %word) {
  call void @rouse(ptr %word, i32 1)
  ret void
}

define void @WakeByAddressAll(ptr %word) {
  call void @rouse(ptr %word, i32 2147483647)
  ret void
}

define i32 @QueryPerformanceFrequency(ptr %rate) {
  store i64 10000000, ptr %rate
  ret i32 1
}

define i32 @QueryPerformanceCounter(ptr %count) {
  %time = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.p
  %whole = mul i64 %seconds, 10000000
  %part = udiv i64 %rest, 100
  %sum = add i64 %whole, %part
  store i64 %sum, ptr %count
  ret i32 1
}

define ptr @CreateThread(ptr %security, i64 %stack, ptr %start, ptr %argument, i32 %how, ptr %id) {
  %thread.p = alloca i64
  %failed = call i32 @pthread_create(ptr %thread.p, ptr null, ptr %start, ptr %argument)
  %thread = load i64, ptr %thread.p
  %r = call i32 @pthread_detach(i64 %thread)
  ret ptr %thread.p
}

define i32 @CloseHandle(ptr %handle) {
  ret i32 1
}
"""
_kept: list[Library] = []
"""Threads may end after the tests."""
CALLS = {
    "darwin": ("__ulock_wait", "__ulock_wake"),
    "win32": (
        "WaitOnAddress",
        "WakeByAddressSingle",
        "WakeByAddressAll",
        "QueryPerformanceCounter",
        "QueryPerformanceFrequency",
        "CreateThread",
        "CloseHandle",
    ),
}


@pytest.fixture(scope="module")
def stand_ins() -> Library:
    machine = machine_of(platform.machine())
    assert machine is not None
    names = [name for names in CALLS.values() for name in names]
    text = STAND_INS.replace("FUTEX", str(machine.futex))
    _kept.append(link(compile_text(text, level=1), [*names, "waited"]))
    return _kept[-1]


@pytest.fixture(scope="module")
def entries() -> Library:
    return link(compile_text(entries_text(), level=1), list(BODIES))


@pytest.fixture(params=CALLS)
def pool(
    request: pytest.FixtureRequest, stand_ins: Library, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pool]:
    """A pool of four threads whose code was made for another system."""
    if sys.platform != "linux":
        pytest.skip("the stand-ins are made of Linux's calls")
    given = {name: stand_ins.address[name] for name in CALLS[request.param]}
    text = pool_ir.text(request.param, platform.machine())
    library = link(compile_text(text, level=0), pools.SYMBOLS, given)
    _kept.append(library)
    monkeypatch.setattr(pools, "_library", lambda: library)
    made = Pool(4, spin=20e-6)
    yield made
    made.close()


def test_every_cube_runs_once(pool: Pool, entries: Library) -> None:
    for count in (0, 1, 2, 3, 7, 64, 1001, 50_000):
        for grain in (1, 2, 7, 64, 100_000):
            assert (launch(pool, entries, "tally", count, grain) == 1).all(), (count, grain)


def test_idle_threads_sleep_by_the_calls_of_the_system(
    pool: Pool, entries: Library, stand_ins: Library
) -> None:
    waited = ctypes.CFUNCTYPE(ctypes.c_int64)(stand_ins.address["waited"])
    before = waited()
    data = np.array([4, 0, 0, 0, 0, 0], np.int64)
    pool.run(entries.address["meet"], data.ctypes.data, 4, 1)
    for _ in range(1000):
        if waited() > before:
            return
        time.sleep(0.01)
    pytest.fail("no thread sleeps")


def test_threads_meet(pool: Pool, entries: Library) -> None:
    for _ in range(200):
        data = np.array([4, 0, 0, 0, 0, 0], np.int64)
        pool.run(entries.address["meet"], data.ctypes.data, 4, 1)
        assert data[1] == 4, "all four threads ran at the same time"


def test_the_number_of_threads_changes(pool: Pool, entries: Library) -> None:
    for threads in (2, 4, 1, 3):
        pool.set_threads(threads)
        assert pool.threads == threads
        for _ in range(50):
            assert (launch(pool, entries, "tally", 100, 1) == 1).all()


@pytest.mark.parametrize("machine", [*sorted(MACHINES), "AMD64", "arm64"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_text_is_llvms(system: str, machine: str) -> None:
    from llvmlite import binding

    text = pool_ir.text(system, machine)
    assert "$" not in text and "@worker" in text
    binding.parse_assembly(text).verify()
