"""The table of all expansions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.lang.math import (
    error_function,
    error_function_f64,
    exponential,
    exponential_f64,
    inverse_trigonometric,
    inverse_trigonometric_f64,
    logarithm,
    logarithm_f64,
    power,
    power_f64,
    trigonometric,
    trigonometric_f64,
)

EXPANSIONS: dict[tuple[str, str], Callable[..., Any]] = {
    **error_function.EXPANSIONS,
    **error_function_f64.EXPANSIONS,
    **exponential.EXPANSIONS,
    **exponential_f64.EXPANSIONS,
    **inverse_trigonometric.EXPANSIONS,
    **inverse_trigonometric_f64.EXPANSIONS,
    **logarithm.EXPANSIONS,
    **logarithm_f64.EXPANSIONS,
    **power.EXPANSIONS,
    **power_f64.EXPANSIONS,
    **trigonometric.EXPANSIONS,
    **trigonometric_f64.EXPANSIONS,
}
