"""NaN and infinities in prints, as Python writes them.

C writes the sign of a NaN, and pads neither with zeros. A print with fields that are padded stays
one call where their numbers are finite; else it is written piece by piece.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from string import Formatter

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.types import bool_, element_of
from cubepy.passes.rewrite import Rewriter
from cubepy.span import Span

_ZEROS = re.compile(r"[+ ]?0\d+(?:\.\d+)?[eEfFgG]?")
"""Formats that pad with zeros."""
Piece = tuple[str, str | None]
"""Plain text, and the format of the operand behind it; None at the end."""


def print_nonfinite(kernel: Kernel) -> Kernel:
    """The kernel with prints that write what Python writes."""
    return _Prints().run(kernel)


class _Prints(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is not ops.PRINT:
            self.out.append(self.renew(op))
            return
        values = [self._without_sign(op, v) for v in self.values(op.operands)]
        pieces = list(_pieces(str(op.attrs["text"])))
        formats = [spec for _, spec in pieces if spec is not None]
        padded = [
            v
            for v, spec in zip(values, formats, strict=True)
            if element_of(v.type).is_float and _ZEROS.fullmatch(spec)
        ]
        whole = Op(op.row, tuple(values), op.attrs, (), (), op.span)
        if not padded:
            self.out.append(whole)
            return
        finite = self._is_finite(op, padded[0])
        for value in padded[1:]:
            finite = self.emit(ops.AND, (finite, self._is_finite(op, value)), {}, op.span)
        outer, self.out = self.out, []
        self._write_pieces(op, pieces, values)
        parts, self.out = self.out, outer
        self._branch(finite, [whole], parts, op.span)

    def _without_sign(self, op: Op, value: Value) -> Value:
        """A NaN has no sign in Python."""
        if not element_of(value.type).is_float:
            return value
        is_nan = self.emit(ops.NE, (value, value), {}, op.span)
        nan = self.emit_const(value.type, math.nan, op.span)
        return self.emit(ops.SELECT, (is_nan, nan, value), {}, op.span)

    def _is_finite(self, op: Op, value: Value) -> Value:
        size = self.emit(ops.ABS, (value,), {}, op.span)
        return self.emit(
            ops.LT, (size, self.emit_const(value.type, math.inf, op.span)), {}, op.span
        )

    def _write_pieces(self, op: Op, pieces: list[Piece], values: list[Value]) -> None:
        """One print for each operand with the text before it; the last writes the end."""
        remaining = iter(values)
        for plain, spec in pieces:
            if spec is None:
                attrs = {**op.attrs, "text": _escaped(plain)}
                self.out.append(Op(op.row, (), attrs, (), (), op.span))
                return
            value = next(remaining)
            field = _print(f"{_escaped(plain)}{{{':' * bool(spec)}{spec}}}", op.span, value)
            if not (element_of(value.type).is_float and _ZEROS.fullmatch(spec)):
                self.out.append(field)
                continue
            finite, words = self._is_finite(op, value), self._words(op, plain, spec, value)
            self._branch(finite, [field], words, op.span)

    def _words(self, op: Op, plain: str, spec: str, value: Value) -> list[Op]:
        """Prints of NaN and of both infinities."""
        outer, self.out = self.out, []
        zero = self.emit_const(value.type, 0.0, op.span)
        texts = [
            [_print(_escaped(plain + format(number, spec)), op.span)]
            for number in (math.inf, -math.inf, math.nan)
        ]
        is_negative = self.emit(ops.LT, (value, zero), {}, op.span)
        is_positive = self.emit(ops.GT, (value, zero), {}, op.span)
        rest = [_if(is_negative, texts[1], texts[2], op.span)]
        self._branch(is_positive, texts[0], rest, op.span)
        made, self.out = self.out, outer
        return made

    def _branch(self, test: Value, then: list[Op], other: list[Op], span: Span | None) -> None:
        assert test.type is bool_
        self.out.append(_if(test, then, other, span))


def _if(test: Value, then: list[Op], other: list[Op], span: Span | None) -> Op:
    regions = tuple(Region((), (*body, Op(ops.YIELD))) for body in (then, other))
    return Op(ops.IF, (test,), {}, (), regions, span)


def _print(text: str, span: Span | None, *operands: Value) -> Op:
    attrs: dict[str, Attr] = {"text": text, "end": ""}
    return Op(ops.PRINT, operands, attrs, (), (), span)


def _pieces(text: str) -> Iterator[Piece]:
    """The parts of a text; the last one has no operand."""
    last = ""
    for plain, field, spec, _ in Formatter().parse(text):
        last += plain
        if field is not None:
            yield last, spec or ""
            last = ""
    yield last, None


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
