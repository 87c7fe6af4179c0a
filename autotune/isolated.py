"""Searches in a forked child: what hangs, crashes or takes all memory costs its time limit.

The child is a copy of this process, so it has every function, array and compiled kernel without
sending any, and whatever it writes is its own. It reports one line of JSON for each step.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.autotune.subject import Subject
from cubepy.autotune.trials import (
    CRASHED,
    LATE,
    Clock,
    Limits,
    Message,
    Report,
    Trials,
    conclude,
    examine,
)
from cubepy.jit.kernel import cube

MOST_CHILDREN = 64
"""Children of one search; each one that is lost takes a candidate with it."""
_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
GRACE = 0.03
"""The share of a budget that a child may be late before it is ended."""


def can_fork(kind: str = "cpu") -> bool:
    """Whether candidates for a kind of target may run in a forked child: those of a CPU on Linux.

    Drivers of GPUs do not work in a child of a process that has used them. A child that runs on the
    CPU alone never calls them: it collects no garbage, and leaves without cleaning up.
    """
    return kind == "cpu" and sys.platform == "linux" and hasattr(os, "fork")


def search(
    subject: Subject,
    trials: Trials,
    limits: Limits,
    clock: Clock = time.perf_counter,
    watch: Callable[[Trials], None] = lambda trials: None,
) -> None:
    """Fill `trials` by children, one after the other, until one reaches the end.

    `watch` is called for each message. Nothing is raised for what candidates do.
    """
    for _ in range(MOST_CHILDREN):
        if trials.outcome is not None:
            return
        if clock() >= limits.deadline:
            break
        child = _Child(lambda report: examine(subject, trials, limits, report, clock), trials)
        try:
            for message in child.messages(trials, limits, subject.reference, clock):
                trials.apply(message)
                watch(trials)
        finally:
            status, detail = child.end()
        if trials.outcome is None and not child.is_last:
            status = LATE if child.is_late else status
            detail = f"no answer within {limits.each_s:.3g} s" if child.is_late else detail
            trials.lost(status, detail, subject.reference)
    if trials.outcome is None:
        conclude(trials, subject.reference)


@cube
def _touch(out: Any):
    out.flat[0] = 1


@lru_cache(maxsize=1)
def warm() -> None:
    """Load the compiler and native launches in this process, so that no child has to."""
    for _ in range(3):
        _touch[1, 1](np.zeros(1, np.float32))


class _Child:
    """A forked process that reports by a pipe."""

    def __init__(self, work: Callable[[Report], None], trials: Trials) -> None:
        self.is_late = self.is_last = False
        self._buffer = b""
        self._pipe, write = os.pipe()
        with warnings.catch_warnings():  # of Python 3.12, about threads: locks survive a fork here
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            _work_and_leave(work, trials, write)
        os.close(write)

    def messages(
        self, trials: Trials, limits: Limits, reference: int, clock: Clock
    ) -> Iterator[Message]:
        """What the child reports, until it ends, says "end", or is late. The reference may take
        what is left of the budget: it is what would run without a search."""
        latest = limits.deadline + GRACE * (limits.deadline - limits.started)
        quiet = clock()
        while True:
            is_reference = trials.doing in (None, reference)
            rest = (latest if is_reference else min(latest, quiet + limits.each_s)) - clock()
            if rest <= 0 or not select.select([self._pipe], [], [], rest)[0]:
                self.is_late, self.is_last = True, clock() >= latest
                return
            data = os.read(self._pipe, 1 << 16)
            if not data:
                return
            quiet = clock()
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                yield message
                if message["do"] == "end":
                    return

    def end(self) -> tuple[str, str]:
        """End the child if it has not ended; how it did."""
        os.close(self._pipe)
        if self.is_late:
            _kill(self._pid)
        found = _wait(self._pid)
        if os.WIFSIGNALED(found):
            number = os.WTERMSIG(found)
            with suppress(ValueError):
                return CRASHED, f"the process died of {signal.Signals(number).name}"
            return CRASHED, f"the process died of signal {number}"
        return CRASHED, f"the process ended with status {os.WEXITSTATUS(found)}"


def _wait(pid: int) -> int:
    """The status of a child, which gets a second to leave."""
    for _ in range(1000):
        done, found = os.waitpid(pid, os.WNOHANG)
        if done:
            return found
        time.sleep(0.001)
    _kill(pid)
    return os.waitpid(pid, 0)[1]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _work_and_leave(work: Callable[[Report], None], trials: Trials, pipe: int) -> None:
    """In the child: work, and leave without running anything of the parent's."""
    status = 1
    try:
        gc.disable()
        _be_quiet()

        def report(message: Message) -> None:
            trials.apply(message)
            os.write(pipe, json.dumps(message).encode() + b"\n")

        work(report)
        status = 0
    except BaseException:
        status = 2
    finally:
        os._exit(status)


def _be_quiet() -> None:
    """What a candidate prints, and the last words of one that crashes, go nowhere; the child dies
    with its parent, first where memory runs out, and of Ctrl-C as its parent says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
