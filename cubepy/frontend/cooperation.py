"""What units do together: atomics, plane operations, barriers; and printing."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from math import prod
from typing import Any

from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.tensors import Place, locate, stored_value
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import FlatRef, Formatted, TensorRef, is_comptime
from cubepy.frontend.wording import describe, spell
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.opdef import NAMED_BARRIERS, OpDef, TypingError
from cubepy.ir.types import DType, Kind, Line, element_of, f64, i32, i64, u32, u64
from cubepy.lang import atomic
from cubepy.lang import builtins as lang

Handler = Callable[..., Any]


# Atomics

_ALIASES = {"sub": ops.ATOMIC_ADD, "store": ops.ATOMIC_EXCHANGE}
_VALUES = {ops.ATOMIC_LOAD: 0, ops.ATOMIC_CAS: 2}
"""How many values follow the index, where it is not one."""


def _atomic(name: str) -> Handler:
    row = _ALIASES.get(name) or ops.TABLE[f"atomic_{name.rstrip('_')}"]

    def handler(frame: Frame, x: Any, index: Any, *values: Any) -> Any:
        tracer = frame.tracer
        place = _place(frame, x, index, f"cp.atomic.{name}")
        wanted = _VALUES.get(row, 1)
        if len(values) != wanted:
            count = f"{wanted} value{'s' if wanted != 1 else ''}"
            reason = f"after the index it takes {count}, not {len(values)}"
            signature = (atomic.NAMES[name].__doc__ or "").split(":")[0].strip("`")
            raise tracer.error("E106", name=f"atomic.{name}", reason=reason, signature=signature)
        element = place.tensor.element
        _require_element(frame, name, row, element)
        operands = [stored_value(tracer, place.tensor, v, element) for v in values]
        if name == "sub":
            operands = [tracer.b.emit(ops.NEG, v) for v in operands]
        tracer.facts.written.add(place.tensor.name)
        tracer.facts.read.add(place.tensor.name)
        offset = tracer.index_value(place.offset)
        return tracer.b.emit(row, place.tensor.buffer, offset, *operands)

    return handler


def _require_element(frame: Frame, name: str, row: OpDef, element: DType) -> None:
    """E201 for elements that the step of the atomic does not take."""
    try:
        if row.step is not None:
            row.step.rule((element, element), {})
    except TypingError:
        numbers = "numbers; bools have and_, or_, xor, exchange and cas"
        bits = "integers and bools"
        suggestion = f"it takes {bits if element.is_float else numbers}"
        operator = f"atomic.{name}"
        raise frame.tracer.error(
            "E201", operator=operator, types=element.name, suggestion=suggestion
        ) from None


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


for _name in atomic.NAMES:
    intrinsic(atomic.NAMES[_name])(_atomic(_name))


# Planes


def _of_number(row: OpDef) -> Handler:
    def handler(frame: Frame, value: Any) -> Value:
        return frame.tracer.b.emit(row, frame.tracer.value(value))

    return handler


def _of_condition(row: OpDef) -> Handler:
    def handler(frame: Frame, condition: Any) -> Value:
        return frame.tracer.b.emit(row, frame.tracer.truth(condition))

    return handler


def _of_lane(row: OpDef, lane_text: str = "{}") -> Handler:
    """`lane_text`: names a lane that no unit finds; empty where some units may find none."""

    def handler(frame: Frame, value: Any, lane: Any) -> Value:
        tracer = frame.tracer
        position = tracer.index(lane, "a lane")
        width = tracer.plane_dim
        if isinstance(position, int) and (position < 0 or (lane_text and position >= width)):
            text = lane_text.format(position) or position
            raise tracer.error("E306", lane=text, width=width, kernel=frame.source.name)
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
    intrinsic(lang.BUILTINS[_row.name])(_of_number(_row))
for _row in (ops.PLANE_ALL, ops.PLANE_ANY, ops.PLANE_BALLOT):
    intrinsic(lang.BUILTINS[_row.name])(_of_condition(_row))
for _row, _lane in (
    (ops.PLANE_SHUFFLE, "{}"),
    (ops.PLANE_SHUFFLE_XOR, "own ^ {}"),
    (ops.PLANE_SHUFFLE_UP, ""),
    (ops.PLANE_SHUFFLE_DOWN, ""),
):
    intrinsic(lang.BUILTINS[_row.name])(_of_lane(_row, _lane))
intrinsic(lang.plane_broadcast)(_of_lane(ops.PLANE_SHUFFLE))


@intrinsic(lang.plane_elect)
def _elect(frame: Frame) -> Value:
    return frame.tracer.b.emit(ops.PLANE_ELECT)


# Barriers


def _sync(row: OpDef) -> Handler:
    def handler(frame: Frame) -> None:
        frame.tracer.b.emit_op(row)

    return handler


for _row in (ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_STORAGE):
    intrinsic(lang.BUILTINS[_row.name])(_sync(_row))


@intrinsic(lang.sync_units)
def _sync_units(frame: Frame, barrier: Any, count: Any) -> None:
    tracer = frame.tracer
    last = NAMED_BARRIERS[-1]
    number = _among(frame, "the number of a barrier", barrier, NAMED_BARRIERS, f"1 to {last}")
    units, plane = prod(tracer.cube_dim), tracer.plane_dim
    expected = f"a multiple of PLANE_DIM, {plane}, up to {units} units"
    allowed = range(plane, units + 1, plane)
    count = _among(frame, "the count of a barrier", count, allowed, expected)
    tracer.b.emit_op(ops.SYNC_UNITS, barrier=number, count=count)


def _among(frame: Frame, what: str, number: Any, allowed: range, expected: str) -> int:
    """A comptime integer that must be one of the allowed."""
    found = frame.tracer.index(number, what)
    if not isinstance(found, int):
        raise frame.tracer.error("E112", what=what)
    if found not in allowed:
        raise frame.tracer.error("E207", what=what, expected=expected, given=describe(number))
    return found


# Diagnosis


@intrinsic(lang.print_, builtins.print)
def print_values(
    frame: Frame, *values: Any, sep: Any = " ", end: Any = "\n", flush: Any = False
) -> None:
    """`print(...)`: comptime parts become text, `{}` stands for each runtime value."""
    separator, ending = _text(frame, "sep", sep, " "), _text(frame, "end", end, "\n")
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
    text = separator.join(parts)
    if "\0" in text + ending:
        expected, given = "text without NUL, which ends a text in C", describe(text + ending)
        raise frame.tracer.error("E207", what="print", expected=expected, given=given)
    attrs: dict[str, Any] = {} if ending == "\n" else {"end": ending}
    frame.tracer.b.emit_op(ops.PRINT, *operands, text=text, **attrs)


def _text(frame: Frame, name: str, given: Any, default: str) -> str:
    if given is None:
        return default
    if not isinstance(given, str):
        raise frame.tracer.error(
            "E207", what=f"{name}= of print", expected="comptime text", given=describe(given)
        )
    return escape_braces(given) if name == "sep" else given


@intrinsic(builtins.breakpoint)
def stop_here(frame: Frame) -> None:
    """`breakpoint()`: only the interpreter, which keeps names, stops."""
    if "names" in frame.tracer.target.features:
        frame.tracer.b.emit_op(ops.BREAKPOINT)


_FORMAT = r"(?:[<>][+ ]?(?!0)|[+ ]?0?)\d*(?:\.\d+)?[dxXoeEfFgG]?"
"""The formats of Python that C's printf has too; zeros and an alignment mean different things."""


def formatted(frame: Frame, value: Value, spec: str) -> Formatted:
    """A runtime number in an f-string, by a format that means the same in Python and in C."""
    if not spec:
        return Formatted("{}", [value])
    dtype, kind = element_of(value.type), spec[-1]
    is_typed = kind.isalpha()
    hint = "formats are [<>][+ ][0][width][.precision][type], with type d, x, o, e, f or g"
    is_good = re.fullmatch(_FORMAT, spec) is not None and not isinstance(value.type, Line)
    if "." in spec and not (is_typed and kind in "eEfFgG"):
        is_good = False
    if is_typed and kind in "xXo" and dtype.kind is Kind.INT:
        is_good, hint = False, "C prints the bits of a negative number: write cp.u64(value)"
    if is_typed and kind in "dxXo" and dtype.is_float:
        is_good, hint = False, "convert the number first, as in cp.i64(value)"
    is_signed = "+" in spec or " " in spec
    if is_signed and dtype.kind is Kind.UINT and (kind in "xXo" or dtype is u64):
        is_good, hint = False, "C writes no sign of unsigned numbers: leave it out"
    if not is_good:
        what, given = f"the format `{spec}`", spell(value.type)
        raise frame.tracer.error(
            "E207", what=what, expected="another format or type", given=given, hint=hint
        )
    if is_typed and kind in "eEfFgG" and not dtype.is_float:
        value = frame.tracer.cast(value, f64)
    elif is_signed and dtype.kind is Kind.UINT:
        value = frame.tracer.cast(value, i64)
    elif dtype.kind is Kind.BOOL:  # a number, where there is a format
        value = frame.tracer.cast(value, u32 if kind in "xXo" else i32)
    return Formatted(f"{{:{spec}}}", [value])


def escape_braces(text: str) -> str:
    """Text in which braces mean themselves."""
    return text.replace("{", "{{").replace("}", "}}")
