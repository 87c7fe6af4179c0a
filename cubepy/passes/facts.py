"""Integer facts: what is known of every integer of a kernel, where control flow has come to.

Known are a range (`ranges`), a number that divides it, and which of two is smaller where control
flow says so: a guard's condition inside its region, `position < stop` inside a counting loop, and
what a check has tested after it. Parameters have the ranges that launches promise; see `Kernel`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from math import gcd

from cubepy.artifact import Data, Extent, Stride
from cubepy.ir import ops
from cubepy.ir.core import NARROW_LIMIT, UNLIMITED, Kernel, Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import INDICES, element_of
from cubepy.passes.multiples import result_multiple
from cubepy.passes.ranges import Range, exact, intersection, result_range, union, whole

DEPTH = 5
"""Steps of a proof; each looks at one operation, or one thing that is known."""
OPPOSITE = {
    ops.LT: ops.GE,
    ops.GE: ops.LT,
    ops.GT: ops.LE,
    ops.LE: ops.GT,
    ops.EQ: ops.NE,
    ops.NE: ops.EQ,
}
MIRRORED = {ops.GT: ops.LT, ops.GE: ops.LE}


class IntegerFacts:
    """What is known of values. Facts that control flow gives are forgotten with its region."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._sources: dict[Value, Op] = {}
        self._ranges: dict[Value, Range] = {}
        self._multiples: dict[Value, int] = {}
        self._extents: dict[Value, tuple[str, frozenset[int]]] = {}
        """Products of extents of an argument, by their axes."""
        self._shapes: dict[tuple[str, int], Value] = {}
        self._strides: dict[Value, tuple[str, int]] = {}
        self._learned: dict[Value, Range] = {}
        self._order: dict[Value, tuple[tuple[Value, int], ...]] = {}
        """For a value others with a distance: value + distance <= other."""
        self._true: frozenset[Value] = frozenset()
        self._same: dict[Value, Value] = {}
        self._behind: dict[Value, frozenset[Value]] = {}
        """Operands of a value's operation and theirs: what is learned of one may bound it."""
        self._computed: dict[tuple[OpDef, tuple[Value, ...], tuple[object, ...]], Value] = {}
        self._asked: dict[Value, Range | None] = {}
        """The ranges that one proof has asked for, during which nothing is learned."""
        self._parameters()

    @contextmanager
    def scope(self) -> Generator[None]:
        """A block after which what was learned in it is forgotten."""
        learned, order, true = self._learned, self._order, self._true
        self._learned, self._order = dict(learned), dict(order)
        yield
        self._learned, self._order, self._true = learned, order, true

    def _parameters(self) -> None:
        """What a launch promises of extents, strides and small numbers."""
        kernel, limit = self._kernel, self._kernel.limit
        self._aligned_strides()
        for p in kernel.params:
            if isinstance(p.kind, Extent):
                self._ranges[p.value] = 0, limit
                self._extents[p.value] = p.argument, frozenset((p.kind.axis,))
                self._shapes[p.argument, p.kind.axis] = p.value
            elif isinstance(p.kind, Stride):
                self._strides[p.value] = p.argument, p.kind.axis
                if limit <= NARROW_LIMIT:
                    self._ranges[p.value] = -limit, limit
            elif p.argument in kernel.small:
                self._ranges[p.value] = 0, NARROW_LIMIT

    def _aligned_strides(self) -> None:
        """Strides of aligned tensors are multiples; the last extent is one of linear tensors."""
        items = {p.argument: p for p in self._kernel.params if isinstance(p.kind, Data)}
        for p in self._kernel.params:
            data = items.get(p.argument)
            if p.argument not in self._kernel.aligned or data is None:
                continue
            assert isinstance(data.kind, Data)
            rank = data.kind.rank or 0
            is_row = data.kind.linear and rank > 1 and isinstance(p.kind, Extent)
            if isinstance(p.kind, Stride) or (is_row and p.kind == Extent(rank - 1)):
                size = element_of(data.value.type).itemsize
                self._multiples[p.value] = self._kernel.alignment // size

    def define(self, op: Op) -> None:
        """Note the results of a new operation."""
        for result in op.results:
            self._sources[result] = op
        if len(op.results) != 1 or op.regions:
            return
        result = op.results[0]
        if whole(result.type) is None:
            return
        if op.row.is_pure and op.operands:
            operands = tuple([self.same(v) for v in op.operands])
            key = op.row, operands, tuple(op.attrs.items())
            self._same[result] = self._computed.setdefault(key, result)
        if op.operands:
            self._behind[result] = self._operands_behind(op)
        ranges = [self.range(v) for v in op.operands]
        found = result_range(op, ranges, self._kernel)
        if op.row is ops.CAST and ranges[0] is not None and found == ranges[0]:
            self._same[result] = self.same(op.operands[0])  # a conversion that keeps the number
        if op.row is ops.MUL and found is not None:
            found = self._product(op, found)
        multiple = result_multiple(op, [self._multiples.get(v, 1) for v in op.operands])
        if found is not None and -multiple < found[0] and found[1] < multiple:
            found = 0, 0  # what a larger number divides is 0
        if found is not None:
            self._bound_here(result, found)
        if multiple != 1:
            self._multiples[result] = multiple

    def _operands_behind(self, op: Op) -> frozenset[Value]:
        found = {self.same(v) for v in op.operands}
        for value in tuple(found):
            source = self._sources.get(value)
            if source is not None:
                found.update([self.same(v) for v in source.operands])
        return frozenset(found)

    def _bound_here(self, result: Value, found: Range) -> None:
        """Note a range; the value that stands for all computed alike gets the union of theirs."""
        first = self.same(result)
        if first is not result and first in self._ranges:
            self._ranges[first] = union(self._ranges[first], found)
        self._ranges[result] = found

    def multiple(self, value: Value) -> int:
        """A number that divides the value; 0 where that is 0."""
        return self._multiples.get(value, 1)

    def common_multiple(self, *values: Value) -> int:
        """A number that divides all of them."""
        return gcd(*(self.multiple(v) for v in values))

    def divides(self, value: Value, multiple: int) -> None:
        """Note a number that divides a value where it is defined."""
        self._multiples[value] = multiple

    def _product(self, op: Op, found: Range) -> Range:
        """What launches promise of products: sizes, and how far an index leads along an axis."""
        limit = self._kernel.limit
        a, b = (self.same(v) for v in op.operands)
        if op.result.type not in INDICES:
            return found
        for x, y in ((a, b), (b, a)):
            found = intersection(found, self._quotient_times(x, y) or found)
            extents, stride = self._extents.get(y), self._strides.get(y)
            if extents is not None:
                name, axes = extents
                own = self._extents.get(x)
                if own is not None and own[0] == name and not own[1] & axes:
                    self._extents[op.result] = name, own[1] | axes
                    return intersection(found, (0, limit))
                if self._is_inside(x, name, axes):
                    return intersection(found, (0, limit))
            if stride is not None and limit <= NARROW_LIMIT:
                extent = self._shapes.get(stride)
                if extent is not None and self._is_below(x, extent):
                    return intersection(found, (-limit, limit))
        return found

    def _quotient_times(self, x: Value, y: Value) -> Range | None:
        """The range of (a // y) * y where a is not negative: at most a."""
        op = self._sources.get(x)
        if op is None or op.row is not ops.FLOORDIV or self.same(op.operands[1]) is not y:
            return None
        a, b = self.range(op.operands[0]), self.range(y)
        return (0, a[1]) if a is not None and b is not None and a[0] >= 0 and b[0] >= 0 else None

    def _is_inside(self, x: Value, name: str, axes: frozenset[int]) -> bool:
        """Whether x is an index of an axis of an argument that is none of `axes`."""
        if self._kernel.limit == UNLIMITED:
            return False
        return any(
            self._is_below(x, extent)
            for (argument, axis), extent in self._shapes.items()
            if argument == name and axis not in axes
        )

    def _is_below(self, x: Value, extent: Value) -> bool:
        found = self.range(x)
        return found is not None and found[0] >= 0 and self.is_ordered(x, extent, 1, depth=3)

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
        behind = self._behind.get(value) if depth else None
        if behind is not None and not self._learned.keys().isdisjoint(behind):
            op = self._sources[value]
            again = [self.range(v, depth - 1) for v in op.operands]
            found = intersection(found, result_range(op, again, self._kernel) or found)
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
        elif op.row in OPPOSITE:
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
        elif op.row in OPPOSITE:
            self._relate(OPPOSITE[op.row], *op.operands)

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
        elif row in MIRRORED:
            self._relate(MIRRORED[row], b, a)
        else:
            self.learn_order(a, b, 1 if row is ops.LT else 0)

    def learn_order(self, a: Value, b: Value, distance: int) -> None:
        """a + distance <= b from here on."""
        a, b = self.same(a), self.same(b)
        self._order[a] = (*self._order.get(a, ()), (b, distance))
        x, y = self.range(a), self.range(b)
        if x is not None and y is not None:
            self._learned[a] = intersection(x, (x[0], y[1] - distance))
            self._learn_factors(b, intersection(y, (x[0] + distance, y[1])))

    def _learn_factors(self, value: Value, found: Range) -> None:
        """Note a range; factors that are not negative, of a product above 0, are above 0."""
        value = self.same(value)
        self._learned[value] = found
        op = self._sources.get(value)
        if found[0] < 1 or op is None or op.row is not ops.MUL:
            return
        ranges = [r for v in op.operands if (r := self.range(v)) is not None and r[0] >= 0]
        if len(ranges) == 2 and self._never_wraps(op, *ranges):
            for factor, r in zip(op.operands, ranges, strict=True):
                self._learn_factors(factor, intersection(r, (1, found[1])))

    @staticmethod
    def _never_wraps(op: Op, a: Range, b: Range) -> bool:
        """Whether a sum or product is exact."""
        t = op.result.type
        if t in INDICES:
            return True
        full = whole(t)
        low, high = exact(op.row, a, b)
        return full is not None and full[0] <= low and high <= full[1]

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
        if op is None or op.row is not row or value.type not in INDICES:
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

    # Answers

    def decided(self, comparison: Op) -> bool | None:
        """What a comparison gives, if ranges decide it."""
        a, b = (self.same(v) for v in comparison.operands)
        x, y = self.range(a), self.range(b)
        if x is None or y is None:
            return None
        row = comparison.row
        if row in MIRRORED:
            row, a, b, x, y = MIRRORED[row], b, a, y, x
        if row in (ops.EQ, ops.NE):
            if a is b or x[0] == x[1] == y[0] == y[1]:
                return row is ops.EQ
            return row is ops.NE if x[1] < y[0] or y[1] < x[0] else None
        distance = 1 if row is ops.LT else 0
        if (a is b and not distance) or x[1] + distance <= y[0]:
            return True
        return False if (a is b and distance) or y[1] < x[0] + distance else None

    def recombined(self, x: Value, y: Value) -> Value | None:
        """a where x + y is (a // b) * b + a % b, and b is not 0."""
        for product, rest in ((x, y), (y, x)):
            modulo, times = self._sources.get(self.same(rest)), self._sources.get(product)
            if modulo is None or modulo.row is not ops.MOD or times is None:
                continue
            a, b = (self.same(v) for v in modulo.operands)
            divisor = self.range(b)
            count = self._operand_beside(ops.MUL, product, b)
            quotient = self._sources.get(count) if count is not None else None
            if quotient is None or quotient.row is not ops.FLOORDIV or divisor is None:
                continue
            is_same = [self.same(v) for v in quotient.operands] == [a, b]
            same_type = quotient.operands[0].type is x.type
            if is_same and same_type and not divisor[0] <= 0 <= divisor[1]:
                return quotient.operands[0]
        return None

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
        if op.row not in OPPOSITE or whole(op.operands[0].type) is None:
            return False
        return self._compare(op.row, *op.operands)

    def _compare(self, row: OpDef, a: Value, b: Value) -> bool:
        if row in MIRRORED:
            return self._compare(MIRRORED[row], b, a)
        if row is ops.NE:
            return self.is_ordered(a, b, 1) or self.is_ordered(b, a, 1)
        if row is ops.EQ:
            return self.is_ordered(a, b, 0) and self.is_ordered(b, a, 0)
        return self.is_ordered(a, b, 1 if row is ops.LT else 0)

    def is_ordered(self, a: Value, b: Value, distance: int, depth: int = DEPTH) -> bool:
        """Whether a + distance <= b."""
        self._asked.clear()
        return self._is_ordered(a, b, distance, depth)

    def _range_once(self, value: Value) -> Range | None:
        """`range`, computed once for a proof."""
        if value not in self._asked:
            self._asked[value] = self.range(value)
        return self._asked[value]

    def _is_ordered(self, a: Value, b: Value, distance: int, depth: int) -> bool:
        a, b = self.same(a), self.same(b)
        if a is b:
            return distance <= 0
        x, y = self._range_once(a), self._range_once(b)
        if x is None or y is None:
            return False
        if x[1] + distance <= y[0]:
            return True
        return depth > 0 and (
            any(self._is_ordered(v, b, distance - d, depth - 1) for v, d in self._order.get(a, ()))
            or self._from_left(a, b, distance, depth - 1)
            or self._from_right(a, b, distance, depth - 1)
        )

    def _from_left(self, a: Value, b: Value, distance: int, depth: int) -> bool:
        """By what `a` is. Sums of indices do not wrap, those of other integers may."""
        op = self._sources.get(a)
        if op is None or a.type not in INDICES:
            return False
        if op.row in (ops.MIN, ops.MAX):
            some = any if op.row is ops.MIN else all
            return some(self._is_ordered(v, b, distance, depth) for v in op.operands)
        if op.row in (ops.ADD, ops.SUB):
            return any(
                self._is_ordered(v, b, distance + high, depth)
                for v, high in self._addends(op, largest=True)
            )
        divisor = self._range_once(op.operands[1]) if len(op.operands) == 2 else None
        if divisor is None or divisor[0] < 1:
            return False
        if op.row is ops.MOD:
            return self._is_ordered(op.operands[1], b, distance - 1, depth)
        dividend = self._range_once(op.operands[0])
        if op.row is not ops.FLOORDIV or dividend is None or dividend[0] < 0:
            return False
        return self._is_ordered(op.operands[0], b, distance, depth) or any(
            self._is_ordered(c, b, distance - 1, depth) for c in self._rows(op)
        )

    def _rows(self, op: Op) -> Iterator[Value]:
        """c where a // b < c, because a < c * b."""
        divisor = self.same(op.operands[1])
        for bound, distance in self._order.get(self.same(op.operands[0]), ()):
            count = self._operand_beside(ops.MUL, bound, divisor) if distance >= 1 else None
            if count is not None:
                yield count

    def _from_right(self, a: Value, b: Value, distance: int, depth: int) -> bool:
        """By what `b` is."""
        op = self._sources.get(b)
        if op is None or b.type not in INDICES:
            return False
        if op.row in (ops.MIN, ops.MAX):
            some = any if op.row is ops.MAX else all
            return some(self._is_ordered(a, v, distance, depth) for v in op.operands)
        if op.row not in (ops.ADD, ops.SUB):
            return False
        return any(
            self._is_ordered(a, v, distance - low, depth)
            for v, low in self._addends(op, largest=False)
        )

    def _addends(self, op: Op, largest: bool) -> Iterator[tuple[Value, int]]:
        """Operands of a sum or difference, each with the largest (least) of what is added to it."""
        x, y = op.operands
        a, b = self._range_once(x), self._range_once(y)
        assert a is not None and b is not None
        if op.row is ops.SUB:
            yield x, -b[0] if largest else -b[1]
            return
        yield x, b[1] if largest else b[0]
        yield y, a[1] if largest else a[0]
