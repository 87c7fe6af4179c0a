"""Arithmetic whose edge cases a target leaves open; the functions stand in `total_arithmetic`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Value
from cubepy.ir.numbers import Number, limits, round_to
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    Kind,
    Line,
    Type,
    element_of,
    f32,
    i32,
    index32,
    unsigned_like,
    with_element,
)
from cubepy.passes.inline import inlined
from cubepy.passes.legalise import total_arithmetic as total
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.legalise.rows import FMOD
from cubepy.passes.rewrite import Rewriter

_SIGNED = {
    ops.FLOORDIV: total.floordiv_signed,
    ops.MOD: total.mod_signed,
    ops.DIV_TRUNC: total.div_trunc_signed,
    ops.REM_TRUNC: total.rem_trunc_signed,
}
_QUOTIENTS = (ops.FLOORDIV, ops.DIV_TRUNC)


def expand_arithmetic(kernel: Kernel, target: Capabilities) -> Kernel:
    """Division, shifts, minimum, conversion to integers, ... without open cases."""
    return _Expand(kernel, target).run(kernel)


class _Expand(Rewriter):
    def __init__(self, kernel: Kernel, target: Capabilities) -> None:
        super().__init__()
        self._target = target
        self._numbers: dict[Value, Number] = {}

    def visit(self, op: Op) -> None:
        self._learn(op)
        handler = _HANDLERS.get(op.row)
        if handler is None or (op.row not in self._target.open_cases and self._is_native(op)):
            self.out.append(self.renew(op))
        else:
            handler(self, op)

    def _is_native(self, op: Op) -> bool:
        return self._target.has(op.row, element_of(op.result.type))

    def _learn(self, op: Op) -> None:
        if op.row is ops.CONST:
            number = op.attrs["value"]
            assert isinstance(number, int | float)
            self._numbers[op.result] = number
        elif op.row is ops.SPLAT and op.operands[0] in self._numbers:
            self._numbers[op.result] = self._numbers[op.operands[0]]

    # Building

    def _inline(self, op: Op, function: Callable[..., Any], *operands: Value) -> None:
        t = op.result.type
        assert isinstance(t, DType | Line)
        if t is index32:  # programs know no such type
            operands = tuple([self._same_bits(op, v, i32) for v in operands])
            found = inlined(function, operands, i32, op.span, self.out)
            self.replaced[op.result] = self._same_bits(op, found, t)
        else:
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
        """Integers with guards, unless the divisor is known not to be 0; floats from fmod.

        Numbers that are not negative are divided as unsigned ones, which takes fewer instructions.
        """
        dtype = element_of(op.result.type)
        if dtype.is_float:
            self._divide_float(op)
            return
        a, b = self.values(op.operands)
        divisor = self._numbers.get(op.operands[1])
        is_unsigned = dtype.kind is Kind.UINT or bool(op.attrs.get("nonnegative"))
        is_safe = divisor is not None or bool(op.attrs.get("nonzero"))
        if divisor == 0:
            self.replaced[op.result] = self.emit_const(op.result.type, 0, op.span)
        elif divisor is not None and divisor > 0 and is_power_of_two(int(divisor)):
            self._divide_by_constant(op, a, b, int(divisor), is_unsigned)
        elif is_unsigned:
            self._divide_unsigned(op, a, b, is_safe)
        elif divisor is not None and divisor > 0:
            self._divide_by_constant(op, a, b, int(divisor), is_unsigned)
        else:
            self._inline(op, _SIGNED[op.row], a, b)

    def _divide_unsigned(self, op: Op, a: Value, b: Value, is_safe: bool) -> None:
        is_quotient, t = op.row in _QUOTIENTS, op.result.type
        unsigned = unsigned_like(t)
        a, b = (self._same_bits(op, v, unsigned) for v in (a, b))
        if is_safe:
            row = ops.DIV_TRUNC if is_quotient else ops.REM_TRUNC
            found = self.emit(row, (a, b), {}, op.span, op.result.name)
        else:
            function = total.div_unsigned if is_quotient else total.rem_unsigned
            found = inlined(function, (a, b), unsigned, op.span, self.out)
        self.replaced[op.result] = self._same_bits(op, found, t)

    def _divide_by_constant(
        self, op: Op, a: Value, b: Value, divisor: int, is_unsigned: bool
    ) -> None:
        is_quotient, floors = op.row in _QUOTIENTS, op.row in (ops.FLOORDIV, ops.MOD)
        if not floors and not is_unsigned:
            self._plain(op, ops.DIV_TRUNC if is_quotient else ops.REM_TRUNC, a, b)
        elif is_power_of_two(divisor):
            number = divisor.bit_length() - 1 if is_quotient else divisor - 1
            right = self.emit_const(a.type, number, op.span)
            self._plain(op, ops.SHR if is_quotient else ops.AND, a, right)
        else:
            self._inline(op, total.floordiv_positive if is_quotient else total.mod_positive, a, b)

    def _divide_float(self, op: Op) -> None:
        """`//` of types below f32 is computed in f32; see `total.floordiv_float`."""
        a, b = self.values(op.operands)
        dtype = element_of(op.result.type)
        wide = f32 if op.row is ops.FLOORDIV and dtype.bits < f32.bits else dtype
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
        unsigned = unsigned_like(value.type)
        bits = self.emit(ops.BITCAST, (value,), {"type": unsigned}, op.span)
        one = self.emit_const(unsigned, 1, op.span)
        below = self.emit(ops.SUB, (bits, one), {}, op.span)
        others = self.emit(ops.NOT, (bits,), {}, op.span)
        mask = self.emit(ops.AND, (others, below), {}, op.span)
        count = self.emit(ops.POPCOUNT, (mask,), {}, op.span)
        self.replaced[op.result] = self._same_bits(op, count, op.result.type)

    def _same_bits(self, op: Op, value: Value, t: Type) -> Value:
        if value.type == t:
            return value
        return self.emit(ops.BITCAST, (value,), {"type": t}, op.span)

    def convert(self, op: Op) -> None:
        """Floats to integers saturate, and take NaN to 0."""
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


def is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


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
