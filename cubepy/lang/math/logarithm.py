"""f32 logarithms and inverse hyperbolic functions.

Method: x = 2**k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), by integer arithmetic on the bits;
log(1 + f) = f - f**2/2 + f**3 P(f) with a minimax P (`tools/minimax.py`), and k ln 2 added in two
parts. log1p takes f = 2**-k x + (2**-k - 1), which one fma rounds only once.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, f32, fma, i32, sqrt, where
from cubepy.lang.math.polynomial import horner

INF = float("inf")
NAN = float("nan")
SMALLEST_NORMAL = 2.0**-126
ROOT_HALF_BITS = 0x3F3504F3
ROOT_HALF_BITS_25 = 0x3F3504F3 + (25 << 23)

LN2_HIGH = 0.6931472
LN2_LOW = -1.9046542e-09
LOG2_E_HIGH = 1.442695
LOG2_E_LOW = 1.925963e-08
LOG10_2_HIGH = 0.30103
LOG10_2_LOW = -1.4320989e-08
LOG10_E_HIGH = 0.4342945
LOG10_E_LOW = -1.010305e-08

LOG = (
    -0.076367095,
    0.12762384,
    -0.13159613,
    0.14201568,
    -0.16623408,
    0.20001242,
    -0.2500082,
    0.3333333,
)


def above_root_half_f32(x: Any) -> Any:
    """The bits of x less those of sqrt(1/2): k in bits 23 up, f's fraction below; denormals too."""
    tiny = x < SMALLEST_NORMAL
    bits = bitcast(where(tiny, x * 33554432.0, x), i32)
    return bits - where(tiny, i32(ROOT_HALF_BITS_25), i32(ROOT_HALF_BITS))


def fraction_f32(bits: Any) -> Any:
    """f in [sqrt(1/2) - 1, sqrt(2) - 1) of `above_root_half_f32`."""
    return bitcast((bits & 0x7FFFFF) + ROOT_HALF_BITS, f32) - 1.0


def log_tail_f32(f: Any) -> Any:
    """log(1 + f) - f."""
    return f * f * fma(f, horner(f, LOG), -0.5)


def with_special_cases_f32(x: Any, result: Any) -> Any:
    """log's value at x where x is not positive and finite: -inf at 0, NaN below, x at inf, NaN."""
    result = where(x < INF, result, x)
    return where(x > 0.0, result, where(x == 0.0, -INF, f32(NAN)))


def log_f32(x: Any) -> Any:
    """Natural logarithm. Max error 0.85 ULP (measured). log(+-0) = -inf, log(<0) = NaN."""
    bits = above_root_half_f32(x)
    k = f32(bits >> 23)
    f = fraction_f32(bits)
    tail = fma(f * f, fma(f, horner(f, LOG), -0.5), k * LN2_LOW)
    return with_special_cases_f32(x, fma(k, LN2_HIGH, f + tail))


def log2_f32(x: Any) -> Any:
    """Base 2. Max error 1.09 ULP (measured). Exact at powers of two; special cases as `log_f32`."""
    bits = above_root_half_f32(x)
    f = fraction_f32(bits)
    rest = fma(log_tail_f32(f), LOG2_E_HIGH, f * LOG2_E_LOW)
    return with_special_cases_f32(x, f32(bits >> 23) + fma(f, LOG2_E_HIGH, rest))


def log10_f32(x: Any) -> Any:
    """Base 10. Max error 0.98 ULP (measured). Special cases as `log_f32`."""
    bits = above_root_half_f32(x)
    k = f32(bits >> 23)
    f = fraction_f32(bits)
    rest = fma(log_tail_f32(f), LOG10_E_HIGH, fma(f, LOG10_E_LOW, k * LOG10_2_LOW))
    return with_special_cases_f32(x, fma(k, LOG10_2_HIGH, fma(f, LOG10_E_HIGH, rest)))


def log1p_f32(x: Any) -> Any:
    """log(1 + x). Max error 1.43 ULP (measured). Keeps +-0 and denormals; log1p(-1) = -inf."""
    bits = bitcast(x + 1.0, i32) - ROOT_HALF_BITS
    exponent = bits >> 23
    power = bitcast(0x3F800000 - (exponent << 23), f32)
    f = where(x > 1073741824.0, fraction_f32(bits), fma(power, x, power - 1.0))
    k = f32(exponent)
    tail = fma(f * f, fma(f, horner(f, LOG), -0.5), k * LN2_LOW)
    result = copysign(fma(k, LN2_HIGH, f + tail), x)
    result = where(x < INF, result, x)
    return where(x > -1.0, result, where(x == -1.0, -INF, f32(NAN)))


def asinh_f32(x: Any) -> Any:
    """log1p(a + a**2 / (1 + sqrt(a**2 + 1))), a = |x|; log(a) + ln 2 from 2**30 up.

    Max error 1.7 ULP (measured). Odd, keeps +-0 and denormals.
    """
    a = abs(x)
    big = a > 1073741824.0
    square = a * a
    argument = a + square / (sqrt(square + 1.0) + 1.0)
    result = log1p_f32(where(big, a, argument))
    return copysign(where(big, result + LN2_HIGH, result), x)


def acosh_f32(x: Any) -> Any:
    """log1p(t + sqrt(t (t + 2))), t = x - 1; log(x) + ln 2 from 2**30 up. NaN below 1.

    Max error 1.9 ULP (measured).
    """
    big = x > 1073741824.0
    t = x - 1.0
    result = log1p_f32(where(big, x, t + sqrt(fma(t, t, t + t))))
    return where(x < 1.0, NAN, where(big, result + LN2_HIGH, result))


def atanh_f32(x: Any) -> Any:
    """log1p(2 a / (1 - a)) / 2, a = |x|. Max error 2.1 ULP (measured). +-inf at +-1, NaN beyond."""
    a = abs(x)
    return copysign(log1p_f32((a + a) / (1.0 - a)) * 0.5, x)


EXPANSIONS = {
    ("log", "f32"): log_f32,
    ("log2", "f32"): log2_f32,
    ("log10", "f32"): log10_f32,
    ("log1p", "f32"): log1p_f32,
    ("asinh", "f32"): asinh_f32,
    ("acosh", "f32"): acosh_f32,
    ("atanh", "f32"): atanh_f32,
}
