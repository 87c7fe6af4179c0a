"""Code that is made ahead of launches: compiled and kept on disk, and neither loaded nor launched.

A forked process may do so for a GPU whose driver it must not call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_ahead: ContextVar[bool] = ContextVar("cubepy_is_ahead", default=False)


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Inside the block launches of this context end where their code has been made.

    Launches that native code runs do not look; a block of `settings` keeps them in Python.
    """
    token = _is_ahead.set(True)
    try:
        yield
    finally:
        _is_ahead.reset(token)


def is_ahead() -> bool:
    """Whether code is only made."""
    return _is_ahead.get()
