"""Metal's objects as pyobjc gives them, strict about the order of calls; kernels run on this CPU.

Command buffers run when somebody waits, so that who forgets to wait sees old memory. What Metal's
validation layer refuses is an AssertionError here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import pytest

from cubepy.runtimes.metal import device as metal_device
from cubepy.runtimes.metal import platform
from tests.compilers.c import metal_text
from tests.devices.forget import forget_devices


@dataclass
class Size:
    width: int
    height: int
    depth: int

    def __iter__(self) -> Iterator[int]:
        return iter((self.width, self.height, self.depth))


class NSError:
    def __init__(self, words: str) -> None:
        self._words = words

    def localizedDescription(self) -> str:
        return self._words


class Contents:
    def __init__(self, memory: ctypes.Array[ctypes.c_char]) -> None:
        self._memory = memory

    def as_buffer(self, count: int) -> memoryview:
        assert count <= len(self._memory)
        return memoryview(self._memory).cast("B")[:count]


class Buffer:
    def __init__(self, nbytes: int) -> None:
        assert nbytes > 0, "Metal refuses buffers of no bytes"
        self._raw = ctypes.create_string_buffer(nbytes + 4096)
        start = -ctypes.addressof(self._raw) % 4096
        self.memory = (ctypes.c_char * nbytes).from_buffer(self._raw, start)
        ctypes.memset(self.memory, 0xA5, nbytes)

    def contents(self) -> Contents:
        return Contents(self.memory)

    def length(self) -> int:
        return len(self.memory)


class Options:
    settings: dict[str, int]

    @classmethod
    def alloc(cls) -> type[Options]:
        return cls

    @classmethod
    def init(cls) -> Options:
        found = cls()
        found.settings = {}
        return found

    def setLanguageVersion_(self, version: int) -> None:
        self.settings["language"] = version

    def setMathMode_(self, mode: int) -> None:
        self.settings["math"] = mode


class OlderOptions(Options):
    """Before macOS 15 there was no math mode."""

    setMathMode_ = property()  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def setFastMathEnabled_(self, enabled: bool) -> None:
        self.settings["fast"] = int(enabled)


@dataclass
class Pipeline:
    run: Any

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return 1024


@dataclass
class Function:
    library: Any
    name: str


class Library:
    def __init__(self, text: str) -> None:
        self._text = text

    def newFunctionWithName_(self, name: str) -> Any:
        return metal_text.build(metal_text.as_cpp(self._text, name)).launch


@dataclass
class Encoder:
    calls: list[tuple[Any, ...]]
    pipeline: Any = None
    arguments: dict[int, Any] = field(default_factory=dict[int, Any])
    work: list[Any] = field(default_factory=list[Any])
    ended: bool = False

    def setComputePipelineState_(self, pipeline: Pipeline) -> None:
        self.calls.append(("pipeline",))
        self.pipeline = pipeline

    def setBuffer_offset_atIndex_(self, buffer: Buffer | None, offset: int, index: int) -> None:
        assert 0 <= index < 31 and (buffer is None or offset < buffer.length())
        self.calls.append(("buffer", index, offset))
        self.arguments[index] = (buffer, offset)

    def setBytes_length_atIndex_(self, held: bytes, length: int, index: int) -> None:
        assert 0 <= index < 31 and 0 < length <= 4096 and len(held) == length
        self.calls.append(("bytes", index, length))
        copy = Buffer(length)
        ctypes.memmove(copy.memory, held, length)
        self.arguments[index] = (copy, 0)

    def dispatchThreadgroups_threadsPerThreadgroup_(self, counts: Size, dims: Size) -> None:
        assert self.pipeline is not None, "no pipeline is set"
        assert prod(dims) <= self.pipeline.maxTotalThreadsPerThreadgroup() and prod(counts) > 0
        assert sorted(self.arguments) == list(range(len(self.arguments))), "an argument is not set"
        self.calls.append(("dispatch", tuple(counts), tuple(dims)))
        self.work.append((self.pipeline.run, dict(self.arguments), tuple(counts), tuple(dims)))

    def endEncoding(self) -> None:
        self.ended = True


class CommandBuffer:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.encoder = Encoder(queue.calls)
        self._status = 0

    def computeCommandEncoder(self) -> Encoder:
        return self.encoder

    def commit(self) -> None:
        assert self.encoder.ended, "the encoder is still open"
        self._queue.calls.append(("commit",))
        self._queue.pending.append(self)

    def waitUntilCompleted(self) -> None:
        assert self._status or self in self._queue.pending, "it was not committed"
        while self._queue.pending and not self._status:
            self._queue.pending.pop(0).run()

    def run(self) -> None:
        for function, arguments, counts, dims in self.encoder.work:
            pointers = [
                0 if buffer is None else ctypes.addressof(buffer.memory) + offset
                for _, (buffer, offset) in sorted(arguments.items())
            ]
            metal_text.launch(function, pointers, counts, dims)
        self._status = 5 if self._queue.fails else 4

    def status(self) -> int:
        return self._status

    def error(self) -> NSError | None:
        return NSError("Caused GPU Address Fault Error") if self._status == 5 else None


class Queue:
    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self.calls = calls
        self.pending: list[CommandBuffer] = []
        self.fails = False

    def commandBuffer(self) -> CommandBuffer:
        return CommandBuffer(self)


class Gpu:
    """One GPU; `calls` is the calls of its encoders."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.options: list[dict[str, int]] = []
        self.queue = Queue(self.calls)
        self.room = 1 << 30

    def registryID(self) -> int:
        return 7

    def name(self) -> str:
        return "Apple M0"

    def maxThreadsPerThreadgroup(self) -> Size:
        return Size(1024, 1024, 1024)

    def maxThreadgroupMemoryLength(self) -> int:
        return 32 << 10

    def recommendedMaxWorkingSetSize(self) -> int:
        return 8 << 30

    def currentAllocatedSize(self) -> int:
        return 1 << 20

    def newCommandQueue(self) -> Queue:
        return self.queue

    def newBufferWithLength_options_(self, nbytes: int, options: int) -> Buffer | None:
        assert options == 0
        return Buffer(nbytes) if nbytes <= self.room else None

    def newBufferWithBytes_length_options_(self, held: bytes, length: int, options: int) -> Buffer:
        assert options == 0 and len(held) == length
        buffer = Buffer(length)
        ctypes.memmove(buffer.memory, held, length)
        return buffer

    def newLibraryWithSource_options_error_(
        self, text: str, options: Options, error: None
    ) -> tuple[Library | None, NSError | None]:
        self.options.append(options.settings)
        if "kernel" not in text:
            return None, NSError("program_source:1:1: error: unknown type name 'kernal'")
        return Library(text), None

    def newComputePipelineStateWithFunction_error_(
        self, function: Any, error: None
    ) -> tuple[Pipeline, None]:
        return Pipeline(function), None


class Metal:
    """The module."""

    MTLCompileOptions: type[Options] = Options
    MTLSizeMake = Size

    def __init__(self) -> None:
        self.gpu = Gpu()

    def MTLCreateSystemDefaultDevice(self) -> Gpu:
        return self.gpu

    def MTLCopyAllDevices(self) -> list[Gpu]:
        return [self.gpu]


@contextmanager
def installed() -> Iterator[Metal]:
    """`metal:0` is this module's device."""
    fake = Metal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "api", lambda: fake)
        patch.setattr(metal_device, "api", lambda: fake)
        _forget()
        yield fake
    _forget()


def _forget() -> None:
    for cached in (platform.found_devices, metal_device.make):
        cached.cache_clear()
    forget_devices()
