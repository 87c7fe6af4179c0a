"""NVIDIA's driver as far as memory, streams and occupancy go, in Python.

Work is done when somebody waits for it, and then only what it comes after: who forgets an order
sees old memory.

Memory that is freed is overwritten, and freeing host memory under a copy fails the test.
"""

from __future__ import annotations

import ctypes
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from itertools import count
from typing import Any

import pytest

from cubepy import config
from cubepy.runtimes.cuda import device as cuda_device
from cubepy.runtimes.cuda import driver as cuda_driver
from tests.devices.forget import forget_devices, frozen_keepers

Span = tuple[int, int]


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


OK = Result.CUDA_SUCCESS
PRIMARY, DEFAULT_POOL = 77, 5
OVERLAPS = 6
"""The number of the attribute of launches that overlap."""


HOPPER = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "L2_CACHE_SIZE": 50 << 20,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 1 << 16,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 << 10,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1 << 10,
}
FUNCTION = {"NUM_REGS": 32, "SHARED_SIZE_BYTES": 0, "LOCAL_SIZE_BYTES": 0}


class Config:
    """A launch that is asked about, and other structures: what is assigned."""


OVERLAP = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"


class Attribute:
    """A `CUlaunchAttribute` as native code passes it on: a number, 8 bytes behind it its value."""

    def __init__(self) -> None:
        self.id = ""
        self.value = Config()
        self._held = (ctypes.c_uint32 * 18)()

    def getPtr(self) -> int:
        self._held[0] = OVERLAPS if self.id == OVERLAP else 0
        self._held[2] = vars(self.value)["programmaticStreamSerializationAllowed"]
        return ctypes.addressof(self._held)


class Function(int):
    """The driver's handle of a kernel."""

    name: str
    context: int


@dataclass(frozen=True)
class Launch:
    """What the driver was asked to launch, and the words of its parameters."""

    name: str
    grid: tuple[int, ...]
    dim: tuple[int, ...]
    shared: int
    stream: int
    words: tuple[Any, ...]
    overlaps: bool


_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64
_NATIVE: dict[str, tuple[Any, ...]] = {
    "cuLaunchKernelEx": (_U64,) * 4,
    "cuCtxGetCurrent": (_U64,),
    "cuCtxSetCurrent": (_U64,),
    "cuCtxGetDevice": (_U64,),
    "cuPointerGetAttribute": (_U64, ctypes.c_int, _U64),
    "cuTensorMapReplaceAddress": (_U64, _U64),
}
"""The parameters of functions that native code calls."""


def _words_of(attribute: int) -> list[int]:
    return list((_U32 * 3).from_address(attribute))


class Names:
    """An enumeration of the driver: each name is its own value, if the bindings know it."""

    def __init__(self, enumeration: str) -> None:
        self._enumeration = enumeration

    def __getattr__(self, name: str) -> str:
        try:
            known = getattr(import_module("cuda.bindings.driver"), self._enumeration)
        except ImportError:
            return name
        assert hasattr(known, name), name
        return name


@dataclass(eq=False)
class Work:
    """Something in a stream, and what it comes after."""

    do: Callable[[], Any]
    after: list[Work]
    touches: list[Span] = field(default_factory=list[Span])
    is_done: bool = False

    def finish(self) -> None:
        if not self.is_done:
            self.is_done = True
            for other in self.after:
                other.finish()
            self.do()


class Driver:
    """The module `cuda.bindings.driver`, of one GPU, or of as many as `gpus` says."""

    CUresult = Result
    CUstream_flags, CUevent_flags = Names("CUstream_flags"), Names("CUevent_flags")
    CUmemPool_attribute = Names("CUmemPool_attribute")
    CUmemLocationType = Names("CUmemLocationType")
    CUmemAllocationType = Names("CUmemAllocationType")
    CUmemAllocationHandleType = Names("CUmemAllocationHandleType")
    CUmemLocation, CUmemPoolProps = Config, Config
    CUdevice_attribute = Names("CUdevice_attribute")
    CUfunction_attribute = Names("CUfunction_attribute")
    CUpointer_attribute = Names("CUpointer_attribute")
    CUlaunchConfig, CUlaunchAttribute = Config, Attribute
    CUlaunchAttributeID = Names("CUlaunchAttributeID")
    CUtensorMapDataType = Names("CUtensorMapDataType")
    CUtensorMapInterleave = Names("CUtensorMapInterleave")
    CUtensorMapSwizzle = Names("CUtensorMapSwizzle")
    CUtensorMapL2promotion = Names("CUtensorMapL2promotion")
    CUtensorMapFloatOOBfill = Names("CUtensorMapFloatOOBfill")
    CU_MEMHOSTALLOC_PORTABLE = 1
    cuuint64_t = cuuint32_t = int

    def __init__(self) -> None:
        self.streams: dict[int, list[Work]] = defaultdict(list)  # the last work of each
        self.events: dict[int, Work] = {}
        self.memory: dict[int, Any] = {}
        self.gpus, self.version = 1, 13_000
        self.owners: dict[int, int] = {}
        """The GPU of memory, by its address."""
        self.pinned: set[int] = set()
        self.room = 1 << 30
        self.calls: list[str] = []
        self.attributes = dict(HOPPER)
        self.function = dict(FUNCTION)
        self.asked: list[tuple[Any, ...]] = []
        self.held = {"cubes": 8, "clusters": 0, "best": 256}
        self.faults: list[str] = []
        self.launched: list[tuple[str, int]] = []
        self.launches: list[Launch] = []
        self.parameters: dict[str, int] = {}
        """How many a kernel has, whose launches are written down,"""
        self.maps: dict[str, tuple[int, ...]] = {}
        """and which of them are tensor maps, whose words are, behind those of all."""
        self.refused: Result | None = None
        self.native = 0
        """Calls of native code."""
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.context = 0
        self.contexts = {PRIMARY: (0, 1)}
        self.loaded: list[int] = []
        self.destroyed: list[int] = []
        self.flags: dict[int, str] = {}
        self.pools: dict[int, dict[str, int]] = {DEFAULT_POOL: {}}
        self.lost: Result | None = None
        self._all: list[Work] = []
        self._functions: dict[int, Function] = {}
        self._addresses: dict[str, Any] = {}
        self._handles = count(1000)

    def enqueue(self, stream: int, do: Callable[[], Any], *touches: Span) -> Work:
        """Put work at the end of a stream; tests put what stands for kernels."""
        work = Work(do, self.streams[stream], list(touches))
        self.streams[stream] = [work]
        self._all.append(work)
        return work

    def under_way(self) -> int:
        """How much work is not done yet."""
        return sum(not work.is_done for work in self._all)

    # Contexts

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDriverGetVersion(self) -> Any:
        return OK, self.version

    def cuDeviceGetCount(self) -> Any:
        return OK, self.gpus

    def cuDeviceGet(self, ordinal: int) -> Any:
        return OK, ordinal

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        context = PRIMARY + 1000 * device
        self.contexts.setdefault(context, (device, 1 + 1000 * device))
        return OK, context

    def cuCtxGetCurrent(self) -> Any:
        return OK, self.context

    def cuCtxSetCurrent(self, context: int) -> Any:
        assert context == 0 or context in self.contexts, "a context that is destroyed"
        self.context = context
        return (OK,)

    def cuCtxGetDevice(self) -> Any:
        return OK, self.contexts[self.context][0]

    def cuCtxGetId(self, context: int) -> Any:
        return OK, self.contexts[context][1]

    # What native code calls

    def cuGetProcAddress(self, symbol: bytes, version: int, flags: int) -> Any:
        name = symbol.decode()
        if name not in _NATIVE:
            return Result.CUDA_ERROR_INVALID_VALUE, 0, 0
        if name not in self._addresses:
            made = ctypes.CFUNCTYPE(ctypes.c_int, *_NATIVE[name])
            self._addresses[name] = made(getattr(self, f"_{name}"))
        return OK, ctypes.cast(self._addresses[name], ctypes.c_void_p).value, 0

    def _cuLaunchKernelEx(self, config: int, function: int, places: int, extra: int) -> int:
        self.native += 1
        dims = list((_U32 * 7).from_address(config))
        stream, attributes, count = (_U64 * 3).from_address(config + 32)
        if count:
            assert count == 1 and _words_of(attributes) == [OVERLAPS, 0, 1]
        kernel = self._functions[function]
        return int(self.launch(kernel, dims, stream, places, extra, count > 0)[0])

    def _cuCtxGetCurrent(self, place: int) -> int:
        _U64.from_address(place).value = self.context
        return OK

    def _cuCtxSetCurrent(self, context: int) -> int:
        return int(self.cuCtxSetCurrent(context)[0])

    def _cuCtxGetDevice(self, place: int) -> int:
        status, device = self.cuCtxGetDevice()
        ctypes.c_int32.from_address(place).value = device
        return int(status)

    def _cuTensorMapReplaceAddress(self, place: int, address: int) -> int:
        assert place % 64 == 0
        _U64.from_address(place).value = address
        return OK

    def cuTensorMapEncodeTiled(
        self,
        kind: str,
        rank: int,
        address: int,
        shape: list[int],
        strides: list[int],
        box: list[int],
        steps: list[int],
        interleave: str,
        swizzle: str,
        promotion: str,
        fill: str,
    ) -> Any:
        """A map that begins with the address of its array, behind which its layout stands."""
        assert len(shape) == len(box) == len(steps) == rank
        words = [address, hash((kind, swizzle)) & 0xFFFF, *shape, *strides, *box]
        found = Config()
        vars(found)["opaque"] = words + [0] * (16 - len(words))
        return OK, found

    # Kernels: what tests put into `kernels`

    def cuDeviceGetAttribute(self, name: str, device: int) -> Any:
        return OK, self.attributes[name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuModuleLoadData(self, cubin: bytes) -> Any:
        self.loaded.append(self.contexts[self.context][1])
        return OK, len(cubin)

    def cuLaunchKernelEx(self, config: Config, function: Function, places: int, extra: int) -> Any:
        asked = vars(config)
        assert asked["numAttrs"] == len(asked["attrs"])
        for attribute in asked["attrs"]:
            assert _words_of(attribute.getPtr()) == [OVERLAPS, 0, 1]
        names = [f"{what}Dim{axis}" for what in ("grid", "block") for axis in "XYZ"]
        dims = [asked[name] for name in (*names, "sharedMemBytes")]
        overlaps = bool(asked["attrs"])
        return self.launch(function, dims, asked["hStream"], places, extra, overlaps)

    def launch(
        self,
        function: Function,
        dims: Sequence[int],
        stream: int,
        parameters: int,
        extra: int,
        overlaps: bool,
    ) -> Any:
        """`dims`: of the grid and of a cube, then bytes of shared memory."""
        assert self.context in self.contexts and extra == 0
        if self.refused is not None:
            return (self.refused,)
        name = function.name
        assert function.context == self.context, "a kernel of another context"
        self.launched.append((name, stream))
        places = (_U64 * self.parameters.get(name, 1)).from_address(parameters)
        words: tuple[Any, ...] = tuple(_U64.from_address(place).value for place in places)
        maps = [(_U64 * 16).from_address(places[k]) for k in self.maps.get(name, ())]
        words += tuple(tuple(each) for each in maps)
        if name in self.parameters:
            grid, dim = (tuple(dims[k : k + 3]) for k in (0, 3))
            self.launches.append(Launch(name, grid, dim, dims[6], stream, words, overlaps))
        body = self.kernels.get(name, lambda *words: None)
        self.enqueue(stream, lambda: body(*words))
        return (OK,)

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        found = Function(next(self._handles))
        found.name, found.context = name.decode(), self.context
        self._functions[found] = found
        return OK, found

    def cuFuncSetAttribute(self, function: Function, name: str, value: int) -> Any:
        return (OK,)

    def cuFuncGetAttribute(self, name: str, function: Function) -> Any:
        return OK, self.function.get(name.removeprefix("CU_FUNC_ATTRIBUTE_"), 0)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, function: Function, units: int, shared: int
    ) -> Any:
        self.asked.append((function.name, units, shared))
        return OK, self.held["cubes"]

    def cuOccupancyMaxPotentialBlockSize(
        self, function: Function, shared_of: None, shared: int, limit: int
    ) -> Any:
        assert shared_of is None and limit == 0
        return OK, 132, self.held["best"]

    def cuOccupancyMaxActiveClusters(self, function: Function, config: Config) -> Any:
        self.asked.append(tuple(vars(config).values()))
        return OK, self.held["clusters"]

    # Memory

    def cuMemPoolCreate(self, wanted: Config) -> Any:
        assert vars(wanted)["location"].id == self.contexts[self.context][0]
        handle = next(self._handles)
        self.pools[handle] = {}
        return OK, handle

    def cuMemPoolSetAttribute(self, pool: int, name: str, value: int) -> Any:
        self.pools[pool][name] = value
        return (OK,)

    def cuMemPoolTrimTo(self, pool: int, keep: int) -> Any:
        self.pools[pool]["trimmed to"] = keep
        return (OK,)

    def cuMemAllocFromPoolAsync(self, nbytes: int, pool: int, stream: int) -> Any:
        assert pool in self.pools and pool != DEFAULT_POOL
        if self.lost is not None:
            return self.lost, 0
        self.enqueue(stream, lambda: None)
        return self._new(nbytes)

    def cuMemFreeAsync(self, address: int, stream: int) -> Any:
        self.enqueue(stream, lambda: self._free(address))
        return (OK,)

    def cuMemGetInfo(self) -> Any:
        return OK, self.room, 1 << 31

    def cuPointerGetAttribute(self, name: str, address: int) -> Any:
        return OK, 0  # as cuda-bindings 13.3 answers for all memory

    def _cuPointerGetAttribute(self, place: int, attribute: int, address: int) -> int:
        assert attribute == 9 and self.context, "the ordinal of the device"
        low = max(start for start in self.memory if start <= address)
        ctypes.c_int.from_address(place).value = self.owners[low]
        return OK

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> Any:
        assert nbytes > 0 and flags == self.CU_MEMHOSTALLOC_PORTABLE
        status, address = self._new(nbytes)
        if status is OK:
            self.pinned.add(address)
        return status, address

    def cuMemFreeHost(self, address: int) -> Any:
        self.pinned.remove(address)
        end = address + len(self.memory[address])
        for work in self._all:
            reaches = any(low < end and address < high for low, high in work.touches)
            if reaches and not work.is_done:
                self.faults.append("host memory was freed under a copy")
        self._free(address)
        return (OK,)

    def _new(self, nbytes: int) -> Any:
        if nbytes > self.room:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        held = ctypes.create_string_buffer(b"\xa5" * nbytes, nbytes)
        self.memory[ctypes.addressof(held)] = held
        self.owners[ctypes.addressof(held)] = self.contexts.get(self.context, (0,))[0]
        return OK, ctypes.addressof(held)

    def _free(self, address: int) -> None:
        held = self.memory[address]  # kept, so that no other memory has its address
        ctypes.memset(held, 0xEE, len(held))

    def cuMemcpyAsync(self, target: int, source: int, nbytes: int, stream: int) -> Any:
        for address in (target, source):
            low = max(start for start in self.memory if start <= address)
            assert address + nbytes <= low + len(self.memory[low]), "neither a device's nor pinned"
        return self._copied("copy", target, source, nbytes, stream)

    def cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> Any:
        return self._copied("upload", target, source, nbytes, stream)

    def cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: int) -> Any:
        return self._copied("download", target, source, nbytes, stream)

    def _copied(self, call: str, target: int, source: int, nbytes: int, stream: int) -> Any:
        self.calls.append(call)
        spans = (target, target + nbytes), (source, source + nbytes)
        self.enqueue(stream, lambda: ctypes.memmove(target, source, nbytes), *spans)
        return (OK,)

    # Streams and events

    def cuStreamCreate(self, flags: str) -> Any:
        handle = next(self._handles)
        self.flags[handle] = flags
        return OK, handle

    def cuStreamDestroy(self, stream: int) -> Any:
        self.destroyed.append(stream)
        return (OK,)

    def cuEventCreate(self, flags: str) -> Any:
        handle = next(self._handles)
        self.flags[handle] = flags
        return OK, handle

    def cuEventQuery(self, event: int) -> Any:
        return (OK if self.events[event].is_done else Result.CUDA_ERROR_NOT_READY,)

    def cuEventDestroy(self, event: int) -> Any:
        return (OK,)

    def cuEventRecord(self, event: int, stream: int) -> Any:
        self.events[event] = self.enqueue(stream, lambda: None)
        return (OK,)

    def cuEventElapsedTime(self, start: int, end: int) -> Any:
        assert all("DEFAULT" in self.flags[e] for e in (start, end)), "events without times"
        return OK, 0.25 if self.events[end].is_done else -1.0

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        self.enqueue(stream, lambda: None).after.append(self.events[event])
        return (OK,)

    def cuEventSynchronize(self, event: int) -> Any:
        self.events[event].finish()
        return (OK,)

    def cuStreamSynchronize(self, stream: int) -> Any:
        if self.lost is not None:
            return (self.lost,)
        for work in self.streams[stream]:
            work.finish()
        return (OK,)

    def cuCtxSynchronize(self) -> Any:
        if self.lost is not None:
            return (self.lost,)
        for stream in list(self.streams):
            self.cuStreamSynchronize(stream)
        return (OK,)


@contextmanager
def installed() -> Iterator[Driver]:
    """`cuda:0` is this module's device."""
    fake = Driver()
    forget_devices(frozen_keepers())
    gc.collect()  # what they kept, and what died earlier, is freed by the driver that it came from
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_driver, "import_module", lambda name: fake)
        patch.setitem(config._chosen, "self_test", False)  # it runs no kernels
        patch.setattr(cuda_device.CudaDevice, "free", _free_and_spoil(fake))
        _forget()
        yield fake
        forget_devices(frozen_keepers())  # what they keep is freed by this driver
        gc.collect()
        assert not fake.faults, fake.faults
    _forget()


def _free_and_spoil(fake: Driver) -> Callable[[Any, int, int], None]:
    """Memory that is kept is overwritten too, in the device's own queue: who uses it out of order
    sees that."""
    free = cuda_device.CudaDevice.free

    def spoil(self: Any, address: int, nbytes: int) -> None:
        size = len(fake.memory[address])
        fake.enqueue(self.stream(None), lambda: ctypes.memset(address, 0xEE, size) and None)
        free(self, address, nbytes)

    return spoil


def _forget() -> None:
    for cached in (cuda_driver.driver, cuda_device.count, cuda_device.make):
        cached.cache_clear()
    forget_devices()
