"""Spellings that NVIDIA's compilers cannot look into, around what they are known to get wrong.

ptxas of CUDA 13.0 takes the negation of -32768 in 16 bits for 32768 where its sign is extended.
NVVM, before it, makes such a negation of any sum that is one: `y - (y + x)`, `~x + 1`. So signed
sums and products of 16 bits are computed in 32, and a helper narrows them by an instruction of its
own, as it does wider integers that become numbers of 16 bits. (Hiding unsigned ones of 16 bits that
become signed crashed ptxas 13.0; of these `hide_negations` finds the negations.)

What else is hidden the passes `hide_negations`, `hide_guards`, `hide_extrema` and `hide_zeros` say.
"""

from __future__ import annotations

from cubepy.compilers.cstyle.dialect import Spellings
from cubepy.compilers.cstyle.spelling import ADD, MUL, UNARY, Spelling, call, cast, infix, prefix
from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, i16, i32, i64, index, index32, u32, u64
from cubepy.passes.legalise.rows import HIDDEN, HIDDEN_NEG
from cubepy.record import dataclass

_ROWS = {
    ops.NEG: prefix("-"),
    ops.ADD: infix("+", ADD),
    ops.SUB: infix("-", ADD),
    ops.MUL: infix("*", MUL),
}
_NAMES = {HIDDEN: "hidden", HIDDEN_NEG: "hidden_negation"}
_REGISTERS = {16: "h", 32: "r", 64: "l"}


@dataclass(frozen=True, slots=True)
class Disguise:
    """A helper that makes a `result` of a `value` by `instructions` of PTX.

    `plain`: the same in C, for other compilers of the text, with {result} and {unsigned} for types.
    """

    name: str
    result: DType
    value: DType
    instructions: str
    plain: str = "({result})value"

    @property
    def statement(self) -> str:
        """The inline assembly."""
        out, into = (_REGISTERS[t.bits] for t in (self.result, self.value))
        return f'asm("{self.instructions}" : "={out}"(result) : "{into}"(value));'


def _of(t: DType, suffix: str) -> tuple[Disguise, Disguise]:
    """Those of a size: a value in another register, and -v as ~v + 1."""
    bits = t.bits
    negate = f"{{ .reg .b{bits} all; not.b{bits} all, %1; add.s{bits} %0, all, 1; }}"
    return (
        Disguise(f"hidden{suffix}", t, t, f"mov.b{bits} %0, %1;"),
        Disguise(f"hidden_negation{suffix}", t, t, negate, "({result})-({unsigned})value"),
    )


DISGUISES = (
    Disguise("to_short", i16, i32, "cvt.u16.u32 %0, %1;"),
    *_of(i32, ""),
    *_of(i64, "_long"),
)


def spellings(long: str) -> Spellings:
    """Signed sums of 16 bits, and what is hidden; `long` names the signed type of 64 bits."""
    table: Spellings = {
        (row, i16): Spelling(f"to_short({inner.text})", needs=inner.needs)
        for row, inner in _ROWS.items()
    }
    for row, name in _NAMES.items():
        table[row, None] = cast(Spelling(f"{name}((int){{0}})", needs=(UNARY,)))
        table[row, u64] = cast(Spelling(f"{name}_long(({long}){{0}})", needs=(UNARY,)))
        table |= {(row, t): call(name) for t in (i32, index32)}
        table |= {(row, t): call(f"{name}_long") for t in (i64, index)}
    return table


_CUT = Spelling("to_short((int){0})", needs=(UNARY,))
CONVERSIONS: dict[tuple[OpDef, DType, DType], Spelling] = {
    **{(ops.CAST, t, i16): call("to_short") for t in (i32, u32, index32)},
    **{(ops.CAST, t, i16): _CUT for t in (i64, u64, index)},
}
"""What becomes signed numbers of 16 bits."""
