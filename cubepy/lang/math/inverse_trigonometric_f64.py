"""f64 asin, acos, atan and atan2.

asin: x + x**3 P(x**2) up to 1/2, and above it asin a = pi/2 - 2 asin(sqrt((1 - a) / 2)). atan: one
minimax odd polynomial on [0, 1] of the smaller argument over the larger.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import bitcast, copysign, fma, i64, sqrt, where
from cubepy.lang.math.polynomial import horner

PI = 3.141592653589793
HALF_PI_HIGH = 1.5707963267948966
HALF_PI_LOW = 6.123233995736766e-17
QUARTER_PI_LOW = 3.061616997868383e-17

ASIN = (
    0.03191363120771978,
    -0.016226231103072277,
    0.01952951936053302,
    0.00652752010156662,
    0.012169315934578206,
    0.013885219779151553,
    0.01735970632345655,
    0.022371757949532972,
    0.030381959141038653,
    0.04464285682823319,
    0.07500000000337127,
    0.16666666666665408,
)
ATAN = (
    1.3230240487369299e-05,
    -0.00015221355896300208,
    0.0008315708669531671,
    -0.0028856417937099194,
    0.007197948274026998,
    -0.013902665207992085,
    0.02198716653489416,
    -0.02990581500049284,
    0.03664319931958401,
    -0.04219245344578174,
    0.04722348976990222,
    -0.052535269469965194,
    0.05880529842573913,
    -0.06666404428802801,
    0.07692279889556233,
    -0.09090907007852293,
    0.11111111007344968,
    -0.14285714282588183,
    0.1999999999995175,
    -0.3333333333333307,
)


def asin_of_half_f64(a: Any) -> Any:
    """asin a for a <= 1/2, otherwise asin(sqrt((1 - a) / 2)); a >= 0."""
    big = a > 0.5
    z = where(big, fma(a, -0.5, 0.5), a * a)
    s = where(big, sqrt(z), a)
    return fma(s, z * horner(z, ASIN), s)


def asin_f64(x: Any) -> Any:
    """Arcsine. Max error 2.1 ULP (sampled). Keeps +-0 and denormals; NaN beyond 1."""
    a = abs(x)
    p = asin_of_half_f64(a)
    return copysign(where(a > 0.5, fma(p - QUARTER_PI_LOW, -2.0, HALF_PI_HIGH), p), x)


def acos_f64(x: Any) -> Any:
    """Arccosine. Max error 1.2 ULP (sampled). acos(1) = +0; NaN beyond 1."""
    a = abs(x)
    p = asin_of_half_f64(a)
    inner = HALF_PI_HIGH - (copysign(p, x) - HALF_PI_LOW)
    outer = where(x > 0.0, p + p, fma(p, -2.0, PI))
    return where(a > 0.5, outer, inner)


def atan_of_fraction_f64(q: Any) -> Any:
    """atan q for 0 <= q <= 1."""
    z = q * q
    return fma(q, z * horner(z, ATAN), q)


def atan_f64(x: Any) -> Any:
    """Arctangent. Max error 1.5 ULP (sampled). Keeps +-0 and denormals; +-pi/2 at +-inf."""
    a = abs(x)
    big = a > 1.0
    p = atan_of_fraction_f64(where(big, 1.0 / a, a))
    return copysign(where(big, HALF_PI_HIGH - (p - HALF_PI_LOW), p), x)


def atan2_f64(y: Any, x: Any) -> Any:
    """Angle of the point (x, y). Max error 1.4 ULP (sampled). C99's special cases.

    +-0 / +-pi at y = +-0 by the sign of x (also of x = +-0), +-pi/4 or +-3 pi/4 at two infinities.
    """
    a = abs(x)
    b = abs(y)
    steep = b > a
    low = where(steep, a, b)
    high = where(steep, b, a)
    q = where(low == high, where(low == 0.0, low, 1.0), low / high)
    p = atan_of_fraction_f64(q)
    p = where(steep, HALF_PI_HIGH - (p - HALF_PI_LOW), p)
    p = where(bitcast(x, i64) < 0, PI - p, p)
    return copysign(p, y)


EXPANSIONS = {
    ("asin", "f64"): asin_f64,
    ("acos", "f64"): acos_f64,
    ("atan", "f64"): atan_f64,
    ("atan2", "f64"): atan2_f64,
}
