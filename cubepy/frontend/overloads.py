"""Operators that dataclasses and NamedTuples of the user define: `__add__`, `__rmul__`, `__lt__`.

Their methods are inlined like any other.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from types import FunctionType
from typing import Any

from cubepy.frontend.calls import inline
from cubepy.frontend.operators import all_of, any_of, binary, comparison, inverted, unary
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import (
    Record,
    as_record,
    is_comptime,
    is_generated,
    is_mapping,
    is_sequence,
    type_of,
)
from cubepy.ir.core import Value
from cubepy.ir.types import element_of

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
_COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("__eq__", "__eq__"),
    ast.NotEq: ("__ne__", "__ne__"),
    ast.Lt: ("__lt__", "__gt__"),
    ast.LtE: ("__le__", "__ge__"),
    ast.Gt: ("__gt__", "__lt__"),
    ast.GtE: ("__ge__", "__le__"),
}
"""The method of the left operand, and that of the right one."""


def apply_binary(
    frame: Frame, node: ast.AST, kind: type[ast.operator], left: Any, right: Any
) -> Any:
    """`left <op> right`, by a method of the user where an operand has one."""
    if kind in _BINARY:
        name = _BINARY[kind]
        found = _apply(frame, node, (f"__{name}__", f"__r{name}__"), left, right)
        if found is not NotImplemented:
            return found
    return binary(frame, kind, left, right)


def apply_augmented(
    frame: Frame, node: ast.AST, kind: type[ast.operator], left: Any, right: Any
) -> Any:
    """The value of `left` after `left <op>= right`."""
    function = _method(left, f"__i{_BINARY[kind]}__") if kind in _BINARY else None
    if function is None:
        return apply_binary(frame, node, kind, left, right)
    return inline(frame, node, function, [left, right], {})


def apply_comparison(
    frame: Frame, node: ast.AST, kind: type[ast.cmpop], left: Any, right: Any
) -> Any:
    """`left <op> right`, by a method of the user where an operand has one."""
    if is_comptime(left) and is_comptime(right):
        return comparison(frame, kind, left, right)
    if kind in _COMPARE:
        found = _apply(frame, node, _COMPARE[kind], left, right)
        if found is not NotImplemented:
            return found
        if kind in (ast.Eq, ast.NotEq):
            left, right = _fields(left, right)
        if is_sequence(left) and is_sequence(right):
            return _compare_items(frame, node, kind, tuple(left), tuple(right))
    if kind in (ast.In, ast.NotIn):
        found = _contains(frame, node, right, left)
        if found is not NotImplemented:
            return found if kind is ast.In else inverted(frame, found)
    return comparison(frame, kind, left, right)


def _fields(left: Any, right: Any) -> tuple[Any, Any]:
    """The fields of two records of one class that compares by them; else the operands."""
    a, b = as_record(left), as_record(right)
    if a is None or b is None or a.cls is not b.cls or not is_generated(a.cls.__eq__):
        return left, right
    names = [f.name for f in fields(a.cls) if f.compare]
    return tuple(a.values[n] for n in names), tuple(b.values[n] for n in names)


def _compare_items(
    frame: Frame, node: ast.AST, kind: type[ast.cmpop], a: tuple[Any, ...], b: tuple[Any, ...]
) -> Any:
    """Tuples are equal item by item, and ordered by the first items that differ."""
    pairs = list(zip(a, b, strict=False))
    if kind in (ast.Eq, ast.NotEq):
        items = (apply_comparison(frame, node, ast.Eq, x, y) for x, y in pairs)
        equal = all_of(frame, items) if len(a) == len(b) else False
        return equal if kind is ast.Eq else inverted(frame, equal)
    strictly = ast.Lt if kind in (ast.Lt, ast.LtE) else ast.Gt
    result: Any = comparison(frame, kind, len(a), len(b))
    for x, y in reversed(pairs):
        same = apply_comparison(frame, node, ast.Eq, x, y)
        rest = all_of(frame, [same, result])
        result = any_of(frame, [apply_comparison(frame, node, strictly, x, y), rest])
    return result


def _contains(frame: Frame, node: ast.AST, container: Any, item: Any) -> Any:
    """Whether an item of a tuple, or a key of a mapping, or a number of a range equals `item`."""
    if isinstance(container, range):
        return _in_range(frame, container, item)
    if not is_sequence(container) and not is_mapping(container):
        return NotImplemented
    equal = [apply_comparison(frame, node, ast.Eq, item, x) for x in container]
    return any_of(frame, equal)


def _in_range(frame: Frame, numbers: range, item: Any) -> Any:
    if not numbers:
        return False
    low, high, step = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]), abs(numbers.step)
    tests = [comparison(frame, ast.GtE, item, low), comparison(frame, ast.LtE, item, high)]
    if step > 1 or not (isinstance(item, Value) and element_of(item.type).is_integer):
        rest = binary(frame, ast.Mod, binary(frame, ast.Sub, item, low), step)
        tests.append(comparison(frame, ast.Eq, rest, 0))
    return all_of(frame, tests)


def _apply(frame: Frame, node: ast.AST, names: tuple[str, str], left: Any, right: Any) -> Any:
    if is_comptime(left) and is_comptime(right):
        return NotImplemented
    for owner, other, name in ((left, right, names[0]), (right, left, names[1])):
        function = _method(owner, name)
        if function is not None:
            return inline(frame, node, function, [owner, other], {})
    return NotImplemented


def apply_unary(frame: Frame, node: ast.AST, kind: type[ast.unaryop], a: Any) -> Any:
    """`-a` and the like, by `__neg__` of the user where `a` has one."""
    function = _method(a, "__neg__") if kind is ast.USub and not is_comptime(a) else None
    return unary(frame, kind, a) if function is None else inline(frame, node, function, [a], {})


def _method(owner: Any, name: str) -> FunctionType | None:
    cls = owner.cls if isinstance(owner, Record) else type_of(owner)
    found = getattr(cls, name, None)
    return found if isinstance(found, FunctionType) and not is_generated(found) else None
