"""Removes what nobody needs: unused values, loads, allocations, and carried or yielded values.

Mark and sweep. Roots are effects and `loop`s (which may never end); a `for` surely ends, so one
without effects lives only through its results.
"""

from __future__ import annotations

from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.passes.rewrite import Rewriter
from cubepy.record import dataclass


def dce(kernel: Kernel) -> Kernel:
    """The kernel without operations, results and carried values that have no effect."""
    marks = _Marks()
    marks.collect(kernel.body, None, None)
    marks.spread()
    return _Sweep(marks).run(kernel)


@dataclass(slots=True)
class _Marks:
    needed: set[Op] = field(default_factory=set[Op])
    live: set[Value] = field(default_factory=set[Value])
    parents: dict[Op, Op] = field(default_factory=dict[Op, Op])
    """The `if` or loop around an operation; also of terminators."""
    exits: dict[Op, list[Op]] = field(default_factory=dict[Op, list[Op]])
    """Of an `if`, its `yield`s; of a loop, the `break`s and `continue`s that belong to it."""
    _origins: dict[Value, tuple[Op, int]] = field(default_factory=dict[Value, tuple[Op, int]])
    """What defines a value, and as which result or carried value (-1: the position of a `for`)."""
    _work: list[Op | Value] = field(default_factory=list[Op | Value])

    def collect(self, region: Region, parent: Op | None, loop: Op | None) -> None:
        """Note who defines, encloses and leaves what; start with the roots."""
        for op in region.ops:
            for number, value in enumerate(op.results):
                self._origins[value] = op, number
            if parent is not None:
                self.parents[op] = parent
            if op.row.is_terminator:
                target = parent if op.row is ops.YIELD else loop
                if target is not None and op.row is not ops.RETURN:
                    self.exits[target].append(op)
            if op.regions:
                self._enter(op, loop)
            if _is_root(op):
                self._work.append(op)

    def _enter(self, op: Op, loop: Op | None) -> None:
        self.exits[op] = []
        inner = loop if op.row is ops.IF else op
        skipped = 1 if op.row is ops.FOR else 0
        for region in op.regions:
            for number, value in enumerate(region.args):
                self._origins[value] = op, number - skipped
            self.collect(region, op, inner)

    def spread(self) -> None:
        """Mark all that the roots need."""
        while self._work:
            item = self._work.pop()
            if isinstance(item, Op):
                if item not in self.needed:
                    self.needed.add(item)
                    self._need(item)
            elif item not in self.live:
                self.live.add(item)
                if item in self._origins:
                    self._live(item, *self._origins[item])

    def _need(self, op: Op) -> None:
        if op in self.parents:
            self._work.append(self.parents[op])
        if op.regions:
            self._work += op.operands[: _fixed(op)]
            self._work += self.exits[op]  # they decide where control goes
        elif not op.row.is_terminator:
            self._work += op.operands

    def _live(self, value: Value, op: Op, number: int) -> None:
        self._work.append(op)
        if not op.regions or number < 0:
            return
        self._work += [leave.operands[number] for leave in self.exits[op]]
        if op.row is not ops.IF:
            self._work.append(op.operands[_fixed(op) + number])
            self._work.append(op.results[number])
            self._work.append(op.regions[0].args[number - len(op.results)])


def _is_root(op: Op) -> bool:
    row = op.row
    if row.regions or row.is_terminator:
        return row is ops.LOOP or row is ops.RETURN
    return not row.is_removable


def _fixed(op: Op) -> int:
    """How many operands come before the carried ones."""
    return len(op.operands) if op.row is ops.IF else len(op.operands) - len(op.results)


class _Sweep(Rewriter):
    def __init__(self, marks: _Marks) -> None:
        super().__init__()
        self._marks = marks
        self._kept: dict[Op, list[int]] = {}
        """Of each terminator, the operands that stay; all of them where it is absent."""

    def visit(self, op: Op) -> None:
        if op.row.is_terminator:
            kept = self._kept.get(op)
            self.out.append(op if kept is None else _with(op, _pick(op.operands, kept)))
        elif op in self._marks.needed:
            self.out.append(self._control(op) if op.regions else op)

    def _control(self, op: Op) -> Op:
        live = self._marks.live
        kept = [number for number, value in enumerate(op.results) if value in live]
        if len(kept) == len(op.results):
            return self.renew(op)
        self._kept |= dict.fromkeys(self._marks.exits[op], kept)
        fixed = _fixed(op)
        operands = op.operands[:fixed]
        if op.row is not ops.IF:
            operands += _pick(op.operands[fixed:], kept)
        regions = tuple([self._body(op, region, kept) for region in op.regions])
        return Op(op.row, operands, op.attrs, _pick(op.results, kept), regions, op.span)

    def _body(self, op: Op, region: Region, kept: list[int]) -> Region:
        built = self.region(region)
        if op.row is ops.IF:
            return built
        first = len(region.args) - len(op.results)
        return Region(region.args[:first] + _pick(region.args[first:], kept), built.ops)


def _pick(values: tuple[Value, ...], kept: list[int]) -> tuple[Value, ...]:
    return tuple([values[number] for number in kept])


def _with(op: Op, operands: tuple[Value, ...]) -> Op:
    return Op(op.row, operands, op.attrs, op.results, op.regions, op.span)
