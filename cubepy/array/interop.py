"""Reading the arrays of other libraries without copying: NumPy, torch, CuPy, Numba, PyCUDA, JAX.

Host arrays come by NumPy's array interface or DLPack, arrays on NVIDIA GPUs by the CUDA array
interface (version 3: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.array.memory import Memory, contiguous_strides, pointer
from cubepy.ir.types import DType, find_dtype
from cubepy.runtimes.registry import cuda_ordinal

_DEFAULT_STREAMS = None, 1
"""What the CUDA array interface calls CUDA's legacy default stream, in which a library works that
names no stream. Its handle is 0; that of the stream of each thread, 2, is the interface's."""


def read_memory(x: Any) -> Memory | None:
    """The memory of an array; None for what is no array. TypeError for unknown dtypes.

    A `Memory` is its own: callers that know a layout already pass that.
    """
    if isinstance(x, Memory):
        return x
    if isinstance(x, np.ndarray):
        return _of_numpy(x, x)
    if isinstance(x, np.generic):
        return None
    own = getattr(type(x), "__cubepy_memory__", None)
    if own is not None:
        return own(x)
    if type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "data_ptr"):
        return _of_torch(x)
    if hasattr(x, "__array_interface__"):
        return _of_numpy(np.asarray(x), x)
    if hasattr(x, "__cuda_array_interface__"):
        return _of_cuda(x, x.__cuda_array_interface__)
    if hasattr(x, "__dlpack__"):
        return _of_numpy(np.from_dlpack(x), x)
    return None


@lru_cache(maxsize=256)
def _known(dtype: Any) -> DType:
    found = find_dtype(dtype)
    if found is None:
        raise TypeError(f"dtype {dtype}")
    return found


MASKED = "masked: pass its .filled(...)"


def is_masked(x: Any) -> bool:
    """Whether elements of `x` do not count, of which kernels know nothing."""
    masked = sys.modules.get("numpy.ma")  # NumPy imports it at its first use, which takes a while
    return masked is not None and isinstance(x, masked.MaskedArray)


def _of_numpy(array: np.ndarray, owner: Any) -> Memory:
    dtype = _known(array.dtype)
    if is_masked(array):
        raise TypeError(MASKED)
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
    device = x.device
    if device.type not in ("cpu", "cuda"):
        raise TypeError(f"device {device}")
    if x.is_neg() or x.is_conj():
        raise TypeError("a lazily negated view: pass its .resolve_neg()")
    dtype, size = _known(x.dtype), x.element_size()
    strides = tuple([s * size for s in x.stride()])
    memory = x.data_ptr(), dtype, tuple(x.shape), strides, not records_gradients(x), True, x
    if device.type == "cpu":
        return Memory(*memory)
    return Memory(*memory, f"cuda:{device.index}", queue_of_tensor(x))


def records_gradients(x: Any) -> bool:
    """Whether an array is one of torch's whose gradients it records: nobody else may write to it
    then, since gradients would be those of other numbers."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return False
    return x.requires_grad and torch.is_grad_enabled()


def queue_of_tensor(x: Any) -> int | None:
    """The queue in which torch works on a tensor: its current stream on that GPU, None on a CPU."""
    device = x.device
    return _current_stream()(device.index) if device.type == "cuda" else None


@lru_cache(maxsize=1)
def _current_stream() -> Callable[[int], int]:
    """The handle of torch's current stream on a GPU; the quick way, which Triton takes as well."""
    torch = sys.modules["torch"]
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return quick or (lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream)


def _of_cuda(x: Any, interface: dict[str, Any]) -> Memory:
    if interface.get("mask") is not None:
        raise TypeError("masked")
    numpy = np.dtype(interface["typestr"])
    dtype, shape = _known(numpy), tuple(interface["shape"])
    address, is_read_only = interface["data"]
    stream = interface.get("stream")
    if type(x).__module__ == "cupy":
        ordinal = x.data.device_id  # also of one without elements, which has no address
        cuda = sys.modules["cupy"].cuda
        if ordinal != cuda.runtime.getDevice():  # whose stream the interface gives
            stream = cuda.get_current_stream(ordinal).ptr
    else:
        ordinal = cuda_ordinal(address)
    strides = interface.get("strides") or contiguous_strides(shape, dtype.itemsize)
    return Memory(
        address,
        dtype,
        shape,
        tuple(strides),
        not is_read_only,
        numpy.isnative,
        x,
        f"cuda:{ordinal}",
        0 if stream in _DEFAULT_STREAMS else stream,
    )
