"""The rules of products of small matrices by a plane (`mma.sync`): their elements and shapes.

Reference: PTX ISA, "Warp Level Matrix Instructions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cubepy.ir.opdef import Attrs, Rule, require, require_count
from cubepy.ir.types import Type, element_of, f32, f64, i32, make_line, u32, width_of

MMA_WORDS = {
    ("f16", 4, 2): "m16n8k16",
    ("f16", 2, 1): "m16n8k8",
    ("bf16", 4, 2): "m16n8k16",
    ("bf16", 2, 1): "m16n8k8",
    ("tf32", 4, 2): "m16n8k8",
    ("tf32", 2, 1): "m16n8k4",
    ("i8", 4, 2): "m16n8k32",
    ("u8", 4, 2): "m16n8k32",
    ("i8", 2, 1): "m16n8k16",
    ("u8", 2, 1): "m16n8k16",
}
"""The shape of a product by the kind of its elements and the words that a unit holds of a and b."""


def multiplying_words(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Words that pack elements of a and b, and four sums."""
    require_count(types, 3)
    a, b, c = types
    kind = attrs.get("elements")
    key = (str(kind), width_of(a), width_of(b))
    words = element_of(a) is u32 and element_of(b) is u32
    require(words and key in MMA_WORDS, f"has no product of {kind} in {a!r} and {b!r}")
    wanted = make_line(i32 if kind in ("i8", "u8") else f32, 4)
    require(c == wanted, f"sums into {wanted!r}, got {c!r}")
    return (c,)


MMA_NUMBERS = {(2, 1): "m16n8k4", (4, 2): "m16n8k8", (8, 4): "m16n8k16"}
"""The shape of a product of f64 by how many numbers a unit holds of a and b."""


def multiplying_numbers(shapes: Mapping[tuple[int, int], str], lanes: int) -> Rule:
    """Numbers of f64; `lanes` sums in each unit."""

    def apply(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
        require_count(types, 3)
        a, b, c = types
        doubles = all(element_of(t) is f64 for t in types)
        known = doubles and (width_of(a), width_of(b)) in shapes
        require(known, f"has no product of {a!r} and {b!r}")
        wanted = make_line(f64, lanes)
        require(c == wanted, f"sums into {wanted!r}, got {c!r}")
        return (c,)

    return apply
