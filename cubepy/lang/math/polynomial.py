"""Polynomial evaluation, in the kernel language."""

from __future__ import annotations

from typing import Any

from cubepy.lang.builtins import fma


def horner(x: Any, coefficients: Any) -> Any:
    """The polynomial with `coefficients` (highest power first, at least two) at x."""
    acc = fma(x, coefficients[0], coefficients[1])
    for c in coefficients[2:]:
        acc = fma(acc, x, c)
    return acc
