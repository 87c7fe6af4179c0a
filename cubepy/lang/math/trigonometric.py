"""f32 sin, cos and tan for every finite argument.

Up to BOUND: x - n pi (sin), x - (n + 1/2) pi (cos) or x - n pi/2 (tan) in three fma steps (Cody &
Waite); the first is exact. One odd minimax polynomial then serves the whole half turn, so no lane
has to choose between two. Beyond BOUND (only if some lane is there): Payne & Hanek, "Radian
reduction for trigonometric functions" (1983): the 24-bit significand times the 96 bits of 2/pi that
matter, in 64-bit integers. The window is taken by `where` and shifts, with no table.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import any_, bitcast, f32, fma, i32, i64, u64, where
from cubepy.lang.math.polynomial import horner

MAGIC = 12582912.0
BOUND = 131072.0

ONE_OVER_PI = 0.31830987
# The parts are rounded down: all of one sign, they keep the sign of x = -0.
PI_1, PI_2, PI_3 = 3.1415925, 1.5099579e-07, 1.0780605e-14
TWO_OVER_PI = 0.63661975
HALF_PI_1, HALF_PI_2, HALF_PI_3 = 1.5707963, 7.5497894e-08, 5.3903025e-15
TURNS = 2.0**-64
# Pairs of adjacent 32-bit words of 2/pi behind 32 zero bits.
WORDS_0 = 0x00000000A2F9836E
WORDS_1 = 0xA2F9836E4E441529
WORDS_2 = 0x4E441529FC2757D1
WORDS_3 = 0xFC2757D1F534DDC0
WORDS_4 = 0xF534DDC0DB629599
WORDS_5 = 0xDB6295993C439041
WORDS_6 = 0x3C439041FE5163AB

SIN = (-2.5503384e-08, 2.7627068e-06, -0.00019843093, 0.0083333505, -0.16666667)
TAN = (0.009646628, 0.0026812959, 0.024701532, 0.053335946, 0.13339698, 0.33333123)


def sin_of_reduced_f32(r: Any) -> Any:
    """sin r for |r| <= pi/2. Adding +0 to the product keeps the sign of r = -0."""
    z = r * r
    return fma(r, fma(z, horner(z, SIN), 0.0), r)


def tan_of_reduced_f32(r: Any) -> Any:
    """tan r for |r| <= pi/4."""
    z = r * r
    return fma(r, z * horner(z, TAN), r)


def flipped_f32(value: Any, odd: Any) -> Any:
    """value with its sign changed where the lowest bit of the integer `odd` is set."""
    return bitcast(bitcast(value, i32) ^ (odd << 31), f32)


def word_of_window(
    words: Any, first: Any, second: Any, third: Any, fourth: Any, fifth: Any, shift: Any
) -> Any:
    """32 bits of 2/pi from `shift` bits into the pair number `words` of five."""
    pair = where(words < 1, u64(first), u64(second))
    pair = where(words < 2, pair, u64(third))
    pair = where(words < 3, pair, u64(fourth))
    pair = where(words < 4, pair, u64(fifth))
    return (pair << shift) >> 32


def quadrants_f32(x: Any) -> Any:
    """|x| 2/pi modulo 4 in units of 2**-62 (u64), for finite |x| >= 2**17."""
    bits = bitcast(abs(x), i32)
    start = (bits >> 23) - 120  # bit of the zero-padded 2/pi whose product has weight 2
    words = start >> 5
    shift = u64(start & 31)
    significand = u64((bits & 0x7FFFFF) | 0x800000)
    high = word_of_window(words, WORDS_0, WORDS_1, WORDS_2, WORDS_3, WORDS_4, shift)
    middle = word_of_window(words, WORDS_1, WORDS_2, WORDS_3, WORDS_4, WORDS_5, shift)
    low = word_of_window(words, WORDS_2, WORDS_3, WORDS_4, WORDS_5, WORDS_6, shift)
    return ((significand * high) << 32) + significand * middle + ((significand * low) >> 32)


def sin_of_quadrants_f32(quadrants: Any) -> Any:
    """The sine of an angle in the units of `quadrants_f32`."""
    f = f32(bitcast(quadrants << 1, i64)) * TURNS
    r = fma(f, PI_1, f * PI_2)
    return flipped_f32(sin_of_reduced_f32(r), i32((quadrants + 0x4000000000000000) >> 63))


def sin_f32_small(x: Any) -> Any:
    """sin for |x| <= BOUND."""
    t = fma(x, ONE_OVER_PI, MAGIC)
    n = t - MAGIC
    r = fma(n, -PI_3, fma(n, -PI_2, fma(n, -PI_1, x)))
    return flipped_f32(sin_of_reduced_f32(r), bitcast(t, i32))


def sin_f32_large(x: Any) -> Any:
    """sin for finite |x| > BOUND; NaN for infinity."""
    y = sin_of_quadrants_f32(quadrants_f32(x))
    return where(x < 0.0, -y, y) + (x - x)


def sin_f32(x: Any) -> Any:
    """Sine. Max error 2.2 ULP (measured) for all finite x. sin(+-0) = +-0, sin(+-inf) = NaN."""
    y = sin_f32_small(x)
    large = abs(x) > BOUND
    if any_(large):
        y = where(large, sin_f32_large(x), y)
    return y


def cos_f32_small(x: Any) -> Any:
    """cos for |x| <= BOUND: the sine of (n + 1/2) pi - x."""
    t = fma(x, ONE_OVER_PI, -0.5) + MAGIC
    n = (t - MAGIC) + 0.5
    r = fma(n, PI_3, fma(n, PI_2, fma(n, PI_1, -x)))
    return flipped_f32(sin_of_reduced_f32(r), bitcast(t, i32))


def cos_f32_large(x: Any) -> Any:
    """cos for finite |x| > BOUND; NaN for infinity."""
    return sin_of_quadrants_f32(quadrants_f32(x) + 0x4000000000000000) + (x - x)


def cos_f32(x: Any) -> Any:
    """Cosine. Max error 2.3 ULP (measured) for all finite x. cos(+-inf) = NaN."""
    y = cos_f32_small(x)
    large = abs(x) > BOUND
    if any_(large):
        y = where(large, cos_f32_large(x), y)
    return y


def tan_f32_small(x: Any) -> Any:
    """tan for |x| <= BOUND."""
    t = fma(x, TWO_OVER_PI, MAGIC)
    n = t - MAGIC
    r = fma(n, -HALF_PI_3, fma(n, -HALF_PI_2, fma(n, -HALF_PI_1, x)))
    y = tan_of_reduced_f32(r)
    return where((bitcast(t, i32) & 1) == 1, -1.0 / y, y)


def tan_f32_large(x: Any) -> Any:
    """tan for finite |x| > BOUND; NaN for infinity."""
    quadrants = quadrants_f32(x)
    f = f32(bitcast(quadrants << 2, i64)) * TURNS
    y = tan_of_reduced_f32(fma(f, HALF_PI_1, f * HALF_PI_2))
    odd = i32((quadrants + 0x2000000000000000) >> 62) & 1
    y = where(odd == 1, -1.0 / y, y)
    return where(x < 0.0, -y, y) + (x - x)


def tan_f32(x: Any) -> Any:
    """Tangent. Max error 3.5 ULP (measured) for all finite x. tan(+-0) = +-0, tan(+-inf) = NaN."""
    y = tan_f32_small(x)
    large = abs(x) > BOUND
    if any_(large):
        y = where(large, tan_f32_large(x), y)
    return y


EXPANSIONS = {
    ("sin", "f32"): sin_f32,
    ("cos", "f32"): cos_f32,
    ("tan", "f32"): tan_f32,
}
