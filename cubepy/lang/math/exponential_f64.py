"""f64 exponentials and hyperbolic functions.

Method, throughout: b**x = 2**n b**r, with n = round(x log2 b) taken by adding a magic constant
(1.5 * 2**52, so that n also stands in the low bits of the sum) and r = x - n log_b(2) in two fma
steps (Cody & Waite, "Software Manual for the Elementary Functions", 1980). The polynomials are
minimax fits by `tools/minimax.py`. Clamps are written as `where`, which keeps NaN and is one
instruction.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, f64, fma, i64, where
from cubepy.lang.math.polynomial import horner

# 1.5 * 2**52 and a little: adding it rounds to an integer.
MAGIC_UP = 6755399441055744.0 + 1023.0 + 512.0  # low bits: the exponent field of 2**(n + 512)
MAGIC_DOWN = 6755399441055744.0 + 1023.0 - 512.0
MAGIC_BIAS = 6755399441055744.0 + 1023.0  # low bits: the exponent field of 2**n
MAGIC_BIAS_LESS_1 = 6755399441055744.0 + 1022.0
MAGIC_BIAS_LESS_2 = 6755399441055744.0 + 1021.0
SCALE_UP = 2.0**512
SCALE_DOWN = 2.0**-512

LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471805599453
LN2_LOW = 2.3190468138462996e-17
LOG2_10 = 3.321928094887362
LOG10_2_HIGH = 0.3010299956639812
LOG10_2_LOW = -2.8037281277851704e-18

EXP = (
    2.5003847244064313e-08,
    2.763049896209951e-07,
    2.755757279134163e-06,
    2.4801492414725994e-05,
    0.00019841269525097227,
    0.0013888888944301237,
    0.008333333333483168,
    0.04166666666652729,
    0.16666666666666438,
    0.5000000000000011,
    1.0,
)
EXP2 = (
    4.4397085744792263e-10,
    7.07327343239717e-09,
    1.017815361708575e-07,
    1.3215438565881827e-06,
    1.5252733651976278e-05,
    0.00015403530449699065,
    0.001333355814652441,
    0.009618129107600897,
    0.05550410866482182,
    0.2402265069591011,
    0.6931471805599453,
)
EXP10 = (
    0.00024046432698148832,
    0.0011574807859187147,
    0.005014028064983954,
    0.019597624679133608,
    0.06808936253627747,
    0.2069958494175059,
    0.5393829292238658,
    1.1712551489092495,
    2.03467859229334,
    2.6509490552392023,
    2.302585092994046,
)
EXPM1 = (
    2.0893119291227855e-09,
    2.5108856874482023e-08,
    2.7557333683125564e-07,
    2.7557244718640287e-06,
    2.4801587271696153e-05,
    0.000198412698857005,
    0.0013888888888899003,
    0.0083333333333217,
    0.04166666666666667,
    0.16666666666666677,
    0.5,
)
SINH = (
    2.5109348132140983e-08,
    2.7557243390706248e-06,
    0.00019841269886858342,
    0.008333333333321378,
    0.16666666666666677,
)
COSH = (
    2.0921810213495014e-09,
    2.7557251719116115e-07,
    2.4801587349281494e-05,
    0.0013888888888873264,
    0.041666666666666685,
    0.5,
)


def clamp_f64(x: Any, low: Any, high: Any) -> Any:
    """x held to [low, high]; NaN remains NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def power_of_two_f64(t: Any) -> Any:
    """2**n where t = n + magic + 1023, an exponent field in the low bits of t."""
    return bitcast(bitcast(t, i64) << 52, f64)


def scaled_f64(p: Any, t: Any, back: Any) -> Any:
    """p * 2**n * back, with t = n + magic + 1023: only the second product rounds.

    So results round once, into the denormals or to infinity.
    """
    return p * power_of_two_f64(t) * back


def vanishing_f64(p: Any, t: Any, is_zero: Any) -> Any:
    """p * 2**n, with t = n + magic + 1023, or 0 where the result would round to 0.

    A product of 0 is exact; one that rounds below the normal numbers takes many processors ten
    times as long.
    """
    return where(is_zero, 0.0, p * power_of_two_f64(t))


def exp_f64(x: Any) -> Any:
    """e**x. Max error 0.83 ULP (sampled). exp(-inf) = 0, exp(inf) = inf; denormal results."""
    x = where(x > 710.0, 710.0, x)
    magic = where(x < 0.0, MAGIC_UP, f64(MAGIC_DOWN))
    t = fma(x, LOG2_E, magic)
    n = t - magic
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    p = vanishing_f64(fma(r, horner(r, EXP), 1.0), t, x < -746.0)
    return p * where(x < 0.0, SCALE_DOWN, f64(SCALE_UP))


def exp2_f64(x: Any) -> Any:
    """2**x. Max error 0.77 ULP (sampled). Exact at integers; denormal results."""
    x = where(x > 1025.0, 1025.0, x)
    magic = where(x < 0.0, MAGIC_UP, f64(MAGIC_DOWN))
    t = x + magic
    r = x - (t - magic)
    p = vanishing_f64(fma(r, horner(r, EXP2), 1.0), t, x < -1076.0)
    return p * where(x < 0.0, SCALE_DOWN, f64(SCALE_UP))


def exp10_f64(x: Any) -> Any:
    """10**x. Max error 0.88 ULP (sampled). Denormal results."""
    x = where(x > 309.0, 309.0, x)
    magic = where(x < 0.0, MAGIC_UP, f64(MAGIC_DOWN))
    t = fma(x, LOG2_10, magic)
    n = t - magic
    r = fma(n, -LOG10_2_LOW, fma(n, -LOG10_2_HIGH, x))
    p = vanishing_f64(fma(r, horner(r, EXP10), 1.0), t, x < -324.5)
    return p * where(x < 0.0, SCALE_DOWN, f64(SCALE_UP))


def exp_of_negative_f64(x: Any) -> Any:
    """e**x for x <= 0, three operations less than `exp_f64`."""
    t = fma(x, LOG2_E, MAGIC_UP)
    n = t - MAGIC_UP
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    return vanishing_f64(fma(r, horner(r, EXP), 1.0), t, x < -746.0) * SCALE_DOWN


def expm1_f64(x: Any) -> Any:
    """e**x - 1 = 2**n q + (2**n - 1), with q = e**r - 1, all at half size until the end.

    Max error 1.8 ULP (sampled). expm1(+-0) = +-0, denormals are kept, expm1(-inf) = -1.
    """
    y = clamp_f64(x, -40.0, 710.0)
    t = fma(y, LOG2_E, MAGIC_BIAS_LESS_1)
    n = t - MAGIC_BIAS_LESS_1
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, y))
    q = fma(r * r, horner(r, EXPM1), r)
    half_power = power_of_two_f64(t)
    half = fma(half_power, q, half_power - 0.5)
    return where(abs(x) < 1e-20, x, half + half)


def sinh_f64(x: Any) -> Any:
    """sinh x = (A - B) cosh r + (A + B) sinh r, A = 2**n / 2, B = 2**-n / 2, x = n ln 2 + r.

    Needs no division and no cancellation case. Max error 2.1 ULP (sampled). Odd, keeps +-0.
    """
    a = abs(x)
    a = where(a > 710.8, 710.8, a)
    t = fma(a, LOG2_E, MAGIC_BIAS_LESS_2)
    n = t - MAGIC_BIAS_LESS_2
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, a))
    z = r * r
    up = bitcast(t, i64) << 52
    big = bitcast(up, f64)
    small = where(a < 350.0, bitcast(0x7FA0000000000000 - up, f64), 0.0)
    difference = big - small
    odd = (big + small) * fma(r, z * horner(z, SINH), r)
    half = difference + fma(difference, z * horner(z, COSH), odd)
    return where(a < 0.000000001, x, copysign(half + half, x))


def cosh_f64(x: Any) -> Any:
    """cosh x = (A + B) cosh r + (A - B) sinh r; see `sinh_f64`. Max error 1.5 ULP (sampled)."""
    a = abs(x)
    a = where(a > 710.8, 710.8, a)
    t = fma(a, LOG2_E, MAGIC_BIAS_LESS_2)
    n = t - MAGIC_BIAS_LESS_2
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, a))
    z = r * r
    up = bitcast(t, i64) << 52
    big = bitcast(up, f64)
    small = where(a < 350.0, bitcast(0x7FA0000000000000 - up, f64), 0.0)
    total = big + small
    odd = (big - small) * fma(r, z * horner(z, SINH), r)
    half = total + fma(total, z * horner(z, COSH), odd)
    return half + half


def tanh_f64(x: Any) -> Any:
    """tanh |x| = e / (e + 2) with e = exp(2 |x|) - 1. Max error 2.4 ULP (sampled). Odd."""
    a = abs(x)
    a = where(a > 20.0, 20.0, a)
    a = a + a
    t = fma(a, LOG2_E, MAGIC_BIAS)
    n = t - MAGIC_BIAS
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, a))
    q = fma(r * r, horner(r, EXPM1), r)
    power = power_of_two_f64(t)
    e = fma(power, q, power - 1.0)
    return copysign(e / (e + 2.0), x)


def sigmoid_f64(x: Any) -> Any:
    """1 / (1 + e**-x) = (1 or e) / (1 + e), e = e**-|x|. Max error 2.2 ULP (sampled)."""
    e = exp_of_negative_f64(-abs(x))
    return where(x < 0.0, e, 1.0) / (e + 1.0)


EXPANSIONS = {
    ("exp", "f64"): exp_f64,
    ("exp2", "f64"): exp2_f64,
    ("exp10", "f64"): exp10_f64,
    ("expm1", "f64"): expm1_f64,
    ("sinh", "f64"): sinh_f64,
    ("cosh", "f64"): cosh_f64,
    ("tanh", "f64"): tanh_f64,
    ("sigmoid", "f64"): sigmoid_f64,
}
