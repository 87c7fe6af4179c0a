"""Jobs that each compile something: while one is in LLVM or NVRTC, a thread does the others.

Python runs in one thread at a time, and those libraries let go of it. A job that must not be left
in the middle is done by a thread of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from threading import Thread, current_thread, main_thread
from typing import Generic, TypeVar

from cubepy.scoped import Scoped

T = TypeVar("T")
TURN = 0.0002
"""Seconds after which a thread hands Python to one that waits for it, while two compile."""
_waiting: Scoped[Callable[[], None]] = Scoped("cubepy_meanwhile")
_helping: Scoped[bool] = Scoped("cubepy_helping")


def is_helping() -> bool:
    """Whether this thread does jobs for another, which may be in a block of its own."""
    return _helping.get() is True


def note_compilation() -> None:
    """What a compiler calls before it leaves Python: jobs that wait for that begin."""
    begin = _waiting.get()
    if begin is not None:
        begin()


def uninterrupted(job: Callable[[], T]) -> T:
    """The result of a job that no handler of a signal leaves in the middle: what Ctrl-C raises
    between two calls of a library could free what it has made in the wrong order.

    Handlers run in the main thread alone. There the job is done by another one, which ends it also
    where what a handler raises ends the wait for it.
    """
    if current_thread() is not main_thread():
        return job()
    rest = _Rest([job])
    rest.begin()
    rest.wait()
    return rest.results()[0]


def all_done(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all jobs, in order; raises what one of them raises when all have ended.

    The last is done first, in this thread, and from its first compilation on the others in one of
    their own, in a copy of this context. Where nothing is compiled there is no thread.
    """
    *others, last = jobs
    if not others:
        return [last()]
    rest = _Rest(others)
    with quick_turns():
        try:
            with _waiting.holding(rest.begin):
                found = last()
        finally:
            rest.wait()
    return [*rest.results(), found]


@contextmanager
def quick_turns() -> Generator[None]:
    """A block in which threads take turns soon.

    One that compiles is back from LLVM some 20 times, for moments, and would wait 5 ms each time
    while another traces. The interval is the process's: what others set meanwhile stays.
    """
    before = sys.getswitchinterval()
    try:
        if before > TURN:
            sys.setswitchinterval(TURN)
        yield
    finally:
        if before > TURN and abs(sys.getswitchinterval() - TURN) < TURN / 2:
            sys.setswitchinterval(before)


class _Rest(Generic[T]):
    """Jobs that a thread does once `begin` is called, or `results` does where it never was."""

    def __init__(self, jobs: Sequence[Callable[[], T]]) -> None:
        self._jobs = jobs
        self._thread: Thread | None = None
        self._found: list[T] = []
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Start the thread, unless it was started or none is to be had."""
        if self._thread is None:
            thread = Thread(target=copy_context().run, args=(self._do,), name="cubepy-compile")
            try:
                thread.start()
            except RuntimeError:
                if thread.ident is None:  # none is to be had; else a handler of a signal raised it
                    return
                raise
            self._thread = thread

    def _do(self) -> None:
        try:
            with _helping.holding(True):
                self._found = all_done(self._jobs)
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Until the thread, if there is one, has ended."""
        if self._thread is not None:
            self._thread.join()

    def results(self) -> list[T]:
        """What the jobs gave; raises what one of them raised."""
        if self._thread is None:
            return all_done(self._jobs)
        if self._error is not None:
            raise self._error
        return self._found
