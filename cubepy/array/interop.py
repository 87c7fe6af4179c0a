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
from cubepy.errors import Error, fail
from cubepy.ir.core import FIRST_ADDRESS
from cubepy.ir.types import DTYPES, INDICES, DType, find_dtype
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


class UnknownDtype(TypeError):
    """An array has elements that kernels do not take."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(f"dtype {dtype}")
        self.dtype = dtype

    @property
    def what(self) -> str:
        """What is wrong with the array, for a message."""
        return f"has {self}, which no kernel takes"

    def advice(self, name: str) -> str:
        """What to pass instead of the array with a name."""
        kind, text = getattr(self.dtype, "kind", ""), str(self.dtype)
        if kind == "c" or "complex" in text:
            return f"pass its real and imaginary parts as two arrays, {name}.real and {name}.imag"
        if kind == "V" and self.dtype.names:
            return f"pass its fields as arrays, as in {name}[{self.dtype.names[0]!r}]"
        if kind in ("m", "M"):
            return f"pass its numbers, as in {name}.view(np.int64)"
        if kind in ("U", "S", "T"):
            return "kernels take numbers, and no text"
        how = "to(torch.float64)" if text.startswith("torch.") else "astype(np.float64)"
        return f"make it an array of numbers, as in {name}.{how}"


@lru_cache(maxsize=256)
def _known(dtype: Any) -> DType:
    found = find_dtype(dtype)
    if found is None:
        raise UnknownDtype(dtype)
    return found


def unknown_dtype(given: Any) -> Error:
    """E426 for what names no dtype, with the one that is spelled most like it."""
    from cubepy.frontend.suggest import closest  # an error needs it, a call does not

    names = [d.name for d in DTYPES if d not in INDICES]
    known = f"dtypes are {', '.join(names)}, and what NumPy and torch call these"
    text = given if isinstance(given, str) else getattr(given, "__name__", None) or str(given)
    more = [d.numpy_name for d in DTYPES if d.numpy_name]
    suggestion = _of_code(text) or closest(text, [*names, *more]) or known
    if "complex" in text:
        suggestion = "real and imaginary parts are two arrays of floats in kernels"
    return fail("E426", given=repr(given), suggestion=suggestion)


def _of_code(text: str) -> str:
    """What NumPy means by a code such as f4 or d, which counts bytes; else nothing."""
    try:
        found = find_dtype(np.dtype(text))
    except (TypeError, ValueError, SyntaxError):
        return ""
    if found is None:
        return ""
    more = " names count bits, and NumPy's codes bytes" if text[-1].isdigit() else ""
    return f"did you mean `{found.name}`?{more}"


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
        raise TypeError(f"kernels do not run on torch's device {device}")
    dtype, size = _known(x.dtype), x.element_size()
    if x.is_neg():
        raise TypeError("a lazily negated view: pass its .resolve_neg()")
    try:
        address, steps = address_of_tensor(x), x.stride()
    except RuntimeError as error:
        raise TypeError(_why_unreadable(x, error)) from None
    strides = tuple([s * size for s in steps])
    memory = address, dtype, tuple(x.shape), strides, not records_gradients(x), True, x
    if device.type == "cpu":
        return Memory(*memory)
    return Memory(*memory, f"cuda:{device.index}", queue_of_tensor(x))


_NEAR = 1 << 40
"""Where most processes have no memory, so that few tensors there are looked at twice."""


def lacks_memory(x: Any, address: int) -> bool:
    """Whether a tensor has elements and no storage. `address`: its `data_ptr()`, which then is its
    offset from 0."""
    if address >= _NEAR or not x.numel():
        return False
    return address - x.storage_offset() * x.element_size() < FIRST_ADDRESS


class NoMemory(TypeError):
    """A tensor has elements and no memory, as a fake one, or one whose storage was resized to 0."""


def address_of_tensor(x: Any) -> int:
    """Where the elements of torch's tensor are; it raises `NoMemory`."""
    address = x.data_ptr()
    if lacks_memory(x, address):
        raise NoMemory("it has elements and no memory: pass a tensor that holds numbers")
    return address


def _why_unreadable(x: Any, error: RuntimeError) -> str:
    """Why a tensor has no elements at an address."""
    if "sparse" in str(x.layout):
        return "it is sparse: pass its .to_dense()"
    return str(error).partition("\n")[0]


def records_gradients(x: Any) -> bool:
    """Whether an array is one of torch's whose gradients it records, or that carries a tangent:
    nobody else may write to it then, since gradients would be those of other numbers."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return False
    return (x.requires_grad and torch.is_grad_enabled()) or has_tangent(x)


def has_tangent(x: Any) -> bool:
    """Whether a tensor is a dual one; what is computed of it would have no tangent."""
    module = sys.modules.get("torch.autograd.forward_ad")
    if module is None or getattr(module, "_current_level", -1) < 0:  # in no `dual_level`
        return False
    return module.unpack_dual(x).tangent is not None


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
    is_cupys = type(x).__module__ == "cupy"  # which knows it of one without elements, too
    ordinal = x.data.device_id if is_cupys else cuda_ordinal(address)
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
        _queue_of_interface(x, interface, ordinal),
    )


def _queue_of_interface(x: Any, interface: dict[str, Any], ordinal: int) -> int:
    """The queue in which an array's library works on it now."""
    stream = interface.get("stream")
    if type(x).__module__ == "cupy":
        cuda = sys.modules["cupy"].cuda
        if ordinal != cuda.runtime.getDevice():  # whose stream the interface gives
            stream = cuda.get_current_stream(ordinal).ptr
    return 0 if stream in _DEFAULT_STREAMS else int(stream)


def queue_now(memory: Memory) -> int | None:
    """The queue in which another library works on memory now; it may have changed since the memory
    was read, and the stream that it was in may be gone."""
    owner = memory.owner
    if type(owner).__module__.partition(".")[0] == "torch":
        return queue_of_tensor(owner)
    interface = getattr(owner, "__cuda_array_interface__", None)
    if interface is None:
        return memory.queue
    return _queue_of_interface(owner, interface, int(memory.device.rpartition(":")[2]))
