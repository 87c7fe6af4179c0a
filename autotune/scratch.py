"""Copies of a call's arrays: candidates run on these, never on what the caller holds.

Copies keep dtype, shape, strides, alignment within 64 bytes, and who shares memory with whom.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy as shallow_copy
from dataclasses import fields, is_dataclass, replace
from math import prod
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from cubepy.array.array import Array
from cubepy.array.interop import read_memory
from cubepy.array.memory import HOST, Memory, numpy_dtype, raw_view
from cubepy.ir.types import u8
from cubepy.lang.objects import is_installed
from cubepy.record import dataclass

ALIGNMENT = 64
POISON = 0xFF
"""A byte of which floats of every width are NaN, and integers -1 or the largest."""


class Uncopyable(Exception):
    """An argument is an array of a kind that cannot be copied as it is."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of the caller from `low` on, and their copy; several arrays may lie in one."""

    low: int
    source: np.ndarray
    copy: np.ndarray


class Scratch:
    """The arguments of a call with copies in place of arrays."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Copies every array among the arguments; `Uncopyable` where one cannot be."""
        self._arrays: dict[int, Any] = {}
        for value in (*args, *kwargs.values()):
            _visit(value, self._note)
        memories = [read_memory(x) for x in self._arrays.values()]
        self._spans = _spans([m for m in memories if m is not None and m.device == HOST])
        self._copies = {key: self._copy(x) for key, x in self._arrays.items()}
        self.args: tuple[Any, ...] = tuple(_mapped(a, self._copied) for a in args)
        self.kwargs = {name: _mapped(a, self._copied) for name, a in kwargs.items()}
        self.written: set[int] = set(self._arrays)
        self.poisoned: set[int] = set()

    @property
    def device(self) -> str:
        """The device of the arrays; the host's where there are none."""
        found = [m.device for m in map(read_memory, self._arrays.values()) if m is not None]
        return next((d for d in found if d != HOST), HOST)

    @property
    def has_torch_tensors(self) -> bool:
        """Whether torch's stream orders the work on an array."""
        return any(type(x).__module__ == "torch" for x in self._arrays.values())

    def bytes(self) -> int:
        """Bytes of all arrays."""
        memories = map(read_memory, self._arrays.values())
        return sum(prod(m.shape) * m.dtype.itemsize for m in memories if m is not None)

    def restore(self, poisoned: bool = False) -> None:
        """Give the written copies their first contents, or NaN where these do not count."""
        for key in self.written:
            _refill(self._arrays[key], self._copies[key], self._spans)
        if poisoned:
            for key in self.poisoned:
                self.poison(key)

    def poison(self, key: int) -> None:
        """Fill a copy with bytes that are no result."""
        poison(self._copies[key])

    def keys(self) -> list[int]:
        """The arrays, by numbers that stay."""
        return list(self._arrays)

    def contents(self, keys: Iterable[int]) -> list[Any]:
        """What copies hold now."""
        return [contents(self._copies[key]) for key in keys]

    def memories(self) -> list[Memory]:
        """Where the copies are."""
        found = map(read_memory, self._copies.values())
        return [m for m in found if m is not None]

    def keys_within(self, addresses: Iterable[tuple[int, int]]) -> set[int]:
        """The arrays whose copies share bytes with ranges of addresses."""
        ranges, found = list(addresses), set[int]()
        for key, copy in self._copies.items():
            memory = read_memory(copy)
            assert memory is not None
            low, high = memory.extent()
            if any(first < high and last > low for first, last in ranges):
                found.add(key)
        return found

    def _note(self, x: Any) -> None:
        self._arrays.setdefault(id(x), x)

    def _copied(self, x: Any) -> Any:
        return self._copies[id(x)]

    def _copy(self, x: Any) -> Any:
        memory = read_memory(x)
        assert memory is not None
        if 0 in memory.shape:
            return x
        if memory.device != HOST:
            return _device_copy(x)
        low, _ = memory.extent()
        span = next(s for s in self._spans if s.low <= low < s.low + len(s.copy))
        return _host_view(x, memory, span)


def arrays_within(value: Any) -> list[Any]:
    """The arrays in a value, in tuples, mappings and dataclasses too; those of unknown kinds are
    left out."""
    found: list[Any] = []
    with suppress(Uncopyable):
        _mapped(value, lambda x: (found.append(x), x)[1], None)
    return found


def owns_memory(x: Any) -> bool:
    """Whether an array of NumPy or tensor of torch is no view, and may be written."""
    if type(x) is np.ndarray:
        return x.flags.owndata and x.flags.writeable
    return type(x).__module__ == "torch" and not x._is_view() and not x.requires_grad


def _visit(value: Any, note: Callable[[Any], None]) -> None:
    """Hand over every array in a value, in tuples, mappings and dataclasses too."""
    _mapped(value, lambda x: (note(x), x)[1])


def _mapped(value: Any, change: Callable[[Any], Any], outer: tuple[int, ...] | None = ()) -> Any:
    """A value with its arrays changed. `outer`: the objects around it; None: those of other
    classes than dataclasses stay as they are."""
    if isinstance(value, bool | int | float | str | np.generic) or value is None:
        return value
    if isinstance(value, tuple):
        items = [_mapped(v, change, outer) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_mapped(v, change, outer) for v in value]
    if isinstance(value, dict):
        return {k: _mapped(v, change, outer) for k, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        changed = {name: _mapped(v, change, outer) for name, v in held.items()}
        same = all(changed[name] is v for name, v in held.items())
        return value if same else replace(value, **changed)
    if _is_array(value):
        return change(value) if not outer or _is_copyable(value) else value
    if outer is None or not _is_users_object(value):
        return value
    return _mapped_object(value, change, outer)


def _mapped_object(value: Any, change: Callable[[Any], Any], outer: tuple[int, ...]) -> Any:
    """An object of the user's, or a copy of it where it holds arrays."""
    if id(value) in outer:
        return value
    held = dict(vars(value))
    changed = {name: _mapped(v, change, (*outer, id(value))) for name, v in held.items()}
    if all(_is_same(changed[name], v) for name, v in held.items()):
        return value
    try:
        made = shallow_copy(value)
        vars(made).update(changed)
    except Exception as error:
        raise Uncopyable(f"arguments of type {type(value).__qualname__}: {error}") from None
    return made


def _is_same(mapped: Any, value: Any) -> bool:
    """Whether nothing in a value was changed: lists and their like are made anew in any case."""
    if mapped is value:
        return True
    if isinstance(value, tuple | list):
        return all(map(_is_same, mapped, value))
    return isinstance(value, dict) and all(_is_same(mapped[k], v) for k, v in value.items())


def _is_users_object(value: Any) -> bool:
    """Whether an object is of classes of the user alone, so that it may be copied."""
    if isinstance(value, type | FunctionType | ModuleType) or not hasattr(value, "__dict__"):
        return False
    return not any(is_installed(cls.__module__) for cls in type(value).__mro__[:-1])


def _is_copyable(x: Any) -> bool:
    """Whether an array can be copied as it is; others in objects stay what they are."""
    if isinstance(x, Array) or type(x) in (np.ndarray, np.memmap):
        return True
    return f"{type(x).__module__}.{type(x).__name__}" == "torch.Tensor" and not x.requires_grad


def _is_array(value: Any) -> bool:
    try:
        return not isinstance(value, type) and read_memory(value) is not None
    except TypeError as error:
        raise Uncopyable(str(error)) from None


def _spans(memories: list[Memory]) -> list[Span]:
    """Copies of the bytes that host arrays lie in; arrays that overlap share one."""
    found: list[list[int]] = []
    for low, high in sorted(m.extent() for m in memories if 0 not in m.shape):
        if found and low < found[-1][1]:
            found[-1][1] = max(found[-1][1], high)
        else:
            found.append([low, high])
    return [Span(low, *_bytes_of(low, high - low)) for low, high in found]


def _bytes_of(address: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The bytes at an address, and a copy of them with its alignment."""
    source = raw_view(Memory(address, u8, (count,), (1,), False, True, None)).view(np.uint8)
    buffer = np.empty(count + 2 * ALIGNMENT, np.uint8)
    shift = (address - buffer.ctypes.data) % ALIGNMENT
    copy = buffer[shift : shift + count]
    copy[...] = source
    return source, copy


def _host_view(x: Any, memory: Memory, span: Span) -> Any:
    """An array of the kind of `x` at its place in the copied bytes."""
    offset = memory.address - span.low
    if type(x) in (np.ndarray, np.memmap):
        view = np.ndarray(x.shape, x.dtype, span.copy, offset, x.strides)
        view.flags.writeable = x.flags.writeable
        return view
    if isinstance(x, Array):
        return Array(replace(memory, address=span.copy.ctypes.data + offset, owner=span.copy))
    torch = sys.modules.get("torch")
    if torch is not None and type(x) is torch.Tensor and not x.requires_grad:
        flat = torch.frombuffer(span.copy[offset:], dtype=torch.uint8)
        size = flat.numel() // x.element_size() * x.element_size()
        return flat[:size].view(x.dtype).as_strided(x.shape, x.stride())
    raise Uncopyable(f"arguments of type {type(x).__module__}.{type(x).__qualname__}")


def _device_copy(x: Any) -> Any:
    if isinstance(x, Array):
        return x.copy()
    torch = sys.modules.get("torch")
    if torch is not None and type(x) is torch.Tensor:
        made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        return made.copy_(x)
    raise Uncopyable(f"arguments of type {type(x).__module__}.{type(x).__qualname__}")


def _refill(x: Any, copy: Any, spans: list[Span]) -> None:
    memory = read_memory(x)
    assert memory is not None
    if memory.device == HOST:
        low, high = memory.extent()
        for span in spans:
            if span.low <= low < span.low + len(span.copy):
                part = slice(low - span.low, high - span.low)
                span.copy[part] = span.source[part]
    elif isinstance(copy, Array):
        copy.copy_from(x)
    else:
        copy.copy_(x)


def poison(x: Any) -> None:
    """Fill an array with bytes that are no result: NaN in floats."""
    memory = read_memory(x)
    assert memory is not None
    if memory.device == HOST:
        raw_view(memory)[...] = np.void(bytes([POISON]) * memory.dtype.itemsize)
    elif isinstance(x, Array):
        filled = np.empty(x.shape, numpy_dtype(memory.dtype))
        raw_bytes = np.frombuffer(bytes([POISON]) * filled.nbytes, filled.dtype)
        x.copy_from(raw_bytes.reshape(x.shape))
    else:
        x.fill_(float("nan") if x.dtype.is_floating_point else 1)


def contents(x: Any) -> Any:
    """A copy of an array's elements: on the host as NumPy's, of a tensor on a device as a tensor
    there, where it is compared."""
    memory = read_memory(x)
    assert memory is not None
    if memory.device == HOST:
        return _typed(memory)
    if isinstance(x, Array):
        return x.numpy().copy()
    return x.detach().clone()


def _typed(memory: Memory) -> np.ndarray:
    """A copy of a host array's elements."""
    return raw_view(memory).view(numpy_dtype(memory.dtype)).copy()
