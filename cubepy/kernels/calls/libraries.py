"""The arrays that prebuilt functions take and return: NumPy's, torch's, CubePy's, CUDA libraries'.

A library recognises its arrays on one device, reads their metadata, and makes the results that its
user would have got from it. It computes nothing.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any, Protocol

import numpy as np

from cubepy.array.array import Array, allocate
from cubepy.array.creation import asarray
from cubepy.array.interop import (
    UnknownDtype,
    address_of_tensor,
    has_tangent,
    is_masked,
    lacks_memory,
    read_memory,
    records_gradients,
)
from cubepy.array.memory import HOST, Memory, numpy_dtype, pointer
from cubepy.errors import Error, fail
from cubepy.ir.core import ALIGNMENT
from cubepy.ir.types import DType
from cubepy.record import dataclass
from cubepy.runtimes.cpu.memory import HUGE_PAGE, MAPPED_BYTES, advise_huge_pages, get_memory
from cubepy.runtimes.registry import find_device

Number = bool | int | float


@contextmanager
def serving(device: str) -> Iterator[None]:
    """Inside the block `device` serves the host arrays that prebuilt functions are given.

    It is one that works on the memory of this process, such as "interpreter", where `pdb` stops in
    the kernels.
    """
    token = _serving.set(NUMPY if device == HOST else _numpy_on(device))
    try:
        yield
    finally:
        _serving.reset(token)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a result looks like: extents, dtype, and the axes from the slowest to the fastest."""

    extents: tuple[int, ...]
    dtype: DType
    order: tuple[int, ...] | None = None

    @property
    def stored(self) -> tuple[int, ...]:
        """The extents in the order of memory."""
        return self.extents if self.order is None else tuple(self.extents[k] for k in self.order)

    @property
    def back(self) -> list[int]:
        """The permutation that gives an array of `stored` the order of the axes."""
        assert self.order is not None
        return sorted(range(len(self.order)), key=self.order.__getitem__)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one to the next of each axis, in dense memory."""
        strides, step = [0] * len(self.extents), 1
        for k in reversed(range(len(self.extents)) if self.order is None else self.order):
            strides[k] = step
            step *= max(1, self.extents[k])
        return tuple(strides)


class Library(Protocol):
    """One library's arrays on one device, whose name is `device`.

    `keeps_alignment`: a key holds the place of an address within 64 bytes, for which kernels are
    specialised then.
    """

    device: str
    keeps_alignment: bool

    def key(self, x: Any) -> Any:
        """Everything about an array that a plan depends on, hashable."""
        ...

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        """Where the elements with all indices zero lie."""
        ...

    def empty(self, shape: Shape) -> Any:
        """An uninitialised array, aligned to 64 bytes where `keeps_alignment`."""
        ...

    def maker(self, shape: Shape) -> Callable[[], Any]:
        """What makes such arrays, for plans that make one in each call."""
        ...

    def scratch_maker(self, shape: Shape) -> Callable[[], Any]:
        """The same for arrays that the caller never has, and so cannot keep for a graph."""
        ...

    def scalar(self, x: Any) -> Any:
        """An array without axes as its library returns it."""
        ...

    def constant(self, value: Number | Sequence[Number], dtype: DType) -> Any:
        """A number as an array without axes, or several as one of one axis."""
        ...

    def launch(self, program: Callable[..., None], operands: Sequence[Any]) -> None:
        """Launch a program on arrays, in the order of the queue that works on them."""
        ...


class NumpyLibrary:
    """NumPy arrays, and whatever shows its memory as one; results come from the pool."""

    keeps_alignment = False

    def __init__(self, device: str = HOST) -> None:
        self.device = device

    def key(self, x: np.ndarray) -> Any:
        return x.dtype, x.shape, x.strides, x.flags.num

    def addresses(self, arrays: Iterable[np.ndarray]) -> list[int]:
        return [pointer(x) for x in arrays]

    def empty(self, shape: Shape) -> np.ndarray:
        allocate, dtype = get_memory().allocate_array, numpy_dtype(shape.dtype)
        if shape.order is None:
            return allocate(shape.extents, dtype)
        return allocate(shape.stored, dtype).transpose(shape.back)

    def maker(self, shape: Shape) -> Callable[[], np.ndarray]:
        dtype = numpy_dtype(shape.dtype)
        if prod(shape.extents) * dtype.itemsize >= MAPPED_BYTES:
            return partial(self.empty, shape)
        make = partial(np.empty, shape.stored, dtype)  # as the pool would
        if shape.order is None:
            return make
        back = shape.back
        return lambda: make().transpose(back)

    scratch_maker = maker

    def scalar(self, x: np.ndarray) -> Any:
        return x[()]

    def constant(self, value: Number | Sequence[Number], dtype: DType) -> np.ndarray:
        return np.array(value, numpy_dtype(dtype))

    def launch(self, program: Callable[..., None], operands: Sequence[Any]) -> None:
        program(*operands)


class TorchMaker:
    """Makes dense tensors of one shape, with the axes in one order."""

    __slots__ = ("_make", "dtype", "extents", "strides")

    def __init__(self, shape: Shape, dtype: Any, place: Any) -> None:
        self.extents, self.strides, self.dtype = shape.extents, shape.strides, dtype
        make = torch().empty_strided
        self._make = partial(make, self.extents, self.strides, dtype=dtype, device=place)

    def __call__(self) -> Any:
        return self._make()


class TorchLibrary:
    """torch's tensors on the CPU or a GPU; results come from torch's allocator."""

    def __init__(self, device: str, place: Any) -> None:
        """`place`: torch's own name of the device."""
        self.device = device
        self.keeps_alignment = place.type != "cpu"
        self._place = place
        self._unit = ALIGNMENT if self.keeps_alignment else 8

    def key(self, x: Any) -> Any:
        try:
            return self._key(x)
        except RuntimeError:  # of nested ones and those of torch.func, refused when a plan is made
            return x.dtype, None

    def _key(self, x: Any) -> Any:
        is_special = x.is_neg() or x.layout is not torch().strided
        records = records_gradients(x)
        address = 0 if is_special else x.data_ptr()
        is_absent = not is_special and lacks_memory(x, address)  # refused when its plan is made
        place = -1 if is_special or is_absent else address % self._unit
        return x.dtype, x.shape, None if is_special else x.stride(), records, place

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        try:
            return [x.data_ptr() for x in arrays]
        except RuntimeError:  # of sparse ones, which are refused when their plan is made
            return [0 for _ in arrays]

    def empty(self, shape: Shape) -> Any:
        dtype = getattr(torch(), shape.dtype.numpy_name)
        stored = torch().empty(shape.stored, dtype=dtype, device=self._place)
        if not self.keeps_alignment and stored.nbytes >= 2 * HUGE_PAGE:
            advise_huge_pages(stored.data_ptr(), stored.nbytes)
        return stored if shape.order is None else stored.permute(*shape.back)

    def maker(self, shape: Shape) -> Callable[[], Any]:
        nbytes = prod(shape.extents) * shape.dtype.itemsize
        if not self.keeps_alignment and nbytes >= 2 * HUGE_PAGE:
            return partial(self.empty, shape)
        return TorchMaker(shape, getattr(torch(), shape.dtype.numpy_name), self._place)

    scratch_maker = maker  # torch's graphs have a pool of their own

    def scalar(self, x: Any) -> Any:
        return x

    def constant(self, value: Number | Sequence[Number], dtype: DType) -> Any:
        kind = getattr(torch(), dtype.numpy_name)
        if self.keeps_alignment and torch().cuda.is_current_stream_capturing():
            return self._filled(value, kind)
        return torch().tensor(value, dtype=kind, device=self._place)

    def _filled(self, value: Number | Sequence[Number], kind: Any) -> Any:
        """A constant that kernels write: a graph would read the host's memory at each replay."""
        if isinstance(value, Sequence):
            return torch().stack([self._filled(v, kind) for v in value])
        return torch().full((), value, dtype=kind, device=self._place)

    def launch(self, program: Callable[..., None], operands: Sequence[Any]) -> None:
        if self.keeps_alignment:
            program(*operands)
        else:
            program(*map(address_of_tensor, operands))


class _Foreign(ABC):
    """What libraries have in common whose arrays are read by `read_memory`."""

    @abstractmethod
    def empty(self, shape: Shape) -> Any:
        """See `Library`."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.keeps_alignment = device != HOST

    def key(self, x: Any) -> Any:
        m = read(x)
        place = m.address % ALIGNMENT if self.keeps_alignment else 0
        return m.device, m.dtype, m.shape, m.strides, m.is_writeable, m.is_native, place

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        return [read(x).address for x in arrays]

    def maker(self, shape: Shape) -> Callable[[], Any]:
        return partial(self.empty, shape)

    def scratch_maker(self, shape: Shape) -> Callable[[], Any]:
        return self.maker(shape)

    def launch(self, program: Callable[..., None], operands: Sequence[Any]) -> None:
        program(*operands)


class ArrayLibrary(_Foreign):
    """CubePy's own arrays on any device."""

    def empty(self, shape: Shape) -> Array:
        if self.device == HOST:
            return asarray(NUMPY.empty(shape))
        made = allocate(shape.stored, shape.dtype, find_device(self.device))
        return made if shape.order is None else Array(_permuted(read(made), shape.back))

    def scalar(self, x: Any) -> Any:
        return x

    def constant(self, value: Number | Sequence[Number], dtype: DType) -> Array:
        return asarray(np.array(value, numpy_dtype(dtype)), device=self.device)


class CudaLibrary(_Foreign):
    """Arrays with the CUDA array interface: CuPy's and Numba's get their own kind back, those of
    other libraries a CubePy array."""

    def __init__(self, device: str, module: str) -> None:
        super().__init__(device)
        self._module = module
        self._own = ArrayLibrary(device)

    def empty(self, shape: Shape) -> Any:
        make = _MAKERS.get(self._module)
        if make is None or shape.dtype.name in ("bf16", "f8e4m3", "f8e5m2"):
            return self._own.empty(shape)
        library, dtype = sys.modules[self._module], numpy_dtype(shape.dtype)
        stored = make(library, shape.stored, dtype, int(self.device.rpartition(":")[2]))
        return stored if shape.order is None else stored.transpose(tuple(shape.back))

    def scalar(self, x: Any) -> Any:
        return x

    def scratch_maker(self, shape: Shape) -> Callable[[], Any]:
        make = self.maker(shape)
        return partial(_kept_for_graphs, make) if self._module == "cupy" else make

    def constant(self, value: Number | Sequence[Number], dtype: DType) -> Any:
        if self._module != "cupy" or not _is_captured_by_cupy():
            return self._own.constant(value, dtype)
        extents = (len(value),) if isinstance(value, Sequence) else ()
        made = _kept_for_graphs(partial(self.empty, Shape(extents, dtype)))
        if not isinstance(value, Sequence):
            made.fill(value)
            return made
        for k, v in enumerate(value):
            made[k].fill(v)
        return made


_of_graphs: list[Any] = []
"""What CuPy's graphs use and no caller has: they do not say when they end, and the pool would
give the memory to others."""


def _is_captured_by_cupy() -> bool:
    return sys.modules["cupy"].cuda.get_current_stream().is_capturing()


def _kept_for_graphs(make: Callable[[], Any]) -> Any:
    """What is made, kept until the process ends if CuPy captures."""
    made = make()
    if _is_captured_by_cupy():
        _of_graphs.append(made)
    return made


def _cupys(cupy: Any, extents: tuple[int, ...], dtype: Any, ordinal: int) -> Any:
    if cupy.cuda.runtime.getDevice() == ordinal:
        return cupy.empty(extents, dtype)
    with cupy.cuda.Device(ordinal):
        return cupy.empty(extents, dtype)


def _numbas(numba: Any, extents: tuple[int, ...], dtype: Any, ordinal: int) -> Any:
    with numba.cuda.gpus[ordinal]:
        return numba.cuda.device_array(extents, dtype)


_MAKERS: dict[str, Any] = {"cupy": _cupys, "numba": _numbas}

NUMPY = NumpyLibrary()

_serving: ContextVar[NumpyLibrary] = ContextVar("cubepy_serving", default=NUMPY)
"""NumPy's arrays with the device that serves them."""


def serving_numpy() -> NumpyLibrary:
    """NumPy's arrays with the device that serves them now."""
    return _serving.get()


@lru_cache(maxsize=64)
def torch_on(place: Any) -> TorchLibrary:
    """torch's tensors on one of its devices."""
    return TorchLibrary(HOST if place.type == "cpu" else f"{place.type}:{place.index or 0}", place)


_numpy_on = lru_cache(maxsize=64)(NumpyLibrary)
arrays_on = lru_cache(maxsize=64)(ArrayLibrary)
cuda_on = lru_cache(maxsize=64)(CudaLibrary)


def torch() -> Any:
    """torch, which whoever made a tensor has imported."""
    return sys.modules["torch"]


def incrementing(library: Library) -> Callable[[Any], None] | None:
    """What increments the version counter of an array of a library; None where it has none."""
    if isinstance(library, TorchLibrary):
        return torch().autograd.graph.increment_version
    return None


def increment_versions(library: Library, arrays: Sequence[Any]) -> None:
    """Increment the version counters of torch's tensors that were written: it refuses gradients
    that need what they held, as behind functions of its own."""
    increment = incrementing(library)
    if increment is not None:
        for x in arrays:
            increment(x)


def read(x: Any) -> Memory:
    """The memory of what is known to be an array."""
    memory = read_memory(x)
    assert memory is not None
    return memory


def _permuted(memory: Memory, axes: Sequence[int]) -> Memory:
    return replace(
        memory,
        shape=tuple(memory.shape[k] for k in axes),
        strides=tuple(memory.strides[k] for k in axes),
    )


# Recognising


class Described(np.ndarray):
    """An array that stands for arguments of its layout while a function is inspected."""

    library: Library


def is_torch(x: Any) -> bool:
    """Whether `x` is a torch tensor; torch is not imported to find out."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(x, module.Tensor)


def library_of(function: str, name: str, x: Any) -> tuple[Library, Any]:
    """The library of an array, and the array as that sees it; E602 for what is no array."""
    if type(x) is np.ndarray:
        return _serving.get(), x
    if is_torch(x):
        return torch_on(x.device), x
    if isinstance(x, Array):
        return arrays_on(x.device), x
    if isinstance(x, Described):
        return x.library, x
    if isinstance(x, np.ndarray) or hasattr(x, "__array_interface__"):
        if is_masked(x):
            raise refused(function, name, "is masked", "pass its .filled(...)")
        seen = np.asarray(x)
        if isinstance(x, np.generic):  # as NumPy's functions return them: nothing can be stored
            seen.flags.writeable = False
        return _serving.get(), seen
    found = _foreign(function, name, x)
    if found is not None:
        return found
    raise fail(
        "E602",
        function=function,
        reason=f"`{name}` is a {type(x).__name__}, not an array",
        suggestion="pass a NumPy array, a torch tensor or what cp.asarray gives",
    )


def _foreign(function: str, name: str, x: Any) -> tuple[Library, Any] | None:
    """The library of an array that is known by a protocol alone."""
    try:
        memory = read_memory(x)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise _unread(function, name, error) from None
    if memory is None:
        return None
    if memory.device == HOST:
        return _serving.get(), memory.owner[0]
    return cuda_on(memory.device, type(x).__module__.partition(".")[0]), x


def libraries_agree(function: str, named: Iterable[tuple[str, Library]]) -> Library:
    """The one library of some arrays; E602 where they are of two, or on two devices."""
    (first, library), *rest = named
    for name, other in rest:
        if other is not library:
            where = f"`{first}` is {_shown(library)} and `{name}` is {_shown(other)}"
            reason = f"the arrays are of two libraries or devices: {where}"
            raise fail("E602", function=function, reason=reason, suggestion="convert one of them")
    return library


def _shown(library: Library) -> str:
    """Whose arrays these are, and where, for people."""
    owners = {NumpyLibrary: "NumPy's", TorchLibrary: "torch's", ArrayLibrary: "CubePy's"}
    return f"{owners.get(type(library), 'of CUDA')} on {library.device}"


# Reading


def checked_memory(function: str, name: str, library: Library, x: Any) -> Memory:
    """The memory of an array; E602 for what no kernel takes."""
    if isinstance(library, TorchLibrary):
        _check_tensor(function, name, x)
    try:
        memory = read(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _unread(function, name, error) from None
    if not memory.is_native:
        raise refused(function, name, "is big-endian", "convert it with .astype(...)")
    size = memory.dtype.itemsize
    if 0 not in memory.shape and any(v % size for v in (memory.address, *_used(memory))):
        raise refused(function, name, "has elements that are not aligned to their size", "copy it")
    return memory


def without_memory(function: str) -> Error:
    """E602 for a result that the library made without memory."""
    reason = "its result has elements and no memory"
    return fail("E602", function=function, reason=reason, suggestion="leave torch's FakeTensorMode")


def _unread(function: str, name: str, error: Exception) -> Error:
    """E602 for an array that cannot be read."""
    if isinstance(error, UnknownDtype):
        return refused(function, name, error.what, error.advice(name))
    return refused(function, name, f"cannot be read: {error}", "")


def _check_tensor(function: str, name: str, x: Any) -> None:
    if has_tangent(x):
        what, hint = "carries a tangent", "pass fw.unpack_dual(x).primal"
        raise refused(function, name, f"{what}, and prebuilt kernels compute none", hint)
    if records_gradients(x):
        what, hint = "requires grad", "call it inside torch.no_grad(), or pass x.detach()"
        raise refused(function, name, f"{what}, and prebuilt kernels record no gradients", hint)
    if x.device.type not in ("cpu", "cuda"):
        what = f"is on the device {x.device}, which no kernel reaches"
        raise refused(function, name, what, "copy it, as in x.cpu()")
    if x.layout is not torch().strided or x.is_neg():
        raise refused(function, name, "is sparse or negated lazily", "resolve it first")


def refused(function: str, name: str, what: str, suggestion: str) -> Error:
    """E602 for an argument that no kernel takes."""
    return fail("E602", function=function, reason=f"`{name}` {what}", suggestion=suggestion)


def _used(memory: Memory) -> list[int]:
    """Strides of axes that are more than one element long."""
    return [s for n, s in zip(memory.shape, memory.strides, strict=True) if n > 1]


def read_output(
    function: str, library: Library, out: Any, shape: Shape, name: str = "out"
) -> Memory:
    """The memory of a given result; E601 or E602 unless it has that shape and dtype."""
    memory = checked_memory(function, name, library, out)
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


def contiguous(shape: Shape, device: str = HOST) -> Memory:
    """The memory of an array that `Library.empty` makes."""
    strides = [0] * len(shape.extents)
    step = shape.dtype.itemsize
    for axis in reversed(shape.order or range(len(shape.extents))):
        strides[axis] = step
        step *= max(1, shape.extents[axis])
    return Memory(0, shape.dtype, shape.extents, tuple(strides), True, True, None, device)
