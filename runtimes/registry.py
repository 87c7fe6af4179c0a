"""Which devices there are; runtimes are loaded on first use, and drivers opened only then."""

from __future__ import annotations

from cubepy.errors import fail
from cubepy.runtimes.base import Device


def devices() -> list[Device]:
    """All devices of this machine, the CPU first."""
    from cubepy.runtimes.cpu.device import cpu_device

    return [cpu_device()]


def find_device(name: str) -> Device:
    """The device of a name; `DeviceError` E501 where there is none."""
    for device in devices():
        if device.name == name:
            return device
    names = ", ".join(d.name for d in devices())
    raise fail("E501", name=name, suggestion=f"devices here: {names}; `cubepy doctor` says more")
