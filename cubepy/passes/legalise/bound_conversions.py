"""Integers beyond what f16 holds are cut before they become f16.

LLVM 22 takes an integer of few significant bits for one that f16 holds, however large it is, and
converts it to f32 or back to an integer without the infinity between. From 65520 on every integer
is infinite in f16, and 65535 has too many bits for LLVM's rule, so nothing else changes.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import Kind, bool_, element_of, f16
from cubepy.passes.rewrite import Rewriter

MOST = 65535
NARROW = 16
"""Bits of an integer that f16 holds, but for its rounding."""


def bound_conversions(kernel: Kernel) -> Kernel:
    """The kernel with integers cut where they become f16, also by way of a wider float."""
    return _Bound().run(kernel)


class _Bound(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[Value, Value] = {}
        """The integers that were converted to wider floats."""

    def visit(self, op: Op) -> None:
        op = self.renew(op)
        if op.row is not ops.CAST:
            self.out.append(op)
            return
        (source,) = op.operands
        a, b = element_of(source.type), element_of(op.result.type)
        is_wide = a.is_integer and a is not bool_ and a.bits > NARROW
        if b is f16 and is_wide:
            source = self._cut(source, op)
        elif b is f16 and source in self._sources:
            cut = self._cut(self._sources[source], op)
            source = self.emit(ops.CAST, (cut,), {"type": source.type}, op.span)
        elif b.is_float and is_wide:
            self._sources[op.result] = source
        attrs = op.attrs if source is op.operands[0] else {"type": op.result.type}
        self.out.append(Op(op.row, (source,), attrs, op.results, (), op.span))

    def _cut(self, value: Value, op: Op) -> Value:
        most = self.emit_const(value.type, MOST, op.span)
        value = self.emit(ops.MIN, (value, most), {}, op.span)
        if element_of(value.type).kind is not Kind.INT:
            return value
        least = self.emit_const(value.type, -MOST, op.span)
        return self.emit(ops.MAX, (value, least), {}, op.span)
