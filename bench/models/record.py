"""What a run of `bench.models` found, as plain data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Roofs:
    """What the faster side reaches: GB/s of a large copy, GFLOP/s of a large product."""

    copy: float
    product: float


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of CubePy and of torch. `error` is a share of the largest value."""

    model: str
    family: str
    work: str
    flops: int
    nbytes: int
    ours: float
    theirs: float
    error: float

    @property
    def ratio(self) -> float:
        """How many times CubePy is as fast as torch."""
        return self.theirs / self.ours

    def rate(self, seconds: float) -> str:
        """TFLOP/s or GFLOP/s where products are counted, else GB/s."""
        if not self.flops:
            return f"{self.nbytes / seconds / 1e9:.3g} GB/s"
        flops = self.flops / seconds / 1e9
        return f"{flops / 1e3:.3g} TFLOP/s" if flops >= 1e3 else f"{flops:.3g} GFLOP/s"

    def __str__(self) -> str:
        shown = f"{self.model:10} {self.family:18} {self.work:44} {1e6 * self.ours:10.2f} us"
        return f"{shown} {self.rate(self.ours):>14}  x{self.ratio:.3f}  error {self.error:.1e}"


@dataclass(slots=True)
class Record:
    """A run on a machine."""

    machine: dict[str, str]
    roofs: Roofs
    rows: list[Row] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """The file that `read` takes."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Record:
        """A run of before."""
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in found["rows"]]
        return cls(found["machine"], Roofs(**found["roofs"]), rows)
