"""Assignments: to names, to several targets, to items of tensors."""

from __future__ import annotations

import ast
from typing import Any

from cubepy.errors import Error
from cubepy.frontend.calls import narrow
from cubepy.frontend.dispatch import evaluate, statement
from cubepy.frontend.overloads import apply_augmented, apply_method
from cubepy.frontend.tensors import load_item, store_item
from cubepy.frontend.tracer import Frame, bind
from cubepy.frontend.unpacking import paired
from cubepy.frontend.values import FlatRef, Table, TensorRef, is_sequence
from cubepy.frontend.wording import describe
from cubepy.ir.core import Value
from cubepy.ir.types import DType, Line
from cubepy.lang.arrays import is_numpy


@statement(ast.Assign)
def assign(frame: Frame, node: ast.Assign) -> None:
    """`a = b = value`."""
    value = evaluate(frame, node.value)
    for target in node.targets:
        assign_target(frame, target, value)


def assign_target(frame: Frame, target: ast.expr, value: Any) -> None:
    """`name = value`, `a, b = value`, `x[i] = value`."""
    frame.tracer.b.span = frame.span(target)
    if isinstance(target, ast.Name):
        bind(frame, target.id, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part, item in paired(frame, target, value):
            assign_target(frame, part, item)
    elif isinstance(target, ast.Subscript):
        _store(frame, target, value)
    else:
        raise _fixed_attribute(frame, target)


def _fixed_attribute(frame: Frame, target: ast.expr) -> Error:
    """E302 for an attribute."""
    frame.tracer.b.span = frame.span(target)
    return frame.tracer.error(
        "E302",
        what=f"`{ast.unparse(target)}`",
        suggestion="attributes are fixed in a kernel; use a local name",
    )


def _store(frame: Frame, target: ast.Subscript, value: Any) -> None:
    owner, item = evaluate(frame, target.value), evaluate(frame, target.slice)
    frame.tracer.b.span = frame.span(target)
    _store_item(frame, target, owner, item, value)


def _store_item(frame: Frame, target: ast.AST, owner: Any, item: Any, value: Any) -> None:
    """Of a tensor, or by `__setitem__` of the user."""
    if isinstance(owner, TensorRef | FlatRef):
        store_item(frame.tracer, owner, item, value)
    elif apply_method(frame, target, owner, "__setitem__", item, value) is NotImplemented:
        raise _unchangeable(frame, owner)


def _unchangeable(frame: Frame, owner: Any) -> Error:
    """E302 for an item of something that is no tensor."""
    suggestion = "only tensors have items that change"
    if is_numpy(owner) or isinstance(owner, Table):
        suggestion = (
            "an array of NumPy's is constant in a kernel: pass it as an argument to write to it, "
            "or keep values in cp.local(n, dtype, fill=0)"
        )
    if is_sequence(owner):
        suggestion = "make a new tuple, or keep the values in cp.local(n, dtype)"
    if isinstance(owner, Value):
        suggestion = "make a new line, as in cp.where(mask, a, b)"
        if not isinstance(owner.type, Line):
            suggestion = "it is a number here; pass an array, or keep values in cp.local(n, dtype)"
    return frame.tracer.error("E302", what=f"an item of {describe(owner)}", suggestion=suggestion)


@statement(ast.AnnAssign)
def assign_annotated(frame: Frame, node: ast.AnnAssign) -> None:
    """`name: cp.f32 = value`, which converts within a kind; other annotations mean nothing."""
    if node.value is None:
        return
    value = evaluate(frame, node.value)
    annotation = evaluate(frame, node.annotation)
    if isinstance(annotation, DType | Line):
        value = narrow(frame, f"`{ast.unparse(node.target)}`", value, annotation)
    assign_target(frame, node.target, value)


@statement(ast.AugAssign)
def assign_augmented(frame: Frame, node: ast.AugAssign) -> None:
    """`a += value`, `x[i] += value`; the index is evaluated once."""
    target = node.target
    if isinstance(target, ast.Subscript):
        _augmented_item(frame, node, target)
        return
    if not isinstance(target, ast.Name):
        raise _fixed_attribute(frame, target)
    old = evaluate(frame, ast.copy_location(ast.Name(target.id, ast.Load()), target))
    value = evaluate(frame, node.value)
    frame.tracer.b.span = frame.span(node)
    bind(frame, target.id, apply_augmented(frame, node, type(node.op), old, value))


def _augmented_item(frame: Frame, node: ast.AugAssign, target: ast.Subscript) -> None:
    owner, item = evaluate(frame, target.value), evaluate(frame, target.slice)
    frame.tracer.b.span = frame.span(target)
    if isinstance(owner, TensorRef | FlatRef):
        old = load_item(frame.tracer, owner, item)
    else:
        old = apply_method(frame, target, owner, "__getitem__", item)
    if old is NotImplemented:
        raise _unchangeable(frame, owner)
    value = evaluate(frame, node.value)
    frame.tracer.b.span = frame.span(node)
    _store_item(frame, target, owner, item, apply_augmented(frame, node, type(node.op), old, value))
