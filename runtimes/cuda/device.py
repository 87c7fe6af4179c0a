"""GPUs of NVIDIA as devices. Launches are asynchronous in a stream; nothing opens the driver before
a device is asked for."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import lru_cache
from typing import Any

from cubepy.artifact import Artifact
from cubepy.errors import fail
from cubepy.lazy import cached, cached_property
from cubepy.runtimes.base import (
    DeviceRecord,
    MemoryUse,
    Named,
    NativeCode,
    Occupancy,
    Properties,
)
from cubepy.runtimes.cuda.code import Code
from cubepy.runtimes.cuda.contexts import PRIMARY, Contexts
from cubepy.runtimes.cuda.driver import check, driver, failure, is_lost
from cubepy.runtimes.cuda.launches import OVERLAPS_FROM, Log, NativeWords, overlap
from cubepy.runtimes.cuda.memory import (
    Allocation,
    Owner,
    PinnedAllocation,
    allocate_pinned,
    new_pool,
)
from cubepy.runtimes.cuda.occupancy import ATTRIBUTES, Multiprocessor, occupancy
from cubepy.runtimes.cuda.pointers import gpu_of
from cubepy.runtimes.cuda.spares import Spares, size_of
from cubepy.runtimes.cuda.tensor_maps import EncodedMap, encode, encode_im2col
from cubepy.targets import Target, cuda_target


class CudaDevice(Named, Owner):
    """See `runtimes.base.Device`. Queues are streams; None is a stream of the device's own."""

    uses_host_memory = False

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        self.name = f"cuda:{ordinal}"
        self.contexts = Contexts(ordinal)
        self._log = Log()
        self._pool: Any = None
        self._spares = Spares()

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
            multiprocessors=self._attribute("MULTIPROCESSOR_COUNT"),
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

    @cached_property
    def driver_version(self) -> str:
        """The version of CUDA that the driver is made for."""
        number = check("cuDriverGetVersion", driver().cuDriverGetVersion())
        return f"{number // 1000}.{number % 1000 // 10}"

    def _attribute(self, name: str) -> int:
        api = driver()
        which = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return check(name, api.cuDeviceGetAttribute(which, self.contexts.device))

    # Launches

    def load(self, artifact: Artifact) -> Code:
        """Load a cubin into the current context."""
        code = Code(artifact)
        with self.contexts.enter() as context:
            code.function(context)
        return code

    def launch(
        self, loaded: Code, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Enqueue the cubes; a failure of the kernel is raised by what waits for it."""
        if not count:
            return
        stream = self.stream(queue)
        with self.contexts.enter(queue is None) as context:
            function = loaded.function(context)
            parameters = loaded.parameters(block)
            config = loaded.config(block[loaded.counts : loaded.counts + 3])
            config.hStream = stream
            config.attrs, config.numAttrs = self._attributes, len(self._attributes)
            place = ctypes.addressof(parameters)
            (status,) = driver().cuLaunchKernelEx(config, function, place, 0)
        self._log.add(stream, loaded.number)
        if status:
            raise self.failed(f"the launch of {loaded.entry}", status)

    @cached_property
    def _attributes(self) -> list[Any]:
        """Those of all launches."""
        version = check("cuDriverGetVersion", driver().cuDriverGetVersion())
        may_overlap = self.target.overlaps_launches and version >= OVERLAPS_FROM
        return [overlap()] if may_overlap else []

    @cached_property
    def _native(self) -> NativeWords:
        return NativeWords(self, self.stream(None), self._log, self._attributes)

    def native_code(self, loaded: Code) -> NativeCode | None:
        """What native code needs to launch in the primary context; None where it cannot."""
        words = self._native
        if not words.is_known or (loaded.takes_maps and not words.replaces_maps):
            return None
        with self.contexts.enter(is_own=True) as context:
            function = int(loaded.function(context))

        def refuse(status: int) -> None:
            given = driver().CUresult(status)
            raise self.failed(f"the launch of {loaded.entry}", given)

        return NativeCode(
            words.address,
            self.contexts.ordinal,
            function,
            loaded.number,
            loaded.dim,
            loaded.shared_bytes,
            refuse,
            self.stream(None),
            Allocation,
        )

    @cached_property
    def multiprocessor(self) -> Multiprocessor:
        """What a multiprocessor shares among its cubes."""
        return Multiprocessor(*(self._attribute(name) for name in ATTRIBUTES))

    def occupancy(self, loaded: Code) -> Occupancy:
        """How many cubes a multiprocessor holds; nothing is launched."""
        with self.contexts.enter() as context:
            return occupancy(loaded.function(context), loaded, self.multiprocessor)

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
        with self.contexts.enter():
            return encode(address, dtype, shape, strides, box, swizzle)

    def tensor_map_im2col(self, *layout: Any) -> EncodedMap:
        """A tensor map in im2col mode; `layout` is what `tensor_maps.encode_im2col` takes."""
        with self.contexts.enter():
            return encode_im2col(*layout)

    def grain(self, count: int, work: int) -> int:
        """The hardware spreads cubes."""
        return 1

    def fault_record(self) -> DeviceRecord:
        """Zeroed memory of the device."""
        return DeviceRecord(self)

    def synchronize(self, queue: int | None = None) -> None:
        """Wait for a stream or for all; `DeviceLostError` E509 where a kernel broke the context."""
        with self.contexts.enter() as context:
            if queue is None:
                (status,) = driver().cuCtxSynchronize()
            else:
                (status,) = driver().cuStreamSynchronize(queue)
        if queue is None and context != PRIMARY and not status:
            with self.contexts.enter(is_own=True):
                (status,) = driver().cuCtxSynchronize()
        if status:
            raise self.failed("waiting", status)
        self._log.forget(queue)  # what was waited for cannot be what breaks the device

    def failed(self, call: str, status: Any) -> Exception:
        """What a status of the driver means, with the kernels that may have caused it."""
        if is_lost(status):
            kernels = ", ".join(self._log.names()) or "none of CubePy's"
            return fail("E509", device=self.name, reason=status.name, kernels=kernels)
        return failure(call, status, driver())

    # Memory

    def allocate(self, nbytes: int) -> Allocation:
        """Memory aligned to 256 bytes, spare or from the device's own pool; E504 without room."""
        size = size_of(nbytes)
        address = self._spares.take(size)
        if address is None:
            address = self._allocate(nbytes, size)
        return Allocation(address, nbytes, self)

    def _allocate(self, nbytes: int, size: int) -> int:
        api, stream = driver(), self.stream(None)
        no_room = api.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        with self.contexts.enter(is_own=True):
            pool = self._own_pool()
            status, address = api.cuMemAllocFromPoolAsync(size, pool, stream)
            if status == no_room and self._free_now(self._spares.clear()):
                status, address = api.cuMemAllocFromPoolAsync(size, pool, stream)
        if status == no_room:
            raise fail("E504", nbytes=nbytes, device=self.name)
        self.checked(f"an allocation of {nbytes} bytes", (status,))
        return int(address)

    def free(self, address: int, nbytes: int) -> None:
        """See `Owner.free`."""
        self._free_now(self._spares.put(address, size_of(nbytes)))

    def _free_now(self, addresses: list[int]) -> bool:
        """Give memory back to the pool; whether there was some."""
        if addresses:
            with self.contexts.enter(is_own=True):
                for address in addresses:
                    driver().cuMemFreeAsync(address, self.stream(None))
        return bool(addresses)

    def _own_pool(self) -> Any:
        if self._pool is None:
            with self.order:
                if self._pool is None:
                    self._pool = new_pool(self.contexts.ordinal)
        return self._pool

    def release_memory(self) -> None:
        """Give what is kept for later allocations back to the GPU."""
        self._free_now(self._spares.clear())
        self.synchronize()
        if self._pool is not None:
            with self.contexts.enter(is_own=True):
                self.checked("cuMemPoolTrimTo", driver().cuMemPoolTrimTo(self._pool, 0))

    def upload(self, address: int, host: int, nbytes: int, queue: int | None = None) -> None:
        """Copy from host memory and wait: pinned memory is read after the call returns."""
        stream = self.stream(queue)
        with self.contexts.enter(queue is None):
            copied = driver().cuMemcpyHtoDAsync(address, host, nbytes, stream)
            self.checked("a copy to the device", copied)
        self.synchronize(stream)

    def download(self, host: int, address: int, nbytes: int, queue: int | None = None) -> None:
        """Copy to host memory and wait."""
        stream = self.stream(queue)
        with self.contexts.enter(queue is None):
            copied = driver().cuMemcpyDtoHAsync(host, address, nbytes, stream)
            self.checked("a copy to the host", copied)
        self.synchronize(stream)

    def copy(self, target: int, source: int, nbytes: int, queue: int | None = None) -> None:
        """Enqueue a copy; the driver knows by the addresses on which side each memory is."""
        stream = self.stream(queue)
        with self.contexts.enter(queue is None):
            copied = driver().cuMemcpyAsync(target, source, nbytes, stream)
            self.checked("a copy", copied)

    def allocation_at(self, address: int) -> tuple[int, int] | None:
        """The bytes of the allocation that holds an address, whoever made it; None if there is
        none."""
        with self.contexts.enter():
            status, base, size = driver().cuMemGetAddressRange(address)
        return None if status else (int(base), int(base) + int(size))

    def memory(self) -> MemoryUse:
        """What the GPU has, and what no process uses."""
        with self.contexts.enter():
            free, total = check("cuMemGetInfo", driver().cuMemGetInfo())
        return MemoryUse(int(total), int(free))


@lru_cache(maxsize=1)
def count() -> int:
    """How many GPUs there are; `DeviceError` E507 where something is missing."""
    return check("cuDeviceGetCount", driver().cuDeviceGetCount())


@cached
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
    with make(0).contexts.enter():
        return gpu_of(address)
