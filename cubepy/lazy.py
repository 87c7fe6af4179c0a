"""`cached_property` and `cached`: found on first use, once for all threads; a property again in the
child of a fork."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """As that of `functools`, whose lock (before Python 3.12) a thread that is lost in a fork keeps
    for ever, and which (since then) gives two threads a value each: a device has one queue."""

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find, self._name, self.__doc__ = find, "", find.__doc__
        self._lock = RLock()
        _all.append(self)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, held: None, owner: type | None = None) -> cached_property[T]: ...
    @overload
    def __get__(self, held: object, owner: type | None = None) -> T: ...
    def __get__(self, held: Any, owner: type | None = None) -> Any:
        """The value; it stands in the object's dictionary from then on."""
        if held is None:
            return self
        with self._lock:
            values = held.__dict__
            if self._name not in values:
                values[self._name] = self._find(held)
            return values[self._name]

    def after_fork(self) -> None:
        """In a child: whoever held the lock may be lost, and finds nothing any more."""
        self._lock = RLock()


class cached(Generic[T]):
    """As `functools.cache`, which gives threads that come together an object each: here they wait
    for the first, and get what that found."""

    def __init__(self, find: Callable[..., T]) -> None:
        functools.update_wrapper(self, find)
        self._find, self._lock = functools.cache(find), RLock()
        _all.append(self)

    def __call__(self, *args: Any) -> T:
        with self._lock:
            return self._find(*args)

    def cache_clear(self) -> None:
        """Forget all results."""
        self._find.cache_clear()

    def after_fork(self) -> None:
        """In a child: whoever held the lock may be lost."""
        self._lock = RLock()


_all: list[cached_property[Any] | cached[Any]] = []


def _after_fork() -> None:
    for made in _all:
        made.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
