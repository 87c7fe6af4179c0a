"""Successive elimination, on samples and a clock that are made up."""

from __future__ import annotations

import random

import pytest

from cubepy.autotune.race import ROUNDS, confidence, decide, interval, is_slower, median, race
from tests.autotune.fakes import FakeClock


def run(means, noise=0.0, budget=1e9, seed=0, favourite=0, bound=0.0, outliers=0.0, drift=0.0):
    """Race candidates whose samples are their mean, times up to 1 + noise, and rarely ten times."""
    clock, rng = FakeClock(), random.Random(seed)
    samples: dict[int, int] = dict.fromkeys(range(len(means)), 0)

    def sample(k: int) -> float:
        samples[k] += 1
        slow = 10.0 if rng.random() < outliers else 1.0
        found = means[k] * slow * (1 + noise * rng.random()) * (1 + drift * (clock.now - 100))
        clock.now += found
        return found

    began = clock.now
    found = race(range(len(means)), sample, clock, began + budget, seed, favourite, bound)
    return found, samples, clock.now - began


def test_the_fastest_wins_and_the_slow_are_sampled_least():
    found, samples, _ = run([1.0, 0.5, 3.0, 0.8], noise=0.05)
    assert found.winner == 1 and found.reason == "separated"
    assert samples[2] == 3 and samples[1] == max(samples.values()) < ROUNDS
    assert found.confidence >= 0.85


def test_the_default_wins_where_nothing_is_shown_to_be_faster():
    for seed in range(20):
        assert run([1.0, 1.0, 1.001, 0.999], noise=0.1, seed=seed)[0].winner == 0
    found, _, _ = run([1.0] * 5)
    assert found.reason == "tie" and found.confidence == 0.0
    assert run([1.0, 0.5], favourite=1)[0].winner == 1


def test_outliers_and_drift_of_the_machine_change_nothing():
    wins = [
        run([1.0, 0.8, 1.5], 0.1, seed=s, outliers=0.05, drift=0.01)[0].winner for s in range(30)
    ]
    assert wins.count(1) >= 28 and 2 not in wins


def test_a_race_goes_on_until_the_pick_is_shown_to_be_near_the_best():
    """Noise takes more rounds; the budget is what ends them."""
    races = [run([1.0, 0.9], noise=0.6, seed=s) for s in range(30)]
    assert [found.winner for found, _, _ in races].count(1) >= 28
    assert max(samples[1] for _, samples, _ in races) > 40
    ties = [run([1.0] * 9, noise=0.1, seed=s) for s in range(10)]
    assert all(found.reason == "tie" and max(n.values()) < 60 for found, n, _ in ties)
    far = [run([1.0, 0.96], noise=0.3, seed=s)[0] for s in range(30)]
    assert not [found for found in far if (found.winner, found.reason) == (0, "tie")]
    assert run([1.0] * 9, noise=0.5, budget=100)[0].reason == "budget"


def test_a_default_that_left_does_not_come_back():
    """It was shown to be slower than one that was then overtaken."""
    times = {0: [1.0] * 6, 1: [0.9] * 6 + [5.0] * 9, 2: [1.0, 0.95] * 6 + [0.95] * 3}
    assert decide([1, 2], times, 0, "tie").winner == 2


@pytest.mark.parametrize("budget", [0.1, 0.5, 1.0, 2.0, 7.3])
def test_the_budget_is_never_exceeded_by_more_than_a_sample(budget):
    means = [0.01, 0.011, 0.02, 0.1]
    found, samples, spent = run(means, noise=0.2, budget=budget)
    assert spent <= budget + max(means) * 1.2
    if budget > 1:
        assert spent <= 1.1 * budget
    if found.reason == "budget":
        assert found.winner == 0
    assert sum(samples.values()) >= 1


def test_one_sample_is_no_reason_to_leave_the_default():
    found, samples, _ = run([1.0, 0.1], budget=1.05)
    assert found.reason == "budget" and found.winner == 0 and sum(samples.values()) <= 2


def test_at_the_bound_nothing_is_left_to_be_found():
    found, samples, _ = run([1.0, 1.3], bound=0.99)
    assert found.reason == "roofline" and found.winner == 0 and samples == {0: 2, 1: 2}


def test_equal_seeds_give_equal_races():
    assert run([1, 0.9, 0.8], 0.3, seed=5) == run([1, 0.9, 0.8], 0.3, seed=5)


def test_a_single_entrant_is_sampled_once():
    found, samples, _ = run([1.0])
    assert (found.winner, found.reason, samples) == (0, "alone", {0: 1})


def test_statistics():
    assert median([3, 1, 2]) == 2 and median([1, 2, 3, 4]) == 2.5
    assert interval([5.0]) == (5.0, 5.0) and interval([1, 2, 3, 4, 5, 6]) == (1, 6)
    assert interval(list(range(20))) == (5, 14)  # as in Conover's table for n = 20
    assert confidence([1.1] * 6) == 1 - 1 / 64 and confidence([0.9, 1.1]) == 0
    assert confidence([]) == 0
    assert is_slower([1.6, 1.6, 1.6]) and not is_slower([1.6, 1.6])
    assert not is_slower([1.1, 0.9] * 10) and is_slower([1.05] * 6) and not is_slower([1.005] * 30)


def test_intervals_hold_the_median_as_often_as_they_say():
    rng = random.Random(1)
    for n in (6, 9, 15, 30):
        inside = 0
        for _ in range(2000):
            low, high = interval([rng.lognormvariate(0, 1) for _ in range(n)])
            inside += low <= 1.0 <= high
        assert inside >= 2000 * 0.94
