"""Which devices there are; a runtime is loaded when one of its devices is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cubepy.errors import fail
from cubepy.runtimes.base import Device


def _cpu() -> Device:
    from cubepy.runtimes.cpu.device import cpu_device

    return cpu_device()


def _interpreter() -> Device:
    from cubepy.runtimes.interpreter.device import interpreter_device

    return interpreter_device()


_DEVICES: dict[str, Callable[[], Device]] = {"cpu": _cpu, "interpreter": _interpreter}


def devices() -> list[Device]:
    """All devices of this machine, the CPU first."""
    return [find_device(name) for name in _DEVICES]


@lru_cache(maxsize=64)
def find_device(name: str) -> Device:
    """The device of a name; `DeviceError` E501 where there is none."""
    make = _DEVICES.get(name)
    if make is None:
        names = ", ".join(_DEVICES)
        raise fail("E501", name=name, suggestion=f"devices here: {names}; see `cubepy doctor`")
    return make()
