"""Divisions that are the same for all units, but stand in branches, go before the loops over units.

LLVM's loop vectoriser (22) runs a division of what does not change in a loop, in a branch that some
lanes take, where the first lane takes it; else what it gives is poison, also as the address of the
lanes that do. LLVM sees more of them than stand in a kernel: in `if i == 7` it takes 7 for `i`, and
so does this pass. Total divisions may run before the branch; of what was proved within it, that is
said of them which holds wherever they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.numbers import limits
from cubepy.ir.types import INDICES, DType, element_of
from cubepy.passes.facts import IntegerFacts
from cubepy.passes.prove import marked
from cubepy.passes.ranges import exact
from cubepy.passes.rewrite import Rewriter

_DIVISIONS = (ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC)
_SUMS = (ops.ADD, ops.SUB, ops.MUL, ops.NEG, ops.ABS, ops.SHL)
_PROVED = ("nonzero", "nonnegative", "everywhere", "inside")


def hoist_divisions(kernel: Kernel) -> Kernel:
    """The kernel with what all units share computed first, where a branch divides."""
    branches = [op for op in kernel.body.walk() if op.row is ops.IF]
    inner = (o for op in branches for region in op.regions for o in region.walk())
    if not any(op.row in _DIVISIONS for op in inner):
        return kernel
    return _Hoist(kernel).kernel


class _Hoist(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._fixed = {p.value for p in kernel.params}
        self._facts = IntegerFacts(kernel)
        self._wrapping: set[Value] = set()
        """Indices that may wrap where no branch guards them, and what is made of them."""
        self._sources = {v: op for op in kernel.body.walk() for v in op.results}
        self._first: list[Op] = []
        """What all units share."""
        body = self.region(kernel.body)
        self.kernel = replace(kernel, body=Region((), (*self._first, *body.ops)))

    def visit(self, op: Op) -> None:
        if op.row is ops.IF:
            self._branch(op)
            return
        op = self.renew(op)
        if len(op.results) != 1 or not self._is_shared(op):
            self.out.append(op)
            return
        op = self._proved(op)
        self._facts.define(op)
        self._first.append(op)
        self._fixed.add(op.result)

    def _proved(self, op: Op) -> Op:
        """The operation with what is known of it wherever it runs."""
        if self._may_wrap(op):
            self._wrapping.add(op.result)
        attrs = {k: v for k, v in op.attrs.items() if k not in _PROVED}
        op = Op(op.row, op.operands, attrs, op.results, (), op.span)
        if op.row not in _DIVISIONS:
            return op
        op = marked(op, self._facts, is_guarded=op.operands[1] in self._wrapping)
        attrs = {**op.attrs, "everywhere": True} if op.attrs.get("nonzero") else op.attrs
        return Op(op.row, op.operands, attrs, op.results, (), op.span)

    def _may_wrap(self, op: Op) -> bool:
        """Whether an index, or one behind it, may be out of its range: facts of it do not hold."""
        if not self._wrapping.isdisjoint(op.operands):
            return True
        if element_of(op.result.type) not in INDICES or op.row not in _SUMS:
            return False
        ranges = [self._facts.range(v) for v in op.operands]
        if len(ranges) != 2 or ranges[0] is None or ranges[1] is None:
            return True
        least, largest = limits(element_of(op.result.type))
        low, high = exact(op.row, ranges[0], ranges[1])
        return low < least or high > largest

    def _is_shared(self, op: Op) -> bool:
        row = op.row
        if not row.is_pure or row.reads or op.regions or row is ops.LOOKUP:
            return False  # by now look-ups are of indices that were proved to lie inside
        is_total = not row.needs or row in _DIVISIONS
        return is_total and self._fixed.issuperset(op.operands) and _is_same(op)

    def _branch(self, op: Op) -> None:
        regions: list[Region] = []
        for region, holds in zip(op.regions, (True, False), strict=True):
            kept = dict(self.replaced)
            for value, number in self._equal(op.operands[0], holds):
                self.replaced[value] = self.value(number)
            regions.append(self.region(region))
            self.replaced = kept
        operands = self.values(op.operands)
        self.out.append(Op(op.row, operands, op.attrs, op.results, tuple(regions), op.span))

    def _equal(self, condition: Value, holds: bool) -> Iterator[tuple[Value, Value]]:
        """Integers that are constants where a condition holds, or does not."""
        op = self._sources.get(condition)
        if op is None:
            return
        if op.row is (ops.AND if holds else ops.OR):
            for part in op.operands:
                yield from self._equal(part, holds)
        elif op.row is ops.NOT:
            yield from self._equal(op.operands[0], not holds)
        elif op.row is (ops.EQ if holds else ops.NE):
            for value, number in zip(op.operands, reversed(op.operands), strict=True):
                source = self._sources.get(number)
                is_constant = source is not None and source.row is ops.CONST
                if is_constant and isinstance(value.type, DType) and value.type.is_integer:
                    yield value, number


def _is_same(op: Op) -> bool:
    """Whether an operation without operands gives the same to all units."""
    return bool(op.operands) or op.row is ops.CONST
