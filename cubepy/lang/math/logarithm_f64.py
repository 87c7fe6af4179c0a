"""f64 logarithms and inverse hyperbolic functions.

Method: x = 2**k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), by integer arithmetic on the bits;
log(1 + f) = 2 atanh(s), s = f / (2 + f), written as f less a small term, with a minimax polynomial
(`tools/minimax.py`) in s**2: a division costs less than the degree of 20 that it saves. k ln 2 is
added in two parts. log1p takes f = 2**-k x + (2**-k - 1), which one fma rounds only once.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, f64, fma, i64, sqrt, where
from cubepy.lang.math.polynomial import horner

INF = float("inf")
NAN = float("nan")
SMALLEST_NORMAL = 2.0**-1022
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
ROOT_HALF_BITS_54 = 0x3FE6A09E667F3BCD + (54 << 52)

LN2_HIGH = 0.6931471805599453
LN2_LOW = 2.3190468138462996e-17
LOG2_E_HIGH = 1.4426950408889634
LOG2_E_LOW = 2.0355273740931033e-17
LOG10_2_HIGH = 0.3010299956639812
LOG10_2_LOW = -2.8037281277851704e-18
LOG10_E_HIGH = 0.4342944819032518
LOG10_E_LOW = 1.098319650216765e-17

ATANH = (
    0.06617442179471777,
    0.06626069850054848,
    0.07693494523262821,
    0.09090889177806247,
    0.11111111303450141,
    0.14285714284705997,
    0.2000000000000246,
    0.3333333333333333,
)


def above_root_half_f64(x: Any) -> Any:
    """The bits of x less those of sqrt(1/2): k in bits 52 up, f's fraction below; denormals too."""
    tiny = x < SMALLEST_NORMAL
    bits = bitcast(where(tiny, x * 18014398509481984.0, x), i64)
    return bits - where(tiny, i64(ROOT_HALF_BITS_54), i64(ROOT_HALF_BITS))


def fraction_f64(bits: Any) -> Any:
    """f in [sqrt(1/2) - 1, sqrt(2) - 1) of `above_root_half_f64`."""
    return bitcast((bits & 0xFFFFFFFFFFFFF) + ROOT_HALF_BITS, f64) - 1.0


def log_tail_f64(f: Any) -> Any:
    """log(1 + f) - f."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return fma(s, fma(z + z, horner(z, ATANH), half), -half)


def with_special_cases_f64(x: Any, result: Any) -> Any:
    """log's value at x where x is not positive and finite: -inf at 0, NaN below, x at inf, NaN."""
    result = where(x < INF, result, x)
    return where(x > 0.0, result, where(x == 0.0, -INF, f64(NAN)))


def log_f64(x: Any) -> Any:
    """Natural logarithm. Max error 0.78 ULP (sampled). log(+-0) = -inf, log(<0) = NaN."""
    bits = above_root_half_f64(x)
    k = f64(bits >> 52)
    f = fraction_f64(bits)
    tail = fma(k, LN2_LOW, log_tail_f64(f))
    return with_special_cases_f64(x, fma(k, LN2_HIGH, f + tail))


def log2_f64(x: Any) -> Any:
    """Base 2. Max error 0.86 ULP (sampled). Exact at powers of two; special cases as `log_f64`."""
    bits = above_root_half_f64(x)
    f = fraction_f64(bits)
    rest = fma(log_tail_f64(f), LOG2_E_HIGH, f * LOG2_E_LOW)
    return with_special_cases_f64(x, f64(bits >> 52) + fma(f, LOG2_E_HIGH, rest))


def log10_f64(x: Any) -> Any:
    """Base 10. Max error 0.84 ULP (sampled). Special cases as `log_f64`."""
    bits = above_root_half_f64(x)
    k = f64(bits >> 52)
    f = fraction_f64(bits)
    rest = fma(log_tail_f64(f), LOG10_E_HIGH, fma(f, LOG10_E_LOW, k * LOG10_2_LOW))
    return with_special_cases_f64(x, fma(k, LOG10_2_HIGH, fma(f, LOG10_E_HIGH, rest)))


def log1p_f64(x: Any) -> Any:
    """log(1 + x). Max error 1.4 ULP (sampled). Keeps +-0 and denormals; log1p(-1) = -inf."""
    bits = bitcast(x + 1.0, i64) - ROOT_HALF_BITS
    exponent = bits >> 52
    power = bitcast(0x3FF0000000000000 - (exponent << 52), f64)
    f = where(x > 1152921504606846976.0, fraction_f64(bits), fma(power, x, power - 1.0))
    k = f64(exponent)
    tail = fma(k, LN2_LOW, log_tail_f64(f))
    result = copysign(fma(k, LN2_HIGH, f + tail), x)
    result = where(x < INF, result, x)
    return where(x > -1.0, result, where(x == -1.0, -INF, f64(NAN)))


def asinh_f64(x: Any) -> Any:
    """log1p(a + a**2 / (1 + sqrt(a**2 + 1))), a = |x|; log(a) + ln 2 from 2**60 up.

    Max error 1.7 ULP (sampled). Odd, keeps +-0 and denormals.
    """
    a = abs(x)
    big = a > 1152921504606846976.0
    square = a * a
    argument = a + square / (sqrt(square + 1.0) + 1.0)
    result = log1p_f64(where(big, a, argument))
    return copysign(where(big, result + LN2_HIGH, result), x)


def acosh_f64(x: Any) -> Any:
    """log1p(t + sqrt(t (t + 2))), t = x - 1; log(x) + ln 2 from 2**60 up. NaN below 1.

    Max error 2.0 ULP (sampled).
    """
    big = x > 1152921504606846976.0
    t = x - 1.0
    result = log1p_f64(where(big, x, t + sqrt(fma(t, t, t + t))))
    return where(x < 1.0, NAN, where(big, result + LN2_HIGH, result))


def atanh_f64(x: Any) -> Any:
    """log1p(2 a / (1 - a)) / 2, a = |x|. Max error 1.9 ULP (sampled). +-inf at +-1, NaN beyond."""
    a = abs(x)
    return copysign(log1p_f64((a + a) / (1.0 - a)) * 0.5, x)


EXPANSIONS = {
    ("log", "f64"): log_f64,
    ("log2", "f64"): log2_f64,
    ("log10", "f64"): log10_f64,
    ("log1p", "f64"): log1p_f64,
    ("asinh", "f64"): asinh_f64,
    ("acosh", "f64"): acosh_f64,
    ("atanh", "f64"): atanh_f64,
}
