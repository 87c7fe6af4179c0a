"""Operations that only legalised kernels have; the op table does not know them."""

from __future__ import annotations

from cubepy.ir import opdef as rule
from cubepy.ir.opdef import Effect, OpDef

FMOD = OpDef("fmod", "The exact remainder, with the sign of the dividend.", rule.same("float", 2))
NOTE = OpDef(
    "note",
    "A fault with the positions of the unit and of the cube before what is told.",
    rule.leaving,
    effect=Effect.WRITE,
    attrs=("code",),
)
