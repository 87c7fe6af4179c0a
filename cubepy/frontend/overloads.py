"""Operators that dataclasses and NamedTuples of the user define: `__add__`, `__rmul__`, `__lt__`.

Their methods are inlined like any other.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from cubepy.frontend.calls import inline
from cubepy.frontend.operators import binary, comparison, unary
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import Record, is_comptime, type_of

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


def apply_comparison(
    frame: Frame, node: ast.AST, kind: type[ast.cmpop], left: Any, right: Any
) -> Any:
    """`left <op> right`, by a method of the user where an operand has one."""
    if kind in _COMPARE:
        found = _apply(frame, node, _COMPARE[kind], left, right)
        if found is not NotImplemented:
            return found
    return comparison(frame, kind, left, right)


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
    is_written = isinstance(found, FunctionType) and found.__code__.co_filename != "<string>"
    return found if is_written else None  # what @dataclass generates has no source
