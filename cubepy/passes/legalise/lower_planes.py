"""Plane operations on what targets have: shuffles, votes and ballots, or memory of the cube.

Reductions are the butterfly that the op table documents, so that all devices round alike; where
lanes are missing (units that returned, or a last plane that is not full) or there are no shuffles,
each unit gathers all lanes and combines them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef, Scan
from cubepy.ir.types import Type, bool_, element_of, index, u64, width_of
from cubepy.passes.emulate_planes import PLANE_OPS, identity, lower_planes_of_one, split_lines
from cubepy.passes.legalise.capabilities import OF_PLANES, Capabilities, Planes
from cubepy.passes.legalise.check_convergence import returns_early
from cubepy.passes.legalise.check_target import refusal
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.uniformity import Uniform
from cubepy.span import Span


def fit_planes(kernel: Kernel, target: Capabilities) -> Capabilities:
    """The target, without shuffles where planes of the kernel go on in the next row of units."""
    x, y, z = kernel.cube_dim
    if not target.planes_in_rows or y * z == 1 or x % target.plane_dim == 0:
        return target
    return replace(target, planes=Planes.MEMORY)


def lower_planes(kernel: Kernel, target: Capabilities) -> Kernel:
    """The kernel with the shuffles and votes of the target, or with none.

    Where loops run the cube, fission lowers planes of more than one unit; see `emulate_planes`.
    """
    used = {op.row for op in kernel.body.walk()}
    if not used & OF_PLANES:
        return kernel
    if kernel.plane_dim == 1:
        return _PlanesOfOne().run(kernel)
    if target.planes is Planes.LOOPS:
        return split_lines(kernel)
    shuffles = target.planes is Planes.SHUFFLES
    if shuffles and kernel.plane_dim != target.plane_dim:
        culprit = next(op for op in kernel.body.walk() if op.row in OF_PLANES)
        reason = f"its planes have {target.plane_dim} units, not {kernel.plane_dim}"
        raise refusal(culprit, target.target, reason, "leave plane_dim to the target, or make it 1")
    if shuffles:
        return _Shuffling(kernel, target.shuffles_keep).run(kernel)
    return _Exchanging(kernel).run(kernel)


class _PlanesOfOne(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is ops.SYNC_PLANE:
            return
        lowered = lower_planes_of_one(self.renew(op)) if op.row in PLANE_OPS else None
        if lowered is None:
            self.out.append(self.renew(op))
        elif isinstance(lowered, Op):
            self.out.append(lowered)
        else:
            self.replaced[op.result] = lowered


class _Lowering(Rewriter):
    """What shuffling and exchanging share: how results are made of the values of lanes."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.dim = kernel.plane_dim
        self.units = prod(kernel.cube_dim)
        self.is_partial = self.units % self.dim != 0
        self.exits = returns_early(kernel, Uniform(kernel, plane=True))
        self.span: Span | None = None

    @property
    def misses_lanes(self) -> bool:
        """Whether some lane may have no unit to give a value."""
        return self.is_partial or self.exits

    # Two ways to get at the values of other lanes

    def leave(self, value: Value) -> Value:
        """Make the own value known to the plane; gives what `take` needs."""
        raise NotImplementedError

    def take(self, left: Value, lane: Value, t: Type) -> Value:
        """The value of a lane that exists."""
        raise NotImplementedError

    def end(self) -> None:
        """All have taken what they need."""

    def exists(self, lane: Value) -> Value:
        """Whether the lane has a unit that gives a value."""
        raise NotImplementedError

    # Building

    def e(self, row: OpDef, *operands: Value, **attrs: Attr) -> Value:
        return self.emit(row, operands, attrs, self.span)

    def index(self, number: int) -> Value:
        return self.emit_const(index, number, self.span)

    def unit(self) -> Value:
        return self.e(ops.UNIT_POS, axis="all")

    def lane(self) -> Value:
        return self.e(ops.MOD, self.unit(), self.index(self.dim))

    def identity(self, op: Op, t: Type) -> Value:
        return self.emit_const(t, identity(op.row, element_of(t)), self.span)

    def given(self, op: Op, left: Value, lane: Value, t: Type) -> Value:
        """The value of a lane, the identity where it has no unit."""
        value = self.take(left, lane, t)
        if not self.misses_lanes:
            return value
        return self.e(ops.SELECT, self.exists(lane), value, self.identity(op, t))

    # Operations

    def visit(self, op: Op) -> None:
        handler = _HANDLERS.get(op.row)
        self.span = op.span
        if handler is None:
            self.out.append(self.renew(op))
        else:
            self.replaced[op.result] = handler(self, op)

    def reduce(self, op: Op) -> Value:
        """Lanes k and k + half are combined until one is left: what the butterfly gives."""
        t, row = op.result.type, _step(op)
        left = self.leave(self.value(op.operands[0]))
        values = [self.given(op, left, self.index(k), t) for k in range(self.dim)]
        self.end()
        while len(values) > 1:
            half = len(values) // 2
            values = [self.e(row, values[k], values[k + half]) for k in range(half)]
        return values[0]

    def scan(self, op: Op) -> Value:
        """One lane after the other, from lane 0 upwards."""
        row, inclusive = _step(op), op.row.scan is Scan.INCLUSIVE
        t = op.result.type
        left, own, start = self.leave(self.value(op.operands[0])), self.lane(), self.identity(op, t)

        def step(lane: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
            so_far, found = carried
            total = self.e(row, so_far, self.given(op, left, lane, t))
            mine = self.e(ops.EQ, lane, own)
            return total, self.e(ops.SELECT, mine, total if inclusive else so_far, found)

        results = self.loop((start, start), step)
        self.end()
        return results[1]

    def loop(
        self,
        initial: tuple[Value, ...],
        step: Callable[[Value, tuple[Value, ...]], tuple[Value, ...]],
    ) -> tuple[Value, ...]:
        """A loop over the lanes that carries values."""
        bounds = (self.index(0), self.index(self.dim), self.index(1))
        lane, carried = Value(index, "lane"), tuple(Value(v.type) for v in initial)
        outer, self.out = self.out, []
        following = step(lane, carried)
        body = Region((lane, *carried), (*self.out, Op(ops.CONTINUE, following)))
        self.out = outer
        results = tuple(Value(v.type) for v in initial)
        self.out.append(Op(ops.FOR, (*bounds, *initial), {}, results, (body,), self.span))
        return results

    def vote(self, op: Op) -> Value:
        """All, any, or a bit for each lane, one lane after the other."""
        row, t = op.row.step or ops.OR, op.result.type  # a ballot joins bits
        left = self.leave(self.value(op.operands[0]))

        def step(lane: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
            value = self.given(op, left, lane, bool_)
            if t is u64:
                one, zero = (self.emit_const(u64, n) for n in (1, 0))
                bit = self.e(ops.SHL, one, self.e(ops.CAST, lane, type=u64))
                value = self.e(ops.SELECT, value, bit, zero)
            return (self.e(row, carried[0], value),)

        (result,) = self.loop((self.identity(op, t),), step)
        self.end()
        return result

    def elect(self, op: Op) -> Value:
        """The first unit that has not returned."""
        return self.e(ops.EQ, self.lane(), self.index(0))

    def shuffle(self, op: Op) -> Value:
        """The value of a lane; the own one where there is none."""
        value, chosen = self.values(op.operands)
        own = self.lane()
        row = _RELATIVE.get(op.row)
        lane = chosen if row is None else self.e(row, own, chosen)
        inside = self.e(
            ops.AND,
            self.e(ops.GE, lane, self.index(0)),
            self.e(ops.LT, lane, self.index(self.dim)),
        )
        if self.is_partial:
            there = self.e(ops.ADD, self.e(ops.SUB, self.unit(), own), lane)
            inside = self.e(ops.AND, inside, self.e(ops.LT, there, self.index(self.units)))
        left = self.leave(value)
        taken = self.given(op, left, self.e(ops.SELECT, inside, lane, own), value.type)
        self.end()
        return self.e(ops.SELECT, inside, taken, value)


_RELATIVE: dict[OpDef, OpDef] = {
    ops.PLANE_SHUFFLE_XOR: ops.XOR,
    ops.PLANE_SHUFFLE_UP: ops.SUB,
    ops.PLANE_SHUFFLE_DOWN: ops.ADD,
}
_VOTES = (ops.PLANE_ALL, ops.PLANE_ANY, ops.PLANE_BALLOT)


def _step(op: Op) -> OpDef:
    assert op.row.step is not None
    return op.row.step


def _handler(row: OpDef) -> Callable[[_Lowering, Op], Value]:
    if row in _VOTES:
        return lambda lowering, op: lowering.vote(op)
    if row.scan is not None:
        return lambda lowering, op: lowering.scan(op)
    if row.step is not None:
        return lambda lowering, op: lowering.reduce(op)
    if row is ops.PLANE_ELECT:
        return lambda lowering, op: lowering.elect(op)
    return lambda lowering, op: lowering.shuffle(op)


_HANDLERS: dict[OpDef, Callable[[_Lowering, Op], Value]] = {
    row: _handler(row) for row in ops.PLANE_ROWS
}


class _Shuffling(_Lowering):
    """With the target's shuffles and ballots."""

    def __init__(self, kernel: Kernel, keeps: bool) -> None:
        super().__init__(kernel)
        self._keeps = keeps
        self._constants = {
            op.result: op.attrs["value"] for op in kernel.body.walk() if op.row is ops.CONST
        }

    def leave(self, value: Value) -> Value:
        return value

    def take(self, left: Value, lane: Value, t: Type) -> Value:
        return self.e(ops.PLANE_SHUFFLE, left, lane)

    def exists(self, lane: Value) -> Value:
        bit = self.e(ops.SHR, self._living(), self.e(ops.CAST, lane, type=u64))
        one, zero = (self.emit_const(u64, n) for n in (1, 0))
        return self.e(ops.NE, self.e(ops.AND, bit, one), zero)

    def _living(self) -> Value:
        return self.e(ops.PLANE_BALLOT, self.emit_const(bool_, True))

    def reduce(self, op: Op) -> Value:
        """For d = half the plane, ..., 2, 1: combine with lane k xor d."""
        if self.misses_lanes:
            return super().reduce(op)
        value, distance = self.value(op.operands[0]), self.dim // 2
        while distance:
            other = self.e(ops.PLANE_SHUFFLE_XOR, value, self.index(distance))
            value = self.e(_step(op), value, other)
            distance //= 2
        return value

    def scan(self, op: Op) -> Value:
        """In logarithmic steps for integers; the order of floats is promised."""
        if self.misses_lanes or element_of(op.result.type).is_float:
            return super().scan(op)
        row, inclusive = _step(op), op.row.scan is Scan.INCLUSIVE
        value, own, distance = self.value(op.operands[0]), self.lane(), 1
        while distance < self.dim:
            value = self._select_above(own, distance, value, row)
            distance *= 2
        if inclusive:
            return value
        before = self.e(ops.PLANE_SHUFFLE_UP, value, self.index(1))
        first = self.e(ops.EQ, own, self.index(0))
        return self.e(ops.SELECT, first, self.identity(op, op.result.type), before)

    def _select_above(self, own: Value, distance: int, value: Value, row: OpDef) -> Value:
        """Combine with the lane `distance` before, where there is one."""
        other = self.e(ops.PLANE_SHUFFLE_UP, value, self.index(distance))
        has_one = self.e(ops.GE, own, self.index(distance))
        return self.e(ops.SELECT, has_one, self.e(row, other, value), value)

    def vote(self, op: Op) -> Value:
        """Votes count those that have not returned, as the op table wants it."""
        return self.e(op.row, *self.values(op.operands))

    def elect(self, op: Op) -> Value:
        if not self.exits:
            return super().elect(op)
        first = self.e(ops.CAST, self.e(ops.CTZ, self._living()), type=index)
        return self.e(ops.EQ, self.lane(), first)

    def shuffle(self, op: Op) -> Value:
        """As it is, where the lane is a constant in range."""
        number = self._constants.get(op.operands[1])
        known = isinstance(number, int) and 0 <= number < self.dim
        if op.row in (ops.PLANE_SHUFFLE_UP, ops.PLANE_SHUFFLE_DOWN):
            known = known and self._keeps
        if known and not self.misses_lanes:
            return self.e(op.row, *self.values(op.operands))
        return super().shuffle(op)


class _Exchanging(_Lowering):
    """Through shared memory, with barriers of the whole cube."""

    def leave(self, value: Value) -> Value:
        size = self.units * width_of(value.type)
        buffer = self.e(ops.ALLOC, type=element_of(value.type), size=size, space="shared")
        self._effect(ops.STORE, buffer, self._place(self.unit(), value.type), value)
        self._effect(ops.SYNC_CUBE)
        return buffer

    def take(self, left: Value, lane: Value, t: Type) -> Value:
        base = self.e(ops.SUB, self.unit(), self.lane())
        place = self.e(ops.ADD, base, lane)
        if self.is_partial:
            place = self.e(ops.MIN, place, self.index(self.units - 1))
        return self.e(ops.LOAD, left, self._place(place, t), type=t)

    def end(self) -> None:
        self._effect(ops.SYNC_CUBE)

    def exists(self, lane: Value) -> Value:
        there = self.e(ops.ADD, self.e(ops.SUB, self.unit(), self.lane()), lane)
        return self.e(ops.LT, there, self.index(self.units))

    def visit(self, op: Op) -> None:
        if op.row is ops.SYNC_PLANE:
            self._effect(ops.SYNC_CUBE)
        else:
            super().visit(op)

    def _place(self, position: Value, t: Type) -> Value:
        return self.e(ops.MUL, position, self.index(width_of(t)))

    def _effect(self, row: OpDef, *operands: Value) -> None:
        self.out.append(Op(row, operands, {}, (), (), self.span))
