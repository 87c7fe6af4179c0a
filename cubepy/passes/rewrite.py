"""Rebuilding kernels: operations are frozen, so a pass makes a new kernel with substituted values.

What a pass leaves as it is stays the same object: that keeps passes and their verification fast.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.numbers import Number, convert
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Type, element_of, width_of
from cubepy.span import Span


class Rewriter:
    """Visits every operation in order and builds the new kernel from what `visit` appends."""

    def __init__(self) -> None:
        self.replaced: dict[Value, Value] = {}
        """Old values that no longer exist, each with the new value that stands for it."""
        self.out: list[Op] = []
        """The operations of the region that is being built."""

    def run(self, kernel: Kernel) -> Kernel:
        """The rewritten kernel."""
        body = self.region(kernel.body)
        return kernel if body is kernel.body else replace(kernel, body=body)

    def visit(self, op: Op) -> None:
        """Append what stands for `op`; by default itself, with new operands and regions."""
        self.out.append(self.renew(op))

    def region(self, region: Region) -> Region:
        """The rewritten region; what follows a terminator is dead and dropped."""
        outer, self.out = self.out, []
        for op in region.ops:
            self.visit(op)
            if self.out and self.out[-1].row.is_terminator:
                break
        built, self.out = self.out, outer
        return region if _same_items(built, region.ops) else Region(region.args, tuple(built))

    def renew(self, op: Op) -> Op:
        """`op` with substituted operands and rewritten regions."""
        if op.regions:
            operands = self.values(op.operands)
            regions = tuple([self.region(region) for region in op.regions])
            if operands is op.operands and _same_items(regions, op.regions):
                return op
            return Op(op.row, operands, op.attrs, op.results, regions, op.span)
        return self.rename(op)

    def rename(self, op: Op) -> Op:
        """`op` with substituted operands."""
        operands = self.values(op.operands)
        if operands is op.operands:
            return op
        return Op(op.row, operands, op.attrs, op.results, op.regions, op.span)

    def values(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The values that stand for `values` in the new kernel."""
        replaced = self.replaced
        for value in values:
            if value in replaced:
                return tuple([replaced.get(v, v) for v in values])
        return values

    def value(self, value: Value) -> Value:
        """The value that stands for `value` in the new kernel."""
        return self.replaced.get(value, value)

    def emit(
        self,
        row: OpDef,
        operands: Sequence[Value] = (),
        attrs: dict[str, Attr] | None = None,
        span: Span | None = None,
        name: str = "",
    ) -> Value:
        """Append a new operation with one result, which the table's rule types."""
        attrs = attrs or {}
        (t,) = row.rule([v.type for v in operands], attrs)
        result = Value(t, name)
        self.out.append(Op(row, tuple(operands), attrs, (result,), (), span))
        return result

    def emit_const(self, t: Type, number: Number, span: Span | None = None) -> Value:
        """Append a constant; a line has it in every lane."""
        result = Value(t)
        self.out.extend(constant(result, number, span))
        return result


def constant(result: Value, number: Number, span: Span | None = None) -> Iterator[Op]:
    """The operations that give `result` the constant `number` in every lane."""
    element, lanes = element_of(result.type), width_of(result.type)
    attrs: dict[str, Attr] = {"type": element, "value": convert(number, element)}
    if result.type is element:
        yield Op(ops.CONST, (), attrs, (result,), (), span)
        return
    scalar = Value(element)
    yield Op(ops.CONST, (), attrs, (scalar,), (), span)
    yield Op(ops.SPLAT, (scalar,), {"lanes": lanes}, (result,), (), span)


def copy_op(op: Op, copies: dict[Value, Value], span: Span | None = None) -> Op:
    """A copy that defines new values, which are added to `copies`, and uses those in it.

    It stands at `span`, or where `op` stands.
    """
    operands = tuple([copies.get(value, value) for value in op.operands])
    regions = tuple([_copy_region(region, copies, span) for region in op.regions])
    results = _copy_values(op.results, copies)
    return Op(op.row, operands, op.attrs, results, regions, span or op.span)


def _copy_region(region: Region, copies: dict[Value, Value], span: Span | None) -> Region:
    args = _copy_values(region.args, copies)
    return Region(args, tuple([copy_op(op, copies, span) for op in region.ops]))


def _copy_values(values: tuple[Value, ...], copies: dict[Value, Value]) -> tuple[Value, ...]:
    made = tuple([Value(value.type, value.name) for value in values])
    copies.update(zip(values, made, strict=True))
    return made


def trip_count(start: Number | None, stop: Number | None, step: Number | None) -> int | None:
    """How often a `for` with these bounds runs; None where that is unknown."""
    if step == 0 or (start is not None and start == stop):
        return 0
    if start is None or stop is None or step is None:
        return None
    return len(range(int(start), int(stop), int(step)))


def count_uses(kernel: Kernel) -> dict[Value, int]:
    """How many operands each value is; values without uses are absent."""
    uses: dict[Value, int] = {}
    for op in kernel.body.walk():
        for value in op.operands:
            uses[value] = uses.get(value, 0) + 1
    return uses


def _same_items(new: Sequence[object], old: Sequence[object]) -> bool:
    return len(new) == len(old) and all(map(operator.is_, new, old))
