"""Memory of a device that is free and kept for the next allocation of the same size."""

from __future__ import annotations

from threading import RLock

UNIT = 512
"""Sizes are multiples of so many bytes, as those of the driver's pool."""
MOST_BYTES = 256 << 20
"""Kept in all."""
LARGEST = 32 << 20
"""Of one; the driver's call costs little beside a kernel that fills more."""


def size_of(nbytes: int) -> int:
    """What is allocated for so many bytes."""
    return -(-max(nbytes, 1) // UNIT) * UNIT


class Spares:
    """Addresses by size. All work on them is in the device's own queue, so that the next work there
    may use them.

    Memory may die, and then be put here, wherever Python collects garbage: also in the middle of a
    method, whose lock the thread holds. So lists are never replaced, and each step takes or adds
    one address.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[int]] = {}
        self._bytes = 0
        self._lock = RLock()

    def take(self, size: int) -> int | None:
        """Memory of this size; None where there is none."""
        with self._lock:
            try:
                address = self._held[size].pop()
            except LookupError:
                return None
            self._bytes -= size
            return address

    def put(self, address: int, size: int) -> list[int]:
        """Keep memory; gives what is to be freed instead."""
        if size > LARGEST:
            return [address]
        with self._lock:
            freed = self.clear() if self._bytes + size > MOST_BYTES else []
            self._held.setdefault(size, []).append(address)
            self._bytes += size
            return freed

    def clear(self) -> list[int]:
        """Keep nothing; gives what is to be freed."""
        freed: list[int] = []
        with self._lock:
            for size in self._held.copy():
                while (address := self.take(size)) is not None:
                    freed.append(address)
        return freed
