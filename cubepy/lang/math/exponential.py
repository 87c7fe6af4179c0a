"""f32 exponentials and hyperbolic functions.

Method, throughout: b**x = 2**n b**r, with n = round(x log2 b) taken by adding a magic constant
(1.5 * 2**23, so that n also stands in the low bits of the sum) and r = x - n log_b(2) in two fma
steps (Cody & Waite, "Software Manual for the Elementary Functions", 1980). The polynomials are
minimax fits by `tools/minimax.py`. Clamps are written as `where`, which keeps NaN and is one
instruction.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, f32, fma, i32, where
from cubepy.lang.math.polynomial import horner

# 1.5 * 2**23 (12582912) and a little: adding it rounds to an integer.
MAGIC_UP = 12582912.0 + 127.0 + 64.0  # low bits: the exponent field of 2**(n + 64)
MAGIC_DOWN = 12582912.0 + 127.0 - 64.0
MAGIC_BIAS = 12582912.0 + 127.0  # low bits: the exponent field of 2**n
MAGIC_BIAS_LESS_1 = 12582912.0 + 126.0
MAGIC_BIAS_LESS_2 = 12582912.0 + 125.0
SCALE_UP = 2.0**64
SCALE_DOWN = 2.0**-64

LOG2_E = 1.442695
LN2_HIGH = 0.6931472
LN2_LOW = -1.9046542e-09
LOG2_10 = 3.321928
LOG10_2_HIGH = 0.30103
LOG10_2_LOW = -1.4320989e-08

EXP = (0.0013818947, 0.008368704, 0.04166829, 0.16666521, 0.49999994, 1.0)
EXP2 = (0.00015326524, 0.0013390818, 0.009618506, 0.0555036, 0.24022648, 0.6931472)
EXP10 = (0.20616274, 0.54182744, 1.1712953, 2.034656, 2.6509488, 2.3025851)
EXPM1 = (0.0013868089, 0.008366431, 0.041667465, 0.16666545, 0.49999997)
SINH = (0.00019974026, 0.008333175, 0.16666667)
COSH = (0.0013935453, 0.04166646, 0.5)


def clamp_f32(x: Any, low: Any, high: Any) -> Any:
    """x held to [low, high]; NaN remains NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def power_of_two_f32(t: Any) -> Any:
    """2**n where t = n + magic + 127, an exponent field in the low bits of t."""
    return bitcast(bitcast(t, i32) << 23, f32)


def scaled_f32(p: Any, t: Any, back: Any) -> Any:
    """p * 2**n * back, with t = n + magic + 127: only the second product rounds.

    So results round once, into the denormals or to infinity.
    """
    return p * power_of_two_f32(t) * back


def vanishing_f32(p: Any, t: Any, is_zero: Any) -> Any:
    """p * 2**n, with t = n + magic + 127, or 0 where the result would round to 0.

    A product of 0 is exact; one that rounds below the normal numbers takes many processors ten
    times as long.
    """
    return where(is_zero, 0.0, p * power_of_two_f32(t))


def exp_f32(x: Any) -> Any:
    """e**x. Max error 0.88 ULP (measured). exp(-inf) = 0, exp(inf) = inf; denormal results."""
    x = where(x > 89.0, 89.0, x)
    magic = where(x < 0.0, MAGIC_UP, f32(MAGIC_DOWN))
    t = fma(x, LOG2_E, magic)
    n = t - magic
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    p = vanishing_f32(fma(r, horner(r, EXP), 1.0), t, x < -104.0)
    return p * where(x < 0.0, SCALE_DOWN, f32(SCALE_UP))


def exp2_f32(x: Any) -> Any:
    """2**x. Max error 0.83 ULP (measured). Exact at integers; denormal results."""
    x = where(x > 129.0, 129.0, x)
    magic = where(x < 0.0, MAGIC_UP, f32(MAGIC_DOWN))
    t = x + magic
    r = x - (t - magic)
    p = vanishing_f32(fma(r, horner(r, EXP2), 1.0), t, x < -151.0)
    return p * where(x < 0.0, SCALE_DOWN, f32(SCALE_UP))


def exp10_f32(x: Any) -> Any:
    """10**x. Max error 0.93 ULP (measured). Denormal results."""
    x = where(x > 39.0, 39.0, x)
    magic = where(x < 0.0, MAGIC_UP, f32(MAGIC_DOWN))
    t = fma(x, LOG2_10, magic)
    n = t - magic
    r = fma(n, -LOG10_2_LOW, fma(n, -LOG10_2_HIGH, x))
    p = vanishing_f32(fma(r, horner(r, EXP10), 1.0), t, x < -46.0)
    return p * where(x < 0.0, SCALE_DOWN, f32(SCALE_UP))


def exp_of_negative_f32(x: Any) -> Any:
    """e**x for x <= 0, three operations less than `exp_f32`."""
    t = fma(x, LOG2_E, MAGIC_UP)
    n = t - MAGIC_UP
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    return vanishing_f32(fma(r, horner(r, EXP), 1.0), t, x < -104.0) * SCALE_DOWN


def expm1_f32(x: Any) -> Any:
    """e**x - 1 = 2**n q + (2**n - 1), with q = e**r - 1, all at half size until the end.

    Max error 1.51 ULP (measured). expm1(+-0) = +-0, denormals are kept, expm1(-inf) = -1.
    """
    y = clamp_f32(x, -20.0, 89.0)
    t = fma(y, LOG2_E, MAGIC_BIAS_LESS_1)
    n = t - MAGIC_BIAS_LESS_1
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, y))
    q = fma(r * r, horner(r, EXPM1), r)
    half_power = power_of_two_f32(t)
    half = fma(half_power, q, half_power - 0.5)
    return where(abs(x) < 1e-10, x, half + half)


def sinh_f32(x: Any) -> Any:
    """sinh x = (A - B) cosh r + (A + B) sinh r, A = 2**n / 2, B = 2**-n / 2, x = n ln 2 + r.

    Needs no division and no cancellation case. Max error 1.8 ULP (measured). Odd, keeps +-0.
    """
    a = abs(x)
    a = where(a > 89.5, 89.5, a)
    t = fma(a, LOG2_E, MAGIC_BIAS_LESS_2)
    n = t - MAGIC_BIAS_LESS_2
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, a))
    z = r * r
    up = bitcast(t, i32) << 23
    big = bitcast(up, f32)
    small = where(a < 40.0, bitcast(2097152000 - up, f32), 0.0)
    difference = big - small
    odd = (big + small) * fma(r, z * horner(z, SINH), r)
    half = difference + fma(difference, z * horner(z, COSH), odd)
    return where(a < 0.000244140625, x, copysign(half + half, x))


def cosh_f32(x: Any) -> Any:
    """cosh x = (A + B) cosh r + (A - B) sinh r; see `sinh_f32`. Max error 1.9 ULP (measured)."""
    a = abs(x)
    a = where(a > 89.5, 89.5, a)
    t = fma(a, LOG2_E, MAGIC_BIAS_LESS_2)
    n = t - MAGIC_BIAS_LESS_2
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, a))
    z = r * r
    up = bitcast(t, i32) << 23
    big = bitcast(up, f32)
    small = where(a < 40.0, bitcast(2097152000 - up, f32), 0.0)
    total = big + small
    odd = (big - small) * fma(r, z * horner(z, SINH), r)
    half = total + fma(total, z * horner(z, COSH), odd)
    return half + half


def tanh_f32(x: Any) -> Any:
    """tanh |x| = e / (e + 2) with e = exp(2 |x|) - 1. Max error 2.5 ULP (measured). Odd."""
    a = abs(x)
    a = where(a > 9.1, 9.1, a)
    a = a + a
    t = fma(a, LOG2_E, MAGIC_BIAS)
    n = t - MAGIC_BIAS
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, a))
    q = fma(r * r, horner(r, EXPM1), r)
    power = power_of_two_f32(t)
    e = fma(power, q, power - 1.0)
    return copysign(e / (e + 2.0), x)


def sigmoid_f32(x: Any) -> Any:
    """1 / (1 + e**-x) = (1 or e) / (1 + e), e = e**-|x|. Max error 2.4 ULP (measured)."""
    e = exp_of_negative_f32(-abs(x))
    return where(x < 0.0, e, 1.0) / (e + 1.0)


EXPANSIONS = {
    ("exp", "f32"): exp_f32,
    ("exp2", "f32"): exp2_f32,
    ("exp10", "f32"): exp10_f32,
    ("expm1", "f32"): expm1_f32,
    ("sinh", "f32"): sinh_f32,
    ("cosh", "f32"): cosh_f32,
    ("tanh", "f32"): tanh_f32,
    ("sigmoid", "f32"): sigmoid_f32,
}
