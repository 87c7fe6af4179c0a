"""Host arrays on a device with memory of its own: copied there, and what was written copied back.

Arrays that share memory share it on the device too. Addresses keep their place within 64 bytes, for
which kernels are specialised.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from cubepy.array.memory import HOST, Memory, raw_view
from cubepy.errors import CheckError, OutOfBoundsError
from cubepy.jit.arguments import ALIGNMENT
from cubepy.record import dataclass
from cubepy.runtimes.base import Allocation, Device, Queued


@dataclass(frozen=True, slots=True)
class _Block:
    """Host bytes from `low` to `high`, and where they stand on the device."""

    low: int
    high: int
    allocation: Allocation
    address: int


class Staged:
    """Copies of host arrays for one launch, as a context; `addresses` are those on the device."""

    def __init__(self, device: Device, memories: dict[str, Memory], written: Collection[str]):
        self._device = device
        self._memories = memories
        self._written = [memories[name] for name in memories if name in written]
        self.addresses: dict[str, int] = {}

    def __enter__(self) -> Staged:
        here = {n: m for n, m in self._memories.items() if m.device == HOST}
        for memory in here.values():
            if isinstance(memory.owner, Queued):
                memory.owner.wait()  # the copies are in another queue than the launch
        self._blocks = [self._upload(*span) for span in merged([m.extent() for m in here.values()])]
        for name, memory in self._memories.items():
            self.addresses[name] = self._address(memory) if name in here else memory.address
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Copy back, also after a fault of a checked kernel, as a host device leaves it."""
        if kind is not None and not issubclass(kind, OutOfBoundsError | CheckError):
            return
        self._device.synchronize()  # the launch may be in another queue than the copies
        for memory in self._written:
            if memory.device == HOST and 0 not in memory.shape:
                self._download(memory)

    def _upload(self, low: int, high: int) -> _Block:
        allocation = self._device.allocate(high - low + ALIGNMENT)
        address = allocation.address + low % ALIGNMENT
        self._device.upload(address, low, high - low)
        return _Block(low, high, allocation, address)

    def _address(self, memory: Memory) -> int:
        low, high = memory.extent()
        if low == high:
            return 0
        block = next(b for b in self._blocks if b.low <= low and high <= b.high)
        return block.address + memory.address - block.low

    def _download(self, memory: Memory) -> None:
        """Elements alone are written: the bytes between them belong to others."""
        low, high = memory.extent()
        source = self._address(memory) + low - memory.address
        if high - low == memory.dtype.itemsize * prod(memory.shape):
            self._device.download(low, source, high - low)
            return
        copy = np.empty(high - low, np.uint8)
        self._device.download(copy.ctypes.data, source, high - low)
        place = copy.ctypes.data + memory.address - low
        raw_view(memory)[...] = raw_view(replace(memory, address=place, owner=copy))


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that overlap as one; empty ones are left out."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if low == high:
            continue
        if found and low < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found
