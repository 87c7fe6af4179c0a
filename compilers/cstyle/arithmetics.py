"""Rewritings of arithmetic whose edge cases C leaves open; the functions stand in `arithmetic`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.compilers.cstyle import arithmetic as total
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.rows import FMOD
from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.numbers import Number, limits, round_to
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    Kind,
    Line,
    Type,
    bool_,
    element_of,
    f32,
    f64,
    i32,
    i64,
    index,
    u8,
    u16,
    u32,
    u64,
    width_of,
    with_element,
)
from cubepy.passes.inline import inlined
from cubepy.passes.rewrite import Rewriter

_SIGNED = {
    ops.FLOORDIV: total.floordiv_signed,
    ops.MOD: total.mod_signed,
    ops.DIV_TRUNC: total.div_trunc_signed,
    ops.REM_TRUNC: total.rem_trunc_signed,
}
_OPEN = frozenset((*_SIGNED, ops.SHL, ops.SHR, ops.CAST))
"""Their spellings, if there are any, have cases that C leaves open."""
_QUOTIENTS = (ops.FLOORDIV, ops.DIV_TRUNC)
_UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64}
_POSITIONS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)
_MONOTONE = (ops.ADD, ops.MUL, ops.MIN, ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC)


def expand_arithmetic(kernel: Kernel, dialect: Dialect) -> Kernel:
    """Division, shifts, minimum, conversion to integers, ... without open cases."""
    return _Expand(kernel, dialect).run(kernel)


class _Expand(Rewriter):
    def __init__(self, kernel: Kernel, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect
        self._numbers: dict[Value, Number] = {}
        self._nonnegative = {p.value for p in kernel.params if p.role == "shape"}

    def visit(self, op: Op) -> None:
        self._learn(op)
        handler = _HANDLERS.get(op.row)
        if handler is None or (op.row not in _OPEN and self._is_native(op)):
            self.out.append(self.renew(op))
        else:
            handler(self, op)

    def _is_native(self, op: Op) -> bool:
        return self._dialect.spelling(op.row, element_of(op.result.type)) is not None

    def _learn(self, op: Op) -> None:
        if op.row is ops.CONST:
            number = op.attrs["value"]
            assert isinstance(number, int | float)
            self._numbers[op.result] = number
        elif op.row is ops.SPLAT and op.operands[0] in self._numbers:
            self._numbers[op.result] = self._numbers[op.operands[0]]
        elif op.row is ops.FOR:
            step = self._numbers.get(op.operands[2])
            if op.operands[0] in self._nonnegative and step is not None and step > 0:
                self._nonnegative.add(op.regions[0].args[0])
        if len(op.results) == 1 and op.result.type is index and self._cannot_be_negative(op):
            self._nonnegative.add(op.result)

    def _cannot_be_negative(self, op: Op) -> bool:
        if op.row in _POSITIONS or op.row is ops.CONST:
            return op.row is not ops.CONST or self._numbers[op.result] >= 0
        known = [v in self._nonnegative for v in op.operands]
        if op.row in _MONOTONE:
            return all(known)
        if op.row is ops.SELECT:
            return all(known[1:])
        return op.row is ops.MAX and any(known)

    # Building

    def _inline(self, op: Op, function: Callable[..., Any], *operands: Value) -> None:
        t = op.result.type
        assert isinstance(t, DType | Line)
        self.replaced[op.result] = inlined(function, operands, t, op.span, self.out)

    def _plain(self, op: Op, row: OpDef, *operands: Value) -> None:
        self.replaced[op.result] = self.emit(row, operands, {}, op.span, op.result.name)

    def _to(self, op: Op, value: Value, dtype: DType) -> Value:
        t = with_element(value.type, dtype)
        if value.type == t:
            return value
        return self.emit(ops.CAST, (value,), {"type": t}, op.span)

    # Division

    def divide(self, op: Op) -> None:
        """Integers with guards, unless the divisor is a positive constant; floats from fmod."""
        dtype = element_of(op.result.type)
        if dtype.is_float:
            self._divide_float(op)
            return
        a, b = self.values(op.operands)
        divisor = self._numbers.get(op.operands[1])
        is_unsigned = dtype.kind is Kind.UINT or set(op.operands) <= self._nonnegative
        if divisor is not None and divisor > 0:
            self._divide_by_constant(op, a, b, int(divisor), is_unsigned)
        elif is_unsigned:
            quotient = op.row in _QUOTIENTS
            self._inline(op, total.div_unsigned if quotient else total.rem_unsigned, a, b)
        else:
            self._inline(op, _SIGNED[op.row], a, b)

    def _divide_by_constant(
        self, op: Op, a: Value, b: Value, divisor: int, is_unsigned: bool
    ) -> None:
        is_quotient, floors = op.row in _QUOTIENTS, op.row in (ops.FLOORDIV, ops.MOD)
        if is_unsigned or not floors:
            self._plain(op, ops.DIV_TRUNC if is_quotient else ops.REM_TRUNC, a, b)
        elif divisor & (divisor - 1) == 0:
            number = divisor.bit_length() - 1 if is_quotient else divisor - 1
            right = self.emit_const(a.type, number, op.span)
            self._plain(op, ops.SHR if is_quotient else ops.AND, a, right)
        else:
            self._inline(op, total.floordiv_positive if is_quotient else total.mod_positive, a, b)

    def _divide_float(self, op: Op) -> None:
        """The floor in the next wider type, if there is one; see `arithmetic.floordiv_float`."""
        a, b = self.values(op.operands)
        dtype = element_of(op.result.type)
        wide = {16: f32, 32: f64}.get(dtype.bits, f64) if op.row is ops.FLOORDIV else dtype
        if wide not in self._dialect.scalars:
            wide = dtype
        a, b = self._to(op, a, wide), self._to(op, b, wide)
        remainder = self.emit(FMOD, (a, b), {}, op.span)
        function = total.floordiv_float if op.row is ops.FLOORDIV else total.mod_float
        t = a.type
        assert isinstance(t, DType | Line)
        found = inlined(function, (a, b, remainder), t, op.span, self.out)
        self.replaced[op.result] = self._to(op, found, dtype)

    # Others

    def shift(self, op: Op) -> None:
        dtype = element_of(op.result.type)
        count = self._numbers.get(op.operands[1])
        if count is not None and 0 <= count < dtype.bits:
            self.out.append(self.renew(op))
            return
        signed = total.shr_signed if dtype.kind is Kind.INT else total.shr_unsigned
        function = total.shl_total if op.row is ops.SHL else signed
        self._inline(op, function, *self.values(op.operands))

    def extremum(self, op: Op) -> None:
        """Floats: NaN and the sign of zero; other numbers: a selection."""
        operands = self.values(op.operands)
        is_minimum = op.row is ops.MIN
        if element_of(op.result.type).is_float:
            self._inline(op, total.minimum if is_minimum else total.maximum, *operands)
            return
        first = self.emit(ops.LT if is_minimum else ops.GT, operands, {}, op.span)
        self._plain(op, ops.SELECT, first, *operands)

    def absolute(self, op: Op) -> None:
        (value,) = self.values(op.operands)
        if element_of(value.type).kind is Kind.UINT:
            self.replaced[op.result] = value
        else:
            self._inline(op, total.absolute, value)

    def trailing_zeros(self, op: Op) -> None:
        """The ones below the lowest one: popcount(~a & (a - 1)), of all bits for 0."""
        (value,) = self.values(op.operands)
        unsigned = with_element(value.type, _UNSIGNED[element_of(value.type).bits])
        bits = self.emit(ops.BITCAST, (value,), {"type": unsigned}, op.span)
        one = self.emit_const(unsigned, 1, op.span)
        below = self.emit(ops.SUB, (bits, one), {}, op.span)
        others = self.emit(ops.NOT, (bits,), {}, op.span)
        mask = self.emit(ops.AND, (others, below), {}, op.span)
        count = self.emit(ops.POPCOUNT, (mask,), {}, op.span)
        self.replaced[op.result] = self._same_bits(op, count, op.result.type)

    def _same_bits(self, op: Op, value: Value, t: Type) -> Value:
        return self.emit(ops.BITCAST, (value,), {"type": t}, op.span)

    def convert(self, op: Op) -> None:
        """Floats to integers saturate, and take NaN to 0; C leaves both open."""
        source, target = element_of(op.operands[0].type), element_of(op.result.type)
        if not source.is_float or not target.is_integer:
            self.out.append(self.renew(op))
            return
        (value,) = self.values(op.operands)
        low, high = _bounds(target, source)
        t = value.type
        at_least = self.emit(ops.GE, (value, self.emit_const(t, low)), {}, op.span)
        above = self.emit(ops.GT, (value, self.emit_const(t, high)), {}, op.span)
        at_most = self.emit(ops.LE, (value, self.emit_const(t, high)), {}, op.span)
        inside = self.emit(ops.AND, (at_least, at_most), {}, op.span)
        safe = self.emit(ops.SELECT, (inside, value, self.emit_const(t, 0.0)), {}, op.span)
        attrs: dict[str, Attr] = {"type": op.result.type}
        result = self.emit(ops.CAST, (safe,), attrs, op.span)
        smallest, largest = (self.emit_const(op.result.type, n, op.span) for n in limits(target))
        result = self.emit(ops.SELECT, (above, largest, result), {}, op.span)
        if target.kind is Kind.INT:  # the float below the lower bound; unsigned ones have 0 there
            below = self.emit(ops.LT, (value, self.emit_const(t, low)), {}, op.span)
            result = self.emit(ops.SELECT, (below, smallest, result), {}, op.span)
        self.replaced[op.result] = result


def _bounds(target: DType, source: DType) -> tuple[float, float]:
    """The floats between which truncation fits: the next ones inside the integers' range."""
    low, high = limits(target)
    return _inward(low, source), _inward(high, source)


def _inward(bound: int, source: DType) -> float:
    """The float nearest to the bound that is not beyond it; small floats may hold no such one."""
    value = round_to(source, float(bound))
    largest = round_to(source, 65504.0) if source.bits == 16 else value
    if value in (float("inf"), float("-inf")):
        return largest if value > 0 else -largest
    if abs(value) <= abs(bound):
        return value
    step = 1
    while abs(found := round_to(source, float(abs(bound) - step))) > abs(bound):
        step *= 2
    return found if bound > 0 else -found


_HANDLERS: dict[OpDef, Callable[[_Expand, Op], None]] = {
    **dict.fromkeys(_SIGNED, _Expand.divide),
    **dict.fromkeys((ops.SHL, ops.SHR), _Expand.shift),
    **dict.fromkeys((ops.MIN, ops.MAX), _Expand.extremum),
    ops.ABS: _Expand.absolute,
    ops.CTZ: _Expand.trailing_zeros,
    ops.CAST: _Expand.convert,
}


# Reductions

_REDUCTIONS: dict[OpDef, OpDef] = {
    ops.REDUCE_ADD: ops.ADD,
    ops.REDUCE_MUL: ops.MUL,
    ops.REDUCE_MIN: ops.MIN,
    ops.REDUCE_MAX: ops.MAX,
    ops.REDUCE_AND: ops.AND,
    ops.REDUCE_OR: ops.OR,
}


def lower_reductions(kernel: Kernel) -> Kernel:
    """Reductions of lines as operations on lanes, in the order that the op table promises."""
    return _Reductions().run(kernel)


class _Reductions(Rewriter):
    def visit(self, op: Op) -> None:
        row = _REDUCTIONS.get(op.row)
        if row is None:
            self.out.append(self.renew(op))
            return
        (line,) = self.values(op.operands)
        lanes = [self._lane(op, line, k) for k in range(width_of(line.type))]
        while half := len(lanes) // 2:
            pairs = zip(lanes[:half], lanes[half : 2 * half], strict=True)
            rest = lanes[2 * half :]
            lanes = [self.emit(row, pair, {}, op.span) for pair in pairs] + rest
        self.replaced[op.result] = lanes[0]

    def _lane(self, op: Op, line: Value, lane: int) -> Value:
        return self.emit(ops.EXTRACT, (line,), {"lane": lane}, op.span)


# Overflow

_OVERFLOWING = (ops.ADD, ops.SUB, ops.MUL, ops.NEG)


def wrap_signed(kernel: Kernel) -> Kernel:
    """Sums and products of i32 and i64 on unsigned numbers, which wrap in C too.

    Indices never wrap, and smaller types are computed in `int`. Negative numbers are shifted to the
    left as unsigned ones.
    """
    return _Wrap().run(kernel)


class _Wrap(Rewriter):
    def visit(self, op: Op) -> None:
        dtype = element_of(op.results[0].type) if len(op.results) == 1 else bool_
        wraps = op.row in _OVERFLOWING and dtype in (i32, i64)
        if not wraps and not (op.row is ops.SHL and dtype.kind is Kind.INT):
            self.out.append(self.renew(op))
            return
        unsigned: Attr = with_element(op.result.type, _UNSIGNED[dtype.bits])
        operands = [
            self.emit(ops.BITCAST, (v,), {"type": unsigned}, op.span)
            for v in self.values(op.operands)
        ]
        result = self.emit(op.row, operands, {}, op.span)
        attrs: dict[str, Attr] = {"type": op.result.type}
        self.replaced[op.result] = self.emit(ops.BITCAST, (result,), attrs, op.span)
