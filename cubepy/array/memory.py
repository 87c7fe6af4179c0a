"""Arrays as kernels see them: address, shape, strides, device. Owns no memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cubepy.ir.types import DType
from cubepy.record import dataclass

HOST = "cpu"
"""The device of memory that this process reads itself."""
_DATA_OFFSET = 16
"""Where PyArrayObject keeps its data pointer; checked once by `_layout_is_known`."""


@dataclass(slots=True, eq=False)
class Memory:
    """An array's memory: byte `strides`, and the object that keeps it alive.

    Nothing changes one; it is not frozen because that makes it eight times as slow to make, which
    every launch on another library's arrays does.

    `device` names the device whose address space `address` belongs to; `queue` is the queue in
    which its user works on it (a CUDA stream's handle), None where that is not known.
    """

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_writeable: bool
    is_native: bool
    owner: Any
    device: str = HOST
    queue: int | None = None

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        wanted = contiguous_strides(self.shape, self.dtype.itemsize)
        axes = zip(self.shape, self.strides, wanted, strict=True)
        return 0 in self.shape or all(n == 1 or have == want for n, have, want in axes)

    def extent(self) -> tuple[int, int]:
        """The first byte, and the one behind the last; equal for empty arrays."""
        if 0 in self.shape:
            return self.address, self.address
        low = high = self.address
        for n, stride in zip(self.shape, self.strides, strict=True):
            low += min(0, (n - 1) * stride)
            high += max(0, (n - 1) * stride)
        return low, high + self.dtype.itemsize


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides: list[int] = []
    step = itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


class _Interface:
    """What NumPy makes an array of, which keeps this and so the owner alive."""

    def __init__(self, memory: Memory) -> None:
        self.owner = memory.owner
        self.__array_interface__ = {
            "data": (memory.address, not memory.is_writeable),
            "shape": memory.shape,
            "strides": memory.strides,
            "typestr": f"|V{memory.dtype.itemsize}",
            "version": 3,
        }


def raw_view(memory: Memory) -> np.ndarray:
    """The elements as NumPy's raw bytes; of another device's only the layout counts."""
    return np.asarray(_Interface(memory))


def _layout_is_known() -> bool:
    probe = np.arange(3.0)
    return _read_pointer(probe) == probe.__array_interface__["data"][0]


def _read_pointer(array: np.ndarray) -> int:
    return ctypes.c_size_t.from_address(id(array) + _DATA_OFFSET).value


pointer = _read_pointer if _layout_is_known() else lambda a: int(a.__array_interface__["data"][0])
"""The address of an ndarray's first element, read from the object where its layout is known."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of a scalar type; small floats come from ml_dtypes."""
    found = _DTYPES.get(dtype.name)
    return found or _DTYPES.setdefault(dtype.name, _made_dtype(dtype))


_DTYPES: dict[str, np.dtype[Any]] = {}


def _made_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype.name in ("bf16", "f8e4m3", "f8e5m2"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype.numpy_name))
    return np.dtype(dtype.numpy_name)
