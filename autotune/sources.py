"""What a tuned function is made of, as a hash: an edited kernel is measured anew, no other one."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from cubepy.cache import closure
from cubepy.cache.closure import Unknown, closure_of
from cubepy.ir.types import DType
from cubepy.lang.function import CubeFunction
from cubepy.lang.objects import is_installed

DEPTH = 16
"""Steps from a launcher to what it names that are followed where it has no closure."""
LARGEST = 1 << 20
"""Bytes of arrays whose elements count."""


def source_of(function: Any) -> str:
    """The hash of a launcher or kernel with all that it calls.

    It is that of the disk cache; a launcher that does more than kernels may (it allocates, or reads
    a file) counts by its code and by what it names: functions, kernels and classes with what they
    name, wherever they are kept, and data. What Python and installed packages have counts by name.
    """
    try:
        return closure_of(function, (), False).key[:32]
    except Unknown:
        digest = hashlib.sha256()
        for text in _Parts().of_function(function, 0):
            digest.update(text)
        return digest.hexdigest()[:32]


class _Parts:
    """What a function is made of, each object once."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def of_function(self, function: Any, depth: int) -> Iterator[bytes]:
        """The code of a Python function, its defaults, and what it names."""
        if self._is_known(function) or depth > DEPTH:
            return
        names = _names(function.__code__)
        yield from _code(function.__code__)
        for value in (function.__defaults__, function.__kwdefaults__):
            yield from self.of_value(value, names, depth)
        for name, value in sorted(_named(function, names).items()):
            yield name.encode()
            yield from self.of_value(value, names, depth + 1)

    def of_value(self, value: Any, names: set[str], depth: int) -> Iterator[bytes]:
        """An object that is reached from code with certain `names`, which may be its attributes."""
        yield type(value).__qualname__.encode()
        if isinstance(value, _PLAIN):
            yield repr(value).encode()
        elif isinstance(value, CubeFunction):
            yield source_of(value.function).encode()
            yield repr((getattr(value, "settings", None), getattr(value, "options", None))).encode()
        elif isinstance(value, ModuleType | type):
            yield from self._of_names(value, names, depth)
        elif isinstance(value, FunctionType):
            if is_installed(value.__module__ or ""):
                yield f"{value.__module__}.{value.__qualname__}".encode()
            else:
                yield from self.of_function(value, depth)
        elif isinstance(value, np.ndarray):
            yield f"{value.dtype} {value.shape}".encode()
            yield value.tobytes() if value.nbytes <= LARGEST and not value.dtype.hasobject else b""
        elif not self._is_known(value) and depth <= DEPTH:
            for part in _inside(value):
                yield from self.of_value(part, names, depth + 1)

    def _of_names(self, owner: Any, names: set[str], depth: int) -> Iterator[bytes]:
        """What a user's module or class has under certain names; a class with its methods."""
        home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        yield f"{home} {owner.__name__}".encode()
        if is_installed(home) or self._is_known(owner) or depth > DEPTH:
            return
        for name, value in sorted(vars(owner).items()):
            is_method = isinstance(owner, type) and callable(value)
            if name in names or is_method:
                yield name.encode()
                yield from self.of_value(value, names, depth + 1)

    def _is_known(self, value: Any) -> bool:
        known = id(value) in self._seen
        self._seen[id(value)] = value  # kept, so that no other gets its number
        return known


_PLAIN = bool | int | float | complex | str | bytes | None | DType | Enum
"""What its text says all about."""


def _inside(value: Any) -> Iterator[Any]:
    """What containers, bound methods, partial functions and a user's objects hold."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from (key, item)
    elif isinstance(value, set | frozenset):
        yield from sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, partial):
        yield from (value.func, *value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset)
    elif isinstance(value, SimpleNamespace):
        yield vars(value)
    elif isinstance(value, BuiltinFunctionType | type(np.add)):
        yield value.__name__
    elif not is_installed(type(value).__module__):
        yield type(value)
        yield from getattr(value, "__dict__", {}).values()


def _names(code: CodeType) -> set[str]:
    """The names in code and in the functions inside it."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def _named(function: Any, names: set[str]) -> dict[str, Any]:
    """Globals and captured values that a function mentions."""
    space = function.__globals__
    found = {name: space[name] for name in names if name in space}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _code(const)
        else:
            yield repr(const).encode()


@lru_cache(maxsize=64)
def source_of_package(name: str) -> str:
    """The hash of the modules in a folder of CubePy, such as "kernels/matmul", and of its
    version: equal wherever the same version is installed."""
    folder = Path(closure.__file__).resolve().parents[1] / name
    digest = hashlib.sha256(str(sys.modules["cubepy"].__version__).encode())
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
