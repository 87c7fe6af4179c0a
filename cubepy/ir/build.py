"""The builder: appends operations to regions, typing each one through the op table.

Knows no Python syntax; the frontend and the passes use it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from cubepy.ir import ops
from cubepy.ir.core import Attr, Op, Region, Value
from cubepy.ir.numbers import round_to
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Type, element_of, index
from cubepy.span import Span


class Builder:
    """A stack of open regions; `emit` appends to the innermost one."""

    def __init__(self) -> None:
        self._open: list[list[Op]] = [[]]
        self.span: Span | None = None

    @property
    def ops(self) -> list[Op]:
        """The operations of the innermost open region."""
        return self._open[-1]

    @property
    def is_terminated(self) -> bool:
        """Whether the innermost region has its terminator, so that what follows is dead."""
        return bool(self.ops) and self.ops[-1].row.is_terminator

    def append(self, op: Op) -> Op:
        """Add a finished operation."""
        self.ops.append(op)
        return op

    def emit_op(
        self,
        row: OpDef,
        *operands: Value,
        types: Sequence[Type] | None = None,
        regions: Sequence[Region] = (),
        name: str = "",
        **attrs: Attr,
    ) -> Op:
        """Append an operation; result types come from the table's rule, or from `types`."""
        inferred = row.rule([v.type for v in operands], attrs)
        results = tuple(Value(t, name) for t in (inferred if types is None else types))
        return self.append(Op(row, operands, attrs, results, tuple(regions), self.span))

    def emit_with(self, row: OpDef, operands: Sequence[Value], attrs: dict[str, Attr]) -> Op:
        """As `emit_op`, with attributes that the caller has gathered."""
        return self.emit_op(row, *operands, types=None, regions=(), name="", **attrs)

    def emit(self, row: OpDef, *operands: Value, name: str = "", **attrs: Attr) -> Value:
        """Append an operation that has one result, and give that."""
        return self.emit_op(row, *operands, types=None, regions=(), name=name, **attrs).result

    def const(self, value: int | float | bool, t: Type, name: str = "") -> Value:
        """A constant; lines get the value in every lane."""
        dtype = element_of(t)
        number = round_to(dtype, float(value)) if dtype.is_float else value
        if dtype.is_integer:
            number = int(number)  # True counts as 1
        if isinstance(t, DType):
            return self.emit(ops.CONST, type=t, value=number, name=name)
        scalar = self.emit(ops.CONST, type=dtype, value=number)
        return self.emit(ops.SPLAT, scalar, lanes=getattr(t, "width", 1), name=name)

    def index(self, value: int) -> Value:
        """A constant index."""
        return self.const(value, index)

    @contextmanager
    def region(self) -> Generator[list[Op]]:
        """Open a region; the yielded list holds its operations afterwards."""
        body: list[Op] = []
        self._open.append(body)
        try:
            yield body
        finally:
            self._open.pop()
