"""What is measured: rows as data. A row makes a case, a case holds contenders and claims.

A contender is one library in one way of use; the `way` separates calls that are given their result
("out") from calls that return a new one ("returned"), which are never compared with each other.
"""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench import peers

OURS = "cubepy"


@dataclass(frozen=True, slots=True)
class Contender:
    """One library's way of doing the work of a row.

    `call` is what is timed. It gives its result, or fills an array that `result` then gives; a
    `call` that returns a `Sample` has measured itself. `nbytes` counts what it must read and write.
    `reference` stands in for the case's; without `is_judged` nothing is compared.
    """

    who: str
    call: Callable[[], Any]
    way: str = "out"
    nbytes: int = 0
    result: Callable[[], Any] | None = None
    reference: Callable[[], Any] | None = None
    is_judged: bool = True

    @property
    def name(self) -> str:
        """Unique in its case."""
        return f"{self.who} {self.way}"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a row says: how many times `ours` is as fast as the fastest of `against`.

    `floor` is the least that we accept. Rates compare bytes per second, for unequal work. A claim
    against nobody is that the measured value itself stays below `limit`.
    """

    label: str
    ours: str
    against: tuple[str, ...] = ()
    floor: float | None = None
    is_rate: bool = False
    limit: float | None = None


@dataclass(slots=True)
class Case:
    """Arrays, contenders over them, and the reference that judges all contenders alike."""

    contenders: list[Contender]
    claims: list[Claim] = field(default_factory=list)
    reference: Callable[[], Any] | None = None
    rtol: float = 1e-6
    atol: float = 0.0
    notes: list[str] = field(default_factory=list)

    def find(self, name: str) -> Contender:
        """The contender of that name."""
        return next(c for c in self.contenders if c.name == name)

    def present_claims(self) -> list[Claim]:
        """The claims whose sides are here; a claim against absent peers is not made."""
        here = {c.name for c in self.contenders}
        claims = [
            replace(claim, against=tuple(name for name in claim.against if name in here))
            for claim in self.claims
            if claim.ours in here
        ]
        return [claim for claim in claims if claim.against or claim.limit is not None]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the suite. `make(True)` makes it at a size for checking.

    `unit` is "s", or "arguments" for memory as a share of the smallest argument. `threads` and
    `rounds` stand in for those of the run.
    """

    group: str
    label: str
    make: Callable[[bool], Case]
    unit: str = "s"
    threads: int | None = None
    rounds: int | None = None

    @property
    def name(self) -> str:
        """What `--only` matches."""
        return f"{self.group}/{self.label}"


def all_rows() -> list[Row]:
    """Every row, in the order of the tables."""
    from bench.rows import (
        attention,
        averages,
        bandwidth,
        barriers,
        checked,
        convolutions,
        core,
        divergence,
        elementwise,
        experts,
        extremes,
        launch,
        memory,
        movers,
        normalised,
        pooling,
        positions,
        products,
        scans,
        sorting,
        start,
        sums,
    )

    arrays = (elementwise, sums, extremes, scans, normalised, sorting, movers)
    libraries = (pooling, averages, products, experts, convolutions, *arrays)
    modules = (
        bandwidth,
        *libraries,
        attention,
        core,
        divergence,
        positions,
        barriers,
        checked,
        launch,
        start,
        memory,
    )
    return [row for module in modules for row in module.rows()]


def select(rows: list[Row], pattern: str | None) -> list[Row]:
    """The rows whose name contains `pattern`, or matches it as a whole with its wildcards."""
    if not pattern:
        return rows
    return [r for r in rows if pattern in r.name or fnmatch.fnmatchcase(r.name, pattern)]


def only_present(contenders: Sequence[Contender | None]) -> list[Contender]:
    """Without the contenders of absent peers."""
    return [c for c in contenders if c is not None]


def check(case: Case) -> list[str]:
    """Run each contender once and compare it with the reference: what is wrong, in words."""
    expected = None if case.reference is None else as_f64(case.reference())
    found = (_compare(contender, expected, case) for contender in case.contenders)
    return [problem for problem in found if problem]


def as_f64(value: Any) -> np.ndarray:
    """A reference as an array to compare with."""
    return np.asarray(value, np.float64)


def _compare(contender: Contender, expected: np.ndarray | None, case: Case) -> str | None:
    returned = contender.call()
    if contender.reference is not None:
        expected = as_f64(contender.reference())
    if expected is None or not contender.is_judged:
        return None
    value = peers.as_numpy(contender.result() if contender.result else returned)
    if value.shape != expected.shape:
        return f"{contender.name}: shape {value.shape}, expected {expected.shape}"
    if np.allclose(value.astype(np.float64), expected, case.rtol, case.atol, equal_nan=True):
        return None
    return f"{contender.name}: off by up to {np.nanmax(np.abs(value - expected)):.3g}"
