"""Inline the expansions of elementary functions, which are written in the language itself.

Each function is traced once for a type, brought to SSA, and then copied to where it is used.
Floats below f32 are computed in f32 and rounded once more.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

from cubepy.frontend.calls import inline
from cubepy.frontend.tracer import Frame, Learned, Restart, Tracer
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Param, Region, Value
from cubepy.ir.types import Buffer, DType, Line, element_of, f32, with_element
from cubepy.lang.function import read_source
from cubepy.lang.math import EXPANSIONS
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.fold import fold
from cubepy.passes.remove_dead import remove_dead
from cubepy.passes.rewrite import Rewriter, copy_op
from cubepy.passes.share import share
from cubepy.targets import Target


def expand(kernel: Kernel) -> Kernel:
    """Replace every elementary function by its expansion."""
    return _Expand().run(kernel)


class _Expand(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row.exact:
            self.out.append(self.renew(op))
            return
        t = op.result.type
        operands = self.values(op.operands)
        wide = with_element(t, f32) if element_of(t).bits < 32 else t
        if wide != t:
            operands = tuple(self.emit(ops.CAST, (v,), {"type": wide}, op.span) for v in operands)
        result = self._inline(op, wide, operands)
        if wide != t:
            result = self.emit(ops.CAST, (result,), {"type": t}, op.span)
        self.replaced[op.result] = result

    def _inline(self, op: Op, t: DType | Line, operands: tuple[Value, ...]) -> Value:
        expansion = _expansion(op.row.name, t, len(operands))
        copies = {p.value: v for p, v in zip(expansion.params[1:], operands, strict=True)}
        *body, kept, _ = expansion.body.ops
        self.out += [copy_op(inner, copies, op.span) for inner in body]
        return copies.get(kept.operands[2], kept.operands[2])


@cache
def _expansion(name: str, t: DType | Line, count: int) -> Kernel:
    """The expansion of a function for a type, as a kernel whose last act is to store the result."""
    function = EXPANSIONS[name, element_of(t).name]
    learned = Learned()
    while True:
        try:
            traced = _trace(function, t, count, learned)
            break
        except Restart:
            continue
    for step in (construct_ssa, fold, share, remove_dead):
        traced = step(traced)
    return traced


def _trace(function: Callable[..., Any], t: DType | Line, count: int, learned: Learned) -> Kernel:
    tracer = Tracer(Target("none", ""), (1, 1, 1), 1, learned)
    source = read_source(function.__code__)
    frame = Frame(tracer, source, None, (), None)
    args = [Value(t, f"a{k}") for k in range(count)]
    node = ast.copy_location(ast.Pass(), source.node)
    result = tracer.value(inline(frame, node, function, args, {}))
    place = Value(Buffer(element_of(t)), "result")
    tracer.b.emit_op(ops.STORE, place, tracer.b.index(0), tracer.cast(result, t))
    tracer.b.emit_op(ops.RETURN)
    params = tuple(Param(v, v.name, "value") for v in (place, *args))
    return Kernel(source.name, params, Region((), (*tracer.locals, *tracer.b.ops)))
