"""Orders of work on a device: `Stream` and `Event`."""

from __future__ import annotations

from operator import index
from typing import Any

from cubepy.array.placement import placed
from cubepy.errors import fail


def with_queues(device: Any) -> Any:
    """The device, if it has queues beside its own; else `UnsupportedError` E310."""
    found = placed(device)
    check_queues(found)
    return found


def check_queues(device: Any) -> None:
    """E310 unless a device has queues beside its own."""
    if not hasattr(device, "new_queue"):
        reason = "its launches return when they are done, or share one queue"
        raise fail("E310", op="Stream", target=device.name, reason=reason, suggestion="")


class Stream:
    """An order of work on a GPU of NVIDIA; two streams may run at once.

    `device`: its name; `handle`: the driver's CUstream as an integer.
    """

    def __init__(self, device: Any = None) -> None:
        found = with_queues(device)
        self.device: str = found.name
        self._device = found
        self._held = found.new_queue()
        self.handle: int = self._held.handle

    def synchronize(self) -> None:
        """Wait for all work in the stream."""
        self._device.synchronize(self.handle)

    def wait(self, event: Event) -> None:
        """Let later work in the stream begin after an event."""
        self._device.wait_event(self.handle, event.handle)


class Event:
    """A point in a stream's work, and the time when it was reached."""

    def __init__(self, device: Any = None) -> None:
        found = with_queues(device)
        self.device: str = found.name
        self._device = found
        self._held = found.new_event()
        self.handle: int = self._held.handle

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of what is in a stream by now; default: the device's own queue."""
        self._device.record_event(self.handle, stream.handle if stream is not None else None)

    def synchronize(self) -> None:
        """Wait until the point is reached."""
        self._device.wait_for_event(self.handle)

    def elapsed(self, start: Event) -> float:
        """Milliseconds on the device from another event to this one; both must be reached."""
        return self._device.milliseconds(start.handle, self.handle)


def queue_of(stream: Any) -> int:
    """The handle of a stream: CubePy's, torch's, CuPy's, Numba's, PyCUDA's, or an integer.

    E420 for what is none.
    """
    for name in ("handle", "cuda_stream", "ptr"):
        found = getattr(stream, name, None)
        if found is not None:
            return int(getattr(found, "value", found) or 0)  # ctypes has None for 0
    if hasattr(stream, "__index__") and not isinstance(stream, bool):
        return index(stream)
    reason = "it is a cp.Stream, one of torch, CuPy, Numba or PyCUDA, or a handle"
    raise fail("E420", name="stream", value=stream, reason=reason)
