"""What functions of the user make of lines: lines again, also where they give one number."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import reduce
from types import FunctionType
from typing import Any

import cubepy as cp
from cubepy.cache.names import Names, names_of
from cubepy.errors import Error
from cubepy.frontend.promote import promote_literal
from cubepy.lang.function import Captures, read_source
from cubepy.lang.hooks import is_literal, is_no_number, plain_of, refuse_result


def applied(function: Any, v: Any, rest: Any) -> Any:
    """What a function makes of a line, and the rest of its arguments: a line of as many lanes.

    A number that it gives instead is that of all lanes; a literal takes the dtype of the line.
    """
    return as_line(function, function(v, *rest), v.dtype, v.line_size)


def as_line(function: Any, found: Any, dtype: Any, width: Any) -> Any:
    """What a function gave: a line, or the line of a number; E123 for anything else."""
    if is_no_number(found):
        refuse_result(function, found)
    kind = promote_literal(found, dtype) if is_literal(found) else found.dtype
    return cp.Line[kind, width](found)


# Epilogues


def takes_elements(function: Any) -> bool:
    """Whether an epilogue f(v, index, ...) is called for one element at a time: it reads its index,
    which is that of one element, and neither it nor what it calls asks how many its line has, or
    there are no lines whose elements have neighbouring indices."""
    plain, given = plain_of(function)
    if plain is None:
        return False
    if isinstance(function, FunctionType) and vars(function).get("by_element"):
        return True
    return _reads_index(plain, given) and not _asks_for_width(plain, set())


def may_read_index(function: Any) -> bool:
    """Whether what an epilogue f(v, index, ...) makes may depend on where the result lies."""
    plain, given = plain_of(function)
    return plain is None or _reads_index(plain, given)


def _reads_index(function: FunctionType, given: int) -> bool:
    """Whether the body of a function reads its second parameter behind those that are given."""
    node = read_source(function.__code__).node
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][given:]
    rest = node.args.vararg
    name = names[1] if names[1:] else rest.arg if rest else None
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    read = (n for part in body for n in ast.walk(part) if isinstance(n, ast.Name))
    return any(n.id == name and isinstance(n.ctx, ast.Load) for n in read)


def _asks_for_width(function: FunctionType, seen: set[FunctionType]) -> bool:
    if function in seen or hasattr(function, "__cubepy_builtin__"):
        return False
    seen.add(function)
    try:
        names = names_of(read_source(function.__code__), function.__code__)
    except Error:  # no source: Python alone can run it
        return False
    if "line_size" in names.attributes:
        return True
    called = [plain_of(value)[0] for value in _named(function, names)]
    return any(f is not None and _asks_for_width(f, seen) for f in called)


def _named(function: FunctionType, names: Names) -> Iterator[Any]:
    """What the names of a function from outside stand for, and the attributes behind them."""
    captures = Captures(function)
    for name, chains in names.free.items():
        try:
            value = captures.lookup(name)
        except KeyError:  # never assigned
            continue
        for chain in chains:
            yield reduce(lambda owner, part: getattr(owner, part, None), chain, value)


def placed(function: Callable[..., Any] | None, axes: tuple[int, ...], rank: int) -> Any:
    """An epilogue of results whose axes are those of a view of `rank` axes; it is given their index
    alone."""
    if function is None or axes == tuple(range(rank)):
        return function

    def finish(v: Any, index: Any, *rest: Any) -> Any:
        return function(v, tuple([index[a] for a in axes]), *rest)

    finish.__dict__["placed"] = function
    return finish


IMAGE_AXES = 5
"""Axes of images as the kernels see them: [n, channel, depth, row, column]."""


def places_of_images(rank: int, axes: int, channels_last: bool) -> tuple[int, ...]:
    """Where the axes of a result with so many axes of space lie in [n, channel, depth, row,
    column]."""
    space = tuple(range(IMAGE_AXES - axes, IMAGE_AXES))
    return ((0,) if rank > axes + 1 else ()) + ((*space, 1) if channels_last else (1, *space))


def with_bounds(
    function: Callable[..., Any] | None, extras: tuple[Any, ...], extents: tuple[int, ...]
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
        return as_line(function, function(v[0], at(0), *arrays), v.dtype, 1)
    first = as_line(function, function(v[0], nearest(at(0), bounds), *arrays), v.dtype, 1)
    held, found = cp.local(line, v.dtype), cp.local(line, first.dtype, fill=0)
    cp.store(held, 0, v)
    found[0] = first[0]
    for k in range(1, line):
        index = at(k)
        if is_within(index, bounds):
            found[k] = as_line(function, function(held[k], index, *arrays), v.dtype, 1)[0]
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
