"""`cp.tuning`: how much may be measured now, and who is not to measure at all."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from typing import Any

from cubepy.config import get
from cubepy.errors import fail
from cubepy.record import dataclass
from cubepy.scoped import Scoped

OFF, KEPT, QUICK, FULL = "off", "kept", "quick", "full"
"""Levels. "kept": use what is remembered and measure nothing, which is what prebuilt functions do
where nobody says anything."""
LEVELS = (OFF, QUICK, FULL)
BUDGETS_S = {("cpu", QUICK): 2.0, ("cpu", FULL): 120.0, ("gpu", QUICK): 1.0, ("gpu", FULL): 20.0}
"""Seconds for a key."""
LONGEST_S = 86400.0
"""Of a budget: what waits for a child counts in days at most."""
LIMITS_S = {QUICK: 0.7, FULL: 10.0}
"""Seconds in which a candidate must have been compiled and run."""


@dataclass(frozen=True, slots=True, eq=False)
class Tuning:
    """What `tuning` chose; None: by the settings and the kind of device. Compared by identity,
    which is as fast as can be: `tuning` gives one object for equal choices."""

    level: str | None = None
    budget_s: float | None = None
    limit_s: float | None = None
    seed: int = 0
    background: bool = False
    cold: bool = False

    def seconds(self, kind: str, level: str) -> float:
        """The budget of a key on a kind of device."""
        if self.budget_s is not None:
            return self.budget_s
        return BUDGETS_S["cpu" if kind == "cpu" else "gpu", level]

    def limit(self, level: str) -> float:
        """Seconds for one candidate."""
        return LIMITS_S[level] if self.limit_s is None else self.limit_s


DEFAULT = Tuning()
_known: dict[tuple[object, ...], Tuning] = {}
MOST = 256
"""Choices that are kept, each with one object."""
current: ContextVar[Tuning] = ContextVar("cubepy_tuning", default=DEFAULT)
"""What holds in this context."""


@contextmanager
def tuning(
    *,
    level: str | None = None,
    budget_s: float | None = None,
    limit_s: float | None = None,
    seed: int | None = None,
    background: bool | None = None,
    cold: bool | None = None,
) -> Iterator[None]:
    """Choose inside a `with` block how tuned functions pick their configurations.

    `level`: "off" takes the preferred configuration, or the imported one; "quick" measures what was
    not measured before, once for each problem, in `budget_s` seconds (2 on a CPU, 1 on a GPU);
    "full" measures all that is left, for a minute or two. `limit_s`: what a candidate may take to
    be compiled and run once. `seed`: of the order of samples. `background`: calls go on with the
    best so far while a search runs. `cold`: caches are flushed before each sample.

    None leaves a choice as it is around the block. `LaunchError` E420, a `ValueError`, for what is
    no level, no time or no seed.
    """
    if level is not None and level not in LEVELS:
        reason = f"it is one of {', '.join(map(repr, LEVELS))}"
        raise fail("E420", name="level", value=level, reason=reason)
    for name, seconds in (("budget_s", budget_s), ("limit_s", limit_s)):
        if seconds is not None and not (_is_number(seconds) and 0 < seconds <= LONGEST_S):
            reason = "it is a number of seconds, a day's at most"
            raise fail("E420", name=name, value=seconds, reason=reason)
    if seed is not None and type(seed) is not int:
        raise fail("E420", name="seed", value=seed, reason="it is an int")
    given = {name: value for name, value in locals().items() if name in Tuning.__slots__}
    chosen = {name: value for name, value in given.items() if value is not None}
    token = current.set(_kept(replace(current.get(), **chosen)))
    try:
        yield
    finally:
        current.reset(token)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kept(found: Tuning) -> Tuning:
    """The object of these choices."""
    key = tuple(getattr(found, name) for name in Tuning.__slots__)
    if len(_known) >= MOST:
        return _known.get(key, found)
    return _known.setdefault(key, found)


def level_in_force(default: str) -> str:
    """The level of the context, else of the settings, else `default`."""
    return current.get().level or get("tune") or default


FOLDER, FILE = "tuning-1", "measurements.sqlite"
"""Where measurements are kept, below the folder of the setting."""


def may_choose(default: str) -> bool:
    """Whether anything but the preferred configuration may be picked: something is measured now,
    or there are records."""
    if level_in_force(default) in (QUICK, FULL):
        return True
    place = os.path.join(get("cache_dir"), FOLDER, FILE)
    return get("cache") and os.path.exists(place)


changes = array("q", [0])
"""How often picks changed behind those who keep one: a search in the background ended, or picks
were imported. What was picked before is picked again. A word that native code reads."""
_counted = count(1)


def note_change() -> None:
    """Let what was picked before be picked again; from any thread."""
    changes[0] = next(_counted)  # one step, so that threads never write one number twice


_searching: Scoped[bool] = Scoped("cubepy_searching")


@contextmanager
def searching() -> Iterator[None]:
    """Inside the block a candidate runs: what it calls is not tuned."""
    with _searching.holding(True):
        yield


def is_searching() -> bool:
    """Whether a candidate is running."""
    return _searching.get() is True
