"""What functions of the user give prebuilt kernels: a number, or E123 at the function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

from cubepy.errors import fail
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.suggest import first_line
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import is_number, typed_scalar
from cubepy.frontend.wording import describe
from cubepy.ir.core import Value
from cubepy.lang.function import read_source
from cubepy.lang.hooks import is_literal, is_no_number, plain_of, refuse_result
from cubepy.span import Span


@intrinsic(is_no_number)
def _is_no_number(frame: Frame, found: Any) -> bool:
    return not (isinstance(found, Value) or is_number(found) or typed_scalar(found) is not None)


@intrinsic(is_literal)
def _is_literal(frame: Frame, found: Any) -> bool:
    return is_number(found)


@intrinsic(refuse_result)
def _refuse_result(frame: Frame, function: Any, found: Any) -> None:
    plain, _ = plain_of(function)
    name = getattr(plain or function, "__name__", type(function).__name__)
    span = frame.tracer.b.span if plain is None else _place(plain)
    hint = "convert the position, as in cp.i64(...)" if isinstance(found, Value) else None
    raise fail("E123", span, name=name, given=describe(found), hint=hint)


def _place(function: FunctionType) -> Span:
    """The last `return` of a function, or its first line where it has none."""
    source = read_source(function.__code__)
    returns = list(_returns(source.body))
    node = returns[-1] if returns else source.node
    span = Span(
        source.file,
        node.lineno,
        node.col_offset + source.column_offset,
        node.end_lineno or node.lineno,
        (node.end_col_offset or node.col_offset) + source.column_offset,
        source.name,
    )
    return first_line(span)


def _returns(body: Sequence[ast.AST]) -> Iterator[ast.Return]:
    """The `return`s of statements, in their order, without those of functions inside."""
    for node in body:
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            yield from _returns(list(ast.iter_child_nodes(node)))
