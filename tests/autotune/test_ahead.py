"""Processes that compile ahead: what they make is ready, and what ends them is noted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import ahead
from cubepy.autotune.ahead import Ahead, Ready, can_compile_ahead
from cubepy.jit.ahead import NotKept, compiling_ahead

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def all_of(workers: Ahead, count: int, seconds: float = 30.0) -> list[Ready]:
    wanted, found = list(range(count)), []
    until = time.perf_counter() + seconds
    while wanted:
        ready = workers.next(wanted, until)
        if ready is None:
            break
        wanted.remove(ready.k)
        found.append(ready)
    return found


@pytest.mark.usefixtures("leaves_no_children")
def test_each_is_made_once_by_some_process(tmp_path: Path):
    def make(k: int) -> None:
        with open(tmp_path / str(k), "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")

    with Ahead(make, range(20), 10.0, time.perf_counter, workers=3) as workers:
        found = all_of(workers, 20)
    assert sorted(r.k for r in found) == list(range(20))
    assert not any(r.failure for r in found)
    makers = [(tmp_path / str(k)).read_text(encoding="utf-8").split() for k in range(20)]
    assert all(len(m) == 1 and m[0] != str(os.getpid()) for m in makers)


def test_the_fastest_by_the_model_is_first():
    times = [3.0, None, 1.0, 2.0]
    with Ahead(lambda k: times[k], range(4), 10.0, time.perf_counter, workers=1) as workers:
        while workers.prediction(3) is None:
            time.sleep(0.01)
        assert [r.k for r in all_of(workers, 4)] == [2, 3, 0, 1]


def test_an_error_is_met_again_by_who_runs_it():
    def make(k: int) -> None:
        raise ValueError(k)

    with Ahead(make, range(3), 10.0, time.perf_counter, workers=2) as workers:
        assert [r.failure for r in all_of(workers, 3)] == ["", "", ""]


def test_a_process_that_ends_takes_its_candidate_with_it():
    def make(k: int) -> None:
        if k in (0, 2):
            os._exit(7)

    with Ahead(make, range(4), 10.0, time.perf_counter, workers=1) as workers:
        found = {r.k: r for r in all_of(workers, 4)}
    assert "status 7" in found[0].failure and "status 7" in found[2].failure
    assert not found[1].failure and not found[3].failure


def test_a_process_that_hangs_is_ended():
    def make(k: int) -> None:
        if k == 1:
            time.sleep(100)

    with Ahead(make, range(3), 2.0, time.perf_counter, workers=1) as workers:
        found = {r.k: r for r in all_of(workers, 3)}
    assert found[1].is_late and "2 s" in found[1].failure
    assert not found[2].failure  # a busy machine may keep a process waiting for a while


def test_nobody_waits_longer_than_asked_or_for_what_nobody_makes():
    with Ahead(lambda k: time.sleep(100), [0], 50.0, time.perf_counter, workers=1) as workers:
        assert workers.next([0], time.perf_counter() + 0.1) is None
        assert workers.next([5], time.perf_counter() + 50.0) == Ready(5)


def test_workers_that_never_say_anything_are_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ahead, "SILENCE_S", 0.2)
    monkeypatch.setattr(Ahead, "_work", lambda self: time.sleep(100))
    began = time.perf_counter()
    with Ahead(lambda k: None, range(3), 50.0, time.perf_counter, workers=2) as workers:
        found = all_of(workers, 3)
    assert [r.k for r in found] == [0, 1, 2] and time.perf_counter() - began < 20


@cp.cube
def fill(out, value: cp.Comptime):
    if out.size > cp.ABSOLUTE_POS:
        out.flat[cp.ABSOLUTE_POS] = value


def test_where_nothing_is_compiled_only_what_is_on_disk_is_taken(store: Path):
    out = np.zeros(10, np.float32)
    with compiling_ahead(False, only_kept=True), cp.settings(opt_level=2):
        with pytest.raises(NotKept):
            fill.over(out)(out, 3)
    with compiling_ahead(), cp.settings(opt_level=2):
        fill.over(out)(out, 3)
    with compiling_ahead(False, only_kept=True) as made, cp.settings(opt_level=2):
        fill.over(out)(out, 3)
    assert len(made.launches) == 1 and not made.kernels and not out.any()


@pytest.mark.usefixtures("store")
def test_what_is_made_ahead_is_on_disk():
    out = np.zeros(10, np.float32)
    with compiling_ahead():
        fill.over(out)(out, 4)  # which opens the folder of code

    def make(k: int) -> None:
        with compiling_ahead():
            fill.over(out)(out, 5 + k)

    with Ahead(make, range(2), 20.0, time.perf_counter, workers=1) as workers:
        assert all(ready.is_made for ready in all_of(workers, 2))
    with compiling_ahead(False, only_kept=True) as made:
        for k in range(2):
            fill.over(out)(out, 5 + k)
    assert len(made.launches) == 2 and not made.kernels


def test_without_a_disk_cache_nothing_is_made_ahead(monkeypatch: pytest.MonkeyPatch):
    with cp.settings(cache=False):
        assert not can_compile_ahead()


def test_a_pause_is_nobodys_time():
    def work(k: int) -> None:
        began = time.process_time()
        while time.process_time() - began < 0.3:
            pass

    seconds = [0.0]
    with Ahead(work, range(4), 20.0, lambda: seconds[0], workers=2) as workers:
        assert workers.next(list(range(4)), 0.0) is None
        time.sleep(0.2)  # the processes have reported what they do
        workers.next(list(range(4)), 0.0)
        workers.pause()
        seconds[0] += 100.0
        workers.resume()
        found, wanted = [], list(range(4))
        while wanted and (ready := workers.next(wanted, 101.0)) is not None:
            wanted.remove(ready.k)
            found.append(ready)
    assert not any(ready.failure for ready in found) and len(found) == 4
