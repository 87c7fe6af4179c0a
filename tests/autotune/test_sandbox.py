"""First runs in a process of their own: what hangs or crashes there costs its limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.interop import read_memory
from cubepy.array.memory import Memory
from cubepy.autotune import first_runs as first
from cubepy.autotune import sandbox
from cubepy.autotune.first_runs import FirstRuns
from cubepy.autotune.sandbox import (
    Span,
    end_all,
    give_back,
    spans_of,
    take,
    unknown_spans,
)
from cubepy.autotune.subject import Recording
from cubepy.jit.ahead import compiling_ahead
from cubepy.runtimes.registry import find_device


@cp.cube
def add(x, indices, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[indices.flat[i]] + 1


@cp.cube
def spin(flag, out, rounds: cp.Comptime):
    """Counts until the flag is set, for a minute at most."""
    count = cp.i64(0)
    while count < rounds and cp.atomic.load(flag, 0) == 0:
        count += 1
    out[0] = count


@cp.cube
def trap(x, out):
    out.flat[cp.ABSOLUTE_POS + x.flat[0]] = 1


def recording(launch: Any, *arrays: np.ndarray) -> Recording:
    with compiling_ahead(remakes=False) as made, cp.settings(cache=False):
        launch(*arrays)
    return Recording(tuple(made.launches), memories_of(arrays))


def memories_of(arrays: Iterable[np.ndarray]) -> tuple[Memory, ...]:
    return tuple(m for m in map(read_memory, arrays) if m is not None)


class Fake:
    """What first runs need of a subject."""

    def restore(self, poisoned: bool) -> None:
        assert not poisoned


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_all()


def first_runs(limit_s: float = 10.0) -> FirstRuns:
    subject: Any = Fake()
    found = FirstRuns(subject, find_device("cpu"), limit_s)
    found.reference_s = 10.0  # this machine may be busy
    assert found.is_ready(60.0)
    return found


def test_launches_run_there_and_nowhere_else():
    x, indices = np.arange(100, dtype=np.float32), np.arange(100)[::-1].copy()
    out = np.zeros(100, np.float32)
    made = recording(add.over(100), x, indices, out)
    with first_runs() as runs:
        assert runs.run(made).reason == "" and runs.run(made).reason == ""
    assert not out.any()


def test_what_hangs_or_crashes_costs_its_limit_and_the_next_runs_in_a_new_process():
    flag, far = np.zeros(1, np.int32), np.full(1, 1 << 50)
    out = np.zeros(4, np.int64)
    good = recording(add.over(4), out, np.arange(4), np.zeros(4, np.int64))
    hangs = recording(lambda *a: spin.over(1)(*a, 1 << 34), flag, out)
    crashes = recording(trap.over(1), far, out)
    with first_runs(limit_s=0.5) as runs:
        began = time.perf_counter()
        late = runs.run(hangs)
        assert late.is_late and "0.5 s" in late.reason and time.perf_counter() - began < 10
        assert runs.is_ready(60.0)
        lost = runs.run(crashes)
        assert "ended" in lost.reason and not lost.is_late
        assert runs.is_ready(60.0) and runs.run(good).reason == ""
    assert not out.any()


def test_a_run_that_the_budget_cuts_short_is_not_late():
    flag, out = np.zeros(1, np.int32), np.zeros(4, np.int64)
    hangs = recording(lambda *a: spin.over(1)(*a, 1 << 34), flag, out)
    with first_runs(limit_s=30.0) as runs:
        cut = runs.run(hangs, 0.2)
        assert cut.is_unknown and not cut.is_late and "0.2 s" in cut.reason
        assert runs.is_ready(60.0)
    assert not out.any()


def test_an_interrupted_run_leaves_no_answer_to_the_next(monkeypatch: pytest.MonkeyPatch):
    out = np.zeros(4, np.int64)
    good = recording(add.over(4), out, np.arange(4), np.zeros(4, np.int64))
    crashes = recording(trap.over(1), np.full(1, 1 << 50), out)
    with first_runs() as runs:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(sandbox.select, "select", interrupt)
            runs.run(good)
    with first_runs() as runs:
        assert "ended" in runs.run(crashes).reason


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_a_process_that_waited_too_long_is_no_crash_of_a_candidate():
    out = np.zeros(4, np.int64)
    good = recording(add.over(4), out, np.arange(4), np.zeros(4, np.int64))
    with first_runs() as runs:
        process = runs._sandbox._process
        assert process is not None and process.stdin is not None
        process.stdin.close()  # it ends, as it does when nobody needs it for long
        process.wait(10)
        verdict = runs.run(good)
        assert verdict.is_unknown and not verdict.is_late
        assert runs.is_ready(60.0) and runs.run(good).reason == ""


def test_integers_are_sent_whatever_their_size():
    """The kernel ends at once where the flag is set, which it is in the copy too."""
    flag, out = np.ones(1, np.int32), np.zeros(1, np.int64)
    made = recording(lambda *a: spin.over(1)(*a, 1 << 34), flag, out)
    with first_runs() as runs:
        assert runs.run(made).reason == ""


def test_a_process_serves_until_it_is_ended(monkeypatch: pytest.MonkeyPatch):
    one = take("cpu")
    assert one.is_ready(60.0)
    give_back(one)
    assert take("cpu") is one
    other = take("cpu")
    assert other is not one
    other.end()
    give_back(one)
    end_all()
    assert not one.is_alive and not one.is_ready(0.0)


@pytest.mark.parametrize("executable", ["/bin/false", "/absent"])
def test_where_no_process_serves_nothing_runs_and_one_warning_says_so(
    executable: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(first, "_warned", set())
    subject: Any = Fake()
    with FirstRuns(subject, find_device("cpu"), 1.0) as runs:
        with pytest.warns(RuntimeWarning, match="not tried"):
            assert not runs.is_ready(60.0)
        assert not runs.is_ready(60.0)


def test_spans_hold_arrays_that_overlap_together_and_what_is_unknown():
    base = np.arange(64, dtype=np.float32)
    memories = memories_of((base[:40], base[30:], np.zeros(0, np.float32)))
    spans, contents = spans_of(memories, find_device("cpu").download)
    (span,) = spans
    assert contents[span.name] == base.tobytes()
    made = recording(add.over(4), base[:4], np.arange(4), np.zeros(4, np.float32))
    low = made.launches[0].block[0]
    found = unknown_spans(made.launches, [Span(low, low + 1)], lambda a: (a - a % 64, a + 64))
    assert len(found) == 2 and all(s.name == "" for s in found)


@pytest.mark.parametrize("name", [None, ""])
def test_a_program_without_an_interpreter_has_no_process(
    name: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", name)
    made = sandbox.Sandbox("cpu")
    assert not made.is_alive and not made.is_ready(5)


LINGERING = """
import sys, time
print('{"ready": true}', flush=True)
for _ in range(2):
    sys.stdin.readline()
    print('{"error": "E509: cuda:0 is lost", "code": "E509", "is_last": true}', flush=True)
time.sleep(60)
"""
"""Answers that the device is lost, and takes long to end."""


def test_a_process_that_lost_its_device_is_asked_nothing_more(monkeypatch: pytest.MonkeyPatch):
    """The next candidate would be taken for one that crashed."""
    monkeypatch.setattr(sandbox, "_START", LINGERING)
    made = sandbox.Sandbox("cpu")
    assert made.is_ready(60)
    assert "E509" in made.run((), (), 60).reason
    assert not made.is_alive and not made.is_ready(0)
