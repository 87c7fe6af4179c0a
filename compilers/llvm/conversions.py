"""Conversions between numbers, per lane, as the op table defines `cast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.literals import literal
from cubepy.ir.types import Kind, Type, bool_, element_of, f16, f32, i32, with_element

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter

_PRECISION = {32: 24, 64: 53}
"""Bits of the integers that a float has all of, by its own bits."""


def convert(e: Emitter, value: str, source: Type, target: Type) -> str:
    """A value of another type."""
    a, b = element_of(source), element_of(target)
    if a is b:
        return value
    name, result = spell.type_name(source), spell.type_name(target)
    if b is bool_:
        word = "fcmp une" if a.is_float else "icmp ne"
        return e.w.value(f"{word} {name} {value}, {literal(0, source)}")
    if a.is_float and b.is_float:
        return _convert_float(e, value, source, target)
    if a.is_float:
        if a is f16:  # LLVM 22 takes NaN for the least integer where the CPU converts f16 itself
            source = with_element(source, f32)
            value = _convert_float(e, value, with_element(source, f16), source)
        return _to_integer(e, value, source, target)
    if b.is_float:
        word = "sitofp" if a.kind is Kind.INT else "uitofp"
        return e.w.value(f"{word} {name} {value} to {result}")
    if a.bits == b.bits:
        return value
    extend = "sext" if a.kind is Kind.INT else "zext"
    word = "trunc" if b.bits < a.bits else extend
    return e.w.value(f"{word} {name} {value} to {result}")


def _convert_float(e: Emitter, value: str, source: Type, target: Type) -> str:
    a, b = element_of(source), element_of(target)
    name, result = spell.type_name(source), spell.type_name(target)
    word = "fptrunc" if b.bits < a.bits else "fpext"
    return e.w.value(f"{word} {name} {value} to {result}")


def _to_integer(e: Emitter, value: str, source: Type, target: Type) -> str:
    """Cut at the ends of the integer, NaN to 0. Arm has instructions for that; LLVM 22 computes
    its intrinsics lane by lane on others, which takes ten times as long as limits in lines."""
    t = element_of(target)
    word = "fptosi" if t.kind is Kind.INT else "fptoui"
    if e.target.family == "aarch64":
        call = f"llvm.{word}.sat.{spell.suffix(target)}.{spell.suffix(source)}"
        return e.w.call(call, spell.type_name(target), (spell.type_name(source), value))
    return _Cut(e, source, target).convert(value)


class _Cut:
    """A conversion of a float that is cut before."""

    def __init__(self, e: Emitter, source: Type, target: Type) -> None:
        self._w = e.w
        self._source, self._target = source, target
        self._name = spell.type_name(source)
        t = element_of(target)
        self._is_signed = t.kind is Kind.INT
        bits, precision = t.bits - self._is_signed, _PRECISION[element_of(source).bits]
        self._greatest = (1 << bits) - 1
        self._most = self._greatest if bits <= precision else (1 << bits) - (1 << bits - precision)
        self._least = -(1 << bits) if self._is_signed else 0
        self._is_exact = self._most == self._greatest

    def convert(self, value: str) -> str:
        """The integer."""
        low = self._test("ogt", value, self._least)  # not for NaN, which is the least integer then
        cut = self._chosen(low, value, self._least)
        found = self._converted(self._chosen(self._test("olt", cut, self._most), cut, self._most))
        if not self._is_exact:
            beyond = self._test("ogt", value, self._most)
            found = self._select(beyond, literal(self._greatest, self._target), found)
        if self._is_signed:
            is_number = self._w.value(f"fcmp ord {self._name} {value}, {literal(0, self._source)}")
            found = self._select(is_number, found, literal(0, self._target))
        return found

    def _test(self, order: str, value: str, limit: int) -> str:
        return self._w.value(f"fcmp {order} {self._name} {value}, {literal(limit, self._source)}")

    def _mask(self) -> str:
        return spell.type_name(with_element(self._source, bool_))

    def _chosen(self, condition: str, value: str, limit: int) -> str:
        limited = literal(limit, self._source)
        text = f"{self._name} {value}, {self._name} {limited}"
        return self._w.value(f"select {self._mask()} {condition}, {text}")

    def _converted(self, value: str) -> str:
        """By an integer of 32 bits, which CPUs have an instruction for."""
        t, name = element_of(self._target), spell.type_name(self._target)
        wide = spell.type_name(with_element(self._target, i32)) if t.bits < i32.bits else name
        word = "fptosi" if self._is_signed or t.bits < i32.bits else "fptoui"
        found = self._w.value(f"{word} {self._name} {value} to {wide}")
        return found if wide == name else self._w.value(f"trunc {wide} {found} to {name}")

    def _select(self, condition: str, then: str, other: str) -> str:
        name = spell.type_name(self._target)
        return self._w.value(f"select {self._mask()} {condition}, {name} {then}, {name} {other}")
