"""Fair times: contenders take turns, each is warm, and medians over the rounds are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Call = Callable[[], None]

MOST_ROUNDS = 31
LEAST_ROUNDS = 5
PAUSE = 0.003
"""Seconds before each sample, in which the other contenders' spinning threads fall asleep."""
WARM_BELOW = 0.05
"""Seconds; calls that are shorter are repeated once untimed, to wake their own threads."""


def measure(calls: Mapping[str, Call], budget: float) -> dict[str, float]:
    """Median seconds of each call; stops after `budget` seconds, but not before five rounds.

    Every call must have run before, so that nothing is compiled here.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and time.perf_counter() - begin > budget:
            break
        for name in _turn(list(calls), done):
            samples[name].append(_sample(calls[name], samples[name]))
    return {name: statistics.median(values) for name, values in samples.items()}


def timed(call: Call) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _turn(names: list[str], done: int) -> list[str]:
    """The order of a round: everybody comes first in turn."""
    shift = done % len(names)
    return names[shift:] + names[:shift]


def _sample(call: Call, before: list[float]) -> float:
    time.sleep(PAUSE)
    if not before or before[-1] < WARM_BELOW:
        call()
    return timed(call)
