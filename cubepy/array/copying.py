"""Copies from one array into another: what is refused, and which way the bytes go."""

from __future__ import annotations

from math import prod
from typing import Any

from cubepy.array.interop import read_memory
from cubepy.array.memory import HOST, Memory
from cubepy.array.order import Ordered
from cubepy.array.streams import queue_of, with_queues
from cubepy.errors import fail
from cubepy.runtimes.base import Device, Pinned
from cubepy.runtimes.registry import find_device

_NAME = "copy_from"
"""What errors call the copy; its arguments are `self` and `source`."""


def copy_into(target: Memory, given: Any, stream: Any) -> None:
    """See `Array.copy_from`."""
    source = _source(given)
    _check_elements(target, source)
    _check_contiguous("self", target)
    _check_contiguous("source", source)
    device = _device_of(target, source)
    queue = None if stream is None else _queue_on(device, stream)
    if 0 not in target.shape and not _is_itself(target, source):
        with Ordered(device, queue, (target, source), (target,)) as used:
            _move(device, target, source, used)


def _source(given: Any) -> Memory:
    """The memory of an array; E401 for what is none, E402 for elements that kernels do not take."""
    try:
        found = read_memory(given)
    except TypeError as error:
        fields: dict[str, Any] = {"kernel": _NAME, "argument": "source"}
        given = str(error).removeprefix("dtype ")
        raise fail("E402", given=given, expected="a dtype of kernels", **fields) from None
    if found is None:
        hint = "pass a NumPy array, a CubePy array or another library's"
        what = f"is a {type(given).__name__}, which no kernel takes"
        raise fail("E401", kernel=_NAME, argument="source", what=what, hint=hint)
    return found


def _check_elements(target: Memory, source: Memory) -> None:
    """E402, E403, E404 and E422 for what elements cannot be copied as they are."""
    if not target.is_writeable:
        raise fail("E404", kernel=_NAME, argument="self")
    if source.dtype is not target.dtype:
        fields: dict[str, Any] = {"given": source.dtype, "expected": target.dtype}
        raise fail("E402", kernel=_NAME, argument="source", **fields)
    for name, memory in (("self", target), ("source", source)):
        if not memory.is_native:
            raise fail("E403", kernel=_NAME, argument=name, given=memory.owner[0].dtype)
    if source.shape != target.shape:
        reason = f"`source` has shape {source.shape}, but `self` has {target.shape}"
        raise fail("E422", reason=reason, suggestion="reshape one, or copy a part of the other")


def _check_contiguous(name: str, memory: Memory) -> None:
    """E422 for elements that do not lie in row-major order without gaps."""
    if memory.is_contiguous:
        return
    reason = f"`{name}` has gaps, or another order than its rows (strides {memory.strides})"
    raise fail("E422", reason=reason, suggestion=f"take a .copy() of `{name}` in its place")


def _device_of(target: Memory, source: Memory) -> Device:
    """The device that copies; E418 where two devices would have to."""
    places = {target.device, source.device} - {HOST}
    if len(places) > 1:
        fields: dict[str, Any] = {"place": source.device, "other_place": target.device}
        raise fail("E418", kernel=_NAME, argument="source", other="`self`", **fields)
    return find_device(next(iter(places), HOST))


def _queue_on(device: Device, stream: Any) -> int:
    """The handle of a stream of the device; E310 where it has none, E422 for another device's."""
    with_queues(device)
    place = getattr(stream, "device", device.name)
    if isinstance(place, str) and place != device.name:
        reason = f"the stream is {place}'s, but the copy is on {device.name}"
        raise fail("E422", reason=reason, suggestion=f"pass a cp.Stream({device.name!r})")
    return queue_of(stream)


def _is_itself(target: Memory, source: Memory) -> bool:
    """Whether there is nothing to do; E405 where the two overlap in part."""
    if target.device != source.device or target.address == source.address:
        return target.device == source.device
    (low, high), (first, last) = target.extent(), source.extent()
    if first < high and low < last:
        raise fail("E405", kernel=_NAME, written="self", other="source")
    return False


def _move(device: Device, target: Memory, source: Memory, queue: int | None) -> None:
    """The device copies; memory that is not page-locked is done with on return."""
    nbytes = prod(target.shape) * target.dtype.itemsize
    if _is_foreign(source, device):
        device.upload(target.address, source.address, nbytes, queue)
    elif _is_foreign(target, device):
        device.download(target.address, source.address, nbytes, queue)
    else:
        device.copy(target.address, source.address, nbytes, queue)


def _is_foreign(memory: Memory, device: Device) -> bool:
    """Whether memory is ordinary host memory, which is not the device's."""
    is_hosts = memory.device == HOST and not device.uses_host_memory
    return is_hosts and not isinstance(memory.owner, Pinned)
