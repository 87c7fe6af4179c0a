"""Choices without a device: who may search, and what is left for later."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextvars import copy_context
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

import cubepy as cp
from cubepy.autotune import behind, isolated, session, tuner
from cubepy.autotune.hardware import hardware_of
from cubepy.autotune.records import MEASURED, find_records
from cubepy.autotune.search import conclude
from cubepy.autotune.trials import Limits, Trials
from cubepy.autotune.tuner import Request, choose
from cubepy.runtimes.base import Properties
from cubepy.runtimes.registry import find_device
from cubepy.targets import cuda_target
from tests.autotune.fakes import FakeSubject


class Searched(Exception):
    """A subject was asked for."""


def search() -> Any:
    raise Searched


def request() -> Request:
    device = SimpleNamespace(
        name="cuda:0",
        target=cuda_target("sm_90a"),
        properties=Properties("a GPU", 132, 1 << 36),
        driver_version="13.0",
    )
    return Request("kernel", "source", "[1]", device, ["a", "b", "c"], "quick")


def test_nothing_is_measured_while_torch_captures_a_graph(
    store: Path, monkeypatch: pytest.MonkeyPatch
):
    captures = [True]
    cuda = SimpleNamespace(is_current_stream_capturing=lambda: captures[0])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    for level in ("quick", "full"):
        with cp.tuning(level=level):
            captures[0] = True
            before = session.changes[0]
            found = choose(request(), search)
            assert (found.index, found.is_final) == (0, False) and session.changes[0] > before
            captures[0] = False
            with pytest.raises(Searched):
                choose(request(), search)


class Slow(FakeSubject):
    """Takes real time to run; the last is compiled when there is a file."""

    mark = Path()

    def make(self, k: int, predicts: bool) -> None:
        while k == len(self.texts) - 1 and not self.mark.exists():
            time.sleep(0.01)

    def run(self, k: int) -> None:
        super().run(k)
        time.sleep(self._seconds[k])


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches as on a device whose driver cannot be forked."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    monkeypatch.setattr(isolated, "can_fork", lambda kind="cpu": False)


def statuses() -> dict[str, str]:
    (key,) = find_records().measured_keys()
    return {c: m.status for c, m in find_records().measurements(key).items()}


@pytest.mark.usefixtures("leaves_no_children")
@pytest.mark.parametrize("forks", [False, isolated.can_fork()])
@pytest.mark.usefixtures("in_process")
def test_what_was_not_compiled_in_time_is_tried_by_a_later_call_within_the_budget(
    store: Path, monkeypatch: pytest.MonkeyPatch, forks: bool
):
    """Processes or the child of the search go on compiling."""
    monkeypatch.setattr(isolated, "can_fork", lambda kind="cpu": forks)
    times = [0.004, 0.003, 0.005, 0.004, 0.004, 0.001]
    texts = [f"{k}" for k in range(len(times))]
    asked = Request("kernel", "source", "[1]", find_device("cpu"), texts, "quick")

    def call() -> int:
        subject = Slow(times)
        subject.mark = store / "mark"
        return choose(asked, lambda: subject).index

    with cp.tuning(level="quick", budget_s=6.0):
        call()
        assert statuses()["5"] == "untried" and not behind.wait(0.0)
        (key,) = find_records().measured_keys()
        assert call() < 5 and len(find_records().searches(key)) == 1  # it does not wait
        (store / "mark").touch()
        assert behind.wait(30.0)
        assert call() == 5 and set(statuses().values()) == {"ok"}
        assert call() == 5
    first, second = find_records().searches(key)
    spans = [s["deadline"] - s["started"] for s in (first, second)]
    assert spans[0] == pytest.approx(6.0) and 0 < spans[1] < 6.0 - 0.3 * 6.0


@pytest.mark.usefixtures("leaves_no_children")
@pytest.mark.parametrize("forks", [False, isolated.can_fork()])
@pytest.mark.usefixtures("in_process")
def test_what_compiles_behind_a_call_outlives_its_thread_and_holds_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch, forks: bool
):
    monkeypatch.setattr(isolated, "can_fork", lambda kind="cpu": forks)
    asked = Request("kernel", "source", "[1]", find_device("cpu"), ["0", "1"], "quick")
    read, write = os.pipe()

    def call() -> None:
        subject = Slow([0.002, 0.001])
        subject.mark = store / "mark"
        with cp.tuning(level="quick", budget_s=1.0):
            choose(asked, lambda: subject)

    thread = Thread(target=copy_context().run, args=(call,))
    thread.start()
    thread.join()
    os.close(write)
    assert select.select([read], [], [], 60.0)[0] and os.read(read, 1) == b""
    os.close(read)
    assert not behind.wait(0.0)
    (store / "mark").touch()
    assert behind.wait(60.0)
    (key,) = find_records().measured_keys()
    rest = behind.rest_of((key, asked.candidates))
    behind.forget((key, asked.candidates))
    assert rest is not None and rest.compiled == ["1"]


@pytest.mark.usefixtures("in_process")
def test_a_first_run_that_takes_the_whole_budget_leaves_time_for_a_later_call(store: Path):
    """As on a GPU whose driver starts with it."""
    asked = Request("kernel", "source", "[1]", find_device("cpu"), ["0", "1"], "quick")
    loaded: list[int] = []

    class Loading(Slow):
        def run(self, k: int) -> None:
            if not loaded:
                loaded.append(k)
                time.sleep(1.2)
            super().run(k)

    def call() -> int:
        subject = Loading([0.02, 0.01])
        subject.mark = store / "mark"
        return choose(asked, lambda: subject).index

    with cp.tuning(level="quick", budget_s=1.0):
        assert call() == 0 and statuses()["1"] == "untried"
        (store / "mark").touch()
        assert behind.wait(30.0)
        assert call() == 1


@pytest.mark.usefixtures("in_process")
def test_a_search_in_the_background_leaves_nothing_behind(store: Path):
    asked = Request("kernel", "source", "[1]", find_device("cpu"), ["0", "1"], "quick")
    with cp.tuning(level="quick", budget_s=1.0, background=True):
        choose(asked, lambda: FakeSubject([0.002, 0.001]))
        until = time.perf_counter() + 30.0
        while (not find_records().picks() or tuner._busy) and time.perf_counter() < until:
            time.sleep(0.01)
    assert find_records().picks() and not tuner._busy and behind.wait(0.0)


@pytest.mark.usefixtures("in_process")
def test_the_child_of_a_fork_searches_for_itself(store: Path):
    """Also where a thread of its parent searches for the same, or writes records."""
    asked = Request("kernel", "source", "[1]", find_device("cpu"), ["0", "1"], "quick")
    began, go = Event(), Event()

    class Waiting(FakeSubject):
        def run(self, k: int) -> None:
            began.set()
            go.wait(60)

    def search() -> None:
        with cp.tuning(level="quick", budget_s=1.0):
            choose(asked, lambda: Waiting([0.002, 0.001]))

    thread = Thread(target=search)
    thread.start()
    assert began.wait(60)
    records, held, left = find_records(), Event(), Event()

    def hold() -> None:
        with records._lock, tuner._lock:
            held.set()
            left.wait(60)

    other = Thread(target=hold)
    other.start()
    assert held.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)
        with cp.tuning(level="quick", budget_s=1.0):
            found = choose(asked, lambda: FakeSubject([0.002, 0.001]))
        os._exit(0 if found.origin == MEASURED else 1)
    left.set()
    go.set()
    other.join()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("in_process")
def test_what_other_threads_took_meanwhile_is_looked_up_again(store: Path):
    """What they keep holds as long as nothing changes, and the end of the search is a change."""
    asked = Request("kernel", "source", "[1]", find_device("cpu"), ["0", "1"], "quick")
    began, go = Event(), Event()

    class Waiting(FakeSubject):
        def run(self, k: int) -> None:
            began.set()
            assert go.wait(60)
            super().run(k)

    def call() -> None:
        with cp.tuning(level="quick", budget_s=1.0):
            choose(asked, lambda: Waiting([0.002, 0.001]))

    thread = Thread(target=copy_context().run, args=(call,))
    thread.start()
    assert began.wait(60)
    before = session.changes[0]
    with cp.tuning(level="quick", budget_s=1.0):
        assert choose(asked, search) == tuner.Choice(0, False)
    assert session.changes[0] == before
    go.set()
    thread.join()
    assert session.changes[0] > before
    with cp.tuning(level="quick"):
        assert choose(asked, search).origin == MEASURED


class Written(list[int]):
    """A word that notes what is written to it."""

    def __init__(self) -> None:
        super().__init__([0])
        self.numbers: list[int] = []

    def __setitem__(self, k: Any, number: Any) -> None:
        self.numbers.append(number)
        super().__setitem__(k, number)


def test_no_two_threads_note_the_same_change(monkeypatch: pytest.MonkeyPatch):
    word = Written()
    monkeypatch.setattr(session, "changes", word)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        work = [
            Thread(target=lambda: [session.note_change() for _ in range(500)]) for _ in "12345678"
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    # A search behind an earlier test may note its end meanwhile.
    assert len(set(word.numbers)) == len(word.numbers) >= 4000


@pytest.mark.usefixtures("in_process")
def test_a_search_that_tried_nothing_is_made_again_by_another_process(store: Path):
    asked = Request("kernel", "source", "[1]", find_device("cpu"), ["0", "1"], "quick")
    trials = Trials(list(asked.texts))
    conclude(trials, 0)
    hardware = hardware_of(asked.device)
    search = tuner._Search(
        asked,
        asked.key(hardware),
        hardware,
        find_records(),
        {},
        None,
        {0, 1},
        "quick",
        session.DEFAULT,
    )
    assert tuner._kept(search, trials, Limits(0.0, 1.0, 1.0)).index == 0
    with cp.tuning(level="quick", budget_s=10.0):
        assert choose(asked, lambda: FakeSubject([0.002, 0.001])).origin == MEASURED
