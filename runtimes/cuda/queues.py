"""Streams and events of a CUDA device, and the order of work on memory."""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from cubepy.runtimes.base import Pinned, Queued
from cubepy.runtimes.cuda.contexts import Contexts
from cubepy.runtimes.cuda.driver import driver, is_usable
from cubepy.runtimes.native.launching.tables import Order

DEFAULT_STREAM = 0
"""The handle of the legacy default stream, in which other libraries work by default."""
MANY_READS = 16
"""Queues that read one memory, from which on those that are done are forgotten."""


class Handle:
    """Something of the driver's that is destroyed when it dies."""

    is_usable = staticmethod(is_usable)

    def __init__(self, held: Any, destroy: Callable[[Any], Any], contexts: Contexts) -> None:
        self.handle = int(held)
        self._held = held
        self._destroy = destroy
        self._contexts = contexts

    def __del__(self) -> None:
        if self.is_usable():
            with self._contexts.enter():
                self._destroy(self._held)


class Event:
    """An event without a time, which goes back to its context's events when it dies."""

    def __init__(self, held: Any, spare: list[Any]) -> None:
        self.handle = int(held)
        self._held = held
        self._spare = spare

    def __del__(self) -> None:
        self._spare.append(self._held)


class Mark:
    """A point in the work of a queue, behind a use of memory.

    In the device's own queue, whose handle always means the same, an event is recorded when one is
    first asked for: it is behind more then, and most marks never need one. Until then all work of
    that queue shares one mark.
    """

    def __init__(self, queues: Queues, queue: int | None) -> None:
        self.queues = queues
        self.queue = queue
        self._event: Event | None = None

    def event(self) -> Event:
        """The event behind the use."""
        with Queues.order:
            if self._event is None:
                if self.queue is None:
                    self.queues.own.close(self)
                self._event = self.queues.record(self.queue)
            return self._event

    def wait(self) -> None:
        """Wait on the host."""
        event = self.event()  # which is not used again before the wait is over
        self.queues.wait_for_event(event.handle)

    def is_done(self) -> bool:
        """Whether the work is done, as far as that is known without recording an event."""
        return self._event is not None and self.queues.is_reached(self._event.handle)


class OwnOrder:
    """The mark behind all that is in a device's own queue by now, which has no event yet.

    Native code launches there by itself on memory that has this mark: nothing is to be waited for,
    and nothing to be noted. `address`: of the words that it reads, see `launching.tables.Order`.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._words = (ctypes.c_int64 * Order.SIZE)()
        self.address = ctypes.addressof(self._words)
        self._renew()

    def _renew(self) -> None:
        self.mark = Mark(self._queues, None)
        self._words[Order.MARK] = id(self.mark)

    def close(self, mark: Mark) -> None:
        """Before an event is recorded for a mark of the queue: what native code was allowed by the
        mark is in the queue then, and it allows nothing more. `Queues.order` is held."""
        if mark is self.mark:
            self._renew()
        while self._words[Order.UNDER_WAY]:
            time.sleep(0)  # the driver waits where the queue is full


class Queues:
    """What a device offers besides its own queue; `contexts` is the device's.

    `failed` gives the error of a status that a call of the driver came back with. `order` is held
    from where work asks what it comes after until it is marked.
    """

    contexts: Contexts
    failed: Callable[[str, Any], Exception]
    order = RLock()

    def __init__(self) -> None:
        self._own: int | None = None
        self.own = OwnOrder(self)
        self._spare: dict[int, list[Any]] = defaultdict(list)

    def checked(self, call: str, result: tuple[Any, ...]) -> Any:
        """The value of a call of the driver; the device's error where it failed."""
        if result[0]:
            raise self.failed(call, result[0])
        return result[1] if len(result) > 1 else None

    def stream(self, queue: int | None) -> int:
        """The handle of a queue; that of the device's own is made at its first use.

        That stream waits for no other, and is never destroyed.
        """
        if queue is not None:
            return queue
        if self._own is None:
            with self.order, self.contexts.enter(is_own=True):
                if self._own is None:
                    self._own = int(self._new_stream())
        return self._own

    def _new_stream(self) -> Any:
        api = driver()
        created = api.cuStreamCreate(api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        return self.checked("cuStreamCreate", created)

    def new_queue(self) -> Handle:
        """A stream that waits for no other."""
        with self.contexts.enter():
            return Handle(self._new_stream(), driver().cuStreamDestroy, self.contexts)

    def new_event(self) -> Handle:
        """An event that keeps the time."""
        api = driver()
        with self.contexts.enter():
            created = api.cuEventCreate(api.CUevent_flags.CU_EVENT_DEFAULT)
            event = self.checked("cuEventCreate", created)
            return Handle(event, api.cuEventDestroy, self.contexts)

    def record_event(self, event: int, queue: int | None) -> None:
        """Mark what is in a queue by now."""
        with self.contexts.enter(queue is None):
            recorded = driver().cuEventRecord(event, self.stream(queue))
            self.checked("cuEventRecord", recorded)

    def record(self, queue: int | None) -> Event:
        """A new event behind what is in a queue by now."""
        with self.contexts.enter(queue is None) as key:
            event = self._event(key)
            recorded = driver().cuEventRecord(event.handle, self.stream(queue))
            self.checked("cuEventRecord", recorded)
            return event

    def _event(self, key: int) -> Event:
        """An event of the current context."""
        spare = self._spare[key]
        try:
            held = spare.pop()
        except IndexError:
            api = driver()
            created = api.cuEventCreate(api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
            held = self.checked("cuEventCreate", created)
        return Event(held, spare)

    def wait_event(self, queue: int | None, event: int) -> None:
        """Let a queue wait on the device."""
        with self.contexts.enter(queue is None):
            waited = driver().cuStreamWaitEvent(self.stream(queue), event, 0)
            self.checked("cuStreamWaitEvent", waited)

    def wait_for_event(self, event: int) -> None:
        """Wait on the host."""
        with self.contexts.enter():
            self.checked("waiting", driver().cuEventSynchronize(event))

    def is_reached(self, event: int) -> bool:
        """Whether an event was reached."""
        with self.contexts.enter():
            (status,) = driver().cuEventQuery(event)
            return not status

    def milliseconds(self, start: int, end: int) -> float:
        """The time between two events that were reached."""
        with self.contexts.enter():
            return self.checked("cuEventElapsedTime", driver().cuEventElapsedTime(start, end))

    # The order of work on memory

    def come_after(self, queue: int | None, memory: Queued, is_written: bool) -> None:
        """Let a queue wait for the last work on memory: before reading it for what wrote it, before
        writing it for what reads it too.

        Also if that was in a queue of the same handle, unless it is the device's own: the driver
        gives handles of streams that were destroyed to new ones, which may overtake what the old
        one still does.
        """
        marks = memory.before(is_written)
        if not is_written and (self, queue) in memory.reads:
            marks.append(memory.reads[self, queue])  # the next mark takes its place
        for mark in marks:
            if queue is not None or mark.queue is not None or mark.queues is not self:
                self.wait_event(queue, mark.event().handle)

    def mark(self, queue: int | None, uses: Mapping[Queued, bool]) -> None:
        """Note that the work just enqueued uses memory; True: it writes it."""
        if not uses:
            return
        has_event = queue is not None or any(isinstance(memory, Pinned) for memory in uses)
        mark = Mark(self, queue) if has_event else self.own.mark
        for memory, is_written in uses.items():
            if is_written:
                memory.write, memory.read, memory.reads = mark, None, {}
                continue
            memory.reads[self, queue] = mark
            if queue is None:
                memory.read = mark
            if len(memory.reads) > MANY_READS:
                memory.reads = {k: m for k, m in memory.reads.items() if not m.is_done()}
        if has_event:
            mark.event()  # native code uses the memory no more

    def join(self, queue: int | None, other: int | None) -> None:
        """Let a queue wait for all that is in another by now."""
        event = self.record(other)  # which another thread may record if it dies before the wait
        self.wait_event(queue, event.handle)
