"""Native launches that a team of the pool shares: what settings, threads, forks and signals do."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import config
from cubepy.runtimes.cpu.device import CpuDevice
from cubepy.runtimes.native import chosen, pool_ir
from cubepy.runtimes.native import pool as pool_module
from cubepy.runtimes.native.launching import state
from cubepy.runtimes.native.launching.process import existing_executor
from cubepy.runtimes.native.pool import JOBS, Pool, get_pool

SIZE = 1 << 16
TURNS = 1501
"""One thread takes some milliseconds for that, which are shared on busy machines too."""


@cp.cube
def iterate(x, out, turns: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        v = x[i]
        for _ in range(turns):
            v = 1.0 - v
        out[i] = v


def expected(x: np.ndarray, turns: int) -> np.ndarray:
    """Nothing is rounded: `x` has as many bits behind the point as an f32 has."""
    return 1 - x if turns % 2 else x


def launches() -> dict[str, Callable[[np.ndarray, np.ndarray], Any]]:
    """All forms of a launch, by name; the kept ones for arrays of `SIZE`."""
    kept_x, kept_out = np.arange(SIZE, dtype=np.float32), np.empty(SIZE, np.float32)
    bound = iterate.over(kept_out).bind(kept_x, kept_out, TURNS)
    kept = iterate[SIZE // 64, 64]

    def by_bound(x: np.ndarray, out: np.ndarray) -> None:
        kept_x[:] = x
        bound()
        out[:] = kept_out

    return {
        "launcher": lambda x, out: iterate.over(out)(x, out, TURNS),
        "kept launcher": lambda x, out: kept(x, out, TURNS),
        "bound": by_bound,
    }


def is_right(launch: Callable[..., Any], seed: int = 0) -> bool:
    x = np.random.default_rng(seed).random(SIZE, dtype=np.float32)
    out = np.full(SIZE, np.nan, np.float32)
    launch(x, out)
    return np.array_equal(out, expected(x, TURNS))


@pytest.fixture(autouse=True)
def nothing_chosen() -> Iterator[None]:
    """Native launches know no pool at first, nor behind: tests change how long they know it."""
    chosen.words[:] = [0] * 4
    yield
    chosen.words[:] = [0] * 4


@pytest.fixture(autouse=True)
def is_native() -> None:
    out = np.empty(64, np.float32)
    for _ in range(4):
        iterate.over(out)(out, out, 1)
    if existing_executor() is None:
        pytest.skip("launches go through Python here")


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each launch of which Python did a part."""
    found: list[int] = []
    original = CpuDevice.complete

    def count(self: CpuDevice, loaded: Any, block: int, first: int, cubes: int, work: int) -> None:
        found.append(first)
        original(self, loaded, block, first, cubes, work)

    monkeypatch.setattr(CpuDevice, "complete", count)
    monkeypatch.setattr(pool_module, "REFRESH", 3600.0)
    return found


def shared_launches(pool: Pool) -> int:
    """How many launches the first team of a pool has shared."""
    return ctypes.c_uint32.from_address(pool.state_address + pool_ir.EPOCH).value


def repeated(launch: Callable[..., Any], threads: int, times: int = 20) -> tuple[int, Pool]:
    """How many of some right launches were shared, and by which pool."""
    with cp.settings(num_threads=threads):
        for _ in range(3):
            assert is_right(launch)
        pool = get_pool(threads)
        before = shared_launches(pool)
        assert all(is_right(launch, k) for k in range(times))
        return shared_launches(pool) - before, pool


@pytest.mark.parametrize("name", ["launcher", "kept launcher", "bound"])
def test_python_takes_no_part(name: str, by_python: list[int]):
    launch = launches()[name]
    for threads in (2, 3):
        repeated(launch, threads)
        by_python.clear()
        shared, _ = repeated(launch, threads, 50)
        assert shared >= 45, "each is longer than it takes to wake a worker"
        assert len(by_python) <= 1


def test_prebuilt_functions_are_shared_natively(by_python: list[int]):
    a, b = (np.random.default_rng(k).random((600, 600), dtype=np.float32) for k in (1, 2))
    out, wanted = np.empty((600, 600), np.float32), a.astype(np.float64) @ b
    with cp.settings(num_threads=2):
        for _ in range(4):
            cp.kernels.matmul(a, b, out=out)
        before = shared_launches(get_pool(2))
        by_python.clear()
        for _ in range(20):
            out[:] = np.nan
            cp.kernels.matmul(a, b, out=out)
            np.testing.assert_allclose(out, wanted, rtol=1e-5)
        assert shared_launches(get_pool(2)) >= before + 20
    assert len(by_python) <= 1


def test_short_launches_wake_nobody(by_python: list[int]):
    """Many elements, and hardly any work; workers sleep between two of them. A launch that a busy
    machine interrupts seems to be long, and the next ones too: it is tried a few times."""
    x, out = np.ones(20_000, np.float32), np.empty(20_000, np.float32)

    def shared() -> int:
        with cp.settings(num_threads=1):
            for _ in range(4):
                iterate.over(out)(x, out, 1)
        with cp.settings(num_threads=2):
            before = shared_launches(get_pool(2))
            for _ in range(50):
                time.sleep(0.001)
                iterate.over(out)(x, out, 1)
            return shared_launches(get_pool(2)) - before

    assert any(shared() < 10 for _ in range(5))
    assert (out == 0).all()


def test_one_thread_shares_nothing(by_python: list[int]):
    launch = launches()["launcher"]
    repeated(launch, 1)
    by_python.clear()
    assert repeated(launch, 1)[0] == 0
    assert len(by_python) <= 1


def test_settings_count_at_the_next_launch():
    launch = launches()["launcher"]
    for threads in (2, 4, 1, 3, 2, 2, 1):
        shared, pool = repeated(launch, threads, 10)
        assert pool.threads == threads
        assert shared >= 9 if threads > 1 else shared == 0


def test_a_setting_of_the_process_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(config, "_chosen", dict(config._chosen))
    launch = launches()["launcher"]
    for threads in (2, 3, 1, 2):
        config.choose("num_threads", threads)
        pool = get_pool(threads)
        before = shared_launches(pool)
        assert all(is_right(launch, k) for k in range(10))
        assert (shared_launches(pool) - before >= 6) == (threads > 1)
    config.choose("num_threads", None)


def test_a_pools_number_of_threads_counts():
    launch = launches()["launcher"]
    _, pool = repeated(launch, 2)
    try:
        for threads in (1, 5, 2):
            pool.set_threads(threads)
            shared = repeated(launch, 2)[0]
            assert shared >= 15 if threads > 1 else shared == 0
    finally:
        pool.set_threads(2)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks")
def test_cores_are_looked_up_again(monkeypatch: pytest.MonkeyPatch):
    """Native launches ask Python when the time is up."""
    launch, usable = launches()["launcher"], [3]
    monkeypatch.setattr(pool_module, "usable_cores", lambda: usable[0])
    monkeypatch.setattr(pool_module, "REFRESH", 0.05)
    monkeypatch.delitem(config._chosen, "num_threads", raising=False)
    monkeypatch.setitem(config._read, "num_threads", None)
    for cores in (3, 1, 2):
        usable[0] = cores
        time.sleep(0.06)
        assert is_right(launch)
        pool = get_pool()
        assert pool.threads == cores
        before = shared_launches(pool)
        assert all(is_right(launch, k) for k in range(10))
        assert (shared_launches(pool) > before) == (cores > 1)


def test_a_kernels_time_is_noted():
    """Of the last launch by one thread that is not too short. Each is noted by its own length, of
    which a machine that does something else meanwhile only makes more: the least ones count."""
    kernel = cp.cube(iterate.function)
    x, out = np.ones(SIZE, np.float32), np.empty(SIZE, np.float32)
    with cp.settings(num_threads=1):
        kernel.over(out)(x, out, TURNS)
        (marks,) = (c.marks for made in kernel.specialisations._made.values() for c in made)

        def least(times: int, elements: int, turns: int) -> int:
            found: list[int] = []
            for _ in range(times):
                kernel.over(out[:elements])(x[:elements], out[:elements], turns)
                found.append(marks[state.RATE])
            return min(found[1:])  # the first may go through Python

        long, longer = least(20, SIZE, TURNS), least(4, SIZE, 20 * TURNS)
        assert 0 < 5 * long < longer <= state.MAX_RATE
        assert least(20, 64, 1) == 0, "too short to be noted"


def storm(seconds: float, actions: list[Callable[[random.Random], None]]) -> None:
    """Repeat each action in a thread of its own until the time is up; failures are this one's."""
    failed: list[BaseException] = []
    end = time.monotonic() + seconds

    def work(action: Callable[[random.Random], None], seed: int) -> None:
        chance = random.Random(seed)
        try:
            while time.monotonic() < end and not failed:
                action(chance)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(a, k)) for k, a in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not any(thread.is_alive() for thread in threads), "a launch hangs"
    assert not failed, failed[0]


def test_more_jobs_than_teams(by_python: list[int]):
    """Each gets a team, or runs in its thread."""
    forms = [form for _ in range(JOBS) for form in launches().values()]

    def action(launch: Callable[..., Any]) -> Callable[[random.Random], None]:
        def act(chance: random.Random) -> None:
            with cp.settings(num_threads=2):
                assert is_right(launch, chance.randrange(100))

        return act

    storm(1.0, [action(form) for form in forms])
    by_python.clear()
    storm(1.0, [action(form) for form in forms])
    assert len(by_python) < 20, "teams are there by now"


def test_a_storm_of_changes():
    """Launches of all forms while others change the number of threads, and fork."""
    forms = list(launches().values())

    def launches_of(launch: Callable[..., Any]) -> Callable[[random.Random], None]:
        def act(chance: random.Random) -> None:
            with cp.settings(num_threads=chance.choice((1, 2, 3, 5))):
                for _ in range(chance.randrange(5)):
                    assert is_right(launch, chance.randrange(100))

        return act

    def change(chance: random.Random) -> None:
        get_pool(3).set_threads(chance.choice((1, 2, 3, 4)))
        time.sleep(0.002)

    def fork(chance: random.Random) -> None:
        child = os.fork()
        if not child:
            try:
                # the lock of `bound`'s arrays is nobody's: a child has one thread
                with cp.settings(num_threads=chance.choice((2, 3))):
                    os._exit(0 if all(is_right(forms[0], k) for k in range(3)) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        time.sleep(0.02)

    actions = [launches_of(forms[k % 2]) for k in range(7)] + [launches_of(forms[2]), change]
    if hasattr(os, "fork"):
        actions.append(fork)
    try:
        storm(3.0, actions)
    finally:
        get_pool(3).set_threads(3)


@pytest.fixture
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


SCRIPT = """
import os, random, signal, sys, threading, time
import numpy as np, cubepy as cp

@cp.cube
def iterate(x, out, turns: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        v = x[i]
        for _ in range(turns):
            v = v * 0.5 + 1.0
        out[i] = v

x, out = np.ones(1 << 16, np.float32), np.empty(1 << 16, np.float32)
launch = iterate.over(out)
bound = launch.bind(x, out, 60)
for _ in range(5):
    launch(x, out, 60)
    bound()
a = np.ones((200, 200), np.float32)
"""

INTERRUPTED = """
stop, armed, ended, done = False, False, 0, 0
def take(*_):
    if armed:
        raise KeyboardInterrupt
def send():
    while not stop:
        time.sleep(random.random() * 4e-3)
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, take)
wrong = []
def work(seed):
    chance, mine = random.Random(seed), np.empty_like(x)
    while not stop:
        with cp.settings(num_threads=chance.choice((1, 2, 3))):
            mine[:] = 7
            launch(x, mine, chance.choice((60, 2000)))
            if abs(mine - 2).max() > 1e-6:
                wrong.append(mine)
sender = threading.Thread(target=send)
threads = [sender, *(threading.Thread(target=work, args=(k,)) for k in range(7))]
for thread in threads:
    thread.start()
end = time.monotonic() + 1
calls = [lambda: launch(x, out, 60), bound, lambda: launch(x, out, 20_000)]
while time.monotonic() < end or min(ended, done) <= 10:  # a busy machine takes its time
    for call in calls:
        out[:] = 7
        try:
            armed = True
            call()
            armed = False
        except KeyboardInterrupt:
            armed = False
            ended += 1
            continue
        assert abs(out - 2).max() < 1e-6, out
        done += 1
stop = True
for thread in threads:
    thread.join()
assert not wrong
for call in calls[:2]:
    out[:] = 7
    call()
    assert abs(out - 2).max() < 1e-6
print("fine")
"""

DAEMONS = """
def repeat():
    mine = np.empty_like(x)
    while True:
        launch(x, mine, 60)
for _ in range(6):
    threading.Thread(target=repeat, daemon=True).start()
time.sleep(0.3)
print("fine")
"""

FORKED = """
codes = []
def handle(*_):
    child = os.fork()
    if child:
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif len(codes) % 2:
        raise SystemExit(6)
me = os.getpid()
signal.signal(signal.SIGINT, handle)
for _ in range(4):
    threading.Timer(0.1, lambda: os.kill(me, signal.SIGINT)).start()
    before = len(codes)
    while len(codes) == before:
        out[:] = 7
        try:
            launch(x, out, 40_000)
        except KeyboardInterrupt:
            assert os.getpid() != me
            out[:] = 7
            launch(x, out, 60)
            os._exit(5 if abs(out - 2).max() < 1e-6 else 1)
        assert abs(out - 2).max() < 1e-6
        if os.getpid() != me:
            os._exit(0)
assert set(codes[::2]) <= {0, 5} and set(codes[1::2]) == {6}, codes
print("fine")
"""

HANDLED = """
ran = []
def handle(*_):
    mine = np.full_like(x, 7)
    for _ in range(3):
        launch(x, mine, 60)
        assert abs(mine - 2).max() < 1e-6
    ran.append(1)
signal.signal(signal.SIGINT, handle)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
while not ran and time.monotonic() < began + 60:
    launch(x, out, 20_000)
    assert abs(out - 2).max() < 1e-6
assert ran
print("fine")
"""


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("what", ["INTERRUPTED", "DAEMONS", "FORKED", "HANDLED"])
def test_signals_and_the_end_of_the_process(what: str, threads: int):
    """Ctrl-C all the time ends launches or comes behind them; threads that still launch when the
    process ends; handlers that launch or fork on top of a cube."""
    kept = {"CUBEPY_CACHE": "1"}  # each would compile the pool and the launcher again
    environment = os.environ | kept | {"CUBEPY_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", SCRIPT + globals()[what]]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
