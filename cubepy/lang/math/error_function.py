"""f32 erf and erfc, and erf for results of 16 bits.

erf x = x P(x**2) / Q(x**2), a minimax rational of degree 5/5. erfc a = exp(-a**2) R(q) / (a + 2)
for a >= 0, with q = (a - 2) / (a + 2), as in Shepherd & Laframboise, "Chebyshev approximation of
(1 + 2x) exp(x**2) erfc x" (1981); a**2 is carried in two parts.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import fma, where
from cubepy.lang.math.exponential import (
    EXP,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    MAGIC_UP,
    SCALE_DOWN,
    clamp_f32,
    scaled_f32,
)
from cubepy.lang.math.polynomial import horner

ERF_P = (2.0340647e-06, 0.00028474172, 0.003794012, 0.052832793, 0.19116916, 1.1283791)
ERF_Q = (3.791736e-05, 0.0011679824, 0.015026386, 0.114409246, 0.5027517, 1.0)
ERF_COARSE = (
    1.0117255e-07,
    -3.780937e-06,
    6.4072e-05,
    -0.00066422776,
    0.004816359,
    -0.026351446,
    0.11249925,
    -0.3760372,
    1.128375,
)
ERFC = (
    -4.540731e-05,
    -0.0005296108,
    -0.0007306836,
    0.0030425373,
    0.006438512,
    -0.021502327,
    -0.036436807,
    0.2794714,
    -0.68716085,
    1.0215827,
)


def erf_f32(x: Any) -> Any:
    """Error function. Max error 6.0 ULP (measured). Odd, keeps +-0 and denormals; never above 1."""
    x = clamp_f32(x, -4.0, 4.0)
    z = x * x
    return clamp_f32(x * horner(z, ERF_P) / horner(z, ERF_Q), -1.0, 1.0)


def erf_coarse(x: Any) -> Any:
    """Error function of an f32 with a relative error below 5.0e-06 (measured), for results that are
    rounded to f16 or bf16: x P(x**2) of degree 8 up to 2.6, behind which these are 1. Odd, keeps
    +-0; never above 1."""
    x = clamp_f32(x, -2.6, 2.6)
    return x * horner(x * x, ERF_COARSE)


def erfc_f32(x: Any) -> Any:
    """1 - erf x, relative accuracy in the tail. Max error 5.1 ULP (measured). Denormal results."""
    a = abs(x)
    a = where(a > 10.6, 10.6, a)
    d = 1.0 / (a + 2.0)
    scaled = horner(fma(d, -4.0, 1.0), ERFC) * d
    square = a * a
    rest = fma(a, a, -square)
    t = fma(square, -LOG2_E, MAGIC_UP)
    n = t - MAGIC_UP
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, -square)) - rest
    y = scaled_f32(scaled * fma(r, horner(r, EXP), 1.0), t, SCALE_DOWN)
    return where(x < 0.0, 2.0 - y, y)


EXPANSIONS = {
    ("erf", "f32"): erf_f32,
    ("erf", "f16"): erf_coarse,
    ("erf", "bf16"): erf_coarse,
    ("erfc", "f32"): erfc_f32,
}
