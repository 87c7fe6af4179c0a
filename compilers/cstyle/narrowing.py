"""16-bit sums, products and conversions whose narrowing NVIDIA's compilers cannot look into.

ptxas of CUDA 13.0 takes the negation of -32768 in 16 bits for 32768 where the result is widened.
NVVM, before it, makes such a negation of any sum that is one: `y - (y + x)`, `~x + 1`. So sums and
products are computed in 32 bits, and a helper narrows them by an instruction of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from cubepy.compilers.cstyle.dialect import Spellings
from cubepy.compilers.cstyle.spelling import ADD, MUL, UNARY, Spelling, call, infix, prefix
from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, i16, i32, i64, index, index32, u16, u32, u64

NARROWED: Mapping[DType, str] = {i16: "to_short", u16: "to_ushort"}
"""The helper that makes each type of an `int`, or of an `unsigned int`."""
INSTRUCTION = 'asm("cvt.u16.u32 %0, %1;" : "=h"(result) : "r"(value));'
_WIDE = {i16: "int", u16: "unsigned int"}
_ROWS = {
    ops.NEG: prefix("-"),
    ops.ADD: infix("+", ADD),
    ops.SUB: infix("-", ADD),
    ops.MUL: infix("*", MUL),
}


def _arithmetic() -> Spellings:
    table: Spellings = {}
    for dtype, name in NARROWED.items():
        for row, inner in _ROWS.items():
            table[row, dtype] = Spelling(f"{name}({inner.text})", needs=inner.needs)
    # The product of two large u16 does not fit into an int.
    product = Spelling(f"{NARROWED[u16]}((unsigned int){{0}} * {{1}})", needs=(UNARY, UNARY))
    return table | {(ops.MUL, u16): product}


def _conversions() -> dict[tuple[OpDef, DType, DType], Spelling]:
    found: dict[tuple[OpDef, DType, DType], Spelling] = {}
    for dtype, name in NARROWED.items():
        found |= {(ops.CAST, wide, dtype): call(name) for wide in (i32, u32, index32)}
        cut = Spelling(f"{name}(({_WIDE[dtype]}){{0}})", needs=(UNARY,))
        found |= {(ops.CAST, wide, dtype): cut for wide in (i64, u64, index)}
    return found


ARITHMETIC = _arithmetic()
CONVERSIONS = _conversions()
