"""Searches in a forked child: what hangs, crashes or takes all memory costs its time limit.

The child is a copy of this process, so it has every function, array and compiled kernel without
sending any, and whatever it writes is its own. It reports one line of JSON for each step.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.autotune import children
from cubepy.autotune.ahead import Ahead, Ready
from cubepy.autotune.behind import LONGEST_S
from cubepy.autotune.search import LATE_REFERENCE, Later, conclude, examine
from cubepy.autotune.subject import Subject
from cubepy.autotune.trials import (
    CRASHED,
    LATE,
    UNTRIED,
    Clock,
    Limits,
    Message,
    Report,
    Trials,
)
from cubepy.jit.kernel import cube

MOST_CHILDREN = 64
"""Children of one search; each one that is lost takes a candidate with it."""
GRACE = 0.03
"""The share of a budget that a child may be late before it is ended."""
GLANCE_S = 0.1
"""How often who waits looks whether the process ends, or has."""


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
    later: Later | None = None,
) -> None:
    """Fill `trials` by children, one after the other, until one reaches the end.

    `watch` is called for each message; `later` takes over a child that compiles on, as the limits
    ask for. Nothing is raised for what candidates do, nor where no process is to be had.
    """
    why = LATE_REFERENCE
    for _ in range(MOST_CHILDREN):
        if trials.outcome is not None:
            return
        if clock() >= limits.deadline:
            break
        child = _Child()
        try:
            child.start(
                lambda report, own: _examine(subject, trials, limits, report, own, clock), trials
            )
            for message in child.messages(trials, limits, subject.reference, clock):
                trials.apply(message)
                watch(trials)
            left = [k for k, known in enumerate(trials.status) if known == UNTRIED]
            if trials.outcome is not None and left and later and limits.first_share is not None:
                later(child, left)
                return
            status, detail = child.end()
        except NoProcess as error:
            child.close()
            why = str(error)
            break
        except BaseException:  # Ctrl-C waits for nobody
            child.close()
            raise
        if trials.outcome is None and not child.is_last:
            status = LATE if child.is_late else status
            detail = f"no answer within {limits.each_s:.3g} s" if child.is_late else detail
            trials.lost(status, detail, subject.reference)
    if trials.outcome is None:
        conclude(trials, subject.reference, why=why)


def _examine(
    subject: Subject, trials: Trials, limits: Limits, report: Report, own: int, clock: Clock
) -> None:
    """In the child, with a descriptor of its `own`: search; then compile what is left, and say what
    is there."""
    parent = os.getppid()

    def report_at_end(message: Message) -> None:
        if message["do"] == "end":  # nothing more runs here, and whoever called goes on
            children.outlive_thread()
        report(message)

    def go_on(ahead: Ahead, left: Sequence[int]) -> None:
        children.leave_descriptors((own, *ahead.descriptors))
        rest, until = list(left), clock() + LONGEST_S
        while rest and clock() < until and os.getppid() == parent:
            ready = ahead.next(rest, min(until, clock() + GLANCE_S))
            if ready is None:
                continue
            rest.remove(ready.k)
            if ready.is_made:
                report({"do": "made", "k": ready.k})
        ahead.close()

    examine(subject, trials, limits, report_at_end, clock, later=go_on)


@cube
def _touch(out: Any):
    out.flat[0] = 1


@lru_cache(maxsize=1)
def warm() -> None:
    """Load the compiler and native launches in this process, so that no child has to."""
    for _ in range(3):
        _touch[1, 1](np.zeros(1, np.float32))


Work = Callable[[Report, int], None]
"""Takes what reports, and the descriptor that it writes to."""


class NoProcess(Exception):
    """The system has no process or no descriptor for a child."""


class _Child:
    """A forked process that reports by a pipe."""

    def __init__(self) -> None:
        self.is_late = self.is_last = False
        self._buffer, self._lines = b"", list[bytes]()
        self._pipe = self._pid = -1

    def start(self, work: Work, trials: Trials) -> None:
        """Let it work, and report to here; `NoProcess` where there is none."""
        try:
            self._start(work, trials)
        except OSError as error:
            raise NoProcess(f"no process is to be had ({error})") from None

    def _start(self, work: Work, trials: Trials) -> None:
        with children.uninterrupted():
            self._pipe, write = os.pipe()

            def report(message: Message) -> None:
                trials.apply(message)
                os.write(write, json.dumps(message).encode() + b"\n")

            try:
                self._pid = children.fork(lambda: work(report, write))
            finally:
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
            until = latest if is_reference else min(latest, quiet + limits.each_s)
            message = self._message(until, clock)
            if message is None:
                self.is_last = self.is_late and clock() >= latest
                return
            quiet = clock()
            yield message
            if message["do"] == "end":
                return

    def _message(self, until: float, clock: Clock) -> Message | None:
        """The next message; None where none comes in time (then it is late), or ever."""
        while not self._lines:
            rest = until - clock()
            if rest <= 0:
                self.is_late = True
                return None
            if not select.select([self._pipe], [], [], min(rest, GLANCE_S))[0]:
                continue
            data = os.read(self._pipe, 1 << 16)
            if not data:
                return None
            *self._lines, self._buffer = (self._buffer + data).split(b"\n")
        return json.loads(self._lines.pop(0))

    def next(self, wanted: Sequence[int], until: float) -> Ready | None:
        """The next of those that are wanted whose code is on disk; None where there is none."""
        while (message := self._message(until, time.perf_counter)) is not None:
            if message["do"] == "made" and message["k"] in wanted:
                return Ready(message["k"], is_made=True)
        return None

    def close(self) -> None:
        """End the child, whatever it does."""
        self.is_late = True
        if self._pid > 0:
            self.end()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def end(self) -> tuple[str, str]:
        """End the child if it has not ended; how it did."""
        if self.is_late:
            children.kill(self._pid)
        with children.uninterrupted():
            status = children.wait(self._pid)
            self._pid = -1
            os.close(self._pipe)
            self._pipe = -1
        return CRASHED, children.how_it_ended(status)
