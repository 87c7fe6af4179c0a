"""Sums of products of neighbouring lanes, for targets that have no such instruction."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.dot import group_of
from cubepy.ir.types import DType, element_of, f32, i32, width_of, with_element
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.rewrite import Rewriter


def lower_dots(kernel: Kernel, target: Capabilities) -> Kernel:
    """`dot` as products of 32 bits, one lane of each group at a time, the last one first."""
    if target.has(ops.DOT, i32) or not any(op.row is ops.DOT for op in kernel.body.walk()):
        return kernel
    return _Lower().run(kernel)


class _Lower(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is not ops.DOT:
            self.out.append(self.renew(op))
            return
        a, b, total = self.values(op.operands)
        for lane in reversed(range(group_of(element_of(op.result.type)))):
            left, right = self._lanes(op, a, lane), self._lanes(op, b, lane)
            if element_of(op.result.type) is f32:
                total = self.emit(ops.FMA, (left, right, total), {}, op.span)
            else:
                product = self.emit(ops.MUL, (left, right), {}, op.span)
                total = self.emit(ops.ADD, (total, product), {}, op.span)
        self.replaced[op.result] = total

    def _lanes(self, op: Op, line: Value, lane: int) -> Value:
        """One lane of each group, in 32 bits."""
        t, dtype = op.result.type, element_of(op.result.type)
        if isinstance(t, DType):
            found = self.emit(ops.EXTRACT, (line,), {"lane": lane}, op.span)
        else:
            lanes = tuple(range(lane, width_of(line.type), group_of(dtype)))
            found = self.emit(ops.SHUFFLE, (line, line), {"lanes": lanes}, op.span)
        return self.emit(ops.CAST, (found,), {"type": with_element(found.type, dtype)}, op.span)
