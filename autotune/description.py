"""Arguments by what they hold: where descriptions are equal, keys and tests of validity agree."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache, partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cubepy.array.interop import read_memory
from cubepy.lang.containers import is_mapping, is_ordered, listed
from cubepy.lang.objects import held_by

PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))
"""Types whose values are their own description."""
MOST_PARTS = 1000
"""An argument that holds more takes longer to describe than its key takes to be asked."""
MOST_LEVELS = 50
_NAMED: Any = (type, FunctionType, BuiltinFunctionType, ModuleType, Enum)
"""Code and constants, which are what they are, whatever they refer to."""


class Undescribed(Exception):
    """An argument holds what cannot be described, or too much."""


class Description:
    """Describes one argument: containers and objects of Python's classes by what they hold, arrays
    by metadata, other objects by their values or identities. It keeps no array alive."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, Any]] = {}
        """Objects by identity, with numbers: one that comes again is not described again."""
        self._left, self._level = MOST_PARTS, 0

    def of(self, x: Any) -> Any:
        """The description, hashable; `Undescribed` where there is none."""
        kind = type(x)
        if kind is np.ndarray:
            return x.dtype, x.shape, x.strides
        if kind in PLAIN:
            return plain(kind, x)
        if kind is tuple:
            return self._all(kind, x)
        if isinstance(x, _NAMED):
            return _itself(x)
        if id(x) in self._met:
            return kind, self._met[id(x)][0]
        self._met[id(x)] = len(self._met), x
        items = _items(x)
        if items is not None:
            return self._all(kind, (len(items), *items, *_settings(x), *_attributes(x)))
        memory = _memory(x)
        if memory is not None:
            return kind, memory.device, memory.dtype, memory.shape, memory.strides
        return self._object(x)

    def _object(self, x: Any) -> Any:
        kind = type(x)
        hashes = kind.__hash__
        if hashes is not None and kind.__module__.startswith("cubepy."):
            return _itself(x)  # kernels and launchers: what they keep for themselves may change
        attributes = _attributes(x)
        if kind is SimpleNamespace or _is_made_of_attributes(kind):
            return self._all(kind, attributes)
        if hashes is None or (attributes and hashes is object.__hash__):
            raise Undescribed
        if hashes is object.__hash__:
            return _itself(x)
        return kind, _hashed(x), _text(x), self._all(kind, attributes)

    def _all(self, kind: type, parts: Iterable[Any]) -> Any:
        held = list(parts)
        self._left -= len(held)
        if self._left < 0 or self._level == MOST_LEVELS:
            raise Undescribed
        self._level += 1
        found = [self.of(part) for part in held]
        self._level -= 1
        return kind, *found


def _items(x: Any) -> list[Any] | None:
    """What a container holds; None for what is none."""
    if is_mapping(x):
        return [part for item in listed(x.items()) for part in item]
    if is_ordered(x) or isinstance(x, set | frozenset):
        return listed(x)
    if isinstance(x, MethodType):
        return [x.__func__, x.__self__]
    return [x.func, x.args, x.keywords] if isinstance(x, partial) else None


def _attributes(x: Any) -> list[Any]:
    """What an object holds, each part behind its name."""
    return [part for item in listed(held_by(x).items()) for part in item]


def _memory(x: Any) -> Any:
    try:
        return read_memory(x)
    except TypeError:  # an array of a kind that kernels do not take
        raise Undescribed from None


class _Same:
    """A reference that is equal to one of the same object, which it does not keep."""

    __slots__ = ("_key", "_ref")

    def __init__(self, x: Any) -> None:
        self._ref, self._key = weakref.ref(x), id(x)

    def __hash__(self) -> int:
        return self._key

    def __eq__(self, other: object) -> bool:
        found = self._ref()
        return isinstance(other, _Same) and found is not None and found is other._ref()


def _itself(x: Any) -> Any:
    """What is described by its identity."""
    try:
        return _Same(x)
    except TypeError:
        return type(x), _hashed(x)


def plain(kind: type, x: Any) -> Any:
    """A value of a type of `PLAIN`; of zeros with their sign, and one of all NaN."""
    return (kind, repr(x)) if kind is float and (x == 0.0 or x != x) else (kind, x)


def _hashed(x: Any) -> Any:
    try:
        hash(x)
    except TypeError:
        raise Undescribed from None
    return x


def _text(x: Any) -> str:
    """What tells equal values apart, such as `Decimal("1.0")` and `Decimal("1.00")`."""
    try:
        return repr(x)
    except Exception:
        raise Undescribed from None


def _settings(x: Any) -> Iterable[Any]:
    """What containers have beside their items."""
    return getattr(x, "maxlen", None), getattr(x, "default_factory", None)


@lru_cache(maxsize=256)
def _is_made_of_attributes(cls: type) -> bool:
    """Whether objects of a class have attributes and hold nothing else: no class written in C makes
    them, which might hold more."""
    members = [vars(c) for c in cls.__mro__[:-1]]
    made = [found["__new__"] for found in members if "__new__" in found]
    has_attributes = any("__dict__" in found or "__slots__" in found for found in members)
    return has_attributes and all(isinstance(new, staticmethod) for new in made)
