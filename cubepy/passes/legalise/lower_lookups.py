"""Look-ups in constant tables as targets have them: arrays of plain numbers, indexed inside.

Short tables become selections, which clamp by themselves. What constants of C cannot say on all
targets (bools, small floats, infinities and NaN) is stored as its bits. An index that may lie
outside is clamped.
"""

from __future__ import annotations

from math import isfinite

from cubepy.errors import fail
from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.numbers import Number, to_bits
from cubepy.ir.types import DType, bool_, element_of, u8, u16, u32, u64
from cubepy.passes.rewrite import Rewriter

SHORT = 4
"""Entries of a table that becomes selections."""
MAX_BYTES = 1 << 16
"""Bytes of all tables of a kernel: what OpenCL and CUDA have of constant memory."""


def lower_lookups(kernel: Kernel) -> Kernel:
    """The kernel with look-ups that are inside their tables; E309 where those are too large."""
    lookups = [op for op in kernel.body.walk() if op.row is ops.LOOKUP]
    if not lookups:
        return kernel
    _check_size(lookups)
    return _Lookups().run(kernel)


def _check_size(lookups: list[Op]) -> None:
    tables = {(op.result.type, repr(op.attrs["table"])): op for op in lookups}
    nbytes = sum(map(size_of, tables.values()))
    if nbytes > MAX_BYTES:
        largest = max(tables.values(), key=size_of)
        raise fail("E309", largest.span, nbytes=nbytes, limit=MAX_BYTES)


def size_of(op: Op) -> int:
    """The bytes of the table of a look-up."""
    return len(table_of(op)) * element_of(op.result.type).itemsize


def table_of(op: Op) -> tuple[Number, ...]:
    """The numbers of the table of a look-up."""
    table = op.attrs["table"]
    assert isinstance(table, tuple)
    return tuple([number for number in table if isinstance(number, int | float)])


class _Lookups(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is not ops.LOOKUP:
            self.out.append(self.renew(op))
            return
        (index,), table = self.values(op.operands), table_of(op)
        if len(table) <= SHORT:
            self.replaced[op.result] = self._chosen(op, index, table)
            return
        if not op.attrs.get("inside"):
            index = self._clamped(op, index, len(table) - 1)
        self.replaced[op.result] = self._found(op, index, table)

    def _chosen(self, op: Op, index: Value, table: tuple[Number, ...]) -> Value:
        """The last number, unless the index is below: from the end to the front."""
        t = element_of(op.result.type)
        result = self.emit_const(t, table[-1], op.span)
        for k in range(len(table) - 1, 0, -1):
            number = self.emit_const(t, table[k - 1], op.span)
            bound = self.emit_const(index.type, k, op.span)
            is_below = self.emit(ops.LT, (index, bound), {}, op.span)
            result = self.emit(ops.SELECT, (is_below, number, result), {}, op.span)
        return result

    def _clamped(self, op: Op, index: Value, last: int) -> Value:
        first, end = (self.emit_const(index.type, k, op.span) for k in (0, last))
        index = self.emit(ops.MAX, (index, first), {}, op.span)
        return self.emit(ops.MIN, (index, end), {}, op.span)

    def _found(self, op: Op, index: Value, table: tuple[Number, ...]) -> Value:
        """The number at an index inside, by way of its bits where it is stored so."""
        t = element_of(op.result.type)
        stored = _stored(t, table)
        numbers = table if stored is t else tuple([to_bits(n, t) for n in table])
        attrs: dict[str, Attr] = {"type": stored, "table": numbers, "inside": True}
        value = self.emit(ops.LOOKUP, (index,), attrs, op.span, op.result.name)
        if stored is t:
            return value
        row = ops.CAST if t is bool_ else ops.BITCAST
        return self.emit(row, (value,), {"type": t}, op.span)


def _stored(t: DType, table: tuple[Number, ...]) -> DType:
    """The type of which an array of these numbers of type `t` is made."""
    if t is bool_:
        return u8
    is_plain = not t.is_float or (t.bits >= 32 and all(map(isfinite, table)))
    return t if is_plain else _BITS[t.bits]


_BITS = {8: u8, 16: u16, 32: u32, 64: u64}
