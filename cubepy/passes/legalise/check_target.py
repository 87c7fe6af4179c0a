"""What a target has not: types, operations of other hardware, clusters. Errors name the target."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cubepy.errors import Error, fail
from cubepy.ir.core import Kernel, Op
from cubepy.ir.types import Buffer, DType, element_of
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.span import Span, in_user_code, line_text
from cubepy.targets import LAUNCH_ATTRIBUTES


def check_target(kernel: Kernel, target: Capabilities) -> None:
    """`UnsupportedError` E310 for what the target has not."""
    refuse_foreign(kernel, target.kind, target.target)
    for param in kernel.params:
        dtype = element_of(param.value.type)
        if dtype not in target.scalars:
            what = f"`{param.argument}`, an argument of type {dtype.name},"
            raise _refused_type(dtype, target, None, what)
    _check_buffers(kernel, target)
    fine: set[int] = set()  # by identity: hashes of types take longer than all else here
    for op in kernel.body.walk():
        reason = target.refused.get(op.row)
        if reason is not None:
            raise refusal(op, target.target, reason)
        for value in (*op.operands, *op.results):
            if id(value.type) in fine:
                continue
            dtype = element_of(value.type)
            if dtype not in target.scalars:
                what = f"`{_written(op)}` of type {dtype.name}"
                raise _refused_type(dtype, target, op.span, what)
            fine.add(id(value.type))
    for name, reason in target.refused_attributes.items():
        if name in dict(kernel.attributes):
            span = kernel.body.terminator.span
            raise _refused(LAUNCH_ATTRIBUTES[name].what, span, target.target, reason)


def _check_buffers(kernel: Kernel, target: Capabilities) -> None:
    arrays = sum(isinstance(param.value.type, Buffer) for param in kernel.params)
    count = arrays + (arrays < len(kernel.params))
    if target.most_buffers and count > target.most_buffers:
        end = kernel.body.terminator.span
        reason = f"it takes {target.most_buffers} with the structure of numbers"
        raise _refused(f"a kernel of {arrays} arrays", end, target.target, reason)


def refuse_foreign(kernel: Kernel, kind: str, target: str) -> None:
    """`UnsupportedError` E310 for what another kind of target alone has."""
    for kinds, what, span in _hardware(kernel):
        if kind not in kinds:
            reason = f"it is of the hardware of {' and '.join(kinds)} targets"
            raise _refused(what, span, target, reason)


def _hardware(kernel: Kernel) -> Iterator[tuple[tuple[str, ...], str, Span | None]]:
    """The kinds of targets that have what a kernel uses of hardware, its name, and where it is."""
    for op in kernel.body.walk():
        if op.row.kind:
            yield (op.row.kind,), f"`{_written(op)}`", op.span
    end = kernel.body.terminator.span
    for param in kernel.params:
        if param.kind.hardware:
            what = f"`{param.argument}`, a {param.kind.word.replace('_', ' ')},"
            yield (param.kind.hardware,), what, end
    for name, _ in kernel.attributes:
        attribute = LAUNCH_ATTRIBUTES[name]
        if not attribute.is_hint:
            yield attribute.kinds, attribute.what, end


def refusal(op: Op, target: str, reason: str, suggestion: str = "") -> Error:
    """`UnsupportedError` E310 for an operation."""
    return _refused(f"`{_written(op)}`", op.span, target, reason, suggestion)


def _written(op: Op) -> str:
    """The function that the user called, where the place of the operation is a call."""
    if op.span is None:
        return op.row.name
    span = in_user_code(op.span)
    text = line_text(span).encode()[span.column : span.end_column].decode(errors="ignore")
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):  # it goes on in other lines, or is a statement
        return op.row.name
    return ast.unparse(node.func) if isinstance(node, ast.Call) else op.row.name


def _refused(what: str, span: Span | None, target: str, reason: str, suggestion: str = "") -> Error:
    return fail("E310", span, op=what, target=target, reason=reason, suggestion=suggestion)


def _refused_type(dtype: DType, target: Capabilities, span: Span | None, what: str) -> Error:
    reason = target.reasons.get(dtype, "it has no such type")
    return _refused(what, span, target.target, reason, "use f32" if dtype.is_float else "")
