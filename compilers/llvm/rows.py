"""Rows of positions: where units divide their position by one number, it is divided once a row.

Positions of a row have one quotient, and remainders that count up. Comparisons of these with values
that the loop does not change give one result in all of a row but its ends. So the loop over the
middle of a row has none of them, and LLVM can vectorise it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from cubepy.compilers.llvm.units import UnitPlan
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import index
from cubepy.record import dataclass

SHORTEST = 4
"""A constant divisor below this makes rows that are too short to gain anything."""
_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)
_MIRRORED = {ops.LT: ops.GT, ops.GT: ops.LT, ops.LE: ops.GE, ops.GE: ops.LE}


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison that gives `truth` for remainders from `limit + offset` on (up to there).

    `of_row`: for quotients instead.
    """

    result: Value
    of_row: bool
    limit: Value
    offset: int
    is_from: bool
    truth: bool
    is_order: bool = False
    """Whether it gives the opposite on the other side of the limit."""
    is_edge: bool = False
    """Whether nearly all positions lie on one side: the limit is an end of what units cover."""
    axis: str = "all"
    """Along which the position is that is compared."""

    @property
    def sides(self) -> tuple[bool, bool]:
        """Of an order: what it gives before the limit, and from there on."""
        return (not self.truth, self.truth) if self.is_from else (self.truth, not self.truth)


@dataclass(slots=True)
class Rows:
    """What divides positions, and what is known of quotients, remainders and comparisons."""

    divisor: Value
    quotients: list[Value] = field(default_factory=list[Value])
    remainders: list[Value] = field(default_factory=list[Value])
    tests: list[Test] = field(default_factory=list[Test])


def find_rows(kernel: Kernel, plan: UnitPlan) -> Rows | None:
    """The rows of a flat kernel; None where no division by one number is sure to be done."""
    body = [o for op in plan.body for o in _with_inner(op)]
    if not plan.is_flat or any(op.row is ops.PRINT for op in body):
        return None
    fixed, constants = _shared(kernel, plan)
    positions = {op.result for op in plan.body if op.row is ops.ABSOLUTE_POS}
    rows: Rows | None = None
    for op in _surely_done(plan.body):
        if op.row not in (ops.FLOORDIV, ops.MOD) or op.operands[0] not in positions:
            continue
        divisor = op.operands[1]
        number = constants.get(divisor)
        is_long = number >= SHORTEST if isinstance(number, int) else op.attrs.get("nonzero")
        if divisor not in fixed or divisor.type is not index or not is_long:
            continue
        if not op.attrs.get("nonnegative") or (rows is not None and rows.divisor is not divisor):
            continue
        rows = rows or Rows(divisor)
        (rows.quotients if op.row is ops.FLOORDIV else rows.remainders).append(op.result)
    if rows is not None:
        rows.tests = list(_tests(body, rows, fixed, constants, _ends(plan, constants)))
    return rows


MOST_GUARDS = 2
"""Each doubles the number of loops."""
NEAR = 64
"""Constants up to this are limits near the start."""


def find_guards(kernel: Kernel, plan: UnitPlan) -> list[Test]:
    """Comparisons of positions that decide on accesses, and are decided on both sides of a limit.

    Loops over positions are cut there: accesses that no lane of a line makes may lie on pages that
    do not exist, which processors take hundreds of cycles to find out.
    """
    body = [o for op in plan.body for o in _with_inner(op)]
    conditions = {op.operands[0] for op in body if op.row is ops.IF and _accesses(op)}
    if not conditions or any(op.row is ops.PRINT for op in body):
        return []
    for op in reversed(body):  # what they are joined of
        if op.row in (ops.AND, ops.OR, ops.NOT) and op.result in conditions:
            conditions.update(op.operands)
    tests = [t for t in _of_positions(kernel, plan, body) if t.is_order and not t.is_edge]
    found = [test for test in tests if test.result in conditions]
    return sorted(found, key=lambda test: test.axis)[:MOST_GUARDS]  # x, the inner loop, first


def find_edges(kernel: Kernel, plan: UnitPlan) -> list[Test]:
    """Comparisons of positions along x, which the middle of a row decides."""
    body = [o for op in plan.body for o in _with_inner(op)]
    return [test for test in _of_positions(kernel, plan, body) if test.axis == "x"]


MOST_CUT = 600
"""Operations of a unit that are compiled three times for the sake of chosen places, at most."""


def find_choices(kernel: Kernel, plan: UnitPlan) -> list[Test]:
    """Comparisons of positions, along x or of flat kernels, where one chooses a place."""
    body = [o for op in plan.body for o in _with_inner(op)]
    conditions = {o.operands[0] for o in body if o.row is ops.SELECT and o.result.type is index}
    if not conditions or len(body) > MOST_CUT or any(op.row is ops.PRINT for op in body):
        return []
    found = [t for t in _of_positions(kernel, plan, body) if t.axis in ("x", "all")]
    return found if any(test.result in conditions for test in found) else []


def _of_positions(kernel: Kernel, plan: UnitPlan, body: Sequence[Op]) -> Iterator[Test]:
    """Comparisons of positions with what all units share."""
    fixed, constants = _shared(kernel, plan)
    ends = _ends(plan, constants)
    for op in body:
        if op.row is ops.ABSOLUTE_POS and (op.attrs["axis"] == "all") is not plan.axes:
            rows = Rows(op.result, [], [op.result])
            for test in _tests(body, rows, fixed, constants, ends):
                yield replace(test, axis=str(op.attrs["axis"]))


def _shared(kernel: Kernel, plan: UnitPlan) -> tuple[set[Value], dict[Value, object]]:
    """The values that all units share, and the numbers of constants."""
    fixed = {p.value for p in kernel.params} | {v for op in plan.launch for v in op.results}
    return fixed, {op.result: op.attrs["value"] for op in plan.launch if op.row is ops.CONST}


def _accesses(op: Op) -> bool:
    return any(o.row in (ops.LOAD, ops.STORE) for region in op.regions for o in region.walk())


def _ends(plan: UnitPlan, constants: Mapping[Value, object]) -> set[object]:
    """Where what units cover ends: the bounds of the loops, the extents of which they are products,
    and their numbers."""
    products = {op.result: op.operands for op in plan.launch if op.row is ops.MUL}
    found: set[object] = set()
    todo = [bound.limit for bound in plan.bounds]
    while todo:
        value = todo.pop()
        found |= {value, constants.get(value, value)}
        todo += products.get(value, ())
    return found


def _with_inner(op: Op) -> Iterator[Op]:
    yield op
    for region in op.regions:
        yield from region.walk()


def _surely_done(body: Sequence[Op]) -> Iterator[Op]:
    """The operations before any that may end the unit."""
    for op in body:
        if any(inner.row is ops.RETURN for inner in _with_inner(op)):
            return
        yield op


def _tests(
    body: Sequence[Op],
    rows: Rows,
    fixed: set[Value],
    constants: Mapping[Value, object],
    ends: set[object],
) -> Iterator[Test]:
    """Comparisons of a quotient or remainder + constant with a value that the loop does not change.

    A constant is taken for a limit near the start of a row, any other value for one near its end.
    """
    offsets = dict.fromkeys((*rows.quotients, *rows.remainders), 0)
    in_row = set(rows.quotients)
    for op in body:
        if op.row in (ops.ADD, ops.SUB) and op.operands[0] in offsets:
            number = constants.get(op.operands[1])
            if isinstance(number, int):
                moved = number if op.row is ops.ADD else -number
                offsets[op.result] = offsets[op.operands[0]] + moved
                if op.operands[0] in in_row:
                    in_row.add(op.result)
        elif op.row in _RULES and op.operands[0].type is index:
            a, b, row = *op.operands, op.row
            if b in offsets:
                a, b, row = b, a, _MIRRORED.get(row, row)
            if a in offsets and b in fixed:
                is_from = b in constants
                offset, truth = _RULES[row](is_from)
                number = constants.get(b, b)
                is_edge = number in ends or (isinstance(number, int) and abs(number) <= NEAR)
                kind = is_from, truth, op.row in _ORDERS, is_edge
                yield Test(op.result, a in in_row, b, offset - offsets[a], *kind)


_RULES = {
    ops.LT: lambda is_from: (0, not is_from),
    ops.LE: lambda is_from: (1, not is_from),
    ops.GE: lambda is_from: (0, is_from),
    ops.GT: lambda is_from: (1, is_from),
    ops.EQ: lambda is_from: (int(is_from), False),
    ops.NE: lambda is_from: (int(is_from), True),
}
"""For a limit near the start (else the end) of a row: what is added to it, and the result of the
comparison from there on (else up to there)."""
