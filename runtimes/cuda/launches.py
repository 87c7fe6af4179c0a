"""The last launches on a GPU, and what native code needs to launch there by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from cubepy.runtimes.cuda.driver import address_of, driver
from cubepy.runtimes.cuda.queues import Queues
from cubepy.runtimes.native.launching.tables import LOGGED, Gpu

_names: list[str] = []
_numbers: dict[str, int] = {}


def number_of(name: str) -> int:
    """The number that stands for a kernel's name in logs."""
    found = _numbers.get(name)
    if found is None:
        _names.append(name)  # two threads may both add it: either number will do
        found = _numbers.setdefault(name, _names.index(name))
    return found


class Log:
    """The names of the last kernels that were launched, and the streams; native code adds to it.

    `words`: how many launches there ever were, and a row for each of the last.
    """

    def __init__(self) -> None:
        self._held = (ctypes.c_int64 * (1 + 2 * LOGGED))()
        self.address = ctypes.addressof(self._held)
        self.forget(None)

    def add(self, stream: int, number: int) -> None:
        """Note a launch of the kernel of this number."""
        count = self._held[0]
        row = 1 + 2 * (count % LOGGED)
        self._held[row : row + 2] = [ctypes.c_int64(stream).value, number]
        self._held[0] = count + 1

    def forget(self, stream: int | None) -> None:
        """Forget what was launched in a stream, or in all."""
        for row in range(1, 1 + 2 * LOGGED, 2):
            if stream is None or self._held[row] == ctypes.c_int64(stream).value:
                self._held[row + 1] = -1

    def names(self) -> list[str]:
        """The names of the kernels that were not forgotten, the first launched first."""
        count = self._held[0]
        rows = (1 + 2 * (k % LOGGED) for k in range(count, count + LOGGED))
        numbers = [self._held[row + 1] for row in rows]
        return list(dict.fromkeys(_names[n] for n in numbers if n >= 0))


OVERLAPS_FROM = 12_030
"""The version of CUDA from which on graphs capture launches that overlap."""


def overlap() -> Any:
    """The attribute of launches that overlap: cubes are brought to multiprocessors as soon as those
    of the kernel before have ended, and wait there until its memory is written (CUDA Driver API,
    programmatic stream serialization)."""
    api = driver()
    found = api.CUlaunchAttribute()
    name = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    found.id = getattr(api.CUlaunchAttributeID, name)
    found.value.programmaticStreamSerializationAllowed = 1
    return found


class NativeWords:
    """The words that native code reads of a device; see `runtimes.native.launching.tables`."""

    def __init__(self, queues: Queues, stream: int, log: Log, attributes: Sequence[Any]) -> None:
        """`attributes`: of all launches, one at most; they live as long as the device."""
        contexts = queues.contexts
        self._held = words = (ctypes.c_int64 * Gpu.SIZE)()
        self.address = ctypes.addressof(words)
        words[Gpu.LAUNCH] = address_of("cuLaunchKernelEx")
        words[Gpu.GET_CONTEXT] = address_of("cuCtxGetCurrent")
        words[Gpu.SET_CONTEXT] = address_of("cuCtxSetCurrent")
        words[Gpu.GET_DEVICE] = address_of("cuCtxGetDevice")
        self.is_known = all(words[k] for k in _CALLED)
        words[Gpu.REPLACE_ADDRESS] = address_of("cuTensorMapReplaceAddress")
        self.replaces_maps = bool(words[Gpu.REPLACE_ADDRESS])
        words[Gpu.CONTEXT], words[Gpu.DEVICE] = contexts.primary, int(contexts.device)
        words[Gpu.ORDINAL], words[Gpu.LOG] = contexts.ordinal, log.address
        words[Gpu.STREAM], words[Gpu.ORDER] = stream, queues.own.address
        words[Gpu.QUEUES] = id(queues)
        words[Gpu.ATTRIBUTES] = attributes[0].getPtr() if attributes else 0
        words[Gpu.ATTRIBUTE_COUNT] = len(attributes)


_CALLED = Gpu.LAUNCH, Gpu.GET_CONTEXT, Gpu.SET_CONTEXT, Gpu.GET_DEVICE
