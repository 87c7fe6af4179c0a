"""Forked children: copies of this process, which work, are quiet, and leave without cleaning up."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

from cubepy.cache import folder

_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
_CRASHES = (
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP),
)
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


def fork(
    work: Callable[[], None], own: Collection[int] | None = None, outlives: bool = False
) -> int:
    """Work in a child, which ends when that is done, or fails, or its parent dies; its number.

    `own`: the descriptors that it keeps; None: all. `outlives`: the thread that forks it may end
    before it; then it has to find out itself whether its parent has died.
    """
    with warnings.catch_warnings():  # of Python 3.12, about threads: locks survive a fork here
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _work_and_leave(work, own, outlives)
    return pid


def _work_and_leave(work: Callable[[], None], own: Collection[int] | None, outlives: bool) -> None:
    """In the child: nothing of the parent's is run or freed."""
    status = 1
    try:
        gc.disable()
        _be_quiet()
        if own is not None:
            leave_descriptors(own)
        _get_at_end_of_parent(signal.SIGCONT if outlives else signal.SIGKILL)
        _leave_threads()
        work()
        status = 0
    except BaseException:
        status = 2
    finally:
        os._exit(status)


def _be_quiet() -> None:
    """What a candidate prints, and the last words of one that crashes, go nowhere; the child dies
    first where memory runs out."""
    _leave_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _point_nowhere((1, 2))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _leave_signals() -> None:
    """What the program handles, such as Ctrl-C, is its own concern where it comes to the child too:
    its handlers are not for two processes. A candidate that crashes dies."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the child has children
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL if number in _CRASHES else signal.SIG_IGN)


def leave_descriptors(own: Collection[int]) -> None:
    """Let go of what the program holds open, such as locks, sockets and ends of pipes, but for the
    folders of kept code. The numbers stay in use, as objects that close theirs may be left."""
    kept = {0, 1, 2, *own, *folder.descriptors()}
    with suppress(OSError):  # there is no /proc, or no descriptor to read it
        _point_nowhere({int(name) for name in os.listdir("/proc/self/fd")} - kept)


def _point_nowhere(descriptors: Iterable[int]) -> None:
    """Let descriptors, and that of the standard input, read and write nothing."""
    with suppress(OSError):  # it is closed already
        os.close(0)
    null = os.open(os.devnull, os.O_RDWR)  # the lowest number, so that it needs no other one
    for fd in descriptors:
        os.dup2(null, fd)


def outlive_thread() -> None:
    """In a child: the thread that forked it may end before it."""
    _get_at_end_of_parent(signal.SIGCONT)


def _get_at_end_of_parent(number: int) -> None:
    """Get a signal where the parent dies, or its thread that forked this process; SIGCONT lets one
    that was stopped see that."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, number, 0, 0, 0)


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
