"""Functions of Python's `math` and of NumPy that are made of the language's own, per lane.

f16 and bf16 are computed in f32, but where neighbours of a number are asked for.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.lang.builtins import (
    any_,
    bitcast,
    copysign,
    exp,
    exp2,
    f32,
    floor,
    i8,
    i16,
    i32,
    i64,
    isfinite,
    isinf,
    log1p,
    rint,
    sin,
    sqrt,
    trunc,
    u8,
    u16,
    u32,
    u64,
    where,
)

INTEGERS = {8: i8, 16: i16, 32: i32, 64: i64}
NATURALS = {8: u8, 16: u16, 32: u32, 64: u64}
DIGITS = {16: 10, 32: 23, 64: 52}
"""Bits of the fraction of f16, f32 and f64."""
SMALLEST = {32: -126, 64: -1022}
"""The exponents of the smallest normal numbers of f32 and f64."""


# Floats as their bits


def scale_by_power(x: Any, n: Any) -> Any:
    """x * 2**n, rounded once: in steps that stay normal but for the last."""
    least, digits = SMALLEST[x.dtype.bits], DIGITS[x.dtype.bits]
    most, down = 1 - least, least + digits + 1
    n = min(max(n, -8 * most), 8 * most)
    for _ in (0, 1):
        x, n = where(n > most, x * 2.0**most, x), where(n > most, n - most, n)
        x, n = where(n < least, x * 2.0**down, x), where(n < least, n - down, n)
    n = min(max(n, least), most)
    word = INTEGERS[x.dtype.bits]
    return x * bitcast((word(n) + most) << digits, x.dtype)


def split_exponent(x: Any) -> Any:
    """The fraction from 1/2 on, with the sign of x, and the exponent: x = fraction * 2**exponent.
    Zeros, infinities and NaN have the exponent 0."""
    least, digits = SMALLEST[x.dtype.bits], DIGITS[x.dtype.bits]
    word = INTEGERS[x.dtype.bits]
    is_small = abs(x) < 2.0**least
    bits = bitcast(where(is_small, x * 2.0 ** (digits + 1), x), word)
    mask = word(2 * (1 - least) + 1) << digits
    exponent = i32((bits & mask) >> digits) - (1 - least) + 1
    fraction = bitcast((bits & ~mask) | (word(-least) << digits), x.dtype)
    is_number = isfinite(x) & (x != 0.0)
    exponent = where(is_small, exponent - (digits + 1), exponent)
    return where(is_number, fraction, x), where(is_number, exponent, 0)


def split_fraction(x: Any) -> Any:
    """The fraction and the integral part, both with the sign of x."""
    whole = trunc(x)
    return copysign(where(isinf(x), 0.0, x - whole), x), whole


def next_after(x: Any, y: Any) -> Any:
    """The number next to x in the direction of y."""
    word = INTEGERS[x.dtype.bits]
    bits = bitcast(x, word)
    away = (y > x) == (x > 0.0)
    beside = bitcast(where(away, bits + 1, bits - 1), x.dtype)
    least = bitcast(where(x == 0.0, word(1), bits), x.dtype)
    found = where(x == 0.0, copysign(least, y), beside)
    return where((x != x) | (y != y), x + y, where(x == y, y, found))


def unit_in_last_place(x: Any) -> Any:
    """The distance of |x| to the next greater number; of the largest number, to the one below."""
    a = abs(x)
    above = next_after(a, where(a == a, math.inf, a))
    below = next_after(a, where(a == a, 0.0, a))
    return where(isinf(a), a, where(isinf(above), a - below, above - a))


# Remainders and divisors


def nearest_remainder(x: Any, y: Any) -> Any:
    """IEEE 754 remainder: x - n y, n the integer nearest to x / y, the even one of two. Exact."""
    a, b = abs(x), abs(y)
    rest = a % (b + b)
    rest = where(isinf(b + b), a, rest)
    once = rest - b
    twice = where(once >= b - once, once - b, once)
    found = where(rest > b - rest, twice, rest)
    found = where(isinf(b), a, found)
    is_number = isfinite(a) & (b == b) & (b > 0.0)
    return where(is_number, where(copysign(1.0, x) < 0.0, -found, found), math.nan)


def greatest_divisor(a: Any, b: Any) -> Any:
    """Euclid's algorithm; the greatest common divisor of 0 and 0 is 0. Without signs, so that the
    least integer has an absolute value."""
    word, kind = NATURALS[a.dtype.bits], a.dtype
    a, b = bitcast(abs(a), word), bitcast(abs(b), word)
    while any_(b != 0):
        rest = a % where(b != 0, b, 1)
        a, b = where(b != 0, b, a), where(b != 0, rest, b)
    return bitcast(a, kind)


def least_multiple(a: Any, b: Any) -> Any:
    """The least common multiple, which wraps; 0 where one of the two is 0."""
    word, kind = NATURALS[a.dtype.bits], a.dtype
    divisor = bitcast(greatest_divisor(a, b), word)
    a, b = bitcast(abs(a), word), bitcast(abs(b), word)
    return bitcast(a // where(divisor != 0, divisor, 1) * b, kind)


def integer_root(n: Any) -> Any:
    """The integral part of the square root, by two steps of Newton's method; 0 below 0."""
    positive = where(n > 0, n, 1)
    root = n.dtype(sqrt(f32(positive)))
    for _ in (0, 1):
        root = (root + positive // root) >> 1
    root = where(root > positive // root, root - 1, root)
    return where(n > 0, where(root + 1 <= positive // (root + 1), root + 1, root), n - n)


# Comparison, steps and sums of exponentials


def is_close(a: Any, b: Any, rel_tol: Any = 1e-9, abs_tol: Any = 0.0) -> Any:
    """As `math.isclose`: the relative tolerance is one of the greater."""
    near = abs(a - b) <= max(rel_tol * max(abs(a), abs(b)), abs_tol)
    return (a == b) | (near & isfinite(a) & isfinite(b))


def is_close_to(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Any:
    """As `numpy.isclose`: the relative tolerance is one of b."""
    near = abs(a - b) <= atol + rtol * abs(b)
    found = (a == b) | (near & isfinite(a) & isfinite(b))
    return found | ((a != a) & (b != b)) if equal_nan else found


def step_at_zero(x1: Any, x2: Any) -> Any:
    """Heaviside's: 0 below zero, 1 above it, x2 at zero."""
    return where(x1 < 0.0, 0.0, where(x1 > 0.0, 1.0, where(x1 == 0.0, x2, x1)))


def log_of_sum(x1: Any, x2: Any) -> Any:
    """log(exp(x1) + exp(x2)): the greater plus log1p of what the other adds."""
    apart = where(x1 == x2, 0.0, abs(x1 - x2))
    return max(x1, x2) + log1p(exp(-apart))


def log2_of_sum(x1: Any, x2: Any) -> Any:
    """log2(2**x1 + 2**x2)."""
    apart = where(x1 == x2, 0.0, abs(x1 - x2))
    return max(x1, x2) + log1p(exp2(-apart)) * 1.4426950408889634


def sine_cardinal(x: Any) -> Any:
    """sin(pi x) / (pi x), 1 at zero; integers give 0. The sine is one of the distance to the
    nearest integer, whose oddness gives the sign."""
    nearest = rint(x)
    rest = x - nearest
    is_odd = nearest - 2.0 * floor(nearest * 0.5) != 0.0
    sine = sin(rest * math.pi)
    return where(x == 0.0, 1.0, where(is_odd, -sine, sine) / (x * math.pi))
