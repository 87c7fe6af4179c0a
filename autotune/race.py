"""Successive elimination: candidates are sampled in turns until one is shown to be the fastest.

All statistics are of ratios within one round, so that a machine that slows down for all alike
changes nothing, and are order statistics, so that single outliers count little. The interval of a
median by order statistics: W. J. Conover, Practical Nonparametric Statistics, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb
from random import Random

from cubepy.record import dataclass

ROUNDS = 200
"""Samples of one candidate, at most: the budget of a quick search ends before."""
CLEAR = ((3, 1.5), (4, 1.2))
"""After so many samples, a candidate that was slower by such a factor in all of them leaves."""
MARGIN = 1.01
"""What is slower by less than this is as good."""
NEAR, TIE_ROUNDS = 1.03, 15
"""A race is a tie where, after so many rounds, the pick is shown to be within this factor of each
candidate that is left."""
ROOFLINE = 1.05
"""Within this factor of the bound nothing is left to be found."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a race ended. `winner`: a candidate; `reason`: "separated", "tie", "budget", "roofline",
    "rounds" or "alone"; `confidence`: that the winner is faster than the one behind it by the
    median, from 0 to 1, and 0 where there is none; `times`: the samples of each, in seconds."""

    winner: int
    reason: str
    confidence: float
    times: Mapping[int, Sequence[float]]


def race(
    entrants: Iterable[int],
    sample: Callable[[int], float],
    clock: Callable[[], float],
    deadline: float,
    seed: int,
    favourite: int,
    bound: float = 0.0,
    rounds: int = ROUNDS,
) -> Outcome:
    """Sample `entrants` in rounds of random order; the favourite wins unless it is shown slower.

    `sample(k)` gives seconds of one run of candidate k; no sample begins that would end behind the
    `deadline`, if it takes as long as the one before. `bound`: seconds that nothing can be faster
    than, 0 if none is known. Decisions follow from the samples, the clock and the seed alone.
    """
    rng = Random(seed)
    alive = list(dict.fromkeys(entrants))
    times: dict[int, list[float]] = {k: [] for k in alive}
    costs = dict.fromkeys(alive, 0.0)
    reason = "alone" if len(alive) == 1 else "rounds"
    for count in range(1, (1 if len(alive) == 1 else rounds) + 1):
        order = list(alive)
        rng.shuffle(order)
        is_whole = True
        for k in order:
            before = clock()
            if before + costs[k] >= deadline:
                is_whole = False
                break
            times[k].append(sample(k))
            costs[k] = clock() - before
        if not is_whole:
            reason = "budget"
            break
        leader = _leader(alive, times)
        alive = [k for k in alive if k == leader or not is_slower(_ratios(times, k, leader))]
        if len(alive) == 1:
            reason = "alone" if len(times) == 1 else "separated"
            break
        if bound and count >= 2 and min(times[leader]) <= bound * ROOFLINE:
            reason = "roofline"
            break
        if count >= TIE_ROUNDS and _is_tie(alive, times, favourite):
            reason = "tie"
            break
    return decide(alive, times, favourite, reason)


def decide(
    alive: Sequence[int], times: Mapping[int, Sequence[float]], favourite: int, reason: str
) -> Outcome:
    """The outcome of what was sampled so far."""
    leader = _picked(alive, times, favourite)
    others = [k for k in times if k != leader and times[k]]
    if not others:
        return Outcome(leader, reason, 0.0, times)
    second = min(others, key=lambda k: median(times[k]))
    return Outcome(leader, reason, confidence(_ratios(times, second, leader)), times)


def _leader(alive: Sequence[int], times: Mapping[int, Sequence[float]]) -> int:
    return min(alive, key=lambda k: (median(times[k]), k))


def _picked(alive: Sequence[int], times: Mapping[int, Sequence[float]], favourite: int) -> int:
    """The favourite, unless the leader is shown to be faster."""
    sampled = [k for k in alive if times.get(k)]
    leader = _leader(sampled, times) if sampled else favourite
    is_out = favourite not in alive or is_slower(_ratios(times, favourite, leader))
    return leader if is_out else favourite


def _ratios(times: Mapping[int, Sequence[float]], k: int, leader: int) -> list[float]:
    """How many times as long as the leader a candidate took, round by round."""
    pairs = zip(times.get(k, ()), times.get(leader, ()), strict=False)
    return [a / b if b > 0 else 1.0 for a, b in pairs]


def is_slower(ratios: Sequence[float]) -> bool:
    """Whether ratios to the leader show that a candidate is slower by more than the margin."""
    if any(len(ratios) >= count and min(ratios) > factor for count, factor in CLEAR):
        return True
    return len(ratios) >= 6 and interval(ratios)[0] > MARGIN


def _is_tie(alive: Sequence[int], times: Mapping[int, Sequence[float]], favourite: int) -> bool:
    picked = _picked(alive, times, favourite)
    others = (k for k in alive if k != picked)
    return all(interval(_ratios(times, picked, k))[1] <= NEAR for k in others)


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Bounds of the median at 95 % by order statistics; of few samples, the least and largest."""
    ordered, rank = sorted(samples), _rank(len(samples))
    return ordered[rank], ordered[-1 - rank]


@lru_cache(maxsize=ROUNDS)
def _rank(n: int) -> int:
    """How many of so many samples lie below the interval."""
    below, rank = 0.0, 0
    while rank < (n - 1) // 2:
        below += comb(n, rank) / 2**n
        if below > 0.025:
            break
        rank += 1
    return max(0, rank - 1)


def median(samples: Sequence[float]) -> float:
    """The one in the middle, or half way between the two."""
    ordered, n = sorted(samples), len(samples)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def confidence(ratios: Sequence[float]) -> float:
    """That a median ratio is above one, by the sign test; 0 where nothing speaks for it."""
    n, above = len(ratios), sum(1 for r in ratios if r > 1.0)
    if n == 0 or 2 * above <= n:
        return 0.0
    tail = sum(comb(n, k) for k in range(above, n + 1)) / 2**n
    return 1.0 - tail
