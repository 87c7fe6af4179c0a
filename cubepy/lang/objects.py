"""Objects of the user: what they hold by name, and which modules are no user's."""

from __future__ import annotations

import sys
from functools import cached_property
from types import FunctionType
from typing import Any

_FIXED = ("cubepy", "ml_dtypes", "numpy", "torch")
"""Modules whose attributes are taken not to change, besides those of the standard library."""


def is_fixed(module: str) -> bool:
    """Whether a module is one whose attributes are taken not to change."""
    top = module.partition(".")[0]
    return top in _FIXED or top in sys.stdlib_module_names


def is_generated(function: Any) -> bool:
    """Whether `dataclass` or `NamedTuple` wrote the function, from the fields of its class. Its
    file is that of `python -c` and of what `exec` runs, too; what it was defined in is not."""
    if not isinstance(function, FunctionType) or function.__code__.co_filename != "<string>":
        return False
    module = str(function.__globals__.get("__name__"))
    is_named = function.__code__.co_name == "<lambda>" and module.startswith("namedtuple_")
    return is_named or function.__code__.co_qualname.startswith("__create_fn__.<locals>.")


def held_by(value: Any) -> dict[str, Any]:
    """What an object holds by name, in its dictionary and its slots."""
    held = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                held[name] = getattr(value, name)
    return held


def is_computed(cls: type, name: str) -> bool:
    """Whether what an object holds by a name was computed from the rest, by a `cached_property`."""
    found = next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)
    return isinstance(found, cached_property)
