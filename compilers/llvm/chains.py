"""Loops of scalars that LLVM makes no lines of, as each iteration needs what the one before has
stored: running sums of integers and the like, which take less time than the counter of the loop."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.types import DType, Line

LONG = 16
"""Operations of a body from which on a processor has enough to do beside the counter."""


def stores_running_integers(loop: Op) -> bool:
    """Whether a short `for` without branches stores integers that it carries."""
    region = loop.regions[0]
    *body, end = region.ops
    if len(body) > LONG or any(op.regions or not _is_plain(op) for op in body):
        return False
    definitions = {v: op for op in body for v in op.results}
    carried = {v for v in (*region.args[1:], *end.operands) if _is_integer(v)}
    stored = [op.operands[2] for op in body if op.row is ops.STORE]
    return any(_reads(v, carried, definitions) for v in stored)


def _is_plain(op: Op) -> bool:
    is_known = op.row.is_pure or op.row in (ops.LOAD, ops.STORE)
    return is_known and not any(isinstance(v.type, Line) for v in (*op.operands, *op.results))


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, DType) and value.type.is_integer


def _reads(value: Value, carried: set[Value], definitions: dict[Value, Op]) -> bool:
    """Whether a value is one of the carried ones, or made of one."""
    op = definitions.get(value)
    operands = op.operands if op is not None else ()
    return value in carried or any(_reads(v, carried, definitions) for v in operands)
