"""First runs of a search's candidates, and whether they computed what the reference did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.autotune.ahead import Ahead, Ready
from cubepy.autotune.compare import difference
from cubepy.autotune.first_runs import FirstRuns
from cubepy.autotune.sandbox import PATIENCE_S, Verdict
from cubepy.autotune.subject import Subject
from cubepy.autotune.trials import (
    CRASHED,
    FAILED,
    LATE,
    OK,
    UNTRIED,
    WRONG,
    Clock,
    Limits,
    Message,
    Report,
    Trials,
)
from cubepy.errors import Error
from cubepy.jit.ahead import NotKept
from cubepy.record import dataclass


@dataclass
class Checks:
    """Runs candidates for the first time and compares them with what is `wanted`. `longest_s`: what
    one of them took so far."""

    subject: Subject
    trials: Trials
    wanted: list[Any]
    limits: Limits
    ahead: Ahead | None
    first_runs: FirstRuns | None
    report: Report
    clock: Clock
    longest_s: float = 0.0

    def run(self, unknown: Sequence[int]) -> list[int]:
        """Check candidates as they are compiled, until their race needs what is left of the budget,
        or the longest check so far would not fit into that; those that are left."""
        left = list(unknown)
        while left and self.clock() < (until := self._until()) and self._rest() > self.longest_s:
            ready = self.ahead.next(left, until) if self.ahead else Ready(left[0])
            if ready is None or not self._may_run(until):
                break
            left.remove(ready.k)
            if ready.seconds is not None:
                self.report({"do": "predicted", "k": ready.k, "s": ready.seconds})
            if ready.failure:
                self._checked(ready.k, LATE if ready.is_late else CRASHED, ready.failure)
            else:
                began = self.clock()
                self._check(ready.k)
                self.longest_s = max(self.longest_s, self.clock() - began)
        for k in left:
            self._checked(k, UNTRIED)
        return left

    def _until(self) -> float:
        """When no candidate is waited for any more."""
        return self.limits.checked_by(self.trials.race_s())

    def _rest(self) -> float:
        """What a check may take at most, with the time in which a first run is ended."""
        ending = 0.0 if self.first_runs is None else PATIENCE_S
        return self.limits.deadline - self.clock() - ending

    def _may_run(self, until: float) -> bool:
        """Whether there is somewhere to run candidates first, in time."""
        return self.first_runs is None or self.first_runs.is_ready(until - self.clock())

    def _checked(self, k: int, status: str, detail: str = "", **more: float) -> None:
        said: Message = {"do": "checked", "k": k, "status": status, **more}
        self.report({**said, "detail": encodable(detail)} if detail else said)

    def _first_run(self, k: int) -> Verdict:
        """Run a candidate where it may do no harm, or look only whether it is compiled."""
        if self.first_runs is None and not self.limits.only_kept:
            return Verdict()
        recording = self.subject.recorded(k, self.limits.only_kept)
        if self.first_runs is None:
            return Verdict()
        return self.first_runs.run(recording, self._rest() / 2)  # the other half is for here

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
            ran = self.clock()
            subject.run(k)
            took, ran_s = self.clock() - began, self.clock() - ran
            wrong = difference_from(subject, self.wanted)
        except NotKept:
            self._checked(k, UNTRIED)
            return
        except Exception as error:
            self.report(failed(k, error))
            return
        if wrong:
            self._checked(k, WRONG, wrong)
        else:
            self._checked(k, OK, compile_s=took, ran_s=ran_s)


def difference_from(subject: Subject, wanted: list[Any]) -> str:
    """How the last run's outputs differ from what is wanted; empty where they agree."""
    found = subject.outputs()
    if len(found) != len(wanted):
        return f"it gives {len(found)} arrays in place of {len(wanted)}"
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        wrong = difference(a, b, subject.rtol)
        if wrong:
            return f"output {number}: {wrong}"
    return ""


def failed(k: int, error: Exception) -> Message:
    """That a candidate raised an error: CubePy's own say that a device cannot run it, any other
    one may be a mistake in it."""
    said: Message = {"do": "checked", "k": k, "status": FAILED, "detail": shown(error)}
    return said if isinstance(error, Error) else {**said, "is_foreign": True}


def shown(error: BaseException) -> str:
    """An error for people."""
    return encodable(f"{type(error).__name__}: {error}"[:500])


def encodable(text: str) -> str:
    """A text with escapes in place of what has no encoding, such as bytes of odd file names."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
