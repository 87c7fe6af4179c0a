"""Functions that call others, `map`, `filter` and `functools.reduce`, and operators that are passed
to these, those of the module `operator`."""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from collections.abc import Callable
from typing import Any

from cubepy.frontend.attributes import node_here
from cubepy.frontend.calls import call
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.iterables import is_lazy, mapped
from cubepy.frontend.overloads import apply_binary, apply_comparison, apply_unary, deciding
from cubepy.frontend.sequences import items_of_call, iterable_of_call
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import is_comptime


@intrinsic(builtins.map)
def _map(frame: Frame, function: Any, sequence: Any, /, *more: Any) -> Any:
    """All results, as a tuple; where a sequence has its items at run time, one by one."""
    sequences = sequence, *more
    if any(is_lazy(s) for s in sequences):
        return mapped(function, *[iterable_of_call(frame, s, "map") for s in sequences])
    rows = zip(*[items_of_call(frame, s, "map") for s in sequences], strict=False)
    return tuple([call(frame, node_here(frame), function, list(row), {}) for row in rows])


@intrinsic(builtins.filter)
def _filter(frame: Frame, function: Any, sequence: Any) -> tuple[Any, ...]:
    """The items for which the function is true at comptime, as a tuple."""
    found: list[Any] = []
    for item in items_of_call(frame, sequence, "filter"):
        node = node_here(frame)
        test = item if function is None else call(frame, node, function, [item], {})
        test = deciding(frame, node, test)
        if not is_comptime(test):
            hint = "loop over the items, and test them with `if`"
            raise frame.tracer.error("E112", what="the condition of filter()", hint=hint)
        found += [item] if test else []
    return tuple(found)


@intrinsic(functools.reduce)
def _reduce(frame: Frame, function: Any, sequence: Any, *initial: Any) -> Any:
    items = [*initial, *items_of_call(frame, sequence, "reduce")]
    if not items or initial[1:]:
        expected = "a sequence with items, or one initial value"
        raise frame.tracer.error("E207", what="reduce()", expected=expected, given="none")
    return functools.reduce(lambda a, b: call(frame, node_here(frame), function, [a, b], {}), items)


_operator: Any = operator  # type checkers have no types for some of its functions
_BINARY: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "truediv": ast.Div,
    "floordiv": ast.FloorDiv,
    "mod": ast.Mod,
    "pow": ast.Pow,
    "lshift": ast.LShift,
    "rshift": ast.RShift,
    "and_": ast.BitAnd,
    "or_": ast.BitOr,
    "xor": ast.BitXor,
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq,
    "ne": ast.NotEq,
    "lt": ast.Lt,
    "le": ast.LtE,
    "gt": ast.Gt,
    "ge": ast.GtE,
    "is_": ast.Is,
    "is_not": ast.IsNot,
}
_UNARY: dict[str, type[ast.unaryop]] = {
    "neg": ast.USub,
    "pos": ast.UAdd,
    "invert": ast.Invert,
}


def _of_two(apply: Any, kind: Any) -> Callable[..., Any]:
    def handler(frame: Frame, a: Any, b: Any, /) -> Any:
        return apply(frame, node_here(frame), kind, a, b)

    return handler


def _of_one(kind: type[ast.unaryop]) -> Callable[..., Any]:
    def handler(frame: Frame, a: Any, /) -> Any:
        return apply_unary(frame, node_here(frame), kind, a)

    return handler


for _kinds, _apply in ((_BINARY, apply_binary), (_COMPARISONS, apply_comparison)):
    for _name, _kind in _kinds.items():
        intrinsic(getattr(_operator, _name))(_of_two(_apply, _kind))
for _name, _one in _UNARY.items():
    intrinsic(getattr(_operator, _name))(_of_one(_one))
