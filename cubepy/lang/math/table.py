"""Where the expansion of each function is. Modules are loaded when kernels need one of theirs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

HOMES = {
    "error_function": ("erf", "erfc"),
    "exponential": ("cosh", "exp", "exp10", "exp2", "expm1", "sigmoid", "sinh", "tanh"),
    "inverse_trigonometric": ("acos", "asin", "atan", "atan2"),
    "logarithm": ("acosh", "asinh", "atanh", "log", "log10", "log1p", "log2"),
    "power": ("cbrt", "hypot", "pow", "rsqrt"),
    "trigonometric": ("cos", "sin", "tan"),
}
"""The functions of each module; expansions in f64 are in a module of their own."""
_HOME = {name: home for home, names in HOMES.items() for name in names}


def expansion(name: str, element: str) -> Callable[..., Any] | None:
    """The expansion of a function for a type; None where that has none of its own."""
    home = f"{_HOME[name]}_f64" if element == "f64" else _HOME[name]
    return import_module(f"cubepy.lang.math.{home}").EXPANSIONS.get((name, element))
