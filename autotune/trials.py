"""What a search has found so far, and what bounds it.

All that happens in a search is a list of messages, plain data, from which `Trials` is made: they
come from a child process, from this one, or from a record that is replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any

from cubepy.autotune.race import median
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
CHECKED_SHARES = {"cpu": (0.6, 0.9), "gpu": (0.9, 0.9)}
"""The share of a budget in which candidates are compiled and compared, at least, and at most, where
their race will be short: on a GPU it always is."""
WAITED_SHARES = {"cpu": (0.5, 0.5), "gpu": (0.35, 0.35)}
FIRST_SHARES = {"cpu": 0.65, "gpu": 0.5}
"""Where the rest is compiled behind calls: the share in which a search waits for candidates, and
the share that it takes of all if it does not get to some."""
TIMED_SHARE = 0.375
"""Of what is left when candidates are first timed, after which no other joins the race."""
RACED = 20
"""Samples of each candidate that a race is expected to take."""
SAMPLE_S = 1e-3
"""A sample is so many launches that it takes about this long: the clock and a launch are short
against it."""
HOPELESS = 3.0
"""Candidates whose first run takes so many times as long as the best one's are not timed again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`deadline`: when a search ends, by its clock; `each_s`: seconds in which a candidate must
    have been compiled and run; `seed`: of the order of samples; `cold`: caches are flushed before
    each sample; `workers`: processes that compile ahead; `shares`: of the budget, in which
    candidates are compiled and compared at least and at most; `first_share`: what a search takes of
    it that leaves candidates for later; None: it leaves none; `predicts`: times of code that was on
    disk are predicted too; `entrants`: of a race at most; None: all; `only_kept`: only code that is
    on disk is run."""

    started: float
    deadline: float
    each_s: float
    seed: int = 0
    cold: bool = False
    workers: int = 0
    shares: tuple[float, float] = CHECKED_SHARES["cpu"]
    first_share: float | None = None
    predicts: bool = True
    entrants: int | None = None
    only_kept: bool = False

    def first(self) -> Limits:
        """Those of a search whose rest is done by a later one."""
        part = (self.first_share or 1.0) * (self.deadline - self.started)
        return replace(self, deadline=self.started + part)

    def checked_by(self, race_s: float) -> float:
        """When compiling ends, if the race that follows takes so many seconds."""
        whole = self.deadline - self.started
        least, most = (self.started + share * whole for share in self.shares)
        return max(least, min(most, self.deadline - race_s))


@dataclass
class Trials:
    """What a search has found so far; `apply` adds a message. `ran`: seconds of a run in a check,
    with the loading of its code; `first`: of one that was timed; `foreign`: candidates that raised
    an error that is not CubePy's."""

    texts: list[str]
    status: list[str] = field(default_factory=list[str])
    details: dict[int, str] = field(default_factory=dict[int, str])
    ran: dict[int, float] = field(default_factory=dict[int, float])
    first: dict[int, float] = field(default_factory=dict[int, float])
    predicted: dict[int, float] = field(default_factory=dict[int, float])
    foreign: set[int] = field(default_factory=set[int])
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
            if message.get("is_foreign"):
                self.foreign.add(k)
            if "ran_s" in message:
                self.ran[k] = message["ran_s"]
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

    def race_s(self) -> float:
        """What a race of those that are right so far may take."""
        right = (k for k, s in enumerate(self.status) if s == OK)
        return RACED * sum(max(SAMPLE_S, self.ran.get(k, 0.0)) for k in right)

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
