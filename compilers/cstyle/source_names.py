"""The names that the Python source gives to values: `total = a * b` names the product.

Only text is looked at, by position: an operation whose span is the right side of an assignment made
what the name holds.
"""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Value
from cubepy.span import Span

Position = tuple[int, int, int, int]


def names_of(kernel: Kernel) -> dict[Value, str]:
    """Values with the names of the Python locals that they are bound to.

    Where several operations stand for one expression, the last one has its value.
    """
    last: dict[tuple[Span, str], Value] = {}
    for op in kernel.body.walk():
        if op.span is None or len(op.results) != 1 or op.row is ops.CONST:
            continue
        name = _assignments(op.span.file).get(_position(op.span))
        if name is not None:
            last[op.span, name] = op.result
    return {value: name for (_, name), value in last.items()}


def _position(span: Span) -> Position:
    return span.line, span.column, span.end_line, span.end_column


@lru_cache(maxsize=64)
def _assignments(file: str) -> dict[Position, str]:
    """Where the right sides of a file's assignments stand, each with its name."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[Position, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=value):
                _bind(target, value, found)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                _bind(target, value, found)
            case ast.NamedExpr(target=target, value=value):
                _bind(target, value, found)
            case _:
                pass
    return found


def _bind(target: ast.expr, value: ast.expr, found: dict[Position, str]) -> None:
    if isinstance(target, ast.Name):
        end = value.end_lineno or value.lineno, value.end_col_offset or 0
        found[value.lineno, value.col_offset, *end] = target.id
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, item in zip(target.elts, value.elts, strict=False):
            _bind(one, item, found)
