"""Making arrays: `asarray`, `empty`, `zeros`, `ones`, `full`, `arange`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from cubepy.array.array import Array, allocate, allocate_pinned, from_numpy
from cubepy.array.interop import UnknownDtype, read_memory, unknown_dtype
from cubepy.array.memory import HOST, Memory, numpy_dtype
from cubepy.array.placement import placed
from cubepy.errors import Error, fail
from cubepy.ir.types import DType, f32, find_dtype
from cubepy.runtimes.registry import find_device


def asarray(obj: Any, device: Any = None, dtype: Any = None, copy: bool | None = None) -> Array:
    """`obj` as an array on a device: an array of any library, a number, or nested lists of them.

    `device`: a name or device; default: where `obj` is, or the default device for what is no array.
    `dtype`: the type of the elements, converted as NumPy does. `copy`: True for a new array in any
    case, False to raise ValueError where one would be needed. Raises `LaunchTypeError`, a
    TypeError, for what has no elements that kernels take and for unknown dtypes; `DeviceError`
    where there is no such device.
    """
    kind = None if dtype is None else _known(dtype)
    try:
        memory = None if isinstance(obj, list | tuple) else _memory_of(obj)
        if memory is None:
            return from_numpy(_listed(obj, kind), placed(device))
    except UnknownDtype as error:
        raise _no_numbers(obj, error) from None
    target = find_device(memory.device) if device is None else placed(device)
    is_there = target.name == memory.device or (target.uses_host_memory and memory.device == HOST)
    is_same = kind is None or kind is memory.dtype
    if is_there and is_same and not copy:
        return obj if isinstance(obj, Array) else Array(memory)
    if copy is False:
        raise ValueError("a copy is needed: of another dtype, or on another device")
    held = Array(memory).numpy()
    return from_numpy(held if is_same else held.astype(_numpy(kind)), target, copy=True)


def empty(
    shape: int | Sequence[int], dtype: Any = f32, device: Any = None, *, pinned: bool = False
) -> Array:
    """An array whose elements are not set. `shape`: an extent or extents; `dtype`: default f32.

    `pinned`: in page-locked memory of the host, to and from which `Array.copy_from` is asynchronous
    on CUDA devices; such memory is scarce, slow to get, and freed when the last view of it dies.
    `device` is the host then, which is its default. `LaunchError` E420 for another device, E310
    without CUDA, E504 where no more pages can be locked.
    """
    if not pinned:
        return allocate(_extents(shape), _known(dtype), placed(device))
    if device is not None and not placed(device).uses_host_memory:
        reason = f"arrays on {placed(device).name} are not in the host's memory"
        raise fail("E420", name="pinned", value=True, reason=reason)
    return allocate_pinned(_extents(shape), _known(dtype))


def zeros(
    shape: int | Sequence[int], dtype: Any = f32, device: Any = None, *, pinned: bool = False
) -> Array:
    """An array of zeros; `pinned` as in `empty`."""
    if pinned:
        return full(shape, 0, dtype, device, pinned=True)
    return from_numpy(np.zeros(_extents(shape), _numpy(dtype)), placed(device))


def ones(
    shape: int | Sequence[int], dtype: Any = f32, device: Any = None, *, pinned: bool = False
) -> Array:
    """An array of ones; `pinned` as in `empty`."""
    return full(shape, 1, dtype, device, pinned=pinned)


def full(
    shape: int | Sequence[int],
    value: Any,
    dtype: Any = f32,
    device: Any = None,
    *,
    pinned: bool = False,
) -> Array:
    """An array of one value, converted as NumPy does; `pinned` as in `empty`."""
    if not pinned:
        return from_numpy(np.full(_extents(shape), value, _numpy(dtype)), placed(device))
    made = empty(shape, dtype, device, pinned=True)
    made.numpy()[...] = np.asarray(value).astype(_numpy(dtype))
    return made


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, device: Any = None
) -> Array:
    """Numbers from `start` (0 where it is the only one given) to before `stop`, as NumPy makes them
    of integers and floats; default dtype: i64 of integers, else f32."""
    first, last = (0, start) if stop is None else (start, stop)
    if dtype is None and any(isinstance(v, float) for v in (first, last, step)):
        dtype = f32
    found = np.arange(first, last, step)
    return from_numpy(found if dtype is None else found.astype(_numpy(dtype)), placed(device))


def _extents(shape: int | Sequence[int]) -> tuple[int, ...]:
    """E602 for what holds no integers, E420 for negative extents."""
    try:
        found = tuple(index(n) for n in shape) if isinstance(shape, Sequence) else (index(shape),)
    except TypeError:
        reason = f"it is an integer or a tuple of integers, not {shape!r}"
        hint = "write 4 or (4, 8)"
        raise fail("E602", function="shape", reason=reason, suggestion=hint) from None
    if any(n < 0 for n in found):
        raise fail("E420", name="shape", value=shape, reason="an extent is negative")
    return found


def _memory_of(obj: Any) -> Memory | None:
    """As `read_memory`; E401 for an array whose elements lie at no address that can be had."""
    try:
        return read_memory(obj)
    except UnknownDtype:
        raise
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        what = f"is a {type(obj).__name__} that cannot be read: {error}"
        raise fail("E401", kernel="asarray", argument="obj", what=what, hint="") from None


def _listed(obj: Any, kind: DType | None) -> np.ndarray:
    """What NumPy makes of numbers and lists; E401 where lists of one depth differ in length."""
    try:
        return np.asarray(obj, None if kind is None else numpy_dtype(kind))
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
    what = "is a list whose parts have different lengths or depths"
    hint = "pass lists of one length, or an array for each of them"
    raise fail("E401", kernel="asarray", argument="obj", what=what, hint=hint)


def _no_numbers(obj: Any, error: UnknownDtype) -> Error:
    """E401 for what is no array of numbers."""
    what, hint = error.what, error.advice("obj")
    if not hasattr(obj, "dtype"):
        name = "None" if obj is None else f"of type {type(obj).__name__}"
        what = f"is {name}, which makes an array of {error}"
        if error.dtype.kind != "c":
            hint = "pass an array, a number, or nested lists of numbers"
    return fail("E401", kernel="asarray", argument="obj", what=what, hint=hint)


def _known(dtype: Any) -> DType:
    """E426 for what names no dtype."""
    found = find_dtype(dtype)
    if found is None:
        raise unknown_dtype(dtype)
    return found


def _numpy(dtype: Any) -> np.dtype[Any]:
    return numpy_dtype(_known(dtype))
