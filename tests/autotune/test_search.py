"""One search, on candidates and a clock that are made up; and its replay."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from cubepy.autotune.replay import replay
from cubepy.autotune.sandbox import PATIENCE_S, Verdict
from cubepy.autotune.search import conclude, examine
from cubepy.autotune.trials import (
    FAILED,
    LATE,
    OK,
    UNTRIED,
    WRONG,
    Limits,
    Trials,
)
from tests.autotune.fakes import FakeClock, FakeSubject


def search(subject: FakeSubject, budget: float, seed: int = 0) -> tuple[Trials, Limits]:
    clock = subject.clock
    limits = Limits(clock(), clock() + budget, 1.0, seed)
    trials = Trials(subject.texts)
    examine(subject, trials, limits, trials.apply, clock)
    return trials, limits


def test_a_search_compiles_compares_and_races():
    subject = FakeSubject([0.01, 0.005, 0.02, 0.2], noise=0.02)
    trials, _ = search(subject, 20.0)
    assert trials.outcome is not None and trials.outcome["pick"] == 1
    assert trials.status == [OK] * 4
    assert 3 not in trials.samples  # its first run was hopeless
    assert trials.seconds(1) == pytest.approx(0.005, rel=0.03)


@pytest.mark.parametrize("seed", range(50))
def test_a_wrong_candidate_is_never_chosen_however_fast(seed: int):
    rng = random.Random(seed)
    times = [rng.uniform(0.001, 0.01) for _ in range(6)]
    wrong = rng.sample(range(1, 6), rng.randrange(1, 6))
    for k in wrong:
        times[k] /= 100
    subject = FakeSubject(times, noise=0.1, wrong=wrong, seed=seed)
    trials, _ = search(subject, 30.0, seed)
    assert trials.outcome is not None and trials.outcome["pick"] not in wrong
    assert all(trials.status[k] == WRONG and "4 of 4" in trials.details[k] for k in wrong)


def test_what_becomes_wrong_while_it_is_timed_is_not_chosen(monkeypatch: pytest.MonkeyPatch):
    subject = FakeSubject([0.01, 0.0001, 0.005])
    plain = subject.seconds

    def seconds(k: int, count: int) -> float:
        if count > 1:
            subject._wrong = (1,)
        return plain(k, count)

    monkeypatch.setattr(subject, "seconds", seconds)
    trials, _ = search(subject, 30.0)
    assert trials.outcome is not None and trials.outcome["pick"] == 2
    assert trials.status[1] == WRONG


def test_a_candidate_that_fails_costs_itself():
    def fail() -> None:
        raise MemoryError("too much")

    trials, _ = search(FakeSubject([0.01, 0.001, 0.005], actions={1: fail}), 30.0)
    assert trials.status == [OK, FAILED, OK] and "MemoryError: too much" in trials.details[1]
    assert trials.outcome is not None and trials.outcome["pick"] == 2
    trials, _ = search(FakeSubject([0.01, 0.001], actions={0: fail}), 30.0)
    assert trials.outcome is not None and trials.outcome["pick"] is None


@pytest.mark.parametrize("budget", [0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("count", [2, 10, 100])
def test_a_budget_is_exceeded_by_one_step_at_most(budget: float, count: int):
    compile_s = 0.02
    subject = FakeSubject([0.001] * count, compile_s=compile_s, noise=0.3)
    began = subject.clock.now
    trials, _ = search(subject, budget)
    assert subject.clock.now - began <= 1.1 * budget
    assert trials.outcome is not None
    untried = [k for k, s in enumerate(trials.status) if s == UNTRIED]
    assert untried == list(range(count - len(untried), count))
    assert bool(untried) == (count * compile_s > 0.5 * budget)


def test_equal_samples_give_equal_searches_and_a_record_replays_without_candidates():
    for seed in range(10):
        trials, limits = search(FakeSubject([0.01, 0.009, 0.02, 0.008], noise=0.3, seed=seed), 3.0)
        log = json.loads(json.dumps(trials.log))
        again = replay(trials.texts, log, limits)
        assert trials.outcome is not None and again.outcome is not None
        assert again.outcome == trials.outcome
        assert again.samples == trials.samples and again.status == trials.status
    sample = next(m for m in log if m["do"] == "sample")
    sample["k"] = 99
    with pytest.raises(ValueError, match="order"):
        replay(trials.texts, log, limits)


def test_a_search_that_was_cut_off_ends_with_what_it_has():
    trials = Trials(["a", "b", "c"])
    for k, seconds in enumerate((1.0, 0.5)):
        trials.apply({"do": "checked", "k": k, "status": OK})
        trials.apply({"do": "first", "k": k, "s": seconds})
    for _ in range(4):
        trials.apply({"do": "sample", "k": 0, "s": 1.0})
        trials.apply({"do": "sample", "k": 1, "s": 0.5})
    trials.apply({"do": "begin", "k": 2})
    conclude(trials, 0)
    assert trials.outcome is not None and trials.outcome["pick"] == 1
    assert trials.status == [OK, OK, UNTRIED]
    cut = Trials(["a", "b"])
    conclude(cut, 0)
    assert cut.outcome is not None and cut.outcome["pick"] is None


def test_the_clock_of_a_fake_moves_with_runs():
    clock = FakeClock()
    FakeSubject([1.0], clock, compile_s=0.5).run(0)
    assert clock() == 101.5


class FakeFirstRuns:
    """A process in which a candidate takes as long as it takes here, and what hangs is ended."""

    reference_s = 0.0

    def __init__(self, subject: FakeSubject, seconds: list[float], limit_s: float) -> None:
        self._clock, self._seconds, self._limit = subject.clock, seconds, limit_s
        self.candidate = 0

    def is_ready(self, seconds: float) -> bool:
        return True

    def run(self, recording: object, rest_s: float) -> Verdict:
        limit, took = min(self._limit, rest_s), self._seconds[self.candidate]
        self._clock.now += min(took, limit) + (PATIENCE_S if took > limit else 0.0)
        if took <= limit:
            return Verdict()
        return Verdict("no answer", is_late=limit == self._limit, is_unknown=limit < self._limit)


@pytest.mark.parametrize("seed", range(100))
def test_no_search_takes_longer_than_its_budget_whatever_candidates_do(seed: int):
    rng = random.Random(seed)
    budget = rng.choice((0.2, 0.6, 1.0))
    seconds = [1e-3, *(rng.choice((1e-4, 1e-3, 0.03, 0.2, 0.45, 60.0)) for _ in range(12))]
    subject = FakeSubject(seconds, compile_s=0.005, noise=0.05, seed=seed)
    first_runs: Any = FakeFirstRuns(subject, seconds, 0.5)
    recorded = subject.recorded

    def noted(k: int, only_kept: bool) -> Any:
        first_runs.candidate = k
        return recorded(k, only_kept)

    subject.recorded = noted
    clock = subject.clock
    limits = Limits(clock(), clock() + budget, 0.7, seed, shares=(0.9, 0.9))
    trials = Trials(subject.texts)
    examine(subject, trials, limits, trials.apply, clock, first_runs)
    assert clock() - limits.started <= budget * 1.1
    assert trials.outcome is not None and trials.outcome["pick"] is not None
    assert all(seconds[k] > 0.5 for k, s in enumerate(trials.status) if s == LATE)
