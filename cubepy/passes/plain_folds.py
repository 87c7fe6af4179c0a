"""Extremes that a loop folds under a condition, folded under none: what fails it is neutral.

LLVM makes lines of `most = max(most, x)`, and not where a branch keeps `most` as it was. So the
branch chooses between `x` and the lowest number, and the extreme is taken behind it.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import f32, f64
from cubepy.passes.rewrite import Rewriter

_EXTREMES, _TYPES = (ops.MIN, ops.MAX), (f32, f64)
LITTLE = 16
"""Operations of a branch that LLVM may do in lanes that do not take it."""


def plain_folds(kernel: Kernel) -> Kernel:
    """The kernel in which innermost loops fold scalars without conditions where they can."""
    return _PlainFolds().run(kernel)


class _PlainFolds(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._carried: set[Value] = set()
        """What the innermost loop around carries."""

    def visit(self, op: Op) -> None:
        if op.row in (ops.FOR, ops.LOOP):
            outer = self._carried
            self._carried = set(op.regions[0].args[1:]) if op.row is ops.FOR else set()
            self.out.append(self.renew(op))
            self._carried = outer
            return
        folds = self._folds(op) if op.row is ops.IF and self._carried else {}
        if not folds:
            self.out.append(self.renew(op))
            return
        chosen = [Value(v.type, v.name) if k in folds else v for k, v in enumerate(op.results)]
        then, other = (list(region.terminator.operands) for region in op.regions)
        for place, fold in folds.items():
            then[place] = fold.value
            other[place] = self.emit_const(fold.value.type, fold.neutral, op.span)
        regions = tuple(
            _ending(region, ends) for region, ends in zip(op.regions, (then, other), strict=True)
        )
        self.out.append(Op(op.row, op.operands, op.attrs, tuple(chosen), regions, op.span))
        for place, (extreme, kept, _) in folds.items():
            operands, results = (kept, chosen[place]), (op.results[place],)
            self.out.append(Op(extreme.row, operands, extreme.attrs, results, (), extreme.span))

    def _folds(self, op: Op) -> dict[int, _Fold]:
        """Those results of a branch that are folds."""
        then, other = op.regions
        *body, end = then.ops
        if end.row is not ops.YIELD or [o.row for o in other.ops] != [ops.YIELD]:
            return {}
        if len(body) > LITTLE or not all(o.row.is_pure or o.row is ops.LOAD for o in body):
            return {}
        made = {v: o for o in body for v in o.results}
        reads = Counter(v for o in then.ops for v in o.operands)
        found: dict[int, _Fold] = {}
        for place, kept in enumerate(other.terminator.operands):
            extreme = made.get(end.operands[place])
            if kept not in self._carried or kept.type not in _TYPES or extreme is None:
                continue
            values = [v for v in extreme.operands if v is not kept]
            if extreme.row in _EXTREMES and len(values) == reads[kept] == 1:
                found[place] = _Fold(extreme, kept, values[0])
        return found


class _Fold(NamedTuple):
    """An extreme of what a loop carries and a value."""

    extreme: Op
    kept: Value
    value: Value

    @property
    def neutral(self) -> float:
        """What changes nothing that it is joined with."""
        return float("-inf" if self.extreme.row is ops.MAX else "inf")


def _ending(region: Region, operands: list[Value]) -> Region:
    end = region.terminator
    return Region(region.args, (*region.ops[:-1], Op(end.row, tuple(operands), span=end.span)))
