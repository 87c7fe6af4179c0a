"""Waits of checked kernels for other units, which may have ended by a check that failed.

Such a unit never arrives at a barrier in memory or at one of some units of the cube, where others
would wait for ever, and the fault would not be reported. So they look at the fault record while
they wait, and end as soon as a fault of the launch is noted. For this the barriers of some units
count arrivals in shared memory: the hardware's own cannot be left.

Units of clusters go on instead of ending. As long as a unit of a cube is there others may access
its shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.cuda import BARRIER_TRY_WAIT
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Space, bool_, index, u64
from cubepy.passes.legalise.rows import FAULTED
from cubepy.passes.rewrite import Rewriter
from cubepy.span import Span

Barrier = tuple[Attr, Attr]
"""The number of a barrier of some units, and of how many."""


def watch_faults(kernel: Kernel) -> Kernel:
    """The kernel whose waits end with a fault, if it has any checks; they are lowered already."""
    rows = {op.row for op in kernel.body.walk()}
    if ops.FAULT not in rows or rows.isdisjoint((BARRIER_TRY_WAIT, ops.SYNC_UNITS)):
        return kernel
    return _Watch(kernel).run(kernel)


def _barrier(op: Op) -> Barrier:
    return op.attrs["barrier"], op.attrs["count"]


class _Watch(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._goes_on = kernel.attribute("cluster", None) is not None
        barriers = [_barrier(op) for op in kernel.body.walk() if op.row is ops.SYNC_UNITS]
        self._places = {barrier: k for k, barrier in enumerate(dict.fromkeys(barriers))}
        self._arrivals = Value(Buffer(u64, Space.SHARED), "arrivals")

    def run(self, kernel: Kernel) -> Kernel:
        """The rewritten kernel; behind its first allocations it clears the counts of arrivals."""
        body = self.region(kernel.body).ops
        if self._places:
            head = 0
            while body[head].row is ops.ALLOC or (
                body[head].row.is_pure and not body[head].regions
            ):
                head += 1
            body = (*body[:head], *self._built(self._clear), *body[head:])
        return replace(kernel, body=Region((), body))

    def visit(self, op: Op) -> None:
        if op.row is BARRIER_TRY_WAIT:
            self._try(op)
        elif op.row is ops.SYNC_UNITS:
            self._arrive_and_wait(op)
        else:
            self.out.append(self.renew(op))

    def _clear(self) -> None:
        attrs: dict[str, Attr] = {"type": u64, "size": len(self._places), "space": "shared"}
        self.out.append(Op(ops.ALLOC, (), attrs, (self._arrivals,)))
        unit = self.emit(ops.UNIT_POS, (), {"axis": "all"})
        is_first = self.emit(ops.EQ, (unit, self.emit_const(index, 0)))

        def stores() -> None:
            zero = self.emit_const(u64, 0)
            for k in range(len(self._places)):
                place = self.emit_const(index, k)
                self.out.append(Op(ops.STORE, (self._arrivals, place, zero)))
            self.out.append(Op(ops.YIELD))

        self._if(is_first, stores, self._nothing, None)
        self.out.append(Op(ops.SYNC_CUBE))

    def _try(self, op: Op) -> None:
        """Whether the phase has ended, or in clusters a fault is noted."""
        ended = Value(bool_, op.result.name)
        self.out.append(Op(op.row, self.values(op.operands), op.attrs, (ended,), (), op.span))
        if not self._goes_on:
            self.replaced[op.result] = ended
            self._if(ended, self._nothing, lambda: self._leave(op.span), op.span)
            return
        found = Value(bool_, op.result.name)

        def known() -> None:
            self.out.append(Op(ops.YIELD, (self.emit_const(bool_, True),)))

        def asked() -> None:
            self.out.append(Op(ops.YIELD, (self._faulted(op.span),)))

        self._if(ended, known, asked, op.span, found)
        self.replaced[op.result] = found

    def _arrive_and_wait(self, op: Op) -> None:
        """Add an arrival, and wait for the last one of its round."""
        place = self.emit_const(index, self._places[_barrier(op)])
        number = op.attrs["count"]
        assert isinstance(number, int)
        self.out.append(Op(ops.SYNC_STORAGE, span=op.span))
        one, count = self.emit_const(u64, 1), self.emit_const(u64, number)
        before = self.emit(ops.ATOMIC_ADD, (self._arrivals, place, one), {}, op.span)
        begin = self.emit(ops.SUB, (before, self.emit(ops.MOD, (before, count))))
        end = self.emit(ops.ADD, (begin, count))

        def waits() -> None:
            now = self.emit(ops.ATOMIC_LOAD, (self._arrivals, place), {}, op.span)
            self._if(self.emit(ops.GE, (now, end)), self._break, self._nothing, op.span)
            self._end_with_fault(op.span, ops.BREAK if self._goes_on else ops.RETURN)
            self.out.append(Op(ops.CONTINUE, span=op.span))

        body = Region((), self._built(waits))
        self.out.append(Op(ops.LOOP, (), {}, (), (body,), op.span))
        self.out.append(Op(ops.SYNC_STORAGE, span=op.span))
        self.out.append(Op(ops.SYNC_PLANE, span=op.span))

    # Parts

    def _faulted(self, span: Span | None) -> Value:
        return self.emit(FAULTED, (), {}, span)

    def _leave(self, span: Span | None) -> None:
        """A branch that ends the unit if a fault is noted."""
        self._end_with_fault(span, ops.RETURN)
        self._nothing()

    def _end_with_fault(self, span: Span | None, row: OpDef) -> None:
        """End the unit, or break a loop, if a fault is noted."""
        self._if(
            self._faulted(span), lambda: self.out.append(Op(row, span=span)), self._nothing, span
        )

    def _nothing(self) -> None:
        self.out.append(Op(ops.YIELD))

    def _break(self) -> None:
        self.out.append(Op(ops.BREAK))

    def _built(self, make: Callable[[], None]) -> tuple[Op, ...]:
        """What `make` appends."""
        outer, self.out = self.out, []
        make()
        built, self.out = self.out, outer
        return tuple(built)

    def _if(
        self,
        condition: Value,
        then: Callable[[], None],
        otherwise: Callable[[], None],
        span: Span | None,
        *results: Value,
    ) -> None:
        regions = tuple([Region((), self._built(make)) for make in (then, otherwise)])
        self.out.append(Op(ops.IF, (condition,), {}, results, regions, span))
