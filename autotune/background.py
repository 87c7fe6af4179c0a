"""Searches in threads of their own, which end before the process does: it must not be taken down
while one of them compiles or runs a candidate."""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
from collections.abc import Callable
from contextvars import copy_context

from cubepy.autotune import session

LONGEST_S = 10.0
"""How long the end of the process waits for a candidate that does not end."""


class Ended(BaseException):
    """The process is about to end."""


_ending = threading.Event()
_threads: set[threading.Thread] = set()


def clock() -> float:
    """`time.perf_counter` for what runs in such a thread: `Ended` where the process is about to
    end, so that the search does so after the candidate under way."""
    if _ending.is_set():
        raise Ended
    return time.perf_counter()


def start(work: Callable[[], None]) -> None:
    """Do work in a thread, in this context; warn where there is none. Nothing is begun where the
    process is about to end."""
    if _ending.is_set():
        return
    thread = threading.Thread(target=copy_context().run, args=(_do, work), daemon=True)
    _threads.add(thread)
    try:
        thread.start()
    except RuntimeError as error:
        _threads.discard(thread)
        session.note_change()  # so that the next call begins anew
        text = f"nothing is tuned in the background: no thread is to be had ({error})"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _do(work: Callable[[], None]) -> None:
    try:
        work()
    except Ended:
        pass
    finally:
        _threads.discard(threading.current_thread())


@atexit.register
def end_all() -> None:
    """Let all searches end, and wait for them."""
    _ending.set()
    for thread in list(_threads):
        thread.join(LONGEST_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.clear)
