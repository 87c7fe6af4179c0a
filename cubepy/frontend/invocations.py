"""Calls as they are written: the function, its arguments, `*` and `**`."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from cubepy.frontend.calls import call
from cubepy.frontend.comprehensions import any_or_all
from cubepy.frontend.dispatch import evaluate, expression
from cubepy.frontend.expressions import double_starred, starred
from cubepy.frontend.tracer import Frame


@expression(ast.Call)
def _call(frame: Frame, node: ast.Call) -> Any:
    function = evaluate(frame, node.func)
    if function is builtins.any or function is builtins.all:
        items = _lone_generator(node)
        if items is not None:
            return any_or_all(frame, items, function is builtins.all)
    args: list[Any] = []
    for a in node.args:
        if isinstance(a, ast.Starred):
            args += starred(frame, a)
        else:
            args.append(evaluate(frame, a))
    kwargs: dict[str, Any] = {}
    for k in node.keywords:
        more = {k.arg: evaluate(frame, k.value)} if k.arg else double_starred(frame, k.value)
        for name in kwargs.keys() & more.keys():
            text = f"TypeError: the keyword argument `{name}` is given twice"
            raise frame.tracer.error("E113", error=text)
        kwargs |= more
    frame.tracer.b.span = frame.span(node)
    return call(frame, node, function, args, kwargs)


def _lone_generator(node: ast.Call) -> ast.GeneratorExp | None:
    """The generator expression with one `for` that is the only argument."""
    if len(node.args) != 1 or node.keywords:
        return None
    items = node.args[0]
    return items if isinstance(items, ast.GeneratorExp) and not items.generators[1:] else None
