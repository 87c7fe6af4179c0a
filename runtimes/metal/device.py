"""Metal devices: a command buffer for each launch, in one queue, in order.

A launch returns at once. A failure of the GPU shows in the command buffer, which is looked at when
somebody waits.
"""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import replace
from math import prod
from threading import Lock
from typing import Any

from cubepy.artifact import Artifact
from cubepy.errors import fail
from cubepy.lazy import cached, cached_property
from cubepy.runtimes.base import DeviceRecord, MemoryUse, OneOrder, Properties
from cubepy.runtimes.metal.memory import Allocation, Buffers
from cubepy.runtimes.metal.platform import api, failed, found_devices
from cubepy.targets import Target, metal_target

LANGUAGE = 3 << 16
"""MTLLanguageVersion3_0."""
SHARED = 0
"""MTLResourceStorageModeShared: the host and the GPU address the same bytes."""
ERROR = 5
"""MTLCommandBufferStatusError."""
INLINE_BYTES = 4096
"""The most that `setBytes` takes."""
WAITING = 64
"""Command buffers under way before a launch waits; a queue itself has 64."""


class Code:
    """A pipeline, and where arguments go: data by buffer, then all numbers, then the faults."""

    def __init__(self, pipeline: Any, artifact: Artifact) -> None:
        self.pipeline = pipeline
        self.entry = artifact.entry
        self.dim = artifact.cube_dim
        self.slots = len(artifact.slots)
        places = range(self.slots)
        self.data = [k for k in places if artifact.slots[k].kind.is_address]
        self.numbers = [k for k in places if not artifact.slots[k].kind.is_address]
        self._fault_place = [self.slots + 3] if artifact.faults else []

    def bind(self, encoder: Any, block: Any, device: MetalDevice) -> None:
        """Set the arguments of an encoder from the words of a block."""
        for k, place in enumerate(self.data):
            self._bind_address(encoder, int(block[place]), k, device)
        following = len(self.data)
        if self.numbers:
            words = (int(block[place]) & (2**64 - 1) for place in self.numbers)
            held = b"".join(word.to_bytes(8, "little") for word in words)
            device.set_bytes(encoder, held, following)
            following += 1
        for place in self._fault_place:
            self._bind_address(encoder, int(block[place]), following, device)

    @staticmethod
    def _bind_address(encoder: Any, address: int, index: int, device: MetalDevice) -> None:
        buffer, offset = device.buffers.find(address)
        encoder.setBuffer_offset_atIndex_(buffer, offset, index)


class MetalDevice(OneOrder):
    """See `runtimes.base.Device`."""

    uses_host_memory = False

    def __init__(self, number: int, device: Any) -> None:
        self.name = f"metal:{number}"
        self.buffers = Buffers()
        self._device = device
        self._waiting: deque[tuple[str, Any]] = deque()
        self._lock = Lock()

    @cached_property
    def _queue(self) -> Any:
        return self._device.newCommandQueue()

    @cached_property
    def target(self) -> Target:
        """What this GPU gives to a cube."""
        size = self._device.maxThreadsPerThreadgroup()
        return replace(
            metal_target(""),
            shared_bytes=int(self._device.maxThreadgroupMemoryLength()),
            max_cube_dim=int(size.width),
        )

    @cached_property
    def properties(self) -> Properties:
        """The GPU's name and the memory it should use at most; Metal does not report its cores."""
        return Properties(str(self._device.name()), 0, self._total)

    @property
    def _total(self) -> int:
        return int(self._device.recommendedMaxWorkingSetSize())

    # Launches

    def load(self, artifact: Artifact) -> Code:
        """Compile the source for this GPU; E508 with the compiler's words where it refuses."""
        text = artifact.code.decode()
        library, error = self._device.newLibraryWithSource_options_error_(text, _options(), None)
        if library is None:
            raise failed(self.name, "the build", error)
        function = library.newFunctionWithName_(artifact.entry)
        pipeline, error = self._device.newComputePipelineStateWithFunction_error_(function, None)
        if pipeline is None:
            raise failed(self.name, "making a pipeline", error)
        most, units = int(pipeline.maxTotalThreadsPerThreadgroup()), prod(artifact.cube_dim)
        if units > most:
            reason = f"cubes of {units} units, but the kernel's registers allow {most}"
            hint = f"launch cubes of at most {most} units"
            call = f"the launch of {artifact.entry}"
            raise fail("E508", device=self.name, call=call, reason=reason, suggestion=hint)
        return Code(pipeline, artifact)

    def launch(
        self, loaded: Code, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Enqueue the cubes."""
        if not count:
            return
        if len(self._waiting) >= WAITING:
            self.synchronize()
        metal = api()
        buffer = self._queue.commandBuffer()
        encoder = buffer.computeCommandEncoder()
        encoder.setComputePipelineState_(loaded.pipeline)
        loaded.bind(encoder, block, self)
        grid = [int(n) for n in block[loaded.slots : loaded.slots + 3]]
        counts, dims = metal.MTLSizeMake(*grid), metal.MTLSizeMake(*loaded.dim)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(counts, dims)
        encoder.endEncoding()
        with self._lock:
            buffer.commit()
            self._waiting.append((loaded.entry, buffer))

    def set_bytes(self, encoder: Any, held: bytes, index: int) -> None:
        """Hand over constant bytes; many travel in a buffer of their own."""
        if len(held) <= INLINE_BYTES:
            encoder.setBytes_length_atIndex_(held, len(held), index)
            return
        buffer = self._device.newBufferWithBytes_length_options_(held, len(held), SHARED)
        encoder.setBuffer_offset_atIndex_(buffer, 0, index)

    def grain(self, count: int, work: int) -> int:
        """The hardware spreads cubes."""
        return 1

    def fault_record(self) -> DeviceRecord:
        """Zeroed memory of the device."""
        return DeviceRecord(self)

    def synchronize(self, queue: int | None = None) -> None:
        """Wait for all launches; E508 names the first that failed."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        if waiting:
            waiting[-1][1].waitUntilCompleted()  # the queue is in order
        for entry, buffer in waiting:
            if buffer.status() == ERROR:
                raise failed(self.name, f"the launch of {entry}", buffer.error())

    # Memory

    def allocate(self, nbytes: int) -> Allocation:
        """A shared buffer; E504 where there is none."""
        size = max(nbytes, 1)
        buffer = self._device.newBufferWithLength_options_(size, SHARED)
        if buffer is None:
            raise fail("E504", nbytes=nbytes, device=self.name)
        return Allocation(buffer, size, self.buffers)

    def upload(self, address: int, host: int, nbytes: int, queue: int | None = None) -> None:
        """Copy from host memory, once no launch uses what was there."""
        self.synchronize()
        ctypes.memmove(address, host, nbytes)

    def download(self, host: int, address: int, nbytes: int, queue: int | None = None) -> None:
        """Copy to host memory after all launches."""
        self.synchronize()
        ctypes.memmove(host, address, nbytes)

    def copy(self, target: int, source: int, nbytes: int, queue: int | None = None) -> None:
        """Copy after all launches, and wait: the host addresses all of it."""
        self.synchronize()
        ctypes.memmove(target, source, nbytes)

    def memory(self) -> MemoryUse:
        """What the GPU should use at most, and what of it no process of this user has."""
        used = int(self._device.currentAllocatedSize())
        return MemoryUse(self._total, max(0, self._total - used))


def _options() -> Any:
    """Metal 3.0 without fast math; the name of that switch changed with macOS 15."""
    options = api().MTLCompileOptions.alloc().init()
    options.setLanguageVersion_(LANGUAGE)
    if hasattr(options, "setMathMode_"):
        options.setMathMode_(0)  # MTLMathModeSafe
    else:
        options.setFastMathEnabled_(False)
    return options


def count() -> int:
    """How many GPUs there are; `DeviceError` E507 where something is missing."""
    return len(found_devices())


@cached
def make(number: int) -> MetalDevice:
    """The device of a number."""
    return MetalDevice(number, found_devices()[number])
