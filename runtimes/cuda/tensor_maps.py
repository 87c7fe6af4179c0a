"""Tensor maps: the 128 bytes that describe to the copy engine how an array lies in memory.

Reference: CUDA Driver API, Tensor Map Object Management.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cubepy.runtimes.cuda.driver import check, driver

_WORDS, _ALIGNMENT = 16, 64
_NO_STRIDES = (16,)
"""Of an array of one axis, so that the driver gets an address, which it does not read."""
_TYPES = {
    **dict.fromkeys(("i8", "u8", "f8e4m3", "f8e5m2"), "UINT8"),
    **dict.fromkeys(("i16", "u16"), "UINT16"),
    "i32": "INT32",
    "u32": "UINT32",
    "i64": "INT64",
    "u64": "UINT64",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
}
"""How the driver names the elements; the engine only moves them."""


class EncodedMap:
    """A tensor map at `address` in this process, for as long as the object lives."""

    def __init__(self, words: list[int]) -> None:
        self._memory = (ctypes.c_uint64 * (_WORDS + _ALIGNMENT // 8))()
        start = ctypes.addressof(self._memory)
        self.address = -(-start // _ALIGNMENT) * _ALIGNMENT
        (ctypes.c_uint64 * _WORDS).from_address(self.address)[:] = words

    def words(self) -> list[int]:
        """What it consists of."""
        return list((ctypes.c_int64 * _WORDS).from_address(self.address))


def encode(
    address: int,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
) -> EncodedMap:
    """The map of an array; axes in row-major order, `strides` in bytes. E508 where it fails."""
    api = driver()
    made = api.cuTensorMapEncodeTiled(
        *_array(api, address, dtype, shape, strides),
        [api.cuuint32_t(n) for n in reversed(box)],
        [api.cuuint32_t(1)] * len(shape),
        *_ways(api, swizzle),
    )
    return _encoded("cuTensorMapEncodeTiled", made)


def encode_im2col(
    address: int,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    lower: tuple[int, ...],
    upper: tuple[int, ...],
    steps: tuple[int, ...],
) -> EncodedMap:
    """As `encode`, in im2col mode: boxes are pixels by channels, of which `lower` and `upper` are
    the corners and `steps` the distances along the axes between the first and the last."""
    api = driver()
    pixels, channels = box
    made = api.cuTensorMapEncodeIm2col(
        *_array(api, address, dtype, shape, strides),
        list(reversed(lower)),
        list(reversed(upper)),
        channels,
        pixels,
        [api.cuuint32_t(n) for n in (1, *reversed(steps), 1)],
        *_ways(api, swizzle),
    )
    return _encoded("cuTensorMapEncodeIm2col", made)


def _array(
    api: Any, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[Any, ...]:
    return (
        getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[dtype]}"),
        len(shape),
        address,
        [api.cuuint64_t(n) for n in reversed(shape)],
        [api.cuuint64_t(s) for s in reversed(strides[:-1] or _NO_STRIDES)],
    )


def _ways(api: Any, swizzle: int) -> tuple[Any, ...]:
    return (
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        _swizzle(api, swizzle),
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def _encoded(function: str, made: Any) -> EncodedMap:
    found = check(function, made)
    return EncodedMap([int(word) for word in found.opaque])


def _swizzle(api: Any, size: int) -> Any:
    name = f"{size}B" if size else "NONE"
    return getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{name}")
