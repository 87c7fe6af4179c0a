"""The arrays that prebuilt kernels take and return: NumPy's, and torch's on the CPU.

A host tells a library's arrays apart, reads their metadata, and makes results that its user would
have got from that library. It computes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from cubepy.array.guests import read_memory
from cubepy.array.memory import Memory, numpy_dtype, pointer
from cubepy.errors import Error, fail
from cubepy.ir.types import DType
from cubepy.runtimes.cpu.memory import get_memory


@dataclass(frozen=True, slots=True)
class Shape:
    """What a result looks like: extents, dtype, and the axes from the slowest to the fastest."""

    extents: tuple[int, ...]
    dtype: DType
    order: tuple[int, ...] | None = None


class Host(Protocol):
    """One library of arrays."""

    def key(self, x: Any) -> Any:
        """Everything about an array that a plan depends on, hashable."""
        ...

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        """Where the elements with all indices zero lie."""
        ...

    def empty(self, shape: Shape) -> Any:
        """An uninitialised array."""
        ...

    def scalar(self, x: Any) -> Any:
        """An array without axes as its library returns it."""
        ...

    def constant(self, value: bool | int | float, dtype: DType) -> Any:
        """A number as an array without axes."""
        ...


class NumpyHost:
    """NumPy arrays, and whatever shows its memory as one; results come from the pool."""

    def key(self, x: np.ndarray) -> Any:
        return x.dtype, x.shape, x.strides, x.flags.num

    def addresses(self, arrays: Iterable[np.ndarray]) -> list[int]:
        return [pointer(x) for x in arrays]

    def empty(self, shape: Shape) -> np.ndarray:
        allocate = get_memory().allocate_array
        dtype = numpy_dtype(shape.dtype)
        if shape.order is None:
            return allocate(shape.extents, dtype)
        stored = allocate(tuple(shape.extents[axis] for axis in shape.order), dtype)
        return stored.transpose(np.argsort(shape.order))

    def scalar(self, x: np.ndarray) -> Any:
        return x[()]

    def constant(self, value: bool | int | float, dtype: DType) -> np.ndarray:
        return np.array(value, numpy_dtype(dtype))


class TorchHost:
    """torch's CPU tensors; results come from torch's allocator."""

    def key(self, x: Any) -> Any:
        is_special = not x.is_cpu or x.is_neg() or x.layout is not _torch().strided
        records = x.requires_grad and _torch().is_grad_enabled()
        place = -1 if is_special else x.data_ptr() % 8
        return x.dtype, x.shape, None if is_special else x.stride(), records, place

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        return [x.data_ptr() for x in arrays]

    def empty(self, shape: Shape) -> Any:
        torch = _torch()
        dtype = getattr(torch, shape.dtype.numpy_name)
        if shape.order is None:
            return torch.empty(shape.extents, dtype=dtype)
        stored = torch.empty([shape.extents[axis] for axis in shape.order], dtype=dtype)
        return stored.permute(*np.argsort(shape.order).tolist())

    def scalar(self, x: Any) -> Any:
        return x

    def constant(self, value: bool | int | float, dtype: DType) -> Any:
        return _torch().tensor(value, dtype=getattr(_torch(), dtype.numpy_name))


NUMPY, TORCH = NumpyHost(), TorchHost()


def _torch() -> Any:
    return sys.modules["torch"]


class Described(np.ndarray):
    """An array that stands for arguments of its layout while a function is inspected."""

    host: Host


def frozen(value: Any) -> Any:
    """A parameter as part of a key: lists become tuples."""
    return tuple(value) if isinstance(value, list) else value


def is_torch(x: Any) -> bool:
    """Whether `x` is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def host_of(function: str, name: str, x: Any) -> tuple[Host, Any]:
    """The host of an array, and the array as that host sees it; E602 for what is no array."""
    if type(x) is np.ndarray:
        return NUMPY, x
    if is_torch(x):
        return TORCH, x
    if isinstance(x, Described):
        return x.host, x
    if isinstance(x, np.ndarray) or (
        not isinstance(x, np.generic) and hasattr(x, "__array_interface__")
    ):
        return NUMPY, np.asarray(x)
    raise fail(
        "E602",
        function=function,
        reason=f"`{name}` is a {type(x).__name__}, not an array",
        suggestion="pass a NumPy array or a torch CPU tensor",
    )


def read(function: str, name: str, host: Host, x: Any) -> Memory:
    """The memory of an array, checked; E602 for dtypes and devices that no kernel takes."""
    if host is TORCH and x.requires_grad and _torch().is_grad_enabled():
        raise _refused(
            function,
            name,
            "requires grad, and prebuilt kernels record no gradients",
            "call it inside torch.no_grad(), or pass x.detach()",
        )
    if host is TORCH and (x.layout is not _torch().strided or x.is_neg()):
        raise _refused(function, name, "is sparse or negated lazily", "resolve it first")
    try:
        memory = read_memory(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _refused(function, name, f"cannot be read: {error}", "") from None
    assert memory is not None
    if not memory.is_native:
        raise _refused(function, name, "is big-endian", "convert it with .astype(...)")
    size = memory.dtype.itemsize
    if 0 not in memory.shape and any(v % size for v in (memory.address, *_used(memory))):
        raise _refused(function, name, "has elements that are not aligned to their size", "copy it")
    return memory


def _refused(function: str, name: str, what: str, suggestion: str) -> Error:
    return fail("E602", function=function, reason=f"`{name}` {what}", suggestion=suggestion)


def _used(memory: Memory) -> list[int]:
    """Strides of axes that are more than one element long."""
    return [s for n, s in zip(memory.shape, memory.strides, strict=True) if n > 1]


def read_output(function: str, host: Host, out: Any, shape: Shape, name: str = "out") -> Memory:
    """The memory of a given result; E601 or E602 unless it has that shape and dtype."""
    memory = read(function, name, host, out)
    if memory.shape != shape.extents:
        raise fail(
            "E601",
            function=function,
            suggestion="",
            reason=f"`{name}` has shape {memory.shape}, expected {shape.extents}",
        )
    if memory.dtype is not shape.dtype:
        raise fail(
            "E602",
            function=function,
            suggestion="",
            reason=f"`{name}` has dtype {memory.dtype}, expected {shape.dtype}",
        )
    if not memory.is_writeable:
        raise fail("E601", function=function, reason=f"`{name}` is read-only", suggestion="")
    return memory


def contiguous(shape: Shape, address: int = 0) -> Memory:
    """The memory of an array that `Host.empty` makes."""
    strides = [0] * len(shape.extents)
    step = shape.dtype.itemsize
    for axis in reversed(shape.order or range(len(shape.extents))):
        strides[axis] = step
        step *= max(1, shape.extents[axis])
    return Memory(address, shape.dtype, shape.extents, tuple(strides), True, True, None)


def numbered(memory: Memory, number: int) -> Memory:
    """The same layout as operand `number` of a plan: its address only tells which one it is."""
    return replace(memory, address=number << 48, owner=None)
