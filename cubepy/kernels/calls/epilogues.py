"""What functions of the user make of lines: lines again, also where they give one number."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.frontend.promote import promote_literal

NUMBERS = (bool, int, float)


def applied(function: Any, v: Any, rest: Any) -> Any:
    """What a function makes of a line, and the rest of its arguments: a line of as many lanes.

    A number that it gives instead is that of all lanes; a literal takes the dtype of the line.
    """
    return as_line(function(v, *rest), v.dtype, v.line_size)


def as_line(found: Any, dtype: Any, width: Any) -> Any:
    """A line, or the line of a number."""
    kind = promote_literal(found, dtype) if isinstance(found, NUMBERS) else found.dtype
    return cp.Line[kind, width](found)


# Epilogues


def takes_elements(function: Any) -> bool:
    """Whether an epilogue f(v, index, ...) is called for one element at a time: it reads its index,
    which is that of one element, and neither it nor what it calls asks how many its line has."""
    plain = _undecorated(function)
    if not isinstance(plain, FunctionType) or plain.__code__.co_argcount < 2:
        return False
    code = plain.__code__
    return code.co_varnames[1] in _loaded(code) and not _asks_for_width(plain, set())


def _undecorated(function: Any) -> Any:
    return getattr(function, "function", function)


def _asks_for_width(function: FunctionType, seen: set[CodeType]) -> bool:
    if function.__code__ in seen:
        return False
    seen.add(function.__code__)
    names = _names(function.__code__)
    if "line_size" in names:
        return True
    held = [getattr(cell, "cell_contents", None) for cell in function.__closure__ or ()]
    called = map(_undecorated, [*held, *map(function.__globals__.get, names)])
    return any(isinstance(f, FunctionType) and _asks_for_width(f, seen) for f in called)


def _names(code: CodeType) -> set[str]:
    return {*code.co_names, *(n for inner in _inner(code) for n in _names(inner))}


def _loaded(code: CodeType) -> set[str]:
    """The locals that code reads, also from inside lambdas."""
    found: set[str] = set(code.co_cellvars)
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_FAST"):
            found |= set(step.argval) if isinstance(step.argval, tuple) else {step.argval}
    return found


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (c for c in code.co_consts if isinstance(c, CodeType))


def with_bounds(
    function: Callable[..., Any] | None, extras: tuple[Memory, ...], extents: tuple[int, ...]
) -> tuple[Memory, ...]:
    """The arrays of an epilogue; behind them, where it is called for one element at a time, one
    that has the extents of the result and is never read: lines may have lanes beyond these."""
    if not extras or not takes_elements(function):
        return extras
    return (*extras, replace(extras[0], shape=extents, strides=(0,) * len(extents)))


def applied_along(function: Any, v: Any, index: Any, axis: Any, extras: Any) -> Any:
    """What an epilogue makes of a line of results from `index` on, along an axis of it."""
    return applied_at(function, v, lambda k: moved(index, axis, k), extras)


def moved(index: Any, axis: Any, k: Any) -> Any:
    """The index `k` further along an axis."""
    return tuple(index[a] + k if a == axis else index[a] for a in range(len(index)))


def applied_at(function: Any, v: Any, at: Any, extras: Any) -> Any:
    """What an epilogue makes of a line of results whose lane k has the index `at(k)`; `extras` as
    `with_bounds` gives them."""
    if not takes_elements(function):
        return applied(function, v, (at(0), *extras))
    arrays, bounds = (extras[:-1], extras[-1].shape) if len(extras) else ((), ())
    if v.line_size == 1:
        return as_line(function(v[0], at(0), *arrays), v.dtype, 1)
    dtype = as_line(function(v[0], nearest(at(0), bounds), *arrays), v.dtype, 1).dtype
    held, found = cp.local(v.line_size, v.dtype), cp.local(v.line_size, dtype, fill=0)
    cp.store(held, 0, v)
    for k in range(v.line_size):
        index = at(k)
        if is_within(index, bounds):
            found[k] = as_line(function(held[k], index, *arrays), v.dtype, 1)[0]
    return cp.load(found, 0, line=v.line_size)


def nearest(index: Any, bounds: Any) -> Any:
    """The index of an element that exists."""
    if not len(bounds):
        return index
    return tuple(min(index[k], bounds[k] - 1) for k in range(len(bounds)))


def is_within(index: Any, bounds: Any) -> Any:
    """Whether the element exists; where there are no arrays to read, it does not matter."""
    found = True
    for k in cp.unroll(range(len(bounds))):
        found = found and index[k] < bounds[k]
    return found
