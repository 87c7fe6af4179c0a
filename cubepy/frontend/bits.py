"""Bits under another type: lanes of one size become more or fewer lanes of another."""

from __future__ import annotations

from typing import Any

from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import Value
from cubepy.frontend.wording import describe
from cubepy.ir import ops
from cubepy.ir.types import (
    DType,
    Line,
    Type,
    bool_,
    element_of,
    find_dtype,
    make_line,
    u8,
    u16,
    u32,
    u64,
    width_of,
    with_element,
)
from cubepy.lang import builtins as lang

_WORDS = {8: u8, 16: u16, 32: u32, 64: u64}


@intrinsic(lang.bitcast)
def _bitcast(frame: Frame, value: Any, dtype: Any) -> Value:
    v = frame.tracer.value(value)
    target = _target(v.type, dtype)
    if target is None:
        raise frame.tracer.error(
            "E207", what="cp.bitcast", given=describe(dtype), expected=_expected(v.type)
        )
    if element_of(target).bits == element_of(v.type).bits:
        return frame.tracer.b.emit(ops.BITCAST, v, type=target)
    words = _Words(frame, v).resized(element_of(target).bits)
    return _cast(frame, words, target)


def _target(source: Type, given: Any) -> DType | Line | None:
    """The type that has as many bits: lanes where more than one are left, or a line is asked for.

    None where there is none.
    """
    dtype = given.element if isinstance(given, Line) else find_dtype(given)
    size = element_of(source).bits
    if dtype is None or (bool_ in (dtype, element_of(source)) and dtype.bits != size):
        return None
    width, rest = divmod(size * width_of(source), dtype.bits)
    if rest or (isinstance(given, Line) and given.width != width):
        return None
    is_line = width > 1 or isinstance(given, Line)
    if dtype.bits == size:
        is_line = isinstance(source, Line)
    return make_line(dtype, width) if is_line else dtype


def _expected(t: Type) -> str:
    total = element_of(t).bits * width_of(t)
    if isinstance(t, Line):
        return f"a dtype whose lanes make up {total} bits"
    return f"a dtype of {total} bits"


def _cast(frame: Frame, words: Value, target: DType | Line) -> Value:
    """Words as a type of their size; one lane as a line of one, where that is asked for."""
    b = frame.tracer.b
    if isinstance(target, Line) and not isinstance(words.type, Line):
        words = b.emit(ops.SPLAT, words, lanes=1)
    return words if words.type == target else b.emit(ops.BITCAST, words, type=target)


class _Words:
    """Unsigned words; of two neighbours the first has the lower bits."""

    def __init__(self, frame: Frame, value: Value) -> None:
        self._b = frame.tracer.b
        self._bits = element_of(value.type).bits
        t = with_element(value.type, _WORDS[self._bits])
        self._words = value if value.type == t else self._b.emit(ops.BITCAST, value, type=t)

    def resized(self, bits: int) -> Value:
        """Words of so many bits."""
        while self._bits < bits:
            self._join()
        while self._bits > bits:
            self._split()
        return self._words

    def _join(self) -> None:
        """Pairs of neighbours become one word of twice the size."""
        low, high = (self._every_second(k) for k in range(2))
        self._bits *= 2
        low, high = (self._as_words(v) for v in (low, high))
        by = self._b.const(self._bits // 2, high.type)
        self._words = self._b.emit(ops.OR, low, self._b.emit(ops.SHL, high, by))

    def _every_second(self, first: int) -> Value:
        words, width = self._words, width_of(self._words.type)
        if width == 2:
            return self._b.emit(ops.EXTRACT, words, lane=first)
        return self._b.emit(ops.SHUFFLE, words, words, lanes=tuple(range(first, width, 2)))

    def _split(self) -> None:
        """Each word becomes two of half the size."""
        words = self._words
        self._bits //= 2
        by = self._b.const(self._bits, words.type)
        low = self._as_words(words)
        high = self._as_words(self._b.emit(ops.SHR, words, by))
        if isinstance(low.type, Line):
            width = low.type.width
            lanes = tuple(k // 2 + k % 2 * width for k in range(2 * width))
            self._words = self._b.emit(ops.SHUFFLE, low, high, lanes=lanes)
        else:
            pair = self._b.emit(ops.SPLAT, low, lanes=2)
            self._words = self._b.emit(ops.INSERT, pair, high, lane=1)

    def _as_words(self, value: Value) -> Value:
        return self._b.emit(ops.CAST, value, type=with_element(value.type, _WORDS[self._bits]))
