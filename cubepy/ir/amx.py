"""Operations of matrix units of x86 processors: rows of the op table that CPU targets alone have.

Names and meanings follow Intel's manual of the instruction set (AMX). A unit has eight tiles of 16
rows of 64 bytes, numbered by attributes. They are state of the machine: what they hold is lost at
barriers, where other units take their turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.ir import opdef as rule
from cubepy.ir.opdef import MEMORY, Attrs, OpDef, Resource, Rule, Uniformity, require
from cubepy.ir.types import Buffer, Type, bool_, element_of, index

ROWS: list[OpDef] = []
TILES = range(8)
TILE_ROWS, ROW_BYTES = 16, 64
PRODUCTS = {"bf16": "tdpbf16ps", "i8": "tdpbssd", "u8": "tdpbuud"}
"""The instruction that multiplies elements of a type."""
_MACHINE = frozenset((Resource.MACHINE,))


def _op(name: str, typing: Rule, doc: str, **fields: Any) -> OpDef:
    row = OpDef(
        f"amx_{name}",
        doc,
        typing,
        "cp.cmma",
        unknown="only processors with AMX have it",
        uniformity=Uniformity.NEVER,
        kind="cpu",
        **fields,
    )
    ROWS.append(row)
    return row


def _tile(attrs: Attrs, name: str = "tile") -> None:
    require(rule.int_attr(attrs, name) in TILES, f"{name}: there are eight tiles")


def _zeroing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands, an attribute `tile`; no result."""
    rule.require_count(types, 0)
    _tile(attrs)
    return ()


def _moving(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """buffer, offset and the elements from row to row (indices), an attribute `tile`; no result."""
    rule.require_count(types, 3)
    rule.addressing(types[:2], attrs)
    require(types[2] is index, f"the step is {types[2]!r}, not an index")
    buffer = types[0]
    assert isinstance(buffer, Buffer)
    require(element_of(buffer) is not bool_, "does not take bools, whose size is not fixed")
    _tile(attrs)
    return ()


def _multiplying(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; tiles `sums`, `left` and `right`, and the type of `elements`; no result."""
    rule.require_count(types, 0)
    for name in ("sums", "left", "right"):
        _tile(attrs, name)
    require(attrs.get("elements") in PRODUCTS, f"multiplies {', '.join(PRODUCTS)}")
    return ()


ZERO = _op("zero", _zeroing, "All of tile `tile` is 0.", writes=_MACHINE, attrs=("tile",))
LOAD = _op(
    "load",
    _moving,
    "Reads the rows of tile `tile`, 64 bytes each.",
    reads=MEMORY,
    writes=_MACHINE,
    attrs=("tile",),
)
STORE = _op(
    "store",
    _moving,
    "Writes the rows of tile `tile`, 64 bytes each.",
    reads=_MACHINE,
    writes=MEMORY | _MACHINE,
    attrs=("tile",),
)
MULTIPLY = _op(
    "multiply",
    _multiplying,
    "sums[m, n] += the sum over k and e of left[m, w * k + e] * right[k, w * n + e], where w "
    "`elements` are in 32 bits. Integers wrap. Of bf16, sums of products with even and with odd e "
    "are made by fused steps in f32 and added to `sums`; numbers below 2**-126 count as 0.",
    reads=_MACHINE,
    writes=_MACHINE,
    attrs=("sums", "left", "right", "elements"),
)
