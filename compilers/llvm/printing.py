"""Emission of `print`: one call of C's printf for each unit that prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.conversions import convert
from cubepy.compilers.llvm.writer import Writer
from cubepy.compilers.printf import directive, directives
from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.types import DType, Kind, Line, bool_, element_of, f64, i64, u64

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter


def emit_print(e: Emitter, op: Op) -> str:
    """The text with each `{}` replaced by a directive of printf, and the operands converted."""
    args: list[str] = []
    for value, register in zip(op.operands, e.operands(op), strict=True):
        t = value.type
        if isinstance(t, Line):
            lanes = [_lane(e, t, register, k) for k in range(t.width)]
            args += [_argument(e, t.element, lane) for lane in lanes]
        else:
            args.append(_argument(e, element_of(t), register))

    def shown(k: int, spec: str) -> str:
        t = op.operands[k].type
        if isinstance(t, Line):
            return "[" + ", ".join([_directive(t.element)] * t.width) + "]"
        return directive(spec, element_of(t), _directive(element_of(t)))

    text = directives(str(op.attrs["text"]), shown)
    address = e.w.text(text + str(op.attrs.get("end", "\n")).replace("%", "%%"))
    e.w.prints = True
    with held(e.w):
        e.w.call_variadic("printf", address, args)
    return ""


@contextmanager
def held(w: Writer) -> Iterator[None]:
    """Calls of C's streams, which have locks: Ctrl-C ends no cube in the middle of one."""
    before = w.allocate("[128 x i8], align 16", "signals")
    w.call("cubepy_hold", "void", ("ptr", before))
    yield
    w.call("cubepy_let", "void", ("ptr", before))


def _lane(e: Emitter, t: Line, register: str, lane: int) -> str:
    return e.w.value(f"extractelement {spell.type_name(t)} {register}, i64 {lane}")


def _directive(dtype: DType) -> str:
    if dtype is bool_:
        return "%s"
    if dtype.is_float:
        return "%.17g" if dtype is f64 else "%.9g"
    return "%lld" if dtype.kind is Kind.INT else "%llu"


def _argument(e: Emitter, dtype: DType, register: str) -> str:
    """C passes floats as doubles and integers as they are; bools become words."""
    if dtype is bool_:
        yes, no = e.w.text("True"), e.w.text("False")
        return "ptr " + e.w.value(f"select i1 {register}, ptr {yes}, ptr {no}")
    wide = f64 if dtype.is_float else i64 if dtype.kind is Kind.INT else u64
    passed = register if dtype is wide else convert(e, register, dtype, wide)
    return f"{spell.scalar_name(wide)} {passed}"


HANDLERS = {ops.PRINT: emit_print}
