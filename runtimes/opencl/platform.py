"""OpenCL by pyopencl: platforms and devices, found when first asked for."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import Any

from cubepy.errors import fail

INSTALL = "pip install 'cubepy-jit[opencl]'"
NEWER_POCL = "install a newer one (Debian: apt-get install pocl-opencl-icd), or another driver"


def api() -> Any:
    """The bindings; `DeviceError` E507 where they are missing, and E508 in the child of a fork of a
    process that used them, where drivers wait for threads that are not there."""
    if _lost:
        reason = "a driver does not work in the child of a fork"
        hint = "start another process, as by multiprocessing's 'spawn'"
        raise fail("E508", device="opencl", call="a call", reason=reason, suggestion=hint)
    return _bindings()


_users: list[int] = []
"""The process that asked drivers for something. A list of its own: caches may be cleared."""
_lost: list[int] = []
"""The child that this process is, if it is one of a process that used a driver."""


def _after_fork() -> None:
    if _users:
        _lost.append(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@lru_cache(maxsize=1)
def _bindings() -> Any:
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
    _users[:] = [os.getpid()]
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
