"""What a search did not get to: its candidates are compiled while calls go on, and a later call
tries them, in what is left of the budget, a third of it at least."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

from cubepy.autotune import session
from cubepy.autotune.ahead import Ready
from cubepy.record import dataclass

LONGEST_S = 10.0
"""How long processes compile behind calls, for one search."""
MOST = 64
"""Searches whose candidates wait; the oldest go first."""


class Compiling(Protocol):
    """What compiles candidates: `ahead.Ahead`, or the child of a search with one."""

    def next(self, wanted: Sequence[int], until: float) -> Ready | None:
        """One of those that are wanted whose code is on disk; None if there is none by then."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


@dataclass
class Rest:
    """What one search left. `compiled`: texts of candidates; `left_s`: of its budget."""

    left_s: float
    compiled: list[str]
    is_done: bool = False


_rests: dict[Any, Rest] = {}
_changed = threading.Condition()


def compile_behind(
    name: Any, compiling: Compiling, left: Sequence[int], texts: Sequence[str], left_s: float
) -> None:
    """Let `compiling` go on with the candidates `left` behind this call, and close it."""
    rest = Rest(left_s, [])
    with _changed:
        while len(_rests) >= MOST:
            _rests.pop(next(iter(_rests)))
        _rests[name] = rest
    work = (rest, compiling, list(left), list(texts))
    try:
        threading.Thread(target=_work, args=work, daemon=True).start()
    except RuntimeError as error:
        compiling.close()
        _done(rest)
        text = f"nothing is compiled behind calls: no thread is to be had ({error})"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _work(rest: Rest, compiling: Compiling, left: list[int], texts: list[str]) -> None:
    try:
        until = time.perf_counter() + LONGEST_S
        while left and (ready := compiling.next(left, until)) is not None:
            left.remove(ready.k)
            if ready.is_made:
                rest.compiled.append(texts[ready.k])
    finally:
        try:
            compiling.close()
        finally:
            _done(rest)


def _done(rest: Rest) -> None:
    """Nothing more is compiled: kept picks are looked up again."""
    with _changed:
        rest.is_done = True
        session.note_change()
        _changed.notify_all()


def rest_of(name: Any) -> Rest | None:
    """What a search of this name left."""
    return _rests.get(name)


def forget(name: Any) -> None:
    """Leave out what a search left: it was tried."""
    with _changed:
        _rests.pop(name, None)


def _after_fork() -> None:
    """In a child: nobody compiles for it, and a thread that is lost may have held the lock."""
    global _changed
    _changed = threading.Condition()
    _rests.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def wait(seconds: float) -> bool:
    """Wait until nothing compiles behind calls, but not longer than so many seconds; whether it is
    so."""
    with _changed:
        return _changed.wait_for(lambda: all(r.is_done for r in _rests.values()), seconds)
