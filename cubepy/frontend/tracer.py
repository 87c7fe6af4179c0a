"""The state of one trace: the builder, the frames of inlined functions, and mutable locals.

Knows how values are typed, converted and stored in locals; knows no syntax. A trace that meets a
type or a control form which it had not foreseen notes it and starts again (`Restart`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cubepy.errors import Error, fail
from cubepy.frontend.assigned import Assigned, assigned_names
from cubepy.frontend.naming import note_name
from cubepy.frontend.promote import (
    NoCommonType,
    convert_literal,
    holds,
    join_literal,
    literal_type,
    promote_literal,
    promote_types,
    zero_of,
)
from cubepy.frontend.values import (
    SLOTS,
    UNSET,
    ComptimeSlot,
    Index,
    NumberSlot,
    Record,
    RecordSlot,
    TensorRef,
    TupleSlot,
    ViewSlot,
    as_record,
    is_comptime,
    is_number,
    make_tuple,
    type_of,
    typed_scalar,
)
from cubepy.frontend.wording import (
    INTEGER_HINTS,
    NO_INTEGER,
    describe,
    describe_slot,
    spell,
)
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Op, Region, Value
from cubepy.ir.types import (
    DType,
    Line,
    Ref,
    bool_,
    element_of,
    i64,
    index,
    u64,
    with_element,
)
from cubepy.lang.function import Captures, Source
from cubepy.span import Span
from cubepy.targets import Target

Key = tuple[Any, ...]


class Restart(Exception):
    """The trace learned something (a type, a loop form) and must begin anew."""


@dataclass
class Learned:
    """What earlier attempts of this trace found out."""

    types: dict[Key, DType | Line] = field(default_factory=dict[Key, "DType | Line"])
    weak: set[Key] = field(default_factory=set[Key])
    """Locals that only literals were assigned: they join the first type that meets them."""
    settled: bool = False
    """Whether those have their own types now, as nothing gave them another."""
    looping: set[Key] = field(default_factory=set[Key])
    records: set[Key] = field(default_factory=set[Key])


@dataclass
class Facts:
    """What the launch needs to know of a traced kernel."""

    uses_axes: bool = False
    shaped: set[str] = field(default_factory=set[str])
    written: set[str] = field(default_factory=set[str])
    read: set[str] = field(default_factory=set[str])
    captures: dict[tuple[int, str], tuple[Any, str, Any]] = field(
        default_factory=dict[tuple[int, str], tuple[Any, str, Any]]
    )


@dataclass
class LoopContext:
    """An open loop of a frame; `depth` is the number of open runtime regions inside the frame."""

    is_runtime: bool
    depth: int
    key: Key
    is_wrapped: bool = False
    leave_flag: NumberSlot | None = None
    else_flag: NumberSlot | None = None


class Frame:
    """One activation of an inlined function: its names, its open loops, and how it returns."""

    def __init__(
        self,
        tracer: Tracer,
        source: Source,
        captures: Captures | None,
        path: Key,
        caller: Span | None,
        parent: Frame | None = None,
    ) -> None:
        self.tracer = tracer
        self.source = source
        self.captures = captures
        self.path = path
        self.caller = caller
        self.parent = parent
        self.env: dict[str, Any] = {}
        self.slots: dict[str, Any] = {}
        self.forced: set[str] = set()
        self.assigned: Assigned = assigned_names(source.node)
        self.loops: list[LoopContext] = []
        self.depth = 0
        self.unrolled: Key = ()
        self.is_kernel = False
        self.is_looping = False
        self.has_result = False
        self.result: Any = None
        self.return_flag: NumberSlot | None = None

    def span(self, node: ast.AST) -> Span:
        """Where `node` stands, with the calls that led here."""
        s, offset = self.source, self.source.column_offset
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        return Span(
            s.file, line, column + offset, end_line, end_column + offset, s.name, self.caller
        )

    def key(self, node: ast.AST, *more: Any) -> Key:
        """Identifies a place of this activation across restarts."""
        place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        return (*self.path, *self.unrolled, place, *more)


class Tracer:
    """Builds one kernel; shared by all frames."""

    def __init__(
        self,
        target: Target,
        cube_dim: tuple[int, int, int],
        plane_dim: int,
        learned: Learned,
        strict: bool = False,
    ) -> None:
        self.b = Builder()
        self.target = target
        self.cube_dim = cube_dim
        self.plane_dim = plane_dim
        self.learned = learned
        self.strict = strict  # asked for: also what has a defined result is a fault
        self.checked = strict or "checks" in target.features
        self.facts = Facts()
        self.locals: list[Op] = []
        self.inlined = 0
        self.weak: dict[Value, bool | int | float] = {}

    # Errors

    def error(self, code: str, **fields: Any) -> Error:
        """The error of `code` at the present position."""
        return fail(code, self.b.span, **fields)

    # Numbers

    def value(self, x: Any, like: DType | Line | None = None) -> Value:
        """`x` as a runtime number; literals take their own type, or that of `like`."""
        if isinstance(x, Value):
            return x
        if is_number(x):
            own = literal_type(x) if like is None else promote_literal(x, element_of(like))
            return self.literal(x, own if like is None else with_element(like, own))
        typed = typed_scalar(x)
        if typed is not None:
            return self.b.const(typed[1], typed[0])
        raise self.error("E207", what="this place", expected="a number", given=describe(x))

    def literal(self, x: bool | int | float, t: DType | Line) -> Value:
        """The constant `x`; E203 where `t` cannot hold it."""
        self.check_literal(x, element_of(t))
        return self.b.const(x, t)

    def check_literal(self, x: bool | int | float, dtype: DType, hint: str | None = None) -> None:
        """E203 for an integer that `dtype` does not hold."""
        if not holds(dtype, x):
            value, wide = describe(x), next((t for t in (i64, u64) if holds(t, x)), None)
            fix = f"use a wider type, as in cp.{wide.name}({value})" if wide else NO_INTEGER
            raise self.error("E203", value=value, type=dtype.name, hint=hint or fix)

    def _literal(self, x: Any, like: DType | Line) -> DType:
        dtype = promote_literal(x, element_of(like))
        self.check_literal(x, dtype)
        return dtype

    def cast(self, v: Value, t: DType | Line) -> Value:
        """`v` converted to `t`; a scalar is repeated to the lanes of a line."""
        if v.type == t:
            return v
        if isinstance(v.type, Line):
            width = v.type.width
            if isinstance(t, Line) and t.width != width:
                raise self.error("E208", left=spell(v.type), right=spell(t))
            return self.b.emit(ops.CAST, v, type=with_element(v.type, element_of(t)))
        scalar = v if v.type is element_of(t) else self.b.emit(ops.CAST, v, type=element_of(t))
        return self.b.emit(ops.SPLAT, scalar, lanes=t.width) if isinstance(t, Line) else scalar

    def convert(self, x: Any, t: DType | Line) -> Value:
        """`x` (literal or runtime) as a value of `t`, by an explicit conversion."""
        if is_number(x):
            if element_of(t).is_float:
                self.check_literal(x, element_of(t))
            return self.b.const(convert_literal(x, element_of(t)), t)
        return self.cast(self.value(x), t)

    def unify(self, a: Any, b: Any, operator: str) -> tuple[Value, Value]:
        """Two operands in their common type."""
        if is_number(a) and not is_number(b):
            y = self.value(b)
            t = with_element(_plain(y), self._literal(a, _plain(y)))
            return self.b.const(a, t), self.cast(y, t)
        if is_number(b) and not is_number(a):
            y, x = self.unify(b, a, operator)
            return x, y
        x, y = self.value(a), self.value(b)
        for weak, other in ((x, y), (y, x)):
            if weak in self.weak and other not in self.weak:
                t = with_element(
                    other.type, promote_literal(self.weak[weak], element_of(other.type))
                )
                return self.cast(x, t), self.cast(y, t)
        try:
            t = promote_types(_plain(x), _plain(y))
        except NoCommonType:
            raise self._no_common_type(x, y) from None
        return self.cast(x, t), self.cast(y, t)

    def _no_common_type(self, x: Value, y: Value) -> Error:
        if isinstance(x.type, Line) and isinstance(y.type, Line) and x.type.width != y.type.width:
            return self.error("E208", left=spell(x.type), right=spell(y.type))
        return self.error("E202", left=spell(x.type), right=spell(y.type), example="i64")

    def truth(self, x: Any) -> Value:
        """A condition: a scalar bool."""
        if not isinstance(x, Value) and not is_number(x) and not typed_scalar(x):
            raise self.error("E207", what="a condition", expected="a number", given=describe(x))
        v = self.value(x)
        if isinstance(v.type, Line):
            raise self.error("E204", type=spell(v.type))
        return v if v.type is bool_ else self.cast(v, bool_)

    # Index arithmetic, on Python ints where possible

    def index(self, x: Any, what: str = "an index") -> Index:
        """`x` as an index: a Python int, or a value of type index."""
        if isinstance(x, bool) or not isinstance(x, int | Value):
            typed = typed_scalar(x)
            if typed is None or not typed[0].is_integer:
                raise self.error("E207", what=what, expected="an integer", given=describe(x))
            return int(typed[1])
        if isinstance(x, int):
            self.check_literal(x, index, "indices have 64 bits")
            return x
        if not isinstance(x.type, DType) or not x.type.is_integer:
            hint = INTEGER_HINTS.get(element_of(x.type).kind)
            raise self.error(
                "E207", what=what, expected="an integer", given=spell(x.type), hint=hint
            )
        return self.cast(x, index)

    def index_value(self, x: Index) -> Value:
        """An index as an IR value."""
        return self.b.index(x) if isinstance(x, int) else x

    def add(self, a: Index, b: Index) -> Index:
        """a + b"""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self.b.emit(ops.ADD, self.index_value(a), self.index_value(b))

    def sub(self, a: Index, b: Index) -> Index:
        """a - b"""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if b == 0:
            return a
        return self.b.emit(ops.SUB, self.index_value(a), self.index_value(b))

    def mul(self, a: Index, b: Index) -> Index:
        """a * b"""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        for x, y in ((a, b), (b, a)):
            if isinstance(x, int) and x in (0, 1):
                return 0 if x == 0 else y
        return self.b.emit(ops.MUL, self.index_value(a), self.index_value(b))

    def floordiv(self, a: Index, b: Index) -> Index:
        """a // b"""
        if isinstance(a, int) and isinstance(b, int):
            return a // b if b else 0
        if isinstance(b, int) and b == 1:
            return a
        return self.b.emit(ops.FLOORDIV, self.index_value(a), self.index_value(b))

    def minimum(self, a: Index, b: Index) -> Index:
        """min(a, b)"""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.b.emit(ops.MIN, self.index_value(a), self.index_value(b))

    def maximum(self, a: Index, b: Index) -> Index:
        """max(a, b)"""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.b.emit(ops.MAX, self.index_value(a), self.index_value(b))

    def lines(self, extent: Index, width: int) -> Index:
        """How many lines cover `extent` elements: rounded up."""
        return self.floordiv(self.add(extent, width - 1), width) if width > 1 else extent

    def product(self, factors: tuple[Index, ...]) -> Index:
        """The product of indices."""
        result: Index = 1
        for factor in factors:
            result = self.mul(result, factor)
        return result

    # Control

    def if_(self, condition: Value, then: list[Op], otherwise: list[Op]) -> None:
        """Append an `if` over finished regions."""
        regions = (Region((), tuple(then)), Region((), tuple(otherwise)))
        self.b.emit_op(ops.IF, condition, regions=regions)

    def close(self, row: ops.OpDef) -> None:
        """End the innermost region with a terminator, unless it has one."""
        if not self.b.is_terminated:
            self.b.emit_op(row)

    # Mutable locals

    def new_local(self, t: DType | Line, name: str) -> NumberSlot:
        """A mutable local of the kernel, declared at its head."""
        ref = Value(Ref(t), name)
        self.locals.append(Op(ops.VAR, (), {"type": t}, (ref,), (), self.b.span))
        return NumberSlot(ref)

    def set_number(self, slot: NumberSlot, v: Value) -> None:
        """Assign a local."""
        self.b.emit_op(ops.SET, slot.ref, v)

    def flag(self, name: str) -> NumberSlot:
        """A new boolean local that is false from here on."""
        slot = self.new_local(bool_, name)
        self.set_number(slot, self.b.const(False, bool_))
        return slot

    def assign(self, slot: Any, value: Any, key: Key, name: str, depth: int) -> Any:
        """Store `value` in a mutable local; gives its slot (`slot`, or a new one if None)."""
        record = as_record(value)
        if isinstance(value, TensorRef):
            return self._assign_view(slot, value, key, name, depth)
        if isinstance(value, tuple | list) and not isinstance(slot, NumberSlot):
            return self._assign_tuple(slot, value, key, name, depth)
        if record is not None:
            is_fixed = depth == 0 and is_comptime(value) and key not in self.learned.records
            if is_fixed and not isinstance(slot, RecordSlot):
                return ComptimeSlot(value)
            return self._assign_record(slot, record, key, name, depth)
        if isinstance(value, Value) or is_number(value) or typed_scalar(value):
            return self._assign_number(slot, value, key, name)
        if depth == 0 or (isinstance(slot, ComptimeSlot) and slot.value is value):
            return ComptimeSlot(value)
        raise self._changes(name, slot, value)

    def _changes(self, name: str, slot: Any, value: Any) -> Error:
        hint = "start with a number of that type" if isinstance(slot, ComptimeSlot) else None
        if isinstance(slot, NumberSlot) and is_comptime(value):
            hint = "text, None and functions are comptime: keep a number or a bool"
        old, new = describe_slot(slot), describe(value)
        return self.error("E206", name=name, old=old, new=new, hint=hint)

    def _assign_number(self, slot: Any, value: Any, key: Key, name: str) -> NumberSlot:
        if slot is not None and not isinstance(slot, NumberSlot):
            raise self._changes(name, slot, value)
        learned, is_typed = self.learned, self.literal_of(value) is None
        own = literal_type(value) if is_number(value) else _plain(self.value(value))
        known = learned.types.get(key)
        wanted = own if known is None else self._join(value, own, known, key)
        learned.types[key] = wanted
        if known is None and not is_typed:
            learned.weak.add(key)
        elif known is not None and (wanted != known or (is_typed and key in learned.weak)):
            learned.weak -= {key} if is_typed else set[Key]()
            raise Restart
        if slot is None or slot.ref.type != Ref(wanted):
            is_weak = key in learned.weak and not learned.settled
            slot = replace(self.new_local(wanted, name), is_weak=is_weak)
        is_literal = is_number(value)
        v = self.b.const(value, wanted) if is_literal else self.convert(value, wanted)
        self.set_number(slot, v)
        return slot

    def literal_of(self, x: Any) -> bool | int | float | None:
        """A literal of the kind of `x` where that is one, or was made of literals; else None."""
        return x if is_number(x) else self.weak.get(x) if isinstance(x, Value) else None

    def mark_literal(self, result: Value, *operands: Any) -> Value:
        """`result`, noted as made of literals if all operands were."""
        if all(self.literal_of(x) is not None for x in operands):
            self.weak[result] = zero_of(element_of(result.type))
        return result

    def _join(self, value: Any, own: DType | Line, known: DType | Line, key: Key) -> DType | Line:
        is_weak = key in self.learned.weak
        try:
            if is_number(value):
                return self._join_literal(value, known, is_weak)
            literal = self.literal_of(value)
            if literal is not None and not is_weak:
                return with_element(known, promote_literal(literal, element_of(known)))
            if literal is None and is_weak:
                start = zero_of(element_of(known))
                return with_element(own, join_literal(start, element_of(own)))
            return promote_types(known, own)
        except NoCommonType:
            raise self.error("E206", name=str(key[-1]), old=spell(known), new=spell(own)) from None

    def _join_literal(self, value: Any, known: DType | Line, weak: bool) -> DType | Line:
        element = element_of(known)
        if weak:
            return promote_types(known, literal_type(value))
        self.check_literal(value, element)
        return with_element(known, promote_literal(value, element))

    def _assign_tuple(self, slot: Any, value: Any, key: Key, name: str, depth: int) -> Any:
        old: tuple[Any, ...] = slot.items if isinstance(slot, TupleSlot) else ()
        if isinstance(slot, TupleSlot) and len(old) != len(value):
            raise self.error(
                "E206", name=name, old=f"a tuple of {len(old)}", new=f"a tuple of {len(value)}"
            )
        items = [
            self.assign(old[k] if old else None, item, (*key, k), f"{name}_{k}", depth)
            for k, item in enumerate(value)
        ]
        made = TupleSlot(tuple(items), type_of(value))
        kept = isinstance(slot, TupleSlot) and slot.cls is made.cls and _all_same(old, made.items)
        return slot if kept else made

    def _assign_record(self, slot: Any, record: Record, key: Key, name: str, depth: int) -> Any:
        if isinstance(slot, ComptimeSlot) and isinstance(slot.value, record.cls):
            self.learned.records.add(key)  # it began as a constant, but changes at run time
            raise Restart
        if slot is not None and not (isinstance(slot, RecordSlot) and slot.cls is record.cls):
            new = f"a {record.cls.__name__}"
            raise self.error("E206", name=name, old=describe_slot(slot), new=new)
        old: dict[str, Any] = slot.items if slot is not None else {}
        items = {
            n: self.assign(old.get(n), v, (*key, n), f"{name}_{n}", depth)
            for n, v in record.values.items()
        }
        kept = slot is not None and _all_same(tuple(old.values()), tuple(items.values()))
        return slot if kept else RecordSlot(record.cls, items)

    def _assign_view(self, slot: Any, view: TensorRef, key: Key, name: str, depth: int) -> Any:
        parts = (view.offset, *view.shape, *view.strides)
        old: tuple[Any, ...] = ()
        if isinstance(slot, ViewSlot):
            like = slot.like
            if (like.buffer, like.element, like.rank) != (view.buffer, view.element, view.rank):
                raise self.error(
                    "E206",
                    name=name,
                    old=f"a view of `{like.name}`",
                    new=f"a view of `{view.name}`",
                    hint="a view moves within one tensor; put the accesses into the branches",
                )
            old = slot.items
        values = [self.index_value(p) for p in parts]
        items = [
            self.assign(old[k] if old else None, v, (*key, k), f"{name}_{k}", depth)
            for k, v in enumerate(values)
        ]
        like = replace(view, is_linear=False, alignment=0)
        kept = isinstance(slot, ViewSlot) and _same_lines(slot.like, like) and _all_same(old, items)
        return slot if kept else ViewSlot(like, tuple(items))

    def read(self, slot: Any) -> Any:
        """The present value of a mutable local."""
        if isinstance(slot, NumberSlot):
            value = self.b.emit(ops.GET, slot.ref, name=slot.ref.name)
            if slot.is_weak:
                self.weak[value] = zero_of(element_of(value.type))
            return value
        if isinstance(slot, TupleSlot):
            return make_tuple(slot.cls, [self.read(item) for item in slot.items])
        if isinstance(slot, RecordSlot):
            return Record(slot.cls, {n: self.read(item) for n, item in slot.items.items()})
        if isinstance(slot, ViewSlot):
            return self._read_view(slot)
        return slot.value

    def _read_view(self, slot: ViewSlot) -> TensorRef:
        rank = slot.like.rank
        offset, *rest = (self.read(item) for item in slot.items)
        return replace(
            slot.like, offset=offset, shape=tuple(rest[:rank]), strides=tuple(rest[rank:])
        )


def bind(frame: Frame, name: str, value: Any) -> None:
    """Bind a name: a mutable local where the function assigns it several times, else the value."""
    if isinstance(value, TensorRef) and value.name in ("shared", "local"):
        value = replace(value, name=name)  # memory of the kernel's own is called as it is assigned
    if name in frame.assigned.mutable or name in frame.forced:
        key = (*frame.path, name)
        slot = frame.tracer.assign(frame.slots.get(name), value, key, name, frame.depth)
        frame.slots[name] = frame.env[name] = slot
        note_name(frame, name, slot)
    else:
        frame.env[name] = value
        note_name(frame, name, value)


def lookup_local(frame: Frame, name: str) -> Any:
    """The value of a name in the frame; KeyError if the frame has none."""
    value = frame.env[name]
    if value is UNSET:
        raise frame.tracer.error("E103", name=name)
    return frame.tracer.read(value) if isinstance(value, SLOTS) else value


def _all_same(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether a mutable local kept its parts, so that both arms of an `if` assign the same one."""
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


def _same_lines(a: TensorRef, b: TensorRef) -> bool:
    return (a.is_line, a.width, a.axis, a.is_divisible) == (
        b.is_line,
        b.width,
        b.axis,
        b.is_divisible,
    )


def _plain(v: Value) -> DType | Line:
    assert isinstance(v.type, DType | Line)
    return v.type
