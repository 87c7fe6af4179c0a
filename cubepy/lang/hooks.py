"""Functions that users give prebuilt kernels, and what these ask about the results."""

from __future__ import annotations

import inspect
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from cubepy.lang.function import BoundFunction, CubeFunction


def is_no_number(found: Any) -> bool:
    """Whether what a function gave is neither a number nor a line of them.

    A word of the kernel language that is not public, as the next.
    """
    raise TypeError("is_no_number is called inside kernels")


def is_literal(found: Any) -> bool:
    """Whether a number is Python's, of comptime: it takes the type of what it meets."""
    raise TypeError("is_literal is called inside kernels")


def refuse_result(function: Any, found: Any) -> None:
    """E123 at a function, for what it gave."""
    raise TypeError("refuse_result is called inside kernels")


def plain_of(function: Any) -> tuple[FunctionType | None, int]:
    """The Python function that is called in the end, None if there is none, and how many of its
    parameters have values before."""
    if isinstance(function, FunctionType):
        placed = vars(function).get("placed")
        return (function, 0) if placed is None else plain_of(placed)
    if isinstance(function, CubeFunction):
        return function.function, 0
    if isinstance(function, partial):
        inner, more = function.func, len(function.args)
    elif isinstance(function, MethodType):
        inner, more = function.__func__, 1
    elif isinstance(function, BoundFunction):
        inner, more = function.function, 1
    else:
        inner, more = inspect.getattr_static(type(function), "__call__", None), 1
        if not isinstance(inner, FunctionType | CubeFunction):
            return None, 0
    found, given = plain_of(inner)
    return found, given + more
