"""What numbers mean: rounding, wrapping and conversion of Python numbers to each scalar type.

The single definition that folding and the interpreter share. Standard library only; scalars only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from cubepy.ir.types import DType, Kind, bf16, f8e4m3, f8e5m2, f16, f32, f64

if TYPE_CHECKING:
    from fractions import Fraction

Number = int | float | bool

_MANTISSA_BITS = {f64: 53, f32: 24, f16: 11, bf16: 8, f8e4m3: 4, f8e5m2: 3}
_MIN_EXPONENT = {f64: -1022, f32: -126, f16: -14, bf16: -126, f8e4m3: -6, f8e5m2: -14}
_LARGEST = {
    f64: math.ldexp(2 - 2.0**-52, 1023),
    f32: math.ldexp(2 - 2.0**-23, 127),
    f16: 65504.0,
    bf16: math.ldexp(2 - 2.0**-7, 127),
    f8e4m3: 448.0,
    f8e5m2: 57344.0,
}


def wrap(value: int, dtype: DType) -> int:
    """`value` modulo 2**bits, in the range of `dtype` (two's complement)."""
    mask = (1 << dtype.bits) - 1
    value &= mask
    if dtype.kind is Kind.INT and value >> (dtype.bits - 1):
        return value - (mask + 1)
    return value


@cache
def limits(dtype: DType) -> tuple[int, int]:
    """The smallest and largest integer of an integer type."""
    if dtype.kind is Kind.INT:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def fraction(value: float | Fraction, divisor: int = 1) -> Fraction:
    """`value / divisor`, exactly; its module imports all of `decimal`, so who asks first does."""
    from fractions import Fraction

    return Fraction(value) / divisor if divisor != 1 else Fraction(value)


def round_to(dtype: DType, value: float | Fraction) -> float:
    """`value` rounded to nearest even in a float type; overflow gives infinity of its sign, and NaN
    of its sign in f8e4m3."""
    if isinstance(value, float):
        if dtype is f64 or value == 0.0 or math.isinf(value) or math.isnan(value):
            return _special_to(dtype, value)
        if dtype is f32:
            return _round_f32(value)
    return _round_exact(dtype, fraction(value))


def _special_to(dtype: DType, value: float) -> float:
    return math.copysign(math.nan, value) if dtype is f8e4m3 and math.isinf(value) else value


def _round_f32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_exact(dtype: DType, value: Fraction) -> float:
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = max(exponent, _MIN_EXPONENT[dtype]) - (_MANTISSA_BITS[dtype] - 1)
    steps = round(magnitude / fraction(2) ** quantum)
    rounded = steps * fraction(2) ** quantum
    sign = -1.0 if value < 0 else 1.0
    if rounded > fraction(_LARGEST[dtype]):
        return math.copysign(math.nan if dtype is f8e4m3 else math.inf, sign)
    return sign * float(rounded)


def convert(value: Number, dtype: DType) -> Number:
    """`value` in `dtype`: integers wrap, floats round, float to integer truncates and saturates.

    NaN becomes 0 as an integer; anything nonzero is True as a bool.
    """
    if dtype.kind is Kind.BOOL:
        return bool(value)
    if dtype.is_float:
        is_exact = isinstance(value, float) or abs(value) <= 1 << 53
        return round_to(dtype, float(value) if is_exact else fraction(value))
    if isinstance(value, float):
        return _saturate(value, dtype)
    return wrap(int(value), dtype)


def _saturate(value: float, dtype: DType) -> int:
    if math.isnan(value):
        return 0
    low, high = limits(dtype)
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(math.trunc(value), low), high)


def to_bits(value: Number, dtype: DType) -> int:
    """The bit pattern of `value`, as an unsigned integer."""
    if not dtype.is_float:
        return int(value) & ((1 << dtype.bits) - 1)
    number = float(value)
    if dtype is f64:
        return struct.unpack("<Q", struct.pack("<d", number))[0]
    if dtype is f32:
        return _f32_bits(number)
    if dtype is f16:
        return struct.unpack("<H", struct.pack("<e", number))[0]
    if dtype is bf16:
        return _f32_bits(number) >> 16
    return _small_float_bits(number, dtype)


def _f32_bits(number: float) -> int:
    return struct.unpack("<I", struct.pack("<f", number))[0]


def _small_float_bits(number: float, dtype: DType) -> int:
    fraction_bits = _MANTISSA_BITS[dtype] - 1
    exponent_bits = 7 - fraction_bits
    sign = 128 if math.copysign(1.0, number) < 0 else 0
    if math.isnan(number):
        return sign | 127
    if math.isinf(number):
        return sign | (((1 << exponent_bits) - 1) << fraction_bits)
    magnitude = abs(number)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = math.frexp(magnitude)[1] - 1 if magnitude else -bias
    exponent = max(exponent, 1 - bias)
    steps = int(math.ldexp(magnitude, fraction_bits - exponent))
    return sign | ((exponent + bias - 1 << fraction_bits) + steps)


def from_bits(bits: int, dtype: DType) -> Number:
    """The value whose bit pattern is `bits`."""
    if dtype.kind is Kind.BOOL:
        return bool(bits & 1)
    if not dtype.is_float:
        return wrap(bits, dtype)
    if dtype is f64:
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if dtype is f32:
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    if dtype is f16:
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if dtype is bf16:
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return _small_float_value(bits, dtype)


def _small_float_value(bits: int, dtype: DType) -> float:
    fraction_bits = _MANTISSA_BITS[dtype] - 1
    exponent_bits = 7 - fraction_bits
    top = (1 << exponent_bits) - 1
    exponent, fraction = (bits & 127) >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    sign = -1.0 if bits & 128 else 1.0
    if dtype is f8e4m3 and bits & 127 == 127:
        return math.copysign(math.nan, sign)
    if dtype is f8e5m2 and exponent == top:
        return math.copysign(math.nan if fraction else math.inf, sign)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)


# Distinguished numbers of a scalar type: identities and absorbing elements of the op table


def zero(dtype: DType) -> Number:
    """0, 0.0 or False."""
    return convert(0, dtype)


def negative_zero(dtype: DType) -> Number:
    """-0.0, or the 0 of integers."""
    return -0.0 if dtype.is_float else zero(dtype)


def one(dtype: DType) -> Number:
    """1, 1.0 or True."""
    return convert(1, dtype)


def all_bits(dtype: DType) -> Number | None:
    """The integer whose bits are set, or True; None for floats."""
    return None if dtype.is_float else True if dtype.kind is Kind.BOOL else wrap(-1, dtype)


def lowest(dtype: DType) -> Number:
    """The number that no other is less than: -inf where there is one."""
    return -highest(dtype) if dtype.is_float else limits(dtype)[0]


def highest(dtype: DType) -> Number:
    """The number that no other is greater than: inf where there is one."""
    if not dtype.is_float:
        return limits(dtype)[1]
    return _LARGEST[dtype] if dtype is f8e4m3 else math.inf


def integers(element: Callable[[DType], Number | None]) -> Callable[[DType], Number | None]:
    """`element` for integers and bools; for floats there is none."""
    return lambda dtype: None if dtype.is_float else element(dtype)
