"""Lines of one lane become scalars, which loops over units can turn into vectors of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Line, Type, element_of, index, width_of
from cubepy.passes.rewrite import Rewriter

_LANEWISE = {
    *(row for row in ops.TABLE.values() if row.meaning is not None),
    *(ops.SELECT, ops.CAST, ops.BITCAST, ops.LOAD, ops.STORE),
}


def unwrap_lines(kernel: Kernel) -> Kernel:
    """The kernel with scalars for lines of one lane; masked accesses keep theirs."""
    if not any(
        _is_single(v.type) for op in kernel.body.walk() for v in (*op.operands, *op.results)
    ):
        return kernel
    return _Unwrapper().run(kernel)


def _is_single(t: Type) -> bool:
    return isinstance(t, Line) and t.width == 1


class _Unwrapper(Rewriter):
    def visit(self, op: Op) -> None:
        values = (*op.operands, *op.results)
        if op.regions:
            self.out.append(replace(self.renew(op), results=self._scalars(op.results)))
        elif not any(_is_single(v.type) for v in values) or op.row.is_terminator:
            self.out.append(self.renew(op))
        elif op.row in self._special:
            self._special[op.row](self, op)
        elif op.row in ops.REDUCTIONS:
            self.replaced[op.result] = self.value(op.operands[0])
        elif self._is_lanewise(op):
            self._lanewise(op)
        else:
            self._wrap(op)

    def region(self, region: Region) -> Region:
        args = self._scalars(region.args)
        built = super().region(region)
        return built if args == region.args else Region(args, built.ops)

    def _scalars(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Values of an operation or a region, with new scalars for lines of one lane."""
        return tuple([self._scalar(v) if _is_single(v.type) else v for v in values])

    def _scalar(self, value: Value) -> Value:
        self.replaced[value] = Value(element_of(value.type), value.name)
        return self.replaced[value]

    # Operations

    def _is_lanewise(self, op: Op) -> bool:
        is_masked = len(op.operands) > {ops.LOAD: 2, ops.STORE: 3}.get(op.row, len(op.operands))
        return op.row in _LANEWISE and not is_masked

    def _lanewise(self, op: Op) -> None:
        attrs: dict[str, Attr] = dict(op.attrs)
        t = attrs.get("type")
        if isinstance(t, Line) and t.width == 1:
            attrs["type"] = t.element
        operands, results = self.values(op.operands), self._scalars(op.results)
        self.out.append(Op(op.row, operands, attrs, results, (), op.span))

    def _wrap(self, op: Op) -> None:
        """Leave the operation its lines."""
        operands = tuple(
            self.emit(ops.SPLAT, (self.value(v),), {"lanes": 1}, op.span)
            if _is_single(v.type)
            else self.value(v)
            for v in op.operands
        )
        results = tuple(Value(v.type, v.name) for v in op.results)
        self.out.append(Op(op.row, operands, op.attrs, results, (), op.span))
        for old, new in zip(op.results, results, strict=True):
            lane = self._lane(new, 0, op) if _is_single(new.type) else new
            self.replaced[old] = lane

    def _lane(self, line: Value, lane: int, op: Op) -> Value:
        """One lane; a scalar has one."""
        if not isinstance(line.type, Line):
            return line
        return self.emit(ops.EXTRACT, (line,), {"lane": lane}, op.span)

    def _splat(self, op: Op) -> None:
        self.replaced[op.result] = self.value(op.operands[0])

    def _extract(self, op: Op) -> None:
        self.replaced[op.result] = self.value(op.operands[0])

    def _insert(self, op: Op) -> None:
        self.replaced[op.result] = self.value(op.operands[1])

    def _shuffle(self, op: Op) -> None:
        lanes = op.attrs["lanes"]
        assert isinstance(lanes, tuple)
        width = width_of(op.operands[0].type)
        found: list[Value] = []
        for k in lanes:
            assert isinstance(k, int)
            found.append(self._lane(self.value(op.operands[k >= width]), k % width, op))
        if len(found) == 1:
            self.replaced[op.result] = found[0]
            return
        line = self.emit(ops.SPLAT, found[:1], {"lanes": len(found)}, op.span)
        for k, scalar in enumerate(found):
            if scalar is not found[0]:
                line = self.emit(ops.INSERT, (line, scalar), {"lane": k}, op.span)
        self.replaced[op.result] = line

    def _lane_mask(self, op: Op) -> None:
        first, end = self.values(op.operands)
        zero = self.emit_const(index, 0, op.span)
        begins = self.emit(ops.LE, (first, zero), {}, op.span)
        lasts = self.emit(ops.LT, (zero, end), {}, op.span)
        self.replaced[op.result] = self.emit(ops.AND, (begins, lasts), {}, op.span)

    _special: ClassVar[dict[OpDef, Callable[[_Unwrapper, Op], None]]] = {
        ops.SPLAT: _splat,
        ops.EXTRACT: _extract,
        ops.INSERT: _insert,
        ops.SHUFFLE: _shuffle,
        ops.LANE_MASK: _lane_mask,
    }
