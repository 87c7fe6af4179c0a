"""Containers that change in place: captured by a kernel, they are compared by what they hold."""

from __future__ import annotations

from array import array
from collections import ChainMap, UserDict, UserList, UserString, deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

_T = TypeVar("_T")

_MAPPINGS = (dict, MappingProxyType, UserDict, ChainMap)
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_SEQUENCES = (list, deque, UserList, UserString)
_BUFFERS = (bytearray, memoryview, array)
_CHANGING: Any = (*_MAPPINGS, *_VIEWS, *_SEQUENCES, *_BUFFERS, set)
_TRIES = 100
"""How often a container may change while it is listed."""


def may_change_inside(value: object) -> bool:
    """Whether a value is a container that changes in place, also where a frozen object holds it."""
    return isinstance(value, _CHANGING)


def is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a value is a dictionary, or is read like one."""
    return isinstance(value, _MAPPINGS)


def is_ordered(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether a value holds objects in an order, as tuples do; numbers in a buffer are none."""
    return isinstance(value, (tuple, *_VIEWS, *_SEQUENCES))


def listed(values: Iterable[_T]) -> list[_T]:
    """What a container or a view holds, also while another thread changes it.

    `list(items)` makes tuples, and up to Python 3.11 memory may be collected where one is made: a
    callback or a finaliser of that lets other threads run, and iteration ends with RuntimeError.
    """
    for _ in range(_TRIES):
        try:
            return list(values)
        except RecursionError:
            raise
        except RuntimeError:
            continue
    return list(values)


def buffer(value: Any) -> tuple[Any, ...] | None:
    """What a container of plain numbers holds; None for any other value."""
    if not isinstance(value, _BUFFERS):
        return None
    view = memoryview(value)
    return view.format, view.shape, view.tobytes()
