"""Processes that compile candidates at the same time, ahead of their first runs.

They are forked from the process that searches, and keep their code in the disk cache, where the
search finds it. They never call a driver: they launch nothing and load nothing. Processes, not
threads: tracing and passes hold the GIL, which is half of the time of a compile.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from math import inf

from cubepy.autotune import children
from cubepy.config import get
from cubepy.record import dataclass

SILENCE_S = 3.0
"""Workers that say nothing for so long from the beginning on never will."""
MOST_TASKS = 4096
"""More would not fit into a pipe; the rest is compiled by who runs it."""
BEHIND = 10
"""The priority of processes behind which others go first, where they cannot be given what nobody
else wants of the processors."""
_TASK, _ANSWER = struct.Struct("<i"), struct.Struct("<iid")
_NEVER = -1.0
_BEGUN, _DONE = 0, 1


@dataclass(frozen=True, slots=True)
class Ready:
    """A candidate that can be run without waiting for its code. `failure`: "" if it may be run,
    else how the process that compiled it ended; `is_late`: it was ended for its time; `is_made`: a
    process compiled it; `seconds`: what the model predicts."""

    k: int
    failure: str = ""
    is_late: bool = False
    is_made: bool = False
    seconds: float | None = None


def cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Two pipes, or none."""
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for fd in first:
            os.close(fd)
        raise


def can_compile_ahead() -> bool:
    """Whether code reaches this process from others: by a fork, and by the disk cache."""
    return sys.platform == "linux" and bool(get("cache"))


class Ahead:
    """Compiles candidates in the order given, until it is closed. A context.

    `compile_one` compiles a candidate, keeps its code, and predicts its time; `limit_s`: the
    longest that it may take.
    """

    def __init__(
        self,
        compile_one: Callable[[int], float | None],
        order: Sequence[int],
        limit_s: float,
        clock: Callable[[], float],
        workers: int,
    ) -> None:
        self._compile: Callable[[int], float | None] | None = compile_one
        self._limit, self._clock = limit_s, clock
        self._open = set(order[:MOST_TASKS])
        self._count = min(workers, len(self._open))
        self._tasks, self._answers = _pipes()
        os.write(self._tasks[1], b"".join(_TASK.pack(k) for k in order[:MOST_TASKS]))
        self._doing: dict[int, tuple[int, float] | None] = {}
        """What each worker compiles, and since when."""
        self._ready: dict[int, Ready] = {}
        self._buffer = b""
        self._began, self._heard = clock(), False
        self._is_open = True

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What it holds open."""
        return *self._tasks, *self._answers

    def __enter__(self) -> Ahead:
        for _ in range(self._count):
            self._fork()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        if not self._is_open:
            return
        self._is_open = False
        self._end_all()
        for fd in self.descriptors:
            os.close(fd)

    def pause(self) -> None:
        """Stop all processes for a while, in which others measure."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the processes go on, on processors that are idle. Those that end are not replaced any
        more: the arguments, which a new one would need, are nobody's concern."""
        self._compile = None
        for pid, task in self._doing.items():
            if task is not None:  # it has had no time since they were stopped
                self._doing[pid] = task[0], self._clock()
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, BEHIND)
                os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._doing:
            children.send(pid, number)

    def _end_all(self) -> None:
        for pid in self._doing:
            children.kill(pid)
        for pid in self._doing:
            children.ended(pid, True)
        self._doing = {}

    def next(self, wanted: Sequence[int], until: float) -> Ready | None:
        """Of those that are wanted and ready, the fastest by the model, else the first; waits for
        one, but not longer than `until`. Where nobody compiles any of them, the first is to be
        compiled by who asks."""
        while True:
            self._read(0.0)
            ready = [self._ready[k] for k in wanted if k in self._ready]
            if ready:
                found = min(ready, key=lambda r: inf if r.seconds is None else r.seconds)
                self._open.discard(found.k)
                return self._ready.pop(found.k)
            if not self._doing or self._open.isdisjoint(wanted):
                return Ready(wanted[0])
            rest = until - self._clock()
            if rest <= 0:
                return None
            self._end_late()
            if not self._heard and self._clock() - self._began > SILENCE_S:
                self._end_all()  # a lock that another thread held when they were forked
            self._read(min(rest, 0.05))
            self._replace_dead(wanted)

    def prediction(self, k: int) -> float | None:
        """What the model predicts for a candidate, if it is known by now."""
        self._read(0.0)
        return self._ready[k].seconds if k in self._ready else None

    def _fork(self) -> None:
        if self._compile is None:
            return
        # Where no process is to be had, the others do, or the search itself.
        own = self._tasks[0], self._answers[1]
        outlives = threading.current_thread() is not threading.main_thread()
        with children.uninterrupted(), suppress(OSError):
            self._doing[children.fork(self._work, own, outlives)] = None

    def _work(self) -> None:
        """In a worker: take a task, compile it, until there is none. Where the parent has died,
        there is nobody to tell, which ends it too."""
        pid, compile_one = os.getpid(), self._compile
        assert compile_one is not None
        while task := os.read(self._tasks[0], _TASK.size):
            (k,) = _TASK.unpack(task)
            self._answer(pid, k, _BEGUN)
            found = None
            with suppress(Exception):  # whoever runs it meets the same error
                found = compile_one(k)
            self._answer(pid, k, _DONE, _NEVER if found is None else found)

    def _answer(self, pid: int, k: int, what: int, seconds: float = _NEVER) -> None:
        os.write(self._answers[1], _ANSWER.pack(pid, k << 1 | what, seconds))

    def _read(self, seconds: float) -> None:
        """Take in what workers say."""
        if not select.select([self._answers[0]], [], [], seconds)[0]:
            return
        self._heard = True
        data = self._buffer + os.read(self._answers[0], 1 << 16)
        whole = len(data) - len(data) % _ANSWER.size
        self._buffer = data[whole:]
        for pid, said, seconds in _ANSWER.iter_unpack(data[:whole]):
            k = said >> 1
            if said & 1 == _DONE:
                self._ready[k] = Ready(k, is_made=True, seconds=None if seconds < 0 else seconds)
            if pid in self._doing:
                self._doing[pid] = None if said & 1 == _DONE else (k, self._clock())

    def _end_late(self) -> None:
        """End workers that take too long."""
        for pid, task in list(self._doing.items()):
            if task is not None and self._clock() - task[1] > self._limit:
                children.kill(pid)
                text = f"not compiled within {self._limit:.3g} s"
                self._ready[task[0]] = Ready(task[0], text, True)
                self._doing[pid] = None
                self._replace(pid)

    def _replace_dead(self, wanted: Collection[int]) -> None:
        """A worker that died takes its candidate with it."""
        for pid, task in list(self._doing.items()):
            status = children.ended(pid)
            if status is None:
                continue
            del self._doing[pid]
            if task is not None and task[0] in wanted:
                self._ready[task[0]] = Ready(task[0], children.how_it_ended(status))
            self._fork()

    def _replace(self, pid: int) -> None:
        children.wait(pid)
        del self._doing[pid]
        self._fork()
