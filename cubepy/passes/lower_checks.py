"""Checks become branches: where one fails, the fault is noted and the unit ends."""

from __future__ import annotations

from cubepy.artifact import Fault
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region
from cubepy.passes.rewrite import Rewriter


def lower_checks(kernel: Kernel) -> tuple[Kernel, tuple[Fault, ...]]:
    """`check c` as `if c then {} else { fault; return }`, and what each fault's code means."""
    checks = _Checks()
    return checks.run(kernel), tuple(checks.faults)


class _Checks(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[Fault] = []

    def visit(self, op: Op) -> None:
        if op.row is not ops.CHECK:
            self.out.append(self.renew(op))
            return
        condition, *told = self.values(op.operands)
        attrs = {"code": len(self.faults)}
        self.faults.append(_describe(op))
        fault = Op(ops.FAULT, tuple(told), attrs, (), (), op.span)
        leave = Region((), (fault, Op(ops.RETURN, span=op.span)))
        stay = Region((), (Op(ops.YIELD, span=op.span),))
        self.out.append(Op(ops.IF, (condition,), {}, (), (stay, leave), op.span))


def _describe(op: Op) -> Fault:
    axis = op.attrs.get("axis", 0)
    assert isinstance(axis, int)
    return Fault(str(op.attrs.get("kind")), str(op.attrs.get("argument")), axis, op.span)
