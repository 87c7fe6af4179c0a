"""Constants as operands of LLVM's instructions."""

from __future__ import annotations

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.writer import constant
from cubepy.ir.types import DType, Type, element_of


def splat(value: str, t: Type, scalar: str) -> str:
    """A constant operand: repeated where `t` is a line."""
    return value if isinstance(t, DType) else f"splat ({scalar} {value})"


def literal(value: float | int | bool, t: Type) -> str:
    """A constant of the type, as an operand."""
    dtype = element_of(t)
    return splat(constant(value, dtype), t, spell.scalar_name(dtype))
