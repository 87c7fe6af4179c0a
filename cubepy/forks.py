"""Forks of a process with threads: what a thread that is lost in the child had begun.

A fork waits for imports that are under way, as nobody would finish such a module there; then it
takes the locks that must be free in the child. Ctrl-C may come meanwhile. What its handler raises
then goes nowhere, as Python reports and drops it, and it may be raised instead of a hook's first
line. So each lock is taken and let go whatever else is raised, and it is let go by two hooks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from functools import partial
from importlib import _bootstrap as bootstrap
from inspect import GEN_SUSPENDED, getgeneratorstate
from threading import get_ident
from typing import Any, NamedTuple

PATIENCE = 10.0
"""Seconds after which the fork goes on: an import may itself wait for the thread that forks."""

Lock = AbstractContextManager[Any]


class Held(NamedTuple):
    """A lock that a fork asked for: it has it while `until` is suspended, and closing that, once
    or twice, lets it go."""

    lock: Lock
    until: Generator[None, None, None]
    in_child: Callable[[], Any]


_locks: list[tuple[Lock, Callable[[], Any]]] = []
_forks: dict[int, list[list[Held]]] = {}
"""What the forks hold that each thread is in, in order: a handler of signals may fork in a fork."""


def at_fork(lock: Lock, in_child: Callable[[], Any] = int) -> None:
    """Let forks hold `lock`, so that it guards no half of a change in the child, where `in_child`
    is called before it is let go. The last ones registered are taken first. A fork under way
    ignores what another thread registers meanwhile, by an import."""
    _locks.append((lock, in_child))


def are_under_way() -> bool:
    """Whether other threads import modules, as far as Python shows who holds their locks."""
    known: Any = getattr(bootstrap, "_module_locks", {})
    owners = [getattr(held(), "owner", None) for held in list(known.values())]
    return not {None, get_ident()}.issuperset(owners)


def _wait() -> None:
    end = time.monotonic() + PATIENCE
    while are_under_way() and time.monotonic() < end:
        time.sleep(0.001)


def _holding(lock: Lock) -> Generator[None, None, None]:
    with lock:
        yield


def _hold(lock: Lock, in_child: Callable[[], Any]) -> None:
    begun = _forks[get_ident()][-1]
    if any(held.lock is lock and getgeneratorstate(held.until) == GEN_SUSPENDED for held in begun):
        return  # interrupted when it had it
    begun.append(Held(lock, _holding(lock), in_child))
    next(begun[-1].until)


def _do_all(steps: Iterable[Callable[[], Any]]) -> None:
    """Do each step, and once more if it raises; raise the last of what was raised at the end."""
    error: BaseException | None = None
    for step in steps:
        for _ in range(2):
            try:
                step()
                break
            except BaseException as raised:
                error = raised
    if error is not None:
        raise error


def _before() -> None:
    _forks.setdefault(get_ident(), []).append([])
    holds = [partial(_hold, *registered) for registered in reversed(_locks)]
    _do_all([_wait, *holds])


def _let_go() -> None:
    _do_all([held.until.close for held in reversed(_forks[get_ident()][-1])])


def _end() -> None:
    """Let go what an exception in place of `_let_go` left."""
    try:
        _let_go()
    finally:
        thread = get_ident()
        _forks[thread].pop()
        if not _forks[thread]:
            del _forks[thread]


def _begin_child() -> None:
    for thread in [t for t in _forks if t != get_ident()]:  # theirs are not this process's
        del _forks[thread]
    _do_all([held.in_child for held in reversed(_forks[get_ident()][-1])])
    _end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_let_go, after_in_child=_begin_child)
    os.register_at_fork(after_in_parent=_end)
