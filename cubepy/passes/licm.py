"""Moves pure operations out of loops in which their operands do not change.

The loop may not run, so that only operations that may run speculatively move; loads do not.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.opdef import is_speculatable
from cubepy.passes.rewrite import Rewriter


def licm(kernel: Kernel) -> Kernel:
    """The kernel with loop-invariant operations before their loops."""
    return _Licm().run(kernel)


class _Licm(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._before: list[list[Op]] = []
        """For each open loop, outermost first, what moves to the place before it."""
        self._depths: dict[Value, int] = {}
        """In how many loops a value is defined, after moving; absent for none."""

    def visit(self, op: Op) -> None:
        depth = len(self._before)
        if op.row in (ops.FOR, ops.LOOP):
            self._loop(op, depth)
        elif depth and is_speculatable(op):
            self._place(op, depth)
        else:
            self.out.append(self.renew(op))
            self._define(op.results, depth)

    def _loop(self, op: Op, depth: int) -> None:
        self._define(op.regions[0].args, depth + 1)
        self._before.append([])
        built = self.renew(op)
        self.out.extend(self._before.pop())
        self.out.append(built)
        self._define(op.results, depth)

    def _place(self, op: Op, depth: int) -> None:
        target = 0
        for value in op.operands:
            target = max(target, self._depths.get(value, 0))
        (self.out if target == depth else self._before[target]).append(op)
        self._define(op.results, target)

    def _define(self, values: tuple[Value, ...], depth: int) -> None:
        if depth:
            self._depths.update(dict.fromkeys(values, depth))
