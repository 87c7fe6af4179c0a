"""The decisions of a recorded search, made again without a device."""

from __future__ import annotations

from collections.abc import Iterator

from cubepy.autotune.race import race
from cubepy.autotune.trials import Limits, Message, Trials


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
