"""OpenCL by pyopencl: platforms and devices, found when first asked for."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import Any

from cubepy.errors import fail

INSTALL = "pip install 'cubepy-jit[opencl]'"


@lru_cache(maxsize=1)
def api() -> Any:
    """The bindings; `DeviceError` E507 where they are missing."""
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # drivers have caches of their own
    try:
        return import_module("pyopencl")
    except ImportError:
        raise fail("E507", device="opencl", what="pyopencl", suggestion=INSTALL) from None


@lru_cache(maxsize=1)
def found_devices() -> tuple[Any, ...]:
    """All devices of all platforms that can share pointers with kernels; E507 where there is none.

    Arrays are addresses here, as on all devices, which takes shared virtual memory (OpenCL 2.0).
    """
    cl = api()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        raise fail("E507", device="opencl", what="a platform", suggestion=INSTALL) from None
    every = [device for platform in platforms for device in _devices_of(cl, platform)]
    return tuple(device for device in every if _shares_memory(cl, device))


def _devices_of(cl: Any, platform: Any) -> list[Any]:
    try:
        return platform.get_devices()
    except cl.Error:  # a platform without a device says so in this way
        return []


def _shares_memory(cl: Any, device: Any) -> bool:
    try:
        return bool(device.svm_capabilities & cl.device_svm_capabilities.COARSE_GRAIN_BUFFER)
    except cl.Error:
        return False
