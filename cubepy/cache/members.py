"""What classes and objects hold by name, what of it is the user's, and what Python made."""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
import typing
from abc import ABC, ABCMeta, _get_dump  # type: ignore[attr-defined]
from types import FunctionType, SimpleNamespace
from typing import Any

from cubepy.cache.library import is_library_class
from cubepy.lang import objects

_WRAPPERS = (dataclasses.__file__, reprlib.__file__)
"""Files of functions around those that `dataclass` writes."""
_GETTERS = ("_tuplegetter", "getset_descriptor", "member_descriptor")
"""Types of what reads the field of a NamedTuple and a slot."""
_HELD = {"__match_args__", "__slots__", "_missing_", "_boundary_"}
"""What Python reads of classes without a function naming it; the last two of enumerations."""
_SKIPPED_DUNDERS = {
    *("__doc__", "__module__", "__qualname__", "__annotations__", "__weakref__", "__dict__"),
    *("__annotate__", "__annotate_func__"),  # what makes annotations from Python 3.14 on
}


def is_users(cls: type) -> bool:
    """Whether a class is the user's own, and of no library."""
    return not is_library_class(cls)


def names_of_class(cls: type) -> set[str]:
    """What a class of the user has by name, from classes of the user."""
    return {name for each in cls.__mro__ if is_users(each) for name in vars(each).copy()}


def is_special(name: str, held: Any) -> bool:
    """Whether Python calls a member of a class without a function naming it."""
    if name in _HELD:
        return True
    is_dunder = name.startswith("__") and name.endswith("__") and name not in _SKIPPED_DUNDERS
    return is_dunder and (held is None or callable(held) or hasattr(type(held), "__get__"))


def is_generated(held: Any) -> bool:
    """Whether a member was made by `dataclass` or `NamedTuple`, from the fields of its class."""
    if type(held).__name__ in _GETTERS:
        return True
    held = getattr(held, "__func__", held)
    if not isinstance(held, FunctionType):
        return False
    if held.__code__.co_filename in _WRAPPERS:  # around what `dataclass` made
        held = inspect.getclosurevars(held).nonlocals.get("user_function", held)
    return objects.is_generated(held)


def is_harmless(cls: type) -> bool:
    """Whether a base class of Python adds no state of its own."""
    return cls in (object, SimpleNamespace) or cls.__module__ in ("abc", "enum", "typing")


def names_of_protocol(cls: type) -> list[str]:
    """The attributes that `isinstance` asks objects for, sorted; of other classes none."""
    if not getattr(cls, "_is_protocol", False):
        return []
    named = (getattr(c, "__annotations__", {}) for c in cls.__mro__ if is_users(c))
    return sorted(n for n in names_of_class(cls).union(*named) if n[:1] != "_")


def registered_with(cls: type) -> list[type]:
    """The classes that `isinstance` takes for ones of an abstract class by `register`."""
    if not isinstance(cls, ABCMeta) or cls in (ABC, typing.Protocol):
        return []
    found = [reference() for reference in _get_dump(cls)[0]]
    derived = [c for each in cls.__subclasses__() for c in registered_with(each)]
    return [*(c for c in found if c is not None), *derived]


def parts_of_alias(alias: Any) -> tuple[Any, ...]:
    """What an alias of a type is made of, as in `list[T]`."""
    named = (getattr(alias, name, None) for name in ("__supertype__", "__value__"))
    return (typing.get_origin(alias), *typing.get_args(alias), *named)


def defaults_of(field: Any) -> tuple[Any, ...]:
    """The default and the factory of a dataclass's field; a text for each that is missing."""
    found = (field.default, field.default_factory)
    missing = dataclasses.MISSING
    return tuple(f"missing {k}" if v is missing else v for k, v in enumerate(found))
