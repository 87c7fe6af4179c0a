"""Unrolls loops with constant bounds: short ones, and those that ask for it."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import index
from cubepy.passes.rewrite import Rewriter, copy_op, trip_count

_MAX_TRIPS = 8
_MAX_OPS = 128
"""Loops that do not ask are unrolled up to these many trips, and operations afterwards."""


def unroll(kernel: Kernel) -> Kernel:
    """The kernel with unrolled loops; inner ones first, so that they count as what they become."""
    return _Unroll().run(kernel)


class _Unroll(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[Value, int] = {}

    def visit(self, op: Op) -> None:
        if op.row is ops.CONST and isinstance(value := op.attrs["value"], int):
            self._constants[op.results[0]] = value
        op = self.renew(op)
        trips = self._trips(op) if op.row is ops.FOR else None
        if trips is None or not _is_worth_it(op, trips):
            self.out.append(op)
        else:
            self._unrolled(op, trips)

    def _trips(self, op: Op) -> int | None:
        return trip_count(*[self._constants.get(bound) for bound in op.operands[:3]])

    def _unrolled(self, op: Op, trips: int) -> None:
        start, _, step = (self._constants.get(bound, 0) for bound in op.operands[:3])
        carried = op.operands[3:]
        (body,) = op.regions
        for trip in range(trips):
            position = self.emit_const(index, start + trip * step, op.span)
            end = self._copied(body, (position, *carried))
            if end.row is ops.RETURN:
                self.out.append(end)
                return
            carried = end.operands
            if end.row is ops.BREAK:
                break
        self.replaced.update(zip(op.results, carried, strict=True))

    def _copied(self, body: Region, values: tuple[Value, ...]) -> Op:
        """Append a copy of the body for these arguments; gives its terminator."""
        copies = dict(zip(body.args, values, strict=True))
        copied = [copy_op(op, copies) for op in body.ops]
        self.out.extend(copied[:-1])
        return copied[-1]


def _is_worth_it(op: Op, trips: int) -> bool:
    (body,) = op.regions
    if _jumps(body):
        return False
    if op.attrs.get("unroll") is True or trips <= 1:
        return True
    return trips <= _MAX_TRIPS and trips * sum(1 for _ in body.walk()) <= _MAX_OPS


def _jumps(body: Region) -> bool:
    """Whether an `if` inside the body leaves or continues this loop."""
    for op in body.ops:
        if op.row is ops.IF and any(_leaves(region) for region in op.regions):
            return True
    return False


def _leaves(region: Region) -> bool:
    return region.terminator.row in (ops.BREAK, ops.CONTINUE) or _jumps(region)
