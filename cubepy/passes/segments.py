"""Segments of a kernel between its barriers, and how they become `units`.

A segment may use values of another one: they are computed again where that is cheap, else kept in
an array with one entry for each unit. `fission` finds the segments; this module writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias

from cubepy.ir import ops
from cubepy.ir.core import Attr, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Line, Space, Type, bool_, element_of, index, width_of
from cubepy.passes.rewrite import copy_op
from cubepy.record import dataclass
from cubepy.span import Span

MAX_RECOMPUTED = 12
"""Operations that are computed again for one value rather than kept in an array."""


@dataclass(eq=False, slots=True)
class Segment:
    """Operations without a barrier; when they are done, `keeps` are stored to arrays of units, and
    `shares`, on which units agree, to scalars."""

    ops: list[Op] = field(default_factory=list[Op])
    keeps: list[tuple[Value, Value]] = field(default_factory=list[tuple[Value, Value]])
    shares: list[tuple[Value, Value]] = field(default_factory=list[tuple[Value, Value]])

    @property
    def is_empty(self) -> bool:
        return not self.ops and not self.keeps and not self.shares

    @property
    def returns(self) -> bool:
        """Whether some unit may return here."""
        regions = [region for op in self.ops for region in op.regions]
        return any(op.row is ops.RETURN for region in regions for op in region.walk())


@dataclass(eq=False, slots=True)
class Control:
    """An `if` or loop around a barrier; it runs once for all units."""

    op: Op
    operands: tuple[Value, ...]
    args: tuple[Value, ...]
    results: tuple[Value, ...]
    bodies: list[list[Item]]


Item: TypeAlias = Segment | Control | Op


@dataclass(eq=False, slots=True)
class Program:
    """What the finder of segments knows, and the arrays that are made on the way.

    `common`: values that all units share. `places`: values that live in arrays from the start.
    `homes`: the segment that defines a value. `blocks`: local memory with a block for each unit.
    """

    units: int
    padding: int
    common: set[Value]
    places: dict[Value, Value] = field(default_factory=dict[Value, Value])
    homes: dict[Value, Segment] = field(default_factory=dict[Value, Segment])
    sources: dict[Value, Op] = field(default_factory=dict[Value, Op])
    blocks: dict[Value, tuple[Value, int]] = field(default_factory=dict[Value, tuple[Value, int]])
    prologue: list[Op] = field(default_factory=list[Op])
    constants: dict[Value, object] = field(default_factory=dict[Value, object])
    active: Value | None = None
    everyone: Value | None = None
    """One bool: whether no unit has returned, so that no unit needs a test of its own."""

    def new_array(self, t: Type, name: str) -> Value:
        """Memory with an entry of type `t` for each unit."""
        buffer = Value(Buffer(element_of(t), Space.LOCAL), f"{name or 'value'}_of_units")
        size = (self.units + self.padding) * width_of(t)
        attrs: dict[str, Attr] = {"type": element_of(t), "size": size, "space": "local"}
        self.prologue.append(Op(ops.ALLOC, (), attrs, (buffer,)))
        return buffer

    def new_scalar(self, t: Type, name: str) -> Value:
        """Memory for one value of type `t` that all units share."""
        buffer = Value(Buffer(element_of(t), Space.LOCAL), name)
        attrs: dict[str, Attr] = {"type": element_of(t), "size": width_of(t), "space": "local"}
        self.prologue.append(Op(ops.ALLOC, (), attrs, (buffer,)))
        return buffer


Finish: TypeAlias = Callable[[list[Op]], list[Op]]


class Writer:
    """Turns items into operations. `wrap` makes the statements of one segment a region op.

    `leave` ends the work of a group none of whose units is active any more: what follows runs once
    for the group, loads included, and may only do so for an active unit.
    """

    def __init__(self, program: Program, wrap: Finish, leave: Callable[[], list[Op]]) -> None:
        self._program = program
        self._wrap = wrap
        self._leave = leave
        self._kept: dict[Segment, dict[Value, Value]] = {}

    def write(self, items: list[Item]) -> list[Op]:
        """The operations that run once for all units."""
        plans = {s: _Plan(self._program, s, self._keep) for s in _segments(items)}
        return self._items(items, plans)

    def _keep(self, value: Value) -> Value:
        """The array that a value of another segment is kept in."""
        home = self._program.homes[value]
        kept = self._kept.setdefault(home, {})
        if value not in kept:
            kept[value] = self._program.new_array(value.type, value.name)
        return kept[value]

    def _items(self, items: list[Item], plans: dict[Segment, _Plan]) -> list[Op]:
        out: list[Op] = []
        for item in items:
            if isinstance(item, Segment):
                kept = [(array, value) for value, array in self._kept.get(item, {}).items()]
                out += self._wrap(plans[item].statements(kept))
                if item.returns and not _ends_kernel(items, item):
                    out += self._leave()
            elif isinstance(item, Control):
                out.append(self._control(item, plans))
            else:
                out.append(item)
        return out

    def _control(self, item: Control, plans: dict[Segment, _Plan]) -> Op:
        bodies = [self._items(body, plans) for body in item.bodies]
        args = item.args
        regions = tuple(Region(args, tuple(body)) for body in bodies)
        return Op(item.op.row, item.operands, item.op.attrs, item.results, regions, item.op.span)


def _ends_kernel(items: list[Item], segment: Segment) -> bool:
    """Whether nothing but the kernel's end follows a segment."""
    after = items[items.index(segment) + 1 :]
    return all(isinstance(item, Op) and item.row is ops.RETURN for item in after) and bool(after)


def _segments(items: list[Item]) -> list[Segment]:
    found: list[Segment] = []
    for item in items:
        if isinstance(item, Segment):
            found.append(item)
        elif isinstance(item, Control):
            found += [s for body in item.bodies for s in _segments(body)]
    return found


class _Plan:
    """One segment: what it reads at its start, and its operations with values replaced."""

    def __init__(self, program: Program, segment: Segment, keep: Callable[[Value], Value]) -> None:
        self._program = program
        self._segment = segment
        self._keep = keep
        self._prefix: list[Op] = []
        self._names: dict[Value, Value] = {}
        self._unit: Value | None = None
        self._inner: set[Value] = set()
        for op in segment.ops:
            self._bring_all(op)
        for _, value in (*segment.keeps, *segment.shares):
            self._bring(value)

    def statements(self, kept: list[tuple[Value, Value]]) -> list[Op]:
        """Reads, the operations, then the stores of what others need."""
        body = [new for op in self._segment.ops for new in self._renamed(op)]
        stores: list[Op] = []
        for array, value in [*self._segment.keeps, *kept]:
            stores += self._store(array, self._names.get(value, value), None)
        for scalar, value in self._segment.shares:
            stores += store_first(scalar, self._names.get(value, value))
        return [*self._prefix, *body, *stores]

    # Bringing values in

    def _bring_all(self, op: Op) -> None:
        for value in op.operands:
            self._bring(value)
        self._inner.update(op.results)
        for region in op.regions:
            self._inner.update(region.args)
            for inner in region.ops:
                self._bring_all(inner)

    def _bring(self, value: Value) -> Value:
        program = self._program
        if value in self._names:
            return self._names[value]
        if value in self._inner or value in program.common or value in program.blocks:
            return value
        place = program.places.get(value)
        if place is None:
            home = program.homes.get(value)
            if home is self._segment or home is None:
                return value
            again = self._again(value)
            if again is not None:
                return again
            place = self._keep(value)
        return self._load(value, place)

    def _again(self, value: Value) -> Value | None:
        """Compute a value again, if few pure operations make it from what is at hand."""
        chain = self._chain(value, {})
        if chain is None:
            return None
        for op in chain:
            operands = tuple(self._bring(v) for v in op.operands)
            result = Value(op.result.type, op.result.name)
            self._prefix.append(Op(op.row, operands, op.attrs, (result,), (), op.span))
            self._names[op.result] = result
        return self._names[value]

    def _chain(self, value: Value, seen: dict[Value, Op]) -> list[Op] | None:
        """The pure operations behind a value in order; None if too many, or one is not pure."""
        program = self._program
        if value in seen or value in self._names or value in program.common:
            return list(seen.values())
        op = program.sources.get(value)
        if op is None or not op.row.is_pure or not op.row.exact or value in program.places:
            return None
        for operand in op.operands:
            if self._chain(operand, seen) is None:
                return None
        seen[value] = op
        return list(seen.values()) if len(seen) <= MAX_RECOMPUTED else None

    # Arrays

    def unit(self) -> Value:
        """The unit's position."""
        if self._unit is None:
            self._unit = Value(index, "unit")
            self._prefix.insert(0, Op(ops.UNIT_POS, (), {"axis": "all"}, (self._unit,)))
        return self._unit

    def _entry(self, width: int, out: list[Op]) -> Value:
        return _scaled(self.unit(), width, out)

    def _load(self, value: Value, place: Value) -> Value:
        result = Value(value.type, value.name)
        entry = self._entry(width_of(value.type), self._prefix)
        attrs: dict[str, Attr] = {"type": value.type}
        self._prefix.append(Op(ops.LOAD, (place, entry), attrs, (result,)))
        self._names[value] = result
        return result

    def _store(self, place: Value, value: Value, span: Span | None) -> list[Op]:
        out: list[Op] = []
        entry = self._entry(width_of(value.type), out)
        return [*out, Op(ops.STORE, (place, entry, value), {}, (), (), span)]

    # Rewriting

    def _renamed(self, op: Op) -> list[Op]:
        operands = tuple(self._names.get(v, v) for v in op.operands)
        if op.row is ops.RETURN and self._program.active is not None:
            return [*self._die(op.span), op]
        before: list[Op] = []
        if operands and operands[0] in self._program.blocks:
            operands = self._in_block(operands, before)
        regions = tuple(
            Region(r.args, tuple(new for inner in r.ops for new in self._renamed(inner)))
            for r in op.regions
        )
        return [*before, Op(op.row, operands, op.attrs, op.results, regions, op.span)]

    def _in_block(self, operands: tuple[Value, ...], out: list[Op]) -> tuple[Value, ...]:
        buffer, size = self._program.blocks[operands[0]]
        start = _scaled(self.unit(), size, out)
        offset = Value(index)
        out.append(Op(ops.ADD, (start, operands[1]), {}, (offset,)))
        return buffer, offset, *operands[2:]

    def _die(self, span: Span | None) -> list[Op]:
        assert self._program.active is not None
        no = Value(bool_)
        constant = Op(ops.CONST, (), {"type": bool_, "value": False}, (no,))
        notes = [constant, *self._store(self._program.active, no, span)]
        if self._program.everyone is not None:
            notes += store_first(self._program.everyone, no, span)
        return notes


def store_first(place: Value, value: Value, span: Span | None = None) -> list[Op]:
    """place[0] = value"""
    zero = Value(index)
    return [
        Op(ops.CONST, (), {"type": index, "value": 0}, (zero,)),
        Op(ops.STORE, (place, zero, value), {}, (), (), span),
    ]


def load_first(place: Value, result: Value) -> list[Op]:
    """result = place[0]"""
    zero = Value(index)
    return [
        Op(ops.CONST, (), {"type": index, "value": 0}, (zero,)),
        Op(ops.LOAD, (place, zero), {"type": result.type}, (result,)),
    ]


def _scaled(position: Value, width: int, out: list[Op]) -> Value:
    """position * width"""
    if width == 1:
        return position
    factor, result = Value(index), Value(index)
    out.append(Op(ops.CONST, (), {"type": index, "value": width}, (factor,)))
    out.append(Op(ops.MUL, (position, factor), {}, (result,)))
    return result


def region_op(row: OpDef, body: list[Op]) -> Op:
    """`units` or `planes` over a body."""
    return Op(row, (), {}, (), (Region((), (*body, Op(ops.YIELD))),))


def for_all_or_some(everyone: Value, body: list[Op], some: list[Op]) -> list[Op]:
    """`body` for all units where none has returned, else a copy of `some`, which tests each.

    LLVM does not vectorise a loop that tests every unit.
    """
    condition = Value(bool_, "everyone")
    copies: dict[Value, Value] = {}
    some = [copy_op(op, copies) for op in some]
    regions = tuple(
        Region((), (region_op(ops.UNITS, ops_), Op(ops.YIELD))) for ops_ in (body, some)
    )
    return [*load_first(everyone, condition), Op(ops.IF, (condition,), {}, (), regions)]


def guarded(active: Value, body: list[Op]) -> list[Op]:
    """The body for units that have not returned."""
    unit, condition = Value(index, "unit"), Value(bool_, "active")
    then = Region((), (*body, Op(ops.YIELD)))
    return [
        Op(ops.UNIT_POS, (), {"axis": "all"}, (unit,)),
        Op(ops.LOAD, (active, unit), {"type": bool_}, (condition,)),
        Op(ops.IF, (condition,), {}, (), (then, Region((), (Op(ops.YIELD),)))),
    ]


def leave_cube(program: Program) -> list[Op]:
    """Return from the cube where all of its units have returned."""
    assert program.active is not None
    zero, units, one, no = (Value(t) for t in (index, index, index, bool_))
    numbers = ((zero, 0), (units, program.units), (one, 1))
    start = [Op(ops.CONST, (), {"type": index, "value": n}, (v,)) for v, n in numbers]
    start.append(Op(ops.CONST, (), {"type": bool_, "value": False}, (no,)))
    unit, sofar, active, either, found = (Value(t) for t in (index, bool_, bool_, bool_, bool_))
    body = (
        Op(ops.LOAD, (program.active, unit), {"type": bool_}, (active,)),
        Op(ops.OR, (sofar, active), {}, (either,)),
        Op(ops.CONTINUE, (either,)),
    )
    count = Op(ops.FOR, (zero, units, one, no), {}, (found,), (Region((unit, sofar), body),))
    return [*start, count, _return_unless(found)]


def leave_plane(program: Program, width: int) -> list[Op]:
    """Return from the plane where all of its units have returned."""
    assert program.active is not None
    line = Line(bool_, width)
    plane, size, base, lanes, found = (Value(t) for t in (index, index, index, line, bool_))
    return [
        Op(ops.PLANE_POS, (), {}, (plane,)),
        Op(ops.CONST, (), {"type": index, "value": width}, (size,)),
        Op(ops.MUL, (plane, size), {}, (base,)),
        Op(ops.LOAD, (program.active, base), {"type": line}, (lanes,)),
        Op(ops.REDUCE_OR, (lanes,), {}, (found,)),
        _return_unless(found),
    ]


def _return_unless(found: Value) -> Op:
    regions = (Region((), (Op(ops.YIELD),)), Region((), (Op(ops.RETURN),)))
    return Op(ops.IF, (found,), {}, (), regions)
