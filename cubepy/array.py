"""Arrays as kernels see them: address, shape and strides of NumPy arrays and their guests.

Reads what others made, without copying; owns no memory.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.ir.types import DType, find_dtype

_DATA_OFFSET = 16
"""Where PyArrayObject keeps its data pointer; checked once by `_layout_is_known`."""


@dataclass(frozen=True, slots=True)
class Memory:
    """An array's memory: byte `strides`, and the object that keeps it alive."""

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_writeable: bool
    is_native: bool
    owner: Any

    def extent(self) -> tuple[int, int]:
        """The first byte, and the one behind the last; equal for empty arrays."""
        if 0 in self.shape:
            return self.address, self.address
        low = high = self.address
        for n, stride in zip(self.shape, self.strides, strict=True):
            low += min(0, (n - 1) * stride)
            high += max(0, (n - 1) * stride)
        return low, high + self.dtype.itemsize


def read_memory(x: Any) -> Memory | None:
    """The memory of an array; None for what is no array. TypeError for unknown dtypes.

    A `Memory` is its own: callers that know a layout already pass that.
    """
    if isinstance(x, Memory):
        return x
    if isinstance(x, np.ndarray):
        return _of_numpy(x, x)
    if type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "data_ptr"):
        return _of_torch(x)
    if isinstance(x, np.generic):
        return None
    if hasattr(x, "__array_interface__"):
        return _of_numpy(np.asarray(x), x)
    if hasattr(x, "__dlpack__"):
        return _of_numpy(np.from_dlpack(x), x)
    return None


def _of_numpy(array: np.ndarray, owner: Any) -> Memory:
    dtype = find_dtype(array.dtype)
    if dtype is None:
        raise TypeError(f"dtype {array.dtype}")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("masked: pass its .filled(...)")
    return Memory(
        pointer(array),
        dtype,
        array.shape,
        array.strides,
        array.flags.writeable,
        array.dtype.isnative,
        (array, owner),
    )


def _of_torch(x: Any) -> Memory:
    if x.device.type != "cpu":
        raise TypeError(f"device {x.device}")
    if x.is_neg() or x.is_conj():
        raise TypeError("a lazily negated view: pass its .resolve_neg()")
    dtype = find_dtype(x.dtype)
    if dtype is None:
        raise TypeError(f"dtype {x.dtype}")
    size = x.element_size()
    return Memory(
        x.data_ptr(), dtype, tuple(x.shape), tuple(s * size for s in x.stride()), True, True, x
    )


def _layout_is_known() -> bool:
    probe = np.arange(3.0)
    return _read_pointer(probe) == probe.__array_interface__["data"][0]


def _read_pointer(array: np.ndarray) -> int:
    return ctypes.c_size_t.from_address(id(array) + _DATA_OFFSET).value


pointer = _read_pointer if _layout_is_known() else lambda a: int(a.__array_interface__["data"][0])
"""The address of an ndarray's first element, read from the object where its layout is known."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of a scalar type; small floats come from ml_dtypes."""
    if dtype.name in ("bf16", "f8e4m3", "f8e5m2"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype.numpy_name))
    return np.dtype(dtype.numpy_name)
