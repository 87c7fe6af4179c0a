"""Inline the expansions of elementary functions, which are written in the language itself.

Floats below f32 are computed in f32 and rounded once more; where that takes fewer operations, by an
expansion that is as precise as they need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op
from cubepy.ir.types import DType, Line, element_of, f32, with_element
from cubepy.lang.math.table import expansion
from cubepy.passes.inline import inlined
from cubepy.passes.rewrite import Rewriter


def expand(native: Collection[str] = ()) -> Callable[[Kernel], Kernel]:
    """The pass for a target that has the functions `native` itself, such as "exp_f32"."""
    return lambda kernel: kernel if _is_exact(kernel) else _Expand(native).run(kernel)


def _is_exact(kernel: Kernel) -> bool:
    return all(op.row.exact for op in kernel.body.walk())


class _Expand(Rewriter):
    def __init__(self, native: Collection[str]) -> None:
        super().__init__()
        self._native = native

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
        element = element_of(wide).name
        coarse = expansion(op.row.name, element_of(t).name) if wide != t else None
        if coarse is not None:
            result = inlined(coarse, operands, wide, op.span, self.out)
        elif f"{op.row.name}_{element}" in self._native:
            result = self.emit(op.row, operands, {}, op.span, op.result.name)
        else:
            function = expansion(op.row.name, element)
            assert function is not None
            result = inlined(function, operands, wide, op.span, self.out)
        if wide != t:
            result = self.emit(ops.CAST, (result,), {"type": t}, op.span)
        self.replaced[op.result] = result
