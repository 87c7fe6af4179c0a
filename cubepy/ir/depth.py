"""Room for recursion: the frontend, passes and compilers walk nested code by recursion."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import RLock, get_ident

from cubepy.errors import fail

_PYTHON_FRAMES = 20_000
"""Room for the deepest chain of inlined calls; each takes some dozens of Python's frames."""
_lock = RLock()
_tracing: dict[int, int] = {}
"""How many of these blocks each thread is in."""
_shallow = 0


@contextmanager
def deep_calls() -> Generator[None]:
    """Raise Python's recursion limit while any thread traces or compiles.

    `CompileError` E122 where even that is not enough.
    """
    global _shallow
    thread = get_ident()
    with _lock:
        if not _tracing:
            _shallow = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_shallow, _PYTHON_FRAMES))
        _tracing[thread] = _tracing.get(thread, 0) + 1
    try:
        yield
    except RecursionError:
        raise fail("E122") from None
    finally:
        with _lock:
            _tracing[thread] -= 1
            if not _tracing[thread]:
                del _tracing[thread]
            if not _tracing:
                sys.setrecursionlimit(_shallow)


def _after_fork() -> None:
    """The child has only this thread; the others' are lost."""
    global _lock
    _lock = RLock()
    others = [thread for thread in _tracing if thread != get_ident()]
    for thread in others:
        del _tracing[thread]
    if others and not _tracing:
        sys.setrecursionlimit(_shallow)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
