"""Conversions between f32 and the small floats f16, bf16, f8e4m3 and f8e5m2.

They work on bit patterns, per lane and without branches. Rounding is to nearest even by adding
half a unit of the last kept place, less one bit where that place is even; denormal results round at
their own fixed place by adding and subtracting a power of two. No operand in f32 is denormal: GPUs
of Apple and some devices of OpenCL take such for 0, and some processors take long for them. NaN
remains NaN; f8e4m3 has no infinity, so what is too large becomes NaN there.

What has more digits than f32 is first rounded to odd: cut off, with the last bit set where anything
was lost. That keeps which side of a tie it is on, so that the second step rounds as one would
(Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE TC 57, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.lang.builtins import (
    bitcast,
    f16,
    f32,
    f64,
    fma,
    i64,
    u8,
    u16,
    u32,
    u64,
    where,
)


def bf16_to_f32(bits: Any) -> Any:
    """The f32 of a bf16 pattern (u16): exact."""
    return bitcast(u32(bits) << 16, f32)


def f32_to_bf16(x: Any) -> Any:
    """The bf16 pattern (u16) of an f32, rounded to nearest even; NaN becomes a quiet one."""
    bits = bitcast(x, u32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return u16(where(x != x, (bits >> 16) | 0x40, rounded))


def f16_to_f32(bits: Any) -> Any:
    """The f32 of an f16 pattern (u16): exact, by way of the exponent field."""
    magnitude = u32(bits) & 0x7FFF
    found = widened(magnitude, 13, 112)
    special = bitcast((magnitude << 13) | 0x7F800000, f32)
    return with_sign(where(magnitude >= 0x7C00, special, found), u32(bits) << 16)


def widened(magnitude: Any, shift: int, bias: int) -> Any:
    """The f32 of a pattern (u32) without its sign that ends `shift` places before one of f32, and
    whose exponents are less by `bias`."""
    denormal = f32(magnitude) * 2.0 ** (bias - 126 - (23 - shift))
    normal = bitcast((magnitude << shift) + (bias << 23), f32)
    return where(magnitude < 1 << (23 - shift), denormal, normal)


def f32_to_f16(x: Any) -> Any:
    """The f16 pattern (u16) of an f32, rounded to nearest even; overflow gives infinity."""
    bits = bitcast(x, u32)
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112 << 23)) >> 13
    tiny = bitcast(bitcast(magnitude, f32) + 0.5, u32) - 0x3F000000
    result = where(magnitude < 0x38800000, tiny, normal)
    result = where(magnitude >= 0x477FF000, 0x7C00, result)
    result = where(magnitude > 0x7F800000, 0x7E00, result)
    return u16(result | (bits >> 16 & 0x8000))


def f64_to_f16(x: Any) -> Any:
    """The f16 pattern (u16) of an f64, rounded once; few processors have this step."""
    bits = bitcast(x, u64)
    magnitude = bits & 0x7FFFFFFFFFFFFFFF
    normal = (magnitude + 0x1FFFFFFFFFF + ((magnitude >> 42) & 1) - (1008 << 52)) >> 42
    tiny = bitcast(bitcast(magnitude, f64) + 2.0**28, u64) - 0x41B0000000000000
    result = where(magnitude < 0x3F10000000000000, tiny, normal)
    result = where(magnitude >= 0x40EFFE0000000000, 0x7C00, result)
    result = where(magnitude > 0x7FF0000000000000, 0x7E00, result)
    return u16(result | (bits >> 48 & 0x8000))


def f8e5m2_to_f32(bits: Any) -> Any:
    """The f32 of an f8e5m2 pattern (u8): exact. It is the first half of one of f16."""
    return f16_to_f32(u16(bits) << 8)


def f8e5m2_through_f16(bits: Any) -> Any:
    """The same where f16 has instructions."""
    return f32(bitcast(u16(bits) << 8, f16))


def f8e4m3_to_f32(bits: Any) -> Any:
    """The f32 of an f8e4m3 pattern (u8): exact; the pattern of all ones is NaN."""
    magnitude = u32(bits) & 0x7F
    found = widened(magnitude, 20, 120)
    return with_sign(
        where(magnitude == 0x7F, bitcast(u32(0x7FC00000), f32), found), u32(bits) << 24
    )


def f8e4m3_through_f16(bits: Any) -> Any:
    """The same where f16 has instructions; its exponents are more by 8."""
    sign = (u16(bits) & 0x80) << 8
    found = f32(bitcast((u16(bits) & 0x7F) << 7 | sign, f16)) * 256.0
    nothing = bitcast(u32(0x7FC00000), f32)
    return where((bits & 0x7F) == 0x7F, with_sign(nothing, u32(bits) << 24), found)


def with_sign(magnitude: Any, sign: Any) -> Any:
    """The f32 of a magnitude with the top bit of `sign`."""
    return bitcast(bitcast(magnitude, u32) | (sign & 0x80000000), f32)


def f32_to_f8e5m2(x: Any) -> Any:
    """The f8e5m2 pattern (u8) of an f32, rounded to nearest even; overflow gives infinity."""
    bits = bitcast(x, u32)
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude + 0xFFFFF + ((magnitude >> 21) & 1) - (112 << 23)) >> 21
    tiny = bitcast(bitcast(magnitude, f32) + 128.0, u32) - 0x43000000
    result = where(magnitude < 0x38800000, tiny, normal)
    result = where(magnitude >= 0x47700000, 0x7C, result)
    result = where(magnitude > 0x7F800000, 0x7E, result)
    return u8(result | (bits >> 24 & 0x80))


def f32_to_f8e4m3(x: Any) -> Any:
    """The f8e4m3 pattern (u8) of an f32, rounded to nearest even; overflow gives NaN."""
    bits = bitcast(x, u32)
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1) - (120 << 23)) >> 20
    tiny = bitcast(bitcast(magnitude, f32) + 16384.0, u32) - 0x46800000
    result = where(magnitude < 0x3C800000, tiny, normal)
    result = where(magnitude > 0x43E80000, 0x7F, result)
    return u8(result | (bits >> 24 & 0x80))


def f64_to_odd_f32(x: Any) -> Any:
    """The f32 that an f64 is cut to, odd where it is inexact."""
    near = f32(x)
    back = f64(near)
    bits = bitcast(near, u32)
    cut = where(abs(back) > abs(x), bits - 1, bits)
    return bitcast(where((back < x) | (back > x), cut | 1, bits), f32)


def int_to_odd_f32(x: Any) -> Any:
    """The f32 that an i32 or i64 is cut to: 11 bits at least, odd where it is inexact."""
    magnitude = bitcast(where(x < 0, -x, x), u64 if x.dtype is i64 else u32)
    size = uint_to_odd_f32(magnitude)
    return where(x < 0, -size, size)


def uint_to_odd_f32(x: Any) -> Any:
    """The f32 that a u32 or u64 is cut to: 11 bits at least, odd where it is inexact."""
    bits = where(x < 1 << 24, x, (x >> 12) | min(x & 0xFFF, 1))
    scale = where(x < 1 << 24, f32(1.0), f32(2.0**12))
    if x.dtype is u64:
        bits = where(x < 1 << 36, bits, (x >> 26) | min(x & 0x3FFFFFF, 1))
        scale = where(x < 1 << 36, scale, f32(2.0**26))
        bits = where(x < 1 << 50, bits, (x >> 40) | min(x & 0xFFFFFFFFFF, 1))
        scale = where(x < 1 << 50, scale, f32(2.0**40))
    return f32(u32(bits)) * scale


def odd_fma_f32(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in f32, rounded to odd, for factors whose product is exact; else to nearest."""
    product = a * b
    total = fma(a, b, c)
    rest = lost(product, c, total)
    bits = bitcast(total, u32)
    stepped = where((rest > 0) == (total > 0), bits + 1, bits - 1)
    return bitcast(where(((rest < 0) | (rest > 0)) & ((bits & 1) == 0), stepped, bits), f32)


def odd_fma_f64(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in f64, rounded to odd, for factors whose product is exact."""
    product = a * b
    total = product + c
    rest = lost(product, c, total)
    bits = bitcast(total, u64)
    stepped = where((rest > 0) == (total > 0), bits + 1, bits - 1)
    return bitcast(where(((rest < 0) | (rest > 0)) & ((bits & 1) == 0), stepped, bits), f64)


def lost(a: Any, b: Any, total: Any) -> Any:
    """What the rounded sum of a and b lacks, exactly (Knuth's TwoSum)."""
    part = total - a
    return (a - (total - part)) + (b - part)


TO_F32: dict[str, Callable[..., Any]] = {
    "f16": f16_to_f32,
    "bf16": bf16_to_f32,
    "f8e5m2": f8e5m2_to_f32,
    "f8e4m3": f8e4m3_to_f32,
}
THROUGH_F16: dict[str, Callable[..., Any]] = {
    "f8e5m2": f8e5m2_through_f16,
    "f8e4m3": f8e4m3_through_f16,
}
"""What takes the place of `TO_F32` where f16 has instructions."""
FROM_F32: dict[str, Callable[..., Any]] = {
    "f16": f32_to_f16,
    "bf16": f32_to_bf16,
    "f8e5m2": f32_to_f8e5m2,
    "f8e4m3": f32_to_f8e4m3,
}
