"""Units that mostly access records longer than LLVM loads by lines, as the rows of an (n, 3, 3)
array: it would gather and scatter them, which takes longer than scalars."""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import INDICES

LONGEST = 8
"""Elements of a record that LLVM loads by lines, which it then takes apart."""
WORK = 4
"""Operations of a unit for each of its accesses that are worth a gather."""
_POSITIONS = (ops.ABSOLUTE_POS, ops.UNIT_POS)


def goes_by_records(kernel: Kernel, body: Sequence[Op]) -> bool:
    """Whether a loop over units is better off with scalars."""
    strides, inner = _strides(kernel), [o for op in body for o in (op, *_within(op))]
    places = [o.operands[1] for o in inner if o.row in (ops.LOAD, ops.STORE)]
    far = [place for place in places if abs(strides.get(place, 0)) > LONGEST]
    work = [o for o in inner if o.row.is_pure and o.results and o.result.type not in INDICES]
    work = [o for o in work if o.row not in (ops.CONST, ops.CAST)]
    return len(work) < WORK * len(far)


def _strides(kernel: Kernel) -> dict[Value, int]:
    """How far the values of neighbouring units along x lie apart, where that is a number."""
    found, numbers = dict[Value, int](), dict[Value, int]()
    for op in kernel.body.walk():
        if op.row is ops.CONST and op.result.type in INDICES:
            numbers[op.result] = _integer(op)
        elif op.row in _POSITIONS and op.attrs["axis"] in ("x", "all"):
            found[op.result] = 1
        elif op.row in (ops.ADD, ops.SUB) and op.result.type in INDICES:
            a, b = (found.get(v, 0) for v in op.operands)
            found[op.result] = a + b if op.row is ops.ADD else a - b
        elif op.row is ops.MUL and op.result.type in INDICES:
            a, b = op.operands
            if a in numbers and b in numbers:
                numbers[op.result] = numbers[a] * numbers[b]
            for v, w in ((a, b), (b, a)):
                if v in found and w in numbers:
                    found[op.result] = found[v] * numbers[w]
    return found


def _within(op: Op) -> list[Op]:
    return [inner for region in op.regions for inner in region.walk()]


def _integer(op: Op) -> int:
    number = op.attrs["value"]
    assert isinstance(number, int)
    return number
