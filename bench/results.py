"""What a run found, as plain data: medians, ratios of pairs, and whether claims hold."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import Samples
from bench.suite import Case, Claim, Row


@dataclass(frozen=True, slots=True)
class Timing:
    """One contender: median seconds (or the row's unit), spread as a share, rounds kept."""

    who: str
    way: str
    median: float
    spread: float
    kept: int
    is_noisy: bool
    nbytes: int

    @property
    def name(self) -> str:
        """As the contender's."""
        return f"{self.who} {self.way}"

    @property
    def rate(self) -> float:
        """GB/s, read and written; 0 where bytes are not counted."""
        return self.nbytes / self.median / 1e9


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and its value: a ratio, or a measured value that must stay below `limit`.

    `is_noisy` says that too few undisturbed pairs were found to decide.
    """

    label: str
    ours: str
    against: str
    value: float
    floor: float | None
    limit: float | None
    is_noisy: bool = False

    @property
    def holds(self) -> bool | None:
        """None where nothing is demanded."""
        if self.limit is not None:
            return self.value < self.limit
        return None if self.floor is None else self.value >= self.floor


@dataclass(slots=True)
class RowResult:
    """One row of the suite."""

    group: str
    label: str
    unit: str
    rounds: int
    timings: list[Timing]
    verdicts: list[Verdict]
    error: str = ""

    def find_timing(self, name: str) -> Timing | None:
        """The timing of a contender."""
        return next((t for t in self.timings if t.name == name), None)

    def find_verdict(self, label: str) -> Verdict | None:
        """The verdict on a claim."""
        return next((v for v in self.verdicts if v.label == label), None)


@dataclass(slots=True)
class Report:
    """A run."""

    machine: dict[str, str]
    threads: int
    absent: list[str]
    rows: list[RowResult] = field(default_factory=list)

    def to_json(self) -> str:
        """The text that `from_json` reads."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """A run that was written before."""
        data: dict[str, Any] = json.loads(text)
        rows = [_read_row(row) for row in data.pop("rows")]
        return cls(**data, rows=rows)

    def write(self, path: Path) -> None:
        """Write the JSON, and the folder that it goes to."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json(), encoding="utf-8")


def _read_row(data: dict[str, Any]) -> RowResult:
    timings = [Timing(**timing) for timing in data.pop("timings")]
    verdicts = [Verdict(**verdict) for verdict in data.pop("verdicts")]
    return RowResult(**data, timings=timings, verdicts=verdicts)


def evaluate(row: Row, case: Case, samples: Samples) -> RowResult:
    """The medians of a row and its claims' values."""
    timings = [
        Timing(
            contender.who,
            contender.way,
            samples.median(contender.name),
            samples.spread(contender.name),
            len(samples.kept(contender.name)),
            samples.is_noisy(contender.name),
            contender.nbytes,
        )
        for contender in case.contenders
    ]
    verdicts = [_judge(claim, case, samples) for claim in case.present_claims()]
    return RowResult(row.group, row.label, row.unit, samples.taken, timings, verdicts)


def _judge(claim: Claim, case: Case, samples: Samples) -> Verdict:
    if not claim.against:
        value, against = samples.median(claim.ours), ""
    else:
        against = samples.fastest(claim.against)
        value = samples.ratio(claim.ours, against)
        if claim.is_rate:
            value *= case.find(claim.ours).nbytes / case.find(against).nbytes
    sides = (claim.ours, against) if against else (claim.ours,)
    is_noisy = samples.is_noisy(*sides)
    return Verdict(claim.label, claim.ours, against, value, claim.floor, claim.limit, is_noisy)


def failed(row: Row, error: Exception) -> RowResult:
    """A row that could not be measured."""
    words = f"{type(error).__name__}: {error}"
    return RowResult(row.group, row.label, row.unit, 0, [], [], words.splitlines()[0][:300])
