"""Arguments that prebuilt functions have in common: axes, `dim`, `out`, parameters of keys."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Complex, Integral, Real
from operator import index
from typing import Any

from cubepy.errors import Error, fail
from cubepy.frontend.signature import FunctionValue, PartialValue, comptime_type
from cubepy.ir.types import DType
from cubepy.kernels.calls.libraries import refused

LONGEST = 80
"""Characters of a value in a message."""
_PLAIN = frozenset({type(None), bool, int, str, DType, FunctionValue, PartialValue})
"""Classes of parameters that equality and the class identify."""


def wrong(function: str, reason: str, suggestion: str = "") -> Error:
    """E601 for a value or shape that a function cannot use."""
    return fail("E601", function=function, reason=reason, suggestion=suggestion)


def shown(value: Any) -> str:
    """A value as messages name it: an array by its shape, all else by its first characters."""
    shape: Any = None if isinstance(value, type) else getattr(value, "shape", None)
    is_array = isinstance(shape, tuple) and len(shape) > 0
    text = f"an array of shape {tuple(shape)}" if is_array else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def exact(function: str, value: Any) -> Any:
    """A parameter as part of a key, in which 2, 2.0 and True differ, and 0.0 and -0.0; lists are
    like tuples. E602 for what has no hash, and for an index that may change, as an array's does."""
    cls = type(value)
    if cls in _PLAIN:
        return cls, value
    if issubclass(cls, tuple | list):
        return tuple([exact(function, v) for v in value])
    if cls is float:
        return value.hex()
    try:
        hash(value)
        if hasattr(cls, "__index__") and not issubclass(cls, Integral):
            raise TypeError
    except TypeError:
        reason = f"{shown(value)} is no value of any of its parameters"
        raise fail("E602", function=function, reason=reason, suggestion="") from None
    return comptime_type(value), value


def numbers_of(function: str, name: str, axes: int, value: Any, least: int) -> list[int]:
    """A parameter as one integer for each axis; E601, E602."""
    values = value if isinstance(value, Sequence) else (value,)
    try:
        found = [index(v) for v in values]
    except TypeError:
        raise refused(function, name, f"is {shown(value)}; it takes integers", "") from None
    if len(found) == 1:
        found *= axes
    if len(found) != axes or min(found) < least:
        takes = "1 integer," if axes == 1 else f"1 or {axes} integers, each"
        raise wrong(function, f"`{name}` is {shown(value)}; it takes {takes} {least} or more")
    return found


def number_of(function: str, name: str, value: Any) -> int:
    """A parameter as one integer; E602."""
    try:
        return index(value)
    except TypeError:
        raise refused(function, name, f"is {shown(value)}; it takes an integer", "") from None


def float_of(function: str, name: str, value: Any) -> float:
    """A parameter as a float; E602 for what is no number, or beyond all floats."""
    if type(value) is float:
        return value
    try:
        if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
            raise TypeError
        if isinstance(value, Complex) and not isinstance(value, Real):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise refused(function, name, f"is {shown(value)}; it takes a float", "") from None


def pairs_of(function: str, name: str, axes: int, value: Any) -> list[tuple[int, int]]:
    """A parameter as a pair (before, after) for each axis, given as such or as what both are."""
    if not isinstance(value, Sequence) or not any(isinstance(v, Sequence) for v in value):
        return [(n, n) for n in numbers_of(function, name, axes, value, 0)]
    if len(value) != axes or any(not isinstance(v, Sequence) or len(v) != 2 for v in value):
        raise wrong(function, f"`{name}` is {shown(value)}", f"{axes} pairs (before, after)")
    return [(v[0], v[1]) for v in (numbers_of(function, name, 2, pair, 0) for pair in value)]


def axis_or_dim(function: str, axis: Any, dim: Any, default: Any = None) -> Any:
    """`axis`, which torch calls `dim`; E601 where both are given."""
    if dim is None:
        return axis
    if axis is not default:
        raise wrong(function, "both `axis` and `dim` are given", "they mean the same")
    return dim


def normal_axis(function: str, rank: int, axis: Any, name: str = "axis") -> int:
    """An axis counted from 0; E601 for one that is not there, E602 for what is no int."""
    try:
        found = index(axis)
    except TypeError:
        raise refused(function, name, f"is {shown(axis)}; it takes ints", "") from None
    if not -rank <= found < rank:
        raise wrong(function, f"axis {found} is out of bounds for an array of {rank} axes")
    return found % rank


def normal_axes(function: str, rank: int, axis: Any, name: str = "axis") -> tuple[int, ...]:
    """Axes counted from 0, all for None; E601 also for one that is named twice."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    found = tuple(normal_axis(function, rank, a, name) for a in given)
    if len(set(found)) < len(found):
        raise wrong(function, f"`{name}` is {axis!r}, which names an axis twice")
    return found
