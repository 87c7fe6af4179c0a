"""Searches in threads of their own: they end before the process does."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import background, isolated
from cubepy.autotune.trials import Limits, Trials
from tests.autotune.fakes import FakeSubject
from tests.autotune.test_autotuned import arrays, scaled_by

PROGRAM = """
import threading, time
from cubepy.autotune import background

began = threading.Event()

def search():
    try:
        background.clock()
        began.set()
        time.sleep(0.3)  # a candidate
        print("candidate", flush=True)
        while True:
            background.clock()
    finally:
        print("ended", flush=True)

background.start(search)
assert began.wait(60)
print("exit", flush=True)
"""


def test_the_process_ends_behind_the_candidate_under_way():
    folder = Path(cp.__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.split() == ["exit", "candidate", "ended"]


@pytest.mark.usefixtures("leaves_no_children")
@pytest.mark.skipif(not isolated.can_fork(), reason="no fork here")
def test_a_search_with_a_child_that_hangs_ends_with_the_process(monkeypatch: pytest.MonkeyPatch):
    """It is not waited for, and nothing is said about the candidate."""
    monkeypatch.setattr(background, "_ending", threading.Event())
    subject = FakeSubject([1.0, 1.0], actions={1: lambda: time.sleep(100)})
    trials, hangs = Trials(subject.texts), threading.Event()

    def watch(trials: Trials) -> None:
        if trials.doing == 1:
            hangs.set()

    def search() -> None:
        began = time.perf_counter()
        limits = Limits(began, began + 90.0, 80.0)
        isolated.search(subject, trials, limits, background.clock, watch)

    background.start(search)
    assert hangs.wait(60)
    background.end_all()
    assert not background._threads and trials.outcome is None and 1 not in trials.details
    background.start(search)
    assert not background._threads


@pytest.mark.usefixtures("store")
def test_without_a_thread_the_first_configuration_serves(monkeypatch: pytest.MonkeyPatch):
    scaled, (x, out) = scaled_by({"n": (4, 1)}), arrays()
    with cp.tuning(level="off"):
        for _ in range(3):
            scaled(x, out)  # there are native threads

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    out[:] = 0
    with cp.tuning(level="quick", background=True):
        with pytest.warns(RuntimeWarning, match="no thread is to be had"):
            scaled(x, out)
    np.testing.assert_array_equal(out, x * 2)
    assert not background._threads
    begun: list[Any] = []
    monkeypatch.setattr(background, "start", begun.append)
    with cp.tuning(level="quick", background=True):
        scaled(x, out)
    assert begun  # which was tried again
