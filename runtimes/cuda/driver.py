"""NVIDIA's driver API by cuda-bindings: found when first asked for, results as exceptions.

Reference: CUDA Driver API (https://docs.nvidia.com/cuda/cuda-driver-api/).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from cubepy.errors import fail

INSTALL = "pip install 'cubepy-jit[cuda]'"
_STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        *("ILLEGAL_ADDRESS", "LAUNCH_FAILED", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION"),
        *("MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "ASSERT"),
        *("LAUNCH_TIMEOUT", "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED"),
    )
)
"""Errors after which a context does nothing more."""
_VERSION = 12_000
"""The version of the driver's functions that are looked up."""


def is_usable(
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
    process: Callable[[], int] = os.getpid,
    here: int = os.getpid(),
) -> bool:
    """Whether the driver may be called to free something: not at the end of the interpreter, nor in
    the child of a fork, where it does not work.

    Classes keep this function, and it what it calls: at the end names of modules are None.
    """
    return not is_finalizing() and process() == here


@lru_cache(maxsize=1)
def driver() -> Any:
    """The bindings, once the driver is initialised; `DeviceError` E507 says what is missing."""
    try:
        found = import_module("cuda.bindings.driver")
    except ImportError:
        raise fail("E507", device="cuda", what="cuda-bindings", suggestion=INSTALL) from None
    try:
        (status,) = found.cuInit(0)
    except RuntimeError:  # the bindings find no library
        hint = "install NVIDIA's driver"
        raise fail("E507", device="cuda", what="libcuda", suggestion=hint) from None
    if status == found.CUresult.CUDA_ERROR_NO_DEVICE:
        raise fail("E507", device="cuda", what="a GPU of NVIDIA", suggestion="")
    check("cuInit", (status,), found)
    return found


def address_of(function: str) -> int:
    """Where the driver's function of a name is; 0 if it does not say."""
    api = driver()
    try:
        status, address, *_ = api.cuGetProcAddress(function.encode(), _VERSION, 0)
    except (AttributeError, TypeError, RuntimeError):  # of bindings older than those tried
        return 0
    return 0 if status else int(address)


def check(call: str, result: tuple[Any, ...], api: Any = None) -> Any:
    """The values of a call of the driver; E504, E508 or E509 where it failed."""
    status = result[0]
    if status:
        raise failure(call, status, api or driver())
    return result[1] if len(result) == 2 else result[1:]


def failure(call: str, status: Any, api: Any) -> Exception:
    """What a status of the driver means; `CudaDevice.failed` knows what was launched as well."""
    name = status.name
    if name == "CUDA_ERROR_OUT_OF_MEMORY":
        return fail("E504", nbytes=call, device="cuda")
    if name in _STICKY:
        return fail("E509", device="cuda", reason=name, kernels="unknown")
    _, text = api.cuGetErrorString(status)
    reason = f"{name} ({text.decode()})" if text else name
    return fail("E508", device="cuda", call=call, reason=reason, suggestion="")


def is_lost(status: Any) -> bool:
    """Whether a status says that the context is of no more use."""
    return status.name in _STICKY
