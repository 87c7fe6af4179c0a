"""Remove checks that cannot fail, and the parts of the others that hold.

Known are the range of every integer (`ranges`), and which of two is smaller where control flow says
so: a guard's condition inside its region, `position < stop` inside a counting loop, and what a
check has tested after it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.numbers import limits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import bool_, index
from cubepy.passes.ranges import LIMIT, Range, exact, intersection, result_range, union, whole
from cubepy.passes.rewrite import Rewriter

DEPTH = 5
"""Steps of a proof; each looks at one operation, or one thing that is known."""
_ARITHMETIC = {"+": ops.ADD, "-": ops.SUB, "*": ops.MUL}
_OPPOSITE = {
    ops.LT: ops.GE,
    ops.GE: ops.LT,
    ops.GT: ops.LE,
    ops.LE: ops.GT,
    ops.EQ: ops.NE,
    ops.NE: ops.EQ,
}
_MIRRORED = {ops.GT: ops.LT, ops.GE: ops.LE}


def prove(kernel: Kernel) -> Kernel:
    """The kernel without the checks that are known to hold."""
    if not any(op.row is ops.CHECK for op in kernel.body.walk()):
        return kernel
    return _Prove(kernel).run(kernel)


class _Facts:
    """What is known of values. Facts that control flow gives are forgotten with its region."""

    def __init__(self, kernel: Kernel) -> None:
        self._cube_dim = kernel.cube_dim
        self._sources: dict[Value, Op] = {}
        self._ranges: dict[Value, Range] = {
            p.value: (0, LIMIT) for p in kernel.params if p.role == "shape"
        }
        self._learned: dict[Value, Range] = {}
        self._order: dict[Value, tuple[tuple[Value, int], ...]] = {}
        """For a value others with a distance: value + distance <= other."""
        self._true: frozenset[Value] = frozenset()
        self._same: dict[Value, Value] = {}
        self._computed: dict[tuple[OpDef, tuple[Value, ...], tuple[object, ...]], Value] = {}

    @contextmanager
    def scope(self) -> Generator[None]:
        """A block after which what was learned in it is forgotten."""
        learned, order, true = self._learned, self._order, self._true
        self._learned, self._order = dict(learned), dict(order)
        yield
        self._learned, self._order, self._true = learned, order, true

    def define(self, op: Op) -> None:
        """Note the results of a new operation."""
        for result in op.results:
            self._sources[result] = op
        if op.row.is_pure and op.operands and whole(op.results[0].type) is not None:
            operands = tuple(self.same(v) for v in op.operands)
            first = self._computed.setdefault(
                (op.row, operands, tuple(op.attrs.items())), op.result
            )
            self._same[op.result] = first
        if len(op.results) == 1 and not op.regions:
            found = result_range(op, [self.range(v) for v in op.operands], self._cube_dim)
            if found is not None:
                self._ranges[op.results[0]] = found

    def bound(self, value: Value, found: Range | None) -> None:
        """Note the range of a value where it is defined."""
        if found is not None:
            self._ranges[value] = found

    def range(self, value: Value, depth: int = 2) -> Range | None:
        """The range of a scalar integer; also from what was learned of its operands since."""
        value = self.same(value)
        found = self._ranges.get(value) or whole(value.type)
        if found is None:
            return None
        if value in self._learned:
            found = intersection(found, self._learned[value])
        op = self._sources.get(value)
        if depth and op is not None and op.operands and not op.regions:
            again = [self.range(v, depth - 1) for v in op.operands]
            found = intersection(found, result_range(op, again, self._cube_dim) or found)
        return found

    def same(self, value: Value) -> Value:
        """One value for all that are computed alike, wherever that is."""
        return self._same.get(value, value)

    # Learning

    def learn(self, condition: Value) -> None:
        """The condition holds from here on."""
        self._true |= {self.same(condition)}
        op = self._sources.get(condition)
        if op is None:
            return
        if op.row is ops.AND:
            for part in op.operands:
                self.learn(part)
        elif op.row is ops.IF:
            self._learn_joint(op, condition)
        elif op.row is ops.NOT:
            self.learn_opposite(op.operands[0])
        elif op.row in _OPPOSITE:
            self._relate(op.row, *op.operands)

    def learn_opposite(self, condition: Value) -> None:
        """The condition does not hold from here on."""
        op = self._sources.get(condition)
        if op is None:
            return
        if op.row is ops.OR:
            for part in op.operands:
                self.learn_opposite(part)
        elif op.row is ops.NOT:
            self.learn(op.operands[0])
        elif op.row in _OPPOSITE:
            self._relate(_OPPOSITE[op.row], *op.operands)

    def _learn_joint(self, op: Op, condition: Value) -> None:
        """`a and b` where b has effects: `if a then b else false` gave true."""
        then, otherwise = (region.terminator for region in op.regions)
        k = op.results.index(condition)
        if then.row is ops.YIELD and otherwise.row is ops.YIELD and len(otherwise.operands) > k:
            other = self._sources.get(otherwise.operands[k])
            is_false = other is not None and other.row is ops.CONST and not other.attrs["value"]
            if is_false or otherwise.operands[k] is op.operands[0]:
                self.learn(op.operands[0])
                self.learn(then.operands[k])

    def _relate(self, row: OpDef, a: Value, b: Value) -> None:
        a, b = self.same(a), self.same(b)
        if whole(a.type) is None:
            return
        if row is ops.EQ:
            self.learn_order(a, b, 0)
            self.learn_order(b, a, 0)
        elif row is ops.NE:
            self._learn_unequal(a, b)
            self._learn_unequal(b, a)
        elif row in _MIRRORED:
            self._relate(_MIRRORED[row], b, a)
        else:
            self.learn_order(a, b, 1 if row is ops.LT else 0)

    def learn_order(self, a: Value, b: Value, distance: int) -> None:
        """a + distance <= b from here on."""
        a, b = self.same(a), self.same(b)
        self._order[a] = (*self._order.get(a, ()), (b, distance))
        x, y = self.range(a), self.range(b)
        if x is not None and y is not None:
            self._learned[a] = intersection(x, (x[0], y[1] - distance))
            self._learned[b] = intersection(y, (x[0] + distance, y[1]))

    def learn_multiples(self, position: Value, start: Value, stop: Value, step: int) -> None:
        """In a loop up to start + n * step, whose last position leaves room for a whole step.

        Where n is (end - start) // step, or that or 0 if it is negative, stop is not behind end:
        the loop runs, so that n is not 0.
        """
        whole_steps = self._operand_beside(ops.ADD, stop, start)
        count = whole_steps and self._factor(whole_steps, step)
        if not count:
            return
        self.learn_order(position, stop, step)
        quotient = self._sources.get(count)
        if quotient is not None and quotient.row is ops.MAX:
            some = [self._sources.get(v) for v in quotient.operands if self.range(v) != (0, 0)]
            quotient = some[0] if len(some) == 1 else None
        if quotient is None or quotient.row is not ops.FLOORDIV:
            return
        room = self._sources.get(quotient.operands[0])
        is_room = room is not None and room.row is ops.SUB and self.same(room.operands[1]) is start
        if room is not None and is_room and self.range(quotient.operands[1]) == (step, step):
            self.learn_order(stop, room.operands[0], 0)

    def _operand_beside(self, row: OpDef, value: Value, operand: Value) -> Value | None:
        """x where value is `row(operand, x)` or `row(x, operand)`; not for numbers that wrap."""
        op = self._sources.get(value)
        if op is None or op.row is not row or value.type is not index:
            return None
        a, b = (self.same(v) for v in op.operands)
        return b if a is operand else a if b is operand else None

    def _factor(self, value: Value, step: int) -> Value | None:
        """n where value is n * step."""
        op = self._sources.get(value)
        if op is None or op.row is not ops.MUL:
            return None
        rest = [v for v in op.operands if self.range(v) != (step, step)]
        return rest[0] if len(rest) == 1 else None

    def _learn_unequal(self, a: Value, b: Value) -> None:
        x, y = self.range(a), self.range(b)
        if x is not None and y is not None and y[0] == y[1] and x[0] < x[1]:
            low, high = x
            self._learned[a] = (low + (low == y[0]), high - (high == y[0]))

    # Proofs

    def parts(self, condition: Value) -> list[Value]:
        """The conditions whose conjunction a condition is."""
        op = self._sources.get(condition)
        if op is None or op.row is not ops.AND:
            return [condition]
        return [part for operand in op.operands for part in self.parts(operand)]

    def holds(self, condition: Value) -> bool:
        """Whether a condition is known to hold."""
        if self.same(condition) in self._true:
            return True
        op = self._sources.get(condition)
        if op is None:
            return False
        if op.row is ops.CONST:
            return bool(op.attrs["value"])
        if op.row is ops.AND:
            return all(self.holds(v) for v in op.operands)
        if op.row is ops.OR:
            return any(self.holds(v) for v in op.operands)
        if op.row not in _OPPOSITE or whole(op.operands[0].type) is None:
            return False
        return self._compare(op.row, *op.operands)

    def _compare(self, row: OpDef, a: Value, b: Value) -> bool:
        if row in _MIRRORED:
            return self._compare(_MIRRORED[row], b, a)
        if row is ops.NE:
            return self.is_ordered(a, b, 1) or self.is_ordered(b, a, 1)
        if row is ops.EQ:
            return self.is_ordered(a, b, 0) and self.is_ordered(b, a, 0)
        return self.is_ordered(a, b, 1 if row is ops.LT else 0)

    def is_ordered(self, a: Value, b: Value, distance: int, depth: int = DEPTH) -> bool:
        """Whether a + distance <= b."""
        a, b = self.same(a), self.same(b)
        if a is b:
            return distance <= 0
        x, y = self.range(a), self.range(b)
        if x is None or y is None:
            return False
        if x[1] + distance <= y[0]:
            return True
        return depth > 0 and (
            any(self.is_ordered(v, b, distance - d, depth - 1) for v, d in self._order.get(a, ()))
            or self._from_left(a, b, distance, depth - 1)
            or self._from_right(a, b, distance, depth - 1)
        )

    def _from_left(self, a: Value, b: Value, distance: int, depth: int) -> bool:
        """By what `a` is. Sums of indices do not wrap, those of other integers may."""
        op = self._sources.get(a)
        if op is None or a.type is not index:
            return False
        if op.row in (ops.MIN, ops.MAX):
            some = any if op.row is ops.MIN else all
            return some(self.is_ordered(v, b, distance, depth) for v in op.operands)
        if op.row in (ops.ADD, ops.SUB):
            return any(
                self.is_ordered(v, b, distance + high, depth)
                for v, high in self._addends(op, largest=True)
            )
        divisor = self.range(op.operands[1]) if len(op.operands) == 2 else None
        if divisor is None or divisor[0] < 1:
            return False
        if op.row is ops.MOD:
            return self.is_ordered(op.operands[1], b, distance - 1, depth)
        dividend = self.range(op.operands[0])
        if op.row is ops.FLOORDIV and dividend is not None and dividend[0] >= 0:
            return self.is_ordered(op.operands[0], b, distance, depth)
        return False

    def _from_right(self, a: Value, b: Value, distance: int, depth: int) -> bool:
        """By what `b` is."""
        op = self._sources.get(b)
        if op is None or b.type is not index:
            return False
        if op.row in (ops.MIN, ops.MAX):
            some = any if op.row is ops.MAX else all
            return some(self.is_ordered(a, v, distance, depth) for v in op.operands)
        if op.row not in (ops.ADD, ops.SUB):
            return False
        return any(
            self.is_ordered(a, v, distance - low, depth)
            for v, low in self._addends(op, largest=False)
        )

    def _addends(self, op: Op, largest: bool) -> Iterator[tuple[Value, int]]:
        """Operands of a sum or difference, each with the largest (least) of what is added to it."""
        x, y = op.operands
        a, b = self.range(x), self.range(y)
        assert a is not None and b is not None
        if op.row is ops.SUB:
            yield x, -b[0] if largest else -b[1]
            return
        yield x, b[1] if largest else b[0]
        yield y, a[1] if largest else a[0]


class _Prove(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._facts = _Facts(kernel)
        self._yielded: list[Range | None] | None = None
        """The ranges of what the last region yields; None where it does not end with that."""

    def region(self, region: Region) -> Region:
        """Facts that are learned inside a region end with it."""
        with self._facts.scope():
            rewritten = super().region(region)
            last = rewritten.terminator
            is_yield = last.row is ops.YIELD
            self._yielded = [self._facts.range(v) for v in last.operands] if is_yield else None
        return rewritten

    def visit(self, op: Op) -> None:
        if op.row is ops.CHECK:
            self._check(op)
        elif op.row is ops.IF:
            self._branch(op)
        elif op.row is ops.FOR:
            self._count(op)
        else:
            self.out.append(self.renew(op))
            self._facts.define(self.out[-1])

    def _check(self, op: Op) -> None:
        """Only what is not known is tested; from there on it is."""
        condition, *told = self.values(op.operands)
        if op.attrs["kind"] == "overflow" and self._fits(str(op.attrs["argument"]), *told):
            return
        parts = [v for v in self._facts.parts(condition) if not self._facts.holds(v)]
        if not parts:
            return
        tested = parts[0]
        for part in parts[1:]:
            tested = self.emit(ops.AND, (tested, part), span=op.span)
            self._facts.define(self.out[-1])
        self.out.append(Op(op.row, (tested, *told), op.attrs, (), (), op.span))
        self._facts.learn(condition)

    def _fits(self, symbol: str, a: Value, b: Value) -> bool:
        """Whether index arithmetic stays in its range whatever the values are."""
        x, y = self._facts.range(a), self._facts.range(b)
        assert x is not None and y is not None
        low, high = exact(_ARITHMETIC[symbol], x, y)
        least, largest = limits(index)
        return least <= low and high <= largest

    def _branch(self, op: Op) -> None:
        """The condition holds in the first region, its opposite in the second."""
        condition = self.value(op.operands[0])
        regions: list[Region] = []
        ranges: list[list[Range | None]] = []
        learners = (self._facts.learn, self._facts.learn_opposite)
        for region, learn in zip(op.regions, learners, strict=True):
            with self._facts.scope():
                learn(condition)
                regions.append(self.region(region))
            if self._yielded is not None:
                ranges.append(self._yielded)
        branch = Op(op.row, (condition,), op.attrs, op.results, tuple(regions), op.span)
        if _is_conjunction(branch):
            self._join(branch)
            return
        self.out.append(branch)
        self._facts.define(branch)
        for result, *found in zip(op.results, *ranges, strict=True) if ranges else ():
            known = [r for r in found if r is not None]
            if len(known) == len(found):
                self._facts.bound(result, known[0] if len(known) == 1 else union(*known))
        if regions[0].terminator.row is not ops.YIELD:
            self._facts.learn_opposite(condition)
        elif regions[1].terminator.row is not ops.YIELD:
            self._facts.learn(condition)

    def _join(self, op: Op) -> None:
        """`if a {pure; yield b} else {yield a}`, without the checks that made it one, as `a and b`.

        What the second part computes is known already: its region has been rewritten.
        """
        *computed, last = op.regions[0].ops
        self.out.extend(computed)
        self.out.append(
            Op(ops.AND, (op.operands[0], last.operands[0]), {}, op.results, (), op.span)
        )
        self._facts.define(self.out[-1])

    def _count(self, op: Op) -> None:
        """Positions lie between start and stop; steps up stay below it, steps down above."""
        start, stop, step = self.values(op.operands[:3])
        position = op.regions[0].args[0]
        begin, end, by = (self._facts.range(v) for v in (start, stop, step))
        if begin is not None and end is not None:
            self._facts.bound(position, union(begin, end))
        with self._facts.scope():
            if by is not None and by[0] > 0:
                self._facts.learn_order(position, stop, 1)
                self._facts.learn_order(start, position, 0)
                if by[0] == by[1]:
                    facts, same = self._facts, self._facts.same
                    facts.learn_multiples(position, same(start), same(stop), by[0])
            elif by is not None and by[1] < 0:
                self._facts.learn_order(stop, position, 1)
                self._facts.learn_order(position, start, 0)
            self.out.append(self.renew(op))


def _is_conjunction(op: Op) -> bool:
    """Whether a branch is what `a and b` became, with nothing left that may not always run."""
    then, otherwise = op.regions
    return (
        len(op.results) == 1
        and op.results[0].type is bool_
        and all(o.row.is_pure and _is_total(o) for o in then.ops[:-1])
        and then.terminator.row is ops.YIELD
        and len(otherwise.ops) == 1
        and otherwise.terminator.row is ops.YIELD
        and otherwise.terminator.operands == op.operands
    )


def _is_total(op: Op) -> bool:
    """A lane that is chosen at run time must exist."""
    return op.row is not ops.EXTRACT or "lane" in op.attrs
