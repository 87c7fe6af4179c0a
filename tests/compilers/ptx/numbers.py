"""Registers hold bits; these are the numbers that they mean, and back."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
from fractions import Fraction

import numpy as np

BITS = {f"{kind}{n}": n for kind in "busf" for n in (8, 16, 32, 64)} | {"pred": 1, "bf16": 16}
_FLOATS = {16: "e", 32: "f", 64: "d"}
_LIBRARY = ctypes.CDLL(ctypes.util.find_library("m"))
_LIBRARY.fmaf.argtypes = [ctypes.c_float] * 3
_LIBRARY.fmaf.restype = ctypes.c_float
_LIBRARY.fma.argtypes = [ctypes.c_double] * 3
_LIBRARY.fma.restype = ctypes.c_double


def is_float(kind: str) -> bool:
    """Whether numbers of the type are floats."""
    return kind[0] == "f" or kind == "bf16"


def meaning(bits: int, kind: str) -> int | float:
    """The number of bits of a type."""
    size = BITS[kind]
    bits &= (1 << size) - 1
    if kind == "bf16":
        return meaning(bits << 16, "f32")
    if kind[0] == "f":
        (number,) = struct.unpack(f"<{_FLOATS[size]}", bits.to_bytes(size // 8, "little"))
        return float(number)
    return bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits


def bits_of(number: int | float, kind: str) -> int:
    """The bits of a number in a type; integers wrap, floats are rounded to the nearest."""
    size = BITS[kind]
    if kind == "bf16":
        return _to_bf16(float(number))
    if kind[0] != "f":
        return int(number) & ((1 << size) - 1)
    with np.errstate(all="ignore"):
        rounded = np.dtype(f"<f{size // 8}").type(number if size == 64 else _to_odd(number))
    return int.from_bytes(rounded.tobytes(), "little")


def _to_bf16(number: float) -> int:
    """The upper half of an f32, rounded to the nearest; ties to even."""
    bits = bits_of(number, "f32")
    return bits >> 16 if number != number else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def directed(number: Fraction, kind: str, way: str) -> float:
    """A finite number rounded downwards (`rm`), upwards (`rp`) or to zero (`rz`)."""
    with np.errstate(all="ignore"):
        near = np.dtype(f"<f{BITS[kind] // 8}").type(float(number))
    if way == "rz":
        way = "rm" if number > 0 else "rp"
    end = near.dtype.type(np.inf if way == "rp" else -np.inf)
    is_past = not np.isfinite(near) or (near < number if way == "rp" else near > number)
    if np.isinf(near):
        is_past = (near > 0) == (way == "rm")
    return float(np.nextafter(near, end) if is_past else near)


def _to_odd(number: int | float) -> int | float:
    """Long integers with what f64 has no room for as one bit, so that they are rounded once."""
    if isinstance(number, float) or abs(number) < 1 << 53:
        return number
    cut = abs(number).bit_length() - 53
    kept = abs(number) >> cut << cut
    odd = kept | (1 << cut if kept != abs(number) else 0)
    return odd if number > 0 else -odd


def fused(a: float, b: float, c: float, kind: str) -> float:
    """a * b + c, rounded once."""
    return float((_LIBRARY.fmaf if kind == "f32" else _LIBRARY.fma)(a, b, c))
