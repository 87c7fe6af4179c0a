"""Compute in f32 with the floats that a target can only store.

Their values stay in memory, lines and branches as they are; every computation casts them to f32
and rounds its result back, and the casts work on the bits (`lang/math/small_floats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cubepy.ir import cuda, ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    Line,
    Type,
    bf16,
    element_of,
    f16,
    f32,
    f64,
    u8,
    u16,
    width_of,
    with_element,
)
from cubepy.lang.math.small_floats import FROM_F32, THROUGH_F16, TO_F32, f64_to_f16
from cubepy.passes.inline import inlined
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.round_to_odd import odd_f32, odd_fma

_MOVES = (
    *(ops.CONST, ops.SELECT, ops.SPLAT, ops.EXTRACT, ops.INSERT, ops.SHUFFLE, ops.BITCAST),
    *(ops.MISALIGNMENT, cuda.ADDRESS),
    ops.DOT,
)
"""Pure operations that look at no number, or that targets which have them have for all types."""
_ROUNDING = (ops.ADD, ops.MUL)
"""Steps of reductions that round."""


def widen(
    dtypes: frozenset[DType], has_f64: bool = False, through_f16: bool = True
) -> Callable[[Kernel], Kernel]:
    """The pass for a target that only stores `dtypes`.

    Without f64, fused multiply-add of bf16 rounds twice where a product leaves the range of f32.
    `through_f16`: floats of 8 bits are widened by way of f16, where the target has that.
    """

    def work(kernel: Kernel) -> Kernel:
        if not _has(kernel, dtypes):
            return kernel
        return _Widen(dtypes, has_f64, through_f16 and f16 not in dtypes).run(kernel)

    return work


def _has(kernel: Kernel, dtypes: frozenset[DType]) -> bool:
    return any(
        element_of(v.type) in dtypes
        for op in kernel.body.walk()
        for v in (*op.operands, *op.results)
    )


class _Widen(Rewriter):
    def __init__(self, dtypes: frozenset[DType], has_f64: bool, through_f16: bool) -> None:
        super().__init__()
        self._dtypes = dtypes
        self._has_f64 = has_f64
        self._to_f32 = TO_F32 | THROUGH_F16 if through_f16 else TO_F32

    def visit(self, op: Op) -> None:
        if not op.row.is_pure or op.row in _MOVES or not self._concerns(op):
            self.out.append(self.renew(op))
        elif op.row is ops.CAST:
            self.replaced[op.result] = self._cast(op, self.values(op.operands)[0], op.result.type)
        elif op.row.step in _ROUNDING:
            self.replaced[op.result] = self._reduce(op, *self.values(op.operands))
        else:
            operands = self.values(op.operands)
            self.replaced[op.result] = self._compute(op, op.row, operands, op.result.type)

    def _concerns(self, op: Op) -> bool:
        return any(element_of(v.type) in self._dtypes for v in (*op.operands, *op.results))

    def _compute(self, op: Op, row: OpDef, operands: tuple[Value, ...], t: Type) -> Value:
        """The operation in f32, rounded once."""
        wide = tuple(self._widened(op, v) for v in operands)
        if row is ops.FMA and element_of(t) in self._dtypes:
            result = odd_fma(wide, element_of(t) is bf16 and self._has_f64, op.span, self.out)
        else:
            result = self.emit(row, wide, dict(op.attrs), op.span, op.result.name)
        return self._cast(op, result, t) if element_of(t) in self._dtypes else result

    def _reduce(self, op: Op, line: Value) -> Value:
        """Halves are combined until one lane is left, and each step rounds; see the op table."""
        step = op.row.step
        assert step is not None
        while (width := width_of(line.type)) > 1:
            half = width // 2
            low, high = (self._lanes(op, line, range(k, k + half)) for k in (0, half))
            rest = self._lanes(op, line, range(2 * half, width)) if width % 2 else None
            line = self._compute(op, step, (low, high), low.type)
            if rest is not None:
                last = self.emit(ops.EXTRACT, (rest,), {"lane": 0}, op.span)
                line = self._lanes(op, line, (*range(half), 0))
                line = self.emit(ops.INSERT, (line, last), {"lane": half}, op.span)
        return self.emit(ops.EXTRACT, (line,), {"lane": 0}, op.span)

    def _lanes(self, op: Op, line: Value, lanes: Iterable[int]) -> Value:
        return self.emit(ops.SHUFFLE, (line, line), {"lanes": tuple(lanes)}, op.span)

    def _widened(self, op: Op, value: Value) -> Value:
        if element_of(value.type) not in self._dtypes:
            return value
        return self._cast(op, value, with_element(value.type, f32))

    def _cast(self, op: Op, value: Value, t: Type) -> Value:
        """A conversion by way of f32."""
        source, target = element_of(value.type), element_of(t)
        if source is target:
            return value
        wide = with_element(value.type, f32)
        if source in self._dtypes:
            bits = self._bits(op, value, source)
            value = inlined(self._to_f32[source.name], (bits,), wide, op.span, self.out)
        elif source is not f32 and target in self._dtypes:
            value = odd_f32(value, op.span, self.out)
        if target not in self._dtypes:
            return value if target is f32 else self._plain(op, value, t)
        pattern = with_element(value.type, _pattern(target))
        bits = inlined(FROM_F32[target.name], (value,), pattern, op.span, self.out)
        return self.emit(ops.BITCAST, (bits,), {"type": t}, op.span)

    def _bits(self, op: Op, value: Value, source: DType) -> Value:
        attrs: dict[str, Attr] = {"type": with_element(value.type, _pattern(source))}
        return self.emit(ops.BITCAST, (value,), attrs, op.span)

    def _plain(self, op: Op, value: Value, t: Type) -> Value:
        assert isinstance(t, DType | Line)
        return self.emit(ops.CAST, (value,), {"type": t}, op.span)


def _pattern(dtype: DType) -> DType:
    return u16 if dtype.bits == 16 else u8


def widen_f16_fma(kernel: Kernel) -> Kernel:
    """Fused multiply-add of f16 in f64, where it rounds once; f64 to f16 on the bits.

    The product of two f16 is exact in f64, and so is the sum up to bits that cannot decide.
    """
    return _F16().run(kernel) if _has(kernel, frozenset((f16,))) else kernel


class _F16(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is ops.FMA and element_of(op.result.type) is f16:
            self._fma(op)
        elif op.row is ops.CAST and _is_f64_to_f16(op):
            self.replaced[op.result] = self._narrow(op, self.values(op.operands)[0])
        else:
            self.out.append(self.renew(op))

    def _fma(self, op: Op) -> None:
        wide = with_element(op.result.type, f64)
        operands = tuple(
            self.emit(ops.CAST, (v,), {"type": wide}, op.span) for v in self.values(op.operands)
        )
        self.replaced[op.result] = self._narrow(op, self.emit(ops.FMA, operands, {}, op.span))

    def _narrow(self, op: Op, value: Value) -> Value:
        pattern = with_element(value.type, u16)
        bits = inlined(f64_to_f16, (value,), pattern, op.span, self.out)
        return self.emit(ops.BITCAST, (bits,), {"type": with_element(value.type, f16)}, op.span)


def _is_f64_to_f16(op: Op) -> bool:
    return element_of(op.operands[0].type) is f64 and element_of(op.result.type) is f16
