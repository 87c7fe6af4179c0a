"""Emission of sums of products of neighbouring lanes: VNNI of x86 processors, else 32-bit products.

VNNI multiplies unsigned by signed bytes. Others are moved by 128, with what that adds taken off:
a * b == (a + 128) * b - 128 * b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.numbers import Emit, literal, shuffle_text
from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.dot import GROUP
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Line, Type, element_of, i32, make_line, u8, width_of
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter

_TOP = 0x80
_WIDTHS = (4, 8, 16)
"""Sums in a register of each size."""


def _dot(e: Emitter, op: Op) -> str:
    a, b, sums = e.operands(op)
    one, two = (v.type for v in op.operands[:2])
    if not _has_form(e.target, width_of(op.result.type)):
        return _plain(e, op.result.type, (a, one), (b, two), sums)
    return _by_vnni(e, make_line(i32, width_of(op.result.type)), (a, one), (b, two), sums)


def _has_form(target: Target, width: int) -> bool:
    known = target.features
    if width == _WIDTHS[-1]:
        return "avx512vnni" in known
    return width in _WIDTHS and ("avxvnni" in known or {"avx512vnni", "avx512vl"} <= known)


def _by_vnni(e: Emitter, t: Line, one: tuple[str, Type], two: tuple[str, Type], sums: str) -> str:
    (a, left), (b, right) = one, two
    if element_of(left) is not u8 and element_of(right) is u8:
        (a, left), (b, right) = two, one
    bytes_ = make_line(u8, GROUP * t.width)
    if element_of(left) is not u8:  # both are signed
        moved = e.w.value(f"xor {spell.type_name(bytes_)} {a}, {literal(_TOP, bytes_)}")
        found = _call(e, t, sums, moved, b)
        extra = _call(e, t, literal(0, t), literal(_TOP, bytes_), b)
        return e.w.value(f"sub {spell.type_name(t)} {found}, {extra}")
    if element_of(right) is u8:  # both are unsigned
        moved = e.w.value(f"xor {spell.type_name(bytes_)} {b}, {literal(_TOP, bytes_)}")
        found = _call(e, t, sums, a, moved)
        less = _call(e, t, literal(0, t), a, literal(1, bytes_))
        extra = e.w.value(f"shl {spell.type_name(t)} {less}, {literal(7, t)}")
        return e.w.value(f"add {spell.type_name(t)} {found}, {extra}")
    return _call(e, t, sums, a, b)


def _call(e: Emitter, t: Line, sums: str, a: str, b: str) -> str:
    """The instruction; LLVM's older form, in which factors are lines of 32 bits, is upgraded."""
    name, given = spell.type_name(t), spell.type_name(make_line(u8, GROUP * t.width))
    words = [e.w.value(f"bitcast {given} {v} to {name}") for v in (a, b)]
    call = f"llvm.x86.avx512.vpdpbusd.{32 * t.width}"
    return e.w.call(call, name, (name, sums), *((name, v) for v in words))


def _plain(e: Emitter, t: Type, one: tuple[str, Type], two: tuple[str, Type], sums: str) -> str:
    name = spell.type_name(t)
    for lane in range(GROUP):
        factors = (_lanes(e, t, value, given, lane) for value, given in (one, two))
        product = e.w.value(f"mul {name} {next(factors)}, {next(factors)}")
        sums = e.w.value(f"add {name} {sums}, {product}")
    return sums


def _lanes(e: Emitter, t: Type, value: str, given: Type, lane: int) -> str:
    """One lane of each group, in 32 bits."""
    if isinstance(t, Line):
        lanes = tuple(range(lane, width_of(given), GROUP))
        found = e.w.value(shuffle_text(spell.type_name(given), value, "poison", lanes))
    else:
        found = e.w.value(f"extractelement {spell.type_name(given)} {value}, i64 {lane}")
    word = "zext" if element_of(given) is u8 else "sext"
    narrow = spell.vector_name("i8", width_of(t), t)
    return e.w.value(f"{word} {narrow} {found} to {spell.type_name(t)}")


HANDLERS: dict[OpDef, Emit] = {ops.DOT: _dot}
