"""Operations of Apple's hardware: rows of the op table that Metal targets alone have."""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir.opdef import Attrs, Group, OpDef, Uniformity, require
from cubepy.ir.types import Type, f16, f32, make_line


def _multiplying(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Two matrices of f16 or f32, one of f32: two elements of each in a unit."""
    require(len(types) == 3, "takes two factors and what is added to")
    a, b, sums = types
    require(a == b and a in (make_line(f16, 2), make_line(f32, 2)), "takes factors f16x2 or f32x2")
    require(sums == make_line(f32, 2), f"adds to f32x2, got {sums!r}")
    return (sums,)


MULTIPLY_ACCUMULATE = OpDef(
    "metal_multiply_accumulate",
    "a @ b + c of matrices of 8x8 that the SIMD-group holds. Unit l has two neighbours in a row: "
    "those of row 4(l//16) + l//2%4 from column 4(l//8%2) + 2(l%2) on.",
    _multiplying,
    "cp.cmma.multiply_accumulate",
    unknown="only Apple's hardware has it",
    convergent=Group.PLANE,
    uniformity=Uniformity.NEVER,
    kind="metal",
)

ROWS: list[OpDef] = [MULTIPLY_ACCUMULATE]
