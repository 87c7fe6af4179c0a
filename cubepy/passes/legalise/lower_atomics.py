"""Atomics that a target has not, as loops of compare and swap."""

from __future__ import annotations

from cubepy.errors import fail
from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Kind, bool_, element_of, u8, u16, u32, u64
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.rewrite import Rewriter

_BITS = {8: u8, 16: u16, 32: u32, 64: u64}


def lower_atomics(kernel: Kernel, target: Capabilities) -> Kernel:
    """The kernel with native atomics alone; E310 where there is no compare and swap."""
    has_atomics = any(op.row in ops.ATOMICS for op in kernel.body.walk())
    return _Atomics(target).run(kernel) if has_atomics else kernel


class _Atomics(Rewriter):
    def __init__(self, target: Capabilities) -> None:
        super().__init__()
        self._target = target

    def visit(self, op: Op) -> None:
        if op.row not in ops.ATOMICS or self._has(op, op.row):
            self.out.append(self.renew(op))
        elif (op.row.step or op.row is ops.ATOMIC_EXCHANGE) and self._has(op, ops.ATOMIC_CAS):
            self._loop(op)
        else:
            self._refuse(op)

    def _has(self, op: Op, row: OpDef) -> bool:
        buffer = op.operands[0].type
        assert isinstance(buffer, Buffer)
        dtype = u8 if buffer.element is bool_ else buffer.element
        if dtype in self._target.soft and row.step is not None:
            return False
        return self._target.has(row, dtype)

    def _refuse(self, op: Op) -> None:
        dtype = element_of(op.operands[0].type)
        raise fail(
            "E310",
            op.span,
            op=f"`{op.row.name}` on {dtype.name}",
            target=self._target.target,
            reason=f"it has no compare-and-swap of {dtype.itemsize * 8} bits",
            suggestion="use a type of 32 bits",
        )

    def _loop(self, op: Op) -> None:
        """old = load; loop: seen = cas(old, old op value); until seen has the bits of old."""
        buffer, offset, value = self.values(op.operands)
        t = op.result.type
        start = self.emit(ops.ATOMIC_LOAD, (buffer, offset), {}, op.span)
        old, outer = Value(t, "old"), self.out
        self.out = []
        row = op.row.step
        new = value if row is None else self.emit(row, (old, value), {}, op.span)
        seen = self.emit(ops.ATOMIC_CAS, (buffer, offset, old, new), {}, op.span, "seen")
        same = self.emit(ops.EQ, (self._bits(op, seen), self._bits(op, old)), {}, op.span)
        stop = Region((), (Op(ops.BREAK, (seen,), span=op.span),))
        pass_ = Region((), (Op(ops.YIELD, span=op.span),))
        self.out.append(Op(ops.IF, (same,), {}, (), (stop, pass_), op.span))
        body = Region((old,), (*self.out, Op(ops.CONTINUE, (seen,), span=op.span)))
        self.out = outer
        self.out.append(Op(ops.LOOP, (start,), {}, op.results, (body,), op.span))

    def _bits(self, op: Op, value: Value) -> Value:
        dtype = element_of(value.type)
        if dtype.kind is not Kind.FLOAT:
            return value
        attrs: dict[str, Attr] = {"type": _BITS[dtype.bits]}
        return self.emit(ops.BITCAST, (value,), attrs, op.span)
