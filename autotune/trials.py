"""One search: every candidate is compiled, run and compared, then those that are right race.

All that happens is a list of messages, plain data, from which `Trials` is made: they come from a
child process, from this one, or from a record that is replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from math import isfinite
from typing import Any

from cubepy.autotune.ahead import Ahead, Ready, can_compile_ahead
from cubepy.autotune.compare import difference
from cubepy.autotune.first_runs import FirstRuns
from cubepy.autotune.race import Outcome, decide, median, race
from cubepy.autotune.sandbox import Verdict
from cubepy.autotune.subject import Subject
from cubepy.jit.ahead import NotKept
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
CHECKED_SHARE = {"cpu": 0.6, "gpu": 0.9}
"""The share of a budget in which candidates are compiled and compared: a race on a GPU is short."""
WAITED_SHARE, FIRST_SHARE = 0.35, 0.5
"""Where the rest is compiled behind calls: the share in which a search waits for candidates, and
the share that it takes of all if it does not get to some."""
TIMED_SHARE = 0.375
"""Of what is left, after which no other joins the race."""
MANY = 4
MAKING_S = 10.0
"""What a process that compiles ahead may take for a candidate at least: others work beside it."""
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
    each sample; `workers`: processes that compile ahead; `share`: of the budget, in
    which candidates are compiled and compared; `least_ahead`: candidates that are worth processes
    that compile them; `predicts`: times of code that was on disk are predicted too;
    `entrants`: of a race at most; None: all; `is_quick`: nothing is compiled."""

    started: float
    deadline: float
    each_s: float
    seed: int = 0
    cold: bool = False
    workers: int = 0
    share: float = CHECKED_SHARE["cpu"]
    least_ahead: int = 2
    predicts: bool = True
    entrants: int | None = None
    is_quick: bool = False

    def first(self) -> Limits:
        """Those of a search whose rest is done by a later one."""
        part = FIRST_SHARE * (self.deadline - self.started)
        return replace(self, deadline=self.started + part, share=self.share / FIRST_SHARE)

    @property
    def checked_by(self) -> float:
        """When compiling ends."""
        return self.started + self.share * (self.deadline - self.started)

    @property
    def timed_by(self) -> float:
        """When the race begins at the latest."""
        return self.checked_by + TIMED_SHARE * (self.deadline - self.checked_by)


@dataclass
class Trials:
    """What a search has found so far; `apply` adds a message."""

    texts: list[str]
    status: list[str] = field(default_factory=list[str])
    details: dict[int, str] = field(default_factory=dict[int, str])
    first: dict[int, float] = field(default_factory=dict[int, float])
    predicted: dict[int, float] = field(default_factory=dict[int, float])
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
        elif kind == "predicted":
            self.predicted[k] = message["s"]
        elif kind == "first":
            self.first[k], self.doing = message["s"], None
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

    def entrants(self, most: int | None = None) -> list[int]:
        """Those that are right and not hopeless; the fastest `most` by their first runs."""
        right = [k for k, s in enumerate(self.status) if s == OK]
        timed = [k for k in right if k in self.first]
        best = min((self.first[k] for k in timed), default=0.0)
        found = [k for k in timed if self.first[k] <= HOPELESS * best + 1e-4]
        chosen = set(sorted(found, key=lambda k: self.first[k])[:most])
        return [k for k in found if k in chosen]

    def seconds(self, k: int) -> float | None:
        """The measured time of a candidate: the median of its samples, else its first run."""
        if self.samples.get(k):
            return median(self.samples[k])
        return self.first.get(k) if self.status[k] == OK else None


Later = Callable[[Ahead, Sequence[int]], None]
"""Goes on with compiling, and closes what does so: these candidates are left."""


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
    over the candidates that were not compiled in time; None: they are left out.
    """
    others = [k for k, s in enumerate(trials.status) if s == UNKNOWN and k != subject.reference]
    ahead = _compiling(subject, others, limits, clock)
    try:
        wanted = _reference(subject, trials, report, first_runs)
        if wanted is None:
            report({"do": "end", "pick": None, "reason": "the reference failed"})
            return
        if others:
            _difference(subject, wanted)  # what compares is loaded while others compile
        checks = _Checks(subject, wanted, limits, ahead, first_runs, report, clock)
        left = checks.run(others)
        reference = ahead and ahead.prediction(subject.reference)
        if reference is not None:
            report({"do": "predicted", "k": subject.reference, "s": reference})
        if ahead is not None:
            if left and later is not None:
                ahead.pause()
                limits = limits.first()
            else:
                ahead.close()
                ahead = None
        if ahead is None or trials.status.count(OK) > 1:
            _time_first(subject, trials, limits, report, clock)
            _race(subject, trials, limits, wanted, report, clock)
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
    if len(unknown) < limits.least_ahead or not limits.workers or not can_compile_ahead():
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

    return Ahead(make, order, limit_s, clock, limits.workers).__enter__()


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
        report({"do": "checked", "k": k, "status": FAILED, "detail": _shown(error)})
        return None
    report({"do": "checked", "k": k, "status": OK})
    return wanted


@dataclass(frozen=True, slots=True)
class _Checks:
    """Runs candidates for the first time and compares them with what is `wanted`."""

    subject: Subject
    wanted: list[Any]
    limits: Limits
    ahead: Ahead | None
    first_runs: FirstRuns | None
    report: Report
    clock: Clock

    def run(self, unknown: Sequence[int]) -> list[int]:
        """Check candidates as they are compiled, until that share of the budget is spent; those
        that are left."""
        left, until = list(unknown), self.limits.checked_by
        while left and self.clock() < until:
            ready = self.ahead.next(left, until) if self.ahead else Ready(left[0])
            if ready is None or not self._may_run(until):
                break
            left.remove(ready.k)
            if ready.seconds is not None:
                self.report({"do": "predicted", "k": ready.k, "s": ready.seconds})
            if ready.failure:
                self._checked(ready.k, LATE if ready.is_late else CRASHED, ready.failure)
            else:
                self._check(ready.k)
        for k in left:
            self._checked(k, UNTRIED)
        return left

    def _may_run(self, until: float) -> bool:
        """Whether there is somewhere to run candidates first, in time."""
        return self.first_runs is None or self.first_runs.is_ready(until - self.clock())

    def _checked(self, k: int, status: str, detail: str = "", **more: float) -> None:
        said: Message = {"do": "checked", "k": k, "status": status, **more}
        self.report({**said, "detail": detail} if detail else said)

    def _first_run(self, k: int) -> Verdict:
        """Run a candidate where it may do no harm, or look only whether it is compiled."""
        if self.first_runs is None and not self.limits.is_quick:
            return Verdict()
        recording = self.subject.recorded(k, self.limits.is_quick)
        return Verdict() if self.first_runs is None else self.first_runs.run(recording)

    def _check(self, k: int) -> None:
        """Compile and run a candidate, and compare it."""
        subject = self.subject
        self.report({"do": "begin", "k": k})
        began = self.clock()
        try:
            verdict = self._first_run(k)
            if verdict.reason:
                status = LATE if verdict.is_late else UNTRIED if verdict.is_unknown else CRASHED
                self._checked(k, status, verdict.reason)
                return
            subject.restore(True)
            subject.run(k)
            took = self.clock() - began
            wrong = _difference(subject, self.wanted)
        except NotKept:
            self._checked(k, UNTRIED)
            return
        except Exception as error:
            self._checked(k, FAILED, _shown(error))
            return
        if wrong:
            self._checked(k, WRONG, wrong)
        else:
            self._checked(k, OK, compile_s=took)


def _time_first(
    subject: Subject, trials: Trials, limits: Limits, report: Report, clock: Clock
) -> None:
    """Time a run of each that is right, the reference first: what takes much longer than others
    does not race. Nothing is compiled at the same time any more."""
    right = [k for k, status in enumerate(trials.status) if status == OK and k not in trials.first]
    for k in sorted(right, key=lambda k: k != subject.reference):
        if k != subject.reference and clock() >= limits.timed_by:
            break
        report({"do": "begin", "k": k})
        try:
            report({"do": "first", "k": k, "s": _first(subject, k)})
        except Exception as error:
            report({"do": "checked", "k": k, "status": FAILED, "detail": _shown(error)})


def _first(subject: Subject, k: int) -> float:
    """The shortest of a few runs, so that one that was interrupted is not taken for slow."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < FIRST_S:
        subject.restore(False)
        times.append(subject.seconds(k, 1))
    return min(times)


def _difference(subject: Subject, wanted: list[Any]) -> str:
    for number, (a, b) in enumerate(zip(subject.outputs(), wanted, strict=True)):
        wrong = difference(a, b, subject.rtol)
        if wrong:
            return f"output {number}: {wrong}"
    return ""


class _Failed(Exception):
    """A candidate that ran before does not any more."""


def _race(
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
                report({"do": "checked", "k": k, "status": FAILED, "detail": _shown(error)})
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


def conclude(trials: Trials, reference: int, report: Report | None = None) -> None:
    """End a search whose budget ended before its race did, by the samples that there are."""
    report = report or trials.apply
    trials.doing = None
    for k, status in enumerate(trials.status):
        if status == UNKNOWN:
            report({"do": "checked", "k": k, "status": UNTRIED})
    entrants = [k for k, status in enumerate(trials.status) if status == OK]
    favourite = 0 if 0 in entrants else reference
    if trials.status[reference] != OK:
        report({"do": "end", "pick": None, "reason": "the budget ended with the reference"})
        return
    found = decide(entrants, trials.samples, favourite, "budget")
    end = {"pick": found.winner, "reason": found.reason, "confidence": found.confidence}
    report({"do": "end", **end})


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
        return _difference(subject, wanted)
    except Exception as error:
        return _shown(error)


def _loops(first: float, cold: bool) -> int:
    if cold or not isfinite(first) or first >= SAMPLE_S:
        return 1
    return max(1, min(MOST_LOOPS, int(SAMPLE_S / max(first, 1e-9))))


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def replay(texts: list[str], log: list[Message], limits: Limits) -> Trials:
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
        begun.get("deadline", limits.deadline),
        limits.seed,
        begun["favourite"],
        begun.get("bound", 0.0),
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
