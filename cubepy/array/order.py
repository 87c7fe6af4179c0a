"""What work on arrays comes after, and what comes after it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any

from cubepy.array.memory import HOST, Memory
from cubepy.runtimes.base import Device, Queued

_DEFAULT_STREAM = 0


class Ordered:
    """The queue of a launch or a copy, as a context: the asked one, else the first that an array's
    user works in. Other queues in which arrays are worked on wait for it, and it for them; it
    also comes after the last work on CubePy's own arrays, whichever queue that was in.

    `written`: the arrays that the work writes, default all; work that only reads an array does not
    wait for other such work.
    """

    def __init__(
        self,
        device: Device,
        queue: int | None,
        memories: Collection[Memory],
        written: Collection[Memory] | None = None,
    ) -> None:
        known = [q for q in map(_queue_of, memories) if q is not None]
        self._queue = queue if queue is not None or not known else known[0]
        self._others = [] if device.uses_host_memory else sorted({*known} - {self._queue})
        self._own: dict[Queued, bool] = {}
        for m in memories:
            if isinstance(m.owner, Queued):
                is_written = written is None or any(m is w for w in written)
                self._own[m.owner] = is_written or self._own.get(m.owner, False)
        self._device: Any = device
        self._held: Any = device.order if self._own else nullcontext()

    def __enter__(self) -> int | None:
        self._held.__enter__()
        try:
            for other in self._others:
                self._device.join(self._queue, other)
            for memory, is_written in self._own.items():
                self._device.come_after(self._queue, memory, is_written)
        except BaseException:
            self._held.__exit__(None, None, None)
            raise
        return self._queue

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            for other in self._others:
                self._device.join(other, self._queue)
            if self._own:
                self._device.mark(self._queue, self._own)
        finally:
            self._held.__exit__(None, None, None)


def _queue_of(memory: Memory) -> int | None:
    """The queue in which another library works on an array."""
    is_shared = isinstance(memory.owner, Queued) and memory.owner.is_shared
    return _DEFAULT_STREAM if is_shared and memory.device != HOST else memory.queue
