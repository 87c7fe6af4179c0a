"""`Array`: memory on one device with a shape. Host arrays are NumPy's inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from cubepy.array.copying import copy_into
from cubepy.array.dlpack import CUDA_DEVICE, to_capsule
from cubepy.array.graphs import is_recording, record
from cubepy.array.interop import queue_now, read_memory
from cubepy.array.memory import HOST, Memory, contiguous_strides, numpy_dtype, pointer, raw_view
from cubepy.array.order import Ordered
from cubepy.errors import Error
from cubepy.ir.types import DType
from cubepy.runtimes.base import Device, Pinned, Queued
from cubepy.runtimes.registry import find_device, pinned_memory


class Array:
    """An array on a device. Kernels take it as it is; work on it is asynchronous, reading waits.

    `shape`: extents; `strides`: in bytes; `dtype`: a CubePy dtype, equal to NumPy's of that name;
    `device`: a name such as "cuda:0". Indexing with integers and slices gives views.
    """

    __slots__ = ("_memory",)

    def __init__(self, memory: Memory) -> None:
        """An array over memory that its `owner` keeps alive; users call `cp.asarray`."""
        self._memory = memory

    @staticmethod
    def __cubepy_memory__(x: Array) -> Memory:
        return (
            x._memory if x._memory.queue is None else replace(x._memory, queue=queue_now(x._memory))
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self._memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next, by axis."""
        return self._memory.strides

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._memory.dtype

    @property
    def device(self) -> str:
        """The name of the device that holds the elements."""
        return self._memory.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self._memory.is_contiguous

    @property
    def is_pinned(self) -> bool:
        """Whether the elements are in page-locked host memory; see `cp.empty`."""
        return isinstance(self._memory.owner, Pinned)

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array: a view of a host array, a copy of any other's.

        Waits for the work that was enqueued on the array. A view of a pinned array knows nothing of
        copies that begin later: take another one then.
        """
        memory, kind = self._memory, numpy_dtype(self.dtype)
        if self.device == HOST:
            if self.is_pinned:
                memory.owner.wait()
            is_numpy = isinstance(memory.owner, tuple)
            return memory.owner[0] if is_numpy else raw_view(memory).view(kind)
        device = find_device(self.device)
        low, high = memory.extent()
        held = np.empty(high - low, np.uint8)
        if held.size:
            with Ordered(device, None, (self.__cubepy_memory__(self),), ()) as queue:
                device.download(held.ctypes.data, low, held.size, queue)
        place = memory.address - low if held.size else 0
        found = np.ndarray(self.shape, kind, held.data, place, self.strides)
        return found if self.is_contiguous else np.ascontiguousarray(found)

    def _share(self) -> Any:
        """Note that another library takes the memory; gives its owner if that is CubePy."""
        owner = self._memory.owner
        if not isinstance(owner, Queued):
            return None
        owner.is_shared = True
        return owner

    def to(self, device: str | Device) -> Array:
        """The array on a device: itself if it is there, else a contiguous copy."""
        name = device if isinstance(device, str) else device.name
        target = find_device(name)
        if target.name == self.device or (target.uses_host_memory and self.device == HOST):
            return self
        return from_numpy(self.numpy(), target)

    def copy(self) -> Array:
        """A contiguous copy on the same device."""
        return from_numpy(self.numpy(), find_device(self.device), copy=True)

    def copy_from(self, source: Any, stream: Any = None) -> None:
        """Copy the elements of an array into this one, in order of a stream.

        `source`: a NumPy array, an `Array` or another library's, of the same shape and dtype; it is
        on the same device, or one of the two on the host. Both are contiguous. `stream`: as
        `kernel.configure` takes it; default: the device's own queue.

        Returns at once between a device with queues and pinned memory (see `cp.empty`), and within
        such a device; else when the copy is done. Reading either array waits. Raises `LaunchError`
        before anything is copied: E401 to E405 and E418 as a launch does, E422 for shapes that
        differ and for gaps; `UnsupportedError` E310 for a stream where there are none.
        """
        if is_recording():
            record(partial(self.copy_from, source, stream))
            return
        try:
            copy_into(self._memory, source, stream)
        except Error as error:
            raise error.with_traceback(None) from None

    def reshape(self, *shape: Any) -> Array:
        """A view with another shape; one extent may be -1. ValueError unless contiguous."""
        extents = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        if not self.is_contiguous:
            raise ValueError("reshape of an array with gaps: take a .copy() of it first")
        if self._is_numpys:
            return from_numpy(self.numpy().reshape(extents))
        return self._seen_as(raw_view(self._memory).reshape(extents))

    def __getitem__(self, key: Any) -> Array:
        """A view, as NumPy's basic indexing gives it; IndexError for other keys."""
        keys = key if isinstance(key, tuple) else (key,)
        if not all(k is None or k is Ellipsis or _is_basic(k) for k in keys):
            raise IndexError("arrays take integers, slices, None and ...")
        if self._is_numpys:
            return from_numpy(_with_axes(self.numpy(), keys))
        return self._seen_as(_with_axes(raw_view(self._memory), keys))

    @property
    def _is_numpys(self) -> bool:
        """Whether views are NumPy's: nothing has to know what they are views of."""
        return self.device == HOST and not self.is_pinned

    def _seen_as(self, view: np.ndarray) -> Array:
        """The same memory in the layout of a view of `raw_view`."""
        place, shape, strides = pointer(view), view.shape, view.strides
        return Array(replace(self._memory, address=place, shape=shape, strides=strides))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def item(self) -> Any:
        """The only element as a Python number; ValueError unless there is one."""
        return self.numpy().item()

    def __bool__(self) -> bool:
        """Whether the only element is not 0; ValueError unless there is one."""
        return bool(self._only("truth"))

    def __float__(self) -> float:
        return float(self._only("number"))

    def __int__(self) -> int:
        return int(self._only("number"))

    def __index__(self) -> int:
        """The only element of an array of integers."""
        if not self.dtype.is_integer:
            raise TypeError(f"an array of {self.dtype} is no index")
        return int(self._only("number"))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def _only(self, what: str) -> Any:
        if self.size != 1:
            raise ValueError(f"an array of shape {self.shape} has no {what}; see .numpy()")
        return self.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.numpy()
        return np.array(found, dtype, copy=copy)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device != HOST:
            raise AttributeError("the array is not in host memory")
        return self.numpy().__array_interface__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.device.startswith("cuda"):
            raise AttributeError("the array is not on a GPU of NVIDIA")
        owner = self._share()
        if owner is not None:
            find_device(self.device).come_after(0, owner, is_written=True)
        return {
            "shape": self.shape,
            "strides": None if self.is_contiguous else self.strides,
            "typestr": numpy_dtype(self.dtype).str,
            "data": (self._memory.address, not self._memory.is_writeable),
            "version": 3,
            "stream": queue_now(self._memory) or 1,
        }

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule without a version; work on the array is finished by then.

        BufferError off CPU and CUDA, for another device than the array's, and for memory that is
        not to be written, as such a capsule cannot say so.
        """
        if self.device == HOST:
            versions: dict[str, Any] = {"max_version": max_version} if max_version else {}
            return self.numpy().__dlpack__(dl_device=dl_device, copy=copy, **versions)
        if dl_device not in (None, own := self.__dlpack_device__()):
            raise BufferError(f"the array is on device {own} of DLPack, not on {dl_device}")
        if copy:
            return self.copy().__dlpack__()
        if not self._memory.is_writeable:
            raise BufferError("the array is not writeable; share a copy: copy=True")
        owner = self._share()
        if owner is not None:
            owner.wait()
        else:
            find_device(self.device).synchronize(queue_now(self._memory) or 0)
        return to_capsule(self._memory)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device == HOST:
            return self.numpy().__dlpack_device__()
        kind, _, number = self.device.partition(":")
        if kind != "cuda":
            raise BufferError(f"DLPack has no way to share memory of {self.device}; take .numpy()")
        return CUDA_DEVICE, int(number)

    def __repr__(self) -> str:
        inner = np.array2string(self.numpy(), separator=", ", prefix="Array(")
        return f"Array({inner}, dtype={self.dtype}, device={self.device!r})"


def _is_basic(key: Any) -> bool:
    return isinstance(key, int | np.integer | slice) and not isinstance(key, bool)


def _with_axes(array: np.ndarray, keys: tuple[Any, ...]) -> np.ndarray:
    """The view of some keys; without an ellipsis NumPy would make a scalar of a whole index."""
    return array[keys if Ellipsis in keys else (*keys, ...)]


def from_numpy(array: np.ndarray, device: Device | None = None, copy: bool = False) -> Array:
    """A NumPy array as an `Array`: without copying on the host, else a contiguous copy."""
    target = device or find_device(HOST)
    if target.uses_host_memory:
        held = array.copy() if copy else array
        memory = read_memory(held)
        assert memory is not None
        return Array(memory)
    made = allocate(array.shape, _dtype_of(array), target)
    held = np.ascontiguousarray(array)
    if held.nbytes:
        target.upload(made._memory.address, held.ctypes.data, held.nbytes)
    return made


def _dtype_of(array: np.ndarray) -> DType:
    memory = read_memory(array)
    assert memory is not None
    return memory.dtype


def allocate_pinned(shape: tuple[int, ...], dtype: DType) -> Array:
    """An uninitialised, contiguous array in page-locked memory of the host."""
    block = pinned_memory(prod(shape) * dtype.itemsize)
    strides = contiguous_strides(shape, dtype.itemsize)
    return Array(Memory(block.address, dtype, shape, strides, True, True, block))


def allocate(shape: tuple[int, ...], dtype: DType, device: Device) -> Array:
    """An uninitialised, contiguous array; the interpreter's are the host's."""
    if device.uses_host_memory:
        device = find_device(HOST)
    block = device.allocate(prod(shape) * dtype.itemsize)
    strides = contiguous_strides(shape, dtype.itemsize)
    owner: Any = block
    if device.uses_host_memory:
        owner = (np.ndarray(shape, numpy_dtype(dtype), block), block)  # type: ignore[call-overload]
    return Array(Memory(block.address, dtype, shape, strides, True, True, owner, device.name))
