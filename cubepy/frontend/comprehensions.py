"""Comprehensions and generator expressions: over comptime sequences, traced item by item."""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any

from cubepy.frontend import suggest
from cubepy.frontend.assigned import Assigned
from cubepy.frontend.dispatch import evaluate, expression
from cubepy.frontend.expressions import condition, short_circuit
from cubepy.frontend.overloads import deciding
from cubepy.frontend.tracer import Frame
from cubepy.frontend.unpacking import MAX_UNROLLED, items_of, paired, too_many
from cubepy.frontend.values import UNSET, Unroll, is_comptime
from cubepy.frontend.walrus import all_targets


@expression(ast.ListComp, ast.GeneratorExp)
def _comprehension(frame: Frame, node: ast.ListComp | ast.GeneratorExp) -> tuple[Any, ...]:
    """Over comptime sequences only; gives a tuple."""
    return tuple(items_one_by_one(frame, node))


def items_one_by_one(
    frame: Frame, node: ast.ListComp | ast.GeneratorExp, first: Any = UNSET
) -> Iterator[Any]:
    """The items of a comprehension, each computed when it is asked for; E120 if they are too many.
    `first`: what its first `for` runs over, where that has been evaluated.

    Until then the names of the comprehension's own are hidden.
    """
    try:
        for count, item in enumerate(_items_of(frame, node, first)):
            if count == MAX_UNROLLED:
                raise too_many(frame)
            yield item
    except AtRunTime as found:
        frame.tracer.b.span = frame.span(found.node)
        raise frame.tracer.error("E112", what=found.what, hint=found.hint) from None


class AtRunTime(Exception):
    """What decides which items a comprehension has is known at run time only."""

    def __init__(self, node: ast.expr, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.node, self.what, self.hint = node, what, hint


def is_loop(frame: Frame, node: ast.GeneratorExp, first: Any, long: int, is_computed: bool) -> bool:
    """Whether a fold of a generator expression becomes a loop: where what decides on its items is
    known at run time only, or where it has more than `long` items of a range, and `is_computed`, so
    that what is made of them is of run time, or the first one is.

    Looks at the items in a region that is thrown away.
    """
    counted = ast.copy_location(ast.GeneratorExp(ast.Constant(None), node.generators), node)
    before, frame.depth = frame.env, frame.depth + 1
    try:
        with frame.tracer.b.region():
            count = len(list(islice(_items_of(frame, counted, first), long + 1)))
            if count <= long or not isinstance(first, range):
                return False
            return is_computed or not is_comptime(next(_items_of(frame, node, first)))
    except AtRunTime:
        return True
    finally:
        frame.env, frame.depth = before, frame.depth - 1


def _items_of(frame: Frame, node: ast.ListComp | ast.GeneratorExp, first: Any) -> Iterator[Any]:
    scope, targets = _scope_within(frame), all_targets(node)
    items = _generate(frame, node, 0, first)
    while True:
        before, outer, unrolled = frame.env, frame.scope, frame.unrolled
        frame.env, frame.scope = before | scope.env, scope
        try:
            item = next(items, _NO_MORE)
        finally:
            kept = {n: frame.env[n] for n in targets if n in frame.env}
            frame.env, frame.scope, frame.unrolled = before | kept, outer, unrolled
        if item is _NO_MORE:
            return
        yield item


_NO_MORE = object()


def any_or_all(frame: Frame, node: ast.GeneratorExp, first: Any, is_all: bool) -> Any:
    """`any` or `all` of a generator expression: no item is computed behind one that decides."""
    items = (deciding(frame, node, item) for item in items_one_by_one(frame, node, first))
    result = next((x for x in items if not is_comptime(x) or bool(x) is not is_all), is_all)
    if is_comptime(result):
        return bool(result)
    found = [result]
    while found:
        found = []
        result = short_circuit(frame, result, partial(_next_of, items, found, is_all), is_all)
    return result


def _next_of(items: Iterator[Any], found: list[Any], otherwise: bool) -> Any:
    """The next item, which is added to `found`, or `otherwise`."""
    found += islice(items, 1)
    return found[0] if found else otherwise


def _scope_within(frame: Frame) -> Frame:
    """The scope of a comprehension's own names, which functions made in it see for ever."""
    scope = Frame(frame.tracer, frame.source, frame.captures, frame.path, frame.caller, frame.scope)
    scope.assigned = Assigned(*[frozenset[str]()] * 4)
    return scope


def _generate(
    frame: Frame, node: ast.ListComp | ast.GeneratorExp, level: int, first: Any = UNSET
) -> Generator[Any]:
    if level == len(node.generators):
        yield evaluate(frame, node.elt)
        return
    generator = node.generators[level]
    given = evaluate(frame, generator.iter) if first is UNSET else first
    sequence = given.items if isinstance(given, Unroll) else items_of(given)
    if sequence is None:
        where = (
            "write it where"
            if isinstance(node, ast.GeneratorExp)
            else "leave the brackets out where"
        )
        hint = f"{where} `sum`, `min`, `max`, `any` or `all` takes it, or write a `for` loop"
        raise AtRunTime(generator.iter, "what a comprehension runs over", hint)
    outer = frame.unrolled
    for position, item in enumerate(sequence):
        _bind_item(frame, generator.target, item)
        frame.unrolled = (*outer, position)
        conditions = [condition(frame, c) for c in generator.ifs]
        if not all(is_comptime(c) for c in conditions):
            raise AtRunTime(generator.iter, "the condition of a comprehension")
        if all(conditions):
            yield from _generate(frame, node, level + 1)


def _bind_item(frame: Frame, target: ast.expr, item: Any) -> None:
    if isinstance(target, ast.Name):
        frame.env[target.id] = frame.scope.env[target.id] = item
        return
    if not isinstance(target, ast.Tuple | ast.List):
        raise suggest.unsupported(frame, target)
    for part, value in paired(frame, target, item):
        _bind_item(frame, part, value)
