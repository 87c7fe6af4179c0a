"""Tiles that lie inside of an array are loaded without masks: there are two copies of a phase.

Blocks of units load many lines under masks between two barriers. A few comparisons determine
whether all lanes of all of them are on, as they are but at the edges of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import Line, i32, width_of
from cubepy.passes.rewrite import Rewriter, copy_op

FEWEST = 4
"""Loads under masks that are worth a copy without."""


def split_edges(kernel: Kernel) -> Kernel:
    """The kernel with two copies of each phase of a loop that loads lines under masks."""
    return _Edges(kernel).run(kernel)


class _Edges(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._body = kernel.body
        self._sources = {v: op for op in kernel.body.walk() for v in op.results}
        self._tests: dict[Value, Value] = {}

    def region(self, region: Region) -> Region:
        """Splits each run of operations between barriers."""
        built = super().region(region)
        if region is self._body or all(op.row is not ops.SYNC_CUBE for op in built.ops):
            return built
        out: list[Op] = []
        phase: list[Op] = []
        for k, op in enumerate(built.ops):
            if op.row is ops.SYNC_CUBE or op.regions or op.row.is_terminator:
                out += self._phase(phase, built.ops[k:])
                out.append(op)
                phase = []
            else:
                phase.append(op)
        return Region(built.args, tuple(out))

    def _phase(self, phase: list[Op], after: Sequence[Op]) -> list[Op]:
        loads = [op for op in phase if op.row is ops.LOAD and len(op.operands) == 4]
        counts = [self._count(op.operands[2]) for op in loads]
        known = list(dict.fromkeys(count for count in counts if count is not None))
        if len(loads) < FEWEST or None in counts:
            return phase
        hoisted = self._behind(known, phase)
        rest = [op for op in phase if op not in hoisted]
        made = {v for op in rest for v in op.results}
        used = {v for op in after for o in (op, *_inside(op)) for v in o.operands}
        if made & used or any(not op.row.is_pure for op in hoisted):
            return phase
        outer, self.out = self.out, [op for op in phase if op in hoisted]
        lanes = width_of(loads[0].result.type)
        tests = list(dict.fromkeys(test for count in known for test in self._full(count, lanes)))
        whole = tests[0]
        for test in tests[1:]:
            whole = self.emit(ops.AND, (whole, test))
        head, self.out = self.out, outer
        self._tests.clear()
        sides = (Region((), (*side, Op(ops.YIELD))) for side in (_without_masks(rest), rest))
        return [*head, Op(ops.IF, (whole,), {}, (), tuple(sides), loads[0].span)]

    def _count(self, mask: Value) -> Value | None:
        """How many first lanes a mask has on; None where it is another mask."""
        op = self._sources.get(mask)
        if op is None or op.row is not ops.LT or not self._counts_up(op.operands[0]):
            return None
        splat = self._sources.get(op.operands[1])
        return splat.operands[0] if splat is not None and splat.row is ops.SPLAT else None

    def _counts_up(self, line: Value) -> bool:
        """Whether lanes hold 0, 1, 2, ... of i32, as `LaneEmitter` makes them."""
        t, op = line.type, self._sources.get(line)
        if op is None or not isinstance(t, Line) or t.element is not i32:
            return False
        if op.row is ops.SPLAT:
            return t.width == 1 and self._number(op.operands[0]) == 0
        if op.row is not ops.SHUFFLE or op.attrs["lanes"] != tuple(range(t.width)):
            return False
        first, further = op.operands
        step = self._sources.get(further)
        if step is None or step.row is not ops.ADD or step.operands[0] is not first:
            return False
        splat = self._sources.get(step.operands[1])
        if splat is None or splat.row is not ops.SPLAT:
            return False
        return self._number(splat.operands[0]) == width_of(first.type) and self._counts_up(first)

    def _number(self, value: Value) -> object:
        op = self._sources.get(value)
        return op.attrs["value"] if op is not None and op.row is ops.CONST else None

    def _behind(self, values: Sequence[Value], phase: Sequence[Op]) -> set[Op]:
        """The operations of a phase that values are made of."""
        inside = set(phase)
        found: set[Op] = set()
        work = list(values)
        while work:
            op = self._sources.get(work.pop())
            if op is not None and op in inside and op not in found:
                found.add(op)
                work += op.operands
        return found

    def _full(self, count: Value, lanes: int) -> list[Value]:
        """What holds where a count is that of all lanes."""
        op = self._sources.get(count)
        if op is not None and op.row is ops.MIN:
            return [*self._full(op.operands[0], lanes), *self._full(op.operands[1], lanes)]
        if op is not None and op.row is ops.SELECT and self._number(op.operands[2]) == 0:
            return [op.operands[0], *self._full(op.operands[1], lanes)]
        if count not in self._tests:
            self._tests[count] = self.emit(ops.EQ, (count, self.emit_const(i32, lanes)))
        return [self._tests[count]]


def _without_masks(phase: Sequence[Op]) -> list[Op]:
    """A copy of a phase for where all lanes of its loads are on."""
    copies: dict[Value, Value] = {}
    on = {op.operands[2] for op in phase if op.row is ops.LOAD and len(op.operands) == 4}
    out: list[Op] = []
    for op in phase:
        if op.row is ops.SELECT and op.operands[0] in on:
            copies[op.result] = copies.get(op.operands[1], op.operands[1])
            continue
        copied = copy_op(op, copies)
        if op.row is ops.LOAD:
            copied = replace(copied, operands=copied.operands[:2])
        out.append(copied)
    return out


def _inside(op: Op) -> Iterator[Op]:
    return (inner for region in op.regions for inner in region.walk())
