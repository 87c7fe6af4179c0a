"""f64 pow, rsqrt, cbrt and hypot."""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, f64, fma, i64, sqrt, trunc, where
from cubepy.lang.math.exponential_f64 import (
    EXP2,
    MAGIC_DOWN,
    MAGIC_UP,
    SCALE_DOWN,
    SCALE_UP,
    clamp_f64,
    scaled_f64,
)
from cubepy.lang.math.logarithm_f64 import above_root_half_f64, fraction_f64
from cubepy.lang.math.polynomial import horner

INF = float("inf")
NAN = float("nan")
SMALLEST_NORMAL = 2.0**-1022
TWO_LOG2_E_HIGH = 2.8853900817779268
TWO_LOG2_E_LOW = 4.0710547481862066e-17
THIRD_HIGH = 0.3333333333333333
THIRD_LOW = 1.850371707708594e-17
ATANH = (
    0.06018496739172526,
    0.05834148044667266,
    0.06668344353299585,
    0.07692272701534991,
    0.090909095391632,
    0.11111111107649857,
    0.14285714285729378,
    0.19999999999999968,
)


def pow_f64(x: Any, y: Any) -> Any:
    """x**y = 2**(y log2 |x|) with log2 in two f64 parts. Max error 0.9 ULP (sampled).

    log2(2**k (1 + f)) = k + 2 log2(e) atanh(s), s = f / (2 + f) with its division's remainder.
    C99's special cases: 1 for y = 0 and for x = 1 even with NaN; negative x only with integer y,
    with the sign of an odd one; zeros and infinities by the sign and oddness of y.
    """
    a = abs(x)
    bits = above_root_half_f64(a)
    k = f64(bits >> 52)
    f = fraction_f64(bits)
    d_high = f + 2.0
    d_low = f - (d_high - 2.0)
    reciprocal = 1.0 / d_high
    s = f * reciprocal
    s_low = fma(-s, d_low, fma(-s, d_high, f)) * reciprocal
    # s + s z (1/3 + z Q(z)), z = s**2, all in two parts but z Q(z)
    z = s * s
    z_low = fma(s, s, -z) + 2.0 * s * s_low
    w = fma(z, horner(z, ATANH), THIRD_LOW)
    c = THIRD_HIGH + w
    c_low = w - (c - THIRD_HIGH)
    q = z * c
    q_low = fma(z, c, -q) + fma(z, c_low, z_low * c)
    v = s * q
    v_low = fma(s, q, -v) + fma(s, q_low, s_low * q)
    u = s + v
    u_low = (v - (u - s)) + (s_low + v_low)
    p = u * TWO_LOG2_E_HIGH
    p_low = fma(u, TWO_LOG2_E_HIGH, -p) + fma(u, TWO_LOG2_E_LOW, u_low * TWO_LOG2_E_HIGH)
    high = k + p
    low = (p - (high - k)) + p_low
    high = where(a == 0.0, -INF, where(a == INF, INF, high))
    exponent = y * high
    finite = abs(exponent) < 4096.0
    exponent_low = where(finite, fma(y, low, fma(y, high, -exponent)), 0.0)
    exponent = clamp_f64(exponent, -1100.0, 1030.0)
    magic = where(exponent < 0.0, MAGIC_UP, f64(MAGIC_DOWN))
    t = exponent + magic
    r = (exponent - (t - magic)) + exponent_low
    size = scaled_f64(
        fma(r, horner(r, EXP2), 1.0), t, where(exponent < 0.0, SCALE_DOWN, f64(SCALE_UP))
    )
    size = where(a == 1.0, 1.0, size)
    half = y * 0.5
    whole = trunc(y) == y
    odd = whole & (trunc(half) != half)
    negative = bitcast(x, i64) < 0
    result = where(negative & odd, -size, size)
    result = where(
        negative & (a > 0.0) & (a < INF) & (abs(y) < INF), where(whole, result, NAN), result
    )
    result = where((x != x) | (y != y), x + y, result)
    return where((x == 1.0) | (y == 0.0), 1.0, result)


def rsqrt_f64(x: Any) -> Any:
    """1 / sqrt(x), both correctly rounded. Max error 1.5 ULP (sampled). +-inf at +-0."""
    return 1.0 / sqrt(x)


def better_inverse_cube_root(a: Any, y: Any) -> Any:
    """Three terms of the series of (1 - c)**(-1/3), c = 1 - a y**3: the error to the fourth."""
    c = fma(-(a * y), y * y, 1.0)
    return fma(y, c * fma(c, fma(c, 14 / 81, 2 / 9), 1 / 3), y)


def cbrt_f64(x: Any) -> Any:
    """Cube root: exponent / 3 as integers, two series steps for x**(-1/3), one Newton step at last.

    Max error 0.8 ULP (sampled). Odd; keeps +-0, +-inf and NaN; denormals are scaled by 2**54.
    """
    a = abs(x)
    tiny = a < SMALLEST_NORMAL
    a = where(tiny, a * 18014398509481984.0, a)
    y = bitcast(0x553EE075F6FD2200 - (bitcast(a, i64) >> 32) * 1431655765, f64)
    y = better_inverse_cube_root(a, better_inverse_cube_root(a, y))
    root = a * y * y
    error = fma(root * root, root, -a)
    root = fma(error * (y * y), -0.3333333333333333, root)
    root = where(tiny, root * 2.0**-18, root)
    return where((a > 0.0) & (a < INF), copysign(root, x), x)


def hypot_f64(x: Any, y: Any) -> Any:
    """sqrt(x**2 + y**2), scaled by a power of two away from overflow and underflow.

    Max error 1.2 ULP (sampled). inf if either is infinite, even with NaN.
    """
    a = abs(x)
    b = abs(y)
    m = where(a < b, b, a)
    up = m < 2.0**-480
    down = m > 2.0**480
    scale = where(up, 2.0**700, where(down, 2.0**-560, f64(1.0)))
    back = where(up, 2.0**-700, where(down, 2.0**560, f64(1.0)))
    a = a * scale
    b = b * scale
    result = sqrt(fma(a, a, b * b)) * back
    return where((a == INF) | (b == INF), INF, result)


EXPANSIONS = {
    ("pow", "f64"): pow_f64,
    ("rsqrt", "f64"): rsqrt_f64,
    ("cbrt", "f64"): cbrt_f64,
    ("hypot", "f64"): hypot_f64,
}
