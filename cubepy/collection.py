"""Python's garbage collector pauses while much is made that stays: modules, traces and code.

It would look through the objects of the whole process again and again. Where modules were loaded in
a block, nor does it look through what was made there at its end, which takes 10 ms for what a first
call loads: that counts as old, as what a program keeps.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import RLock, get_ident

_lock = RLock()
_pausing: dict[int, int] = {}
"""How many blocks each thread is in."""
_was_on = False
_loaded = 0
"""How many modules there were when the first block began."""


@contextmanager
def paused_collection() -> Generator[None]:
    """Collect no garbage while any thread is in such a block; cycles wait for its end.

    Ctrl-C comes behind calls and where functions begin: what belongs together has none between.
    """
    global _was_on, _loaded
    thread, is_counted = get_ident(), False
    try:
        with _lock:
            if not _pausing:
                _was_on, _loaded = gc.isenabled(), len(sys.modules)
            _pausing[thread] = _pausing.get(thread, 0) + 1
            is_counted = True
            gc.disable()
        yield
    finally:
        if is_counted:
            with _lock:
                _pausing[thread] -= 1
                if not _pausing[thread]:
                    del _pausing[thread]
                if not _pausing and _was_on:
                    if len(sys.modules) > _loaded:
                        _make_old()
                    gc.enable()


def _make_old() -> None:
    """Put all objects into the oldest generation, unless the program has frozen some of its own."""
    if hasattr(gc, "freeze") and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


def _after_fork() -> None:
    """The child has only this thread; the others' blocks will not end."""
    global _lock
    _lock = RLock()
    others = [thread for thread in _pausing if thread != get_ident()]
    for thread in others:
        del _pausing[thread]
    if others and not _pausing and _was_on:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
