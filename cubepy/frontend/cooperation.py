"""What units do together: atomics, plane operations, barriers; and printing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.frontend.tensors import Place, locate, stored_value
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import FlatRef, TensorRef, is_comptime
from cubepy.frontend.wording import describe
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import OpDef
from cubepy.lang import atomic

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


# Atomics

_ATOMICS: dict[str, OpDef] = {
    "add": ops.ATOMIC_ADD,
    "sub": ops.ATOMIC_ADD,
    "min": ops.ATOMIC_MIN,
    "max": ops.ATOMIC_MAX,
    "and_": ops.ATOMIC_AND,
    "or_": ops.ATOMIC_OR,
    "xor": ops.ATOMIC_XOR,
    "exchange": ops.ATOMIC_EXCHANGE,
    "store": ops.ATOMIC_EXCHANGE,
    "cas": ops.ATOMIC_CAS,
    "load": ops.ATOMIC_LOAD,
}
_BITWISE = (ops.ATOMIC_AND, ops.ATOMIC_OR, ops.ATOMIC_XOR)


def _atomic(name: str) -> Handler:
    row = _ATOMICS[name]

    def handler(frame: Frame, x: Any, index: Any, *values: Any) -> Any:
        tracer = frame.tracer
        place = _place(frame, x, index, f"cp.atomic.{name}")
        wanted = {ops.ATOMIC_LOAD: 0, ops.ATOMIC_CAS: 2}.get(row, 1)
        if len(values) != wanted:
            count = f"{wanted} value{'s' if wanted != 1 else ''}"
            reason = f"after the index it takes {count}, not {len(values)}"
            signature = (atomic.NAMES[name].__doc__ or "").split(":")[0].strip("`")
            raise tracer.error("E106", name=f"atomic.{name}", reason=reason, signature=signature)
        element = place.tensor.element
        if element.is_float and row in _BITWISE:
            raise tracer.error(
                "E201",
                operator=f"atomic.{name}",
                types=element.name,
                suggestion="bit operations take integers",
            )
        operands = [stored_value(tracer, place.tensor, v, element) for v in values]
        if name == "sub":
            operands = [tracer.b.emit(ops.NEG, v) for v in operands]
        tracer.facts.written.add(place.tensor.name)
        tracer.facts.read.add(place.tensor.name)
        offset = tracer.index_value(place.offset)
        return tracer.b.emit(row, place.tensor.buffer, offset, *operands)

    return handler


def _place(frame: Frame, x: Any, index: Any, what: str) -> Place:
    if not isinstance(x, TensorRef | FlatRef):
        hint = f"give tensor and index apart, as in {what}(x, i, value)"
        raise frame.tracer.error(
            "E207", what=what, expected="a tensor", given=describe(x), hint=hint
        )
    base = x.tensor if isinstance(x, FlatRef) else x
    if base.is_line:
        raise frame.tracer.error(
            "E207", what=what, expected="a tensor of scalars", given="a tensor of lines"
        )
    place = locate(frame.tracer, x, index)
    if not isinstance(place, Place):
        raise frame.tracer.error("E303", name=place.name, rank=place.rank)
    return place


for _name in _ATOMICS:
    HANDLERS[f"atomic_{_name}"] = _atomic(_name)


# Planes


def _of_number(row: OpDef) -> Handler:
    def handler(frame: Frame, value: Any) -> Value:
        return frame.tracer.b.emit(row, frame.tracer.value(value))

    return handler


def _of_condition(row: OpDef) -> Handler:
    def handler(frame: Frame, condition: Any) -> Value:
        return frame.tracer.b.emit(row, frame.tracer.truth(condition))

    return handler


def _of_lane(row: OpDef, is_lane: bool) -> Handler:
    def handler(frame: Frame, value: Any, lane: Any) -> Value:
        tracer = frame.tracer
        position = tracer.index(lane, "a lane")
        width = tracer.plane_dim
        if isinstance(position, int) and (position < 0 or (is_lane and position >= width)):
            raise tracer.error("E306", lane=position, width=width, kernel=frame.source.name)
        return tracer.b.emit(row, tracer.value(value), tracer.index_value(position))

    return handler


for _row in (
    ops.PLANE_SUM,
    ops.PLANE_PROD,
    ops.PLANE_MIN,
    ops.PLANE_MAX,
    ops.PLANE_INCLUSIVE_SUM,
    ops.PLANE_EXCLUSIVE_SUM,
    ops.PLANE_INCLUSIVE_PROD,
    ops.PLANE_EXCLUSIVE_PROD,
):
    HANDLERS[_row.name] = _of_number(_row)
for _row in (ops.PLANE_ALL, ops.PLANE_ANY, ops.PLANE_BALLOT):
    HANDLERS[_row.name] = _of_condition(_row)
for _row in (
    ops.PLANE_SHUFFLE,
    ops.PLANE_SHUFFLE_XOR,
    ops.PLANE_SHUFFLE_UP,
    ops.PLANE_SHUFFLE_DOWN,
):
    HANDLERS[_row.name] = _of_lane(_row, _row is ops.PLANE_SHUFFLE)
HANDLERS["plane_broadcast"] = _of_lane(ops.PLANE_SHUFFLE, True)


def _elect(frame: Frame) -> Value:
    return frame.tracer.b.emit(ops.PLANE_ELECT)


HANDLERS["plane_elect"] = _elect


# Barriers


def _sync(row: OpDef) -> Handler:
    def handler(frame: Frame) -> None:
        frame.tracer.b.emit_op(row)

    return handler


for _row in (ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_STORAGE):
    HANDLERS[_row.name] = _sync(_row)


# Diagnosis


def print_values(frame: Frame, *values: Any) -> None:
    """`print(...)`: comptime parts become text, `{}` stands for each runtime value."""
    parts: list[str] = []
    operands: list[Value] = []
    for value in values:
        if isinstance(value, Formatted):
            parts.append(value.text)
            operands += value.operands
        elif isinstance(value, Value):
            parts.append("{}")
            operands.append(value)
        elif is_comptime(value):
            parts.append(escape_braces(str(value)))
        else:
            raise frame.tracer.error(
                "E207", what="print", expected="numbers and text", given=describe(value)
            )
    frame.tracer.b.emit_op(ops.PRINT, *operands, text=" ".join(parts))


HANDLERS["print"] = HANDLERS["print_"] = print_values


def stop_here(frame: Frame) -> None:
    """`breakpoint()`: only the interpreter, which keeps names, stops."""
    if "names" in frame.tracer.target.features:
        frame.tracer.b.emit_op(ops.BREAKPOINT)


HANDLERS["breakpoint"] = stop_here


class Formatted:
    """An f-string with runtime values: `text` has `{}` for each of `operands`."""

    def __init__(self, text: str, operands: list[Value]) -> None:
        self.text, self.operands = text, operands


def escape_braces(text: str) -> str:
    """Text in which braces mean themselves."""
    return text.replace("{", "{{").replace("}", "}}")
