"""What the operations mean: their evaluation on Python numbers of a given scalar type.

Each function takes the scalar type and operands that are values of it, and returns a value of the
result type. Lines are evaluated lane by lane by the caller. The op table refers to these.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cubepy.ir.numbers import Number, convert, fraction, limits, round_to, wrap
from cubepy.ir.types import DType, f32

if TYPE_CHECKING:
    from fractions import Fraction

Meaning = Callable[..., Number]
Exact = TypeVar("Exact", int, "Fraction")


def _finite(*values: Number) -> bool:
    return all(math.isfinite(v) for v in values)


def _arithmetic(exact: Callable[..., Number | Fraction], special: Meaning) -> Meaning:
    """Wrapping on integers; on floats the exact result rounded once, `special` if not finite."""

    def meaning(dtype: DType, *values: Number) -> Number:
        if not dtype.is_float:
            return convert(int(exact(*(int(v) for v in values))), dtype)
        if not _finite(*values):
            return special(dtype, *values)
        result = exact(*(fraction(v) for v in values))
        if result == 0:
            return special(dtype, *values)
        return round_to(dtype, fraction(result))

    return meaning


def _special_sum(_: DType, a: float, b: float) -> float:
    return float(a) + float(b)


def _special_difference(_: DType, a: float, b: float) -> float:
    return float(a) - float(b)


def _special_product(_: DType, a: float, b: float) -> float:
    if _finite(a, b):
        return math.copysign(0.0, math.copysign(1.0, a) * math.copysign(1.0, b))
    return float(a) * float(b)


def _special_fma(_: DType, a: float, b: float, c: float) -> float:
    if _finite(a, b) and 0 not in (a, b):
        return _cancelled(c)
    return _special_product(_, a, b) + c


def _cancelled(c: float) -> float:
    """The sum of a finite nonzero product and `c` when that is infinite, NaN or exactly zero."""
    return 0.0 if math.isfinite(c) else c  # the product itself may overflow, the sum is c


def _product_and_sum(a: Exact, b: Exact, c: Exact) -> Exact:
    return a * b + c


add = _arithmetic(operator.add, _special_sum)
sub = _arithmetic(operator.sub, _special_difference)
mul = _arithmetic(operator.mul, _special_product)
fma = _arithmetic(_product_and_sum, _special_fma)


def div(dtype: DType, a: float, b: float) -> Number:
    """IEEE 754 division."""
    if _finite(a, b) and a != 0 and b != 0:
        return round_to(dtype, fraction(a) / fraction(b))
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        infinity = math.copysign(math.inf, math.copysign(1.0, a) * math.copysign(1.0, b))
        return round_to(dtype, infinity)  # f8e4m3 has none
    return a / b


def floordiv(dtype: DType, a: Number, b: Number) -> Number:
    """Python's `//`; integers: x // 0 is 0 and MIN // -1 is MIN; floats: see `_floor_quotient`."""
    if not dtype.is_float:
        return wrap(int(a) // int(b), dtype) if b else 0
    if dtype.bits < f32.bits:
        return round_to(dtype, _floor_quotient(f32, float(a), float(b)))
    return _floor_quotient(dtype, float(a), float(b))


def _floor_quotient(dtype: DType, a: float, b: float) -> float:
    """The steps of CPython's `float.__floordiv__`, each rounded to the type; a / b where b is 0.

    Types below f32 compute in f32, as NumPy's do. Quotients above the largest integer that the type
    counts exactly are thus off by a few units in the last place.
    """
    if b == 0 or math.isnan(a) or math.isnan(b):
        return float(div(dtype, a, b))
    if math.isinf(a):
        return math.nan
    rest = math.fmod(a, b)
    quotient = float(div(dtype, float(sub(dtype, a, rest)), b))
    if rest and (rest < 0) != (b < 0):
        quotient = float(sub(dtype, quotient, 1.0))
    if quotient == 0:
        return math.copysign(0.0, math.copysign(1.0, a) * math.copysign(1.0, b))
    if math.isinf(quotient):
        return quotient
    whole = float(math.floor(quotient))
    return float(add(dtype, whole, 1.0)) if quotient - whole > 0.5 else whole


def mod(dtype: DType, a: Number, b: Number) -> Number:
    """Python's `%`: the sign of the divisor; integers: x % 0 is 0; floats: NaN where b is 0."""
    if not dtype.is_float:
        return int(a) % int(b) if b else 0
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan
    if math.isinf(b):
        return math.copysign(0.0, b) if a == 0 else a if (a < 0) == (b < 0) else b
    result = fraction(a) % fraction(b)
    return round_to(dtype, result) if result else math.copysign(0.0, b)


def div_trunc(dtype: DType, a: Number, b: Number) -> Number:
    """C's integer division: towards zero; x / 0 is 0 and MIN / -1 is MIN."""
    if not b:
        return 0
    quotient = abs(int(a)) // abs(int(b))
    return wrap(quotient if (a < 0) == (b < 0) else -quotient, dtype)


def rem_trunc(dtype: DType, a: Number, b: Number) -> Number:
    """C's remainder: the sign of the dividend; x % 0 is 0."""
    if not b:
        return 0
    return wrap(int(a) - int(div_trunc(dtype, a, b)) * int(b), dtype)


def _extremum(dtype: DType, a: Number, b: Number, smaller: bool) -> Number:
    if dtype.is_float:
        if math.isnan(a) or math.isnan(b):
            return math.nan
        if a == b == 0:
            negative = math.copysign(1.0, a) < 0 or math.copysign(1.0, b) < 0
            both = math.copysign(1.0, a) < 0 and math.copysign(1.0, b) < 0
            return -0.0 if (negative if smaller else both) else 0.0
    return min(a, b) if smaller else max(a, b)


def minimum(dtype: DType, a: Number, b: Number) -> Number:
    """IEEE 754-2019 minimum: NaN propagates and -0 < +0."""
    return _extremum(dtype, a, b, True)


def maximum(dtype: DType, a: Number, b: Number) -> Number:
    """IEEE 754-2019 maximum: NaN propagates and -0 < +0."""
    return _extremum(dtype, a, b, False)


def neg(dtype: DType, a: Number) -> Number:
    """Negation; flips the sign bit of floats."""
    return -a if dtype.is_float else wrap(-int(a), dtype)


def absolute(dtype: DType, a: Number) -> Number:
    """Absolute value; abs(MIN) is MIN."""
    return math.fabs(a) if dtype.is_float else wrap(abs(int(a)), dtype)


def copysign(_: DType, a: float, b: float) -> float:
    """`a` with the sign of `b`."""
    return math.copysign(a, b)


def _bitwise(function: Callable[[int, int], int]) -> Meaning:
    def meaning(dtype: DType, a: Number, b: Number) -> Number:
        return convert(function(int(a), int(b)), dtype)

    return meaning


bit_and = _bitwise(lambda a, b: a & b)
bit_or = _bitwise(lambda a, b: a | b)
bit_xor = _bitwise(lambda a, b: a ^ b)


def bit_not(dtype: DType, a: Number) -> Number:
    """Complement; `not` on bools."""
    return not a if dtype.bits == 1 else wrap(~int(a), dtype)


def shl(dtype: DType, a: Number, b: Number) -> Number:
    """Left shift; 0 for counts that are negative or at least the width."""
    return wrap(int(a) << int(b), dtype) if 0 <= b < dtype.bits else 0


def shr(dtype: DType, a: Number, b: Number) -> Number:
    """Right shift, arithmetic for signed types; the sign (0 or -1) for counts out of range."""
    return int(a) >> (int(b) if 0 <= b < dtype.bits else dtype.bits)


def popcount(dtype: DType, a: Number) -> Number:
    """Number of set bits."""
    return (int(a) & limits_mask(dtype)).bit_count()


def count_leading_zeros(dtype: DType, a: Number) -> Number:
    """Leading zero bits; the width for 0."""
    return dtype.bits - (int(a) & limits_mask(dtype)).bit_length()


def count_trailing_zeros(dtype: DType, a: Number) -> Number:
    """Trailing zero bits; the width for 0."""
    bits = int(a) & limits_mask(dtype)
    return (bits & -bits).bit_length() - 1 if bits else dtype.bits


def limits_mask(dtype: DType) -> int:
    """All bits of an integer type set."""
    low, high = limits(dtype)
    return high - low


def mul_hi(dtype: DType, a: Number, b: Number) -> Number:
    """The upper half of the double-width product."""
    return wrap((int(a) * int(b)) >> dtype.bits, dtype)


def compare(function: Callable[[Number, Number], bool]) -> Meaning:
    """A comparison as a meaning; comparisons with NaN are false, except `!=`."""

    def meaning(_: DType, a: Number, b: Number) -> bool:
        return function(a, b)

    return meaning


def sqrt(dtype: DType, a: float) -> float:
    """Square root, correctly rounded; NaN below zero."""
    if math.isnan(a) or a < 0:
        return math.nan
    if math.isinf(a) or a == 0:
        return a
    value = fraction(a)
    scale = 200 if dtype.bits == 64 else 80
    root = math.isqrt((value.numerator << 2 * scale + 2200) // value.denominator)
    exact = root * root * value.denominator == value.numerator << 2 * scale + 2200
    return round_to(dtype, fraction(2 * root + (0 if exact else 1), 1 << scale + 1101))


def _rounding(function: Callable[[float], int]) -> Meaning:
    def meaning(_: DType, a: float) -> Number:
        if not math.isfinite(a):
            return a
        return math.copysign(float(abs(function(a))), a)

    return meaning


floor = _rounding(math.floor)
ceil = _rounding(math.ceil)
trunc = _rounding(math.trunc)
rint = _rounding(round)


def power(a: float, b: float) -> float:
    """C's pow, where Python's raises: zero to a negative power, and overflow."""
    try:
        return math.pow(a, b)
    except ValueError:
        if a != 0:
            return math.nan
    except OverflowError:
        pass
    return math.copysign(math.inf, a) if abs(math.fmod(b, 2.0)) == 1 else math.inf


def exp10(a: float) -> float:
    """Ten to the power of a."""
    return math.pow(10.0, a)


def _logarithm(function: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    """C's logarithms, where Python's raise: minus infinity at the pole."""

    def logarithm(a: float) -> float:
        return function(a) if a != pole else -math.inf

    return logarithm


log = _logarithm(math.log)
log2 = _logarithm(math.log2)
log10 = _logarithm(math.log10)
log1p = _logarithm(math.log1p, -1.0)


def sinh(a: float) -> float:
    """Hyperbolic sine; infinite where Python's raises."""
    return math.copysign(math.inf, a) if abs(a) > 710.5 else math.sinh(a)


def atanh(a: float) -> float:
    """Inverse hyperbolic tangent; infinite at -1 and 1."""
    return math.copysign(math.inf, a) if abs(a) == 1 else math.atanh(a)


def rsqrt(a: float) -> float:
    """Reciprocal square root; infinite at zeros, with their sign."""
    return 1 / math.sqrt(a) if a else math.copysign(math.inf, a)


def sigmoid(a: float) -> float:
    """1 / (1 + exp(-a)), without overflow."""
    return 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) / (1 + math.exp(a))


def cube_root(a: float) -> float:
    """The C library's, which is off by some ULP, after a step of Newton's in exact arithmetic."""
    root = math.cbrt(a)
    if root == 0 or not math.isfinite(root):
        return root
    exact = fraction(root)
    return root - float((exact**3 - fraction(a)) / (3 * exact**2))


def elementary(function: Callable[..., float]) -> Meaning:
    """A function of the C library as a meaning: computed in f64, then rounded."""

    def meaning(dtype: DType, *values: float) -> Number:
        try:
            return round_to(dtype, float(function(*values)))
        except OverflowError:
            return round_to(dtype, math.inf)
        except ValueError:
            return math.nan

    return meaning
