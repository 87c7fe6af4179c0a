"""f64 erf and erfc.

erf x = x P(x**2) up to 1 and 1 - erfc beyond. erfc a = exp(-a**2) R(q) / (a + 3) for a >= 0, with
q = (a - 3) / (a + 3), as in Shepherd & Laframboise, "Chebyshev approximation of (1 + 2x) exp(x**2)
erfc x" (1981); a**2 is carried in two parts.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import copysign, fma, where
from cubepy.lang.math.exponential_f64 import (
    EXP,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    MAGIC_UP,
    SCALE_DOWN,
    scaled_f64,
)
from cubepy.lang.math.polynomial import horner

ERF = (
    -5.016306613932265e-11,
    -4.746695090527937e-10,
    1.2908316830536448e-08,
    -1.608419539256044e-07,
    1.6435340146672309e-06,
    -1.4923959608539938e-05,
    0.00012055261490837222,
    -0.0008548325027791728,
    0.005223977590036151,
    -0.026866170641415527,
    0.11283791670934923,
    -0.3761263890318332,
    1.1283791670955126,
)
ERFC = (
    -1.5536691726524722e-09,
    -5.290946831318705e-09,
    4.018369295308217e-09,
    4.566596615029245e-08,
    3.4550537557234763e-08,
    -2.2951564628488597e-07,
    -3.943262062963714e-07,
    9.973156836944777e-07,
    2.7557187866600258e-06,
    -4.7491186425602204e-06,
    -1.7466235366452797e-05,
    3.0398318482223303e-05,
    0.00010756024980390226,
    -0.0002767779095843261,
    -0.0005483094717212278,
    0.0030340620117527465,
    -0.0012124166501048237,
    -0.02682723462527366,
    0.11952776128851653,
    -0.31046726190054524,
    0.5902283571040762,
    -0.8833944531698837,
    1.0740069070883398,
)


def scaled_erfc_f64(a: Any) -> Any:
    """exp(a**2) erfc a for 0 <= a <= 27.3."""
    d = 1.0 / (a + 3.0)
    return horner(fma(d, -6.0, 1.0), ERFC) * d


def erfc_of_positive_f64(a: Any) -> Any:
    """erfc a for a >= 0."""
    a = where(a > 27.3, 27.3, a)
    square = a * a
    rest = fma(a, a, -square)
    t = fma(square, -LOG2_E, MAGIC_UP)
    n = t - MAGIC_UP
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, -square)) - rest
    return scaled_f64(scaled_erfc_f64(a) * fma(r, horner(r, EXP), 1.0), t, SCALE_DOWN)


def erf_f64(x: Any) -> Any:
    """Error function: x P(x**2) up to 1, then 1 - erfc. Max error 1.4 ULP (sampled). Odd."""
    a = abs(x)
    inner = x * horner(x * x, ERF)
    return where(a < 1.0, inner, copysign(1.0 - erfc_of_positive_f64(a), x))


def erfc_f64(x: Any) -> Any:
    """1 - erf x, relative accuracy in the tail. Max error 5.6 ULP (sampled). Denormal results."""
    y = erfc_of_positive_f64(abs(x))
    return where(x < 0.0, 2.0 - y, y)


EXPANSIONS = {
    ("erf", "f64"): erf_f64,
    ("erfc", "f64"): erfc_f64,
}
