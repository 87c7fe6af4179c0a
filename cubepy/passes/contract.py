"""Contracts a * b + c to fma(a, b, c), rounded once, where the product has no other use.

The only place where CubePy contracts: backends do not, so that all devices round alike.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import element_of
from cubepy.passes.rewrite import Rewriter, count_uses


def contract(kernel: Kernel) -> Kernel:
    """The kernel with fused multiply-adds of floats."""
    uses = count_uses(kernel)
    for op in kernel.body.walk():
        if op.row is ops.NAME:  # a debugger looks on, and must not change what is computed
            for value in op.operands:
                uses[value] -= 1
    return _Contract(uses).run(kernel)


class _Contract(Rewriter):
    def __init__(self, uses: dict[Value, int]) -> None:
        super().__init__()
        self._uses = uses
        self._products: dict[Value, Op] = {}

    def visit(self, op: Op) -> None:
        if op.row is ops.MUL and element_of(op.results[0].type).is_float:
            self._products[op.results[0]] = op
        fused = self._fused(op) if op.row in (ops.ADD, ops.SUB) else None
        self.out.append(fused or self.renew(op))

    def _fused(self, op: Op) -> Op | None:
        left, right = op.operands
        if product := self._product(left):  # a*b + c, a*b - c
            a, b = product.operands
            return _fma(op, a, b, right if op.row is ops.ADD else self._negated(right, op))
        if product := self._product(right):  # c + a*b, c - a*b
            a, b = product.operands
            return _fma(op, a if op.row is ops.ADD else self._negated(a, op), b, left)
        return None

    def _product(self, value: Value) -> Op | None:
        return self._products.get(value) if self._uses[value] == 1 else None

    def _negated(self, value: Value, op: Op) -> Value:
        return self.emit(ops.NEG, (value,), span=op.span)


def _fma(op: Op, a: Value, b: Value, c: Value) -> Op:
    return Op(ops.FMA, (a, b, c), {}, op.results, (), op.span)
