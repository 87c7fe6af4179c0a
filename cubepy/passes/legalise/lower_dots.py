"""Sums of products of neighbouring lanes, for targets that have no such instruction."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.dot import GROUP
from cubepy.ir.types import element_of, i32, width_of, with_element
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.rewrite import Rewriter


def lower_dots(kernel: Kernel, target: Capabilities) -> Kernel:
    """`dot` as products of 32 bits, one lane of each group at a time."""
    if target.has(ops.DOT, i32) or not any(op.row is ops.DOT for op in kernel.body.walk()):
        return kernel
    return _Lower().run(kernel)


class _Lower(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is not ops.DOT:
            self.out.append(self.renew(op))
            return
        a, b, total = self.values(op.operands)
        for lane in range(GROUP):
            left, right = self._lanes(op, a, lane), self._lanes(op, b, lane)
            product = self.emit(ops.MUL, (left, right), {}, op.span)
            total = self.emit(ops.ADD, (total, product), {}, op.span)
        self.replaced[op.result] = total

    def _lanes(self, op: Op, line: Value, lane: int) -> Value:
        """One lane of each group, in 32 bits."""
        t = op.result.type
        if width_of(line.type) == GROUP and t is i32:
            found = self.emit(ops.EXTRACT, (line,), {"lane": lane}, op.span)
        else:
            lanes = tuple(range(lane, width_of(line.type), GROUP))
            found = self.emit(ops.SHUFFLE, (line, line), {"lanes": lanes}, op.span)
        assert element_of(found.type).bits == 8
        return self.emit(ops.CAST, (found,), {"type": with_element(found.type, i32)}, op.span)
