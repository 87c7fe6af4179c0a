"""Spellings and words that all dialects share."""

from __future__ import annotations

from cubepy.compilers.cstyle.dialect import Spellings
from cubepy.compilers.cstyle.spelling import (
    ADD,
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COMPARE,
    EQUAL,
    MUL,
    OR,
    SHIFT,
    TERNARY,
    Spelling,
    cast,
    infix,
    prefix,
)
from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    Kind,
    bf16,
    bool_,
    f8e4m3,
    f8e5m2,
    f32,
    i8,
    i16,
    i32,
    i64,
    index,
    index32,
    u8,
    u16,
    u32,
    u64,
)

SHORT_NAMES: dict[DType, str] = {
    bool_: "bool",
    i8: "char",
    i16: "short",
    i32: "int",
    i64: "long",
    index: "long",
    index32: "int",
    u8: "uchar",
    u16: "ushort",
    u32: "uint",
    u64: "ulong",
    bf16: "ushort",
    f32: "float",
    f8e4m3: "uchar",
    f8e5m2: "uchar",
}
"""Types as OpenCL C and Metal name them; floats that they have not are their bits."""
_SMALL = (i8, i16, u8, u16)
"""Computed in `int`, then converted back."""
_INFIX: dict[OpDef, tuple[str, int]] = {
    ops.ADD: ("+", ADD),
    ops.SUB: ("-", ADD),
    ops.MUL: ("*", MUL),
    ops.DIV: ("/", MUL),
    ops.DIV_TRUNC: ("/", MUL),
    ops.REM_TRUNC: ("%", MUL),
    ops.AND: ("&", BIT_AND),
    ops.OR: ("|", BIT_OR),
    ops.XOR: ("^", BIT_XOR),
    ops.SHL: ("<<", SHIFT),
    ops.SHR: (">>", SHIFT),
}
_COMPARISONS: dict[OpDef, tuple[str, int]] = {
    ops.EQ: ("==", EQUAL),
    ops.NE: ("!=", EQUAL),
    ops.LT: ("<", COMPARE),
    ops.LE: ("<=", COMPARE),
    ops.GT: (">", COMPARE),
    ops.GE: (">=", COMPARE),
}
FLOAT_FUNCTIONS: dict[OpDef, tuple[str, int]] = {
    ops.SQRT: ("sqrt", 1),
    ops.FLOOR: ("floor", 1),
    ops.CEIL: ("ceil", 1),
    ops.TRUNC: ("trunc", 1),
    ops.RINT: ("rint", 1),
    ops.ABS: ("fabs", 1),
    ops.COPYSIGN: ("copysign", 2),
    ops.FMA: ("fma", 3),
}
"""C's functions of doubles, with the number of their operands."""
_SELECT = Spelling("{0} ? {1} : {2}", TERNARY, (AND, OR, OR))


def _shared() -> Spellings:
    plain = {**_INFIX, **_COMPARISONS}
    table: Spellings = {(row, None): infix(*word) for row, word in plain.items()}
    for dtype in _SMALL:
        table |= {(row, dtype): cast(infix(*word)) for row, word in _INFIX.items()}
        table[ops.NEG, dtype] = cast(prefix("-"))
        table[ops.NOT, dtype] = cast(prefix("~"))
        table[ops.SELECT, dtype] = cast(_SELECT)
    # The product of two large u16 does not fit into an int.
    table[ops.MUL, u16] = Spelling("({t})((unsigned int){0} * {1})", 14, (14, 14))
    table |= {
        (ops.AND, bool_): infix("&&", AND),
        (ops.OR, bool_): infix("||", OR),
        (ops.XOR, bool_): infix("!=", EQUAL),
        (ops.NOT, bool_): prefix("!"),
        (ops.NEG, None): prefix("-"),
        (ops.NOT, None): prefix("~"),
        (ops.SELECT, None): _SELECT,
        (ops.CAST, None): cast(),
        (ops.CAST, Kind.BOOL): Spelling("{0} != 0", EQUAL, (ADD,)),
    }
    return table


SHARED: Spellings = _shared()
