"""Functions of the language copied into kernels: traced once for a type, then inlined where needed.

Serves passes that express what a target lacks in the language itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cubepy.artifact import Scalar
from cubepy.frontend.calls import inline
from cubepy.frontend.joins import Learned
from cubepy.frontend.tracer import Frame, Tracer
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Param, Region, Value
from cubepy.ir.types import Buffer, DType, Line, element_of
from cubepy.lang.function import read_source
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.cse import cse
from cubepy.passes.dce import dce
from cubepy.passes.fold import fold
from cubepy.passes.rewrite import copy_op
from cubepy.span import Span
from cubepy.targets import Target

Number = DType | Line
Function = Callable[..., Any]


def inlined(
    function: Function, args: tuple[Value, ...], t: Number, span: Span | None, out: list[Op]
) -> Value:
    """Append the body of `function` for these arguments to `out`; gives its result, of type `t`."""
    types = tuple(a.type for a in args)
    body = _traced(function, types, t)  # type: ignore[arg-type]
    copies = {p.value: v for p, v in zip(body.params[1:], args, strict=True)}
    *statements, kept, _ = body.body.ops
    out.extend(copy_op(op, copies, span) for op in statements)
    return copies.get(kept.operands[2], kept.operands[2])


@lru_cache(maxsize=1024)
def _traced(function: Function, types: tuple[Number, ...], t: Number) -> Kernel:
    """The function as a kernel whose last act is to store the result."""
    learned = Learned()
    traced, is_right = _trace(function, types, t, learned)
    while not is_right:
        traced, is_right = _trace(function, types, t, learned)
    for step in (construct_ssa, fold, cse, dce):
        traced = step(traced)
    return traced


def _trace(
    function: Function, types: tuple[Number, ...], t: Number, learned: Learned
) -> tuple[Kernel, bool]:
    tracer = Tracer(Target("none", ""), (1, 1, 1), 1, learned)
    source = read_source(function.__code__)
    frame = Frame(tracer, source, None, (), None)
    args = [Value(a, f"a{k}") for k, a in enumerate(types)]
    node = ast.copy_location(ast.Pass(), source.node)
    result = tracer.value(inline(frame, node, function, [*args], {}))
    place = Value(Buffer(element_of(t)), "result")
    tracer.b.emit_op(ops.STORE, place, tracer.b.index(0), tracer.cast(result, t))
    tracer.b.emit_op(ops.RETURN)
    params = tuple(Param(v, v.name, Scalar()) for v in (place, *args))
    kernel = Kernel(source.name, params, Region((), (*tracer.locals, *tracer.b.ops)))
    return kernel, tracer.finish()
