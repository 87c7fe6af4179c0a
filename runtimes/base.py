"""What every runtime offers: devices that hold memory, load artifacts and launch them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from cubepy.artifact import FAULT_WORDS, Artifact
from cubepy.record import dataclass
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Properties:
    """What a device is: a name for people, its cores, and its memory in bytes."""

    name: str
    cores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of a device: all that it has, and what nobody uses."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many units of a launch a multiprocessor of a GPU holds at once, and what bounds them.

    `cubes` and `units`: the most that are resident on a multiprocessor; `fraction`: these units of
    all that it could hold, from 0 to 1. `registers`: of a unit; `local_bytes`: of a unit, with
    registers that were spilled; `shared_bytes`: of a cube. `limited_by`: what is used up first:
    "units", "cubes", "registers" or "shared memory". `best_cube_dim`: units of a cube with which
    this code would fill a multiprocessor best; never more than those it was compiled for.

    `clusters`: the most that the whole GPU holds at once, 0 for kernels without. Where these bound,
    `limited_by` is "clusters" and `fraction` is the mean over all multiprocessors.
    """

    cubes: int
    units: int
    fraction: float
    registers: int
    local_bytes: int
    shared_bytes: int
    limited_by: str
    best_cube_dim: int
    clusters: int = 0


class EncodedMap(Protocol):
    """A tensor map at an address of this process."""

    address: int

    def words(self) -> list[int]:
        """What it consists of."""
        ...


@dataclass(frozen=True, slots=True)
class NativeCode:
    """A kernel on a GPU as native code launches it.

    `gpu`: the address of the device's words, `ordinal` its number; `function`: the driver's handle;
    `number`: what the kernel is called in the log of launches; `dim`, `shared_bytes`: of a cube;
    `refuse`: raises what a status of the launch means. `stream`: one of the device's. `memory`: the
    class of what owns its memory. `sizes`: bytes of each argument, 0 for addresses, where a driver
    takes them one by one, as OpenCL's; `gpu` and `function` are its own then.
    """

    gpu: int
    ordinal: int
    function: int
    number: int
    dim: tuple[int, int, int]
    shared_bytes: int
    refuse: Callable[[int], None]
    stream: int
    memory: type
    sizes: tuple[int, ...] = ()


class Allocation(Protocol):
    """Memory of a device, freed when nothing refers to it any more."""

    address: int


class FaultRecord(Protocol):
    """Where a checked launch reports its first fault; see `artifact.FAULT_WORDS`."""

    address: int

    def words(self) -> list[int]:
        """What was reported; waits for the launch."""
        ...


class Named:
    """What people see of a device. It equals its name, which is what arrays and errors say."""

    name: str

    def __repr__(self) -> str:
        return f"cp.device({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def expect_launch(self) -> None:
        """See `Device.expect_launch`; there is nothing to do."""


class Device(Protocol):
    """A device of one runtime. `name` is what `cp.device(name)` takes.

    A `queue` is the handle of an order of work on the device, None for the device's own; devices
    whose launches return when they are done have none. `uses_host_memory`: kernels read and write
    the memory of this process itself.
    """

    name: str
    uses_host_memory: bool

    @property
    def target(self) -> Target:
        """What kernels are compiled for."""
        ...

    @property
    def properties(self) -> Properties:
        """Name, cores and memory."""
        ...

    def expect_launch(self) -> None:
        """Begin what the first launch needs beside its code; returns at once."""
        ...

    def load(self, artifact: Artifact) -> Any:
        """Make compiled code ready to be launched."""
        ...

    def launch(
        self, loaded: Any, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Run cubes 0..count of a loaded artifact with an argument block."""
        ...

    def grain(self, count: int, work: int) -> int:
        """How many of `count` cubes a worker takes at once, for `work` elements in all."""
        ...

    def fault_record(self) -> FaultRecord:
        """A record that no unit has taken."""
        ...

    def allocate(self, nbytes: int) -> Allocation:
        """New memory, aligned to 64 bytes at least; `DeviceError` E504 where there is none."""
        ...

    def upload(self, address: int, host: int, nbytes: int, queue: int | None = None) -> None:
        """Copy from host memory, which may be changed as soon as this returns."""
        ...

    def download(self, host: int, address: int, nbytes: int, queue: int | None = None) -> None:
        """Copy to host memory after all work of the queue; returns when it is there."""
        ...

    def copy(self, target: int, source: int, nbytes: int, queue: int | None = None) -> None:
        """Copy between memory of the device or `Pinned` memory, after all work of the queue; where
        there are queues this returns at once. The two share no byte."""
        ...

    def memory(self) -> MemoryUse:
        """What the device has and what is free."""
        ...

    @property
    def order(self) -> AbstractContextManager[Any]:
        """What to hold from `come_after` until `mark`, so that no other thread comes between."""
        ...

    def come_after(self, queue: int | None, memory: Queued, is_written: bool) -> None:
        """Let later work of a queue, which reads or writes memory, begin after the last on it."""
        ...

    def mark(self, queue: int | None, uses: Mapping[Queued, bool]) -> None:
        """Note that the work just enqueued uses these; True: it writes them."""
        ...

    def synchronize(self, queue: int | None = None) -> None:
        """Wait for the work of a queue, or of the device."""
        ...


class HostRecord:
    """A fault record in the memory of this process."""

    def __init__(self) -> None:
        self._words = (ctypes.c_int64 * FAULT_WORDS)()
        self.address = ctypes.addressof(self._words)

    def words(self) -> list[int]:
        return list(self._words)


class DeviceRecord:
    """A fault record in the memory of a `Device`."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._allocation = device.allocate(8 * FAULT_WORDS)
        self.address = self._allocation.address
        zeros = HostRecord()
        device.upload(self.address, zeros.address, 8 * FAULT_WORDS)

    def words(self) -> list[int]:
        """See `FaultRecord`."""
        self._device.synchronize()
        found = HostRecord()
        self._device.download(found.address, self.address, 8 * FAULT_WORDS)
        return found.words()


class Mark(Protocol):
    """A point in the work of a queue."""

    def wait(self) -> None:
        """Wait on the host."""
        ...


class Queued:
    """Memory that queues work on, distinguished from another library's.

    `write` stands behind the last work that wrote it, `reads` behind what has read it since, by
    device and queue; `read` is the one of these that a device's own queue added. Whoever reads,
    writes or frees it comes after what `before` gives. `is_shared`: another library has it too, and
    works on it in the default stream.
    """

    __slots__ = ("__weakref__", "is_shared", "read", "reads", "write")

    def __init__(self) -> None:
        self.write: Any = None
        self.read: Any = None
        self.reads: dict[Any, Any] = {}
        self.is_shared = False

    def before(self, is_written: bool) -> list[Any]:
        """The marks to come after; work that only reads does not wait for other reads."""
        written = [] if self.write is None else [self.write]
        return [*written, *self.reads.values()] if is_written else written

    def wait(self) -> None:
        """Wait on the host for all work on it."""
        for mark in self.before(is_written=True):
            mark.wait()


class Pinned(Queued):
    """Page-locked memory of the host: devices copy from and to it while the host goes on."""

    __slots__ = ()
    address: int


class OneOrder(Named):
    """The shared part of devices whose work runs in one order, and whose copies block."""

    order = nullcontext()

    def come_after(self, queue: int | None, memory: Queued, is_written: bool) -> None:
        """See `Device.come_after`; the work is another device's."""
        memory.wait()

    def mark(self, queue: int | None, uses: Mapping[Queued, bool]) -> None:
        """See `Device.mark`; the host saw the end of the work."""


class HostMemory(OneOrder):
    """The shared part of devices that work on host memory, one launch after the other."""

    uses_host_memory = True

    def fault_record(self) -> FaultRecord:
        """See `Device.fault_record`."""
        return HostRecord()

    def upload(self, address: int, host: int, nbytes: int, queue: int | None = None) -> None:
        """See `Device.upload`."""
        ctypes.memmove(address, host, nbytes)

    def download(self, host: int, address: int, nbytes: int, queue: int | None = None) -> None:
        """See `Device.download`."""
        ctypes.memmove(host, address, nbytes)

    def copy(self, target: int, source: int, nbytes: int, queue: int | None = None) -> None:
        """See `Device.copy`."""
        ctypes.memmove(target, source, nbytes)

    def synchronize(self, queue: int | None = None) -> None:
        """Launches return when they are done; nothing is left to wait for."""
