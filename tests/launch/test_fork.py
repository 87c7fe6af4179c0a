"""A child that is forked while other threads of its parent compile."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.llvm import toolchain
from cubepy.forks import are_under_way
from cubepy.frontend import specialise
from cubepy.jit.compile import Specialisations

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
