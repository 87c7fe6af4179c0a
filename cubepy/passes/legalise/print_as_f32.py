"""Floats that are only stored are printed as f32."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import DType, element_of, f32, with_element
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.rewrite import Rewriter


def print_as_f32(kernel: Kernel, target: Capabilities) -> Kernel:
    """The kernel with casts before its prints."""
    return _Printed(target.stored).run(kernel)


class _Printed(Rewriter):
    def __init__(self, dtypes: frozenset[DType]) -> None:
        super().__init__()
        self._dtypes = dtypes

    def visit(self, op: Op) -> None:
        op = self.renew(op)
        if op.row is ops.PRINT:
            operands = tuple(self._shown(op, v) for v in op.operands)
            op = Op(op.row, operands, op.attrs, (), (), op.span)
        self.out.append(op)

    def _shown(self, op: Op, value: Value) -> Value:
        if element_of(value.type) not in self._dtypes:
            return value
        t = with_element(value.type, f32)
        return self.emit(ops.CAST, (value,), {"type": t}, op.span)
