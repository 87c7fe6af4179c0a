"""Forks of a process with threads: what a thread that is lost in the child had begun.

A fork waits for imports that are under way, as nobody would finish such a module there; then it
takes the locks that must be free in the child.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import _bootstrap as bootstrap
from threading import get_ident
from typing import Any

PATIENCE = 10.0
"""Seconds after which the fork goes on: an import may itself wait for the thread that forks."""
Hook = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]
_hooks: list[Hook] = []
_begun: dict[int, list[list[Hook]]] = {}
"""The hooks that ran before the forks that each thread is in, in order."""


def at_fork(
    before: Callable[[], Any],
    after_in_parent: Callable[[], Any],
    after_in_child: Callable[[], Any],
) -> None:
    """As `os.register_at_fork`, but a fork under way does not end what another thread registers
    meanwhile, by an import, and so had not begun. The last ones registered begin first."""
    _hooks.append((before, after_in_parent, after_in_child))


def are_under_way() -> bool:
    """Whether other threads import modules, as far as Python shows who holds their locks."""
    known: Any = getattr(bootstrap, "_module_locks", {})
    owners = [getattr(held(), "owner", None) for held in list(known.values())]
    return not {None, get_ident()}.issuperset(owners)


def _wait() -> None:
    end = time.monotonic() + PATIENCE
    while are_under_way() and time.monotonic() < end:
        time.sleep(0.001)


def _before() -> None:
    begun: list[Hook] = []
    _begun.setdefault(get_ident(), []).append(begun)
    _wait()
    for hook in reversed(_hooks.copy()):
        hook[0]()
        begun.append(hook)


def _after(where: int) -> None:
    """Go back to what was before, in the order of registration."""
    thread = get_ident()
    begun = _begun[thread].pop()
    if not _begun[thread]:
        del _begun[thread]
    for hook in reversed(begun):
        hook[where]()


def _after_in_child() -> None:
    for thread in [t for t in _begun if t != get_ident()]:  # theirs are not this process's
        del _begun[thread]
    _after(2)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(1), after_in_child=_after_in_child
    )
