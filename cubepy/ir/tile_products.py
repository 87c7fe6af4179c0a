"""The rule of products of tiles by a warpgroup (`wgmma`): which elements, sums and columns it has.

Reference: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir.opdef import Attrs, require
from cubepy.ir.types import DType, Line, Type, bool_, element_of, f32, i32, u32, u64, width_of

WGMMA_SUMS: dict[str, tuple[DType, ...]] = {
    "f16": (f32, u32),
    "bf16": (f32,),
    "tf32": (f32,),
    "f8e4m3": (f32, u32),
    "f8e5m2": (f32, u32),
    "i8": (i32,),
    "u8": (i32,),
}
"""Kinds of elements of products of tiles, and what they are summed in: u32 packs two f16."""
_MIXED = (frozenset(("f8e4m3", "f8e5m2")), frozenset(("i8", "u8")))
_FRAGMENT = Line(u32, 4)
"""What a unit holds of a tile of 64 rows and 32 bytes along K."""


def wgmma_columns(sums: Type) -> int:
    """How many columns the sums have that a unit holds as this line."""
    return (4 if element_of(sums) is u32 else 2) * width_of(sums)


def multiplying_tiles(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Sums; a's descriptor or fragment, b's descriptor; perhaps a condition."""
    require(len(types) in (3, 4), "takes sums, a, b and perhaps a condition")
    c, a, b = types[:3]
    kinds = (str(attrs.get("a_elements")), str(attrs.get("b_elements")))
    both = frozenset(kinds)
    known = both <= WGMMA_SUMS.keys() and (len(both) == 1 or both in _MIXED)
    require(known, f"has no product of {kinds[0]} and {kinds[1]}")
    sums = WGMMA_SUMS[kinds[0]]
    wanted = " or ".join(t.name for t in sums)
    require(isinstance(c, Line) and c.element in sums, f"sums into a line of {wanted}, got {c!r}")
    columns = wgmma_columns(c)
    require(columns % 8 == 0 and columns <= 256, f"has 8, 16, ... 256 columns, not {columns}")
    odd = sums == (i32,) and columns > 32 and columns % 16 != 0
    require(not odd, f"has a multiple of 16 columns for integers, not {columns}")
    require(a in (u64, _FRAGMENT) and b is u64, "takes descriptors: u64, or 4 words of a: u32")
    turned = attrs.get("a_transposed"), attrs.get("b_transposed")
    require(kinds[0] in ("f16", "bf16") or not any(turned), f"takes {kinds[0]} K-major alone")
    require(a is u64 or not turned[0], "takes a as it is from registers")
    require(list(types[3:]) in ([], [bool_]), "takes a bool as the condition")
    return (c,)
