"""Devices for tests that run the text of C dialects on this CPU.

`pocl`: OpenCL C by PoCL, which takes any host address as shared virtual memory. `oclgrind`: the
same in a simulator that reports what kernels may not do; see `oclgrind.py`. `metal_text`: Metal as
C++, compiled by clang against `metal_shim.h`. Kernels reach them by
`configure(device="metal_text")`, so that a suite for devices runs on them unchanged.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.artifact import Artifact
from cubepy.errors import DeviceError
from cubepy.ir.types import find_dtype
from cubepy.runtimes import registry
from cubepy.runtimes.base import Allocation, Device, HostMemory, MemoryUse, Properties
from cubepy.runtimes.opencl.device import STANDARD
from cubepy.runtimes.opencl.platform import found_devices
from cubepy.runtimes.registry import find_device
from cubepy.targets import Target, parse_target
from tests.compilers.c import metal_text, oclgrind
from tests.compilers.c.oclgrind import OclgrindDevice
from tests.optional import leave_out, require_package


class _TextDevice(HostMemory):
    """What both share: `runtimes.base.Device` without the ways to load and launch."""

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self.properties = Properties(f"{name}, for tests", 1, 0)

    def grain(self, count: int, work: int) -> int:
        """Cubes run one after the other, as far as a launch can see."""
        return max(1, count)

    def allocate(self, nbytes: int) -> Allocation:
        """Host memory."""
        return find_device("cpu").allocate(nbytes)

    def memory(self) -> MemoryUse:
        """Not reported."""
        return MemoryUse(0, 0)


class PoclDevice(_TextDevice):
    """OpenCL C on PoCL."""

    def __init__(self) -> None:
        super().__init__("pocl", parse_target("opencl"))

    def load(self, artifact: Artifact) -> tuple[Artifact, Any]:
        """Build the program; `test_random` and the device `opencl:0` have it optimised as well."""
        import pyopencl as cl

        source = artifact.code.decode()
        program = cl.Program(pocl_queue().context, source).build(
            options=[STANDARD, "-cl-opt-disable", "-w"]
        )
        return artifact, cl.Kernel(program, artifact.entry)

    def launch(
        self, loaded: tuple[Artifact, Any], block: Any, count: int, grain: int, queue: Any = None
    ) -> None:
        """Run all cubes; the block's words become arguments one by one."""
        import pyopencl as cl

        artifact, kernel = loaded
        words = list(block)
        slots = artifact.slots
        grid = words[len(slots) : len(slots) + 3]
        passed = [_argument(slot, word) for slot, word in zip(slots, words, strict=False)]
        if artifact.faults:
            passed.append(_memory(words[-1]))
        if 0 in grid:
            return
        kernel.set_args(*passed)
        size = tuple(n * d for n, d in zip(grid, artifact.cube_dim, strict=True))
        cl.enqueue_nd_range_kernel(pocl_queue(), kernel, size, artifact.cube_dim)
        pocl_queue().finish()


@lru_cache(maxsize=1)
def pocl_queue() -> Any:
    """A queue on PoCL's device; the test is skipped where there is none."""
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    cl = require_package("pyopencl")
    require_package("pocl_binary_distribution")
    named = [p for p in cl.get_platforms() if "Portable" in p.name]
    assert named, "pocl-binary-distribution is installed, but its platform does not show"
    try:
        usable = [d for d in found_devices() if d.platform in named]
    except DeviceError:
        usable = []
    if not usable:
        leave_out("pocl_for_this_cpu")  # CONTRIBUTING.md names the package that has one
    return cl.CommandQueue(cl.Context(usable[:1]))


def _argument(slot: Any, word: int) -> Any:
    """An address as shared virtual memory; a number in the bytes of its type."""
    if slot.kind.is_address:
        return _memory(word)
    dtype = find_dtype(slot.dtype)
    size = 8 if dtype is None else dtype.itemsize
    return np.array([word], np.uint64).view(f"u{size}")[0]


def _memory(address: int) -> Any:
    """Any host address. PoCL passes it on as it is; an empty array has none that counts."""
    import pyopencl as cl

    first = (ctypes.c_char * 1).from_address(address or ctypes.addressof(_NOWHERE))
    return cl.SVM(np.ctypeslib.as_array(first).view(np.uint8))


_NOWHERE = ctypes.create_string_buffer(64)


class MetalTextDevice(_TextDevice):
    """Metal as C++, a fibre for each unit."""

    def __init__(self) -> None:
        super().__init__("metal_text", parse_target("metal"))

    def load(self, artifact: Artifact) -> tuple[Artifact, Any]:
        """Compile the text with clang; `test_random` has it optimised as well."""
        program = metal_text.as_cpp(artifact.code.decode(), artifact.entry)
        return artifact, metal_text.build(program, level="-O0").launch

    def launch(
        self, loaded: tuple[Artifact, Any], block: Any, count: int, grain: int, queue: Any = None
    ) -> None:
        """Run all cubes: buffers in order, then the numbers as one block, then the faults."""
        artifact, function = loaded
        words = list(block)
        slots = artifact.slots
        pairs = list(zip(slots, words, strict=False))
        pointers = [word for slot, word in pairs if slot.kind.is_address]
        numbers = [word for slot, word in pairs if not slot.kind.is_address]
        held = (ctypes.c_uint64 * max(len(numbers), 1))(*numbers)
        if numbers:
            pointers.append(ctypes.addressof(held))
        if artifact.faults:
            pointers.append(words[-1])
        grid = words[len(slots) : len(slots) + 3]
        metal_text.launch(function, pointers, grid, artifact.cube_dim)


DEVICES = {"pocl": PoclDevice, "oclgrind": OclgrindDevice, "metal_text": MetalTextDevice}


def require(name: str) -> None:
    """Skip the test where the device's compiler is absent."""
    if name == "pocl":
        pocl_queue()
    elif name == "oclgrind":
        oclgrind.require()
    else:
        metal_text.find_clang()


@contextmanager
def registered() -> Iterator[None]:
    """`cp.device(name)` and `configure(device=name)` know the devices."""
    table = registry._SINGLE
    table.update({name: (__name__, f"{name}_device") for name in DEVICES})
    try:
        yield
    finally:
        for name in DEVICES:
            del table[name]
        registry._opened.clear()


def pocl_device() -> Device:
    """See `registered`."""
    return PoclDevice()


def metal_text_device() -> Device:
    """See `registered`."""
    return MetalTextDevice()


def oclgrind_device() -> Device:
    """See `registered`."""
    return OclgrindDevice()
