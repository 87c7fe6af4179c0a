"""What memory holds: floats that are only stored, bools as bytes, and atomics on any type."""

from __future__ import annotations

from dataclasses import replace

from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.errors import fail
from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Param, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    Buffer,
    DType,
    Kind,
    Type,
    bool_,
    element_of,
    f32,
    f64,
    u8,
    u16,
    u32,
    u64,
    with_element,
)
from cubepy.passes.rewrite import Rewriter

_MOVES = (ops.CONST, ops.SELECT, ops.SPLAT, ops.EXTRACT, ops.INSERT, ops.SHUFFLE, ops.BITCAST)
_BITS = {8: u8, 16: u16, 32: u32, 64: u64}


def in_f32(kernel: Kernel, dialect: Dialect) -> Kernel:
    """Small floats that the dialect converts, but does not compute with, are computed in f32.

    Sums, products, quotients and roots of f16 and below round alike, once or by way of f32.
    """
    dtypes = dialect.stored - dialect.soft
    return _InF32(dtypes, dialect.native_fma).run(kernel) if dtypes else kernel


class _InF32(Rewriter):
    def __init__(self, dtypes: frozenset[DType], native_fma: frozenset[DType]) -> None:
        super().__init__()
        self._dtypes = dtypes
        self._native_fma = native_fma

    def visit(self, op: Op) -> None:
        if not op.row.is_pure or op.row in _MOVES or not self._concerns(op):
            self.out.append(self.renew(op))
        elif op.row is ops.CAST:
            self._cast(op)
        elif op.row is ops.COPYSIGN:
            self._copysign(op)
        elif op.row is ops.FMA and element_of(op.result.type) in self._native_fma:
            self.out.append(self.renew(op))
        else:
            self._compute(op)

    def _concerns(self, op: Op) -> bool:
        """Whether it computes with small floats; what looks at addresses of them does not."""
        values = (v.type for v in (*op.operands, *op.results))
        return any(not isinstance(t, Buffer) and element_of(t) in self._dtypes for t in values)

    def _to(self, op: Op, value: Value, t: Type) -> Value:
        if value.type == t:
            return value
        attrs: dict[str, Attr] = {"type": t}
        return self.emit(ops.CAST, (value,), attrs, op.span)

    def _cast(self, op: Op) -> None:
        """From f32 and f64 at once, from and to others by way of f32."""
        (value,) = self.values(op.operands)
        source, target = element_of(value.type), element_of(op.result.type)
        is_plain = {source, target} - self._dtypes <= {f32, f64} and source is not target
        if is_plain and not {source, target} <= self._dtypes:
            self.out.append(self.renew(op))
        else:
            wide = self._to(op, value, with_element(value.type, f32))
            self.replaced[op.result] = self._to(op, wide, op.result.type)

    def _copysign(self, op: Op) -> None:
        """On the bits: a conversion may lose the sign of NaN."""
        t = op.result.type
        word = with_element(t, _BITS[element_of(t).bits])
        sign = 1 << element_of(t).bits - 1
        a, b = (self._bits(op, v, word) for v in self.values(op.operands))
        size = self.emit(ops.AND, (a, self._constant(op, word, sign - 1)), {}, op.span)
        sign_of = self.emit(ops.AND, (b, self._constant(op, word, sign)), {}, op.span)
        bits = self.emit(ops.OR, (size, sign_of), {}, op.span)
        self.replaced[op.result] = self._bits(op, bits, t)

    def _bits(self, op: Op, value: Value, t: Type) -> Value:
        attrs: dict[str, Attr] = {"type": t}
        return self.emit(ops.BITCAST, (value,), attrs, op.span)

    def _constant(self, op: Op, t: Type, number: int) -> Value:
        return self.emit_const(t, number, op.span)

    def _compute(self, op: Op) -> None:
        operands = tuple(self._widened(op, v) for v in self.values(op.operands))
        result = self.emit(op.row, operands, dict(op.attrs), op.span, op.result.name)
        self.replaced[op.result] = self._to(op, result, op.result.type)

    def _widened(self, op: Op, value: Value) -> Value:
        if element_of(value.type) not in self._dtypes:
            return value
        return self._to(op, value, with_element(value.type, f32))


def print_as_f32(kernel: Kernel, dialect: Dialect) -> Kernel:
    """Floats that are only stored are printed as f32."""
    return _Printed(dialect.stored).run(kernel)


class _Printed(Rewriter):
    def __init__(self, dtypes: frozenset[DType]) -> None:
        super().__init__()
        self._dtypes = dtypes

    def visit(self, op: Op) -> None:
        op = self.renew(op)
        if op.row is ops.PRINT:
            operands = tuple(self._shown(op, v) for v in op.operands)
            op = Op(op.row, operands, op.attrs, (), (), op.span)
        self.out.append(op)

    def _shown(self, op: Op, value: Value) -> Value:
        if element_of(value.type) not in self._dtypes:
            return value
        t = with_element(value.type, f32)
        return self.emit(ops.CAST, (value,), {"type": t}, op.span)


# Bools


def bools_as_bytes(kernel: Kernel) -> Kernel:
    """Buffers of bools become buffers of bytes: any nonzero byte is true, and 1 is written."""
    rewriter = _Bytes()
    params = tuple(rewriter.param(p) for p in kernel.params)
    return replace(rewriter.run(kernel), params=params)


class _Bytes(Rewriter):
    def param(self, param: Param) -> Param:
        """The parameter of a buffer of bools, as one of bytes."""
        t = param.value.type
        if not isinstance(t, Buffer) or t.element is not bool_:
            return param
        value = Value(Buffer(u8, t.space), param.value.name)
        self.replaced[param.value] = value
        return replace(param, value=value)

    def visit(self, op: Op) -> None:
        if op.row is ops.ALLOC and op.attrs["type"] is bool_:
            attrs: dict[str, Attr] = {**op.attrs, "type": u8}
            self.replaced[op.result] = self.emit(op.row, (), attrs, op.span, op.result.name)
        elif op.operands and self._is_bytes(op.operands[0]) and len(op.operands) > 1:
            self._access(op)
        else:
            self.out.append(self.renew(op))

    @staticmethod
    def _is_bytes(value: Value) -> bool:
        return isinstance(value.type, Buffer) and value.type.element is bool_

    def _access(self, op: Op) -> None:
        """The values of an access as bytes; masks stay bools."""
        operands = list(self.values(op.operands))
        data = [2] if op.row is ops.STORE else [3] if op.row is ops.LOAD else [2, 3]
        for k in data:
            if k < len(operands):
                operands[k] = self._cast(op, operands[k], u8)
        attrs = dict(op.attrs)
        if op.row is ops.LOAD:
            attrs["type"] = with_element(op.result.type, u8)
        results = tuple(Value(with_element(v.type, u8), v.name) for v in op.results)
        if op.row is ops.MISALIGNMENT:
            results = op.results
        self.out.append(Op(op.row, tuple(operands), attrs, results, (), op.span))
        for old, new in zip(op.results, results, strict=True):
            if new is not old:
                self.replaced[old] = self._cast(op, new, bool_)

    def _cast(self, op: Op, value: Value, dtype: DType) -> Value:
        t = with_element(value.type, dtype)
        return self.emit(ops.CAST, (value,), {"type": t}, op.span)


# Atomics

_COMBINED: dict[OpDef, OpDef | None] = {
    ops.ATOMIC_ADD: ops.ADD,
    ops.ATOMIC_MIN: ops.MIN,
    ops.ATOMIC_MAX: ops.MAX,
    ops.ATOMIC_AND: ops.AND,
    ops.ATOMIC_OR: ops.OR,
    ops.ATOMIC_XOR: ops.XOR,
    ops.ATOMIC_EXCHANGE: None,
}


def lower_atomics(kernel: Kernel, dialect: Dialect) -> Kernel:
    """Atomics that the dialect has not become loops of compare and swap."""
    return _Atomics(dialect).run(kernel)


class _Atomics(Rewriter):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    def visit(self, op: Op) -> None:
        if op.row not in _COMBINED and op.row not in (ops.ATOMIC_CAS, ops.ATOMIC_LOAD):
            self.out.append(self.renew(op))
            return
        if self._has(op, op.row):
            self.out.append(self.renew(op))
        elif op.row in _COMBINED and self._has(op, ops.ATOMIC_CAS):
            self._loop(op)
        else:
            self._refuse(op)

    def _has(self, op: Op, row: OpDef) -> bool:
        buffer = op.operands[0].type
        assert isinstance(buffer, Buffer)
        dtype = u8 if buffer.element is bool_ else buffer.element
        return self._dialect.spelling(row, dtype) is not None

    def _refuse(self, op: Op) -> None:
        dtype = element_of(op.operands[0].type)
        raise fail(
            "E310",
            op.span,
            op=f"`{op.row.name}` on {dtype.name}",
            target=self._dialect.name,
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
        row = _COMBINED[op.row]
        new = value if row is None else self.emit(row, (old, value), {}, op.span)
        seen = self.emit(ops.ATOMIC_CAS, (buffer, offset, old, new), {}, op.span, "seen")
        same = self.emit(ops.EQ, (self._bits(op, seen), self._bits(op, old)), {}, op.span)
        stop = Region((), (Op(ops.BREAK, (seen,), span=op.span),))
        stay = Region((), (Op(ops.YIELD, span=op.span),))
        self.out.append(Op(ops.IF, (same,), {}, (), (stop, stay), op.span))
        body = Region((old,), (*self.out, Op(ops.CONTINUE, (seen,), span=op.span)))
        self.out = outer
        self.out.append(Op(ops.LOOP, (start,), {}, op.results, (body,), op.span))

    def _bits(self, op: Op, value: Value) -> Value:
        dtype = element_of(value.type)
        if dtype.kind is not Kind.FLOAT:
            return value
        attrs: dict[str, Attr] = {"type": _BITS[dtype.bits]}
        return self.emit(ops.BITCAST, (value,), attrs, op.span)
