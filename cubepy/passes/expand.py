"""Inline the expansions of elementary functions, which are written in the language itself.

Floats below f32 are computed in f32 and rounded once more.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op
from cubepy.ir.types import DType, Line, element_of, f32, with_element
from cubepy.lang.math import EXPANSIONS
from cubepy.passes.inline import inlined
from cubepy.passes.rewrite import Rewriter


def expand(kernel: Kernel) -> Kernel:
    """Replace every elementary function by its expansion."""
    return _Expand().run(kernel)


class _Expand(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row.exact:
            self.out.append(self.renew(op))
            return
        t = op.result.type
        assert isinstance(t, DType | Line)
        operands = self.values(op.operands)
        wide = with_element(t, f32) if element_of(t).bits < 32 else t
        if wide != t:
            operands = tuple(self.emit(ops.CAST, (v,), {"type": wide}, op.span) for v in operands)
        function = EXPANSIONS[op.row.name, element_of(wide).name]
        result = inlined(function, operands, wide, op.span, self.out)
        if wide != t:
            result = self.emit(ops.CAST, (result,), {"type": t}, op.span)
        self.replaced[op.result] = result
