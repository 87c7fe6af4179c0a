"""GPUs of NVIDIA as devices. Launches are asynchronous in a stream; nothing opens the driver before
a device is asked for."""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

from cubepy.artifact import Artifact
from cubepy.errors import fail
from cubepy.runtimes.base import DeviceRecord, MemoryUse, Occupancy, Properties
from cubepy.runtimes.cuda.code import Code
from cubepy.runtimes.cuda.contexts import Contexts
from cubepy.runtimes.cuda.driver import check, driver, failure, is_lost
from cubepy.runtimes.cuda.memory import (
    Allocation,
    PinnedAllocation,
    allocate,
    allocate_pinned,
    keep_freed_memory,
    release_freed_memory,
)
from cubepy.runtimes.cuda.occupancy import ATTRIBUTES, Multiprocessor, occupancy
from cubepy.runtimes.cuda.queues import Queues
from cubepy.runtimes.cuda.tensor_maps import EncodedMap, encode
from cubepy.targets import Target, cuda_target

REMEMBERED = 16
"""Names of launched kernels that are told where a device is lost."""


class CudaDevice(Queues):
    """See `runtimes.base.Device`. Queues are streams; None is the legacy default stream."""

    uses_host_memory = False

    def __init__(self, ordinal: int) -> None:
        self.name = f"cuda:{ordinal}"
        self.contexts = Contexts(ordinal)
        self._launched: deque[str] = deque(maxlen=REMEMBERED)
        self._keeps_memory = False

    @cached_property
    def target(self) -> Target:
        """The exact architecture, with what this GPU really has."""
        major = self._attribute("COMPUTE_CAPABILITY_MAJOR")
        minor = self._attribute("COMPUTE_CAPABILITY_MINOR")
        suffix = "a" if major >= 9 else ""
        return replace(
            cuda_target(f"sm_{major}{minor}{suffix}"),
            shared_bytes=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            cache_bytes=self._attribute("L2_CACHE_SIZE"),
        )

    @cached_property
    def properties(self) -> Properties:
        """The GPU's name, its multiprocessors and its memory."""
        api, device = driver(), self.contexts.device
        name = check("cuDeviceGetName", api.cuDeviceGetName(128, device))
        total = check("cuDeviceTotalMem", api.cuDeviceTotalMem(device))
        return Properties(
            name.split(b"\0")[0].decode(), self._attribute("MULTIPROCESSOR_COUNT"), int(total)
        )

    def _attribute(self, name: str) -> int:
        api = driver()
        which = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return check(name, api.cuDeviceGetAttribute(which, self.contexts.device))

    # Launches

    def load(self, artifact: Artifact) -> Code:
        """Load a cubin into the current context."""
        code = Code(artifact)
        code.function(self.contexts.enter())
        return code

    def launch(
        self, loaded: Code, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Enqueue the cubes; a failure of the kernel is told by what waits for it."""
        if not count:
            return
        function = loaded.function(self.contexts.enter())
        parameters = loaded.parameters(block)
        grid = block[loaded.counts : loaded.counts + 3]
        (status,) = driver().cuLaunchKernel(
            function,
            *grid,
            *loaded.dim,
            loaded.shared_bytes,
            queue or 0,
            ctypes.addressof(parameters),
            0,
        )
        self._launched.append(loaded.entry)
        if status:
            raise self.failed(f"the launch of {loaded.entry}", status)

    @cached_property
    def multiprocessor(self) -> Multiprocessor:
        """What a multiprocessor shares among its cubes."""
        return Multiprocessor(*(self._attribute(name) for name in ATTRIBUTES))

    def occupancy(self, loaded: Code) -> Occupancy:
        """How many cubes a multiprocessor holds; nothing is launched."""
        function = loaded.function(self.contexts.enter())
        return occupancy(function, loaded, self.multiprocessor)

    def tensor_map(
        self,
        address: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        swizzle: int,
    ) -> EncodedMap:
        """A tensor map of an array on this device; `strides` in bytes, axes in row-major order."""
        self.contexts.enter()
        return encode(address, dtype, shape, strides, box, swizzle)

    def grain(self, count: int, work: int) -> int:
        """The hardware spreads cubes."""
        return 1

    def fault_record(self) -> DeviceRecord:
        """Zeroed memory of the device."""
        return DeviceRecord(self)

    def synchronize(self, queue: int | None = None) -> None:
        """Wait for a stream or for all; `DeviceLostError` E509 where a kernel broke the context."""
        self.contexts.enter()
        api = driver()
        (status,) = api.cuCtxSynchronize() if queue is None else api.cuStreamSynchronize(queue)
        if status:
            raise self.failed("waiting", status)
        self._launched.clear()

    def failed(self, call: str, status: Any) -> Exception:
        """What a status of the driver means, with the kernels that may have caused it."""
        if is_lost(status):
            kernels = ", ".join(dict.fromkeys(self._launched)) or "none of CubePy's"
            return fail("E509", device=self.name, reason=status.name, kernels=kernels)
        return failure(call, status, driver())

    # Memory

    def allocate(self, nbytes: int) -> Allocation:
        """Memory from the driver's pool."""
        self.contexts.enter()
        if not self._keeps_memory:
            keep_freed_memory(self.contexts.device)
            self._keeps_memory = True
        return allocate(nbytes, self.contexts, self.name)

    def release_memory(self) -> None:
        """Give what the pool keeps back to the device."""
        self.synchronize()
        release_freed_memory(self.contexts.device)

    def upload(self, address: int, host: int, nbytes: int, queue: int | None = None) -> None:
        """Copy from host memory and wait: pinned memory is read after the call returns."""
        self.contexts.enter()
        (status,) = driver().cuMemcpyHtoDAsync(address, host, nbytes, queue or 0)
        if status:
            raise self.failed("a copy to the device", status)
        self.synchronize(queue or 0)

    def download(self, host: int, address: int, nbytes: int, queue: int | None = None) -> None:
        """Copy to host memory and wait."""
        self.contexts.enter()
        (status,) = driver().cuMemcpyDtoHAsync(host, address, nbytes, queue or 0)
        if status:
            raise self.failed("a copy to the host", status)
        self.synchronize(queue or 0)

    def copy(self, target: int, source: int, nbytes: int, queue: int | None = None) -> None:
        """Enqueue a copy; the driver knows by the addresses on which side each memory is."""
        self.contexts.enter()
        (status,) = driver().cuMemcpyAsync(target, source, nbytes, queue or 0)
        if status:
            raise self.failed("a copy", status)

    def memory(self) -> MemoryUse:
        """What the GPU has, and what no process uses."""
        self.contexts.enter()
        free, total = check("cuMemGetInfo", driver().cuMemGetInfo())
        return MemoryUse(int(total), int(free))


@lru_cache(maxsize=1)
def count() -> int:
    """How many GPUs there are; `DeviceError` E507 where something is missing."""
    return check("cuDeviceGetCount", driver().cuDeviceGetCount())


@lru_cache(maxsize=64)
def make(number: int) -> CudaDevice:
    """The device of a number."""
    return CudaDevice(number)


def pinned_memory(nbytes: int) -> PinnedAllocation:
    """Page-locked memory of the host, which all GPUs copy from and to."""
    return allocate_pinned(nbytes, make(0).contexts)


def ordinal_of(address: int) -> int:
    """The device that memory belongs to; no look-up where there is only one."""
    if not address or count() == 1:
        return 0
    api = driver()
    make(0).contexts.enter()
    which = api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return check("cuPointerGetAttribute", api.cuPointerGetAttribute(which, address))
