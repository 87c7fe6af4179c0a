"""Loops along a row of each unit's own, which LLVM vectorises along the row.

Lanes would gather from as many rows at once, and scatter to them, which takes ten times as long.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import INDICES, Buffer, DType, Space, element_of
from cubepy.passes.lane_costs import Remark
from cubepy.passes.lane_operations import LANEWISE
from cubepy.passes.lane_shapes import LOOPS, Shapes
from cubepy.passes.version_windows import usual_ops

SHORT = 16
"""Rows that are known to be shorter are no work for a loop in lines."""
_ALLOWED = LANEWISE | {ops.CONST, ops.LOAD, ops.STORE, ops.IF, ops.YIELD}
_DIVISIONS = frozenset((ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC))
"""What LLVM does one by one, unless the divisor is a constant."""
_JOINS = frozenset((ops.ADD, ops.MUL, ops.MIN, ops.MAX, ops.AND, ops.OR, ops.XOR))
"""How a loop may join integers in any order."""
_EXTREMES = frozenset((ops.MIN, ops.MAX))
"""How it may join floats in any order."""
_SUMS = _EXTREMES | {ops.ADD}
LITTLE = 4
"""Operations beside which scattering takes longer than a sum of floats that goes one by one."""


def loops_along_own_rows(kernel: Kernel, shapes: Shapes) -> Remark | None:
    """What is remarked if all innermost loops in which units differ are such loops."""
    found, definitions = None, {v: o for o in kernel.body.walk() for v in o.results}
    for op in usual_ops(kernel.body):
        if op.row not in LOOPS or any(o.row in LOOPS for o in op.regions[0].walk()):
            continue
        if _is_alike(op, shapes):
            continue
        if not _is_along_rows(op, shapes) or _reads_back(op, definitions):
            return None
        found = found or Remark("units stay scalar: LLVM vectorises along their rows", op.span)
    return found


def _is_alike(loop: Op, shapes: Shapes) -> bool:
    body = list(loop.regions[0].walk())
    values = [v for o in body for v in (*o.operands, *o.results)]
    return all(shapes.is_alike(v) for v in values)


def _is_along_rows(loop: Op, shapes: Shapes) -> bool:
    if loop.row is not ops.FOR or shapes.constant(loop.operands[2]) != 1 or _is_short(loop, shapes):
        return False
    region = loop.regions[0]
    *body, end = region.walk()
    if end.row is not ops.CONTINUE or not all(_is_vectorised(o, shapes) for o in body):
        return False
    stores = [o for o in body if o.row is ops.STORE]
    work = sum(o.row in LANEWISE and o.result.type not in INDICES for o in body)
    of_floats = _SUMS if stores and work <= LITTLE else _EXTREMES
    joins = zip(region.args[1:], end.operands, strict=True)
    if not all(_joins(region, arg, value, of_floats) for arg, value in joins):
        return False
    steps = _Steps(region)
    differing = [o for o in body if o.row is ops.LOAD and shapes.stride(o.operands[1]) != 0]
    if stores:
        return all(_is_row(o, steps, shapes) for o in stores)
    is_dense = all(steps.of(o.operands[1]) in (0, 1) for o in differing)
    return is_dense and any(_is_row(o, steps, shapes) for o in differing)


def _reads_back(loop: Op, definitions: dict[Value, Op]) -> bool:
    """Whether an iteration reads what one before it has stored, so that they go one by one."""
    accesses = [o for o in loop.regions[0].walk() if o.row in (ops.LOAD, ops.STORE)]
    stored = [
        (o.operands[0], *_place(o.operands[1], definitions)) for o in accesses if o.row is ops.STORE
    ]
    for op in accesses:
        terms, number = _place(op.operands[1], definitions)
        same = [n for buffer, t, n in stored if buffer is op.operands[0] and t == terms]
        if op.row is ops.LOAD and any(n > number for n in same):
            return True
    return False


def _place(value: Value, definitions: dict[Value, Op]) -> tuple[frozenset[Value], int]:
    """What is added to give a place: values, and a number."""
    op = definitions.get(value)
    if op is not None and op.row is ops.CONST:
        number = op.attrs["value"]
        return frozenset(), number if isinstance(number, int) else 0
    if op is None or op.row not in (ops.ADD, ops.SUB):
        return frozenset((value,)), 0
    (left, a), (right, b) = (_place(v, definitions) for v in op.operands)
    if op.row is ops.SUB and right:
        return frozenset((value,)), 0
    return left | right, a + b if op.row is ops.ADD else a - b


def _is_short(loop: Op, shapes: Shapes) -> bool:
    start, stop = (shapes.constant(v) for v in loop.operands[:2])
    return start is not None and stop is not None and stop - start < SHORT


def _is_vectorised(op: Op, shapes: Shapes) -> bool:
    """Whether LLVM has a form in lines for an operation, in a branch too."""
    if op.row not in _ALLOWED:
        return False
    if op.row in _DIVISIONS and shapes.constant(op.operands[1]) is None:
        return False
    if op.row in (ops.LOAD, ops.STORE):
        buffer = op.operands[0].type
        assert isinstance(buffer, Buffer)
        if buffer.space is not Space.GLOBAL:
            return False
    types = [v.type for v in (*op.operands, *op.results)]
    elements = [element_of(t) for t in types if isinstance(t, DType | Buffer)]
    return not any(e.is_float and e.bits < 32 for e in elements)


def _is_row(op: Op, steps: _Steps, shapes: Shapes) -> bool:
    """Whether neighbouring iterations access neighbours, and neighbouring units do not."""
    place = op.operands[1]
    return steps.of(place) == 1 and shapes.stride(place) not in (0, 1, -1)


def _joins(region: Region, arg: Value, value: Value, of_floats: frozenset[OpDef]) -> bool:
    """Whether each iteration joins what the loop carries with something else, in any order."""
    rows = of_floats if element_of(arg.type).is_float else _JOINS
    definitions = {v: o for o in region.walk() for v in o.results}
    return _reaches(arg, value, definitions, rows)


def _reaches(
    arg: Value, value: Value, definitions: dict[Value, Op], rows: frozenset[OpDef]
) -> bool:
    """Whether `value` is `arg`, joined by operations of one of the rows, or chosen from such."""
    if value is arg:
        return True
    op = definitions.get(value)
    if op is None:
        return False
    if op.row in rows:
        same = frozenset((op.row,))
        return any(_reaches(arg, v, definitions, same) for v in op.operands)
    if op.row is ops.SELECT:
        return all(_reaches(arg, v, definitions, rows) for v in op.operands[1:])
    if op.row is not ops.IF:
        return False
    place = op.results.index(value)
    ends = [r.ops[-1].operands[place] for r in op.regions]
    return all(_reaches(arg, v, definitions, rows) for v in ends)


class _Steps:
    """How far values of a loop go from one iteration to the next."""

    def __init__(self, region: Region) -> None:
        self._steps: dict[Value, int | None] = dict.fromkeys(region.args)
        self._steps[region.args[0]] = 1
        for op in region.walk():
            for result in op.results:
                self._steps[result] = self._of(op)

    def of(self, value: Value) -> int | None:
        """The distance; None where it is no number that is known."""
        return self._steps.get(value, 0)

    def _of(self, op: Op) -> int | None:
        steps = [self.of(v) for v in op.operands]
        known = [s for s in steps if s is not None]
        if len(known) < len(steps) or op.regions:
            return None
        if not any(known):
            return 0
        if op.row is ops.ADD:
            return known[0] + known[1]
        if op.row is ops.SUB:
            return known[0] - known[1]
        return known[0] if op.row is ops.CAST else None
