"""Forked children: copies of this process, which work, are quiet, and leave without cleaning up."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
UNSEEN = -1
"""The status of a child for which somebody else waited."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals wait for the end of the block, so that Ctrl-C loses no child that was just made."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def fork(work: Callable[[], None]) -> int:
    """Work in a child, which ends when that is done, or fails, or its parent dies; its number."""
    with warnings.catch_warnings():  # of Python 3.12, about threads: locks survive a fork here
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _work_and_leave(work)
    return pid


def _work_and_leave(work: Callable[[], None]) -> None:
    """In the child: nothing of the parent's is run or freed."""
    status = 1
    try:
        gc.disable()
        _be_quiet()
        _leave_threads()
        work()
        status = 0
    except BaseException:
        status = 2
    finally:
        os._exit(status)


def _be_quiet() -> None:
    """What a candidate prints, and the last words of one that crashes, go nowhere; the child dies
    with its parent, first where memory runs out, and of Ctrl-C as its parent says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _leave_threads() -> None:
    """torch would wait for threads that are not here (GNU's OpenMP is not made for forks)."""
    torch = sys.modules.get("torch")
    if torch is not None:
        with suppress(AttributeError):  # it is being imported
            torch.set_num_threads(1)


def ended(pid: int, wait: bool = False) -> int | None:
    """The status of a child that has ended; None while it runs. `wait`: until it has.

    The program may have waited for it, by `os.wait()`, or let the system do so, where it ignores
    SIGCHLD. Then it has ended too: `UNSEEN`.
    """
    try:
        done, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
    except ChildProcessError:
        return UNSEEN
    return status if done else None


def wait(pid: int) -> int:
    """The status of a child, which gets a second to leave."""
    for _ in range(1000):
        status = ended(pid)
        if status is not None:
            return status
        time.sleep(0.001)
    kill(pid)
    status = ended(pid, True)
    assert status is not None
    return status


def kill(pid: int) -> None:
    """End a child, if it has not ended."""
    send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    """Send a signal to a child, if there is one: after the program waited for it, its number may be
    that of a stranger."""
    with suppress(ChildProcessError, ProcessLookupError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(pid, number)


def how_it_ended(status: int) -> str:
    """A status of a child for people."""
    if status == UNSEEN:
        return "the process ended"
    if not os.WIFSIGNALED(status):
        return f"the process ended with status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    with suppress(ValueError):
        return f"the process died of {signal.Signals(number).name}"
    return f"the process died of signal {number}"
