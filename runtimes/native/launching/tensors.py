"""torch's tensors, read through the exchange interface of DLPack (1.2 and later).

https://dmlc.github.io/dlpack/latest/c_api.html: `DLPackExchangeAPI` begins with a header of 16
bytes; its function `dltensor_from_py_object_no_sync` describes a tensor without owning it.
"""

from __future__ import annotations

import ctypes
from typing import Any

_NAME = b"dlpack_exchange_api"
_MAJOR = 1
_FILL_AT = 40
DATA, DEVICE, RANK, TYPE, SHAPE, STRIDES, OFFSET = 0, 8, 16, 20, 24, 32, 40
"""The places in a `DLTensor`."""
DLTENSOR_WORDS = 6
CPU = 1
TYPES = {
    "float32": (2, 32),
    "float64": (2, 64),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "bool": (6, 8),
    "float16": (2, 16),
    "int8": (0, 8),
    "int16": (0, 16),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
    "bfloat16": (4, 16),
}
"""DLPack's code and bits of the elements' types."""


def type_word(name: str) -> int:
    """DLPack's type with one lane, as it lies in memory."""
    code, bits = TYPES[name]
    return code | bits << 8 | 1 << 16


def filler(cls: Any) -> int | None:
    """The address of the function that describes tensors of a class; None where there is none, or
    it does not what it should."""
    capsule = getattr(cls, "__dlpack_c_exchange_api__", None)
    pointer, name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    name.restype, name.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if capsule is None or not name(capsule, _NAME):
        return None
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = pointer(capsule, _NAME)
    if ctypes.c_uint32.from_address(table).value != _MAJOR:
        return None
    fill = ctypes.c_void_p.from_address(table + _FILL_AT).value
    return fill if fill is not None and _is_right(fill) else None


def _is_right(fill: int) -> bool:
    import torch

    describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(fill)
    whole = torch.arange(60, dtype=torch.int16).reshape(3, 4, 5)
    for probe in (whole, whole[1:, ::2].transpose(0, 2), whole[0, 0, 0]):
        words = (ctypes.c_int64 * (DLTENSOR_WORDS + 2))()
        at = ctypes.addressof(words)
        if describe(probe, at) != 0 or not _describes(at, probe):
            return False
    return True


def _describes(at: int, tensor: Any) -> bool:
    rank = ctypes.c_int32.from_address(at + RANK).value
    shape, strides = (ctypes.c_int64.from_address(at + k).value for k in (SHAPE, STRIDES))
    sizes = (ctypes.c_int64 * rank).from_address(shape) if rank else ()
    steps = (ctypes.c_int64 * rank).from_address(strides) if rank else ()
    address = sum(ctypes.c_int64.from_address(at + k).value for k in (DATA, OFFSET))
    return (
        rank == tensor.ndim
        and tuple(sizes) == tuple(tensor.shape)
        and tuple(steps) == tensor.stride()
        and address == tensor.data_ptr()
        and ctypes.c_int32.from_address(at + DEVICE).value == CPU
        and ctypes.c_int32.from_address(at + TYPE).value == type_word("int16")
    )
