"""Loops over windows that borders cut, as in `for k in range(max(0, i - r), min(n, i + r + 1))`.

Away from borders nothing is cut, and neighbouring units read neighbours. So such a loop gets two
copies: one without limits, for where none of them is reached in the whole loop, and one as it is
written. Limits are minima, maxima, remainders, and comparisons of a moved position with what all
units share, with the choices that depend on them, in the bounds of the loop and within it. Lanes
take the first copy together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import INDICES, bool_, i64
from cubepy.passes.cse import cse
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
    ops.EQ: (ops.LT, ops.GT),
    ops.NE: (ops.LT, ops.GT),
}
"""For each comparison what holds below a limit, and what holds beyond."""
_MIRRORED = {
    ops.LT: ops.GT,
    ops.LE: ops.GE,
    ops.GT: ops.LT,
    ops.GE: ops.LE,
    ops.EQ: ops.EQ,
    ops.NE: ops.NE,
}
_LIMITED = {ops.MIN: (ops.LE, None), ops.MAX: (None, ops.GE), ops.MOD: (ops.LT, ops.GE)}
"""What holds between the greatest, and the least, position and a limit that is not reached; the
least one of a remainder is compared with 0."""
_MOVES = (ops.ADD, ops.SUB, ops.MUL, ops.CAST)
_JOINS = (ops.AND, ops.OR, ops.NOT)
_POSITIONS = (ops.ABSOLUTE_POS, ops.UNIT_POS)
_SHARED_POSITIONS = (ops.CUBE_POS, ops.CUBE_COUNT)
FARTHEST, WRAPPED = 1 << 40, 1 << 62
"""Bounds of a loop that may end early, at most; and what no sum of positions reaches unless it has
wrapped."""


def version_windows(kernel: Kernel) -> Kernel:
    """The kernel with two copies of each such loop; itself where there is none."""
    made = _Versions(kernel).run(kernel)
    return kernel if made is kernel else dce(cse(fold(made)))


def usual_ops(region: Region) -> Iterator[Op]:
    """The operations of a region and those within, but for copies of loops for the borders."""
    for op in region.ops:
        yield op
        for inner in op.regions[:1] if op.attrs.get("together") else op.regions:
            yield from usual_ops(inner)


@dataclass(slots=True)
class _Limits:
    """The limits of a loop that are not reached. `inside`: the values that are defined in the loop.

    `around`: moved positions from before the loop; `plain`: values with what they are then;
    `truths`: conditions with what they give; `conditions`: what says so.
    """

    inside: set[Value]
    may_end_early: bool
    around: list[Value] = field(default_factory=list[Value])
    plain: dict[Value, Value] = field(default_factory=dict[Value, Value])
    truths: dict[Value, bool] = field(default_factory=dict[Value, bool])
    conditions: list[Value] = field(default_factory=list[Value])
    extremes: dict[tuple[Value, int], Value | None] = field(
        default_factory=dict[tuple[Value, int], Value | None]
    )
    """What `_at` has found."""


class _Versions(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._definitions = {v: op for op in kernel.body.walk() for v in op.results}
        self._shared = {param.value for param in kernel.params}
        """What all units have alike."""
        self._moved = set[Value]()
        """Positions along x that have gone some way, apart from limits."""
        self._usual = dict[Value, bool]()
        """What conditions give where no limit is reached."""
        self._loops = dict[Value, Op]()
        """The loop of each position."""
        self._know(kernel.body)
        self._is_copying = False

    # What is known of values

    def _know(self, region: Region) -> None:
        for op in region.ops:
            if op.row is ops.FOR:
                self._know_position(op)
            for inner in op.regions:
                self._know(inner)
            self._know_results(op)

    def _know_position(self, op: Op) -> None:
        position, (start, stop, step) = op.regions[0].args[0], op.operands[:3]
        self._loops[position] = op
        if start in self._shared and stop in self._shared and step in self._shared:
            self._shared.add(position)
        elif start in self._moved and stop in self._moved and step in self._shared:
            self._moved.add(position)

    def _know_results(self, op: Op) -> None:
        if op.row in _POSITIONS:
            (self._shared if op.attrs["axis"] in ("y", "z") else self._moved).add(op.result)
        elif op.attrs.get("in_row"):
            (self._moved if op.row is ops.MOD else self._shared).add(op.result)
        elif op.row in _SHARED_POSITIONS or self._is_shared(op):
            self._shared.update(op.results)
        elif op.row in _ORDERS and op.operands[0].type in INDICES:
            self._know_order(op)
        elif op.row in _JOINS:
            truth = _joined(op, self._usual)
            if truth is not None:
                self._usual[op.result] = truth
        elif op.row in (ops.SELECT, ops.IF):
            self._moved |= {v for v, side in self._chosen(op, self._usual) if side in self._moved}
        elif self._is_moved(op):
            self._moved.add(op.result)

    def _is_shared(self, op: Op) -> bool:
        return op.row.is_pure and self._shared.issuperset(op.operands)

    def _know_order(self, op: Op) -> None:
        row, position, limit = self._order(op)
        if position in self._moved and limit in self._shared:
            self._usual[op.result] = row is self._usually(row, limit) or row is ops.NE

    def _order(self, op: Op) -> tuple[OpDef, Value, Value]:
        """A comparison of a moved position, if it is one, with a limit."""
        position, limit = op.operands
        if position in self._moved:
            return op.row, position, limit
        return _MIRRORED[op.row], limit, position

    def _usually(self, row: OpDef, limit: Value) -> OpDef:
        """What holds away from a limit: a number is near the begin, another one near the end."""
        below, beyond = _ORDERS[row]
        return below if self._number(limit) is None else beyond

    def _is_moved(self, op: Op) -> bool:
        if op.row is ops.CAST:
            (source,) = op.operands
            return source in self._moved and {op.result.type, source.type} <= set(INDICES)
        if op.row not in (*_MOVES, *_LIMITED) or op.result.type not in INDICES:
            return False
        (a, b), (c, d) = ([v in kind for v in op.operands] for kind in (self._moved, self._shared))
        return (a and d) or (b and c and op.row is not ops.MOD)

    def _chosen(self, op: Op, truths: dict[Value, bool]) -> list[tuple[Value, Value]]:
        """Results of a choice, each with what it is where its condition gives what is known."""
        truth = truths.get(op.operands[0])
        if truth is None:
            return []
        if op.row is ops.SELECT:
            return [(op.result, op.operands[1 if truth else 2])]
        end = op.regions[0 if truth else 1].terminator
        return list(zip(op.results, end.operands, strict=True)) if end.row is ops.YIELD else []

    def _number(self, value: Value) -> int | None:
        op = self._definitions.get(value)
        number = op.attrs["value"] if op is not None and op.row is ops.CONST else None
        return number if isinstance(number, int) else None

    # Copies

    def visit(self, op: Op) -> None:
        if op.attrs.get("together"):
            self.out.append(self._first_renewed(op))
        elif op.row is not ops.FOR or self._is_copying or not self._version(op):
            super().visit(op)

    def _first_renewed(self, op: Op) -> Op:
        """A choice of copies, of which the one for ends of rows stays as it is."""
        first, second = op.regions
        made = self.region(first)
        return op if made is first else replace(op, regions=(made, second))

    def _version(self, op: Op) -> bool:
        """Whether two copies of a loop were written."""
        body = list(op.regions[0].walk())
        if len(body) > MOST or any(o.row.convergent or o.row is ops.PRINT for o in body):
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
        self.out.append(Op(ops.IF, (whole,), {"together": "window"}, op.results, sides, op.span))
        return True

    def _without(self, op: Op, limits: _Limits) -> Region:
        """A copy without limits; choices within it are left to `fold`."""
        replaced, self._is_copying = dict(self.replaced), True
        plain = {v: self._replayed(v, limits) for v in limits.around}
        plain |= {v: self._within(v, limits) for v in limits.plain if self._is_limit(v, limits)}
        self.replaced |= {v: self.value(end) for v, end in plain.items()}
        for value, truth in limits.truths.items():
            self.replaced[value] = self.emit_const(bool_, truth)
        renewed = self.renew(op)
        self.replaced, self._is_copying = replaced, False
        results = tuple(Value(v.type, v.name) for v in op.results)
        made = Op(op.row, renewed.operands, op.attrs, results, renewed.regions, op.span)
        return Region((), (made, Op(ops.YIELD, results)))

    def _is_limit(self, value: Value, limits: _Limits) -> bool:
        """Whether a value is a minimum, maximum or remainder in the loop that is not reached."""
        is_within = value in limits.plain and value in limits.inside
        return is_within and self._definitions[value].row in _LIMITED

    def _within(self, value: Value, limits: _Limits) -> Value:
        while self._is_limit(value, limits):
            value = limits.plain[value]
        return value

    def _replayed(self, value: Value, limits: _Limits) -> Value:
        """What a value from before the loop is without limits, written once more."""
        end = _end(value, limits.plain)
        op = self._definitions.get(end)
        if op is None or op.row not in _MOVES or end not in self._moved:
            return end
        made = [self._replayed(v, limits) for v in op.operands]
        if all(a is b for a, b in zip(made, op.operands, strict=True)):
            return end
        attrs = dict(op.attrs) if op.row is ops.CAST else {}
        return self.emit(op.row, [self.value(v) for v in made], attrs, op.span, end.name)

    def _as_written(self, op: Op) -> Region:
        made = copy_op(op, dict(self.replaced))
        return Region((), (made, Op(ops.YIELD, made.results)))

    # Limits

    def _limits(self, nest: list[Op]) -> _Limits:
        """The limits of a loop and what is in it."""
        inside = {v for op in nest[1:] for v in op.results}
        inside |= {v for op in nest for region in op.regions for v in region.args}
        found = _Limits(inside, any(op.row in (ops.BREAK, ops.RETURN) for op in nest))
        used = (v for op in nest for v in op.operands if v in self._moved and v not in inside)
        found.around += dict.fromkeys(used)
        before = dict[Op, None]()
        for value in found.around:
            self._add_behind(value, before)
        for op in (*before, *nest):
            if op.attrs.get("in_row"):
                continue
            if op.row in _LIMITED and op.result in self._moved:
                self._limit(op, found)
            elif op.row in _ORDERS and op.result in self._usual:
                self._decide(op, found)
            elif op.row in _JOINS and (truth := _joined(op, found.truths)) is not None:
                found.truths[op.result] = truth
            elif op.row in (ops.SELECT, ops.IF):
                found.plain.update(self._chosen(op, found.truths))
        return found

    def _add_behind(self, value: Value, before: dict[Op, None]) -> None:
        """The limits and choices of which a value is made, in order."""
        op = self._definitions.get(value)
        known = (*_LIMITED, *_ORDERS, *_JOINS, *_MOVES, ops.SELECT)
        if op is not None and op.row in known and op not in before:
            for operand in op.operands:
                self._add_behind(operand, before)
            before[op] = None

    def _limit(self, op: Op, found: _Limits) -> None:
        """A minimum, maximum or remainder that is its moved operand."""
        position, limit = op.operands
        if position not in self._moved:
            position, limit = limit, position
        most, least = _LIMITED[op.row]
        conditions = list[Value | None]()
        if most is not None:
            conditions.append(self._compared(most, position, limit, 1, found))
        if least is not None:
            zero = self.emit_const(i64, 0) if op.row is ops.MOD else limit
            conditions.append(self._compared(least, position, zero, -1, found))
        made = [c for c in conditions if c is not None]
        if len(made) == len(conditions):
            found.plain[op.result] = position
            found.conditions += made

    def _decide(self, op: Op, found: _Limits) -> None:
        """A comparison with a limit."""
        row, position, limit = self._order(op)
        usual = self._usually(row, limit)
        end = 1 if usual is _ORDERS[row][0] else -1
        condition = self._compared(usual, position, limit, end, found)
        if condition is not None:
            found.truths[op.result] = self._usual[op.result]
            found.conditions.append(condition)

    def _compared(
        self, row: OpDef, position: Value, limit: Value, end: int, found: _Limits
    ) -> Value | None:
        """A comparison of the greatest position (1), or of the least one (-1), with a limit."""
        if limit in found.inside and self._number(limit) is None:
            return None
        extreme, bound = self._at(position, end, found), self._at(limit, end, found)
        if extreme is None or bound is None:
            return None
        wrapped = self.emit_const(i64, -end * WRAPPED)
        is_whole = self.emit(ops.GT if end > 0 else ops.LT, (extreme, wrapped))
        return self.emit(ops.AND, (is_whole, self.emit(row, (extreme, bound))))

    def _at(self, value: Value, end: int, found: _Limits) -> Value | None:
        """The greatest or least number that a value may be in a loop, unless it is not known, in
        64 bits, which wrap: a loop that does not run may have any bounds."""
        value = _end(value, found.plain)
        if (value, end) not in found.extremes:
            found.extremes[value, end] = self._extreme(value, end, found)
        return found.extremes[value, end]

    def _extreme(self, value: Value, end: int, found: _Limits) -> Value | None:
        number, op = self._number(value), self._definitions.get(value)
        if number is not None:
            return self.emit_const(i64, number)
        if value not in found.inside:
            return value if value.type is i64 else self._cast(self.value(value))
        if value in self._loops:
            return self._last(value, end, found)
        if op is None or op.row not in (ops.ADD, ops.SUB, ops.CAST):
            return None
        if op.row is ops.CAST:
            return self._at(op.operands[0], end, found) if self._is_moved(op) else None
        ends = end, end if op.row is ops.ADD else -end
        parts = [self._at(v, e, found) for v, e in zip(op.operands, ends, strict=True)]
        known = [part for part in parts if part is not None]
        return self.emit(op.row, known) if len(known) == 2 else None

    def _last(self, position: Value, end: int, found: _Limits) -> Value | None:
        """The last position of a loop (1), or the first one (-1)."""
        start, stop, step = self._loops[position].operands[:3]
        number, bound = self._number(step), start if end < 0 else stop
        place = self._at(bound, end, found) if number is not None and number > 0 else None
        if place is None:
            return None
        if found.may_end_early:
            row = ops.LE if end > 0 else ops.GE
            found.conditions.append(self.emit(row, (place, self.emit_const(i64, end * FARTHEST))))
        return place if end < 0 else self.emit(ops.SUB, (place, self.emit_const(i64, 1)))

    def _cast(self, value: Value) -> Value:
        return self.emit(ops.CAST, (value,), {"type": i64})


def _joined(op: Op, truths: dict[Value, bool]) -> bool | None:
    """What a condition of others gives, as far as these are known."""
    known = [truths.get(v) for v in op.operands]
    if op.row is ops.NOT:
        return None if known[0] is None else not known[0]
    decides = op.row is ops.OR
    if decides in known:
        return decides
    return None if None in known else not decides


def _end(value: Value, plain: dict[Value, Value]) -> Value:
    """What a value is where no limit is reached."""
    while value in plain:
        value = plain[value]
    return value
