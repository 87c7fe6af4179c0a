"""torch's tensors, read through the exchange interface of DLPack (1.2 and later).

https://dmlc.github.io/dlpack/latest/c_api.html: `DLPackExchangeAPI` begins with a header of 16
bytes; its function `dltensor_from_py_object_no_sync` describes a tensor without owning it, and
`current_work_stream` gives the stream in which torch works.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cubepy.record import dataclass

_NAME = b"dlpack_exchange_api"
_MAJOR = 1
_FILL_AT, _STREAM_AT = 40, 48
DATA, DEVICE, RANK, TYPE, SHAPE, STRIDES, OFFSET = 0, 8, 16, 20, 24, 32, 40
"""The places in a `DLTensor`."""
DLTENSOR_WORDS = 6
CPU, GPU = 1, 2
_IMPL_BYTES = 184
"""Of a tensor's implementation at least."""
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


@dataclass(frozen=True, slots=True)
class Interface:
    """Where tensors of a class are read: the addresses of torch's functions that describe one and
    that give the current stream of a device, and where its dispatch keys are, if that is known: the
    place of the implementation in the object, that of the keys in the implementation, the key of
    tensors that are negated lazily; and there the place of what is known of gradients."""

    fill: int
    stream: int
    impl_at: int = 0
    keys_at: int = 0
    negative: int = 0
    grad_at: int = 0


def interface(cls: Any) -> Interface | None:
    """How tensors of a class are read; None where they cannot be, or not as they should."""
    capsule = getattr(cls, "__dlpack_c_exchange_api__", None)
    pointer, name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    name.restype, name.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if capsule is None or not name(capsule, _NAME):
        return None
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = pointer(capsule, _NAME)
    if ctypes.c_uint32.from_address(table).value != _MAJOR:
        return None
    fill, stream = (ctypes.c_void_p.from_address(table + k).value for k in (_FILL_AT, _STREAM_AT))
    if fill is None or not _is_right(fill):
        return None
    return Interface(fill, stream or 0, *_keys())


def gives_streams(stream: int, ordinal: int, handle: int) -> bool:
    """Whether torch's function gives the current stream of a GPU; `handle`: any stream there."""
    import torch

    read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(stream)
    found = ctypes.c_uint64()
    external = torch.cuda.ExternalStream(handle, device=ordinal)
    with torch.cuda.stream(external):
        failed = read(GPU, ordinal, ctypes.addressof(found))
    return not failed and found.value == handle


def _keys() -> tuple[int, int, int, int]:
    """Where tensors keep their dispatch keys, of which torch gives a copy, and what is known of
    gradients; zeros if not found.

    Asking a tensor by its method whether it is negated takes longer than all else that is read.
    """
    import torch

    plain = torch.arange(6, dtype=torch.float32)
    negated = torch.zeros(3, dtype=torch.complex64).conj().imag
    graded = torch.zeros(2, requires_grad=True)
    probes = (plain, plain.reshape(2, 3).T[:1], negated, graded, graded.detach(), plain.short())
    try:
        keys = [int(torch._C._dispatch_keys(x).raw_repr()) for x in probes]
        impls = [int(x._cdata) for x in probes]
        negative = int(torch._C.DispatchKeySet(torch._C.DispatchKey.Negative).raw_repr())
    except (AttributeError, TypeError):  # none of this is documented
        return 0, 0, 0, 0
    objects = [id(x) for x in probes]
    impl_at = _place(objects, impls, range(16, type(plain).__basicsize__, 8))
    keys_at = _place(impls, keys, range(0, _IMPL_BYTES, 8)) if impl_at else None
    is_known = [bool(k & negative) for k in keys] == [x.is_neg() for x in probes]
    is_known = is_known and keys[0] | negative == keys[2]
    if not (impl_at and keys_at and is_known):
        return 0, 0, 0, 0
    return impl_at, keys_at, negative, _grad_at((plain, plain.short()), (graded, graded * 2))


def _grad_at(plain: tuple[Any, ...], graded: tuple[Any, ...]) -> int:
    """The one place in an implementation that has something for tensors that require gradients
    alone; 0 if there is none."""
    found = [
        at
        for at in range(8, _IMPL_BYTES, 8)
        if all(_word(x, at) for x in graded) and not any(_word(x, at) for x in plain)
    ]
    return found[0] if len(found) == 1 else 0


def _word(tensor: Any, at: int) -> int:
    return ctypes.c_uint64.from_address(int(tensor._cdata) + at).value


def _place(bases: list[int], words: list[int], places: range) -> int | None:
    """The one distance from all bases at which the words lie."""
    found = [
        at
        for at in places
        if all(
            ctypes.c_uint64.from_address(base + at).value == w
            for base, w in zip(bases, words, strict=True)
        )
    ]
    return found[0] if len(found) == 1 else None


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
