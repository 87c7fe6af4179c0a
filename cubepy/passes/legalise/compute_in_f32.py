"""Small floats that a target converts, but does not compute with, are computed in f32."""

from __future__ import annotations

from cubepy.ir import cuda, ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.types import (
    Buffer,
    DType,
    Type,
    bf16,
    element_of,
    f32,
    f64,
    with_element,
)
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.round_to_odd import odd_f32, odd_fma

_MOVES = (
    *(ops.CONST, ops.SELECT, ops.SPLAT, ops.EXTRACT, ops.INSERT, ops.SHUFFLE, ops.BITCAST),
    *(ops.MISALIGNMENT, cuda.ADDRESS),
)


def compute_in_f32(kernel: Kernel, target: Capabilities) -> Kernel:
    """Small floats that the target converts, but does not compute with, are computed in f32.

    Sums, products, quotients and roots of f16 and below round alike, once or by way of f32; longer
    integers and fused multiply-add go there rounded to odd.
    """
    dtypes = target.stored - target.soft
    return _InF32(dtypes, target).run(kernel) if dtypes else kernel


class _InF32(Rewriter):
    def __init__(self, dtypes: frozenset[DType], target: Capabilities) -> None:
        super().__init__()
        self._dtypes = dtypes
        self._native_fma = target.native_fma
        self._has_f64 = f64 in target.scalars

    def visit(self, op: Op) -> None:
        if not op.row.is_pure or op.row in _MOVES or not self._concerns(op):
            self.out.append(self.renew(op))
        elif op.row is ops.CAST:
            self._cast(op)
        elif op.row is ops.FMA and element_of(op.result.type) in self._native_fma:
            self.out.append(self.renew(op))
        else:
            self._compute(op)

    def _concerns(self, op: Op) -> bool:
        """Whether it computes with small floats; what looks at addresses of them does not."""
        values = (v.type for v in (*op.operands, *op.results))
        return any(not isinstance(t, Buffer) and element_of(t) in self._dtypes for t in values)

    def _to(self, op: Op, value: Value, t: Type) -> Value:
        if value.type == t:
            return value
        attrs: dict[str, Attr] = {"type": t}
        return self.emit(ops.CAST, (value,), attrs, op.span)

    def _cast(self, op: Op) -> None:
        """From f32 and f64 at once, from and to others by way of f32."""
        (value,) = self.values(op.operands)
        source, target = element_of(value.type), element_of(op.result.type)
        is_plain = {source, target} - self._dtypes <= {f32, f64} and source is not target
        if is_plain and not {source, target} <= self._dtypes:
            self.out.append(self.renew(op))
        else:
            wide = odd_f32(value, op.span, self.out)
            self.replaced[op.result] = self._to(op, wide, op.result.type)

    def _compute(self, op: Op) -> None:
        operands = tuple(self._widened(op, v) for v in self.values(op.operands))
        dtype = element_of(op.result.type)
        if op.row is ops.FMA and dtype in self._dtypes:
            result = odd_fma(operands, dtype is bf16 and self._has_f64, op.span, self.out)
        else:
            result = self.emit(op.row, operands, dict(op.attrs), op.span, op.result.name)
        self.replaced[op.result] = self._to(op, result, op.result.type)

    def _widened(self, op: Op, value: Value) -> Value:
        if element_of(value.type) not in self._dtypes:
            return value
        return self._to(op, value, with_element(value.type, f32))
