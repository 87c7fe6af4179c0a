"""A child that is forked while other threads of its parent compile."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import behind, tuner
from cubepy.autotune.records import find_records
from cubepy.cache import store
from cubepy.compilers.llvm import toolchain
from cubepy.forks import are_under_way, at_fork
from cubepy.frontend import specialise
from cubepy.jit import native
from cubepy.jit.compile import Specialisations
from cubepy.kernels.random.state import DEFAULT, State
from cubepy.lazy import cached_property
from cubepy.runtimes.native.launching import executor
from cubepy.runtimes.opencl.device import Dying

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def kernel_of(number: int) -> Any:
    @cp.cube
    def made(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            v = x.flat[i]
            for k in cp.unroll(range(8)):
                v = cp.sin(v) * (k + number)
            out.flat[i] = v * 0 + number

    return made


def launch(kernel: Any) -> float:
    out = np.zeros(100, np.float32)
    kernel.over(out)(np.ones(100, np.float32), out)
    return float(out[99])


def in_child(work: Callable[[], bool], seconds: float = 60) -> int:
    """The exit status of a child that does `work`; it is killed when it hangs."""
    child = os.fork()
    if not child:
        status = 3
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


class Halt:
    """Stops the first call of a function in the middle, until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        original, is_first = getattr(owner, name), [True]

        def halting(*args: Any, **kwargs: Any) -> Any:
            if is_first[0]:
                is_first[0] = False
                self.reached.set()
                self.go.wait()
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, halting)


@pytest.mark.parametrize("is_same", [True, False])
@pytest.mark.parametrize(
    ("owner", "name"), [(Specialisations, "_compile"), (specialise, "execute_block")]
)
def test_fork_while_another_thread_compiles(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, is_same: bool
):
    limit = sys.getrecursionlimit()
    halt = Halt(monkeypatch, owner, name)
    kernel, other = kernel_of(3), kernel_of(4)
    thread = threading.Thread(target=launch, args=(kernel,))
    thread.start()
    halt.reached.wait()
    wanted = 3.0 if is_same else 4.0
    try:
        status = in_child(
            lambda: (
                launch(kernel if is_same else other) == wanted and sys.getrecursionlimit() == limit
            )
        )
        assert status == 0
    finally:
        halt.go.set()
        thread.join()
    assert launch(kernel) == 3.0


def test_fork_waits_for_llvm(monkeypatch: pytest.MonkeyPatch):
    halt = Halt(monkeypatch, toolchain, "_parsed")
    thread = threading.Thread(target=launch, args=(kernel_of(5),))
    thread.start()
    halt.reached.wait()
    threading.Timer(0.3, halt.go.set).start()
    other = kernel_of(6)
    assert in_child(lambda: launch(other) == 6.0) == 0
    thread.join()


def test_fork_waits_for_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module that another thread imports while this one forks can be imported by the child."""
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.5)\nvalue = 7\n")
    monkeypatch.syspath_prepend(tmp_path)

    def work() -> bool:
        return importlib.import_module("slow_module").value == 7

    thread = threading.Thread(target=work)
    thread.start()
    while not are_under_way():
        time.sleep(0.001)
    assert in_child(work, 10) == 0
    thread.join()
    assert not are_under_way()


def run(program: Path, text: str) -> tuple[int, str]:
    """The exit status and what the program said on stderr."""
    program.write_text(text)
    environment = os.environ | {"PYTHONPATH": str(Path(cp.__file__).parents[1])}
    command = [sys.executable, str(program)]
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return found.returncode, found.stderr


def test_what_is_registered_during_a_fork_is_not_ended_by_it(tmp_path: Path):
    """As where a fork waits for an import of another thread, which registers a lock."""
    text = (
        "import os, threading\n"
        "import cubepy\n"
        "from cubepy.forks import at_fork\n"
        "said = []\n"
        "class Beginning:\n"
        "    def __enter__(self):\n"
        "        said.append('begin')\n"
        "        at_fork(threading.RLock(), lambda: said.append('late'))\n"
        "    def __exit__(self, *error):\n"
        "        said.append('end')\n"
        "at_fork(Beginning(), lambda: said.append('child'))\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(said != ['begin', 'child', 'end'])\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert said == ['begin', 'end'], said\n"
    )
    assert run(tmp_path / "forking.py", text) == (0, "")


@pytest.mark.parametrize("moment", ["taking", "forking", "ending"])
def test_ctrl_c_during_a_fork_leaves_no_lock_behind(tmp_path: Path, moment: str):
    """Python drops what a handler raises in hooks, also instead of their first line."""
    text = (
        "import _thread, os, threading\n"
        f"moment = {moment!r}\n"
        "if moment == 'forking':  # the first one registered is called last\n"
        "    os.register_at_fork(before=_thread.interrupt_main)\n"
        "import cubepy\n"
        "from cubepy.forks import at_fork\n"
        "locks = [threading.RLock() for _ in range(3)]\n"
        "class Interrupted:\n"
        "    def __enter__(self):\n"
        "        if moment == 'taking' and not said:\n"
        "            said.append(1)\n"
        "            _thread.interrupt_main()\n"
        "        said.append(2)\n"
        "    def __exit__(self, *error):\n"
        "        if moment == 'ending':\n"
        "            _thread.interrupt_main()\n"
        "        said.append(3)\n"
        "said = []\n"
        "at_fork(locks[0])\n"
        "at_fork(locks[1])\n"
        "at_fork(Interrupted())\n"
        "at_fork(locks[2])\n"
        "def are_free():\n"
        "    got = []\n"
        "    asking = lambda: got.extend(lock.acquire(False) for lock in locks)\n"
        "    thread = threading.Thread(target=asking)\n"
        "    thread.start()\n"
        "    thread.join()\n"
        "    return got == [True] * 3\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(not are_free())\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert are_free() and (moment != 'taking' or said[:2] == [1, 2]), said\n"
    )
    status, said = run(tmp_path / "forking.py", text)
    assert status == 0 and "KeyboardInterrupt" in said, said


def test_a_property_that_another_thread_finds_is_found_by_the_child():
    began, go = threading.Event(), threading.Event()
    found: list[int] = []

    class Held:
        @cached_property
        def value(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                began.set()
                go.wait(60)
            found.append(1)
            return len(found)

    held = Held()
    thread = threading.Thread(target=lambda: held.value)
    thread.start()
    assert began.wait(60)
    assert in_child(lambda: held.value == 1, 10) == 0
    threading.Timer(0.2, go.set).start()
    assert held.value == 1  # waits for the other thread, and finds nothing itself
    thread.join()
    assert found == [1] and isinstance(Held.value, cached_property)


@pytest.mark.parametrize("is_chosen", [False, True])
def test_random_numbers_of_a_child(is_chosen: bool):
    """As those of another process, unless somebody chose a seed."""
    state, read = State(), os.pipe()
    if is_chosen:
        state.restart(7)
    at_fork(state.lock, in_child=state.begin_child)
    state.take(3)
    assert in_child(lambda: os.write(read[1], repr(state.take(2)).encode()) > 0) == 0
    of_child = os.read(read[0], 1000).decode()
    assert (of_child == repr(state.take(2))) == is_chosen
    for end in read:
        os.close(end)


LOCKS: dict[str, Callable[[], Any]] = {
    "cache": lambda: store._lock,
    "native launches": lambda: native._JOINING,
    "executor": lambda: executor._lock,
    "random numbers": lambda: DEFAULT.lock,
    "memory of OpenCL": lambda: Dying._lock,
    "searches": lambda: tuner._lock,
    "what compiles behind calls": lambda: behind._changed,
    "measurements": lambda: find_records()._lock,
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_another_thread_holds_is_free_in_the_child(name: str):
    find = LOCKS[name]
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with find():
            held.set()
            go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    threading.Timer(0.2, go.set).start()
    assert in_child(lambda: find().acquire(timeout=5), 30) == 0
    thread.join()


def test_a_lock_of_the_cache_that_a_child_knows_nothing_of_is_given_up(tmp_path: Path):
    """The child is forked between the opening of the file and the note of its descriptor."""
    kept = store.Store(str(tmp_path), 1 << 20)
    go, done = os.pipe(), threading.Event()
    with kept.lock("0" * 64):
        known = store._held.copy()
        store._held.clear()
        child = os.fork()
        if not child:
            os.read(go[0], 1)
            os._exit(0)
        store._held.update(known)
    try:

        def take() -> None:
            with kept.lock("0" * 64):
                done.set()

        threading.Thread(target=take, daemon=True).start()
        assert done.wait(10)
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)


def test_forks_at_any_time():
    stop = threading.Event()
    numbers = iter(range(1000, 100000))
    failed: list[float] = []

    def work() -> None:
        while not stop.is_set():
            number = next(numbers)
            if launch(kernel_of(number)) != number:
                failed.append(number)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    statuses: list[int] = []
    for k in range(12):
        time.sleep(0.03)
        made = kernel_of(k)
        statuses.append(in_child(lambda made=made, k=k: launch(made) == k))
    stop.set()
    for thread in threads:
        thread.join()
    assert statuses == [0] * 12 and not failed
