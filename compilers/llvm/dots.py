"""Emission of sums of products of neighbouring lanes: VNNI of x86 processors, and their products of
bf16 (AVX512-BF16), else 32-bit products.

VNNI multiplies unsigned by signed bytes. Others are moved by 128, with what that adds taken off:
a * b == (a + 128) * b - 128 * b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.literals import literal
from cubepy.compilers.llvm.numbers import Emit, shuffle_text
from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.dot import group_of
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    Line,
    Type,
    element_of,
    f32,
    i8,
    i32,
    make_line,
    u8,
    width_of,
    with_element,
)
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter

_TOP = 0x80
_WIDTHS = (4, 8, 16)
"""Sums in a register of each size."""


def _dot(e: Emitter, op: Op) -> str:
    a, b, sums = e.operands(op)
    one, two = (v.type for v in op.operands[:2])
    dtype, width = element_of(op.result.type), width_of(op.result.type)
    if not _has_form(e.target, dtype, width):
        return _plain(e, op.result.type, (a, one), (b, two), sums)
    if dtype is f32:
        return _of_bf16(e, make_line(f32, width), (a, b), sums)
    return _by_vnni(e, make_line(i32, width_of(op.result.type)), (a, one), (b, two), sums)


def _has_form(target: Target, sums: DType, width: int) -> bool:
    known = target.features
    if sums is f32:
        whole = width == _WIDTHS[-1] or "avx512vl" in known
        return "avx512bf16" in known and width in _WIDTHS and whole
    if width == _WIDTHS[-1]:
        return "avx512vnni" in known
    return width in _WIDTHS and ("avxvnni" in known or {"avx512vnni", "avx512vl"} <= known)


def _of_bf16(e: Emitter, t: Line, factors: tuple[str, str], sums: str) -> str:
    """The instruction adds the odd lane's product first, and takes denormals for 0."""
    name, given = spell.type_name(t), f"<{2 * t.width} x bfloat>"
    lanes = [e.w.value(f"bitcast <{2 * t.width} x i16> {v} to {given}") for v in factors]
    call = f"llvm.x86.avx512bf16.dpbf16ps.{32 * t.width}"
    return e.w.call(call, name, (name, sums), *((given, v) for v in lanes))


def _by_vnni(e: Emitter, t: Line, one: tuple[str, Type], two: tuple[str, Type], sums: str) -> str:
    (a, left), (b, right) = one, two
    if element_of(left) is not u8 and element_of(right) is u8:
        (a, left), (b, right) = two, one
    bytes_ = make_line(u8, group_of(i32) * t.width)
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
    name, given = spell.type_name(t), spell.type_name(make_line(u8, group_of(i32) * t.width))
    words = [e.w.value(f"bitcast {given} {v} to {name}") for v in (a, b)]
    call = f"llvm.x86.avx512.vpdpbusd.{32 * t.width}"
    return e.w.call(call, name, (name, sums), *((name, v) for v in words))


def _plain(e: Emitter, t: Type, one: tuple[str, Type], two: tuple[str, Type], sums: str) -> str:
    name, is_float = spell.type_name(t), element_of(t) is f32
    for lane in reversed(range(group_of(element_of(t)))):
        left, right = (_lanes(e, t, value, given, lane) for value, given in (one, two))
        if is_float:
            call = f"llvm.fma.{spell.suffix(t)}"
            sums = e.w.call(call, name, (name, left), (name, right), (name, sums))
        else:
            product = e.w.value(f"mul {name} {left}, {right}")
            sums = e.w.value(f"add {name} {sums}, {product}")
    return sums


def _lanes(e: Emitter, t: Type, value: str, given: Type, lane: int) -> str:
    """One lane of each group, in 32 bits."""
    if isinstance(t, Line):
        lanes = tuple(range(lane, width_of(given), group_of(element_of(t))))
        found = e.w.value(shuffle_text(spell.type_name(given), value, "poison", lanes))
    else:
        found = e.w.value(f"extractelement {spell.type_name(given)} {value}, i64 {lane}")
    source, words = element_of(given), spell.vector_name("i32", width_of(t), t)
    narrow = spell.vector_name(spell.scalar_name(source), width_of(t), t)
    word = "sext" if source is i8 else "zext"
    wide = e.w.value(f"{word} {narrow} {found} to {words}")
    if element_of(t) is i32:
        return wide
    bits = e.w.value(f"shl {words} {wide}, {literal(16, with_element(t, i32))}")
    return e.w.value(f"bitcast {words} {bits} to {spell.type_name(t)}")


HANDLERS: dict[OpDef, Emit] = {ops.DOT: _dot}
