"""Inline the expansions of elementary functions, which are written in the language itself.

Floats below f32 are computed in f32 and rounded once more; where that takes fewer operations, by an
expansion that is as precise as they need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import DType, Line, element_of, f32, with_element
from cubepy.lang.math.table import expansion
from cubepy.passes.inline import inlined
from cubepy.passes.rewrite import Rewriter


def expand(native: Collection[str] = (), fast_math: bool = False) -> Callable[[Kernel], Kernel]:
    """The pass for a target that has the functions `native` itself, such as "exp_f32".

    With `fast_math` the operations of expansions are marked `strict`: they take remainders of
    rounding, which are 0 where floats are taken for reals.
    """
    return lambda kernel: kernel if _is_exact(kernel) else _Expand(native, fast_math).run(kernel)


def _is_exact(kernel: Kernel) -> bool:
    return all(op.row.exact for op in kernel.body.walk())


class _Expand(Rewriter):
    def __init__(self, native: Collection[str], fast_math: bool) -> None:
        super().__init__()
        self._native = native
        self._is_fast = fast_math

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
            result = self._inlined(coarse, operands, wide, op)
        elif f"{op.row.name}_{element}" in self._native:
            result = self.emit(op.row, operands, {}, op.span, op.result.name)
        else:
            function = expansion(op.row.name, element)
            assert function is not None
            result = self._inlined(function, operands, wide, op)
        if wide != t:
            result = self.emit(ops.CAST, (result,), {"type": t}, op.span)
        self.replaced[op.result] = result

    def _inlined(
        self, function: Callable[..., Any], operands: tuple[Value, ...], t: DType | Line, op: Op
    ) -> Value:
        first = len(self.out)
        result = inlined(function, operands, t, op.span, self.out)
        if self._is_fast:
            self.out[first:] = map(_strict, self.out[first:])
        return result


def _strict(op: Op) -> Op:
    """The same operation, as it stands, and those in its regions."""
    attrs = op.attrs
    if "strict" in op.row.attrs and element_of(op.result.type).is_float:
        attrs = {**attrs, "strict": True}
    regions = tuple([Region(r.args, tuple(map(_strict, r.ops))) for r in op.regions])
    return Op(op.row, op.operands, attrs, op.results, regions, op.span)
