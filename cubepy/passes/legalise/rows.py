"""Operations that only legalised kernels have; they are no rows of the op table."""

from __future__ import annotations

from cubepy.ir import opdef as rule
from cubepy.ir.opdef import OpDef, Resource

FMOD = OpDef("fmod", "The exact remainder, with the sign of the dividend.", rule.same("float", 2))
HIDDEN_NEG = OpDef(
    "hidden_neg", "Negation in a form that compilers do not recognise.", rule.same("integer", 1)
)
HIDDEN = OpDef(
    "hidden", "The operand, which compilers do not know to be it.", rule.same("integer", 1)
)
NOTE = OpDef(
    "note",
    "A fault with the positions of the unit and of the cube before what is reported.",
    rule.leaving,
    writes=frozenset((Resource.DIAGNOSIS,)),
    attrs=("code",),
)
FAULTED = OpDef(
    "faulted",
    "Whether a fault of the launch is noted by now.",
    rule.electing,
    reads=frozenset((Resource.DIAGNOSIS,)),
    writes=frozenset((Resource.DIAGNOSIS,)),
)
