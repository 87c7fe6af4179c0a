"""Note what lines in memory are aligned to, where divisibility of their offsets proves it.

The bases of arguments are aligned as the launch promises, those of shared arrays always.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import ALIGNMENT, SHARED_ALIGNMENT, Kernel, Op, Value
from cubepy.ir.types import Buffer, Line, Space
from cubepy.passes.flow import FactRewriter


def align(kernel: Kernel) -> Kernel:
    """The kernel with alignments of lines that it does not state itself."""
    lines = [op for op in kernel.body.walk() if _line_of(op) is not None]
    return _Align(kernel).run(kernel) if lines else kernel


def _line_of(op: Op) -> Line | None:
    if op.row is ops.LOAD:
        t = op.result.type
    elif op.row is ops.STORE:
        t = op.operands[2].type
    else:
        return None
    return t if isinstance(t, Line) else None


class _Align(FactRewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._bases = {p.value: ALIGNMENT for p in kernel.params if p.argument in kernel.aligned}

    def step(self, op: Op) -> None:
        op = self.rename(op)
        line = _line_of(op)
        if line is not None:
            op = self._aligned(op, line)
        self.out.append(op)
        self.facts.define(op)

    def _aligned(self, op: Op, line: Line) -> Op:
        buffer, offset = op.operands[:2]
        size = line.element.itemsize * line.width
        bytes_ = self.facts.multiple(offset) * line.element.itemsize
        found = min(self._base(buffer), size & -size, bytes_ & -bytes_ if bytes_ else ALIGNMENT)
        stated = op.attrs.get("align", line.element.itemsize)
        assert isinstance(stated, int)
        if found <= stated:
            return op
        return Op(op.row, op.operands, {**op.attrs, "align": found}, op.results, (), op.span)

    def _base(self, buffer: Value) -> int:
        assert isinstance(buffer.type, Buffer)
        if buffer.type.space is Space.SHARED:
            return SHARED_ALIGNMENT
        return self._bases.get(buffer, 1)
