"""Units that end before others of their cube stay with them, and do nothing more.

Barriers and plane operations of OpenCL and Metal want every unit. So a unit that returns, or whose
check fails, only gives up its flag, `alive`. What follows is of three kinds:

- A meeting, and the control flow around one, is reached by all units. A unit that is not alive
  gives the identity to plane operations.
- What decides on that control flow is the same in all units of the group (`check_meetings` has made
  sure), and all compute it. Its loads are done where some unit of the group is alive, which that
  group votes on: the index is good for all of them or for none. Loops around meetings end with
  their last unit.
- All else is done by units that are alive, and is 0 in the others: nothing is read or written by a
  unit that ended. Loops without meetings are left when the unit ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import prod

from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.meetings import OF_PLANES, leaves_early, steers
from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Space, bool_, element_of, i32, index
from cubepy.passes.meetings import PLANE_OPS, identity
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.uniformity import Uniform, leaves_divergently
from cubepy.span import Span

_LOOPS = (ops.FOR, ops.LOOP)
_JUMPS = (ops.BREAK, ops.CONTINUE)


class _Group(IntEnum):
    """Who goes the same way."""

    UNIT = 0
    PLANE = 1
    CUBE = 2


def stay(kernel: Kernel, dialect: Dialect) -> Kernel:
    """The kernel with a flag instead of each `return` before which others meet."""
    if dialect.planes_exit or prod(kernel.cube_dim) == 1:
        return kernel
    places = _Places(kernel, dialect)
    if not places.has_meetings or not leaves_early(kernel, places.uniform[_Group.CUBE]):
        return kernel
    return _Staying(places).run(kernel)


class _Places:
    """Which operations are meetings or contain one, and which decide on the way to one."""

    def __init__(self, kernel: Kernel, dialect: Dialect) -> None:
        self.uniform = {_Group.CUBE: Uniform(kernel)}
        meetings = {ops.SYNC_CUBE: _Group.CUBE}
        if kernel.plane_dim > 1:
            group = _Group.PLANE if dialect.planes else _Group.CUBE
            meetings |= dict.fromkeys(OF_PLANES, group)
            if dialect.planes:
                self.uniform[_Group.PLANE] = Uniform(kernel, plane=True)
        self.meetings: dict[OpDef, _Group] = meetings
        self.has_meetings = any(op.row in meetings for op in kernel.body.walk())
        self._owners: dict[Value, Op] = {}
        for op in kernel.body.walk():
            defined = (*op.results, *(arg for region in op.regions for arg in region.args))
            self._owners |= dict.fromkeys(defined, op)
        self._deciding: set[Op] = set()
        for op in kernel.body.walk():
            if self.contains_meeting(op):
                self._decide(self._choices(op))

    def contains_meeting(self, op: Op) -> bool:
        """Whether units meet somewhere in the regions of an operation."""
        return any(o.row in self.meetings for region in op.regions for o in region.walk())

    def decides(self, op: Op) -> bool:
        """Whether the way to some meeting depends on what the operation gives."""
        return op in self._deciding

    def group_of(self, op: Op) -> _Group:
        """The largest group whose units do the operation alike."""
        for group in sorted(self.uniform, reverse=True):
            uniform = self.uniform[group]
            values = steers(op) if op.regions else op.operands
            alike = not any(uniform.is_varying(v) for v in values)
            leaves = op.row in _LOOPS and leaves_divergently(op.regions[0], uniform)
            if alike and not leaves:
                return group
        return _Group.UNIT

    def _choices(self, op: Op) -> Iterator[Value]:
        """What decides whether, and how often, the regions of an operation run."""
        yield from steers(op)
        if op.row in _LOOPS:
            for inner, jumps in _branches(op.regions[0]):
                if jumps:
                    self._deciding.add(inner)
                    yield inner.operands[0]

    def _decide(self, values: Iterable[Value]) -> None:
        seen: set[Value] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in seen or value not in self._owners:
                continue
            seen.add(value)
            op = self._owners[value]
            self._deciding.add(op)
            waiting += self._origins(op, value)

    def _origins(self, op: Op, value: Value) -> Iterator[Value]:
        """The values of which an operation makes a result, or an argument of its region."""
        if not op.regions:
            yield from op.operands
            return
        yield from self._choices(op)
        if op.row is ops.IF:
            k = op.results.index(value)
            ends = (region.terminator for region in op.regions)
            yield from (end.operands[k] for end in ends if end.row is ops.YIELD)
            return
        (body,) = op.regions
        carried = body.args[1:] if op.row is ops.FOR else body.args
        if value in body.args and value not in carried:
            return
        k = (op.results if value in op.results else carried).index(value)
        yield op.operands[len(op.operands) - len(carried) + k]
        yield from (jump.operands[k] for jump in _jumps(body))


def _jumps(region: Region) -> Iterator[Op]:
    """The jumps of the innermost loop around a region."""
    for op in region.ops:
        if op.row in _JUMPS:
            yield op
        elif op.row is ops.IF:
            for inner in op.regions:
                yield from _jumps(inner)


def _branches(region: Region) -> Iterator[tuple[Op, bool]]:
    """The `if`s of a loop's body, and whether such a jump is in them."""
    for op in region.ops:
        if op.row is ops.IF:
            yield op, any(True for inner in op.regions for _ in _jumps(inner))
            for inner in op.regions:
                yield from _branches(inner)


def _walk(op: Op) -> Iterator[Op]:
    for region in op.regions:
        yield from region.walk()


class _Staying(Rewriter):
    def __init__(self, places: _Places) -> None:
        super().__init__()
        self._places = places
        self._alive: Value | None = None
        """The flag; None where the unit is known to be alive."""
        self._group = _Group.CUBE
        """Who reaches the present region together."""
        self._loop: _Loop | None = None
        self._box = Value(Buffer(i32, Space.SHARED), "alive")

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
        """How many operations at the head of the block only living units do."""
        if self._alive is None or not self._is_private(block[0]):
            return 0
        count = 1
        while count < len(block) and self._may_follow(block[count]):
            count += 1
        while self._is_pure(block[count - 1]):
            count -= 1
        return count

    def _is_private(self, op: Op) -> bool:
        """Whether only living units may do it."""
        is_free = op.row.is_terminator or op.row is ops.ALLOC or self._is_pure(op)
        return not is_free and self._group_of(op) is _Group.UNIT

    def _may_follow(self, op: Op) -> bool:
        return self._is_private(op) or (self._is_pure(op) and not self._places.decides(op))

    def _is_pure(self, op: Op) -> bool:
        is_other = op.row is ops.ALLOC or op.row in self._places.meetings
        return op.row.is_pure and not op.regions and not is_other

    def _group_of(self, op: Op) -> _Group:
        """Who does the operation together."""
        places = self._places
        if op.row in places.meetings:
            return places.meetings[op.row]
        if op.regions:
            ends_all = self._alive is None and op.row is ops.IF
            together = ends_all or places.contains_meeting(op) or places.decides(op)
        else:
            together = op.row is ops.LOAD and not _is_local(op) and places.decides(op)
        return min(self._group, places.group_of(op)) if together else _Group.UNIT

    def _guarded(self, block: Sequence[Op], later: tuple[Op, ...]) -> None:
        """`if alive {block} else {zeros}`."""
        flag, group = self._alive, self._group
        assert flag is not None
        self._alive, self._group = None, _Group.UNIT
        inner = self._block(block, later)
        used = {v for op in later for o in (op, *_walk(op)) for v in o.operands}
        old = tuple([v for op in block for v in op.results if v in used])
        values = [*self.values(old), *([] if self._alive is None else [self._alive])]
        results = self._branch(flag, inner, values, block[0].span)
        self.replaced.update(zip(old, results, strict=False))
        self._alive, self._group = flag if self._alive is None else results[-1], group

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
        if op.row in self._places.meetings:
            self._meet(op)
        elif op.row is ops.IF:
            self._if(op)
        elif op.row in _LOOPS:
            self._repeat(op)
        elif op.row in _JUMPS:
            self.out.append(self._jump(op.row, self.values(op.operands), op.span))
        elif op.row is ops.LOAD and self._alive is not None:
            self._load(op)
        else:
            self.out.append(self.renew(op))

    def _meet(self, op: Op) -> None:
        """Units that are not alive give the identity."""
        if self._alive is None or op.row not in PLANE_OPS:
            self.out.append(self.renew(op))
        elif op.row is ops.PLANE_ELECT:
            self.replaced[op.result] = self._elect(self._alive)
        else:
            value, *rest = self.values(op.operands)
            nothing = self.emit_const(value.type, identity(op.row, element_of(value.type)))
            given = self.emit(ops.SELECT, (self._alive, value, nothing))
            self.out.append(Op(op.row, (given, *rest), op.attrs, op.results, (), op.span))

    def _elect(self, alive: Value) -> Value:
        """Whether the unit is the first that is alive."""
        living = self.emit(ops.PLANE_BALLOT, (alive,))
        first = self.emit(ops.CAST, (self.emit(ops.CTZ, (living,)),), {"type": index})
        unit = self.emit(ops.UNIT_POS, (), {"axis": "all"})
        lane = self.emit(ops.MOD, (unit, self.emit_const(index, self._plane_dim)))
        return self.emit(ops.EQ, (lane, first))

    def _load(self, op: Op) -> None:
        """Done by the whole group where one of its units is alive; see the module."""
        anyone = self._vote(self._group_of(op))
        inner = [self.renew(op)]
        (found,) = self._branch(anyone, inner, op.results, op.span)
        self.replaced[op.result] = found

    def _vote(self, group: _Group) -> Value:
        """Whether some unit of the group is alive: the same in all of them."""
        assert self._alive is not None
        if group is _Group.PLANE:
            return self.emit(ops.PLANE_ANY, (self._alive,))
        zero, one = self.emit_const(index, 0), self.emit_const(i32, 1)
        unit = self.emit(ops.UNIT_POS, (), {"axis": "all"})
        clear = Op(ops.STORE, (self._box, zero, self.emit_const(i32, 0)))
        self._branch(self.emit(ops.EQ, (unit, zero)), [clear], (), None)
        self.out.append(Op(ops.SYNC_CUBE))
        vote = Op(ops.ATOMIC_OR, (self._box, zero, one), {}, (Value(i32),))
        self._branch(self._alive, [vote], (), None)
        self.out.append(Op(ops.SYNC_CUBE))
        count = self.emit(ops.LOAD, (self._box, zero), {"type": i32})
        self.out.append(Op(ops.SYNC_CUBE))
        return self.emit(ops.NE, (count, self.emit_const(i32, 0)))

    # Control flow

    def _if(self, op: Op) -> None:
        """The flag becomes a result, if a branch changes it."""
        group, before = self._group, self._alive
        self._group = self._group_of(op)
        built: list[tuple[list[Op], Op, Value | None]] = []
        for region in op.regions:
            self._alive = before
            inner = self._block(region.ops[:-1], region.ops[-1:])
            built.append(self._ended(inner, region.terminator, op.results))
        yields = [after for _, end, after in built if end.row is ops.YIELD]
        changes = any(after is not before for after in yields)
        regions = tuple([self._closed(*branch, changes) for branch in built])
        flag = Value(bool_, "alive")
        results = (*op.results, flag) if changes else op.results
        operands = self.values(op.operands)
        self.out.append(Op(op.row, operands, op.attrs, results, regions, op.span))
        self._group, self._alive = group, flag if changes else before

    def _ended(
        self, inner: list[Op], end: Op, like: Sequence[Value]
    ) -> tuple[list[Op], Op, Value | None]:
        """A branch, its end, and the flag there; a `return` of some becomes `yield zeros`."""
        outer, self.out = self.out, inner
        operands = self.values(end.operands)
        if end.row in _JUMPS:
            end = self._jump(end.row, operands, end.span)
        elif end.row is ops.RETURN and self._group is not _Group.CUBE:
            self._alive = self.emit_const(bool_, False)
            end = Op(ops.YIELD, self._zeros(like), span=end.span)
        else:
            end = Op(end.row, operands, span=end.span)
        self.out = outer
        return inner, end, self._alive

    def _closed(self, inner: list[Op], end: Op, after: Value | None, changes: bool) -> Region:
        if end.row is ops.YIELD and changes:
            outer, self.out = self.out, inner
            flag = after if after is not None else self.emit_const(bool_, True)
            self.out = outer
            end = Op(end.row, (*end.operands, flag), span=end.span)
        return Region((), (*inner, end))

    def _repeat(self, op: Op) -> None:
        """The flag is carried, if it may change inside."""
        outer = self._group, self._loop, self._alive
        (body,) = op.regions
        changes = any(inner.row is ops.RETURN for inner in body.walk())
        initial = self._flag() if changes else None
        flag, last = Value(bool_, "alive"), Value(bool_, "alive")
        self._group = self._group_of(op)
        carried = body.args[1:] if op.row is ops.FOR else body.args
        self._loop = _Loop(carried, changes, self._group)
        if changes:
            self._alive = None if self._group is _Group.UNIT else flag
        inner = self._block(body.ops[:-1], body.ops[-1:], self._stop_with_the_last)
        end = self._loop_end(inner, body.terminator)
        extra = (flag,) if changes else ()
        region = Region((*body.args, *extra), (*inner, end))
        operands = (*self.values(op.operands), *([] if initial is None else [initial]))
        results = (*op.results, last) if changes else op.results
        self.out.append(Op(op.row, operands, op.attrs, results, (region,), op.span))
        self._group, self._loop, self._alive = outer
        self._alive = last if changes else self._alive

    def _loop_end(self, inner: list[Op], end: Op) -> Op:
        outer, self.out = self.out, inner
        if end.row is ops.RETURN and self._group is not _Group.CUBE:
            assert self._loop is not None
            self._alive = self.emit_const(bool_, False)
            end = self._jump(ops.BREAK, self._loop.carried, end.span)
        elif end.row in _JUMPS:
            end = self._jump(end.row, self.values(end.operands), end.span)
        self.out = outer
        return end

    def _stop_with_the_last(self) -> None:
        """At the head of a loop around meetings: end it where no unit of the group is alive."""
        if self._alive is None or self._group is _Group.UNIT:
            return
        self._unless(self._vote(self._group))

    def _leave_loop(self) -> None:
        """End a loop of single units with the unit."""
        if self._alive is None or self._loop is None or self._loop.group is not _Group.UNIT:
            return
        self._unless(self._alive)
        self._alive = None

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
        return self._alive if self._alive is not None else self.emit_const(bool_, True)


@dataclass(frozen=True, slots=True)
class _Loop:
    """The loop around: what it carries, whether the flag too, and who goes through it together."""

    carried: tuple[Value, ...]
    changes: bool
    group: _Group


def _is_local(op: Op) -> bool:
    buffer = op.operands[0].type
    return isinstance(buffer, Buffer) and buffer.space is Space.LOCAL
