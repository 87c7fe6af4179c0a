"""Decide by integer facts: remove checks that cannot fail, comparisons and guards that are known.

Of other checks only the parts stay that are not known. Divisions are marked with what is known of
their operands, and look-ups whose index is inside the table, so that compilers need not guard them.
What control flow proves holds there alone: around barriers, where units run what others skip, no
divisor is marked as other than 0, and no index as inside.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.numbers import limits
from cubepy.ir.opdef import is_speculatable
from cubepy.ir.types import INDICES, bool_, i8, i16, i32, i64, index
from cubepy.passes.align import Alignments, line_of
from cubepy.passes.facts import OPPOSITE, IntegerFacts
from cubepy.passes.flow import FactRewriter, carried_ranges
from cubepy.passes.ranges import exact, whole

_ARITHMETIC = {"+": ops.ADD, "-": ops.SUB, "*": ops.MUL}
_SHORT = (i8, i16, i32)
_DIVISIONS = (ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC)
_OTHERS = ops.CHECK, ops.FOR, ops.CAST, ops.LOOKUP, ops.MIN, ops.MAX, ops.LANE_MASK
_DECIDED = frozenset((*_OTHERS, *_DIVISIONS, *OPPOSITE))


def prove(kernel: Kernel) -> Kernel:
    """The kernel without what is known."""
    rows = {op.row for op in kernel.body.walk()}
    if rows.isdisjoint(_DECIDED) and not any(line_of(op) for op in kernel.body.walk()):
        return kernel
    synchronises = any(row.convergent is not None for row in rows)
    return _Prove(kernel, synchronises).run(kernel)


class _Prove(FactRewriter):
    def __init__(self, kernel: Kernel, synchronises: bool) -> None:
        super().__init__(kernel, carried_ranges(kernel))
        self._synchronises = synchronises
        self._alignments = Alignments(kernel, self.facts)

    def step(self, op: Op) -> None:
        if op.row is ops.LOAD or op.row is ops.STORE:
            op = self._alignments.align(self.rename(op))
            self.out.append(op)
            self.facts.define(op)
        elif op.row is ops.CHECK:
            self._check(op)
        elif op.row in _DIVISIONS:
            self._divide(self.rename(op))
        elif op.row in OPPOSITE:
            self._compare(self.rename(op))
        elif op.row is ops.LOOKUP:
            self._look_up(self.rename(op))
        elif op.row is ops.LANE_MASK:
            self._mask(self.rename(op))
        elif op.row is ops.AND and op.result.type is bool_:
            self._both(self.rename(op))
        elif op.row in (ops.MIN, ops.MAX):
            self._choose(self.rename(op))
        elif op.row is ops.CAST and op.operands[0].type in _SHORT:
            self._extend(self.rename(op))
        elif op.row is ops.ADD and op.result.type in INDICES:
            self._add(self.rename(op))
        else:
            super().step(op)

    def visit(self, op: Op) -> None:
        known = self.facts.range(self.value(op.operands[0])) if op.row is ops.IF else None
        if known is None or known[0] != known[1]:
            super().visit(op)
            return
        for inner in op.regions[0 if known[0] else 1].ops:
            if inner.row is ops.YIELD:
                self.replaced.update(zip(op.results, self.values(inner.operands), strict=True))
                return
            self.visit(inner)
            if self.out and self.out[-1].row.is_terminator:
                return

    def begin_loop(self, op: Op) -> Op:
        """With what is known of its direction, and of the position after its last one."""
        if op.row is not ops.FOR:
            return op
        stop, step = (self.facts.range(v) for v in op.operands[1:3])
        attrs = dict(op.attrs)
        if stop is not None and step is not None:
            if step[0] > 0 and step[0] != step[1]:
                attrs["rising"] = True
            least, largest = limits(index)
            first, last = stop[0] + 1 + min(step[0], 0), stop[1] - 1 + max(step[1], 0)
            if first >= least and last <= largest:
                attrs["fits"] = True
        return Op(op.row, op.operands, attrs, op.results, op.regions, op.span)

    # Checks

    def _check(self, op: Op) -> None:
        """Only what is not known is tested; from there on it is."""
        condition, *reported = self.values(op.operands)
        if op.attrs["kind"] == "overflow" and self._fits(str(op.attrs["argument"]), *reported):
            return
        parts = [v for v in self.facts.parts(condition) if not self.facts.holds(v)]
        if not parts:
            return
        tested = parts[0]
        for part in parts[1:]:
            tested = self.emit(ops.AND, (tested, part), span=op.span)
            self.facts.define(self.out[-1])
        self.out.append(Op(op.row, (tested, *reported), op.attrs, (), (), op.span))
        self.facts.learn(condition)

    def _fits(self, symbol: str, a: Value, b: Value) -> bool:
        """Whether index arithmetic stays in its range whatever the values are."""
        x, y = self.facts.range(a), self.facts.range(b)
        assert x is not None and y is not None
        low, high = exact(_ARITHMETIC[symbol], x, y)
        least, largest = limits(index)
        return least <= low and high <= largest

    # Comparisons and guards

    def _compare(self, op: Op) -> None:
        """A constant where the ranges decide."""
        decided = self.facts.decided(op)
        if decided is not None:
            attrs: dict[str, Attr] = {"type": bool_, "value": decided}
            op = Op(ops.CONST, (), attrs, op.results, (), op.span)
        self.out.append(op)
        self.facts.define(op)

    def _choose(self, op: Op) -> None:
        """The operand that is the smaller or the larger one whatever the values are."""
        a, b = op.operands
        x, y = self.facts.range(a), self.facts.range(b)
        is_known = x is not None and y is not None and not self._synchronises
        if is_known and whole(op.result.type) is not None:
            assert x is not None and y is not None
            small = a if x[1] <= y[0] else b if y[1] <= x[0] else None
            if small is not None:
                large = b if small is a else a
                self.replaced[op.result] = small if op.row is ops.MIN else large
                return
        self.out.append(op)
        self.facts.define(op)

    def _mask(self, op: Op) -> None:
        """A mask of what ends in a line, where that begins no later than the line does."""
        first, end = op.operands
        found = self.facts.range(first)
        if found is not None and found[1] <= 0 and not self._synchronises:
            operands = self.emit_const(first.type, 0, op.span), end
            op = Op(op.row, operands, op.attrs, op.results, (), op.span)
        self.out.append(op)
        self.facts.define(op)

    def _both(self, op: Op) -> None:
        """What is not known of two conditions."""
        for known, other in zip(op.operands, reversed(op.operands), strict=True):
            if self.facts.holds(known) and not self._synchronises:
                self.replaced[op.result] = other
                return
        self.out.append(op)
        self.facts.define(op)

    def branch(self, op: Op) -> None:
        if not _is_conjunction(op):
            super().branch(op)
            return
        *computed, last = op.regions[0].ops
        # what the second part computes is known already: its region has been rewritten
        self.out.extend(computed)
        joint = (op.operands[0], last.operands[0])
        super().branch(Op(ops.AND, joint, {}, op.results, (), op.span))

    # Divisions

    def _divide(self, op: Op) -> None:
        """The same operation, marked with what is known of its operands."""
        op = marked(op, self.facts, is_guarded=self._synchronises)
        self.out.append(op)
        self.facts.define(op)

    def _look_up(self, op: Op) -> None:
        """The same operation, marked if its index lies inside the table."""
        found, table = self.facts.range(op.operands[0]), op.attrs["table"]
        assert isinstance(table, tuple)
        if found is not None and found[0] >= 0 and found[1] < len(table) and not self._synchronises:
            op = Op(op.row, op.operands, {**op.attrs, "inside": True}, op.results, (), op.span)
        self.out.append(op)
        self.facts.define(op)

    def _extend(self, op: Op) -> None:
        """A conversion of a signed integer, marked where it has no sign to extend."""
        found = self.facts.range(op.operands[0])
        if found is not None and found[0] >= 0 and op.result.type in (index, i64):
            attrs = {**op.attrs, "nonnegative": True}
            op = Op(op.row, op.operands, attrs, op.results, (), op.span)
        self.out.append(op)
        self.facts.define(op)

    def _add(self, op: Op) -> None:
        """(a // b) * b + a % b is a, where b is not 0."""
        whole_ = self.facts.recombined(*op.operands)
        if whole_ is not None:
            self.replaced[op.result] = whole_
            return
        self.out.append(op)
        self.facts.define(op)


def marked(division: Op, facts: IntegerFacts, *, is_guarded: bool) -> Op:
    """A division, marked with what is known of its operands. Where it `is_guarded`, the compiler
    tests the divisor for 0 whatever is known of it."""
    a, b = (facts.range(v) for v in division.operands)
    if a is None or b is None or whole(division.result.type) is None:
        return division
    attrs = dict(division.attrs)
    if a[0] >= 0 and b[0] >= 0:
        attrs["nonnegative"] = True
    if b[0] != b[1] and not b[0] <= 0 <= b[1] and not is_guarded:
        attrs["nonzero"] = True
    if len(attrs) == len(division.attrs):
        return division
    return Op(division.row, division.operands, attrs, division.results, (), division.span)


def _is_conjunction(op: Op) -> bool:
    """Whether a branch is what `a and b` became, with nothing left that may not always run."""
    then, otherwise = op.regions
    return (
        len(op.results) == 1
        and op.results[0].type is bool_
        and all(is_speculatable(o) for o in then.ops[:-1])
        and then.terminator.row is ops.YIELD
        and len(otherwise.ops) == 1
        and otherwise.terminator.row is ops.YIELD
        and otherwise.terminator.operands == op.operands
    )
