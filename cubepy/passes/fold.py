"""Folds constants and identities, and takes the branch of every `if` that is decided.

Constants are evaluated by the op table's exact meanings; identities stand in `identities`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.evaluate import evaluate
from cubepy.passes.identities import RULES, Facts, constant_ops, is_uniform
from cubepy.passes.rewrite import trip_count

_EMPTY = Region((), (Op(ops.YIELD),))


def fold(kernel: Kernel, fast_math: bool = False) -> Kernel:
    """The kernel with all that is known computed; `fast_math` folds as if floats were reals."""
    return _Fold(fast_math).run(kernel)


class _Fold(Facts):
    def visit(self, op: Op) -> None:
        if op.regions:
            self._control(op)
            return
        op = self.rename(op)
        if not self._evaluated(op) and not self._simplified(op):
            self._keep(op)

    def _keep(self, op: Op) -> None:
        self.out.append(op)
        for value in op.results:
            self.definitions[value] = op

    def _evaluated(self, op: Op) -> bool:
        """Whether all operands are constants, so that a constant stands for `op`."""
        row, known = op.row, self.known
        if not row.is_pure or not row.exact or not (op.operands or row is ops.CONST):
            return False
        for value in op.operands:
            if value not in known:
                return False
        types = [value.type for value in op.operands]
        lanes = evaluate(row, op.attrs, types, [known[value] for value in op.operands])
        if lanes is None:
            return False
        known[op.results[0]] = lanes
        if row is ops.CONST or row is ops.SPLAT or not is_uniform(lanes):
            return False
        self._replace(constant_ops(op, lanes[0]))
        return True

    def _simplified(self, op: Op) -> bool:
        for rule in RULES.get(op.row, ()):
            found = rule(self, op)
            if found is None:
                continue
            if isinstance(found, Value):
                self.replaced[op.results[0]] = found
            else:
                self._replace(found)
            return True
        return False

    def _replace(self, found: Sequence[Op]) -> None:
        for op in found:
            self._keep(op)
            if op.row is ops.CONST or op.row is ops.SPLAT:
                self._evaluated(op)

    # Control flow

    def _control(self, op: Op) -> None:
        if op.row is ops.IF:
            self._branch(op)
        elif op.row is ops.FOR and self._runs_never(op):
            self._stand_for(op.results, op.operands[3:])
        else:
            self.out.append(self.renew(op))

    def _runs_never(self, op: Op) -> bool:
        start, stop, step = self.values(op.operands[:3])
        bounds = (self.number(start), self.number(stop), self.number(step))
        return start is stop or trip_count(*bounds) == 0

    def _stand_for(self, results: Sequence[Value], values: tuple[Value, ...]) -> None:
        self.replaced.update(zip(results, self.values(values), strict=True))

    def _branch(self, op: Op) -> None:
        decided = self.number(self.value(op.operands[0]))
        if decided is not None:
            self._inline(op, op.regions[0 if decided else 1])
            return
        op = self.renew(op)
        ends = [region.terminator for region in op.regions if region.terminator.row is ops.YIELD]
        if not ends:
            self._flatten(op)
        else:
            self._merge(self._agreed(op, ends))

    def _inline(self, op: Op, region: Region) -> None:
        """The region instead of the `if`; what follows a jump at its end is dead."""
        for inner in region.ops:
            if inner.row is ops.YIELD:
                self._stand_for(op.results, inner.operands)
                return
            self.visit(inner)
            if self.out and self.out[-1].row.is_terminator:
                return

    def _flatten(self, op: Op) -> None:
        """If both regions jump, then the second one replaces what follows, which is dead."""
        first, second = op.regions
        self.out.append(Op(ops.IF, op.operands, op.attrs, (), (first, _EMPTY), op.span))
        self.out.extend(second.ops)

    def _agreed(self, op: Op, ends: Sequence[Op]) -> Op:
        """Without the results that are one outer value, whichever region yields."""
        inside = {value for region in op.regions for inner in region.ops for value in inner.results}
        kept: list[int] = []
        for number, result in enumerate(op.results):
            first = ends[0].operands[number]
            if first not in inside and all(end.operands[number] is first for end in ends):
                self.replaced[result] = first
            else:
                kept.append(number)
        return op if len(kept) == len(op.results) else _with_results(op, kept)

    def _merge(self, op: Op) -> None:
        """An `if` that computes nothing selects its results."""
        if any(region.ops[0].row is not ops.YIELD for region in op.regions):
            self._keep(op)
            return
        yes, no = (region.terminator.operands for region in op.regions)
        for result, a, b in zip(op.results, yes, no, strict=True):
            select = Op(ops.SELECT, (op.operands[0], a, b), {}, (result,), (), op.span)
            if not self._simplified(select):
                self._keep(select)


def _with_results(op: Op, kept: Sequence[int]) -> Op:
    regions: list[Region] = []
    for region in op.regions:
        end = region.terminator
        if end.row is ops.YIELD:
            operands = tuple([end.operands[number] for number in kept])
            region = Region(region.args, (*region.ops[:-1], Op(ops.YIELD, operands, span=end.span)))
        regions.append(region)
    results = tuple([op.results[number] for number in kept])
    return Op(op.row, op.operands, op.attrs, results, tuple(regions), op.span)
