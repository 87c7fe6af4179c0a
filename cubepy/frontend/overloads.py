"""Operators that dataclasses and NamedTuples of the user define: `__add__`, `__rmul__`, `__neg__`.

Their methods are inlined like any other. Comparisons stay those of numbers.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from cubepy.frontend.calls import inline
from cubepy.frontend.operators import binary, unary
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


def apply_binary(
    frame: Frame, node: ast.AST, kind: type[ast.operator], left: Any, right: Any
) -> Any:
    """`left <op> right`, by a method of the user where an operand has one."""
    if kind in _BINARY and not (is_comptime(left) and is_comptime(right)):
        name = _BINARY[kind]
        for owner, other, method in ((left, right, f"__{name}__"), (right, left, f"__r{name}__")):
            function = _method(owner, method)
            if function is not None:
                return inline(frame, node, function, [owner, other], {})
    return binary(frame, kind, left, right)


def apply_unary(frame: Frame, node: ast.AST, kind: type[ast.unaryop], a: Any) -> Any:
    """`-a` and the like, by `__neg__` of the user where `a` has one."""
    function = _method(a, "__neg__") if kind is ast.USub and not is_comptime(a) else None
    return unary(frame, kind, a) if function is None else inline(frame, node, function, [a], {})


def _method(owner: Any, name: str) -> FunctionType | None:
    cls = owner.cls if isinstance(owner, Record) else type_of(owner)
    found = getattr(cls, name, None)
    return found if isinstance(found, FunctionType) else None
