"""f64 sin, cos and tan for every finite argument.

Up to BOUND: x - n pi (sin), x - (n + 1/2) pi (cos) or x - n pi/2 (tan) in three fma steps (Cody &
Waite); the first is exact. One odd minimax polynomial then serves the whole half turn, so no lane
has to choose between two. Beyond BOUND (only if some lane is there): Payne & Hanek, "Radian
reduction for trigonometric functions" (1983): the 53-bit significand times the 192 bits of 2/pi
that matter, in 64-bit integers. The window is taken by `where` and shifts, with no table.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import any_, bitcast, f64, fma, i64, mul_hi, u64, where
from cubepy.lang.math.polynomial import horner

MAGIC = 6755399441055744.0
BOUND = 1073741824.0

ONE_OVER_PI = 0.3183098861837907
# The parts are rounded down: all of one sign, they keep the sign of x = -0.
PI_1, PI_2, PI_3 = 3.141592653589793, 1.224646799147353e-16, 2.1657133478438278e-32
TWO_OVER_PI = 0.6366197723675814
HALF_PI_1, HALF_PI_2, HALF_PI_3 = 1.5707963267948966, 6.123233995736765e-17, 1.0828566739219139e-32
TURNS = 2.0**-64
TWO_OVER_PI_BITS = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea"
    "09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b"
    "1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f7"
    "8a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361da9e391615ee61b08",
    16,
)


def words_behind(offset: int) -> tuple[tuple[int, int], ...]:
    """(i, the 64-bit word of 2/pi from bit 64 (i + offset) on, behind 64 zero bits); comptime."""
    return tuple(
        (i, TWO_OVER_PI_BITS >> (1344 - 64 * (i + offset)) & 0xFFFFFFFFFFFFFFFF) for i in range(18)
    )


WORDS_0 = words_behind(0)
WORDS_1 = words_behind(1)
WORDS_2 = words_behind(2)
WORDS_3 = words_behind(3)

SIN = (
    2.7214172127479738e-15,
    -7.643019224719437e-13,
    1.6058940999006186e-10,
    -2.5052106904391863e-08,
    2.755731921156938e-06,
    -0.0001984126984121248,
    0.008333333333333207,
    -0.16666666666666666,
)
TAN_P = (
    2.9273150663715987e-08,
    -2.8824852970555312e-05,
    0.0039259358517607125,
    -0.1372889551782401,
    1.0,
)
TAN_Q = (
    1.31296220409924e-06,
    -0.00040300658266562877,
    0.027466698688951952,
    -0.47062228851157345,
    1.0,
)


def sin_of_reduced_f64(r: Any) -> Any:
    """sin r for |r| <= pi/2. Adding +0 to the product keeps the sign of r = -0."""
    z = r * r
    return fma(r, fma(z, horner(z, SIN), 0.0), r)


def tan_of_reduced_f64(r: Any, quadrant: Any) -> Any:
    """tan r for |r| <= pi/4 as a rational, or -1 / tan r where `quadrant` is odd."""
    z = r * r
    p = r * horner(z, TAN_P)
    q = horner(z, TAN_Q)
    odd = (quadrant & 1) == 1
    return where(odd, -q, p) / where(odd, p, q)


def flipped_f64(value: Any, odd: Any) -> Any:
    """value with its sign changed where the lowest bit of the integer `odd` is set."""
    return bitcast(bitcast(value, i64) ^ (odd << 63), f64)


def word_at(index: Any, words: Any) -> Any:
    """The word of `words` at a runtime index."""
    found = u64(words[0][1])
    for word in words[1:]:
        found = where(index >= word[0], u64(word[1]), found)
    return found


def window(start: Any, words: Any, next_words: Any) -> Any:
    """64 bits of 2/pi from bit `start` on, in the two words that hold them."""
    index = start >> 6
    shift = u64(start & 63)
    return (word_at(index, words) << shift) | ((word_at(index, next_words) >> 1) >> (63 - shift))


def window_start(x: Any) -> Any:
    """The bit of the zero-padded 2/pi whose product with x's significand has weight 2."""
    return (bitcast(abs(x), i64) >> 52) - 1013


def significand_f64(x: Any) -> Any:
    """The 53 bits of x's significand."""
    return u64((bitcast(x, i64) & 0xFFFFFFFFFFFFF) | 0x10000000000000)


def quadrants_low_f64(x: Any) -> Any:
    """The 64 bits that follow those of `quadrants_f64`."""
    start = window_start(x)
    m = significand_f64(x)
    return m * window(start, WORDS_1, WORDS_2) + mul_hi(m, window(start, WORDS_2, WORDS_3))


def quadrants_f64(x: Any) -> Any:
    """|x| 2/pi modulo 4 for finite |x| > BOUND, in units of 2**-62 (u64).

    The significand times the 192 bits of 2/pi whose products lie below 4 and above 2**-126.
    """
    start = window_start(x)
    m = significand_f64(x)
    second = window(start, WORDS_1, WORDS_2)
    carry = where(quadrants_low_f64(x) < m * second, u64(1), u64(0))
    return m * window(start, WORDS_0, WORDS_1) + mul_hi(m, second) + carry


def fraction_f64(high: Any, low: Any) -> Any:
    """The signed 128-bit fraction of a turn in [-1/2, 1/2) as f64."""
    return f64(bitcast(high, i64)) * 2.0**-64 + f64(low) * 2.0**-128


def sin_of_quadrants_f64(high: Any, low: Any) -> Any:
    """The sine of an angle in the units of `quadrants_f64`."""
    f = fraction_f64((high << 1) | (low >> 63), low << 1)
    r = fma(f, PI_1, f * PI_2)
    return flipped_f64(sin_of_reduced_f64(r), bitcast((high + 0x4000000000000000) >> 63, i64))


def sin_f64_small(x: Any) -> Any:
    """sin for |x| <= BOUND."""
    t = fma(x, ONE_OVER_PI, MAGIC)
    n = t - MAGIC
    r = fma(n, -PI_3, fma(n, -PI_2, fma(n, -PI_1, x)))
    return flipped_f64(sin_of_reduced_f64(r), bitcast(t, i64))


def sin_f64_large(x: Any) -> Any:
    """sin for finite |x| > BOUND; NaN for infinity."""
    y = sin_of_quadrants_f64(quadrants_f64(x), quadrants_low_f64(x))
    return where(x < 0.0, -y, y) + (x - x)


def sin_f64(x: Any) -> Any:
    """Sine. Max error 2.1 ULP (sampled) for all finite x. sin(+-0) = +-0, sin(+-inf) = NaN."""
    y = sin_f64_small(x)
    large = abs(x) > BOUND
    if any_(large):
        y = where(large, sin_f64_large(x), y)
    return y


def cos_f64_small(x: Any) -> Any:
    """cos for |x| <= BOUND: the sine of (n + 1/2) pi - x."""
    t = fma(x, ONE_OVER_PI, -0.5) + MAGIC
    n = (t - MAGIC) + 0.5
    r = fma(n, PI_3, fma(n, PI_2, fma(n, PI_1, -x)))
    return flipped_f64(sin_of_reduced_f64(r), bitcast(t, i64))


def cos_f64_large(x: Any) -> Any:
    """cos for finite |x| > BOUND; NaN for infinity."""
    high = quadrants_f64(x) + 0x4000000000000000
    return sin_of_quadrants_f64(high, quadrants_low_f64(x)) + (x - x)


def cos_f64(x: Any) -> Any:
    """Cosine. Max error 2.1 ULP (sampled) for all finite x. cos(+-inf) = NaN."""
    y = cos_f64_small(x)
    large = abs(x) > BOUND
    if any_(large):
        y = where(large, cos_f64_large(x), y)
    return y


def tan_f64_small(x: Any) -> Any:
    """tan for |x| <= BOUND."""
    t = fma(x, TWO_OVER_PI, MAGIC)
    n = t - MAGIC
    r = fma(n, -HALF_PI_3, fma(n, -HALF_PI_2, fma(n, -HALF_PI_1, x)))
    return tan_of_reduced_f64(r, bitcast(t, i64))


def tan_f64_large(x: Any) -> Any:
    """tan for finite |x| > BOUND; NaN for infinity."""
    high = quadrants_f64(x)
    low = quadrants_low_f64(x)
    f = fraction_f64((high << 2) | (low >> 62), low << 2)
    r = fma(f, HALF_PI_1, f * HALF_PI_2)
    y = tan_of_reduced_f64(r, bitcast((high + 0x2000000000000000) >> 62, i64))
    return where(x < 0.0, -y, y) + (x - x)


def tan_f64(x: Any) -> Any:
    """Tangent. Max error 3.2 ULP (sampled) for all finite x. tan(+-0) = +-0, tan(+-inf) = NaN."""
    y = tan_f64_small(x)
    large = abs(x) > BOUND
    if any_(large):
        y = where(large, tan_f64_large(x), y)
    return y


EXPANSIONS = {
    ("sin", "f64"): sin_f64,
    ("cos", "f64"): cos_f64,
    ("tan", "f64"): tan_f64,
}
