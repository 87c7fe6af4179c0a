"""The table of all expansions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.lang.math import (
    error_function,
    exponential,
    inverse_trigonometric,
    logarithm,
    power,
    trigonometric,
)

EXPANSIONS: dict[tuple[str, str], Callable[..., Any]] = {
    **exponential.EXPANSIONS,
    **logarithm.EXPANSIONS,
    **trigonometric.EXPANSIONS,
    **inverse_trigonometric.EXPANSIONS,
    **error_function.EXPANSIONS,
    **power.EXPANSIONS,
}
