"""Memory of a Metal device: shared buffers, whose bytes the host addresses as they are.

Kernels take a buffer and an offset, arrays have addresses: `Buffers` finds the one by the other.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right, insort
from threading import Lock
from typing import Any


class Allocation:
    """A buffer; work that was enqueued keeps it alive by itself."""

    def __init__(self, buffer: Any, nbytes: int, buffers: Buffers) -> None:
        first = ctypes.c_char.from_buffer(buffer.contents().as_buffer(nbytes))
        self.address = ctypes.addressof(first)
        self._buffers = buffers
        buffers.add(self.address, nbytes, buffer)

    def __del__(self) -> None:
        buffers = getattr(self, "_buffers", None)
        if buffers is not None:
            buffers.remove(self.address)


class Buffers:
    """The buffers in use by address."""

    def __init__(self) -> None:
        self._addresses: list[int] = []
        self._held: dict[int, tuple[int, Any]] = {}
        self._lock = Lock()

    def add(self, address: int, nbytes: int, buffer: Any) -> None:
        """Know a buffer."""
        with self._lock:
            insort(self._addresses, address)
            self._held[address] = (nbytes, buffer)

    def remove(self, address: int) -> None:
        """Forget a buffer."""
        with self._lock:
            self._addresses.remove(address)
            del self._held[address]

    def find(self, address: int) -> tuple[Any, int]:
        """The buffer that holds an address, and the offset in it; None where nothing is.

        Arrays without elements may have any address; kernels read and write none of it.
        """
        with self._lock:
            place = bisect_right(self._addresses, address) - 1
            if place < 0:
                return None, 0
            start = self._addresses[place]
            nbytes, buffer = self._held[start]
        offset = address - start
        return (buffer, offset) if offset < nbytes else (None, 0)
