"""Sums of signed integers on unsigned ones, for targets that let signed sums overflow."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op
from cubepy.ir.types import Kind, bool_, element_of, i32, i64, unsigned_like
from cubepy.passes.rewrite import Rewriter

_OVERFLOWING = (ops.ADD, ops.SUB, ops.MUL, ops.NEG)


def wrap_signed(kernel: Kernel) -> Kernel:
    """Sums and products of i32 and i64 on unsigned numbers, which wrap everywhere.

    Indices never wrap, and smaller types are computed in `int`. Negative numbers are shifted to the
    left as unsigned ones.
    """
    return _Wrap().run(kernel)


class _Wrap(Rewriter):
    def visit(self, op: Op) -> None:
        dtype = element_of(op.results[0].type) if len(op.results) == 1 else bool_
        wraps = op.row in _OVERFLOWING and dtype in (i32, i64)
        if not wraps and not (op.row is ops.SHL and dtype.kind is Kind.INT):
            self.out.append(self.renew(op))
            return
        unsigned: Attr = unsigned_like(op.result.type)
        operands = [
            self.emit(ops.BITCAST, (v,), {"type": unsigned}, op.span)
            for v in self.values(op.operands)
        ]
        result = self.emit(op.row, operands, {}, op.span)
        attrs: dict[str, Attr] = {"type": op.result.type}
        self.replaced[op.result] = self.emit(ops.BITCAST, (result,), attrs, op.span)
