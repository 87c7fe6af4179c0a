"""Rules of operations whose operands are addresses, tensor maps and values, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from cubepy.ir.opdef import Attrs, Rule, require
from cubepy.ir.types import Buffer, DType, Line, Space, Type, bool_, element_of, index

Wanted: TypeAlias = DType | Line | Space


def operand_groups(types: Sequence[Type]) -> list[tuple[int, ...]]:
    """Positions of operands that belong together: an address (buffer and index), or one value."""
    groups: list[tuple[int, ...]] = []
    position = 0
    while position < len(types):
        t = types[position]
        is_address = isinstance(t, Buffer) and t.space is not Space.TENSOR_MAP
        groups.append((position, position + 1) if is_address else (position,))
        position += 1 + is_address
    return groups


def takes(*wanted: Wanted, rest: DType | None = None, gives: DType | None = None) -> Rule:
    """Operands in order: addresses in a space, tensor maps, values; `rest`: one to five more."""

    def apply(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
        groups = operand_groups(types)
        more = len(groups) - len(wanted)
        require(1 <= more <= 5 if rest else more == 0, f"takes {len(wanted)} operands, or more")
        for group, what in zip(groups, (*wanted, *[rest] * more), strict=True):
            assert what is not None
            _require_operand([types[k] for k in group if k < len(types)], what)
        return () if gives is None else (gives,)

    return apply


def _require_operand(types: Sequence[Type], wanted: Wanted) -> None:
    if not isinstance(wanted, Space):
        require(types[0] == wanted, f"takes {wanted!r}, got {types[0]!r}")
        return
    buffer = types[0]
    in_space = isinstance(buffer, Buffer) and buffer.space is wanted
    require(in_space, f"takes {wanted.value} memory, got {buffer!r}")
    if wanted is not Space.TENSOR_MAP:
        require(types[1:] == [index], "the offset is not an index")
        require(element_of(buffer) is not bool_, "does not take bools, whose size is not fixed")
