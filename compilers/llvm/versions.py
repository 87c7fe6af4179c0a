"""Expensive branches that units seldom take, such as those of `sin` for huge arguments.

LLVM vectorises a branch by computing both sides. So a first loop tests whether any unit takes the
expensive side; where none does, the loop over the units runs without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Op, Region, Value
from cubepy.record import dataclass

EXPENSIVE = 16
"""The fewest operations of an expensive side; they are also `RATIO` times those of the other."""
RATIO = 3
MAX_TEST = 40
"""The most operations that the test computes a second time."""
MIN_UNITS = 64
STRETCH = 2048
"""Units that are tested together, where their cubes do not matter; what they read stays in L1."""


@dataclass(frozen=True, slots=True)
class ExpensiveBranch:
    """An `if` whose side `then` (or else) is expensive; the other side is `cheap`."""

    op: Op
    then: bool

    @property
    def cheap(self) -> Region:
        """The region that runs where the expensive side is not taken."""
        return self.op.regions[1 if self.then else 0]


@dataclass(slots=True)
class ExpensiveBranches:
    """The branches of a body, and the operations that their conditions need, in order."""

    branches: dict[Op, ExpensiveBranch] = field(default_factory=dict[Op, ExpensiveBranch])
    test: list[Op] = field(default_factory=list[Op])


def find_expensive(body: Iterable[Op]) -> ExpensiveBranches:
    """The expensive branches before the first effect, so that testing for them changes nothing."""
    found = ExpensiveBranches()
    sources: dict[Value, Op] = {}
    listed: list[Op] = []
    needed: set[Op] = set()
    for op in body:
        branch = _expensive(op)
        if branch is None and not _is_quiet(op):
            break
        listed.append(op)
        sources.update((result, op) for result in op.results)
        if branch is None:
            continue
        behind = _behind(op.operands[0], sources)
        if behind is not None and len(needed | behind) <= MAX_TEST:
            found.branches[op] = branch
            needed |= behind
    found.test = [op for op in listed if op in needed]
    return found


def _is_quiet(op: Op) -> bool:
    return op.row is ops.LOAD or (op.row.is_pure and not op.regions) or _weight([op]) is not None


def _expensive(op: Op) -> ExpensiveBranch | None:
    if op.row is not ops.IF or not op.results:
        return None
    weights = [_weight(region.ops[:-1]) for region in op.regions]
    if any(region.terminator.row is not ops.YIELD for region in op.regions):
        return None
    then, other = weights
    if then is None or other is None:
        return None
    if max(then, other) < EXPENSIVE or max(then, other) < RATIO * min(then, other):
        return None
    return ExpensiveBranch(op, then > other)


def _weight(body: Iterable[Op]) -> int | None:
    """How many operations `body` has; None where one has an effect or runs in a loop."""
    total = 0
    for op in body:
        if op.row is ops.IF:
            inner = [_weight(region.ops[:-1]) for region in op.regions]
            if any(region.terminator.row is not ops.YIELD for region in op.regions):
                return None
            if any(weight is None for weight in inner):
                return None
            total += sum(weight for weight in inner if weight is not None)
        elif not op.row.is_pure:
            return None
        elif op.row is not ops.CONST:
            total += 1
    return total


def _behind(value: Value, sources: dict[Value, Op]) -> set[Op] | None:
    """The operations of a body that a value is computed by; None if a branch is among them."""
    found: set[Op] = set()
    work = [value]
    while work:
        op = sources.get(work.pop())
        if op is None or op in found:
            continue
        if op.regions:
            return None
        found.add(op)
        work += op.operands
    return found
