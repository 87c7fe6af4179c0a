"""What functions of the user make of lines: lines again, also where they give one number."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.frontend.promote import promote_literal
from cubepy.lang.function import BoundFunction, CubeFunction

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
    plain, given = _plain(function)
    if plain is None:
        return False
    code = plain.__code__
    reads = code.co_argcount <= given + 1 or code.co_varnames[given + 1] in _loaded(code)
    return reads and not _asks_for_width(plain, set())


def _plain(function: Any) -> tuple[FunctionType | None, int]:
    """The Python function that is called in the end, None if there is none, and how many of its
    parameters have values before."""
    if isinstance(function, FunctionType):
        return function, 0
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
    found, given = _plain(inner)
    return found, given + more


def _asks_for_width(function: FunctionType, seen: set[CodeType]) -> bool:
    if function.__code__ in seen:
        return False
    seen.add(function.__code__)
    names = _names(function.__code__)
    if "line_size" in names:
        return True
    held = [x for cell in function.__closure__ or () for x in _content(cell)]
    called = [_plain(f)[0] for f in (*held, *map(function.__globals__.get, names))]
    return any(f is not None and _asks_for_width(f, seen) for f in called)


def _content(cell: CellType) -> list[Any]:
    """What a cell holds; it is empty where its name was never assigned."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _names(code: CodeType) -> set[str]:
    return {*code.co_names, *(n for inner in _inner(code) for n in _names(inner))}


def _loaded(code: CodeType) -> set[str]:
    """The locals that code reads, also from inside lambdas."""
    found: set[str] = set(code.co_cellvars)
    for step in dis.get_instructions(code):
        if "LOAD_FAST" in step.opname:  # also those that store another one
            found |= set(step.argval) if isinstance(step.argval, tuple) else {step.argval}
    return found


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (c for c in code.co_consts if isinstance(c, CodeType))


def with_bounds(
    function: Callable[..., Any] | None, extras: tuple[Memory, ...], extents: tuple[int, ...]
) -> tuple[Any, ...]:
    """The arrays of an epilogue; behind them, where it is called for one element at a time, the
    extents of the result: lines may have lanes beyond these."""
    return (*extras, tuple(extents)) if takes_elements(function) else extras


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
    arrays, bounds, line = extras[: len(extras) - 1], extras[len(extras) - 1], v.line_size
    if line == 1:
        return as_line(function(v[0], at(0), *arrays), v.dtype, 1)
    first = as_line(function(v[0], nearest(at(0), bounds), *arrays), v.dtype, 1)
    held, found = cp.local(line, v.dtype), cp.local(line, first.dtype, fill=0)
    cp.store(held, 0, v)
    found[0] = first[0]
    for k in range(1, line):
        index = at(k)
        if is_within(index, bounds):
            found[k] = as_line(function(held[k], index, *arrays), v.dtype, 1)[0]
    return cp.load(found, 0, line=line)


def nearest(index: Any, bounds: Any) -> Any:
    """The index of an element that exists."""
    return tuple(min(index[k], bounds[k] - 1) for k in range(len(bounds)))


def is_within(index: Any, bounds: Any) -> Any:
    """Whether the element exists."""
    found = True
    for k in cp.unroll(range(len(bounds))):
        found = found and index[k] < bounds[k]
    return found
