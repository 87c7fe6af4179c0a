"""Annotations that name what is defined later, which Python evaluates when somebody asks.

Under `from __future__ import annotations` they are text. Python 3.14 keeps a function that makes
them, and raises where a name is not there yet: then they are read as text, too.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any


def annotations_of(owner: Any) -> dict[str, Any]:
    """The annotations of a function or of a class itself: objects, or text."""
    try:
        return inspect.get_annotations(owner)
    except NameError:
        read: Any = inspect.get_annotations
        return read(owner, format=_as_text())


def signature_of(function: Any, follow_wrapped: bool = True) -> inspect.Signature:
    """As `inspect.signature`."""
    read: Any = inspect.signature
    try:
        return read(function, follow_wrapped=follow_wrapped)
    except NameError:
        return read(function, follow_wrapped=follow_wrapped, annotation_format=_as_text())


def _as_text() -> Any:
    return import_module("annotationlib").Format.STRING  # of Python 3.14


def names_around(function: Any) -> dict[str, Any]:
    """What the functions and the class around a function hold that it or its annotations name."""
    found: dict[str, Any] = {}
    for each in (getattr(function, "__annotate__", None), function):
        for name, cell in zip(_free(each), getattr(each, "__closure__", None) or (), strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    return {**found.pop("__classdict__", {}), **found}


def _free(function: Any) -> tuple[str, ...]:
    return function.__code__.co_freevars if hasattr(function, "__code__") else ()
