"""Integer facts along control flow: a rewriter that learns from guards and loops, and `analyse`.

Carried values are assumed to keep a range, from the widest guess that their start allows downwards;
a walk over the kernel confirms all guesses together, or weakens those that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.numbers import limits
from cubepy.ir.types import INDICES, Type, i32, i64, index, index32
from cubepy.passes.facts import IntegerFacts
from cubepy.passes.ranges import Range, union, whole
from cubepy.passes.rewrite import Rewriter

Ranges = Sequence[Range | None]
_ROUNDS = 6
"""Walks in search of what carried values keep; then nothing is assumed of those in doubt."""
_NO_GUESS = 9
_COUNTERS = (*INDICES, i32, i64)
_SMALL, _LARGE = limits(index32), limits(index)


class FactRewriter(Rewriter):
    """Keeps `facts` true for the place that is visited. Subclasses override `step` and `branch`."""

    def __init__(self, kernel: Kernel, assumed: dict[Value, Range] | None = None) -> None:
        super().__init__()
        self.facts = IntegerFacts(kernel)
        self.assumed = assumed or {}
        self._yielded: Ranges | None = None
        """The ranges of what the last region yields; None where it does not end with that."""
        self._loops: list[_Loop] = []

    def step(self, op: Op) -> None:
        """Append what stands for an operation without regions."""
        renamed = self.rename(op)
        self.out.append(renamed)
        self.facts.define(renamed)

    def branch(self, op: Op) -> None:
        """Append a finished `if`."""
        self.out.append(op)
        self.facts.define(op)

    def region(self, region: Region) -> Region:
        """Facts that are learned inside a region end with it."""
        with self.facts.scope():
            rewritten = super().region(region)
            last = rewritten.terminator
            is_yield = last.row is ops.YIELD
            self._yielded = [self.facts.range(v) for v in last.operands] if is_yield else None
        return rewritten

    def visit(self, op: Op) -> None:
        if op.row is ops.IF:
            self._if(op)
        elif op.row is ops.FOR:
            self._for(op)
        elif op.row is ops.LOOP:
            self._loop(op)
        elif op.regions:
            self.out.append(self.renew(op))
        else:
            if op.row in (ops.CONTINUE, ops.BREAK) and self._loops:
                self._jump(op)
            self.step(op)

    def _jump(self, op: Op) -> None:
        found = [self.facts.range(v) for v in self.values(op.operands)]
        loop = self._loops[-1]
        (loop.continues if op.row is ops.CONTINUE else loop.breaks).append(found)

    def _if(self, op: Op) -> None:
        """The condition holds in the first region, its opposite in the second."""
        facts, condition = self.facts, self.value(op.operands[0])
        regions: list[Region] = []
        ranges: list[Ranges] = []
        for region, learn in zip(op.regions, (facts.learn, facts.learn_opposite), strict=True):
            with facts.scope():
                learn(condition)
                regions.append(self.region(region))
            if self._yielded is not None:
                ranges.append(self._yielded)
        same = condition is op.operands[0] and all(map(_is, regions, op.regions))
        new = (condition,), op.attrs, op.results, tuple(regions), op.span
        self.branch(op if same else Op(op.row, *new))
        for result, *found in zip(op.results, *ranges, strict=True) if ranges else ():
            facts.bound(result, _union(found))
        if regions[0].terminator.row is not ops.YIELD:
            facts.learn_opposite(condition)
        elif regions[1].terminator.row is not ops.YIELD:
            facts.learn(condition)

    def _for(self, op: Op) -> None:
        """Positions lie between start and stop; steps up stay below it, steps down above."""
        facts = self.facts
        start, stop, step = self.values(op.operands[:3])
        position = op.regions[0].args[0]
        begin, end, by = (facts.range(v) for v in (start, stop, step))
        if begin is not None and end is not None:
            facts.bound(position, _positions(begin, end, by))
        facts.divides(position, facts.common_multiple(start, step))
        with facts.scope():
            if by is not None and by[0] > 0:
                facts.learn_order(position, stop, 1)
                facts.learn_order(start, position, 0)
                if by[0] == by[1]:
                    facts.learn_multiples(position, facts.same(start), facts.same(stop), by[0])
            elif by is not None and by[1] < 0:
                facts.learn_order(stop, position, 1)
                facts.learn_order(position, start, 0)
            self._carry(op, op.regions[0].args[1:], op.operands[3:], always_ends=True)

    def _loop(self, op: Op) -> None:
        self._carry(op, op.regions[0].args, op.operands, always_ends=False)

    def _carry(
        self, op: Op, args: Sequence[Value], initial: Sequence[Value], always_ends: bool
    ) -> None:
        """The body under what is assumed of carried values; afterwards, the results' ranges."""
        for arg in args:
            self.facts.bound(arg, self.assumed.get(arg))
        loop = _Loop([self.facts.range(v) for v in self.values(tuple(initial))])
        self._loops.append(loop)
        self.out.append(self.begin_loop(self.renew(op)))
        self._loops.pop()
        self.finish_loop(args, loop)
        ends = [*loop.breaks, *([[self.facts.range(a) for a in args]] if always_ends else [])]
        for k, result in enumerate(op.results):
            self.facts.bound(result, _union([found[k] for found in ends]) if ends else None)

    def begin_loop(self, op: Op) -> Op:
        """What stands for a loop whose body has been rewritten."""
        return op

    def finish_loop(self, args: Sequence[Value], loop: _Loop) -> None:
        """Called when all that a loop carries is known."""


class _Loop:
    """What an open loop starts with, and what is carried to its next trip and its end."""

    def __init__(self, initial: Ranges) -> None:
        self.initial = initial
        self.continues: list[Ranges] = []
        self.breaks: list[Ranges] = []


def _is(a: object, b: object) -> bool:
    return a is b


def _union(found: Sequence[Range | None]) -> Range | None:
    known = [r for r in found if r is not None]
    if not known or len(known) < len(found):
        return None
    low, high = known[0]
    for r in known[1:]:
        low, high = union((low, high), r)
    return low, high


def _positions(begin: Range, end: Range, by: Range | None) -> Range:
    """Where a loop that runs at all counts; its direction may not be known."""
    if by is not None and by[0] > 0 and end[1] > begin[0]:
        return begin[0], end[1] - 1
    if by is not None and by[1] < 0 and end[0] < begin[1]:
        return end[0] + 1, begin[1]
    return union(begin, end)


# Analysis


def analyse(kernel: Kernel) -> dict[Value, Range]:
    """The range of every integer of a kernel, where it is defined."""
    walk = _Walk(kernel, carried_ranges(kernel))
    walk.run(kernel)
    return walk.found


def carried_ranges(kernel: Kernel) -> dict[Value, Range]:
    """Ranges that integers keep which loops carry."""
    args = [a for op in kernel.body.walk() for a in _carried(op) if a.type in _COUNTERS]
    if not args:
        return {}
    levels = dict.fromkeys(args, 0)
    rounds = 0
    while True:
        walk = _Confirm(kernel, levels)
        walk.run(kernel)
        if not walk.failed:
            return walk.assumed
        rounds += 1
        for arg in walk.failed:
            levels[arg] = levels[arg] + 1 if rounds < _ROUNDS else _NO_GUESS


def _carried(op: Op) -> tuple[Value, ...]:
    if op.row is ops.FOR:
        return op.regions[0].args[1:]
    return op.regions[0].args if op.row is ops.LOOP else ()


def _guess(start: Range, t: Type, level: int) -> Range | None:
    """Ranges to try, the narrowest first; only indices never wrap, so that they may be large."""
    tries = [_SMALL] if start[0] < 0 else [(0, _SMALL[1]), (0, _LARGE[1])]
    if t not in INDICES:
        tries = tries[:1]
    tries = [r for r in tries if start[1] <= r[1] and r[0] <= start[0] and r != whole(t)]
    return tries[level] if level < len(tries) else None


class _Confirm(FactRewriter):
    """A walk that assumes ranges, and notes which are not kept."""

    def __init__(self, kernel: Kernel, levels: dict[Value, int]) -> None:
        super().__init__(kernel)
        self._levels = levels
        self.failed: set[Value] = set()

    def _carry(
        self, op: Op, args: Sequence[Value], initial: Sequence[Value], always_ends: bool
    ) -> None:
        for arg, value in zip(args, initial, strict=True):
            start = self.facts.range(value)
            if start is not None and arg in self._levels:
                found = _guess(start, arg.type, self._levels[arg])
                if found is not None:
                    self.assumed[arg] = found
        super()._carry(op, args, initial, always_ends)

    def begin_loop(self, op: Op) -> Op:
        """What stands for a loop whose body has been rewritten."""
        return op

    def finish_loop(self, args: Sequence[Value], loop: _Loop) -> None:
        for k, arg in enumerate(args):
            kept = self.assumed.get(arg)
            if kept is not None and any(not _holds(kept, c[k]) for c in loop.continues):
                self.failed.add(arg)


def _holds(kept: Range, found: Range | None) -> bool:
    return found is not None and kept[0] <= found[0] and found[1] <= kept[1]


class _Walk(FactRewriter):
    """A walk that notes the range of every integer where it is defined."""

    def __init__(self, kernel: Kernel, assumed: dict[Value, Range]) -> None:
        super().__init__(kernel, assumed)
        self.found: dict[Value, Range] = {}
        for p in kernel.params:
            self._note(p.value)

    def _note(self, value: Value) -> None:
        found = self.facts.range(value)
        if found is not None:
            self.found[value] = found

    def visit(self, op: Op) -> None:
        super().visit(op)
        for result in op.results:
            self._note(result)

    def region(self, region: Region) -> Region:
        for arg in region.args:
            self._note(arg)
        return super().region(region)
