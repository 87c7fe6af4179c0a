"""Forks wait for imports that are under way: in the child a thread that is lost would never finish
its module, and whoever needs that there would wait for ever."""

from __future__ import annotations

import os
import time
from importlib import _bootstrap as bootstrap
from threading import get_ident
from typing import Any

PATIENCE = 10.0
"""Seconds after which the fork goes on: an import may itself wait for the thread that forks."""


def are_under_way() -> bool:
    """Whether other threads import modules, as far as Python shows who holds their locks."""
    known: Any = getattr(bootstrap, "_module_locks", {})
    owners = [getattr(held(), "owner", None) for held in list(known.values())]
    return not {None, get_ident()}.issuperset(owners)


def _wait() -> None:
    end = time.monotonic() + PATIENCE
    while are_under_way() and time.monotonic() < end:
        time.sleep(0.001)


def wait_for_imports() -> None:
    """Let all forks of this process wait; called once."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_wait)
