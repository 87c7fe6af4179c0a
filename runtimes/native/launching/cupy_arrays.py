"""CuPy's arrays, read by their C structure, and the stream in which CuPy works.

CuPy has no exchange interface of DLPack. Where its objects keep what is read is found by looking at
two arrays, and at pointers that are said to be on several GPUs; the stream of the current GPU is
given by a C function that CuPy's modules share by `__pyx_capi__`.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from cubepy.record import dataclass

_STREAM = "get_current_stream_ptr", b"intptr_t (void)"


@dataclass(frozen=True, slots=True)
class CupyLayout:
    """The class of arrays; the address of the function that gives the current stream; where an
    array keeps the vectors of extents and of strides in bytes, dtype and pointer, and that its
    address and the number of its GPU, 0 where there is only one."""

    cls: Any
    stream: int
    shape_at: int
    strides_at: int
    dtype_at: int
    data_at: int
    address_at: int
    device_at: int


def cupy_layout() -> CupyLayout | None:
    """How CuPy's arrays are read; None where they are not as they should be."""
    cupy: Any = sys.modules["cupy"]
    stream, device = _function(cupy), 0
    if cupy.cuda.runtime.getDeviceCount() > 1:
        device = _device_place(cupy)
    if not stream or device is None:
        return None
    whole = cupy.empty((3, 5, 7), "int16")
    probes = whole[1:, ::2], whole.transpose(2, 0, 1)[:, 1]
    places = [_places(probe) for probe in probes]
    if places[0] is None or places[0] != places[1] or not _gives_streams(cupy, stream):
        return None
    return CupyLayout(cupy.ndarray, stream, *places[0], device)


def _function(cupy: Any) -> int:
    """The address of what gives the current stream's handle; 0 if there is no such function."""
    module = sys.modules.get("cupy_backends.cuda.stream")
    capsule = getattr(module, "__pyx_capi__", {}).get(_STREAM[0])
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = api.PyCapsule_GetPointer.argtypes = (
        ctypes.py_object,
        ctypes.c_char_p,
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    if capsule is None or not api.PyCapsule_IsValid(capsule, _STREAM[1]):
        return 0
    return api.PyCapsule_GetPointer(capsule, _STREAM[1]) or 0


def _gives_streams(cupy: Any, stream: int) -> bool:
    read = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(stream)
    side = cupy.cuda.Stream(non_blocking=True)
    before = read() == cupy.cuda.get_current_stream().ptr
    with side:
        return before and read() == side.ptr


def _places(array: Any) -> tuple[int, int, int, int, int] | None:
    """Where an array keeps shape, strides, dtype and pointer, and that its address."""
    size, pointer = type(array).__basicsize__, array.data
    words = {at: _word(id(array) + at) for at in range(16, size, 8)}
    vectors = [
        (at, tuple((ctypes.c_int64 * array.ndim).from_address(word)))
        for at, word in words.items()
        if word > 1 << 16 and _is_vector(word, words.get(at + 8), words.get(at + 16), array.ndim)
    ]
    found = [
        [at for at, values in vectors if values == array.shape],
        [at for at, values in vectors if values == array.strides],
        [at for at, word in words.items() if word == id(array.dtype)],
        [at for at, word in words.items() if word == id(pointer)],
        [
            at
            for at in range(16, type(pointer).__basicsize__, 8)
            if _word(id(pointer) + at) == pointer.ptr
        ],
    ]
    if any(len(places) != 1 for places in found):
        return None
    (shape,), (strides,), (dtype,), (data,), (address,) = found
    return shape, strides, dtype, data, address


def _device_place(cupy: Any) -> int | None:
    """Where a pointer keeps the number of its GPU; nothing is looked at or made there."""
    pointers = [
        cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 20, 64, None, number), 0)
        for number in (1, 77, 5)
    ]
    found = [
        at
        for at in range(16, type(pointers[0]).__basicsize__ - 3, 4)
        if all(ctypes.c_int32.from_address(id(p) + at).value == p.device_id for p in pointers)
    ]
    return found[0] if len(found) == 1 else None


def _is_vector(begin: int, end: int | None, limit: int | None, size: int) -> bool:
    """Whether three words are those of a C++ vector of so many words."""
    return end is not None and limit is not None and end - begin == 8 * size and limit >= end


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value
