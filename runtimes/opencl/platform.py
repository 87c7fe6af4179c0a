"""OpenCL by pyopencl: platforms and devices, found when first asked for."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from cubepy.errors import fail

INSTALL = "pip install 'cubepy-jit[opencl]'"
NEWER_POCL = "install a newer one (Debian: apt-get install pocl-opencl-icd), or another driver"


@lru_cache(maxsize=1)
def api() -> Any:
    """The bindings; `DeviceError` E507 where they are missing."""
    try:
        return import_module("pyopencl")
    except ImportError:
        raise fail("E507", device="opencl", what="pyopencl", suggestion=INSTALL) from None


@lru_cache(maxsize=1)
def found_devices() -> tuple[Any, ...]:
    """All devices of all platforms that build programs and share pointers with kernels; E507 where
    there is no platform, or none of its devices builds programs.

    Arrays are addresses here, as on all devices, which takes shared virtual memory (OpenCL 2.0).
    """
    cl = api()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        raise fail("E507", device="opencl", what="a platform", suggestion=INSTALL) from None
    every = [device for platform in platforms for device in _devices_of(cl, platform)]
    able = tuple(device for device in every if _recognises_cpu(device.version))
    if every and not able:
        what = "a PoCL that recognises this CPU"
        raise fail("E507", device="opencl", what=what, suggestion=NEWER_POCL)
    return tuple(device for device in able if _shares_memory(cl, device))


def _devices_of(cl: Any, platform: Any) -> list[Any]:
    try:
        return platform.get_devices()
    except cl.Error:  # a platform without a device says so in this way
        return []


def _recognises_cpu(version: str) -> bool:
    """Whether the device of a version, such as "OpenCL 3.0 PoCL HSTR: pthread-x86_64-...-znver3",
    can build programs. PoCL with an LLVM older than an x86 CPU calls the CPU "generic", which Clang
    refuses for each program (pocl/pocl#1049)."""
    return not ("PoCL HSTR: " in version and "-x86_64-" in version and version.endswith("-generic"))


def _shares_memory(cl: Any, device: Any) -> bool:
    try:
        return bool(device.svm_capabilities & cl.device_svm_capabilities.COARSE_GRAIN_BUFFER)
    except cl.Error:
        return False
