"""How operations are spelled in Python: tables over the op table, no code that walks the IR.

`{0}`, `{1}`, ... stand for operands, which are names or literals. Rows without a form here call
their meaning. Names that begin with an underscore are the runtime's; `tests/interpreter` proves
that each form equals the row's meaning.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, bf16, f8e4m3, f8e5m2, f16, f32, f64

ROUNDED: dict[DType, str] = {
    f64: "{0}",
    f32: "_f32({0}).value",
    f16: "_round_f16({0})",
    bf16: "_round_bf16({0})",
    f8e4m3: "_round_f8e4m3({0})",
    f8e5m2: "_round_f8e5m2({0})",
}
"""Rounding of an f64 result; one rounding in all, since 53 bits >= 2 * 24 + 2 (Figueroa 1995)."""

_ROUNDED_ARITHMETIC: dict[OpDef, str] = {
    ops.ADD: "{0} + {1}",
    ops.SUB: "{0} - {1}",
    ops.MUL: "{0} * {1}",
    ops.DIV: "_div({0}, {1})",
    ops.SQRT: "_sqrt({0})",
}
_FLOAT: dict[OpDef, str] = {ops.NEG: "-{0}", ops.ABS: "_abs({0})"}
_WRAPPED: dict[OpDef, str] = {
    ops.ADD: "{0} + {1}",
    ops.SUB: "{0} - {1}",
    ops.MUL: "{0} * {1}",
    ops.NEG: "-{0}",
    ops.ABS: "_abs({0})",
    ops.NOT: "~{0}",
    ops.FLOORDIV: "({0} // {1} if {1} else 0)",
}
_INTEGER: dict[OpDef, str] = {
    ops.MOD: "{0} % {1} if {1} else 0",
    ops.MIN: "{0} if {0} <= {1} else {1}",
    ops.MAX: "{0} if {0} >= {1} else {1}",
    ops.AND: "{0} & {1}",
    ops.OR: "{0} | {1}",
    ops.XOR: "{0} ^ {1}",
}
_BOOL: dict[OpDef, str] = {
    ops.AND: "{0} & {1}",
    ops.OR: "{0} | {1}",
    ops.XOR: "{0} ^ {1}",
    ops.NOT: "not {0}",
}
_COMPARISONS: dict[OpDef, str] = {
    ops.EQ: "{0} == {1}",
    ops.NE: "{0} != {1}",
    ops.LT: "{0} < {1}",
    ops.LE: "{0} <= {1}",
    ops.GT: "{0} > {1}",
    ops.GE: "{0} >= {1}",
}
REDUCTIONS, ATOMICS, PLANE_COMBINES = (
    {row: row.step for row in rows if row.step is not None}
    for rows in (ops.REDUCTIONS, ops.ATOMICS, ops.PLANE_ROWS)
)
"""What rows combine two values with."""
BARRIERS = (ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_UNITS)
CONVERGENT = frozenset((*BARRIERS, *ops.PLANE_ROWS))
"""Where units wait for others: a generator yields there."""
POSITIONS: dict[OpDef, str] = {
    ops.UNIT_POS: "UNIT_POS",
    ops.CUBE_POS: "CUBE_POS",
    ops.CUBE_COUNT: "CUBE_COUNT",
    ops.ABSOLUTE_POS: "ABSOLUTE_POS",
}
POSITION_NAMES = tuple(
    name + axis for name in POSITIONS.values() for axis in ("", "_X", "_Y", "_Z")
)
"""Locals of every kernel function, in this order."""


def wrapped(text: str, dtype: DType) -> str:
    """`text`, an integer expression, modulo 2**bits in the range of an integer type."""
    mask = (1 << dtype.bits) - 1
    if dtype.kind is Kind.UINT:
        return f"({text}) & {mask}"
    half = 1 << (dtype.bits - 1)
    return f"({text} + {half} & {mask}) - {half}"


def form(row: OpDef, dtype: DType) -> str | None:
    """The expression of a pure row on scalars of `dtype`; None where its meaning is called."""
    if row in _COMPARISONS:
        return _COMPARISONS[row]
    if dtype.kind is Kind.BOOL:
        return _BOOL.get(row)
    if not dtype.is_float:
        return wrapped(_WRAPPED[row], dtype) if row in _WRAPPED else _INTEGER.get(row)
    if row in _ROUNDED_ARITHMETIC:
        return ROUNDED[dtype].replace("{0}", _ROUNDED_ARITHMETIC[row])
    if row is ops.FMA and dtype is f32:
        return "_fma_f32({0}, {1}, {2})"
    return _FLOAT.get(row)


def cast_form(source: DType, target: DType) -> str | None:
    """The expression that converts a scalar; None where `_convert` does it."""
    if source is target:
        return "{0}"
    if target.kind is Kind.BOOL:
        return "{0} != 0"
    if target.is_float:
        exact = source.is_float or source.bits <= 32
        integer = "{0}" if source.is_float else "_float({0})"
        return ROUNDED[target].replace("{0}", integer) if exact else None
    if source.is_float:
        return None
    return wrapped("{0}", target)
