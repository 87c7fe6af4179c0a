"""What comes with CubePy, NumPy and Python: known by its name and version, and mostly pure.

A function from here means the same in each process with the same versions. Versions say
nothing of state from outside, such as files, clocks and random numbers: what reads it is not known.
"""

from __future__ import annotations

import builtins
import sys
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from cubepy.lang.objects import is_made_without_module, lies_with_python

_VERSIONED = ("cubepy", "numpy", "ml_dtypes")
"""Packages whose versions are part of every key."""
_PURE = {
    *("_functools", "_operator", "abc", "bisect", "builtins", "cmath", "collections", "cubepy"),
    *("dataclasses", "enum", "fractions", "functools", "itertools", "math", "ml_dtypes", "numbers"),
    *("numpy", "operator", "string", "types", "typing"),
}
"""Packages whose functions depend on their arguments alone, but for what follows."""
_IMPURE = {
    "abc": {"get_cache_token"},
    "typing": {"get_type_hints"},
    "builtins": {
        *("__import__", "breakpoint", "compile", "delattr", "dir", "eval", "exec", "getattr"),
        *("globals", "hasattr", "hash", "help", "id", "input", "locals", "memoryview", "open"),
        *("setattr", "super", "vars"),
    },
    "numpy": {
        *("ctypeslib", "empty", "empty_like", "fromfile", "fromregex", "genfromtxt", "geterr"),
        *("get_printoptions", "load", "loadtxt", "memmap", "random", "save", "savetxt", "savez"),
        *("set_printoptions", "seterr"),
    },
}
_WORDS_OF_CUBEPY = ("cubepy.lang", "cubepy.ir", "cubepy.kernels", "cubepy.span")


@lru_cache(maxsize=1024)
def is_library(module: str) -> bool:
    """Whether a module lies where CubePy, NumPy or Python were installed; names are not
    enough: a user's `test.py` has the name of a module of Python."""
    top = module.partition(".")[0]
    if top not in _VERSIONED and top not in sys.stdlib_module_names:
        return False
    found = sys.modules.get(module)
    if found is None:
        return False
    file = getattr(found, "__file__", None)
    if file is None:
        return top in sys.builtin_module_names or getattr(found, "__spec__", None) is not None
    if top in _VERSIONED:
        package = getattr(sys.modules.get(top), "__file__", None)
        return package is not None and Path(file).is_relative_to(Path(package).parent)
    return lies_with_python(file)


def is_library_function(function: FunctionType) -> bool:
    """Whether a function of Python comes from a library. The module that it names is not enough:
    `functools.wraps` gives a user's function that of what it wraps."""
    return is_library(function.__module__ or "") and _is_library_file(function.__code__.co_filename)


@lru_cache(maxsize=1024)
def _is_library_file(file: str) -> bool:
    if file.startswith("<frozen "):
        return True
    path = Path(file)
    packages = [getattr(sys.modules.get(name), "__file__", None) for name in _VERSIONED]
    if any(package and path.is_relative_to(Path(package).parent) for package in packages):
        return True
    return lies_with_python(file)


def is_library_class(cls: type) -> bool:
    """Whether a class comes from a library."""
    return is_library(cls.__module__) and not is_made_without_module(cls)


def is_pure(value: Any) -> bool:
    """Whether a function, class or module of a library depends on nothing from outside."""
    module = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
    name = getattr(value, "__name__", "")
    top = module.partition(".")[0]
    if top == "cubepy":
        return _is_word(value, module)
    if type(value).__name__ == "ufunc":  # others than NumPy's may run a user's function
        return getattr(sys.modules["numpy"], name, None) is value
    if top not in _PURE or name in _IMPURE.get(top, ()):
        return False
    return top != "numpy" or not (_IMPURE["numpy"] & set(module.split(".")))


def _module_of(value: Any) -> str:
    module = getattr(value, "__module__", None)
    if module is None and type(value).__module__ == "numpy":  # ufuncs
        return "numpy"
    return module if isinstance(module, str) else type(value).__module__


def _is_word(value: Any, module: str) -> bool:
    """Whether something of CubePy is of its language; devices and settings are not."""
    if isinstance(value, ModuleType):
        return module == "cubepy" or module.startswith(_WORDS_OF_CUBEPY)
    return hasattr(value, "__cubepy_builtin__") or module.startswith(_WORDS_OF_CUBEPY)


def is_python_builtin(name: str, value: Any) -> bool:
    """Whether a name means what Python itself gives it."""
    return getattr(builtins, name, builtins) is value
