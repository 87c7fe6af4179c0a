"""Notes for debuggers which local of the user has which value, where a target keeps names.

The notes are operations without effect on what is computed; other targets get none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cubepy.frontend.values import SLOTS, Record, TensorRef, is_number, is_tuple
from cubepy.ir import ops
from cubepy.ir.core import Attr, Value
from cubepy.span import Span

if TYPE_CHECKING:
    from cubepy.frontend.tracer import Frame


def note_name(frame: Frame, name: str, bound: Any) -> None:
    """Note that the local `name` of the frame is bound to a value or slot; the compiler's own names
    begin with a dot."""
    tracer = frame.tracer
    if "names" not in tracer.target.features or name.startswith("."):
        return
    outer = tracer.b.span
    tracer.b.span = _inside(frame, outer)
    _note(frame, name, tracer.read(bound) if isinstance(bound, SLOTS) else bound)
    tracer.b.span = outer


def _inside(frame: Frame, span: Span | None) -> Span:
    """`span` where it lies in the frame; parameters are bound at the line of the `def`."""
    if span is not None and span.caller == frame.caller and span.function == frame.source.name:
        return span
    return frame.span(frame.source.node)


def _note(frame: Frame, name: str, value: Any) -> None:
    if isinstance(value, Value):
        _emit(frame, name, "number", [value])
    elif isinstance(value, TensorRef):
        index = frame.tracer.index_value
        parts = [index(p) for p in (value.offset, *value.shape, *value.strides)]
        _emit(frame, name, "tensor", [value.buffer, *parts])
    elif isinstance(value, Record):
        numbers = _numbers(frame, tuple(value.values.values()))
        _emit(frame, name, "record", numbers, {"fields": tuple(value.values)})
    elif is_tuple(value):
        _emit(frame, name, "tuple", _numbers(frame, value))
    elif isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        _emit(frame, name, "comptime", [], {"value": _plain(value)})


def _plain(value: str | int | float) -> str | int | float:
    """The number or text itself: subclasses, such as enumerations, have other representations."""
    if isinstance(value, str):
        return value if type(value) is str else str(value)
    if isinstance(value, float):
        return float(value)
    return value if isinstance(value, bool) else int(value)


def _numbers(frame: Frame, items: tuple[Any, ...]) -> list[Value] | None:
    """The items as values; None where some are no numbers."""
    if not items or not all(isinstance(i, Value) or is_number(i) for i in items):
        return None
    return [frame.tracer.value(i) for i in items]


def _emit(
    frame: Frame,
    name: str,
    kind: str,
    operands: list[Value] | None,
    more: dict[str, Attr] | None = None,
) -> None:
    if operands is not None:
        attrs: dict[str, Attr] = {"text": name, "kind": kind, **(more or {})}
        frame.tracer.b.emit_with(ops.NAME, operands, attrs)
