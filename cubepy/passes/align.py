"""Alignments of lines in memory, where divisibility of their offsets proves them.

The bases of arguments are aligned as the launch promises, those of shared arrays always.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import ALIGNMENT, SHARED_ALIGNMENT, Kernel, Op, Value
from cubepy.ir.types import Buffer, Line, Space
from cubepy.passes.facts import IntegerFacts


def line_of(op: Op) -> Line | None:
    """The type of the line that an operation loads or stores; None if it does neither."""
    if op.row is ops.LOAD:
        t = op.result.type
    elif op.row is ops.STORE:
        t = op.operands[2].type
    else:
        return None
    return t if isinstance(t, Line) else None


class Alignments:
    """What `facts` prove of the lines of a kernel."""

    def __init__(self, kernel: Kernel, facts: IntegerFacts) -> None:
        self._facts = facts
        aligned = (p.value for p in kernel.params if p.argument in kernel.aligned)
        self._bases = dict.fromkeys(aligned, kernel.alignment)

    def align(self, op: Op) -> Op:
        """A load or store of a line with its alignment, if it does not state as much itself."""
        line = line_of(op)
        if line is None:
            return op
        buffer, offset = op.operands[:2]
        size = line.element.itemsize * line.width
        bytes_ = self._facts.multiple(offset) * line.element.itemsize
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
