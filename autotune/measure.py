"""Timing launches: on the device's own clock where it has one, by this process's where not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from cubepy.array.creation import asarray
from cubepy.array.graphs import is_recording
from cubepy.array.memory import HOST
from cubepy.array.placement import synchronize
from cubepy.array.streams import Event
from cubepy.runtimes.registry import find_device

Clock = Callable[[], float]
FLUSH_BYTES = 256 << 20


def can_tune(device: Any) -> bool:
    """Whether times on a device say how fast it is: not on an interpreter."""
    return device.target.kind in ("cpu", "cuda", "opencl")


def is_capturing(kind: str) -> bool:
    """Whether a graph is recorded, CubePy's or torch's: nothing is measured or waited for there."""
    if is_recording():
        return True
    torch = sys.modules.get("torch") if kind == "cuda" else None
    return torch is not None and torch.cuda.is_current_stream_capturing()


class Timer:
    """Times launches on a device; `by_torch`: they are in the order of torch's stream."""

    def __init__(self, device: str, by_torch: bool, clock: Clock = time.perf_counter) -> None:
        self._device, self._by_torch, self._clock = device, by_torch, clock
        self._has_events = hasattr(find_device(device), "new_event")
        self._graphs: dict[tuple[Any, int], Any] = {}

    def wait(self) -> None:
        """Until everything that was launched is done."""
        if self._device == HOST:
            return
        if self._by_torch:
            sys.modules["torch"].cuda.synchronize()
        synchronize(self._device)

    def flush(self) -> None:
        """Write more than caches hold, so that what is timed next finds nothing there."""
        if self._device == HOST:
            np.ones(FLUSH_BYTES // 8).sum()
        elif self._by_torch:
            torch = sys.modules["torch"]
            torch.ones(FLUSH_BYTES // 4, device=self._device).sum()
        else:
            whole = asarray(np.zeros(FLUSH_BYTES, np.uint8), device=self._device)
            whole.copy()
        self.wait()

    def seconds(self, launch: Callable[[], Any], count: int, name: Any = None) -> float:
        """The time of `count` launches, one after the other. Where work is queued one more goes
        before them, so that the first that is timed finds a device that is awake.

        `name`: what identifies launches that do nothing but launch: torch replays them from a
        graph, so that the time of short ones is not that of the processor.
        """
        if not self._has_events:
            return self._by_clock(launch, count)
        replay = self._graph(launch, count, name) if self._by_torch and count > 1 else None
        launch()
        start, end = self._event(), self._event()
        start.record()
        for _ in range(count if replay is None else 0):
            launch()
        if replay is not None:
            replay()
        end.record()
        end.synchronize()
        return (start.elapsed_time(end) if self._by_torch else end.elapsed(start)) / 1e3

    def _by_clock(self, launch: Callable[[], Any], count: int) -> float:
        """The time by the processor's clock. OpenCL has times of queues that are made for them, in
        which every launch takes longer."""
        if self._device != HOST:
            launch()
            self.wait()
        began = self._clock()
        for _ in range(count):
            launch()
        self.wait()
        return self._clock() - began

    def _graph(self, launch: Callable[[], Any], count: int, name: Any) -> Any:
        """What replays the launches; None where they are not named."""
        if name is None:
            return None
        if (name, count) not in self._graphs:
            graph = None
            with suppress(RuntimeError):  # of what cannot be captured
                graph = _captured(launch, count)
            self._graphs[name, count] = graph
        graph = self._graphs[name, count]
        return None if graph is None else graph.replay

    def _event(self) -> Any:
        if self._by_torch:
            return sys.modules["torch"].cuda.Event(enable_timing=True)
        return Event(self._device)


def _captured(launch: Callable[[], Any], count: int) -> Any:
    """torch's graph of launches whose code is loaded. Without `torch.cuda.graph`, which collects
    garbage first: that takes longer than a sample."""
    cuda = sys.modules["torch"].cuda
    stream, graph = cuda.Stream(), cuda.CUDAGraph()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(count):
                launch()
        finally:
            graph.capture_end()
    cuda.current_stream().wait_stream(stream)
    return graph
