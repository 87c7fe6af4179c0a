"""Timing launches: on the device's own clock where it has one, by this process's where not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from cubepy.array.memory import HOST
from cubepy.array.placement import synchronize
from cubepy.array.streams import Event

Clock = Callable[[], float]


class Timer:
    """Times launches on a device; `by_torch`: they are in the order of torch's stream."""

    def __init__(self, device: str, by_torch: bool, clock: Clock = time.perf_counter) -> None:
        self._device, self._by_torch, self._clock = device, by_torch, clock

    def wait(self) -> None:
        """Until everything that was launched is done."""
        if self._device == HOST:
            return
        if self._by_torch:
            sys.modules["torch"].cuda.synchronize()
        synchronize(self._device)

    def seconds(self, launch: Callable[[], Any], count: int) -> float:
        """The time of `count` launches, one after the other. On a GPU one more goes before them, so
        that the queue is not empty when the first is timed."""
        if self._device == HOST:
            began = self._clock()
            for _ in range(count):
                launch()
            return self._clock() - began
        launch()
        start, end = self._event(), self._event()
        start.record()
        for _ in range(count):
            launch()
        end.record()
        end.synchronize()
        return (start.elapsed_time(end) if self._by_torch else end.elapsed(start)) / 1e3

    def _event(self) -> Any:
        if self._by_torch:
            return sys.modules["torch"].cuda.Event(enable_timing=True)
        return Event(self._device)
