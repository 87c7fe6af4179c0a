"""What work on arrays comes after, and what comes after it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cubepy.array.memory import Memory
from cubepy.runtimes.base import Device, Queued


class Ordered:
    """The queue of a launch or a copy, as a context: the asked one, else the first that an array's
    user works in. Other queues in which arrays are worked on wait for it, and it for them; it
    also comes after the last work on CubePy's own arrays, whichever queue that was in."""

    def __init__(self, device: Device, queue: int | None, memories: Collection[Memory]) -> None:
        told = [m.queue for m in memories if m.queue is not None]
        self._queue = queue if queue is not None or not told else told[0]
        self._others = [] if device.uses_host_memory else sorted({*told} - {self._queue})
        self._own = [m.owner for m in memories if isinstance(m.owner, Queued)]
        self._device: Any = device

    def __enter__(self) -> int | None:
        for other in self._others:
            self._device.join(self._queue, other)
        for memory in self._own:
            self._device.come_after(self._queue, memory)
        return self._queue

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for other in self._others:
            self._device.join(other, self._queue)
        if self._own:
            self._device.mark(self._queue, self._own)
