"""Remove checks that cannot fail: facts from guards, loop bounds and signs of indices.

A fact holds where control flow gives it: a guard's condition inside its region, `position < stop`
inside a counting loop, and what a check has tested after it.
"""

from __future__ import annotations

from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import index
from cubepy.passes.rewrite import Rewriter

_POSITIONS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)
_MONOTONE = (ops.ADD, ops.MUL, ops.MIN, ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC)


def prove(kernel: Kernel) -> Kernel:
    """The kernel without the checks that are known to hold."""
    if not any(op.row is ops.CHECK for op in kernel.body.walk()):
        return kernel
    return _Prove(kernel).run(kernel)


class _Prove(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._sources: dict[Value, Op] = {}
        self._below: set[tuple[Value, Value]] = set()
        self._true: set[Value] = set()
        self._extents = dict(zip("xyz", kernel.cube_dim, strict=True))
        self._extents["all"] = prod(kernel.cube_dim)
        self._nonnegative = {p.value for p in kernel.params if p.role == "shape"}

    def region(self, region: Region) -> Region:
        """Facts that are learned inside a region end with it."""
        below, true = set(self._below), set(self._true)
        rewritten = super().region(region)
        self._below, self._true = below, true
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
        for result in op.results:
            self._sources[result] = op
            if result.type is index and self._is_nonnegative(op):
                self._nonnegative.add(result)

    def _check(self, op: Op) -> None:
        condition = self.value(op.operands[0])
        if self._holds(condition):
            return
        self.out.append(self.rename(op))
        self._learn(condition)

    def _branch(self, op: Op) -> None:
        """The condition holds in the first region, its opposite in the second."""
        condition = self.value(op.operands[0])
        below, true = set(self._below), set(self._true)
        self._learn(condition)
        then = self.region(op.regions[0])
        self._below, self._true = set(below), set(true)
        self._learn_opposite(condition)
        otherwise = self.region(op.regions[1])
        self._below, self._true = below, true
        if then.terminator.row is not ops.YIELD:
            self._learn_opposite(condition)
        elif otherwise.terminator.row is not ops.YIELD:
            self._learn(condition)
        self.out.append(
            Op(op.row, self.values(op.operands), op.attrs, op.results, (then, otherwise), op.span)
        )

    def _count(self, op: Op) -> None:
        start, stop, step = self.values(op.operands[:3])
        position = op.regions[0].args[0]
        below = set(self._below)
        if self._constant(step) is not None and self._constant(step) > 0:  # type: ignore[operator]
            self._below.add((position, stop))
            if start in self._nonnegative:
                self._nonnegative.add(position)
        self.out.append(self.renew(op))
        self._below = below

    # Facts

    def _constant(self, value: Value) -> int | float | None:
        op = self._sources.get(value)
        if op is None or op.row is not ops.CONST:
            return None
        number = op.attrs["value"]
        return number if isinstance(number, int | float) else None

    def _is_nonnegative(self, op: Op) -> bool:
        if op.row in _POSITIONS:
            return True
        if op.row is ops.CONST:
            value = op.attrs["value"]
            return isinstance(value, int) and value >= 0
        operands = self.values(op.operands)
        if op.row in _MONOTONE:
            return all(v in self._nonnegative for v in operands)
        return op.row is ops.MAX and any(v in self._nonnegative for v in operands)

    def _learn(self, condition: Value) -> None:
        self._true.add(condition)
        op = self._sources.get(condition)
        if op is None:
            return
        operands = self.values(op.operands)
        if op.row is ops.AND:
            for part in operands:
                self._learn(part)
        elif op.row is ops.LT:
            self._below.add((operands[0], operands[1]))
        elif op.row is ops.GT:
            self._below.add((operands[1], operands[0]))

    def _learn_opposite(self, condition: Value) -> None:
        op = self._sources.get(condition)
        if op is None:
            return
        operands = self.values(op.operands)
        if op.row is ops.OR:
            for part in operands:
                self._learn_opposite(part)
        elif op.row is ops.GE:
            self._below.add((operands[0], operands[1]))
        elif op.row is ops.LE:
            self._below.add((operands[1], operands[0]))
        elif op.row is ops.NOT:
            self._learn(operands[0])

    def _holds(self, condition: Value) -> bool:
        if condition in self._true:
            return True
        op = self._sources.get(condition)
        if op is None:
            return False
        a, *rest = self.values(op.operands) or (condition,)
        if op.row is ops.CONST:
            return bool(op.attrs["value"])
        if op.row is ops.AND:
            return all(self._holds(v) for v in (a, *rest))
        if op.row is ops.GE and self._constant(rest[0]) == 0:
            return a in self._nonnegative
        return op.row is ops.LT and self._is_below(a, rest[0])

    def _is_below(self, a: Value, b: Value) -> bool:
        if (a, b) in self._below:
            return True
        if self._limit(a) is not None and (known := self._constant(b)) is not None:
            limit = self._limit(a)
            return limit is not None and limit < known and a in self._nonnegative
        return any(x is a and self._is_at_most(y, b) for x, y in self._below)

    def _is_at_most(self, a: Value, b: Value) -> bool:
        """a <= b: equal, or a minimum with b, or constants."""
        if a is b:
            return True
        op = self._sources.get(a)
        if op is not None and op.row is ops.MIN:
            return any(self._is_at_most(v, b) for v in self.values(op.operands))
        x, y = self._constant(a), self._constant(b)
        return x is not None and y is not None and x <= y

    def _limit(self, value: Value) -> int | float | None:
        """The largest value of an index that is made of constants and remainders."""
        known = self._constant(value)
        if known is not None:
            return known
        op = self._sources.get(value)
        if op is None:
            return None
        if op.row is ops.UNIT_POS:
            return self._extents[str(op.attrs["axis"])] - 1
        if op.row is ops.MOD:
            divisor = self._constant(self.value(op.operands[1]))
            return divisor - 1 if divisor is not None and divisor > 0 else None
        if op.row in (ops.ADD, ops.MUL):
            x, y = (self._limit(v) for v in self.values(op.operands))
            if x is None or y is None:
                return None
            return x + y if op.row is ops.ADD else x * y
        return self._limit_from_bounds(value)

    def _limit_from_bounds(self, value: Value) -> int | float | None:
        bounds = [
            c - 1 for x, y in self._below if x is value and (c := self._constant(y)) is not None
        ]
        return min(bounds, default=None)
