"""The native thread pool: every cube exactly once, whatever happens around the launch."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from cubepy.runtimes.native import pool_ir
from cubepy.runtimes.native.linker import Library, compile_text, link
from cubepy.runtimes.native.pool import (
    INLINE,
    MAX_COUNT,
    MAX_THREADS,
    SHARE,
    Pool,
    address_of,
    get_pool,
    usable_cores,
)

LOOP = """
define void @{name}(ptr %args, i64 %begin, i64 %end) {{
  br label %test
test:
  %i = phi i64 [ %begin, %0 ], [ %i.1, %last ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
{body}
  br label %last
last:
  %i.1 = add i64 %i, 1
  br label %test
done:
  ret void
}}
"""
BODIES = {
    "tally": """
  %p = getelementptr i64, ptr %args, i64 %i
  %old = atomicrmw add ptr %p, i64 1 monotonic""",
    # Cube i burns i * 8 turns before it counts: the last range is by far the heaviest.
    "uneven": """
  %turns = shl i64 %i, 3
  br label %burn
burn:
  %t = phi i64 [ %turns, %body ], [ %t.1, %burn ]
  %t.1 = sub i64 %t, 1
  store volatile i64 %t.1, ptr %scratch
  %on = icmp sgt i64 %t.1, 0
  br i1 %on, label %burn, label %count
count:
  %p = getelementptr i64, ptr %args, i64 %i
  %old = atomicrmw add ptr %p, i64 1 monotonic""",
    # Nobody passes before args[0] threads have come: args[1] counts them.
    "meet": """
  %p = getelementptr i64, ptr %args, i64 1
  %old = atomicrmw add ptr %p, i64 1 seq_cst
  br label %wait
wait:
  %here = load atomic i64, ptr %p seq_cst, align 8
  %all = load i64, ptr %args
  %few = icmp slt i64 %here, %all
  %r = call i32 @sched_yield()
  br i1 %few, label %wait, label %last""",
    # args: share, state, counters, how many inner cubes, how many launches met.
    "nest": """
  %share = load ptr, ptr %args
  %state.p = getelementptr ptr, ptr %args, i64 1
  %state = load ptr, ptr %state.p
  %data.p = getelementptr ptr, ptr %args, i64 2
  %data = load ptr, ptr %data.p
  %inner.p = getelementptr i64, ptr %args, i64 3
  %inner = load i64, ptr %inner.p
  %first = mul i64 %i, %inner
  %mine = getelementptr i64, ptr %data, i64 %first
  store i64 0, ptr %status
  call void %share(ptr %state, ptr @tally, ptr %mine, i64 0, i64 %inner, i64 1, ptr %status)
  %found = load i64, ptr %status
  %met = icmp eq i64 %found, 0
  br i1 %met, label %alone, label %last
alone:
  call void @tally(ptr %mine, i64 0, i64 %inner)
  %met.p = getelementptr i64, ptr %args, i64 4
  %before = atomicrmw add ptr %met.p, i64 1 monotonic""",
    # Adds the length of its range, so that a launch of 2**60 cubes ends.
    "length": """
  %n = sub i64 %end, %begin
  %old = atomicrmw add ptr %args, i64 %n monotonic
  ret void
unused:""",
}


def entries_text() -> str:
    loops = (LOOP.format(name=name, body=body) for name, body in BODIES.items())
    text = "declare i32 @sched_yield()\n" + "".join(loops)
    for name, word in (("uneven", "scratch"), ("nest", "status")):
        head = f"define void @{name}(ptr %args, i64 %begin, i64 %end) {{\n"
        text = text.replace(head, f"{head}  %{word} = alloca i64\n")
    return text


@pytest.fixture(scope="module")
def entries() -> Library:
    return link(compile_text(entries_text(), level=1), list(BODIES))


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    made = Pool(getattr(request, "param", 4))
    yield made
    made.close()


def launch(pool: Pool, entries: Library, name: str, count: int, grain: int) -> np.ndarray:
    """The counters after a launch over `count` cubes, with one more that must stay zero."""
    counters = np.zeros(count + 1, np.int64)
    pool.run(entries.address[name], counters.ctypes.data, count, grain)
    assert counters[count] == 0
    return counters[:count]


@pytest.mark.parametrize("pool", [1, 2, 3, 8], indirect=True)
def test_every_cube_runs_once(pool: Pool, entries: Library) -> None:
    for count in (0, 1, 2, 3, 7, 8, 9, 64, 1001, 50_000):
        for grain in (1, 2, 7, 64, 100_000):
            assert (launch(pool, entries, "tally", count, grain) == 1).all(), (count, grain)


def test_uneven_cubes_run_once(pool: Pool, entries: Library) -> None:
    for _ in range(10):
        assert (launch(pool, entries, "uneven", 501, 1) == 1).all()


@pytest.mark.parametrize("pool", [2, 3, 8], indirect=True)
def test_all_threads_take_part(pool: Pool, entries: Library) -> None:
    for _ in range(20):
        args = np.array([pool.threads, 0], np.int64)
        pool.run(entries.address["meet"], args.ctypes.data, pool.threads, 1)
        assert args[1] == pool.threads


def test_no_cubes_call_nothing(pool: Pool) -> None:
    pool.run(0, 0, 0, 1)
    pool.run(0, 0, -5, 1)


def test_a_grain_below_one_counts_as_one(pool: Pool, entries: Library) -> None:
    for grain in (0, -3):
        assert (launch(pool, entries, "tally", 100, grain) == 1).all()


@pytest.mark.parametrize("grain", [1 << 50, 1 << 59, (1 << 63) - 1])
def test_huge_counts_do_not_wrap(pool: Pool, entries: Library, grain: int) -> None:
    for count in (1 << 60, MAX_COUNT - 1, MAX_COUNT):
        total = ctypes.c_int64()
        pool.run(entries.address["length"], ctypes.addressof(total), count, grain)
        assert total.value == count


def test_more_cubes_than_the_counters_hold_are_refused(pool: Pool) -> None:
    with pytest.raises(ValueError, match="at most"):
        pool.run(0, 0, MAX_COUNT + 1, 1)


def test_a_storm_of_launches(pool: Pool, entries: Library) -> None:
    wrong: list[int] = []

    def storm(seed: int) -> None:
        for turn in range(100):
            count = 1 + (seed * 31 + turn * 17) % 400
            if not (launch(pool, entries, "tally", count, 1 + turn % 5) == 1).all():
                wrong.append(seed)

    run_threads(24, storm)
    assert not wrong


def test_nested_launches_run_inline(pool: Pool, entries: Library) -> None:
    outer, inner = 50, 30
    counters = np.zeros(outer * inner, np.int64)
    words = [address_of(SHARE), pool.state_address, counters.ctypes.data, inner, 0]
    args = np.array(words, np.int64)
    for _ in range(20):
        pool.run(entries.address["nest"], args.ctypes.data, outer, 1)
    assert (counters == 20).all()
    assert args[4] == 20 * outer, "a team ran two launches"


def test_the_thread_count_changes_between_launches(pool: Pool, entries: Library) -> None:
    for threads in (2, 1, 8, 3, 3, 16, 2):
        pool.set_threads(threads)
        assert pool.threads == threads
        assert (launch(pool, entries, "tally", 1000, 3) == 1).all()
        args = np.array([threads, 0], np.int64)
        pool.run(entries.address["meet"], args.ctypes.data, threads, 1)


def test_the_thread_count_changes_during_launches(pool: Pool, entries: Library) -> None:
    def work(seed: int) -> None:
        for turn in range(50):
            if seed == 0:
                pool.set_threads(1 + turn % 5)
            assert (launch(pool, entries, "tally", 300, 2) == 1).all()

    run_threads(4, work)


def test_thread_counts_out_of_range_are_refused(pool: Pool) -> None:
    for threads in (0, -1, MAX_THREADS + 1):
        with pytest.raises(ValueError, match="threads"):
            pool.set_threads(threads)
        with pytest.raises(ValueError, match="threads"):
            Pool(threads)


def test_the_largest_pool_works(entries: Library) -> None:
    pool = Pool(64)
    assert (launch(pool, entries, "tally", 10_000, 1) == 1).all()
    pool.close()


def test_workers_start_late_and_end_on_close(entries: Library) -> None:
    pool = Pool(4)
    assert alive(pool) == 0
    launch(pool, entries, "tally", 2, 2)
    assert alive(pool) == 0
    launch(pool, entries, "tally", 100, 1)
    assert alive(pool) == 3
    pool.close()
    assert alive(pool) == 0


def test_workers_fall_asleep_and_wake(entries: Library) -> None:
    pool = Pool(3, spin=0.0)
    for _ in range(200):
        assert (launch(pool, entries, "tally", 50, 1) == 1).all()
        args = np.array([3, 0], np.int64)
        pool.run(entries.address["meet"], args.ctypes.data, 3, 1)
    pool.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks")
def test_affinity_is_respected(entries: Library) -> None:
    everywhere = os.sched_getaffinity(0)
    for cores in ({min(everywhere)}, everywhere):
        os.sched_setaffinity(0, cores)
        try:
            assert usable_cores() == len(cores)
            pool = Pool(3, spin=0.0)
            for _ in range(20):
                assert (launch(pool, entries, "uneven", 100, 1) == 1).all()
                assert os.sched_getaffinity(0) == cores
            pool.close()
        finally:
            os.sched_setaffinity(0, everywhere)


def test_the_shared_pool_is_one() -> None:
    assert get_pool() is get_pool() is get_pool(usable_cores())
    assert get_pool(3) is get_pool(3) and get_pool(3).threads == 3
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("system, machine", [("sunos5", "x86_64"), ("linux", "i686")])
def test_systems_without_threads_run_inline(entries: Library, system: str, machine: str) -> None:
    library = link(compile_text(pool_ir.text(system, machine)), [INLINE, SHARE])
    pool = Pool(4)
    pool._inline = type(pool._inline)(library.address[INLINE])
    pool._share = type(pool._share)(library.address[SHARE])
    for count in (0, 1, 100):
        assert (launch(pool, entries, "tally", count, 1) == 1).all()


SCRIPT = """
import ctypes, os, sys, threading, time
import numpy as np
from cubepy.runtimes.native.linker import compile_text, link
from cubepy.runtimes.native.pool import Pool, get_pool
entries = link(compile_text(sys.stdin.read(), level=1), ["tally", "uneven"])

def good(pool, count=2000, name="tally"):
    counters = np.zeros(count, np.int64)
    pool.run(entries.address[name], counters.ctypes.data, count, 1)
    return (counters == 1).all()

def repeat(pool):
    while True:
        assert good(pool, 300, "uneven")

pool = get_pool(4)
assert good(pool)
"""

FORK = """
def child_is_good():
    pid = os.fork()
    if pid == 0:
        fine = all(good(pool) for _ in range(5)) and pool.threads == 4
        word = ctypes.c_int64.from_address(pool.state_address + 132).value
        os._exit(0 if fine and word & 0xffffffff == 3 else 1)
    return os.waitpid(pid, 0)[1] == 0

assert child_is_good()
threading.Thread(target=repeat, args=(pool,), daemon=True).start()
assert all(child_is_good() for _ in range(20))
assert good(pool)
"""

EXIT_WHILE_RUNNING = """
threading.Thread(target=repeat, args=(pool,), daemon=True).start()
threading.Thread(target=repeat, args=(Pool(3),), daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")
def test_a_forked_child_has_its_own_workers() -> None:
    run_script(SCRIPT + FORK)


def test_exit_right_after_a_launch() -> None:
    run_script(SCRIPT)


def test_exit_during_launches() -> None:
    run_script(SCRIPT + EXIT_WHILE_RUNNING)


def run_script(script: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(
        command, input=entries_text(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def run_threads(number: int, work: object) -> None:
    errors: list[BaseException] = []

    def guarded(seed: int) -> None:
        try:
            work(seed)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def alive(pool: Pool) -> int:
    return ctypes.c_int32.from_address(pool.state_address + pool_ir.ALIVE).value
