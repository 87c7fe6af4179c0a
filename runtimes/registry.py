"""Which devices there are; a runtime is loaded when one of its devices is asked for.

Devices are named `kind:number`; `kind` alone is the first of its kind.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cubepy.errors import DeviceError, fail
from cubepy.runtimes.base import Device, Pinned

_SINGLE = {
    "cpu": ("cubepy.runtimes.cpu.device", "cpu_device"),
    "interpreter": ("cubepy.runtimes.interpreter.device", "interpreter_device"),
}
_COUNTED = {
    "cuda": "cubepy.runtimes.cuda.device",
    "opencl": "cubepy.runtimes.opencl.device",
    "metal": "cubepy.runtimes.metal.device",
}
"""Modules with `count()`, which raises `DeviceError` with the reason, and `make(number)`."""


def devices() -> list[Device]:
    """All devices of this machine, the CPU first, the interpreter last."""
    counted = [
        find_device(f"{kind}:{number}") for kind in _COUNTED for number in range(_count(kind))
    ]
    return [find_device("cpu"), *counted, find_device("interpreter")]


def missing() -> dict[str, str]:
    """Kinds of which there is no device here, and why."""
    found: dict[str, str] = {}
    for kind in _COUNTED:
        try:
            if _module(kind).count() == 0:
                found[kind] = "no device"
        except DeviceError as error:
            found[kind] = _reason(error)
    return found


def _reason(error: DeviceError) -> str:
    """The message and the hint on one line, without the code."""
    text = str(error).removeprefix(f"{error.code}: ")
    return text.replace("\n  help: ", "; ")


def _module(kind: str) -> Any:
    return import_module(_COUNTED[kind])


def _count(kind: str) -> int:
    try:
        return _module(kind).count()
    except DeviceError:
        return 0


def find_device(name: str) -> Device:
    """The device of a name; `DeviceError` E501 where there is none, with what is missing."""
    if not isinstance(name, str):
        raise fail("E501", name=name, suggestion='a device is named by text, as in "cpu"')
    found = _opened.get(name)
    if found is None:
        found = _opened[name] = _find(name)
    return found


_opened: dict[str, Device] = {}
"""Devices that were asked for, by the name that was used."""


def opened() -> list[Device]:
    """The devices that were asked for, each once."""
    return list(dict.fromkeys(_opened.values()))


def _find(name: str) -> Device:
    if name in _SINGLE:
        module, make = _SINGLE[name]
        return getattr(import_module(module), make)()
    kind, _, number = name.partition(":")
    if kind in _COUNTED and (number.isdecimal() or not number):
        if not number:
            return find_device(f"{kind}:0")
        try:
            if int(number) < _module(kind).count():
                return _module(kind).make(int(number))
        except DeviceError as error:
            raise fail("E501", name=name, suggestion=_reason(error)) from None
    names = ", ".join(device.name for device in devices())
    raise fail("E501", name=name, suggestion=f"devices here: {names}; see `cubepy doctor`")


def pinned_memory(nbytes: int) -> Pinned:
    """Page-locked memory of the host, which CUDA's driver gives; `UnsupportedError` E310 where
    there is no such driver, `DeviceError` E504 where it has no more."""
    try:
        _module("cuda").count()
    except DeviceError as error:
        fields = {"op": "pinned memory", "target": "cpu", "suggestion": ""}
        raise fail("E310", reason=_reason(error), **fields) from None
    return _module("cuda").pinned_memory(nbytes)


def cuda_ordinal(address: int) -> int:
    """The number of the CUDA device that memory belongs to."""
    return _module("cuda").ordinal_of(address)
