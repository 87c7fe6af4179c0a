"""Loop fission: a kernel with barriers becomes a program of its cube, docs/decisions/0003.

Barriers are the barriers of a cube; plane operations those of a plane, inside `planes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.types import Buffer, Space, bool_, element_of, index
from cubepy.passes.emulate_planes import (
    PLANE_OPS,
    lower_plane_op,
    position_of_plane,
    position_of_row,
)
from cubepy.passes.segments import (
    Control,
    Item,
    Program,
    Segment,
    Writer,
    for_all_or_some,
    guarded,
    leave_cube,
    leave_plane,
    load_first,
    region_op,
    store_first,
)
from cubepy.passes.uniformity import Uniform, leaves_divergently

LOOPS = (ops.FOR, ops.LOOP)
_OF_PLANES = PLANE_OPS | {ops.SYNC_PLANE}
_QUIET = (*LOOPS, ops.IF, ops.YIELD, ops.CONTINUE, ops.BREAK)


def needs_fission(kernel: Kernel) -> bool:
    """Whether units of a cube or a plane wait for each other."""
    rows = {op.row for op in kernel.body.walk()}
    several = prod(kernel.cube_dim) > 1
    return several and (ops.SYNC_CUBE in rows or (kernel.plane_dim > 1 and bool(rows & _OF_PLANES)))


def fission(kernel: Kernel) -> Kernel:
    """The kernel as a program of its cube; `check_convergence` found its barriers convergent."""
    units = prod(kernel.cube_dim)
    program = Program(units, -units % kernel.plane_dim, {p.value for p in kernel.params})
    program.constants = {
        op.result: op.attrs["value"] for op in kernel.body.walk() if op.row is ops.CONST
    }
    finder = Finder(kernel, program, "cube")
    if _returns(kernel.body):
        program.active = program.new_array(bool_, "active")
        if not program.padding:  # lanes beyond the cube were never active
            program.everyone = program.new_scalar(bool_, "everyone")
    items = finder.items(kernel.body)
    wrap = partial(_segment, kernel, program)
    body = Writer(program, wrap, partial(leave_cube, program)).write(items)
    start = _all_active(program) if program.active is not None else []
    return replace(kernel, body=Region((), (*program.prologue, *start, *body)))


def _returns(body: Region) -> bool:
    return any(op.row in (ops.RETURN, ops.CHECK) for o in body.ops for op in _inside(o))


def _inside(op: Op) -> list[Op]:
    return [inner for region in op.regions for inner in region.walk()] + (
        [op] if op.row is ops.CHECK else []
    )


def _all_active(program: Program) -> list[Op]:
    """active[k] = k < units, also for the padding of the last plane."""
    assert program.active is not None
    lane, inside = Value(index, "unit"), Value(bool_)
    zero, one, end, units = (Value(index) for _ in range(4))
    numbers = {zero: 0, one: 1, end: program.units + program.padding, units: program.units}
    body = (
        Op(ops.LT, (lane, units), {}, (inside,)),
        Op(ops.STORE, (program.active, lane, inside)),
        Op(ops.CONTINUE),
    )
    constants = [Op(ops.CONST, (), {"type": index, "value": n}, (v,)) for v, n in numbers.items()]
    start = [*constants, Op(ops.FOR, (zero, end, one), {}, (), (Region((lane,), body),))]
    if program.everyone is not None:
        yes = Value(bool_)
        start.append(Op(ops.CONST, (), {"type": bool_, "value": True}, (yes,)))
        start += store_first(program.everyone, yes)
    return start


def _segment(kernel: Kernel, program: Program, body: list[Op]) -> list[Op]:
    """A segment of the cube: a loop over its units or, with barriers of planes, over its planes."""
    if kernel.plane_dim > 1 and any(o.row in _OF_PLANES for op in body for o in _with_inner(op)):
        return _planes(kernel, program, body)
    return _units(program, body)


def _with_inner(op: Op) -> list[Op]:
    return [op, *(inner for region in op.regions for inner in region.walk())]


def _units(program: Program, body: list[Op]) -> list[Op]:
    if program.active is None:
        return [region_op(ops.UNITS, body)]
    asking = guarded(program.active, body)
    if program.everyone is None:
        return [region_op(ops.UNITS, asking)]
    return for_all_or_some(program.everyone, body, asking)


def _planes(kernel: Kernel, program: Program, body: list[Op]) -> list[Op]:
    common = program.common | _defined_outside(body)
    inner = Program(
        program.units, program.padding, common, active=program.active, everyone=program.everyone
    )
    inner.prologue = program.prologue
    inner.blocks = program.blocks
    inner.constants = program.constants
    region = Region((), (*body, Op(ops.YIELD)))
    finder = Finder(replace(kernel, body=region), inner, "plane")
    items = finder.items(region)[:-1]
    leave = partial(leave_plane, inner, kernel.plane_dim)
    statements = Writer(inner, partial(_units, inner), leave).write(items)
    return [region_op(ops.PLANES, [*(leave() if program.active is not None else []), *statements])]


def _defined_outside(body: list[Op]) -> set[Value]:
    inside: set[Value] = set()
    used: set[Value] = set()
    for op in body:
        for o in _with_inner(op):
            used.update(o.operands)
            inside.update(o.results)
            inside.update(a for region in o.regions for a in region.args)
    return used - inside


class Finder:
    """Cuts a kernel at its barriers into items, and decides where each value lives."""

    def __init__(self, kernel: Kernel, program: Program, group: str) -> None:
        self.kernel = kernel
        self.program = program
        self._group = group
        self._uniform = Uniform(kernel, plane=group == "plane", known=program.constants)
        self._barrier_ops = self._ops_around_barriers(kernel.body)
        self._controlling = self._control_dependences(kernel.body)
        self._uniform = Uniform(
            kernel,
            plane=group == "plane",
            known=program.constants,
            private=self._belongs_to_units,
        )
        self.segment = Segment()
        self._items: list[Item] = []
        self._carried: list[tuple[Value | None, ...]] = []
        self._yielded: list[tuple[Value | None, ...]] = []
        self._early: dict[Value, list[Value]] = {}
        """Values that go to the arrays of what a loop carries as soon as they are made."""
        self._kept_early: set[tuple[Value, Value]] = set()

    def items(self, region: Region) -> list[Item]:
        """The items of a region, its terminator included."""
        outer, self._items = self._items, []
        for op in region.ops:
            self._statement(op)
        self.flush()
        found, self._items = self._items, outer
        return found

    def flush(self) -> None:
        """End the open segment."""
        if not self.segment.is_empty:
            self._items.append(self.segment)
        self.segment = Segment()

    def together(self, op: Op) -> None:
        """Append an operation that runs once for all units."""
        self._items.append(op)
        self.program.common.update(op.results)

    def alone(self, op: Op) -> None:
        """Append an operation of each unit to the open segment."""
        self.segment.ops.append(op)
        for result in op.results:
            for place in self._early.get(result, ()):
                self.keep(place, result)
                self._kept_early.add((place, result))
            self.program.homes[result] = self.segment
            self.program.sources[result] = op

    def keep(self, place: Value, value: Value) -> None:
        """Store each unit's value to an array at the end of the open segment."""
        self.segment.keeps.append((place, value))

    # Analysis

    def _is_barrier(self, op: Op) -> bool:
        if self._group == "cube":
            return op.row is ops.SYNC_CUBE
        return op.row in _OF_PLANES

    def _ops_around_barriers(self, body: Region) -> set[Op]:
        around: set[Op] = set()

        def visit(op: Op) -> bool:
            inner = [visit(o) for region in op.regions for o in region.ops]
            if any(inner):
                around.add(op)
            return any(inner) or self._is_barrier(op)

        for op in body.ops:
            visit(op)
        for loop in [op for op in around if op.row in LOOPS]:
            _add_jumping(loop.regions[0], around)
        return around

    def _control_dependences(self, body: Region) -> set[Value]:
        """Uniform values that control flow around a barrier depends on."""
        sources = {v: op for op in body.walk() for v in op.results}
        work = [v for op in self._barrier_ops for v in _control_operands(op)]
        found: set[Value] = set()
        while work:
            value = work.pop()
            if value in found or self._uniform.is_varying(value):
                continue
            found.add(value)
            op = sources.get(value)
            if op is not None:
                work += [v for inner in _with_inner(op) for v in inner.operands]
        return found

    def _belongs_to_units(self, op: Op) -> bool:
        """Whether each unit runs an operation for itself although it may be uniform."""
        if not op.results or op.row.is_pure or op in self._barrier_ops or self._is_barrier(op):
            return False
        return op.row is not ops.ALLOC and self._controlling.isdisjoint(op.results)

    # Statements

    def _statement(self, op: Op) -> None:
        if op.row is ops.SYNC_CUBE and self._group == "cube":
            self.flush()
        elif self._group == "plane" and self._is_barrier(op):
            lower_plane_op(self, op)
        elif op in self._barrier_ops:
            self._control(op)
        elif op.row.is_terminator:
            self._terminator(op)
        elif op.row is ops.ALLOC:
            self._allocate(op)
        elif self._group == "plane" and self._uniform.is_plane_position(op):
            first = position_of_plane(self, op.operands[0])
            self.together(replace_operands(op, (first, op.operands[1])))
        elif self._group == "plane" and self._uniform.is_row_of_planes(op):
            self.together(position_of_row(self, op))
        elif self._is_common(op):
            if not op.row.is_pure:
                self.flush()
            self.together(op)
        elif any(self._controls(v) for v in op.results):
            self._share(op)
        else:
            self.alone(op)

    def _share(self, op: Op) -> None:
        """Run an operation in each unit, and load results that control barriers once for all.

        It has effects of each unit, as a print has, but a result on which units agree.
        """
        own = tuple(Value(v.type, v.name) if self._controls(v) else v for v in op.results)
        self.alone(Op(op.row, op.operands, op.attrs, own, op.regions, op.span))
        shared = [
            (self.program.new_scalar(v.type, v.name or "value"), mine, v)
            for v, mine in zip(op.results, own, strict=True)
            if mine is not v
        ]
        self.segment.shares += [(place, mine) for place, mine, _ in shared]
        self.flush()
        for place, _, value in shared:
            for load in load_first(place, value):
                self.together(load)

    def _controls(self, value: Value) -> bool:
        """Whether control flow around a barrier depends on a value that units agree on."""
        return value in self._controlling and not self._uniform.is_varying(value)

    def _is_common(self, op: Op) -> bool:
        """Pure and uniform; or a uniform load that control flow depends on around a barrier."""
        if not op.results or any(self._uniform.is_varying(v) for v in op.results):
            return False
        if not all(v in self.program.common for v in op.operands):
            return False
        if op.row.is_pure or (op.row is ops.LOAD and op.result in self._controlling):
            return True
        return bool(op.regions) and self._runs_once(op)

    def _runs_once(self, op: Op) -> bool:
        """Whether a branch or loop only computes a control dependence, from uniform values."""
        inner = _with_inner(op)
        inside = {v for o in inner for v in o.results}
        inside |= {v for o in inner for region in o.regions for v in region.args}
        quiet = all(o.row.is_pure or o.row is ops.LOAD or o.row in _QUIET for o in inner)
        common = self.program.common
        return quiet and all(v in inside or v in common for o in inner for v in o.operands)

    def _allocate(self, op: Op) -> None:
        """Shared memory belongs to the cube; local memory gets a block for each unit."""
        if op.attrs["space"] == "shared":
            self.program.prologue.append(op)
            self.program.common.update(op.results)
            return
        size = op.attrs["size"]
        assert isinstance(size, int)
        size = max(size, 1)
        buffer = Value(Buffer(element_of(op.result.type), Space.LOCAL), op.result.name)
        attrs: dict[str, Attr] = {**op.attrs, "size": size * self.program.units}
        self.program.prologue.append(Op(ops.ALLOC, (), attrs, (buffer,), (), op.span))
        self.program.blocks[op.result] = (buffer, size)

    def _control(self, op: Op) -> None:
        common = self.program.common
        divergent = any(v not in common for v in _control_operands(op))
        if divergent or (op.row in LOOPS and leaves_divergently(op.regions[0], self._uniform)):
            raise AssertionError(f"check_convergence let a divergent barrier in {op.row.name} pass")
        if op.row is ops.IF:
            self._branch(op)
        else:
            self._loop(op)

    def _branch(self, op: Op) -> None:
        places = self._places(op.results)
        self.flush()
        self._yielded.append(places)
        bodies = [self.items(region) for region in op.regions]
        self._yielded.pop()
        results = _common_part(op.results, places)
        self._items.append(Control(op, op.operands, (), results, bodies))
        self.program.common.update(results)

    def _loop(self, op: Op) -> None:
        (body,) = op.regions
        counted = 1 if op.row is ops.FOR else 0
        bounds, initial = op.operands[: 3 * counted], op.operands[3 * counted :]
        carried = body.args[counted:]
        places = self._places(carried, op.results)
        for place, value, result in zip(places, initial, op.results, strict=True):
            if place is not None:
                self.keep(place, value)
                self.program.places[result] = place
        self.flush()
        args = (*body.args[:counted], *_common_part(carried, places))
        self.program.common.update(args)
        self._carried.append(places)
        for value, place in _last_uses(body, carried, places):
            self._early.setdefault(value, []).append(place)
        bodies = [self.items(body)]
        self._carried.pop()
        operands = (*bounds, *_common_part(initial, places))
        results = _common_part(op.results, places)
        self._items.append(Control(op, operands, args, results, bodies))
        self.program.common.update(results)

    def _places(
        self, values: tuple[Value, ...], also: tuple[Value, ...] = ()
    ) -> tuple[Value | None, ...]:
        """An array for each value that units do not share; None for the others."""
        found: list[Value | None] = []
        for k, value in enumerate(values):
            pair = (value, *also[k : k + 1])
            varying = any(self._uniform.is_varying(v) for v in pair)
            place = self.program.new_array(value.type, value.name) if varying else None
            if place is not None:
                self.program.places[value] = place
            found.append(place)
        return tuple(found)

    def _terminator(self, op: Op) -> None:
        if op.row is ops.YIELD:
            places = self._yielded[-1] if self._yielded else ()
        elif op.row in (ops.BREAK, ops.CONTINUE):
            places = self._carried[-1]
        else:
            places = ()
        for place, value in zip(places, op.operands, strict=True):
            if place is not None and (place, value) not in self._kept_early:
                self.keep(place, value)
        self.flush()
        self._items.append(replace_operands(op, _common_part(op.operands, places)))


def _last_uses(
    body: Region, carried: tuple[Value, ...], places: tuple[Value | None, ...]
) -> Iterator[tuple[Value, Value]]:
    """What a loop carries on that is made after the last use of what it stands for."""
    made = {v: k for k, op in enumerate(body.ops) for v in op.results}
    last = {v: k for k, op in enumerate(body.ops) for o in _with_inner(op) for v in o.operands}
    if body.terminator.row is not ops.CONTINUE:
        return
    for value, arg, place in zip(body.terminator.operands, carried, places, strict=True):
        if place is not None and made.get(value, -1) >= last.get(arg, 0):
            yield value, place


def _add_jumping(region: Region, around: set[Op]) -> bool:
    """Add the `if`s that hold a jump of the loop around `region`; return whether one does."""
    jumps = False
    for op in region.ops:
        if op.row in (ops.BREAK, ops.CONTINUE):
            jumps = True
        elif op.row is ops.IF:
            inside = [_add_jumping(r, around) for r in op.regions]  # both, not only up to the first
            if any(inside):
                around.add(op)
                jumps = True
    return jumps


def replace_operands(op: Op, operands: tuple[Value, ...]) -> Op:
    """The same operation on other values."""
    return Op(op.row, operands, op.attrs, op.results, op.regions, op.span)


def _control_operands(op: Op) -> tuple[Value, ...]:
    """The operands that decide which way control goes."""
    if op.row is ops.IF:
        return op.operands[:1]
    return op.operands[:3] if op.row is ops.FOR else ()


def _common_part(values: tuple[Value, ...], places: tuple[Value | None, ...]) -> tuple[Value, ...]:
    return tuple(v for v, place in zip(values, places, strict=True) if place is None)
