"""Device memory as DLPack capsules (https://dmlc.github.io/dlpack/latest/c_api.html)."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, bf16, bool_

CUDA_DEVICE = 2
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6


class _Tensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_: ClassVar = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_held: dict[int, Any] = {}
"""What capsules in use refer to, by the address of their structure."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _release(address: int) -> None:
    _held.pop(address, None)


@ctypes.CFUNCTYPE(None, ctypes.py_object)
def _discard(capsule: Any) -> None:
    """A capsule that nobody took."""
    if _is_valid(capsule, b"dltensor"):
        _held.pop(_pointer(capsule, b"dltensor"), None)


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer.restype = ctypes.c_void_p
_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_new.restype = ctypes.py_object


def to_capsule(memory: Memory) -> Any:
    """A capsule of the memory, which lives as long as its consumer wants; TypeError for f8."""
    rank, size = len(memory.shape), memory.dtype.itemsize
    extents = (ctypes.c_int64 * max(1, rank))(*memory.shape)
    strides = (ctypes.c_int64 * max(1, rank))(*[s // size for s in memory.strides])
    managed = _Managed()
    tensor = managed.tensor
    tensor.data, tensor.device_type = memory.address, CUDA_DEVICE
    tensor.device_id, tensor.ndim = int(memory.device.partition(":")[2]), rank
    tensor.code, tensor.bits, tensor.lanes = _code(memory.dtype), 8 * size, 1
    tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_release, ctypes.c_void_p).value
    address = ctypes.addressof(managed)
    _held[address] = (managed, extents, strides, memory)
    return _new(address, b"dltensor", ctypes.cast(_discard, ctypes.c_void_p))


def _code(dtype: DType) -> int:
    if dtype is bool_:
        return _BOOL
    if dtype is bf16:
        return _BFLOAT
    if dtype.is_float and dtype.bits < 16:
        raise TypeError(f"DLPack has no {dtype}")
    if dtype.is_float:
        return _FLOAT
    return _INT if dtype.name.startswith("i") else _UINT
