"""The choice for one problem: what is remembered, else what a search finds, else the first."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from cubepy.autotune import background, behind, isolated, session
from cubepy.autotune.ahead import can_compile_ahead, cores
from cubepy.autotune.behind import Compiling
from cubepy.autotune.first_runs import FirstRuns, can_rehearse
from cubepy.autotune.hardware import Hardware, hardware_of
from cubepy.autotune.measure import is_capturing
from cubepy.autotune.progress import Progress
from cubepy.autotune.records import (
    IMPORTED,
    MEASURED,
    Key,
    Measurement,
    Pick,
    Records,
    find_records,
)
from cubepy.autotune.search import examine
from cubepy.autotune.session import (
    FULL,
    KEPT,
    OFF,
    QUICK,
    Tuning,
    current,
    is_searching,
    level_in_force,
    searching,
)
from cubepy.autotune.subject import Subject
from cubepy.autotune.trials import (
    CHECKED_SHARES,
    CRASHED,
    FIRST_SHARES,
    LATE,
    OK,
    UNKNOWN,
    UNTRIED,
    WAITED_SHARES,
    WRONG,
    Clock,
    Limits,
    Message,
    Trials,
)
from cubepy.hashing import sha256
from cubepy.record import dataclass

MOST_WORKERS = {QUICK: 8, FULL: 16}
"""Processes that compile ahead: to fork one of a process that uses a GPU takes 10 ms."""
MOST_ENTRANTS = 8
"""Of a short race on a GPU: its first runs are timed by the device, and more would not separate."""
HANG_S = 5.0
"""A candidate without an answer for so long is said to hang; one for less may compile slowly."""
SKIPPED = "known"
"""The status of candidates that a search leaves out because they were measured before."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be chosen. `kernel`, `source`, `problem`: as in `records.Key`; `texts`: the legal
    configurations, the preferred one first; `default`: the level where nobody chose one;
    `reference`: the position of the configuration that the others are compared with."""

    kernel: str
    source: str
    problem: str
    device: Any
    texts: Sequence[str]
    default: str
    reference: int = 0

    @property
    def candidates(self) -> str:
        """A hash of the set of configurations."""
        return sha256("\n".join(sorted(self.texts)).encode()).hexdigest()[:16]

    def key(self, hardware: Hardware) -> Key:
        """The key of its records."""
        return Key(hardware.key, self.kernel, self.source, self.problem)


@dataclass(frozen=True, slots=True)
class Choice:
    """`index` of the configuration. One that is not `is_final` holds until `session.changes` moves:
    a search goes on, which notes its end."""

    index: int
    is_final: bool = True
    origin: str = "default"


_busy: dict[Any, bool] = {}
"""What is searched for now, and whether other threads go on without it."""
_lock = threading.Lock()


def _after_fork() -> None:
    """In a child: nobody searches for it, and a thread that is lost may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _busy.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def choose(request: Request, make: Callable[[], Subject]) -> Choice:
    """The choice for a request; `make` gives the subject of a search. Searches as the level
    in force says."""
    if len(request.texts) < 2 or is_searching():
        return Choice(0)
    level, options, records = level_in_force(request.default), current.get(), find_records()
    if level in (OFF, KEPT) and not records.exists:
        return Choice(0)
    hardware = hardware_of(request.device)
    key = request.key(hardware)
    known = _remembered(request, key, records, level)
    rest = behind.rest_of((key, request.candidates)) if level == QUICK else None
    is_open = level == FULL or (rest is not None and rest.is_done)
    if known is not None and (not is_open or known.origin == IMPORTED):
        return known
    measured = records.measurements(key) if level != OFF else {}
    best = _best(request, measured)
    so_far = known.index if known is not None else best or 0
    if rest is not None and not rest.is_done:
        return Choice(so_far, False)
    fresh = _fresh(request, measured, level, rest)
    if level in (OFF, KEPT) or not fresh:
        return Choice(so_far, True, MEASURED if measured else "default")
    if is_capturing(request.device.target.kind):
        session.note_change()  # so that nobody keeps it
        return Choice(so_far, False)
    left_s = None if rest is None else rest.left_s
    search = _Search(request, key, hardware, records, measured, best, fresh, level, options, left_s)
    return _search(search, make, Choice(best or 0, False))


def _remembered(request: Request, key: Key, records: Records, level: str) -> Choice | None:
    origins = (IMPORTED,) if level == OFF else (IMPORTED, MEASURED)
    pick = records.pick(key, request.candidates, origins)
    if pick is None or pick.config not in request.texts:
        return None
    return Choice(list(request.texts).index(pick.config), True, pick.origin)


def _best(request: Request, measured: dict[str, Measurement]) -> int | None:
    """The fastest candidate that was measured; None where none was."""
    times = [
        (m.seconds, k)
        for k, text in enumerate(request.texts)
        if (m := measured.get(text)) is not None and m.status == OK and m.seconds is not None
    ]
    return min(times)[1] if times else None


def _fresh(
    request: Request, measured: dict[str, Measurement], level: str, rest: behind.Rest | None
) -> set[int]:
    """Candidates that are to be measured: those never seen, at "full" those left untried, and what
    was compiled since."""
    if rest is not None:
        return {k for k, text in enumerate(request.texts) if text in rest.compiled}

    def is_known(text: str) -> bool:
        found = measured.get(text)
        again = found is not None and level == FULL and found.status in (UNTRIED, LATE)
        return found is not None and not again

    return {k for k, text in enumerate(request.texts) if not is_known(text)}


@dataclass(frozen=True, slots=True)
class _Search:
    """A search that is about to begin."""

    request: Request
    key: Key
    hardware: Hardware
    records: Records
    measured: dict[str, Measurement]
    best: int | None
    fresh: set[int]
    level: str
    options: Tuning
    left_s: float | None = None
    """Of the budget, where a search before this one left something."""

    @property
    def name(self) -> Any:
        """What distinguishes searches of this process."""
        return self.key, self.request.candidates


@contextmanager
def _alone(key: Any) -> Any:
    """Whether no other thread of this process searches for the same. What those that do not wait
    took meanwhile is looked up again."""
    with _lock:
        is_first = key not in _busy
        _busy[key] = not is_first
    try:
        yield is_first
    finally:
        if is_first:
            with _lock:
                others = _busy.pop(key, False)
            if others:
                session.note_change()


def _search(search: _Search, make: Callable[[], Subject], meanwhile: Choice) -> Choice:
    if search.options.background:
        subject = make()
        background.start(lambda: _behind(search, subject))
        return meanwhile
    with _alone(search.name) as is_first:
        if not is_first:
            return meanwhile
        return run(search, make())


def _behind(search: _Search, subject: Subject) -> None:
    """A search in a thread of its own."""
    try:
        with _alone(search.name) as is_first:
            if is_first:
                run(search, subject, background.clock)
    finally:
        session.note_change()


def run(search: _Search, subject: Subject, clock: Clock = time.perf_counter) -> Choice:
    """Search, keep what was found, and say what went wrong."""
    request, forks = search.request, isolated.can_fork(search.request.device.target.kind)
    if forks:
        isolated.warm()  # once in a process, for all launches: no problem's budget pays for it
    kind = "cpu" if request.device.target.kind == "cpu" else "gpu"
    limits = _limits(search, kind, clock())
    budget = limits.deadline - limits.started
    behind.forget(search.name)

    def later(compiling: Compiling, left: Sequence[int]) -> None:
        least = (1.0 - FIRST_SHARES[kind]) * budget  # a slow first run leaves it, too
        rest_s = max(least, limits.deadline - clock())
        behind.compile_behind(search.name, compiling, left, request.texts, rest_s)

    trials = Trials(list(request.texts), _begun(search))
    progress = Progress(request.kernel.rpartition(".")[2], budget)

    def shown(message: Message) -> None:
        trials.apply(message)
        progress.show(trials)

    try:
        with searching():
            if forks:
                isolated.search(subject, trials, limits, clock, progress.show, later)
            else:
                with _first_runs(search, subject, limits) as first_runs:
                    examine(subject, trials, limits, shown, clock, first_runs, later)
    finally:
        progress.end()
    choice = _kept(search, trials, limits)  # first: a warning may be an error
    _warn(request, trials, limits.each_s)
    return choice


def _limits(search: _Search, kind: str, began: float) -> Limits:
    """The limits of a search that begins now. One that leaves candidates for later waits less."""
    options, level = search.options, search.level
    is_second, is_quick = search.left_s is not None, level == QUICK
    leaves = is_quick and not (is_second or options.background) and can_compile_ahead()
    budget = options.seconds(kind, level) if search.left_s is None else search.left_s
    return Limits(
        started=began,
        deadline=began + budget,
        each_s=options.limit(level),
        seed=options.seed,
        cold=options.cold,
        workers=0 if is_second else min(cores(), MOST_WORKERS[level]),
        shares=WAITED_SHARES[kind] if leaves else CHECKED_SHARES[kind],
        first_share=FIRST_SHARES[kind] if leaves else None,
        predicts=level == FULL,
        entrants=MOST_ENTRANTS if kind == "gpu" and is_quick else None,
        only_kept=is_second,
    )


def _first_runs(search: _Search, subject: Subject, limits: Limits) -> Any:
    """Where candidates run first, as a context; None where that is here."""
    if not can_rehearse(search.request.device):
        return nullcontext()
    return FirstRuns(subject, search.request.device, limits.each_s)


def _begun(search: _Search) -> list[str]:
    """What is known of each candidate before; the best so far runs again beside the new ones, and
    so does the reference."""
    again = {search.best, search.request.reference} | search.fresh
    found: list[str] = []
    for k, text in enumerate(search.request.texts):
        known = search.measured.get(text)
        if k in again and (known is None or known.status in (OK, UNTRIED, LATE)):
            found.append(UNKNOWN)
        else:
            found.append(SKIPPED if known is None or known.status == OK else known.status)
    return found


def _kept(search: _Search, trials: Trials, limits: Limits) -> Choice:
    """Write down what was measured, and take the pick that stands."""
    request, end = search.request, trials.outcome or {}
    unseen = {UNKNOWN, SKIPPED}
    if trials.status[request.reference] == UNTRIED:  # nothing was tried: another process may
        unseen.add(UNTRIED)
    measured = [
        Measurement(
            text,
            trials.status[k],
            trials.seconds(k),
            trials.details.get(k, ""),
            tuple(trials.samples.get(k, ())),
        )
        for k, text in enumerate(request.texts)
        if trials.status[k] not in unseen
    ]
    index, pick = end.get("pick"), None
    about = {n: end[n] for n in ("reason", "confidence") if n in end}
    if index is not None:
        pick = Pick(
            search.key, list(request.texts)[index], MEASURED, json.dumps(about), request.candidates
        )
    shown = {"texts": list(request.texts), "log": trials.log, "seed": limits.seed}
    shown |= {"deadline": limits.deadline, "started": limits.started, "each_s": limits.each_s}
    is_better = search.level == FULL or search.left_s is not None
    if is_better and pick is not None:
        search.records.put_picks([pick])
    stands = search.records.keep(search.key, search.hardware.facts, measured, pick, shown)
    if stands is not None and stands.config in request.texts:
        chosen = list(request.texts).index(stands.config)
        if trials.status[chosen] in (OK, SKIPPED, UNTRIED):
            return Choice(chosen, True, MEASURED)
    return Choice(index or 0, True, MEASURED if index is not None else "default")


def _warn(request: Request, trials: Trials, limit_s: float) -> None:
    """Say what nobody should learn from a table alone."""
    names = {WRONG: "is wrong", CRASHED: "crashed"}
    if limit_s >= HANG_S:
        names[LATE] = "hangs"
    for k, status in enumerate(trials.status):
        if status in names and k in trials.details:
            text = f"{request.kernel} with {request.texts[k]} {names[status]} and is never chosen"
            warnings.warn(f"{text}: {trials.details[k]}", RuntimeWarning, stacklevel=2)
    for detail, failed in _raised(request, trials).items():
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        text = f"{request.kernel} with {request.texts[failed[0]]}{more} fails and is never chosen"
        warnings.warn(f"{text}: {detail}", RuntimeWarning, stacklevel=2)
    end = trials.outcome or {}
    if end.get("pick") is None:
        why = trials.details.get(request.reference, "")
        text = f"{request.kernel} was not tuned: {end.get('reason', 'the search was lost')}"
        warnings.warn(f"{text}{': ' if why else ''}{why}", RuntimeWarning, stacklevel=2)


def _raised(request: Request, trials: Trials) -> dict[str, list[int]]:
    """Candidates that raised errors that are not CubePy's, by these; that of the reference is
    reported with what becomes of the search."""
    found: dict[str, list[int]] = {}
    for k in sorted(trials.foreign - {request.reference}):
        found.setdefault(trials.details[k], []).append(k)
    return found
