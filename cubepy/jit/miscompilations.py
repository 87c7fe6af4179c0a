"""Known miscompilations of vendors' compilers: short kernels whose results show them.

CubePy spells around each of them. Whether that holds for a version of NVRTC and of the driver is
tested once, when a GPU first compiles a kernel with them, and remembered in the cache of the user.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from cubepy import config
from cubepy.array.graphs import is_recording
from cubepy.cache.entry import Entry
from cubepy.cache.store import named_store
from cubepy.compilers.cuda import toolchain
from cubepy.errors import Error
from cubepy.hashing import sha256
from cubepy.runtimes.base import Device

FORMAT = 2
"""To be raised with every change of the kernels, so that all versions are tested again."""
_UNITS = 256
_examined: set[str] = set()
"""Devices that were looked at in this process, or are being looked at."""


def _kernels() -> Any:
    from cubepy.jit import (
        miscompiled_kernels,  # kernels need the decorator, which needs this module
    )

    return miscompiled_kernels


def examine(device: Device) -> dict[str, int]:
    """For each known miscompilation how many results of a kernel are wrong on the device."""
    rng = np.random.default_rng(FORMAT)
    x = rng.integers(-(1 << 31), 1 << 31, _UNITS).astype(np.int32)
    y = rng.integers(-(1 << 15), 1 << 15, _UNITS).astype(np.int16)
    x[:4], y[:4] = (-(1 << 31), -1, 0, 5), (-(1 << 15), 7, -1, 0)
    found: dict[str, int] = {}
    for name, (kernel, expected) in _kernels().CASES.items():
        out = np.zeros(_UNITS, np.int32)
        kernel.configure(device=device.name)[1, _UNITS](x, y, out)
        found[name] = int(np.sum(out != expected(x, y)))
    return found


def versions(device: Device) -> str:
    """What the result depends on: the compiler, the driver and the architecture."""
    driver = getattr(device, "driver_version", "")
    return f"NVRTC {toolchain.version()}, driver {driver}, {device.target.arch}"


def remembered(device: Device) -> dict[str, int] | None:
    """The result for these versions, if a process of this user had it."""
    entry = named_store().get(_key(device))
    wrong = None if entry is None else entry.header.get("wrong")
    if not isinstance(wrong, dict) or not all(type(n) is int for n in wrong.values()):
        return None  # whatever is doubtful is tested again
    return {str(name): int(count) for name, count in wrong.items()}


def examined(device: Device) -> dict[str, int]:
    """The result for these versions, by a test now where none is remembered."""
    _examined.add(device.name)
    found = remembered(device)
    if found is None:
        found = examine(device)
        _remember(device, found)
    return found


def examine_once(device: Device) -> None:
    """Warn where a compiler that this process uses first gets a known case wrong."""
    if device.target.kind != "cuda" or device.name in _examined or not config.get("self_test"):
        return
    _examined.add(device.name)
    if _is_capturing():
        return
    try:
        wrong = [name for name, count in examined(device).items() if count]
    except Error:
        return  # the launch of the user's kernel will report what is wrong with the device
    if wrong:
        message = f"{versions(device)} miscompile kernels ({', '.join(wrong)})"
        advice = "results may be wrong; install another nvidia-cuda-nvrtc"
        warnings.warn(f"{message}: {advice}", RuntimeWarning, stacklevel=2)


def _is_capturing() -> bool:
    """Whether a graph is recorded, CubePy's or torch's, which a test would break."""
    if is_recording():
        return True
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    return bool(torch.cuda.is_current_stream_capturing())


def _key(device: Device) -> str:
    return sha256(f"miscompilations {FORMAT} {versions(device)}".encode()).hexdigest()


def _remember(device: Device, wrong: dict[str, int]) -> None:
    """Kept beside compiled code, also where that is not kept, so that no process tests again."""
    header = {"kind": "test", "kernel": versions(device), "parts": {}, "wrong": wrong}
    named_store().put(Entry(_key(device), header, b""))
