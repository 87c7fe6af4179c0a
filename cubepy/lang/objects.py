"""Objects of the user: what they hold by name, and which modules are no user's."""

from __future__ import annotations

import os
import sys
from functools import cached_property, lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

_FIXED = ("cubepy", "ml_dtypes", "numpy", "torch")
"""Modules whose attributes are taken not to change, besides those of the standard library."""


_INSTALLED = {"site-packages", "dist-packages"}
"""Folders of other packages, which Python's own may hold."""
_ON_HEAP = 1 << 9
"""The flag of types that were made by Python code, `Py_TPFLAGS_HEAPTYPE`."""


def is_fixed(module: str) -> bool:
    """Whether a module is one whose attributes are taken not to change. A name of Python's library
    is not enough: a user's `wave.py` has one."""
    top = module.partition(".")[0]
    if top in _FIXED:
        return True
    if top not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or lies_with_python(file)


@lru_cache(maxsize=1024)
def lies_with_python(file: str) -> bool:
    """Whether a file of code came with Python."""
    path = Path(file)
    return not _INSTALLED & set(path.parts) and path.is_relative_to(Path(os.__file__).parent)


@lru_cache(maxsize=1024)
def is_installed(module: str) -> bool:
    """Whether a module came with Python, CubePy or another package, so that users do not edit it;
    what it has may change all the same."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return is_fixed(module) or lies_with_packages(file)


def lies_with_packages(file: str) -> bool:
    """Whether a file of code came with a package that was installed."""
    return bool(_INSTALLED & set(Path(file).parts))


def is_fixed_function(function: Any) -> bool:
    """Whether a function is of a fixed module. The name of one is not enough: `functools.wraps`
    gives a user's function that of what it wraps."""
    if not is_fixed(getattr(function, "__module__", None) or ""):
        return False
    names = getattr(function, "__globals__", None)
    return names is None or is_fixed(names.get("__name__") or "")


def is_fixed_class(cls: type) -> bool:
    """Whether a class is of a fixed module; code without a module makes classes that name the
    built-in one, and on the heap."""
    return is_fixed(cls.__module__) and not is_made_without_module(cls)


def is_made_without_module(cls: type) -> bool:
    """Whether code made a class that runs in no module."""
    return cls.__module__ == "builtins" and bool(cls.__flags__ & _ON_HEAP)


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
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = _mangled(cls, slot)
            if hasattr(value, name):
                held[name] = getattr(value, name)
    return held


def _mangled(cls: type, name: str) -> str:
    """What Python makes of a name in the body of a class."""
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{cls.__name__.lstrip('_')}{name}" if is_private else name


def is_computed(cls: type, name: str) -> bool:
    """Whether what an object holds by a name was computed from the rest, by a `cached_property`."""
    found = next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)
    return isinstance(found, cached_property)
