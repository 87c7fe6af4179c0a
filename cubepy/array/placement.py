"""Which device is meant: the default device, waiting for one, and memory that is kept for reuse."""

from __future__ import annotations

from typing import Any

from cubepy.config import choose, get
from cubepy.runtimes.base import Device
from cubepy.runtimes.cpu import memory as host_memory
from cubepy.runtimes.registry import find_device, opened


def placed(device: Any) -> Device:
    """A device by its name, itself, or the default one for None."""
    if device is None:
        return find_device(get("device"))
    return find_device(device) if isinstance(device, str) else device


def set_default_device(device: Any) -> None:
    """Where `cp.empty`, `cp.asarray` and friends place arrays; `DeviceError` if it is not here.

    Launches are not concerned: their arguments decide.
    """
    choose("device", placed(device).name)


def synchronize(device: Any = None) -> None:
    """Wait for all work of a device; default: the default device.

    Raises the failures of kernels that ran there, such as `DeviceLostError`.
    """
    placed(device).synchronize()


def release_memory() -> None:
    """Give the memory that is kept for reuse back to the system and to the devices in use.

    Arrays keep theirs.
    """
    host_memory.release_memory()
    for device in opened():
        release = getattr(device, "release_memory", None)
        if release is not None:
            release()
