"""Memory of kernels: arguments at their addresses, shared and local memory as lists.

Every access is checked against the extent; reads of shared and local memory against what was
written, and all but local ones for races. `Tensor` is how debuggers see a tensor of the user.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from cubepy.ir.numbers import Number, from_bits, to_bits
from cubepy.ir.types import DType, Kind
from cubepy.runtimes.interpreter.faults import outside, race, unwritten
from cubepy.runtimes.interpreter.shadow import Shadow

if TYPE_CHECKING:
    from cubepy.runtimes.interpreter.cubes import Unit

Numbers = tuple[Number, ...]
Combine = Callable[[Number, Number], Number]
_FORMATS = {"f32": "f", "f64": "d", "bool_": "B", "index": "q"}
_INTEGERS = {8: "b", 16: "h", 32: "i", 64: "q"}


class Buffer:
    """Elements of one type. Offsets count elements; subclasses say where they are."""

    def __init__(self, name: str, dtype: DType, shadow: Shadow | None) -> None:
        self.name = name
        self.dtype = dtype
        self._shadow = shadow
        self._first = 0
        """What is added to offsets in the shadow, which aliases share."""

    def get(self, offset: int, unit: Unit, site: int) -> Number:
        """The element, of an access that is in order."""
        raise NotImplementedError

    def put(self, offset: int, value: Number, unit: Unit, site: int) -> None:
        """Change the element, for an access that is in order."""
        raise NotImplementedError

    def look(self, offset: int) -> Number | None:
        """The element for a debugger; None where there is none."""
        raise NotImplementedError

    def load(self, offset: int, unit: Unit, site: int) -> Number:
        """Read an element."""
        value = self.get(offset, unit, site)
        if self._shadow is not None:
            other = self._shadow.read(self._first + offset, unit, site)
            if other is not None:
                raise race(unit, site, offset, other)
        return value

    def store(self, offset: int, value: Number, unit: Unit, site: int) -> None:
        """Write an element."""
        if self._shadow is not None:
            other = self._shadow.write(self._first + offset, unit, site)
            if other is not None:
                raise race(unit, site, offset, other)
        self.put(offset, value, unit, site)

    # Lines

    def load_line(self, offset: int, width: int, unit: Unit, site: int) -> Numbers:
        """Read consecutive elements."""
        return tuple([self.load(k, unit, site) for k in range(offset, offset + width)])

    def load_lanes(
        self, offset: int, mask: tuple[bool, ...], fill: Numbers, unit: Unit, site: int
    ) -> Numbers:
        """Read the lanes that are on."""
        lanes = enumerate(zip(mask, fill, strict=True), offset)
        return tuple([self.load(k, unit, site) if on else other for k, (on, other) in lanes])

    def store_line(
        self, offset: int, line: Numbers, mask: tuple[bool, ...] | None, unit: Unit, site: int
    ) -> None:
        """Write the lanes that are on; all of them without a mask."""
        for lane, value in enumerate(line):
            if mask is None or mask[lane]:
                self.store(offset + lane, value, unit, site)

    def gather(
        self,
        offset: int,
        distances: tuple[int, ...],
        mask: tuple[bool, ...],
        fill: Numbers,
        unit: Unit,
        site: int,
    ) -> Numbers:
        """Read the lanes that are on, each at its distance from the offset."""
        lanes = zip(distances, mask, fill, strict=True)
        read = [self.load(offset + k, unit, site) if on else other for k, on, other in lanes]
        return tuple(read)

    def scatter(
        self,
        offset: int,
        distances: tuple[int, ...],
        line: Numbers,
        mask: tuple[bool, ...],
        unit: Unit,
        site: int,
    ) -> None:
        """Write the lanes that are on, each at its distance from the offset."""
        for distance, value, on in zip(distances, line, mask, strict=True):
            if on:
                self.store(offset + distance, value, unit, site)

    # Atomics

    def peek(self, offset: int, unit: Unit, site: int) -> Number:
        """Read an element atomically."""
        unit.cube.note_atomic(self._first + offset, unit)
        return self.load(offset, unit, site)

    def update(self, offset: int, combine: Combine, value: Number, unit: Unit, site: int) -> Number:
        """Combine an element with a value; gives the old one."""
        old = self.peek(offset, unit, site)
        self.put(offset, combine(old, value), unit, site)
        return old

    def swap(self, offset: int, expected: Number, value: Number, unit: Unit, site: int) -> Number:
        """Replace an element whose bits are those of `expected`; gives the old one."""
        old = self.peek(offset, unit, site)
        if to_bits(old, self.dtype) == to_bits(expected, self.dtype):
            self.put(offset, value, unit, site)
        return old

    def misalignment(self, offset: int, size: int) -> int:
        """How many elements an address lies behind a multiple of `size` bytes."""
        return (self._first + offset) * self.dtype.itemsize % size // self.dtype.itemsize


class Argument(Buffer):
    """Elements `low` to `high` of the process's memory, counted from `address`."""

    def __init__(
        self, name: str, dtype: DType, address: int, low: int, high: int, shadow: Shadow
    ) -> None:
        super().__init__(name, dtype, shadow)
        size = dtype.itemsize
        start, self._low, self._count = address + low * size, low, high - low
        self._first = address // size
        window: Any = (ctypes.c_char * (self._count * size)).from_address(start)
        self._view: Any = memoryview(window).cast("B").cast(_format(dtype))  # type: ignore[call-overload]
        self._decode, self._encode = _coding(dtype)

    def get(self, offset: int, unit: Unit, site: int) -> Number:
        k = offset - self._low
        if not 0 <= k < self._count:
            raise outside(unit, site, offset)
        decode = self._decode
        return self._view[k] if decode is None else decode(self._view[k])

    def put(self, offset: int, value: Number, unit: Unit, site: int) -> None:
        k = offset - self._low
        if not 0 <= k < self._count:
            raise outside(unit, site, offset)
        encode = self._encode
        self._view[k] = value if encode is None else encode(value)

    def look(self, offset: int) -> Number | None:
        k = offset - self._low
        if not 0 <= k < self._count:
            return None
        return self._view[k] if self._decode is None else self._decode(self._view[k])


class Memory(Buffer):
    """Shared or local memory; None stands for an element that nothing wrote."""

    def __init__(self, name: str, dtype: DType, size: int, shadow: Shadow | None) -> None:
        super().__init__(name, dtype, shadow)
        self._items: list[Number | None] = [None] * size

    def get(self, offset: int, unit: Unit, site: int) -> Number:
        if not 0 <= offset < len(self._items):
            raise outside(unit, site, offset)
        value = self._items[offset]
        if value is None:
            raise unwritten(unit, site, offset, self._shadow is not None)
        return value

    def put(self, offset: int, value: Number, unit: Unit, site: int) -> None:
        if not 0 <= offset < len(self._items):
            raise outside(unit, site, offset)
        self._items[offset] = value

    def look(self, offset: int) -> Number | None:
        return self._items[offset] if 0 <= offset < len(self._items) else None


def _format(dtype: DType) -> str:
    """The `struct` format of an element in memory; narrow floats are read as their bits."""
    if dtype.name in _FORMATS:
        return _FORMATS[dtype.name]
    integer = _INTEGERS[dtype.bits]
    return integer if dtype.kind is Kind.INT else integer.upper()


def _coding(dtype: DType) -> tuple[Any, Any]:
    """What turns memory into numbers and back; None where the format does."""
    if dtype.kind is Kind.BOOL:
        return bool, int
    if dtype.is_float and dtype.bits < 32:
        return partial(from_bits, dtype=dtype), partial(to_bits, dtype=dtype)
    return None, None


class Tensor:
    """A tensor or view of the user's, for debuggers: `x[i, j]` reads without any check."""

    __slots__ = ("_buffer", "_offset", "shape", "strides")

    def __init__(
        self, buffer: Buffer, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self._buffer, self._offset = buffer, offset
        self.shape, self.strides = shape, strides

    def __getitem__(self, item: int | tuple[int, ...]) -> Any:
        indices = item if isinstance(item, tuple) else (item,)
        for i, n in zip(indices, self.shape, strict=False):
            if not 0 <= i < n:
                raise IndexError(f"{i} is outside 0 to {n - 1}")
        used = len(indices)
        offset = self._offset + sum(i * s for i, s in zip(indices, self.strides, strict=False))
        if used == len(self.shape):
            return self._buffer.look(offset)
        return Tensor(self._buffer, offset, self.shape[used:], self.strides[used:])

    def __len__(self) -> int:
        return self.shape[0]

    def tolist(self) -> Any:
        """The elements as nested lists; None where nothing was written."""
        if not self.shape:
            return self[()]
        return [x.tolist() if isinstance(x, Tensor) else x for x in self]

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        few = len(self.shape) < 2 and (not self.shape or self.shape[0] <= 16)
        text = f"{self._buffer.name}: {self._buffer.dtype.name}[{shape}]"
        return f"{text} = {self.tolist()}" if few else text
