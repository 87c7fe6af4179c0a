"""Calls as they are written: the function, its arguments, `*` and `**`."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from cubepy.frontend.calls import call
from cubepy.frontend.comprehensions import any_or_all, is_loop, items_one_by_one
from cubepy.frontend.dispatch import evaluate, expression
from cubepy.frontend.expressions import condition, double_starred, starred
from cubepy.frontend.folds import LONG, generated, is_fold
from cubepy.frontend.tracer import Frame


@expression(ast.Call)
def _call(frame: Frame, node: ast.Call) -> Any:
    function = evaluate(frame, node.func)
    if node.args and isinstance(node.args[0], ast.GeneratorExp) and is_fold(function):
        return _fold(frame, node, function, node.args[0])
    args, kwargs = _arguments(frame, function, node.args, node.keywords)
    frame.tracer.b.span = frame.span(node)
    return call(frame, node, function, args, kwargs)


def _fold(frame: Frame, node: ast.Call, function: Any, items: ast.GeneratorExp) -> Any:
    """A call of `sum` or its like with a generator expression."""
    is_truth = function is builtins.any or function is builtins.all
    items = _lone_generator(function, items) if is_truth else items
    is_lone = len(node.args) == 1 and not node.keywords
    first = evaluate(frame, items.generators[0].iter)
    if is_loop(frame, items, first, LONG, any(k.arg == "key" for k in node.keywords)):
        given: Any = generated(frame, items, first)
    elif is_truth and is_lone:
        return any_or_all(frame, items, first, function is builtins.all)
    else:
        given = tuple(items_one_by_one(frame, items, first))
    args, kwargs = _arguments(frame, function, node.args[1:], node.keywords)
    frame.tracer.b.span = frame.span(node)
    return call(frame, node, function, [given, *args], kwargs)


def _arguments(
    frame: Frame, function: Any, given: list[ast.expr], keywords: list[ast.keyword]
) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    for a in given:
        if function is builtins.bool and isinstance(a, ast.BoolOp):
            args.append(condition(frame, a))  # whose operands need no common type
        elif isinstance(a, ast.Starred):
            args += starred(frame, a)
        else:
            args.append(evaluate(frame, a))
    kwargs: dict[str, Any] = {}
    for k in keywords:
        more = {k.arg: evaluate(frame, k.value)} if k.arg else double_starred(frame, k.value)
        for name in kwargs.keys() & more.keys():
            text = f"TypeError: the keyword argument `{name}` is given twice"
            raise frame.tracer.error("E113", error=text)
        kwargs |= more
    return args, kwargs


def _lone_generator(function: Any, items: ast.GeneratorExp) -> ast.GeneratorExp:
    """A generator expression of `any` or `all` as one with one `for` and no `if`.

    `any(x for a in A for b in B)` means `any(any(x for b in B) for a in A)`, and with a condition
    `any(x for a in A if c)` means `any(c and x for a in A)`, `all` then `all(not c or x ...)`.
    """
    item, generators = items.elt, items.generators
    while True:
        *outer, last = generators
        if last.ifs:
            item = _where(last.ifs, item, function is builtins.all)
            last = ast.comprehension(last.target, last.iter, [], last.is_async)
        inner = ast.copy_location(ast.GeneratorExp(item, [last]), items)
        if not outer:
            return inner
        asked = ast.copy_location(ast.Constant(function), items)
        item, generators = ast.copy_location(ast.Call(asked, [inner], []), items), outer


def _where(conditions: list[ast.expr], item: ast.expr, is_all: bool) -> ast.expr:
    """The truth of an item where all conditions hold; elsewhere that which decides nothing."""
    wanted = _inverted(item) if is_all else item
    found = _inverted(ast.copy_location(ast.BoolOp(ast.And(), [*conditions, wanted]), item))
    return found if is_all else _inverted(found)


def _inverted(item: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), item), item)
