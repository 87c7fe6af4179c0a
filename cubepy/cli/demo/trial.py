"""Runs the steps on every device: verifies all contenders against NumPy in f64, and times them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial

import numpy as np

from cubepy.cli.demo.peers import find_peers
from cubepy.cli.demo.steps import STEPS, Contender, Step
from cubepy.cli.demo.timing import measure, timed
from cubepy.record import dataclass
from cubepy.runtimes.registry import devices

CROP = 32
"""Pixels of the square that devices which are slow by design (the interpreter) get."""
PEER_TOLERANCE = 1e-4
"""Peers may use other formulas and are only checked for doing the same thing."""


@dataclass(frozen=True, slots=True)
class Row:
    """A contender's result. `first` is its first call, compilation included; seconds."""

    contender: str
    is_own: bool
    error: float
    is_right: bool
    first: float
    seconds: float | None = None
    note: str = ""


@dataclass(slots=True)
class Outcome:
    """A step's results: pictures before and after, and a row for each contender."""

    step: Step
    before: np.ndarray
    after: np.ndarray
    rows: list[Row] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether all of CubePy's results are right."""
        return all(row.is_right for row in self.rows if row.is_own)

    @property
    def own_seconds(self) -> float:
        """The time of the first device, which everybody is compared with."""
        return self.rows[0].seconds or float("nan")


def run_trials(planes: np.ndarray, budget: float) -> Iterator[Outcome]:
    """All steps, one after the other; `budget` seconds of timing for each."""
    for step in STEPS:
        yield try_step(step, planes, budget)


def try_step(step: Step, planes: np.ndarray, budget: float) -> Outcome:
    """One step with all contenders."""
    x = step.prepare(planes)
    outcome = Outcome(step, x, step.output(x))
    wanted = _reference(step, x)
    contenders = _contenders(step)
    rows, calls = {}, {}
    for name, contender in contenders.items():
        out = outcome.after if not calls else step.output(x)
        calls[name] = partial(contender, x, out)
        rows[name] = _verify(name, step, calls[name], out, wanted)
    seconds = measure({n: c for n, c in calls.items() if rows[n].is_right}, budget)
    outcome.rows = [_with_time(row, seconds.get(name)) for name, row in rows.items()]
    outcome.rows += _crops(step, x)
    return outcome


def _reference(step: Step, x: np.ndarray) -> np.ndarray:
    exact = x.astype(np.float64)
    out = step.output(exact)
    step.numpy(exact, out)
    return out


def _contenders(step: Step) -> dict[str, Contender]:
    """CubePy on each real device first, then NumPy and the peers."""
    found: dict[str, Contender] = {}
    for device in devices():
        if device.name != "interpreter":
            found[f"CubePy {device.name}"] = partial(step.run, device.name)
    peers = find_peers(step.key)
    own = {name: peers[name] for name in peers if name.startswith("CubePy")}
    return found | own | {"NumPy": step.numpy} | peers


def _verify(
    name: str, step: Step, call: Callable[[], None], out: np.ndarray, wanted: np.ndarray
) -> Row:
    is_own = name.startswith("CubePy")
    try:
        first = timed(call)
    except Exception as failure:
        text = f"{type(failure).__name__}: {failure}"
        return Row(name, is_own, float("nan"), False, 0.0, note=text)
    error = float(np.max(np.abs(out - wanted)))
    return Row(name, is_own, error, error <= (step.tolerance if is_own else PEER_TOLERANCE), first)


def _with_time(row: Row, seconds: float | None) -> Row:
    return Row(row.contender, row.is_own, row.error, row.is_right, row.first, seconds, row.note)


def _crops(step: Step, x: np.ndarray) -> Iterator[Row]:
    """The interpreter, which defines the language, gets a corner and is not timed."""
    if any(device.name == "interpreter" for device in devices()):
        corner = np.ascontiguousarray(x[..., :CROP, :CROP])
        out = step.output(corner)
        call = partial(step.run, "interpreter", corner, out)
        row = _verify("CubePy interpreter", step, call, out, _reference(step, corner))
        note = row.note or f"a corner of {CROP}×{CROP}"
        yield Row(row.contender, True, row.error, row.is_right, row.first, None, note)
