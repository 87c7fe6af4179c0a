"""Emission of pure operations: expressions over names, lane by lane for lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from cubepy.compilers.python import ops as spell
from cubepy.ir import ops
from cubepy.ir.core import Attr, Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Line, Type, element_of

if TYPE_CHECKING:
    from cubepy.compilers.python.emit import Emitter

Emit = Callable[["Emitter", Op], None]


def literal(value: Attr) -> str:
    """A number as Python reads it back; in brackets where an operator may come before it."""
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "_nan" if math.copysign(1.0, value) > 0 else "(-_nan)"
        return "_inf" if value > 0 else "(-_inf)"
    text = repr(value)
    return f"({text})" if text.startswith("-") else text


def emit_pure(e: Emitter, op: Op) -> None:
    """A row whose meaning works lane by lane."""
    dtype, atoms = element_of(op.operands[0].type), e.atoms(op)
    if isinstance(op.operands[0].type, Line):
        e.assign(op, f"_tuple(_map({function_of(e, op.row, dtype)}, {', '.join(atoms)}))")
        return
    text = spell.form(op.row, dtype)
    if text is None:
        e.assign(op, f"{e.meaning(op.row, dtype)}({', '.join(atoms)})")
    else:
        e.assign(op, text.format(*atoms))


def function_of(e: Emitter, row: OpDef, dtype: DType) -> str:
    """The name of a function of scalars that a row means."""
    text = spell.form(row, dtype)
    if text is None:
        return e.meaning(row, dtype)
    count = 1 + ("{1}" in text) + ("{2}" in text)
    return e.function(f"_do_{row.name}_{dtype.name}", count, text)


def type_atom(dtype: DType) -> str:
    """The name of a scalar type."""
    return f"_t_{dtype.name}"


def _target(op: Op) -> Type:
    t = op.attrs["type"]
    assert isinstance(t, DType | Line)
    return t


def _converted(e: Emitter, op: Op, name: str, text: str) -> None:
    (atom,) = e.atoms(op)
    if isinstance(op.result.type, Line):
        e.assign(op, f"_tuple(_map({e.function(name, 1, text)}, {atom}))")
    else:
        e.assign(op, text.format(atom))


def _cast(e: Emitter, op: Op) -> None:
    source, target = element_of(op.operands[0].type), element_of(_target(op))
    text = spell.cast_form(source, target) or f"_convert({{0}}, {type_atom(target)})"
    _converted(e, op, f"_cast_{source.name}_{target.name}", text)


def _bitcast(e: Emitter, op: Op) -> None:
    source, target = element_of(op.operands[0].type), element_of(_target(op))
    text = f"_bitcast({{0}}, {type_atom(source)}, {type_atom(target)})"
    _converted(e, op, f"_bits_{source.name}_{target.name}", text)


def _select(e: Emitter, op: Op) -> None:
    mask, yes, no = e.atoms(op)
    if isinstance(op.operands[0].type, Line):
        e.assign(op, f"_select({mask}, {yes}, {no})")
    else:
        e.assign(op, f"{yes} if {mask} else {no}")


def _splat(e: Emitter, op: Op) -> None:
    e.assign(op, f"({e.atom(op.operands[0])},) * {op.attrs['lanes']}")


def _extract(e: Emitter, op: Op) -> None:
    atoms = e.atoms(op)
    if len(atoms) == 1:
        e.assign(op, f"{atoms[0]}[{op.attrs['lane']}]")
    else:
        e.assign(op, f"_lane({atoms[0]}, {atoms[1]}, _unit, {e.site(op)})")
        e.fn.names["_unit"] = None


def _lookup(e: Emitter, op: Op) -> None:
    table = op.attrs["table"]
    assert isinstance(table, tuple)
    name = e.constant(f"({', '.join(map(literal, table))},)")
    e.assign(op, f"{name}[_min(_max({e.atom(op.operands[0])}, 0), {len(table) - 1})]")


def _insert(e: Emitter, op: Op) -> None:
    line, value = e.atoms(op)
    lane = op.attrs["lane"]
    assert isinstance(lane, int)
    e.assign(op, f"{line}[:{lane}] + ({value},) + {line}[{lane + 1}:]")


def _shuffle(e: Emitter, op: Op) -> None:
    a, b = e.atoms(op)
    e.assign(op, f"_tuple(_map(({a} + {b}).__getitem__, {op.attrs['lanes']!r}))")


def _lane_mask(e: Emitter, op: Op) -> None:
    first, end = e.atoms(op)
    e.assign(op, f"_lane_mask({first}, {end}, {op.attrs['lanes']})")


def _dot(e: Emitter, op: Op) -> None:
    a, b, sums = e.atoms(op)
    word = f"_dot_{element_of(op.result.type).name}"
    if isinstance(op.result.type, DType):
        e.assign(op, f"{word}({a}, {b}, ({sums},))[0]")
    else:
        e.assign(op, f"{word}({a}, {b}, {sums})")


def _plane_pos(e: Emitter, op: Op) -> None:
    e.fn.names["UNIT_POS"] = None
    e.assign(op, f"UNIT_POS // {e.kernel.plane_dim}")


def _reduce(e: Emitter, op: Op) -> None:
    dtype = element_of(op.operands[0].type)
    combine = function_of(e, spell.REDUCTIONS[op.row], dtype)
    e.assign(op, f"_halves({e.atom(op.operands[0])}, {combine})")


HANDLERS: dict[OpDef, Emit] = {
    ops.CAST: _cast,
    ops.BITCAST: _bitcast,
    ops.SELECT: _select,
    ops.SPLAT: _splat,
    ops.EXTRACT: _extract,
    ops.INSERT: _insert,
    ops.LOOKUP: _lookup,
    ops.SHUFFLE: _shuffle,
    ops.LANE_MASK: _lane_mask,
    ops.DOT: _dot,
    ops.PLANE_POS: _plane_pos,
    **dict.fromkeys(spell.REDUCTIONS, _reduce),
}
