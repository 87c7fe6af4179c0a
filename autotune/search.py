"""One search: every candidate is compiled, run and compared, then those that are right race."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.autotune.ahead import Ahead, can_compile_ahead
from cubepy.autotune.checks import Checks, difference_from, failed
from cubepy.autotune.first_runs import FirstRuns
from cubepy.autotune.race import decide
from cubepy.autotune.racing import run_race, time_first
from cubepy.autotune.subject import Subject
from cubepy.autotune.trials import OK, UNKNOWN, UNTRIED, Clock, Limits, Report, Trials

MANY = 4
MAKING_S = 10.0
"""What a process that compiles ahead may take for a candidate at least: others work beside it."""
LATE_REFERENCE = "the budget ended with the reference"
Later = Callable[[Any, Sequence[int]], None]
"""Goes on with compiling (`behind.Compiling`), and closes what does so: these candidates are
left."""


def examine(
    subject: Subject,
    trials: Trials,
    limits: Limits,
    report: Report,
    clock: Clock = time.perf_counter,
    first_runs: FirstRuns | None = None,
    later: Later | None = None,
) -> None:
    """Do what `trials` does not know yet, and report it, up to the message "end".

    `first_runs`: where candidates run before they may run here; None: here. `later`: what takes
    over the candidates that were not compiled in time, where the limits leave some for later.
    """
    others = [k for k, s in enumerate(trials.status) if s == UNKNOWN and k != subject.reference]
    ahead = _compiling(subject, others, limits, clock)
    try:
        wanted = _reference(subject, trials, report, first_runs)
        if wanted is None:
            report({"do": "end", "pick": None, "reason": "the reference failed"})
            return
        if others:
            difference_from(subject, wanted)  # what compares is loaded while others compile
        if ahead is not None and first_runs is not None:
            subject.seconds(subject.reference, 1)  # what times on a GPU, too
        checks = Checks(subject, trials, wanted, limits, ahead, first_runs, report, clock)
        left = checks.run(others)
        reference = ahead and ahead.prediction(subject.reference)
        if reference is not None:
            report({"do": "predicted", "k": subject.reference, "s": reference})
        if ahead is not None:
            if left and later is not None and limits.first_share is not None:
                ahead.pause()
                limits = limits.first()
            else:
                ahead.close()
                ahead = None
        if ahead is None or trials.status.count(OK) > 1:
            time_first(subject, trials, limits, report, clock)
            run_race(subject, trials, limits, wanted, report, clock)
        else:
            conclude(trials, subject.reference, report)  # all others are for later
        if ahead is not None and later is not None:
            ahead.resume()
            later(ahead, left)
            ahead = None
    finally:
        if ahead is not None:
            ahead.close()


def _compiling(
    subject: Subject, unknown: Sequence[int], limits: Limits, clock: Clock
) -> Ahead | None:
    """Compile the unknown ahead, where that is possible and there are some. The reference is
    compiled by who runs it, but predicted like the others: where there are few workers, last."""
    if not (unknown and limits.workers and can_compile_ahead()):
        return None
    try:
        subject.copy_arguments()
    except Exception:  # the reference meets the same error, and reports it
        return None
    order, limit_s = [*unknown, subject.reference], max(limits.each_s, MAKING_S)
    if limits.workers >= MANY:
        order.insert(0, order.pop())

    def make(k: int) -> float | None:
        return subject.make(k, limits.predicts)

    try:
        return Ahead(make, order, limit_s, clock, limits.workers).__enter__()
    except OSError:  # there are no descriptors: who runs a candidate compiles it
        return None


def _reference(
    subject: Subject, trials: Trials, report: Report, first_runs: FirstRuns | None
) -> list[Any] | None:
    """What the reference computes on the copies that the others are given."""
    k = subject.reference
    if trials.status[k] not in (UNKNOWN, OK):
        return None
    report({"do": "begin", "k": k})
    try:
        if trials.poisons:
            subject.learn()
        subject.restore(trials.poisons)
        began = time.perf_counter()
        subject.run(k)
        if first_runs is not None:
            first_runs.reference_s = time.perf_counter() - began
        wanted = subject.outputs()
    except Exception as error:
        report(failed(k, error))
        return None
    report({"do": "checked", "k": k, "status": OK})
    return wanted


def conclude(
    trials: Trials, reference: int, report: Report | None = None, why: str = LATE_REFERENCE
) -> None:
    """End a search that cannot go on, by the samples that there are. `why`: where there are none
    of the reference."""
    report = report or trials.apply
    trials.doing = None
    for k, status in enumerate(trials.status):
        if status == UNKNOWN:
            report({"do": "checked", "k": k, "status": UNTRIED})
    entrants = [k for k, status in enumerate(trials.status) if status == OK]
    favourite = 0 if 0 in entrants else reference
    if trials.status[reference] != OK:
        report({"do": "end", "pick": None, "reason": why})
        return
    found = decide(entrants, trials.samples, favourite, "budget")
    end = {"pick": found.winner, "reason": found.reason, "confidence": found.confidence}
    report({"do": "end", **end})
