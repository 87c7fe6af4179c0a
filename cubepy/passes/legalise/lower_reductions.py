"""Reductions of lines as operations on lanes, in the order that the op table promises."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import width_of
from cubepy.passes.rewrite import Rewriter


def lower_reductions(kernel: Kernel) -> Kernel:
    """The kernel without reductions of lines."""
    return _Reductions().run(kernel)


class _Reductions(Rewriter):
    def visit(self, op: Op) -> None:
        row = op.row.step
        if row is None or op.row not in ops.REDUCTIONS:
            self.out.append(self.renew(op))
            return
        (line,) = self.values(op.operands)
        lanes = [self._lane(op, line, k) for k in range(width_of(line.type))]
        while half := len(lanes) // 2:
            pairs = zip(lanes[:half], lanes[half : 2 * half], strict=True)
            rest = lanes[2 * half :]
            lanes = [self.emit(row, pair, {}, op.span) for pair in pairs] + rest
        self.replaced[op.result] = lanes[0]

    def _lane(self, op: Op, line: Value, lane: int) -> Value:
        return self.emit(ops.EXTRACT, (line,), {"lane": lane}, op.span)
