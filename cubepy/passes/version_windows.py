"""Loops over windows that borders cut, as in `for k in range(max(0, i - r), min(n, i + r + 1))`.

Away from borders nothing is cut, and neighbouring units read neighbours. So such a loop gets two
copies: one without limits, for where none of them is reached in the whole loop, and one as it is
written. Limits are minima, maxima, remainders, and comparisons of a moved position with what all
units share, in the bounds of the loop and within it. Lanes take the first copy together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import INDICES, bool_, i64
from cubepy.passes.dce import dce
from cubepy.passes.fold import fold
from cubepy.passes.rewrite import Rewriter, copy_op
from cubepy.record import dataclass

MOST = 150
"""Operations of a loop that is copied, at most."""
_ORDERS = {
    ops.LT: (ops.LT, ops.GE),
    ops.LE: (ops.LE, ops.GT),
    ops.GE: (ops.LT, ops.GE),
    ops.GT: (ops.LE, ops.GT),
}
"""For each comparison what is below a limit, and what is not."""
_MIRRORED = {ops.LT: ops.GT, ops.LE: ops.GE, ops.GT: ops.LT, ops.GE: ops.LE}
_LIMITED = {ops.MIN: (ops.LE, None), ops.MAX: (None, ops.GE), ops.MOD: (ops.LT, ops.GE)}
"""What holds between the greatest (the least) position and the limit (0) where it is not reached."""
_POSITIONS = (ops.ABSOLUTE_POS, ops.UNIT_POS)
_SHARED_POSITIONS = (ops.CUBE_POS, ops.CUBE_COUNT)
_KEPT = (ops.BREAK, ops.RETURN, ops.LOOP, ops.SYNC_CUBE, ops.SYNC_PLANE, ops.PRINT)
"""What a loop that is copied has not: it always comes to its end."""


def version_windows(kernel: Kernel) -> Kernel:
    """The kernel with two copies of each such loop; itself where there is none."""
    made = _Versions(kernel).run(kernel)
    return kernel if made is kernel else dce(fold(made))


def usual_ops(region: Region) -> Iterator[Op]:
    """The operations of a region and those within, but for copies of loops for the borders."""
    for op in region.ops:
        yield op
        for inner in op.regions[:1] if op.attrs.get("together") else op.regions:
            yield from usual_ops(inner)


@dataclass(slots=True)
class _Limits:
    """What is not reached: values with what they are then, comparisons with what they give, and
    the values of the condition for it."""

    plain: dict[Value, Value] = field(default_factory=dict[Value, Value])
    truths: dict[Value, bool] = field(default_factory=dict[Value, bool])
    conditions: list[Value] = field(default_factory=list[Value])


class _Versions(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._definitions = {v: op for op in kernel.body.walk() for v in op.results}
        self._shared = {param.value for param in kernel.params}
        """What all units have alike."""
        self._moved = set[Value]()
        """Positions along x that have gone some way, apart from limits."""
        self._loops = dict[Value, Op]()
        """The loop of each position."""
        self._know(kernel.body)
        self._is_copying = False

    # What is known of values

    def _know(self, region: Region) -> None:
        for op in region.ops:
            if op.row is ops.FOR:
                self._know_position(op)
            else:
                self._know_results(op)
            for inner in op.regions:
                self._know(inner)

    def _know_position(self, op: Op) -> None:
        position, (start, stop, step) = op.regions[0].args[0], op.operands[:3]
        self._loops[position] = op
        if start in self._shared and stop in self._shared and step in self._shared:
            self._shared.add(position)
        elif start in self._moved and stop in self._moved and self._number(step) == 1:
            self._moved.add(position)

    def _know_results(self, op: Op) -> None:
        if op.row in _POSITIONS:
            (self._shared if op.attrs["axis"] in ("y", "z") else self._moved).add(op.result)
        elif op.row in _SHARED_POSITIONS or (op.row.is_pure and self._shared.issuperset(op.operands)):
            self._shared.update(op.results)
        elif op.row in (ops.ADD, ops.SUB, ops.MUL, *_LIMITED) and op.result.type in INDICES:
            a, b = (v in self._moved for v in op.operands)
            c, d = (v in self._shared for v in op.operands)
            if (a and d) or (b and c and op.row is not ops.MOD):
                self._moved.add(op.result)
        elif op.row is ops.CAST and op.result.type in INDICES:
            if op.operands[0] in self._moved and op.operands[0].type in INDICES:
                self._moved.add(op.result)

    def _number(self, value: Value) -> int | None:
        op = self._definitions.get(value)
        number = op.attrs["value"] if op is not None and op.row is ops.CONST else None
        return number if isinstance(number, int) else None

    # Copies

    def visit(self, op: Op) -> None:
        if op.row is not ops.FOR or self._is_copying or not self._version(op):
            super().visit(op)

    def _version(self, op: Op) -> bool:
        """Whether two copies of a loop were written."""
        body = list(op.regions[0].walk())
        if len(body) > MOST or any(o.row in _KEPT or o.row.convergent for o in body):
            return False
        outer, self.out = self.out, []
        limits = self._limits([op, *body])
        guard, self.out = self.out, outer
        if not limits.conditions:
            return False
        self.out += guard
        whole = limits.conditions[0]
        for condition in limits.conditions[1:]:
            whole = self.emit(ops.AND, (whole, condition), span=op.span)
        sides = self._without(op, limits), self._as_written(op)
        self.out.append(Op(ops.IF, (whole,), {"together": True}, op.results, sides, op.span))
        return True

    def _without(self, op: Op, limits: _Limits) -> Region:
        replaced, self._is_copying = dict(self.replaced), True
        self.replaced |= {v: self.value(_end(v, limits.plain)) for v in limits.plain}
        self.replaced |= {v: self.emit_const(bool_, truth) for v, truth in limits.truths.items()}
        renewed = self.renew(op)
        self.replaced, self._is_copying = replaced, False
        results = tuple(Value(v.type, v.name) for v in op.results)
        made = Op(op.row, renewed.operands, op.attrs, results, renewed.regions, op.span)
        return Region((), (made, Op(ops.YIELD, results)))

    def _as_written(self, op: Op) -> Region:
        made = copy_op(op, dict(self.replaced))
        return Region((), (made, Op(ops.YIELD, made.results)))

    # Limits

    def _limits(self, nest: list[Op]) -> _Limits:
        """The limits of a loop and what is in it."""
        found, inside = _Limits(), {v for op in nest[1:] for v in op.results}
        inside |= {v for op in nest for region in op.regions for v in region.args}
        bounds = [v for op in nest if op.row is ops.FOR for v in op.operands[:2]]
        behind = [op for v in bounds for op in self._limits_of(v) if op.result not in inside]
        for op in [*reversed(behind), *nest]:
            if op.row in _LIMITED and op.result in self._moved:
                self._limit(op, found, inside)
            elif op.row in _ORDERS and op.operands[0].type in INDICES:
                self._decide(op, found, inside)
        return found

    def _limits_of(self, value: Value) -> Iterator[Op]:
        """The minima and maxima that a bound is of, the last one first."""
        op = self._definitions.get(value)
        while op is not None and op.row in (ops.MIN, ops.MAX) and value in self._moved:
            yield op
            value = next(v for v in op.operands if v in self._moved)
            op = self._definitions.get(value)

    def _limit(self, op: Op, found: _Limits, inside: set[Value]) -> None:
        """A minimum, maximum or remainder that is its moved operand."""
        position, limit = op.operands
        if position not in self._moved:
            position, limit = limit, position
        most, least = _LIMITED[op.row]
        conditions = list[Value | None]()
        if most is not None:
            conditions.append(self._compared(most, position, limit, 1, found, inside))
        if least is not None:
            zero = self.emit_const(i64, 0) if op.row is ops.MOD else limit
            conditions.append(self._compared(least, position, zero, -1, found, inside))
        made = [c for c in conditions if c is not None]
        if len(made) == len(conditions):
            found.plain[op.result] = position
            found.conditions += made

    def _decide(self, op: Op, found: _Limits, inside: set[Value]) -> None:
        """A comparison with a limit, which is a number near the begin, or else near the end."""
        (position, limit), row = op.operands, op.row
        if position not in self._moved:
            position, limit, row = limit, position, _MIRRORED[row]
        if position not in self._moved or limit not in self._shared:
            return
        below, beyond = _ORDERS[row]
        is_begin = self._number(limit) is not None
        usual, end = (beyond, -1) if is_begin else (below, 1)
        condition = self._compared(usual, position, limit, end, found, inside)
        if condition is not None:
            found.truths[op.result] = row is usual
            found.conditions.append(condition)

    def _compared(
        self,
        row: OpDef,
        position: Value,
        limit: Value,
        end: int,
        found: _Limits,
        inside: set[Value],
    ) -> Value | None:
        """A comparison of the greatest position (1), or of the least one (-1), with a limit."""
        if limit in inside and self._number(limit) is None:
            return None
        extreme, bound = self._at(position, end, found, inside), self._at(limit, end, found, inside)
        return None if extreme is None or bound is None else self.emit(row, (extreme, bound))

    def _at(self, value: Value, end: int, found: _Limits, inside: set[Value]) -> Value | None:
        """The greatest or least number that a value may be in a loop, unless it is not known, in
        64 bits, which wrap: a loop that does not run may have any bounds."""
        value = _end(value, found.plain)
        number, op = self._number(value), self._definitions.get(value)
        if number is not None:
            return self.emit_const(i64, number)
        if value not in inside:
            return value if value.type is i64 else self._cast(self.value(value))
        if value in self._loops:
            return self._last(value, end, found, inside)
        if op is None or op.row not in (ops.ADD, ops.SUB, ops.CAST):
            return None
        if op.row is ops.CAST:
            source = op.operands[0]
            return self._at(source, end, found, inside) if source.type in INDICES else None
        ends = end, end if op.row is ops.ADD else -end
        pairs = zip(op.operands, ends, strict=True)
        parts = [p for v, e in pairs if (p := self._at(v, e, found, inside)) is not None]
        return self.emit(op.row, parts) if len(parts) == 2 else None

    def _last(self, position: Value, end: int, found: _Limits, inside: set[Value]) -> Value | None:
        """The last position of a loop (1), or the first one (-1)."""
        start, stop, step = self._loops[position].operands[:3]
        number = self._number(step)
        if number is None or number <= 0:
            return None
        bound = self._at(start if end < 0 else stop, end, found, inside)
        if bound is None or end < 0:
            return bound
        return self.emit(ops.SUB, (bound, self.emit_const(i64, 1)))

    def _cast(self, value: Value) -> Value:
        return self.emit(ops.CAST, (value,), {"type": i64})


def _end(value: Value, plain: dict[Value, Value]) -> Value:
    """What a value is where no limit is reached."""
    while value in plain:
        value = plain[value]
    return value
