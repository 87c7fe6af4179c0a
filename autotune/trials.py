"""One search: every candidate is compiled, run and compared, then those that are right race.

All that happens is a list of messages, plain data, from which `Trials` is made: they come from a
child process, from this one, or from a record that is replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import field
from math import isfinite
from typing import Any

import numpy as np

from cubepy.autotune.compare import difference
from cubepy.autotune.race import Outcome, decide, median, race
from cubepy.autotune.subject import Subject
from cubepy.record import dataclass

Message = dict[str, Any]
Report = Callable[[Message], None]
Clock = Callable[[], float]

UNKNOWN, OK, WRONG, FAILED, CRASHED, LATE, UNTRIED = (
    *("unknown", "ok", "wrong", "failed", "crashed", "late"),
    "untried",
)
"""What is known of a candidate. "late": it was not compiled and run within its limit, maybe because
it hangs; "untried": the budget ended before it was looked at."""
CHECKED_SHARE = 0.6
"""The share of a budget in which candidates are compiled and compared."""
HOPELESS = 3.0
"""Candidates whose first run takes so many times as long as the best one's are not timed again."""
SAMPLE_S = 1e-3
"""A sample is so many launches that it takes about this long: the clock and a launch are short
against it."""
MOST_LOOPS = 1 << 14
FIRST_S = 0.02
"""First runs that took this long together are not repeated."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`deadline`: when a search ends, by its clock; `each_s`: seconds in which a candidate must
    have been compiled and run; `seed`: of the order of samples; `cold`: caches are flushed before
    each sample."""

    started: float
    deadline: float
    each_s: float
    seed: int = 0
    cold: bool = False

    @property
    def checked_by(self) -> float:
        """When compiling ends and the race begins."""
        return self.started + CHECKED_SHARE * (self.deadline - self.started)


@dataclass
class Trials:
    """What a search has found so far; `apply` adds a message."""

    texts: list[str]
    status: list[str] = field(default_factory=list[str])
    details: dict[int, str] = field(default_factory=dict[int, str])
    first: dict[int, float] = field(default_factory=dict[int, float])
    samples: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    doing: int | None = None
    outcome: Message | None = None
    log: list[Message] = field(default_factory=list[Message])
    poisons: bool = True

    def __post_init__(self) -> None:
        self.status = self.status or [UNKNOWN] * len(self.texts)

    def apply(self, message: Message) -> None:
        """Take in what happened."""
        self.log.append(message)
        k, kind = message.get("k", 0), message["do"]
        if kind == "begin":
            self.doing = k
        elif kind == "checked":
            self.status[k], self.doing = message["status"], None
            if message.get("detail"):
                self.details[k] = message["detail"]
            if "s" in message:
                self.first[k] = message["s"]
        elif kind == "sample":
            self.samples.setdefault(k, []).append(message["s"])
        elif kind == "unpoisoned":
            self.poisons, self.doing = False, None
        elif kind == "end":
            self.outcome, self.doing = message, None

    def lost(self, status: str, detail: str, reference: int) -> None:
        """The process that tried a candidate is gone."""
        k = self.doing
        self.doing = None
        if k is None:
            return self.apply({"do": "end", "pick": None, "reason": f"lost: {detail}"})
        if k == reference and self.status[k] == UNKNOWN and self.poisons:
            return self.apply({"do": "unpoisoned", "detail": detail})
        return self.apply({"do": "checked", "k": k, "status": status, "detail": detail})

    def entrants(self) -> list[int]:
        """Those that are right and not hopeless."""
        right = [k for k, s in enumerate(self.status) if s == OK]
        best = min((self.first[k] for k in right if k in self.first), default=0.0)
        return [k for k in right if self.first.get(k, 0.0) <= HOPELESS * best + 1e-4]

    def seconds(self, k: int) -> float | None:
        """The measured time of a candidate: the median of its samples, else its first run."""
        if self.samples.get(k):
            return median(self.samples[k])
        return self.first.get(k) if self.status[k] == OK else None


def examine(
    subject: Subject,
    trials: Trials,
    limits: Limits,
    report: Report,
    clock: Clock = time.perf_counter,
) -> None:
    """Do what `trials` does not know yet, and report it, up to the message "end"."""
    wanted = _reference(subject, trials, report)
    if wanted is None:
        report({"do": "end", "pick": None, "reason": "the reference failed"})
        return
    for k in range(len(subject.texts)):
        if trials.status[k] == UNKNOWN:
            if clock() >= limits.checked_by:
                report({"do": "checked", "k": k, "status": UNTRIED})
                continue
            _check(subject, k, wanted, report, clock)
    _race(subject, trials, limits, wanted, report, clock)


def _reference(subject: Subject, trials: Trials, report: Report) -> list[np.ndarray] | None:
    """What the reference computes on the copies that the others are given."""
    k = subject.reference
    if trials.status[k] not in (UNKNOWN, OK):
        return None
    report({"do": "begin", "k": k})
    try:
        if trials.poisons:
            subject.learn()
        subject.restore(trials.poisons)
        subject.run(k)
        wanted = subject.outputs()
        first = _first(subject, k)
    except Exception as error:
        report({"do": "checked", "k": k, "status": FAILED, "detail": _shown(error)})
        return None
    report({"do": "checked", "k": k, "status": OK, "s": first})
    return wanted


def _check(
    subject: Subject, k: int, wanted: list[np.ndarray], report: Report, clock: Clock
) -> None:
    """Compile and run a candidate, compare it, and time a second run."""
    report({"do": "begin", "k": k})
    began = clock()
    try:
        subject.restore(True)
        subject.run(k)
        took = clock() - began
        wrong = _difference(subject, wanted)
        if wrong:
            report({"do": "checked", "k": k, "status": WRONG, "detail": wrong})
            return
        first = _first(subject, k)
    except Exception as error:
        report({"do": "checked", "k": k, "status": FAILED, "detail": _shown(error)})
        return
    report({"do": "checked", "k": k, "status": OK, "s": first, "compile_s": took})


def _first(subject: Subject, k: int) -> float:
    """The shortest of a few runs, so that one that was interrupted is not taken for slow."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < FIRST_S:
        subject.restore(False)
        times.append(subject.seconds(k, 1))
    return min(times)


def _difference(subject: Subject, wanted: list[np.ndarray]) -> str:
    for number, (a, b) in enumerate(zip(subject.outputs(), wanted, strict=True)):
        wrong = difference(a, b, subject.rtol)
        if wrong:
            return f"output {number}: {wrong}"
    return ""


def _race(
    subject: Subject,
    trials: Trials,
    limits: Limits,
    wanted: list[np.ndarray],
    report: Report,
    clock: Clock,
) -> None:
    """Race; the winner is compared once more after its many runs, and the next best takes its
    place if it is wrong."""
    while True:
        entrants = trials.entrants()
        favourite = 0 if 0 in entrants else subject.reference
        entrants = entrants if favourite in entrants else [favourite, *entrants]
        loops = {k: _loops(trials.first.get(k, SAMPLE_S), limits.cold) for k in entrants}

        def sample(k: int, loops: dict[int, int] = loops) -> float:
            report({"do": "begin", "k": k})
            subject.restore(False)
            if limits.cold:
                flush_caches()
            found = subject.seconds(k, loops[k]) / loops[k]
            report({"do": "sample", "k": k, "s": found})
            return found

        ticks = _reported(clock, report)
        report({"do": "race", "entrants": entrants, "favourite": favourite})
        found = race(
            entrants, sample, ticks, limits.deadline, limits.seed, favourite, subject.bound()
        )
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


def conclude(trials: Trials, reference: int) -> None:
    """End a search whose process was ended for its budget, by the samples that there are."""
    trials.doing = None
    for k, status in enumerate(trials.status):
        if status == UNKNOWN:
            trials.apply({"do": "checked", "k": k, "status": UNTRIED})
    entrants = [k for k, status in enumerate(trials.status) if status == OK]
    favourite = 0 if 0 in entrants else reference
    if trials.status[reference] != OK:
        trials.apply({"do": "end", "pick": None, "reason": "the budget ended with the reference"})
        return
    found = decide(entrants, trials.samples, favourite, "budget")
    end = {"pick": found.winner, "reason": found.reason, "confidence": found.confidence}
    trials.apply({"do": "end", **end})


def _reported(clock: Clock, report: Report) -> Clock:
    """A clock whose readings become part of the record."""

    def read() -> float:
        now = clock()
        report({"do": "tick", "t": now})
        return now

    return read


def _last_check(subject: Subject, found: Outcome, wanted: list[np.ndarray]) -> str:
    try:
        subject.restore(True)
        subject.run(found.winner)
        return _difference(subject, wanted)
    except Exception as error:
        return _shown(error)


def _loops(first: float, cold: bool) -> int:
    if cold or not isfinite(first) or first >= SAMPLE_S:
        return 1
    return max(1, min(MOST_LOOPS, int(SAMPLE_S / max(first, 1e-9))))


_FLUSH_BYTES = 64 << 20


def flush_caches() -> None:
    """Write more than processors' caches hold, so that what is timed next finds nothing there."""
    np.ones(_FLUSH_BYTES // 8).sum()


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def replay(texts: list[str], log: list[Message], limits: Limits, bound: float = 0.0) -> Trials:
    """The trials of a recorded search: its decisions are made again from its samples and clock.

    `ValueError` where the decisions of now ask for samples in another order than was recorded.
    """
    trials = Trials(texts)
    races = [n for n, m in enumerate(log) if m["do"] == "race"]
    for message in log[: races[-1]] if races else log:
        trials.apply(message)
    if not races:
        return trials
    begun, rest = log[races[-1]], _Tape(log[races[-1] + 1 :], trials)
    found = race(
        begun["entrants"],
        rest.sample,
        rest.clock,
        limits.deadline,
        limits.seed,
        begun["favourite"],
        bound,
    )
    end = {"pick": found.winner, "reason": found.reason, "confidence": found.confidence}
    trials.apply({"do": "end", **end})
    return trials


class _Tape:
    """Recorded samples and readings of the clock, in order."""

    def __init__(self, log: list[Message], trials: Trials) -> None:
        self._next: Iterator[Message] = iter(m for m in log if m["do"] in ("tick", "sample"))
        self._trials = trials

    def _take(self, kind: str) -> Message:
        message = next(self._next, None)
        if message is None or message["do"] != kind:
            raise ValueError("the record does not hold what a race would do now")
        return message

    def clock(self) -> float:
        return self._take("tick")["t"]

    def sample(self, k: int) -> float:
        message = self._take("sample")
        if message["k"] != k:
            raise ValueError("the record's candidates take turns in another order")
        self._trials.apply(message)
        return message["s"]
