"""Streams and events of a CUDA device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.runtimes.base import Pinned, Queued
from cubepy.runtimes.cuda.driver import check, driver


class Handle:
    """Something of the driver's that is destroyed when it dies."""

    def __init__(self, held: Any, destroy: Callable[[Any], Any], contexts: Any) -> None:
        self.handle = int(held)
        self._held = held
        self._destroy = destroy
        self._contexts = contexts

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._contexts.enter()
            self._destroy(self._held)


class Queues:
    """What a device offers besides its own queue; `contexts` is the device's.

    `failed` tells what a status means that waiting or copying came back with.
    """

    contexts: Any
    failed: Callable[[str, Any], Exception]

    def new_queue(self) -> Handle:
        """A stream that waits for no other."""
        api = driver()
        self.contexts.enter()
        flag = api.CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = check("cuStreamCreate", api.cuStreamCreate(flag))
        return Handle(stream, api.cuStreamDestroy, self.contexts)

    def new_event(self) -> Handle:
        """An event that keeps the time."""
        api = driver()
        self.contexts.enter()
        event = check("cuEventCreate", api.cuEventCreate(api.CUevent_flags.CU_EVENT_DEFAULT))
        return Handle(event, api.cuEventDestroy, self.contexts)

    def record_event(self, event: int, queue: int | None) -> None:
        """Mark what is in a queue by now."""
        self.contexts.enter()
        check("cuEventRecord", driver().cuEventRecord(event, queue or 0))

    def wait_event(self, queue: int | None, event: int) -> None:
        """Let a queue wait on the device."""
        self.contexts.enter()
        check("cuStreamWaitEvent", driver().cuStreamWaitEvent(queue or 0, event, 0))

    def wait_for_event(self, event: int) -> None:
        """Wait on the host."""
        self.contexts.enter()
        (status,) = driver().cuEventSynchronize(event)
        if status:
            raise self.failed("waiting", status)

    def milliseconds(self, start: int, end: int) -> float:
        """The time between two events that were reached."""
        return check("cuEventElapsedTime", driver().cuEventElapsedTime(start, end))

    def come_after(self, queue: int | None, memory: Queued) -> None:
        """Let a queue wait for the last work on memory.

        Also if that was in a queue of the same handle: the driver gives handles of streams that
        were destroyed to new ones, which may overtake what the old one still does.
        """
        if memory.used is not None:
            self.wait_event(queue, memory.used.handle)
        elif queue and not isinstance(memory, Pinned):
            self.join(queue, None)

    def mark(self, queue: int | None, memories: Sequence[Queued]) -> None:
        """Say that the work just enqueued is on these; an event outlives a stream."""
        event = None
        if memories and (queue or any(isinstance(memory, Pinned) for memory in memories)):
            event = self.new_event()
            self.record_event(event.handle, queue)
        for memory in memories:
            memory.used, memory.used_on = event, self

    def join(self, queue: int | None, other: int | None) -> None:
        """Let a queue wait for all that is in another by now."""
        event = self.new_event()
        self.record_event(event.handle, other)
        self.wait_event(queue, event.handle)
