"""Timed runs of a search's candidates: the first ones alone, then in turns, in a race."""

from __future__ import annotations

from math import isfinite
from typing import Any

from cubepy.autotune.checks import difference_from, failed, shown
from cubepy.autotune.race import Outcome, race
from cubepy.autotune.subject import Subject
from cubepy.autotune.trials import (
    OK,
    SAMPLE_S,
    TIMED_SHARE,
    WRONG,
    Clock,
    Limits,
    Report,
    Trials,
)

MOST_LOOPS = 1 << 14
RUNS = 2
"""Of a candidate that is timed once: one that is timed, and one before."""
FIRST_S = 0.02
"""First runs that took this long together are not repeated."""


def time_first(
    subject: Subject, trials: Trials, limits: Limits, report: Report, clock: Clock
) -> None:
    """Time a run of each that is right, the reference first: what takes much longer than others
    does not race. Nothing is compiled at the same time any more."""
    right = [k for k, status in enumerate(trials.status) if status == OK and k not in trials.first]
    until = clock() + TIMED_SHARE * (limits.deadline - clock())
    for k in sorted(right, key=lambda k: k != subject.reference):
        if k != subject.reference and clock() >= until:
            break
        if clock() + RUNS * trials.ran.get(k, 0.0) >= limits.deadline:
            continue
        report({"do": "begin", "k": k})
        try:
            report({"do": "first", "k": k, "s": _first(subject, k)})
        except Exception as error:
            report(failed(k, error))


def _first(subject: Subject, k: int) -> float:
    """The shortest of a few runs, so that one that was interrupted is not taken for slow."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < FIRST_S:
        subject.restore(False)
        times.append(subject.seconds(k, 1))
    return min(times)


class _Failed(Exception):
    """A candidate that ran before does not any more."""


def run_race(
    subject: Subject,
    trials: Trials,
    limits: Limits,
    wanted: list[Any],
    report: Report,
    clock: Clock,
) -> None:
    """Race; the winner is compared once more after its many runs, and the next best takes its
    place if it is wrong."""
    while True:
        entrants = trials.entrants(limits.entrants)
        favourite = 0 if 0 in entrants else subject.reference
        entrants = entrants if favourite in entrants else [favourite, *entrants]
        loops = {k: _loops(trials.first.get(k, SAMPLE_S), limits.cold) for k in entrants}

        def sample(k: int, loops: dict[int, int] = loops) -> float:
            report({"do": "begin", "k": k})
            subject.restore(False)
            if limits.cold:
                subject.flush()
            try:
                found = subject.seconds(k, loops[k]) / loops[k]
            except Exception as error:
                report(failed(k, error))
                raise _Failed from None
            report({"do": "sample", "k": k, "s": found})
            return found

        ticks = _reported(clock, report)
        bound = subject.bound()
        begun = {"entrants": entrants, "favourite": favourite, "bound": bound}
        report({"do": "race", **begun, "deadline": limits.deadline})
        try:
            found = race(entrants, sample, ticks, limits.deadline, limits.seed, favourite, bound)
        except _Failed:
            if trials.status[subject.reference] != OK:
                report({"do": "end", "pick": None, "reason": "the reference failed"})
                return
            continue
        wrong = "" if found.winner == subject.reference else _last_check(subject, found, wanted)
        if not wrong:
            break
        report({"do": "checked", "k": found.winner, "status": WRONG, "detail": wrong})
    report(
        {
            "do": "end",
            "pick": found.winner,
            "reason": found.reason,
            "confidence": found.confidence,
        }
    )


def _reported(clock: Clock, report: Report) -> Clock:
    """A clock whose readings become part of the record."""

    def read() -> float:
        now = clock()
        report({"do": "tick", "t": now})
        return now

    return read


def _last_check(subject: Subject, found: Outcome, wanted: list[Any]) -> str:
    try:
        subject.restore(True)
        subject.run(found.winner)
        return difference_from(subject, wanted)
    except Exception as error:
        return shown(error)


def _loops(first: float, cold: bool) -> int:
    if cold or not isfinite(first) or first >= SAMPLE_S:
        return 1
    return max(1, min(MOST_LOOPS, int(SAMPLE_S / max(first, 1e-9))))
