"""f32 pow, rsqrt, cbrt and hypot."""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, f32, fma, i32, sqrt, trunc, where
from cubepy.lang.math.exponential import (
    EXP2,
    MAGIC_DOWN,
    MAGIC_UP,
    SCALE_DOWN,
    SCALE_UP,
    clamp_f32,
    scaled_f32,
)
from cubepy.lang.math.logarithm import above_root_half_f32, fraction_f32
from cubepy.lang.math.polynomial import horner

INF = float("inf")
NAN = float("nan")
SMALLEST_NORMAL = 2.0**-126
TWO_LOG2_E_HIGH = 2.88539
TWO_LOG2_E_LOW = 3.851926e-08
ATANH = (0.14935414, 0.19988792, 0.33333388)


def pow_f32(x: Any, y: Any) -> Any:
    """x**y = 2**(y log2 |x|) with log2 in two f32 parts. Max error 6.0 ULP (measured).

    log2(2**k (1 + f)) = k + 2 log2(e) atanh(s), s = f / (2 + f) with its division's remainder.
    C99's special cases: 1 for y = 0 and for x = 1 even with NaN; negative x only with integer y,
    with the sign of an odd one; zeros and infinities by the sign and oddness of y.
    """
    a = abs(x)
    bits = above_root_half_f32(a)
    k = f32(bits >> 23)
    f = fraction_f32(bits)
    d_high = f + 2.0
    d_low = f - (d_high - 2.0)
    reciprocal = 1.0 / d_high
    s = f * reciprocal
    s_low = fma(-s, d_low, fma(-s, d_high, f)) * reciprocal
    z = s * s
    tail = fma(s * z, horner(z, ATANH), s_low)
    u = s + tail
    u_low = tail - (u - s)
    p = u * TWO_LOG2_E_HIGH
    p_low = fma(u, TWO_LOG2_E_HIGH, -p) + fma(u, TWO_LOG2_E_LOW, u_low * TWO_LOG2_E_HIGH)
    high = k + p
    low = (p - (high - k)) + p_low
    high = where(a == 0.0, -INF, where(a == INF, INF, high))
    exponent = y * high
    finite = abs(exponent) < 512.0
    exponent_low = where(finite, fma(y, low, fma(y, high, -exponent)), 0.0)
    exponent = clamp_f32(exponent, -160.0, 130.0)
    magic = where(exponent < 0.0, MAGIC_UP, f32(MAGIC_DOWN))
    t = exponent + magic
    r = (exponent - (t - magic)) + exponent_low
    size = scaled_f32(
        fma(r, horner(r, EXP2), 1.0), t, where(exponent < 0.0, SCALE_DOWN, f32(SCALE_UP))
    )
    size = where(a == 1.0, 1.0, size)
    half = y * 0.5
    whole = trunc(y) == y
    odd = whole & (trunc(half) != half)
    negative = bitcast(x, i32) < 0
    result = where(negative & odd, -size, size)
    result = where(
        negative & (a > 0.0) & (a < INF) & (abs(y) < INF), where(whole, result, NAN), result
    )
    result = where((x != x) | (y != y), x + y, result)
    return where((x == 1.0) | (y == 0.0), 1.0, result)


def rsqrt_f32(x: Any) -> Any:
    """1 / sqrt(x), both correctly rounded. Max error 1.5 ULP (measured). +-inf at +-0."""
    return 1.0 / sqrt(x)


def cbrt_f32(x: Any) -> Any:
    """Cube root: exponent / 3 as integers, a series step for x**(-1/3), a Newton step for the root.

    Max error 0.8 ULP (measured). Odd; keeps +-0, +-inf and NaN; denormals are scaled by 2**24.
    """
    a = abs(x)
    tiny = a < SMALLEST_NORMAL
    a = where(tiny, a * 16777216.0, a)
    y = bitcast(0x54A1B000 - (bitcast(a, i32) >> 16) * 21845, f32)
    c = fma(-(a * y), y * y, 1.0)
    y = fma(y, c * fma(c, fma(c, 0.17283951, 0.22222222), 0.33333334), y)
    root = a * y * y
    error = fma(root * root, root, -a)
    root = fma(error * (y * y), -0.33333334, root)
    root = where(tiny, root * 0.00390625, root)
    return where((a > 0.0) & (a < INF), copysign(root, x), x)


def hypot_f32(x: Any, y: Any) -> Any:
    """sqrt(x**2 + y**2), scaled by a power of two away from overflow and underflow.

    Max error 1.2 ULP (measured). inf if either is infinite, even with NaN.
    """
    a = abs(x)
    b = abs(y)
    m = where(a < b, b, a)
    up = m < 2.0**-60
    down = m > 2.0**60
    scale = where(up, 2.0**96, where(down, 2.0**-70, f32(1.0)))
    back = where(up, 2.0**-96, where(down, 2.0**70, f32(1.0)))
    a = a * scale
    b = b * scale
    result = sqrt(fma(a, a, b * b)) * back
    return where((a == INF) | (b == INF), INF, result)


EXPANSIONS = {
    ("pow", "f32"): pow_f32,
    ("rsqrt", "f32"): rsqrt_f32,
    ("cbrt", "f32"): cbrt_f32,
    ("hypot", "f32"): hypot_f32,
}
