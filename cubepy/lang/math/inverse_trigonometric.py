"""f32 asin, acos, atan and atan2.

asin: x + x**3 P(x**2) up to 1/2, and above it asin a = pi/2 - 2 asin(sqrt((1 - a) / 2)). atan: one
minimax odd polynomial on [0, 1] of the smaller argument over the larger.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, fma, i32, sqrt, where
from cubepy.lang.math.polynomial import horner

PI = 3.1415927
HALF_PI_HIGH = 1.5707964
HALF_PI_LOW = -4.371139e-08
QUARTER_PI_LOW = -2.1855695e-08

ASIN = (0.04215828, 0.024184784, 0.04546915, 0.074953094, 0.16666752)
ATAN = (
    -0.0017830746,
    0.010869875,
    -0.031099124,
    0.057883278,
    -0.08399392,
    0.10950899,
    -0.14264017,
    0.1999853,
    -0.333333,
)


def asin_of_half_f32(a: Any) -> Any:
    """asin a for a <= 1/2, otherwise asin(sqrt((1 - a) / 2)); a >= 0."""
    big = a > 0.5
    z = where(big, fma(a, -0.5, 0.5), a * a)
    s = where(big, sqrt(z), a)
    return fma(s, z * horner(z, ASIN), s)


def asin_f32(x: Any) -> Any:
    """Arcsine. Max error 2.4 ULP (measured). Keeps +-0 and denormals; NaN beyond 1."""
    a = abs(x)
    p = asin_of_half_f32(a)
    return copysign(where(a > 0.5, fma(p - QUARTER_PI_LOW, -2.0, HALF_PI_HIGH), p), x)


def acos_f32(x: Any) -> Any:
    """Arccosine. Max error 1.3 ULP (measured). acos(1) = +0; NaN beyond 1."""
    a = abs(x)
    p = asin_of_half_f32(a)
    inner = HALF_PI_HIGH - (copysign(p, x) - HALF_PI_LOW)
    outer = where(x > 0.0, p + p, fma(p, -2.0, PI))
    return where(a > 0.5, outer, inner)


def atan_of_fraction_f32(q: Any) -> Any:
    """atan q for 0 <= q <= 1."""
    z = q * q
    return fma(q, z * horner(z, ATAN), q)


def atan_f32(x: Any) -> Any:
    """Arctangent. Max error 1.4 ULP (measured). Keeps +-0 and denormals; +-pi/2 at +-inf."""
    a = abs(x)
    big = a > 1.0
    p = atan_of_fraction_f32(where(big, 1.0 / a, a))
    return copysign(where(big, HALF_PI_HIGH - (p - HALF_PI_LOW), p), x)


def atan2_f32(y: Any, x: Any) -> Any:
    """Angle of the point (x, y). Max error 1.6 ULP (measured). C99's special cases.

    +-0 / +-pi at y = +-0 by the sign of x (also of x = +-0), +-pi/4 or +-3 pi/4 at two infinities.
    """
    a = abs(x)
    b = abs(y)
    steep = b > a
    low = where(steep, a, b)
    high = where(steep, b, a)
    q = where(low == high, where(low == 0.0, low, 1.0), low / high)
    p = atan_of_fraction_f32(q)
    p = where(steep, HALF_PI_HIGH - (p - HALF_PI_LOW), p)
    p = where(bitcast(x, i32) < 0, PI - p, p)
    return copysign(p, y)


EXPANSIONS = {
    ("asin", "f32"): asin_f32,
    ("acos", "f32"): acos_f32,
    ("atan", "f32"): atan_f32,
    ("atan2", "f32"): atan2_f32,
}
