"""Checks become branches: where one fails, the fault is noted and the unit ends."""

from __future__ import annotations

from cubepy.artifact import Fault
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region
from cubepy.passes.rewrite import Rewriter


def lower_checks(kernel: Kernel) -> Kernel:
    """`check c` as `if c then {} else { fault; return }`; faults are numbered in order."""
    return _Checks().run(kernel)


def faults_of(kernel: Kernel) -> tuple[Fault, ...]:
    """What the number of each fault means, for a kernel that still has its checks."""
    return tuple(_describe(op) for op in kernel.body.walk() if op.row is ops.CHECK)


class _Checks(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def visit(self, op: Op) -> None:
        if op.row is not ops.CHECK:
            self.out.append(self.renew(op))
            return
        condition, *noted = self.values(op.operands)
        fault = Op(ops.FAULT, tuple(noted), {"code": self._count}, (), (), op.span)
        self._count += 1
        leave = Region((), (fault, Op(ops.RETURN, span=op.span)))
        pass_ = Region((), (Op(ops.YIELD, span=op.span),))
        self.out.append(Op(ops.IF, (condition,), {}, (), (pass_, leave), op.span))


def _describe(op: Op) -> Fault:
    axis = op.attrs.get("axis", 0)
    assert isinstance(axis, int)
    return Fault(str(op.attrs.get("kind")), str(op.attrs.get("argument")), axis, op.span)
