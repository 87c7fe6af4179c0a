"""What `hide_guards` and `hide_extrema` share: one operand of some operations is hidden."""

from __future__ import annotations

from cubepy.ir.core import Op, Value
from cubepy.passes.legalise.rows import HIDDEN
from cubepy.passes.rewrite import Rewriter


class HideOperands(Rewriter):
    """Makes an operand of each operation in `found`, named by its place there, `HIDDEN`."""

    def __init__(self, found: dict[Op, int]) -> None:
        super().__init__()
        self._found = found

    def visit(self, op: Op) -> None:
        place = self._found.get(op)
        if place is None:
            self.out.append(self.renew(op))
            return
        operands = [self.prepared(value, op) for value in self.values(op.operands)]
        operands[place] = self.emit(HIDDEN, (operands[place],), {}, op.span)
        self.build(op, tuple(operands))

    def prepared(self, value: Value, op: Op) -> Value:
        """What an operand becomes before one is hidden: by default nothing else."""
        return value

    def build(self, op: Op, operands: tuple[Value, ...]) -> None:
        """Append what gives the results of the operation."""
        self.out.append(Op(op.row, operands, op.attrs, op.results, (), op.span))
