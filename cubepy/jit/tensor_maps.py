"""Tensor maps among the arguments of a launch: what the copy engine takes, and its encoding.

A tensor map depends on the address of its array and on what does not change between launches with
equal metadata. So a prepared launch has an encoder, which remembers the maps of a few addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import bool_
from cubepy.lang.cuda import FAR_ROWS

if TYPE_CHECKING:
    from cubepy.jit.arguments import Matcher
    from cubepy.lang.cuda import Pixels, TensorMap

_UNIT = 16
"""Bytes that addresses, strides and rows of boxes are multiples of."""
_LARGEST = 1 << 32
_FARTHEST = 1 << 40
_FAR_STEP = 1 << 34
"""Bytes: `FAR_ROWS` times as many are none in an address of 64 bits."""


LIMIT = 64
"""Addresses whose maps an encoder remembers."""


class Encoder:
    """The tensor maps of arrays of one layout, by their addresses: what the `method` of a device
    makes of an address and the `layout`."""

    def __init__(self, device: Any, method: str, layout: tuple[Any, ...]) -> None:
        self.method, self.layout = method, layout
        self._encode: Callable[..., Any] = getattr(device, method)
        self._made: dict[int, Any] = {}

    def at(self, address: int) -> Any:
        """The map of an array at an address, which lives as long as the object given."""
        found = self._made.get(address)
        if found is None:
            if len(self._made) >= LIMIT:
                self._made = {}
            found = self._made[address] = self._encode(address, *self.layout)
        return found


def encoder(kernel: str, name: str, matcher: Matcher, device: Any) -> Encoder:
    """The encoder of an argument for a device; `LaunchError` E421 where its engine takes none."""
    wanted, memory = matcher.maps[name], matcher.memories[name]
    reason, suggestion = refusal(wanted, memory, device.name)
    if reason:
        raise fail("E421", reason=f"`{name}` of {kernel}: {reason}", suggestion=suggestion)
    shape, strides = _axes(wanted, memory)
    layout = memory.dtype.name, shape, strides, wanted.box, wanted.swizzle
    if wanted.pixels is None:
        return Encoder(device, "tensor_map", layout)
    seen = wanted.pixels
    corners = seen.lower, seen.upper, seen.strides
    return Encoder(device, "tensor_map_im2col", (*layout, *corners))


def _axes(wanted: TensorMap, memory: Memory) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides as the engine takes them; see `cp.cuda.tensor_map_ragged`."""
    if not wanted.is_ragged:
        return memory.shape, memory.strides
    step, far = memory.strides[0], 2 * FAR_ROWS
    shape = (far, far, FAR_ROWS, *memory.shape[1:])
    return shape, (_FAR_STEP - step, step, step, *memory.strides[1:])


def refusal(wanted: TensorMap, memory: Memory, device: str) -> tuple[str, str]:
    """Why an array has no tensor map with a box, and what to do; empty where it has."""
    size = memory.dtype.itemsize
    row = wanted.box[-1] * size
    if memory.device != device:
        move = f"move it, as in cp.asarray(x, device={device!r})"
        return f"its array is on {memory.device}, not on {device}", move
    if memory.dtype is bool_ or not memory.is_native:
        return "its elements are bools, or not in the processor's byte order", ""
    if not all(1 <= n <= _LARGEST for n in memory.shape):
        return f"its array has the shape {memory.shape}; extents are 1 to 2**32", ""
    if memory.shape[-1] > 1 and memory.strides[-1] != size:
        return "the last axis of its array is not contiguous", "copy it"
    others = memory.strides[:-1]
    if memory.address % _UNIT or any(s % _UNIT or not 0 <= s < _FARTHEST for s in others):
        return (
            f"its address and strides ({others}, in bytes) are not multiples of {_UNIT}",
            "pad the rows of the array",
        )
    if wanted.is_ragged and (memory.shape[0] >= FAR_ROWS or others[0] >= _FAR_STEP):
        return f"its array has {memory.shape[0]} rows, {others[0]} bytes apart", ""
    if row % _UNIT:
        return f"the rows of its box have {row} bytes, no multiple of {_UNIT}", ""
    if wanted.swizzle and row > wanted.swizzle:
        return f"the rows of its box have {row} bytes, more than its swizzle", ""
    if wanted.pixels is not None and not _has_pixels(wanted.pixels, memory.shape[1:-1]):
        return f"its corners leave no pixel of the shape {memory.shape}", ""
    return "", ""


def _has_pixels(pixels: Pixels, extents: tuple[int, ...]) -> bool:
    corners = zip(extents, pixels.lower, pixels.upper, strict=True)
    return all(n + upper - lower > 0 for n, lower, upper in corners)
