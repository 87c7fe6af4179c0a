"""Signs of small floats are copied on their bits: a conversion to f32 may lose that of a NaN."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.types import DType, Type, element_of, u8, u16, with_element
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.rewrite import Rewriter

_WORDS = {8: u8, 16: u16}


def copy_signs(kernel: Kernel, target: Capabilities) -> Kernel:
    """Replace `copysign` of the floats that the target does not compute with."""
    return _CopySigns(target.stored).run(kernel)


class _CopySigns(Rewriter):
    def __init__(self, dtypes: frozenset[DType]) -> None:
        super().__init__()
        self._dtypes = dtypes

    def visit(self, op: Op) -> None:
        if op.row is ops.COPYSIGN and element_of(op.result.type) in self._dtypes:
            self._copysign(op)
        else:
            self.out.append(self.renew(op))

    def _copysign(self, op: Op) -> None:
        t = op.result.type
        word = with_element(t, _WORDS[element_of(t).bits])
        sign = 1 << element_of(t).bits - 1
        a, b = (self._bits(op, v, word) for v in self.values(op.operands))
        size = self.emit(ops.AND, (a, self.emit_const(word, sign - 1, op.span)), {}, op.span)
        sign_of = self.emit(ops.AND, (b, self.emit_const(word, sign, op.span)), {}, op.span)
        bits = self.emit(ops.OR, (size, sign_of), {}, op.span)
        self.replaced[op.result] = self._bits(op, bits, t)

    def _bits(self, op: Op, value: Value, t: Type) -> Value:
        attrs: dict[str, Attr] = {"type": t}
        return self.emit(ops.BITCAST, (value,), attrs, op.span)
