"""What native code needs to launch on an OpenCL device by itself: the driver's functions."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from typing import Any

from cubepy.runtimes.native.launching.tables import Cl

_LOADER = "libOpenCL"
_FUNCTIONS = {
    Cl.SET_NUMBER: "clSetKernelArg",
    Cl.SET_POINTER: "clSetKernelArgSVMPointer",
    Cl.ENQUEUE: "clEnqueueNDRangeKernel",
}


class NativeWords:
    """The words that native code reads of a device; see `runtimes.native.launching.tables.Cl`.

    `address`: 0 where the driver's functions are not found. `owner`: what identifies the device's
    memory.
    """

    def __init__(self, queue: int, owner: Any) -> None:
        self._held = words = (ctypes.c_int64 * Cl.SIZE)()
        self._kept = owner
        found = _addresses()
        for which, address in found.items():
            words[which] = address
        words[Cl.QUEUE], words[Cl.OWNER] = queue, id(owner)
        self.address = ctypes.addressof(words) if found else 0
        _made.append(self)

    def end(self) -> None:
        """Let native code launch nothing here any more: no array has this owner."""
        self._held[Cl.OWNER] = 0


_made: list[NativeWords] = []


def _after_fork() -> None:
    """No driver works in the child: launches go through Python, which says so (`platform`)."""
    for words in _made:
        words.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@lru_cache(maxsize=1)
def _addresses() -> dict[Cl, int]:
    """Where the functions of the loader that this process uses are; empty if that is unknown."""
    if sys.platform != "linux":
        return {}
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if _LOADER in line}
    if len(paths) != 1:
        return {}
    try:
        loader = ctypes.CDLL(paths.pop())
        functions = {which: getattr(loader, name) for which, name in _FUNCTIONS.items()}
    except (OSError, AttributeError):
        return {}
    return {which: ctypes.cast(f, ctypes.c_void_p).value or 0 for which, f in functions.items()}
