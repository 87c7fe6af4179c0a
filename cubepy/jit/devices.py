"""Where a launch runs: its arguments decide, unless the kernel was configured for a device."""

from __future__ import annotations

from cubepy.array.memory import HOST, Memory
from cubepy.errors import fail
from cubepy.runtimes.base import Device
from cubepy.runtimes.registry import find_device


def choose_device(kernel: str, configured: str | None, memories: dict[str, Memory]) -> Device:
    """The device of the arguments, or the configured one, which takes host arrays too.

    `LaunchError` E418 where arguments lie on two devices, or on another than the configured one.
    """
    places = {name: memory.device for name, memory in memories.items()}
    if configured is not None:
        device = find_device(configured)
        allowed = {HOST, device.name}
        name = next((n for n, place in places.items() if place not in allowed), None)
        if name is not None:
            raise _apart(kernel, name, places[name], "the kernel", device.name)
        places = {n: p for n, p in places.items() if p != HOST or device.uses_host_memory}
        _check_together(kernel, {n: p for n, p in places.items() if p != HOST})
        return device
    _check_together(kernel, places)
    return find_device(next(iter(places.values()), HOST))


def _check_together(kernel: str, places: dict[str, str]) -> None:
    first = next(iter(places), "")
    for name, place in places.items():
        if place != places[first]:
            raise _apart(kernel, name, place, f"`{first}`", places[first])


def _apart(kernel: str, name: str, place: str, other: str, other_place: str) -> Exception:
    return fail(
        "E418", kernel=kernel, argument=name, place=place, other=other, other_place=other_place
    )
