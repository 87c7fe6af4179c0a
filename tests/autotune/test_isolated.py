"""Real children: what hangs, crashes or ends costs its limit, and the others still win."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import children, isolated
from cubepy.autotune.trials import CRASHED, FAILED, LATE, OK, UNTRIED, Limits, Trials
from tests.autotune.fakes import FakeSubject
from tests.autotune.test_autotuned import arrays, measured, scaled_by

pytestmark = pytest.mark.skipif(not isolated.can_fork(), reason="no fork here")
GOOD = [0.003, 0.0005]


def crash() -> None:
    import ctypes

    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    ctypes.string_at(0)


def take_all_memory() -> None:
    limit = 1 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    np.ones(1 << 40, np.uint8)


class RealSubject(FakeSubject):
    """Times runs by a real clock, which a search with children needs."""

    def run(self, k: int) -> None:
        super().run(k)
        time.sleep(self._seconds[k])


def search(actions: dict[int, Callable[[], object]], limit_s: float = 10.0) -> Trials:
    subject = RealSubject([*GOOD, 0.0001, 0.0001], actions=actions)
    began = time.perf_counter()
    limits = Limits(began, began + 60.0, limit_s)
    trials = Trials(subject.texts)
    isolated.search(subject, trials, limits)
    assert subject.runs == []  # nothing ran in this process
    return trials


@pytest.mark.parametrize(
    ("action", "status", "detail"),
    [
        (crash, CRASHED, "SIGSEGV"),
        (lambda: os._exit(3), CRASHED, "status 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), CRASHED, "SIGKILL"),
        (take_all_memory, FAILED, "MemoryError"),
    ],
)
def test_a_candidate_that_ends_its_process_is_left_out(action, status: str, detail: str):
    trials = search({2: action, 3: action})
    assert trials.status == [OK, OK, status, status]
    assert detail in trials.details[2] and detail in trials.details[3]
    assert trials.outcome is not None and trials.outcome["pick"] == 1


def test_a_candidate_that_hangs_costs_its_limit():
    trials = search({3: lambda: time.sleep(100)}, limit_s=0.5)
    assert trials.status[3] == LATE and "0.5 s" in trials.details[3]
    assert trials.outcome is not None and trials.outcome["pick"] == 2


def test_a_reference_that_crashes_leaves_the_default():
    trials = search({0: crash})
    assert trials.outcome is not None and trials.outcome["pick"] is None
    assert "SIGSEGV" in trials.details[0]


@pytest.mark.usefixtures("leaves_no_children")
def test_a_budget_that_ends_in_a_hang_ends_the_child():
    subject = RealSubject([*GOOD, 0.1], actions={2: lambda: time.sleep(100)})
    trials, began = Trials(subject.texts), time.perf_counter()
    isolated.search(subject, trials, Limits(began, began + 1.0, 50.0))
    assert trials.outcome is not None and trials.outcome["reason"] == "budget"


@pytest.mark.usefixtures("leaves_no_children")
def test_an_interrupt_waits_for_no_child(monkeypatch: pytest.MonkeyPatch):
    """A child that is in the middle of a candidate is ended, not given time to leave."""
    done: list[str] = []

    def note(name: str) -> None:
        function = getattr(children, name)
        monkeypatch.setattr(children, name, lambda pid: (done.append(name), function(pid))[1])

    note("kill")
    note("wait")
    trials = Trials(["a", "b"])

    def interrupt(trials: Trials) -> None:
        if trials.doing == 1:
            raise KeyboardInterrupt

    began = time.perf_counter()
    subject = RealSubject(GOOD, actions={1: lambda: time.sleep(100)})
    with pytest.raises(KeyboardInterrupt):
        isolated.search(subject, trials, Limits(began, began + 60.0, 50.0), watch=interrupt)
    assert done[:2] == ["kill", "wait"]


@pytest.mark.usefixtures("leaves_no_children")
@pytest.mark.parametrize("call", ["fork", "wait"])
def test_an_interrupt_loses_no_child(monkeypatch: pytest.MonkeyPatch, call: str):
    """Ctrl-C comes when a child was just made, and when it has just ended."""
    before, plain = len(os.listdir("/proc/self/fd")), getattr(children, call)

    def interrupted(*given: Any) -> Any:
        found = plain(*given)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(children, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        search({})
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("call", ["fork", "pipe"])
def test_without_a_process_the_first_configuration_serves(
    store: Path, monkeypatch: pytest.MonkeyPatch, call: str
):
    """Nothing is written down: it is tuned where there is one again."""

    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    scaled, (x, out) = scaled_by({"n": (4, 1)}), arrays()
    with monkeypatch.context() as patch, cp.tuning(level="quick", budget_s=20.0):
        patch.setattr(os, call, refuse)
        with pytest.warns(RuntimeWarning, match="was not tuned: no process is to be had"):
            scaled(x, out)
        assert scaled.pick(x, out) == {"n": 4} and measured(scaled) == {}
    np.testing.assert_array_equal(out, x * 2)
    with cp.tuning(level="quick", budget_s=20.0):
        scaled_by({"n": (4, 1)})(x, out)
    assert set(measured(scaled).values()) == {"ok"}


def test_without_more_processes_the_best_so_far_is_picked(monkeypatch: pytest.MonkeyPatch):
    """A candidate took the process of the search with it."""
    plain, calls = os.fork, [0]

    def fork() -> int:
        calls[0] += 1
        if calls[0] > 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return plain()

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", fork)
    trials = search({2: crash})
    assert trials.status == [OK, OK, CRASHED, UNTRIED]
    assert trials.outcome is not None and trials.outcome["pick"] == 0
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_that_hangs_dies_with_its_parent(tmp_path: Path):
    """The parent is killed in the middle of a search."""
    mark = tmp_path / "child"

    def hang() -> None:
        mark.write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(100)

    parent = os.fork()
    if parent == 0:
        search({1: hang}, limit_s=50.0)
        os._exit(0)
    while not (mark.exists() and mark.read_text(encoding="utf-8")):
        time.sleep(0.01)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    child = Path(f"/proc/{mark.read_text(encoding='utf-8')}/stat")
    for _ in range(500):
        if not child.exists() or child.read_text(encoding="utf-8").split()[2] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the child lives on")
