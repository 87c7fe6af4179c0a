"""Predication of units that returned: they still reach barriers, with their active mask off.

On hardware without independent exit a unit that returns would leave others waiting at a barrier. So
`return` (and a failing check) before a barrier only clears the unit's active flag, `active`. What
follows is of five kinds:

- A barrier, and the control flow around one, is reached by all units. An inactive unit contributes
  the identity to a plane operation.
- What such control flow depends on is uniform (the convergence check makes sure), and all units
  compute it. Its loads run where some unit of the group is active, which the group votes on: the
  index is valid for all of them or for none. Loops around barriers end when no unit of the group is
  active.
- A branch around a plane operation that whole planes take, where planes exchange through memory of
  the cube, is run by all units, with those active that take it.
- Units of a cluster stay although their hardware lets them exit, where checks may fail: others may
  access the shared memory of a cube as long as one of its units is there. They go through loops
  around barriers of the cluster to the end.
- All else is predicated: active units do it, and the result is 0 in the others; an inactive unit
  reads and writes nothing. Loops without barriers are left when the unit ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.cuda import BARRIER_TRY_WAIT, CLUSTER_RANK, CLUSTER_SYNC
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Space, bool_, element_of, i32, index
from cubepy.passes.emulate_planes import PLANE_OPS, identity
from cubepy.passes.legalise.capabilities import OF_PLANES, Capabilities, Planes
from cubepy.passes.legalise.check_convergence import control_operands, returns_early
from cubepy.passes.origins import Origins, jumps
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.uniformity import Uniform, leaves_divergently
from cubepy.record import dataclass
from cubepy.span import Span

_LOOPS = (ops.FOR, ops.LOOP)
_JUMPS = (ops.BREAK, ops.CONTINUE)


class _Group(IntEnum):
    """Who goes the same way."""

    UNIT = 0
    PLANE = 1
    CUBE = 2
    CLUSTER = 3


def predicate(kernel: Kernel, target: Capabilities) -> Kernel:
    """The kernel with a flag instead of each `return` that a barrier of other units follows."""
    if prod(kernel.cube_dim) == 1:
        return kernel
    places = _Places(kernel, target)
    leaves_others = places.whole is _Group.CLUSTER or not target.early_exit
    ends_early = leaves_others and returns_early(kernel, places.uniform[places.whole])
    if places.has_barriers and (ends_early or places.has_divergent_branches):
        return _Predicate(places).run(kernel)
    return kernel


def _is_checked_cluster(kernel: Kernel) -> bool:
    """Whether a check may fail in a cluster whose units wait for others at its barriers alone."""
    rows = {op.row for op in kernel.body.walk()}
    return {ops.FAULT, CLUSTER_SYNC} <= rows and BARRIER_TRY_WAIT not in rows


def _differs(op: Op) -> bool:
    """Whether the cubes of a cluster may have different results."""
    if op.row is ops.LOAD:
        buffer = op.operands[0].type
        return isinstance(buffer, Buffer) and buffer.space is not Space.GLOBAL
    return op.row in (ops.CUBE_POS, ops.ABSOLUTE_POS, CLUSTER_RANK)


class _Places:
    """Which operations are barriers or contain one, and which decide on the way to one."""

    def __init__(self, kernel: Kernel, target: Capabilities) -> None:
        self.uniform = {_Group.CUBE: Uniform(kernel)}
        barriers = {ops.SYNC_CUBE: _Group.CUBE}
        self.whole = _Group.CUBE
        """The largest group, whose units end together where all of them return."""
        if _is_checked_cluster(kernel):
            self.whole = barriers[CLUSTER_SYNC] = _Group.CLUSTER
            self.uniform[self.whole] = Uniform(kernel, private=_differs)
        if kernel.plane_dim > 1:
            shuffles = target.planes is Planes.SHUFFLES
            group = _Group.PLANE if shuffles else _Group.CUBE
            barriers |= dict.fromkeys(OF_PLANES, group)
            if shuffles:
                self.uniform[_Group.PLANE] = Uniform(kernel, plane=True)
        self.barriers: dict[OpDef, _Group] = barriers
        self.has_barriers = any(op.row in barriers for op in kernel.body.walk())
        self.has_divergent_branches = any(map(self.is_divergent_branch, kernel.body.walk()))
        self._origins = Origins(kernel)
        self._deciding: set[Op] = set()
        for op in kernel.body.walk():
            if self.contains_barrier(op):
                self._decide(self._choices(op))

    def contains_barrier(self, op: Op) -> bool:
        """Whether a barrier stands in the regions of an operation."""
        return any(o.row in self.barriers for region in op.regions for o in region.walk())

    def is_divergent_branch(self, op: Op) -> bool:
        """Whether only some units of a barrier's group take a branch around it.

        That is so where planes go their own ways, but exchange through memory of the cube.
        """
        return (
            op.row is ops.IF
            and self.contains_barrier(op)
            and self.uniform[_Group.CUBE].is_varying(op.operands[0])
            and _Group.PLANE not in self.uniform
        )

    def decides(self, op: Op) -> bool:
        """Whether the way to some barrier depends on what the operation gives."""
        return op in self._deciding

    def group_of(self, op: Op) -> _Group:
        """The largest group whose units do the operation alike."""
        for group in sorted(self.uniform, reverse=True):
            uniform = self.uniform[group]
            values = control_operands(op) if op.regions else op.operands
            alike = not any(uniform.is_varying(v) for v in values)
            leaves = op.row in _LOOPS and leaves_divergently(op.regions[0], uniform)
            if alike and not leaves:
                return group
        return _Group.UNIT

    def _choices(self, op: Op) -> Iterator[Value]:
        """What decides whether, and how often, the regions of an operation run."""
        yield from control_operands(op)
        if op.row in _LOOPS:
            for inner, leaves in _branches(op.regions[0]):
                if leaves:
                    self._deciding.add(inner)
                    yield inner.operands[0]

    def _decide(self, values: Iterable[Value]) -> None:
        seen: set[Value] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            op = self._origins.owner(value)
            if value in seen or op is None:
                continue
            seen.add(value)
            self._deciding.add(op)
            if op.regions:
                waiting += self._choices(op)
            waiting += self._origins.of(value)


def _branches(region: Region) -> Iterator[tuple[Op, bool]]:
    """The `if`s of a loop's body, and whether such a jump is in them."""
    for op in region.ops:
        if op.row is ops.IF:
            yield op, any(True for inner in op.regions for _ in jumps(inner))
            for inner in op.regions:
                yield from _branches(inner)


def _walk(op: Op) -> Iterator[Op]:
    for region in op.regions:
        yield from region.walk()


class _Predicate(Rewriter):
    def __init__(self, places: _Places) -> None:
        super().__init__()
        self._places = places
        self._active: Value | None = None
        """The flag; None where the unit is known to be active."""
        self._group = places.whole
        """Who reaches the present region together."""
        self._loop: _Loop | None = None
        self._box = Value(Buffer(i32, Space.SHARED), "active")

    def run(self, kernel: Kernel) -> Kernel:
        """The rewritten kernel; the box in which a cube votes stands at its head."""
        self._plane_dim = kernel.plane_dim
        body = self._block(kernel.body.ops, ())
        if any(self._box in op.operands for o in body for op in (o, *_walk(o))):
            attrs: dict[str, Attr] = {"type": i32, "size": 1, "space": "shared"}
            body = [Op(ops.ALLOC, (), attrs, (self._box,)), *body]
        return replace(kernel, body=Region((), tuple(body)))

    # Blocks

    def _block(
        self, block: Sequence[Op], end: tuple[Op, ...], head: Callable[[], None] | None = None
    ) -> list[Op]:
        """The operations of a block; `end`, which may use their values, comes behind them."""
        outer, self.out = self.out, []
        if head is not None:
            head()
        k = 0
        while k < len(block):
            count = self._private_run(block[k:])
            if count:
                self._guarded(block[k : k + count], (*block[k + count :], *end))
            else:
                self._op(block[k])
                self._leave_loop()
            k += max(count, 1)
        built, self.out = self.out, outer
        return built

    def _private_run(self, block: Sequence[Op]) -> int:
        """How many operations at the head of the block only active units do."""
        if self._active is None or not self._is_private(block[0]):
            return 0
        count = 1
        while count < len(block) and self._may_follow(block[count]):
            count += 1
        while self._is_pure(block[count - 1]):
            count -= 1
        return count

    def _is_private(self, op: Op) -> bool:
        """Whether only active units may do it."""
        is_free = op.row.is_terminator or op.row is ops.ALLOC or self._is_pure(op)
        return not is_free and self._group_of(op) is _Group.UNIT

    def _may_follow(self, op: Op) -> bool:
        return self._is_private(op) or (self._is_pure(op) and not self._places.decides(op))

    def _is_pure(self, op: Op) -> bool:
        is_other = op.row is ops.ALLOC or op.row in self._places.barriers
        return op.row.is_pure and not op.regions and not is_other

    def _group_of(self, op: Op) -> _Group:
        """Who does the operation together."""
        places = self._places
        if op.row in places.barriers:
            return places.barriers[op.row]
        if places.is_divergent_branch(op):
            return self._group  # all units run it, see `_flatten`
        if op.regions:
            ends_all = self._active is None and op.row is ops.IF
            together = ends_all or places.contains_barrier(op) or places.decides(op)
        else:
            together = op.row is ops.LOAD and not _is_local(op) and places.decides(op)
        return min(self._group, places.group_of(op)) if together else _Group.UNIT

    def _guarded(self, block: Sequence[Op], later: tuple[Op, ...]) -> None:
        """`if active {block} else {zeros}`."""
        flag, group = self._active, self._group
        assert flag is not None
        self._active, self._group = None, _Group.UNIT
        inner = self._block(block, later)
        used = {v for op in later for o in (op, *_walk(op)) for v in o.operands}
        old = tuple([v for op in block for v in op.results if v in used])
        values = [*self.values(old), *([] if self._active is None else [self._active])]
        results = self._branch(flag, inner, values, block[0].span)
        self.replaced.update(zip(old, results, strict=False))
        self._active, self._group = flag if self._active is None else results[-1], group

    def _branch(
        self, flag: Value, inner: list[Op], values: Sequence[Value], span: Span | None
    ) -> tuple[Value, ...]:
        """`if flag {inner; yield values} else {yield zeros}`; gives the results."""
        results = tuple([Value(v.type, v.name) for v in values])
        then = Region((), (*inner, Op(ops.YIELD, tuple(values))))
        outer, self.out = self.out, []
        zeros = self._zeros(values)
        otherwise = Region((), (*self.out, Op(ops.YIELD, zeros)))
        self.out = outer
        self.out.append(Op(ops.IF, (flag,), {}, results, (then, otherwise), span))
        return results

    def _zeros(self, like: Sequence[Value]) -> tuple[Value, ...]:
        return tuple([self.emit_const(v.type, 0) for v in like])

    # Operations

    def _op(self, op: Op) -> None:
        if op.row in self._places.barriers:
            self._arrive(op)
        elif self._places.is_divergent_branch(op):
            self._flatten(op)
        elif op.row is ops.IF:
            self._if(op)
        elif op.row in _LOOPS:
            self._repeat(op)
        elif op.row in _JUMPS:
            self.out.append(self._jump(op.row, self.values(op.operands), op.span))
        elif op.row is ops.LOAD and self._active is not None:
            self._load(op)
        else:
            self.out.append(self.renew(op))

    def _arrive(self, op: Op) -> None:
        """Units that are not active give the identity; where they have an index it may be wrong."""
        if self._active is None:
            self.out.append(self.renew(op))
        elif op.row not in PLANE_OPS:
            given = [self._index_or_zero(v) for v in self.values(op.operands)]
            self.out.append(Op(op.row, tuple(given), op.attrs, op.results, (), op.span))
        elif op.row is ops.PLANE_ELECT:
            self.replaced[op.result] = self._elect(self._active)
        else:
            value, *rest = self.values(op.operands)
            nothing = self.emit_const(value.type, identity(op.row, element_of(value.type)))
            given = self.emit(ops.SELECT, (self._active, value, nothing))
            self.out.append(Op(op.row, (given, *rest), op.attrs, op.results, (), op.span))

    def _index_or_zero(self, value: Value) -> Value:
        """What an instruction of the plane takes from a unit that may not be active."""
        if value.type is not index or self._active is None:
            return value
        return self.emit(ops.SELECT, (self._active, value, self.emit_const(index, 0)))

    def _elect(self, active: Value) -> Value:
        """Whether the unit is the first that is active."""
        present = self.emit(ops.PLANE_BALLOT, (active,))
        first = self.emit(ops.CAST, (self.emit(ops.CTZ, (present,)),), {"type": index})
        unit = self.emit(ops.UNIT_POS, (), {"axis": "all"})
        lane = self.emit(ops.MOD, (unit, self.emit_const(index, self._plane_dim)))
        return self.emit(ops.EQ, (lane, first))

    def _load(self, op: Op) -> None:
        """Done by the whole group where one of its units is active; see the module."""
        anyone = self._vote(self._group_of(op))
        inner = [self.renew(op)]
        (found,) = self._branch(anyone, inner, op.results, op.span)
        self.replaced[op.result] = found

    def _vote(self, group: _Group) -> Value:
        """Whether some unit of the group is active: the same in all of them."""
        assert self._active is not None
        if group is _Group.PLANE:
            return self.emit(ops.PLANE_ANY, (self._active,))
        zero, one = self.emit_const(index, 0), self.emit_const(i32, 1)
        unit = self.emit(ops.UNIT_POS, (), {"axis": "all"})
        clear = Op(ops.STORE, (self._box, zero, self.emit_const(i32, 0)))
        self._branch(self.emit(ops.EQ, (unit, zero)), [clear], (), None)
        self.out.append(Op(ops.SYNC_CUBE))
        vote = Op(ops.ATOMIC_OR, (self._box, zero, one), {}, (Value(i32),))
        self._branch(self._active, [vote], (), None)
        self.out.append(Op(ops.SYNC_CUBE))
        count = self.emit(ops.LOAD, (self._box, zero), {"type": i32})
        self.out.append(Op(ops.SYNC_CUBE))
        return self.emit(ops.NE, (count, self.emit_const(i32, 0)))

    # Control flow

    def _if(self, op: Op) -> None:
        """The flag becomes a result, if a branch changes it."""
        group, before = self._group, self._active
        self._group = self._group_of(op)
        built: list[tuple[list[Op], Op, Value | None]] = []
        for region in op.regions:
            self._active = before
            inner = self._block(region.ops[:-1], region.ops[-1:])
            built.append(self._ended(inner, region.terminator, op.results))
        yields = [after for _, end, after in built if end.row is ops.YIELD]
        changes = any(after is not before for after in yields)
        regions = tuple([self._closed(*branch, changes) for branch in built])
        flag = Value(bool_, "active")
        results = (*op.results, flag) if changes else op.results
        operands = self.values(op.operands)
        self.out.append(Op(op.row, operands, op.attrs, results, regions, op.span))
        self._group, self._active = group, flag if changes else before

    def _active_or(self, known: Value) -> Value:
        """The active flag, or what else is known to be it."""
        return known if self._active is None else self._active

    def _flatten(self, op: Op) -> None:
        """One branch after the other, by all units; those that take it are the active ones."""
        outer, (condition,) = self._active, self.values(op.operands)
        chosen: list[tuple[Value, ...]] = []
        flags: list[Value] = []
        ends = False
        for region, row in zip(op.regions, (None, ops.NOT), strict=True):
            taken = condition if row is None else self.emit(row, (condition,))
            self._active = taken if outer is None else self.emit(ops.AND, (outer, taken))
            self.out += self._block(region.ops[:-1], region.ops[-1:])
            end = region.terminator
            if end.row is ops.RETURN:
                self._active = self.emit_const(bool_, False)
                chosen.append(self._zeros(op.results))
            else:
                chosen.append(self.values(end.operands))
            ends = ends or any(o.row is ops.RETURN for o in region.walk())
            flags.append(self._active_or(taken))
        for old, yes, no in zip(op.results, *chosen, strict=True):
            self.replaced[old] = self.emit(ops.SELECT, (condition, yes, no), {}, op.span, old.name)
        self._active = self.emit(ops.OR, flags) if ends else outer

    def _ended(
        self, inner: list[Op], end: Op, like: Sequence[Value]
    ) -> tuple[list[Op], Op, Value | None]:
        """A branch, its end, and the flag there; a `return` of some becomes `yield zeros`."""
        outer, self.out = self.out, inner
        operands = self.values(end.operands)
        if end.row in _JUMPS:
            end = self._jump(end.row, operands, end.span)
        elif end.row is ops.RETURN and self._group is not self._places.whole:
            self._active = self.emit_const(bool_, False)
            end = Op(ops.YIELD, self._zeros(like), span=end.span)
        else:
            end = Op(end.row, operands, span=end.span)
        self.out = outer
        return inner, end, self._active

    def _closed(self, inner: list[Op], end: Op, after: Value | None, changes: bool) -> Region:
        if end.row is ops.YIELD and changes:
            outer, self.out = self.out, inner
            flag = after if after is not None else self.emit_const(bool_, True)
            self.out = outer
            end = Op(end.row, (*end.operands, flag), span=end.span)
        return Region((), (*inner, end))

    def _repeat(self, op: Op) -> None:
        """The flag is carried, if it may change inside."""
        outer = self._group, self._loop, self._active
        (body,) = op.regions
        changes = any(inner.row is ops.RETURN for inner in body.walk())
        initial = self._flag() if changes else None
        flag, last = Value(bool_, "active"), Value(bool_, "active")
        self._group = self._group_of(op)
        carried = body.args[1:] if op.row is ops.FOR else body.args
        self._loop = _Loop(carried, changes, self._group)
        if changes:
            self._active = None if self._group is _Group.UNIT else flag
        inner = self._block(body.ops[:-1], body.ops[-1:], self._stop_with_the_last)
        end = self._loop_end(inner, body.terminator)
        extra = (flag,) if changes else ()
        region = Region((*body.args, *extra), (*inner, end))
        operands = (*self.values(op.operands), *([] if initial is None else [initial]))
        results = (*op.results, last) if changes else op.results
        self.out.append(Op(op.row, operands, op.attrs, results, (region,), op.span))
        self._group, self._loop, self._active = outer
        self._active = last if changes else self._active

    def _loop_end(self, inner: list[Op], end: Op) -> Op:
        outer, self.out = self.out, inner
        if end.row is ops.RETURN and self._group is not self._places.whole:
            assert self._loop is not None
            self._active = self.emit_const(bool_, False)
            end = self._jump(ops.BREAK, self._loop.carried, end.span)
        elif end.row in _JUMPS:
            end = self._jump(end.row, self.values(end.operands), end.span)
        self.out = outer
        return end

    def _stop_with_the_last(self) -> None:
        """At the head of a loop around barriers: end it where no unit of the group is active.

        The cubes of a cluster cannot vote, and stay until it ends.
        """
        if self._active is None or self._group in (_Group.UNIT, _Group.CLUSTER):
            return
        self._unless(self._vote(self._group))

    def _leave_loop(self) -> None:
        """End a loop of single units with the unit."""
        if self._active is None or self._loop is None or self._loop.group is not _Group.UNIT:
            return
        self._unless(self._active)
        self._active = None

    def _unless(self, condition: Value) -> None:
        """Go on with the iteration if so, else break."""
        assert self._loop is not None
        outer, self.out = self.out, []
        leave = self._jump(ops.BREAK, self._loop.carried, None)
        otherwise = Region((), (*self.out, leave))
        self.out = outer
        then = Region((), (Op(ops.YIELD),))
        self.out.append(Op(ops.IF, (condition,), {}, (), (then, otherwise)))

    def _jump(self, row: OpDef, operands: Sequence[Value], span: Span | None) -> Op:
        assert self._loop is not None
        flag = (self._flag(),) if self._loop.changes else ()
        return Op(row, (*operands, *flag), span=span)

    def _flag(self) -> Value:
        return self._active if self._active is not None else self.emit_const(bool_, True)


@dataclass(frozen=True, slots=True)
class _Loop:
    """The loop around: what it carries, whether the flag too, and who goes through it together."""

    carried: tuple[Value, ...]
    changes: bool
    group: _Group


def _is_local(op: Op) -> bool:
    buffer = op.operands[0].type
    return isinstance(buffer, Buffer) and buffer.space is Space.LOCAL
