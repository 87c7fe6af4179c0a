"""How operations and types are spelled in LLVM IR: tables, no code that walks the IR."""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, Type, bool_, element_of, f16, f32, f64, width_of

_FLOATS = {f16: "half", f32: "float", f64: "double"}


def scalar_name(dtype: DType) -> str:
    """The LLVM type of a scalar in registers; floats that are only stored are their bits."""
    return _FLOATS.get(dtype) or f"i{dtype.bits}"


def type_name(t: Type) -> str:
    """The LLVM type of a scalar or line in registers."""
    return vector_name(scalar_name(element_of(t)), width_of(t), t)


def memory_name(t: Type) -> str:
    """The LLVM type in memory: bools are bytes."""
    scalar = "i8" if element_of(t) is bool_ else scalar_name(element_of(t))
    return vector_name(scalar, width_of(t), t)


def vector_name(scalar: str, width: int, t: Type) -> str:
    """`scalar`, or a vector of it where `t` is a line."""
    return scalar if isinstance(t, DType) else f"<{width} x {scalar}>"


def suffix(t: Type) -> str:
    """The mangling of an overloaded intrinsic: f32, v16f32, i64."""
    dtype = element_of(t)
    scalar = {f16: "f16", f32: "f32", f64: "f64"}.get(dtype, f"i{dtype.bits}")
    return scalar if isinstance(t, DType) else f"v{width_of(t)}{scalar}"


FLOAT_BINARY: dict[OpDef, str] = {
    ops.ADD: "fadd",
    ops.SUB: "fsub",
    ops.MUL: "fmul",
    ops.DIV: "fdiv",
}
INTEGER_BINARY: dict[OpDef, str] = {
    ops.ADD: "add",
    ops.SUB: "sub",
    ops.MUL: "mul",
    ops.AND: "and",
    ops.OR: "or",
    ops.XOR: "xor",
}
FLOAT_INTRINSICS: dict[OpDef, str] = {
    ops.SQRT: "sqrt",
    ops.FLOOR: "floor",
    ops.CEIL: "ceil",
    ops.TRUNC: "trunc",
    ops.RINT: "roundeven",
    ops.ABS: "fabs",
    ops.MIN: "minimum",
    ops.MAX: "maximum",
    ops.COPYSIGN: "copysign",
    ops.FMA: "fma",
}
SIGNED_INTRINSICS: dict[OpDef, str] = {ops.MIN: "smin", ops.MAX: "smax"}
UNSIGNED_INTRINSICS: dict[OpDef, str] = {ops.MIN: "umin", ops.MAX: "umax"}
COUNTING: dict[OpDef, str] = {ops.POPCOUNT: "ctpop", ops.CLZ: "ctlz", ops.CTZ: "cttz"}
FLOAT_COMPARE: dict[OpDef, str] = {
    ops.EQ: "oeq",
    ops.NE: "une",
    ops.LT: "olt",
    ops.LE: "ole",
    ops.GT: "ogt",
    ops.GE: "oge",
}
SIGNED_COMPARE: dict[OpDef, str] = {
    ops.EQ: "eq",
    ops.NE: "ne",
    ops.LT: "slt",
    ops.LE: "sle",
    ops.GT: "sgt",
    ops.GE: "sge",
}
UNSIGNED_COMPARE: dict[OpDef, str] = {
    ops.EQ: "eq",
    ops.NE: "ne",
    ops.LT: "ult",
    ops.LE: "ule",
    ops.GT: "ugt",
    ops.GE: "uge",
}
REDUCTIONS = {row: row.step for row in ops.REDUCTIONS if row.step is not None}


def compare_word(row: OpDef, dtype: DType) -> str:
    """`icmp slt`, `fcmp olt`, ..."""
    if dtype.is_float:
        return f"fcmp {FLOAT_COMPARE[row]}"
    is_signed = dtype.kind is Kind.INT
    return f"icmp {(SIGNED_COMPARE if is_signed else UNSIGNED_COMPARE)[row]}"
