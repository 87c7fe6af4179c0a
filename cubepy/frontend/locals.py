"""Mutable locals in a trace: declared, assigned, read, and joined where paths meet.

A local keeps its type. Straight-line code that rebinds its name to another type declares a new
local; where paths with different locals meet, one of their common type is declared. Locals that
start as literals, and results of helpers, take the common type of all that is assigned to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from cubepy.errors import Error
from cubepy.frontend.joins import (
    EITHER,
    Assigned,
    Key,
    Learned,
    Local,
    Typing,
    infer,
    is_right,
    settle,
)
from cubepy.frontend.literals import Held, Literal, kind_of, locals_in, zero_of_kind
from cubepy.frontend.numbers import Numbers
from cubepy.frontend.promote import NoCommonType, promote_literal, promote_types
from cubepy.frontend.values import (
    SLOTS,
    ComptimeSlot,
    Conflict,
    Flag,
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
from cubepy.frontend.wording import NO_INTEGER, describe, describe_slot, spell
from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.types import DType, Line, element_of, f32, f64, i64, index, with_element

Bodies = Sequence[list[Op]]
"""The operations of the arms of an `if`."""
_COMPARISONS = (ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE)


class Locals(Numbers):
    """Adds mutable locals to the numbers of a trace."""

    def __init__(self, learned: Learned) -> None:
        super().__init__()
        self.learned = learned
        self.is_stale = False
        """Whether the trace went on with a wrong guess, so that it must be repeated."""
        self._declared: list[Local] = []
        self._by_ref: dict[Value, Local] = {}
        self._places: Counter[Key] = Counter()
        self._sources: dict[Value, frozenset[Local]] = {}

    def finish(self) -> bool:
        """Settle the types of all locals; whether the trace had them right."""
        wrong = self._settle()
        if wrong is not None:
            self.b.span = wrong.span
            raise self._no_type(wrong)
        if self.is_stale or not all(map(is_right, self._declared)):
            return False
        self.check_held()
        return True

    def was_wrong(self) -> bool:
        """Whether a trace that ended in an error had guessed some type wrong."""
        wrong = self._settle()
        return wrong is None and (self.is_stale or not all(map(is_right, self._declared)))

    def _settle(self) -> Local | None:
        wrong = settle(self._declared)
        self.learned.types |= {x.key: x.typing for x in self._declared if x.joins}
        return wrong

    def unsettled(self) -> Error:
        """E121 for the local whose type the last trace still guessed wrong."""
        local = next(x for x in self._declared if not is_right(x))
        self.b.span = local.span
        return self.error("E121", name=local.name, type=element_of(local.type).name)

    # Assignment

    def assign(
        self, slot: Any, value: Any, key: Key, name: str, depth: int, joins: bool = False
    ) -> Any:
        """Store `value` in a mutable local; gives its slot: `slot`, or a new one.

        `depth`: the number of open regions. `joins`: the value of a hidden local, such as the
        result of a helper, which has the common type of all assignments.
        """
        record = as_record(value)
        if slot is not None and not _is_of_kind(slot, value, record):
            if not joins and _is_straight(slot, depth):
                slot = None  # on a straight path a name may take anything
            elif joins and not (isinstance(slot, ViewSlot) and isinstance(value, TensorRef)):
                raise self._changes(name, slot, value)
        if isinstance(value, TensorRef):
            return self._assign_view(slot, value, key, name, depth)
        if isinstance(value, (tuple, list)) and not isinstance(slot, NumberSlot):
            return self._assign_tuple(slot, value, key, name, depth, joins)
        if record is not None:
            is_fixed = depth == 0 and is_comptime(value) and key not in self.learned.records
            if is_fixed and not isinstance(slot, RecordSlot):
                return ComptimeSlot(value, key, depth)
            return self._assign_record(slot, record, key, name, depth, joins)
        if isinstance(value, Value) or is_number(value) or typed_scalar(value):
            return self._assign_number(slot, value, key, name, depth, joins)
        is_same = isinstance(slot, ComptimeSlot) and slot.value is value
        if slot is None or is_same or (not joins and _is_straight(slot, depth)):
            return ComptimeSlot(value, key, depth)
        raise self._changes(name, slot, value)

    def _changes(self, name: str, slot: Any, value: Any) -> Error:
        is_numeric = isinstance(value, Value) or is_number(value)
        begins = isinstance(slot, ComptimeSlot) and is_numeric
        hint = "start with a number of that type" if begins else None
        if isinstance(slot, NumberSlot) and is_comptime(value):
            hint = "text, None and functions are comptime: keep a number or a bool"
        old, new = describe_slot(slot), describe(value)
        return self.error("E206", name=name, old=old, new=new, hint=hint)

    def _assign_number(
        self, slot: Any, value: Any, key: Key, name: str, depth: int, joins: bool
    ) -> NumberSlot:
        if slot is not None and not isinstance(slot, NumberSlot):
            raise self._changes(name, slot, value)
        value = value if is_number(value) else self.value(value)
        if slot is None or not self._update(slot.local, value, depth, joins):
            return self._declare(value, key, name, depth, joins)
        return slot

    def _declare(self, value: Any, key: Key, name: str, depth: int, joins: bool) -> NumberSlot:
        """A new local that starts with a value."""
        is_literal = self.literal_of(value) is not None
        local = self._local(key, name, depth, joins or is_literal, is_literal and not joins)
        self._note(local, value)
        self._begin(local, self._infer(local))
        self._set(local, value)
        return NumberSlot(local)

    def _local(self, key: Key, name: str, depth: int, joins: bool, widens: bool) -> Local:
        span = self.b.span
        place = (*key, span.line, span.column) if span is not None else key
        self._places[place] += 1
        place = (*place, self._places[place])
        known = self.learned.types.get(place)
        # what an earlier trace took for a literal joins too: by now it may have got a type
        local = Local(place, name, depth, span, joins or known is not None, widens)
        local.known = known
        local.is_wide = local.known is not None and element_of(local.known.type) is f64
        return local

    def _begin(self, local: Local, typing: Typing) -> None:
        local.used = local.typing = typing
        self._declared.append(local)
        self._variable(local)

    def _variable(self, local: Local) -> None:
        local.ref = self.new_variable(local.type, local.name)
        self._by_ref[local.ref] = local

    def _note(self, local: Local, value: Any) -> None:
        """Note what is assigned to a local."""
        tree = self.literal_of(value)
        if tree is None:
            local.typed[Assigned(value.type, self.sources(value))] = None
            return
        local.assign_literal(tree)
        for source in locals_in(tree):
            source.is_copied = True

    def _infer(self, local: Local) -> Typing:
        try:
            return infer(local)
        except NoCommonType:
            raise self._no_type(local) from None

    def _no_type(self, local: Local) -> Error:
        if not local.typed and local.interval is not None:
            value = max(local.interval, key=abs)
            t = "the type of what it shares a local with"
            return self.error("E203", value=value, type=t, hint=NO_INTEGER)
        types = [spell(assigned.type) for assigned in local.typed]
        if EITHER in local.key:
            return self.error("E212", first=types[0], second=types[-1])
        return self.error("E206", name=local.name, old=types[0], new=types[-1])

    def _set(self, local: Local, value: Any) -> None:
        """Emit the assignment."""
        self.b.emit_op(ops.SET, local.ref, self.convert(value, local.type))

    def _update(self, local: Local, value: Any, depth: int, joins: bool) -> bool:
        """Assign to a local; False where that takes a new one."""
        tree = self.literal_of(value)
        is_straight = depth == local.depth and not joins
        if is_straight and tree is not None:
            return False
        if local.joins:
            if is_straight and local not in self.sources(value):
                return False
            self._note(local, value)
            self._retype(local)
        else:
            own = value.type if tree is None else self._as_literal(local, tree)
            if own != local.type:
                return False
            self._note(local, value)
        self._set(local, value)
        return True

    def _as_literal(self, local: Local, tree: Literal) -> DType | Line:
        """The type that a literal has in a local that has one."""
        dtype = promote_literal(zero_of_kind(kind_of(tree)), element_of(local.type))
        if dtype is element_of(local.type):
            self.check_fit(tree, dtype)
        return with_element(local.type, dtype)

    def _retype(self, local: Local) -> None:
        """Go on with the type that follows from what has been assigned so far."""
        typing = self._infer(local)
        has_type = typing.type == local.type
        local.typing = typing
        if not has_type:
            self.is_stale = True
            self._variable(local)

    def sources(self, value: Value) -> frozenset[Local]:
        """The locals whose types decide on that of a value."""
        if value not in self._sources:
            todo = [value]
            while todo:
                wanted = [v for v in self._operands(todo[-1]) if v not in self._sources]
                if wanted:
                    todo += wanted
                    continue
                self._sources[todo[-1]] = self._own_sources(todo[-1])
                todo.pop()
        return self._sources[value]

    def _own_sources(self, value: Value) -> frozenset[Local]:
        op = self.b.made.get(value)
        if op is not None and op.row is ops.GET:
            local = self._by_ref.get(op.operands[0])
            return frozenset((local,) if local is not None else ())
        return frozenset[Local]().union(*(self._sources[v] for v in self._operands(value)))

    def _operands(self, value: Value) -> tuple[Value, ...]:
        """The operands that the type of a value follows from; no line, where it is of one lane."""
        op = self.b.made.get(value)
        if op is None or op.row is ops.GET or op.row in _COMPARISONS:
            return ()
        if op.row is ops.CAST:
            return op.operands if value in self._implicit else ()
        element = element_of(value.type)
        kinds = (DType, Line) if isinstance(value.type, Line) else (DType,)
        same = [v for v in op.operands if isinstance(v.type, kinds)]
        return tuple([v for v in same if element_of(v.type) is element])

    def _assign_tuple(
        self, slot: Any, value: Any, key: Key, name: str, depth: int, joins: bool
    ) -> Any:
        old: tuple[Any, ...] = slot.items if isinstance(slot, TupleSlot) else ()
        if isinstance(slot, TupleSlot) and len(old) != len(value):
            raise self.error(
                "E206", name=name, old=f"a tuple of {len(old)}", new=f"a tuple of {len(value)}"
            )
        items = [
            self.assign(old[k] if old else None, item, (*key, k), f"{name}_{k}", depth, joins)
            for k, item in enumerate(value)
        ]
        made = TupleSlot(tuple(items), type_of(value))
        kept = isinstance(slot, TupleSlot) and slot.cls is made.cls and _all_same(old, made.items)
        return slot if kept else made

    def _assign_record(
        self, slot: Any, record: Record, key: Key, name: str, depth: int, joins: bool
    ) -> Any:
        if isinstance(slot, ComptimeSlot) and isinstance(slot.value, record.cls):
            if depth > 0:
                self.learned.records.add(slot.key)  # it began as a constant, but changes
                self.is_stale = True
            slot = None
        if slot is not None and not (isinstance(slot, RecordSlot) and slot.cls is record.cls):
            new = f"a {record.cls.__name__}"
            raise self.error("E206", name=name, old=describe_slot(slot), new=new)
        old: dict[str, Any] = slot.items if slot is not None else {}
        items = {
            n: self.assign(old.get(n), v, (*key, n), f"{name}_{n}", depth, joins)
            for n, v in record.values.items()
        }
        kept = slot is not None and _all_same(tuple(old.values()), tuple(items.values()))
        return slot if kept else RecordSlot(record.cls, items)

    def _assign_view(self, slot: Any, view: TensorRef, key: Key, name: str, depth: int) -> Any:
        parts = (view.offset, *view.shape, *view.strides)
        old: tuple[Any, ...] = ()
        if isinstance(slot, ViewSlot):
            like = slot.like
            if not _same_base(like, view):
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
            return self._read_number(slot)
        if isinstance(slot, Flag):
            return self.b.emit(ops.GET, slot.ref, name=slot.ref.name)
        if isinstance(slot, TupleSlot):
            return make_tuple(slot.cls, [self.read(item) for item in slot.items])
        if isinstance(slot, RecordSlot):
            return Record(slot.cls, {n: self.read(item) for n, item in slot.items.items()})
        if isinstance(slot, ViewSlot):
            return self._read_view(slot)
        return slot.value

    def _read_number(self, slot: NumberSlot) -> Value:
        local = slot.local
        value = self.b.emit(ops.GET, local.ref, name=local.name)
        if not local.typing.is_literal:
            return value
        tree = Held(value, local)
        if element_of(local.type) is f64:
            value = self.b.emit(ops.CAST, value, type=with_element(local.type, f32))
        return self.mark_literal(value, tree)

    def _read_view(self, slot: ViewSlot) -> TensorRef:
        rank = slot.like.rank
        offset, *rest = (self.read(item) for item in slot.items)
        return replace(
            slot.like, offset=offset, shape=tuple(rest[:rank]), strides=tuple(rest[rank:])
        )

    # Where paths meet

    def merge(self, bodies: Bodies, slots: Sequence[Any], key: Key, name: str, depth: int) -> Any:
        """What a name is bound to after branches which bound it to these slots."""
        first = slots[0]
        if all(slot is first for slot in slots):
            return first
        if all(isinstance(slot, NumberSlot) for slot in slots):
            return self._merge_numbers(bodies, slots, key, name, depth)
        if all(_holds_same(first, slot) for slot in slots):
            return first
        different = (slot for slot in slots if slot is not first)
        other = next((slot for slot in different if not _are_alike(first, slot)), None)
        if other is not None:
            return Conflict(first, other)
        items = [
            self.merge(bodies, parts, (*key, k), f"{name}_{k}", depth)
            for k, parts in enumerate(zip(*map(_parts, slots), strict=True))
        ]
        is_whole = all(isinstance(item, SLOTS) for item in items)
        return _with_parts(first, items) if is_whole else Conflict(first, slots[-1])

    def _merge_numbers(
        self, bodies: Bodies, slots: Sequence[Any], key: Key, name: str, depth: int
    ) -> Any:
        values: list[Value] = []
        for body, slot in zip(bodies, slots, strict=True):
            with self.b.reopen(body):
                values.append(self._read_number(slot))
        has_literal = any(self.literal_of(v) is not None for v in values)
        local = self._local(key, name, depth, has_literal, has_literal)
        try:
            self._note_all(local, values)
            self._begin(local, infer(local))
        except NoCommonType:
            return Conflict(slots[0], next(x for x in slots if x.local.type != slots[0].local.type))
        for body, value in zip(bodies, values, strict=True):
            with self.b.reopen(body):
                self._set(local, value)
        return NumberSlot(local)

    def _note_all(self, local: Local, values: list[Value]) -> None:
        """Note what paths assign; without a literal the local has a type of its own."""
        if local.joins:
            for value in values:
                self._note(local, value)
            return
        common = reduce(promote_types, [v.type for v in values if isinstance(v.type, DType | Line)])
        sources = frozenset[Local]().union(*[self.sources(v) for v in values])
        local.typed[Assigned(common, sources)] = None

    def store_back(self, old: Any, new: Any) -> bool:
        """Assign what `new` holds to `old`, whose name it took; False where the types differ."""
        if old is new or _holds_same(old, new):
            return True
        if isinstance(old, NumberSlot) and isinstance(new, NumberSlot):
            return self._store_number(old.local, self._read_number(new))
        if not _are_alike(old, new):
            return False
        pairs = zip(_parts(old), _parts(new), strict=True)
        stored = [self.store_back(a, b) for a, b in pairs]
        return all(stored)

    def _store_number(self, local: Local, value: Value) -> bool:
        if self._update(local, value, -1, False):
            return True
        own = value.type
        assert isinstance(own, DType | Line)
        if self.literal_of(value) is not None or not _takes(local, own):
            return False
        self._note(local, value)
        self._set(local, value)
        return True


def _is_straight(slot: Any, depth: int) -> bool:
    """Whether a slot was declared on the path that an assignment stands on."""
    if isinstance(slot, ComptimeSlot):
        return slot.depth == depth
    depths = [number.local.depth for number in numbers_of(slot)]
    return not depths or max(depths) == depth


def _is_of_kind(slot: Any, value: Any, record: Record | None) -> bool:
    """Whether a slot holds what `value` is, so that it may take it."""
    if isinstance(value, TensorRef):
        return isinstance(slot, ViewSlot) and _same_base(slot.like, value)
    if isinstance(value, (tuple, list)):
        return isinstance(slot, TupleSlot) and len(slot.items) == len(value)  # type: ignore[misc]
    if record is not None:
        held = slot.value if isinstance(slot, ComptimeSlot) else slot
        return getattr(held, "cls", type_of(held)) is record.cls
    is_number_slot = isinstance(value, Value) or is_number(value) or typed_scalar(value)
    return isinstance(slot, NumberSlot if is_number_slot else ComptimeSlot)


def _takes(local: Local, t: DType | Line) -> bool:
    """Whether a local may hold values of `t` without a change of its type."""
    if (local.type, t) == (i64, index):
        return True
    try:
        return promote_types(local.type, t) == local.type
    except NoCommonType:
        return False


def _parts(slot: Any) -> tuple[Any, ...]:
    """The slots that a slot consists of."""
    if isinstance(slot, TupleSlot | ViewSlot):
        return slot.items
    return tuple(slot.items.values()) if isinstance(slot, RecordSlot) else ()


def numbers_of(slot: Any) -> list[NumberSlot]:
    """The numbers in a slot."""
    if isinstance(slot, NumberSlot):
        return [slot]
    return [number for part in _parts(slot) for number in numbers_of(part)]


def _with_parts(slot: Any, items: list[Any]) -> Any:
    if isinstance(slot, RecordSlot):
        return RecordSlot(slot.cls, dict(zip(slot.items, items, strict=True)))
    return replace(slot, items=tuple(items))


def _are_alike(a: Any, b: Any) -> bool:
    """Whether two slots consist of the same parts, which may have different types."""
    if isinstance(a, ViewSlot) and isinstance(b, ViewSlot):
        return _same_base(a.like, b.like) and _same_lines(a.like, b.like)
    if isinstance(a, TupleSlot | RecordSlot) and isinstance(b, TupleSlot | RecordSlot):
        return a.cls is b.cls and len(a.items) == len(b.items)
    return False


def _holds_same(a: Any, b: Any) -> bool:
    """Whether two slots hold one comptime value: the same object, or the same text."""
    if not (isinstance(a, ComptimeSlot) and isinstance(b, ComptimeSlot)):
        return False
    return a.value is b.value or (isinstance(a.value, str) and a.value == b.value)


def _same_base(a: TensorRef, b: TensorRef) -> bool:
    return (a.buffer, a.element, a.rank) == (b.buffer, b.element, b.rank)


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
