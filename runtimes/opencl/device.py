"""OpenCL devices. Memory is shared virtual memory, so that arrays are addresses; kernels run in one
queue in order, and a launch returns at once."""

from __future__ import annotations

import ctypes
import warnings
from dataclasses import replace
from threading import Lock, RLock
from typing import Any, ClassVar
from weakref import WeakSet

from cubepy.artifact import Artifact
from cubepy.errors import fail
from cubepy.forks import at_fork
from cubepy.ir.types import find_dtype
from cubepy.lazy import cached, cached_property
from cubepy.runtimes.base import DeviceRecord, MemoryUse, NativeCode, OneOrder, Properties
from cubepy.runtimes.native.host import host_cpu
from cubepy.runtimes.opencl.launches import NativeWords
from cubepy.runtimes.opencl.platform import api, found_devices
from cubepy.runtimes.remember import remembered
from cubepy.targets import Target, opencl_target

STANDARD = "-cl-std=CL1.2"
NEWER = {2: "-cl-std=CL2.0", 3: "-cl-std=CL3.0"}
"""The language by the version of the device: sub-groups and fences of a device came after 1.2."""
STORAGE_FENCE = b"storage_fence"
"""The helper that needs such a fence."""
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
"""Where the device can; the others are within the bounds of OpenCL."""
ALIGNMENT = 128
"""Bytes; the largest that OpenCL promises (that of a long16)."""
DYING_BYTES = 64 << 20
"""Freed memory that may wait for the queue."""
_EXTENSIONS = {
    "cl_khr_fp64": "fp64",
    "cl_khr_fp16": "fp16",
    "cl_khr_int64_extended_atomics": "int64_atomics",
}

_SUBGROUPS = {
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_intel_required_subgroup_size",
}
"""What planes need: shuffles, votes, and that a kernel can ask for the size of its sub-groups."""
_SUBGROUP_SIZE = 16
"""A size that all devices have where kernels can ask for one."""


class Dying:
    """Memory that died, which enqueued kernels may still use.

    Arrays die anywhere, also inside the garbage collector while the lock is held: it is reentrant.
    """

    _lock: ClassVar[RLock] = RLock()  # one for all, for the sake of fork

    def __init__(self) -> None:
        self._held: list[Any] = []

    def add(self, held: Any) -> None:
        """Keep memory until it is taken."""
        with self._lock:
            self._held.append(held)

    def take(self) -> list[Any]:
        """All that died so far; it may be freed once the work that was enqueued is done."""
        with self._lock:
            found, self._held = self._held, []
        return found

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        with self._lock:
            return sum(held.size for held in self._held)


at_fork(Dying._lock)


class Allocation:
    """Shared virtual memory; freed at the first wait after its death: kernels may use it still."""

    __slots__ = ("__weakref__", "_held", "address", "dying", "nbytes")

    def __init__(self, context: Any, nbytes: int, dying: Dying) -> None:
        cl = api()
        flags = cl.svm_mem_flags.READ_WRITE
        self._held = cl.SVMAllocation(context, max(nbytes, 1), ALIGNMENT, flags)
        self.dying, self.nbytes = dying, nbytes
        self.address: int = self._held.svm_ptr

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held is not None:
            self.dying.add(held)


class Code:
    """A built kernel. Arguments are part of the kernel object: one launch at a time sets them."""

    def __init__(self, program: Any, artifact: Artifact) -> None:
        self._program = program  # what Intel's runtime says is the program of a kernel is none
        self.entry = artifact.entry
        self.kernel = self.new_kernel()
        self.dim = artifact.cube_dim
        self.has_faults = bool(artifact.faults)
        # bytes of each argument, 0 for addresses
        self.sizes = [0 if slot.kind.is_address else _size(slot.dtype) for slot in artifact.slots]
        self.lock = Lock()

    def new_kernel(self) -> Any:
        """A kernel object with arguments of its own."""
        return api().Kernel(self._program, self.entry)

    def set_arguments(self, block: Any) -> None:
        """Pointers for data, bytes for numbers, then the fault record."""
        for k, size in enumerate(self.sizes):
            word = int(block[k])
            self.kernel.set_arg(k, _pointer(word) if size == 0 else _bytes(word, size))
        if self.has_faults:
            self.kernel.set_arg(len(self.sizes), _pointer(int(block[len(self.sizes) + 3])))


def _built(program: Any, options: list[str]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", api().CompilerWarning)  # some say that all went well
        return program.build(options=options, cache_dir=False)


def _binary_of(program: Any) -> bytes:
    """What the driver made of a program; empty where it gives none."""
    try:
        found = program.get_info(api().program_info.BINARIES)
    except api().Error:
        return b""
    return bytes(found[0]) if found and found[0] else b""


def _size(dtype: str) -> int:
    """Bytes of a number."""
    found = find_dtype(dtype)
    assert found is not None
    return found.itemsize


def _bytes(word: int, size: int) -> bytes:
    return (word & (256**size - 1)).to_bytes(size, "little")


def _pointer(address: int) -> Any:
    return _view(address, 1) if address else None


def _view(address: int, nbytes: int) -> Any:
    return api().SVM((ctypes.c_char * nbytes).from_address(address))


class OpenclDevice(OneOrder):
    """See `runtimes.base.Device`."""

    uses_host_memory = False

    def __init__(self, number: int, device: Any) -> None:
        self.name = f"opencl:{number}"
        self._device = device
        self._dying = Dying()
        self._allocations = WeakSet[Allocation]()
        self._allocating = RLock()

    @cached_property
    def _context(self) -> Any:
        return api().Context([self._device])

    @cached_property
    def _queue(self) -> Any:
        return api().CommandQueue(self._context)

    @cached_property
    def target(self) -> Target:
        """What this device has of what kernels use."""
        extensions = set(self._device.extensions.split())
        features = {name for extension, name in _EXTENSIONS.items() if extension in extensions}
        has_planes = extensions >= _SUBGROUPS
        return replace(
            opencl_target(""),
            features=frozenset(features | ({"subgroups"} if has_planes else set())),
            plane_dim=_SUBGROUP_SIZE if has_planes else 1,
            shared_bytes=self._device.local_mem_size,
            cache_bytes=self._device.global_mem_cache_size or opencl_target("").cache_bytes,
            max_cube_dim=self._device.max_work_group_size,
        )

    @cached_property
    def properties(self) -> Properties:
        """The device's and the platform's name, its compute units and its memory."""
        device = self._device
        name = f"{device.name.strip()} ({device.platform.name.strip()})"
        return Properties(name, device.max_compute_units, device.global_mem_size)

    # Launches

    def load(self, artifact: Artifact) -> Code:
        """Build the source for this device, or take what its driver made of it before; E508 with
        the driver's words where it refuses."""
        cl = api()
        options = [self._standard(artifact), *self._rounded(cl), *self._careful(artifact), "-w"]
        built: list[Any] = []

        def make() -> bytes:
            built.append(self._from_source(artifact, options))
            return _binary_of(built[0])

        text = "\n".join([*self._identity, *options, artifact.code.decode()])
        binary = remembered(artifact.entry, text, make)
        program = built[0] if built else self._from_binary(binary, options)
        if program is None:  # the driver has changed without a new version
            program = self._from_source(artifact, options)
        return Code(program, artifact)

    @cached_property
    def _identity(self) -> tuple[str, ...]:
        """What a binary depends on besides its source and options."""
        device, platform = self._device, self._device.platform
        found = (platform.name, platform.version, device.vendor, device.name, device.version)
        is_host = device.type & api().device_type.CPU
        own = (repr(host_cpu()),) if is_host else ()
        return (*found, device.driver_version, *own)

    def _from_source(self, artifact: Artifact, options: list[str]) -> Any:
        cl = api()
        try:
            return _built(cl.Program(self._context, artifact.code.decode()), options)
        except cl.Error as error:
            first = next((line for line in str(error).splitlines() if "error" in line), str(error))
            hint = "this is a defect of CubePy: please report it with CUBEPY_DUMP=source"
            raise fail(
                "E508", device=self.name, call="the build", reason=first, suggestion=hint
            ) from None

    def _from_binary(self, binary: bytes, options: list[str]) -> Any:
        """A program of the driver's own binary; None where it does not take it any more."""
        cl = api()
        try:
            return _built(cl.Program(self._context, [self._device], [binary]), options)
        except cl.Error:
            return None

    def _standard(self, artifact: Artifact) -> str:
        """The language: the oldest that has what the source uses, where the device can choose."""
        if "subgroups" in self.target.features:
            return NEWER[3]
        if STORAGE_FENCE in artifact.code:
            return NEWER.get(int(self._device.version.split()[1].split(".")[0]), STANDARD)
        return STANDARD

    def _rounded(self, cl: Any) -> tuple[str, ...]:
        can = self._device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        return (ROUNDED,) if can else ()

    def _careful(self, artifact: Artifact) -> tuple[str, ...]:
        """Intel's runtime for CPUs (2026.2) optimises loops with barriers wrongly: where one sets a
        local to what it does not change, all units may get one unit's value."""
        is_wrong = self._device.platform.name.strip() == "Intel(R) OpenCL"
        return ("-cl-opt-disable",) if is_wrong and artifact.has_barrier_in_loop else ()

    def launch(
        self, loaded: Code, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Enqueue the cubes."""
        if not count:
            return
        first = len(loaded.sizes)
        counts = block[first : first + 3]
        units = [int(n) * d for n, d in zip(counts, loaded.dim, strict=True)]
        with loaded.lock:
            loaded.set_arguments(block)
            self._do("the launch", api().enqueue_nd_range_kernel, loaded.kernel, units, loaded.dim)

    @cached_property
    def _native(self) -> NativeWords:
        return NativeWords(self._queue.int_ptr, self._dying)

    def native_code(self, loaded: Code) -> NativeCode | None:
        """What native code needs to launch, with a kernel object of its own; None if it can't."""
        words = self._native
        if not words.address or loaded.has_faults:
            return None
        kernel = loaded.new_kernel()

        def refuse(status: int, _kernel: Any = kernel) -> None:  # which lives as long
            given = f"status {status} of a launch of {loaded.entry}"
            raise fail("E508", device=self.name, call="the launch", reason=given, suggestion="")

        sizes = tuple(loaded.sizes)
        own = words.address, 0, kernel.int_ptr, 0, loaded.dim, 0, refuse, 0
        return NativeCode(*own, Allocation, sizes)

    def _do(self, call: str, function: Any, *arguments: Any) -> None:
        cl = api()
        try:
            function(self._queue, *arguments)
        except cl.Error as error:
            raise fail(
                "E508", device=self.name, call=call, reason=str(error), suggestion=""
            ) from None

    def grain(self, count: int, work: int) -> int:
        """The driver spreads cubes."""
        return 1

    def fault_record(self) -> DeviceRecord:
        """Zeroed memory of the device."""
        return DeviceRecord(self)

    def synchronize(self, queue: int | None = None) -> None:
        """Wait for all that was enqueued, and free what died."""
        api()  # the child of a fork would wait for ever
        dead = self._dying.take()
        try:
            self._queue.finish()
        except BaseException:
            for held in dead:
                self._dying.add(held)
            raise
        dead.clear()

    @property
    def driver_version(self) -> str:
        """Of the device's driver and of its platform."""
        return f"{self._device.driver_version}, {self._device.platform.version}"

    # Memory

    def allocate(self, nbytes: int) -> Allocation:
        """Shared virtual memory; E504 where there is none."""
        cl = api()
        if self._dying.nbytes > DYING_BYTES:
            self.synchronize()
        try:
            made = Allocation(self._context, nbytes, self._dying)
        except (cl.MemoryError, cl.RuntimeError):
            raise fail("E504", nbytes=nbytes, device=self.name) from None
        with self._allocating:
            self._allocations.add(made)
        return made

    def allocation_at(self, address: int) -> tuple[int, int] | None:
        """From where to where the memory lies that an address is in; None if there is none."""
        with self._allocating:  # another thread's would change the set under the loop
            known = list(self._allocations)
        for found in known:
            if found.address <= address < found.address + max(1, found.nbytes):
                return found.address, found.address + found.nbytes
        return None

    def upload(self, address: int, host: int, nbytes: int, queue: int | None = None) -> None:
        """Copy from host memory and wait."""
        self.copy(address, host, nbytes)

    def download(self, host: int, address: int, nbytes: int, queue: int | None = None) -> None:
        """Copy to host memory and wait."""
        self.copy(host, address, nbytes)

    def copy(self, target: int, source: int, nbytes: int, queue: int | None = None) -> None:
        """Copy between memory of the device or the host, and wait."""
        places = _view(target, nbytes), _view(source, nbytes)
        self._do("a copy", api().enqueue_copy, *places)
        self.synchronize()

    def memory(self) -> MemoryUse:
        """All of the memory; OpenCL does not report what is free."""
        return MemoryUse(self._device.global_mem_size, 0)


def count() -> int:
    """How many devices there are; `DeviceError` E507 where something is missing."""
    return len(found_devices())


@cached
def make(number: int) -> OpenclDevice:
    """The device of a number."""
    return OpenclDevice(number, found_devices()[number])
