"""Random kernels made such that one machine and another must agree on every bit.

What is unspecified is rewritten: positions become constants, elementary functions and the bits of
NaN their first operand, memory is filled where it is allocated, indices stay small.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.types import Line, element_of, index, with_element
from cubepy.ir.verify import verify
from cubepy.passes.rewrite import Rewriter
from tests.ir.machine import POSITION
from tests.ir.strategies import BUFFER_SIZE

SMALL = 1009
"""Indices are taken modulo this, so that their products stay in range."""
_DROPPED = (ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_STORAGE)
_BOUNDED = (
    ops.ADD,
    ops.SUB,
    ops.MUL,
    ops.CAST,
    ops.BITCAST,
    ops.SHL,
    ops.NEG,
    ops.FMA,
    ops.LOAD,
    ops.REDUCE_ADD,
    ops.REDUCE_MUL,
)


def normal(kernel: Kernel) -> Kernel:
    """The kernel with everything specified, for a cube of one unit."""
    return verify(replace(_Normal().run(kernel), cube_dim=(1, 1, 1), plane_dim=1))


def small_indices(kernel: Kernel) -> Kernel:
    """The kernel with indices that never wrap, as programs promise."""
    return verify(_Small().run(kernel))


class _Small(Rewriter):
    def visit(self, op: Op) -> None:
        self.out.append(self.renew(op))
        if op.results and op.row in _BOUNDED and element_of(op.result.type) is index:
            renewed = self.out[-1].result
            limit = self._number(op, SMALL, renewed)
            self.replaced[op.result] = self.emit(ops.MOD, (renewed, limit), {}, op.span)

    def _number(self, op: Op, number: int, like: Value) -> Value:
        attrs: dict[str, Attr] = {"type": element_of(like.type), "value": number}
        scalar = self.emit(ops.CONST, (), attrs, op.span)
        if not isinstance(like.type, Line):
            return scalar
        return self.emit(ops.SPLAT, (scalar,), {"lanes": like.type.width}, op.span)


class _Normal(_Small):
    def visit(self, op: Op) -> None:
        if op.row in _DROPPED:
            return
        if op.row.is_pure and not op.operands and op.row is not ops.CONST:
            self._constant(op, POSITION[str(op.attrs.get("axis", "all"))])
        elif op.row is ops.MISALIGNMENT:
            self._constant(op, 1)
        elif op.row is ops.ALLOC:
            self.out.append(self.renew(op))
            self._fill(op)
        elif self._is_unspecified(op):
            self._first_operand(op)
        else:
            super().visit(op)

    def _constant(self, op: Op, number: int) -> None:
        attrs: dict[str, Attr] = {"type": index, "value": number}
        self.replaced[op.result] = self.emit(ops.CONST, (), attrs, op.span)

    def _emit(self, op: Op, row: ops.OpDef) -> None:
        self.replaced[op.result] = self.emit(row, self.values(op.operands), {}, op.span)

    def _is_unspecified(self, op: Op) -> bool:
        if not op.row.is_pure or not op.operands:
            return False
        of_float = [element_of(v.type).is_float for v in (*op.operands[:1], *op.results)]
        is_bits = op.row is ops.BITCAST and any(of_float)
        return (
            not op.row.exact
            or op.row is ops.COPYSIGN
            or is_bits
            or op.row.name.startswith("plane_")
        )

    def _first_operand(self, op: Op) -> None:
        first = self.values(op.operands)[0]
        if first.type == op.result.type:
            self.replaced[op.result] = first
            return
        t = with_element(first.type, element_of(op.result.type))
        assert t == op.result.type, op.row
        self.replaced[op.result] = self.emit(ops.CAST, (first,), {"type": t}, op.span)

    def _fill(self, op: Op) -> None:
        dtype = element_of(op.result.type)
        zero = False if dtype.bits == 1 else 0.0 if dtype.is_float else 0
        value = self.emit(ops.CONST, (), {"type": dtype, "value": zero}, op.span)
        for k in range(BUFFER_SIZE):
            place = self.emit(ops.CONST, (), {"type": index, "value": k}, op.span)
            self.out.append(Op(ops.STORE, (op.result, place, value), {}, (), (), op.span))
