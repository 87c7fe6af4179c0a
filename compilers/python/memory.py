"""Emission of what is not pure: memory, atomics, barriers, diagnosis.

Buffers are objects of the runtime; every access says which unit makes it, and its site.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cubepy.compilers.python import ops as spell
from cubepy.compilers.python.values import Emit, function_of, literal
from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Line, element_of, width_of

if TYPE_CHECKING:
    from cubepy.compilers.python.emit import Emitter


def _access(e: Emitter, op: Op) -> str:
    """The last arguments of an access: the unit and the site."""
    e.fn.names["_unit"] = None
    facts = {"writes": bool(op.row.writes), "atomic": op.row.name.startswith("atomic_")}
    site = e.site(op, argument=e.buffer_name(op.operands[0]), **facts)
    return f"_unit, {site}"


def _load(e: Emitter, op: Op) -> None:
    buffer, offset, *masked = e.atoms(op)
    at = _access(e, op)
    width = width_of(op.result.type)
    if not isinstance(op.result.type, Line):
        text = f"{buffer}.load({offset}, {at})"
        e.assign(op, f"{text} if {masked[0]} else {masked[1]}" if masked else text)
    elif masked:
        e.assign(op, f"{buffer}.load_lanes({offset}, {masked[0]}, {masked[1]}, {at})")
    else:
        e.assign(op, f"{buffer}.load_line({offset}, {width}, {at})")


def _store(e: Emitter, op: Op) -> None:
    buffer, offset, value, *mask = e.atoms(op)
    at = _access(e, op)
    if isinstance(op.operands[2].type, Line):
        chosen = mask[0] if mask else "None"
        e.line(f"{buffer}.store_line({offset}, {value}, {chosen}, {at})", op.span)
        return
    text = f"{buffer}.store({offset}, {value}, {at})"
    e.line(f"if {mask[0]}: {text}" if mask else text, op.span)


def _gather(e: Emitter, op: Op) -> None:
    buffer, offset, distances, mask, fill = e.atoms(op)
    e.assign(op, f"{buffer}.gather({offset}, {distances}, {mask}, {fill}, {_access(e, op)})")


def _scatter(e: Emitter, op: Op) -> None:
    buffer, offset, distances, line, mask = e.atoms(op)
    text = f"{buffer}.scatter({offset}, {distances}, {line}, {mask}, {_access(e, op)})"
    e.line(text, op.span)


def _alloc(e: Emitter, op: Op) -> None:
    dtype = element_of(op.result.type).name
    name = e.buffer_name(op.result)
    site = e.site(op, argument=name, dtype=dtype, size=op.attrs["size"])
    e.fn.names["_unit"] = None
    e.assign(op, f"_unit.{op.attrs['space']}({site})")


def _misalignment(e: Emitter, op: Op) -> None:
    buffer, offset = e.atoms(op)
    e.assign(op, f"{buffer}.misalignment({offset}, {op.attrs['bytes']})")


def _update(e: Emitter, op: Op) -> None:
    buffer, offset, value = e.atoms(op)
    combine = function_of(e, spell.ATOMICS[op.row], element_of(op.operands[0].type))
    e.assign(op, f"{buffer}.update({offset}, {combine}, {value}, {_access(e, op)})")


def _exchange(e: Emitter, op: Op) -> None:
    buffer, offset, value = e.atoms(op)
    e.assign(op, f"{buffer}.update({offset}, _second, {value}, {_access(e, op)})")


def _compare_and_swap(e: Emitter, op: Op) -> None:
    buffer, offset, expected, value = e.atoms(op)
    e.assign(op, f"{buffer}.swap({offset}, {expected}, {value}, {_access(e, op)})")


def _atomic_load(e: Emitter, op: Op) -> None:
    buffer, offset = e.atoms(op)
    e.assign(op, f"{buffer}.peek({offset}, {_access(e, op)})")


def _wait(e: Emitter, op: Op) -> None:
    """The unit waits: it yields the site, the iterations of its loops, and its operands."""
    operands = "".join(f"{atom}, " for atom in e.atoms(op))
    text = f"yield {e.site(op, **_exchange_facts(e, op))}, {e.iteration()}, ({operands})"
    if op.results:
        e.assign(op, text)
    else:
        e.line(text, op.span)


def _exchange_facts(e: Emitter, op: Op) -> dict[str, Any]:
    """The scalar type that a plane operation is about, and what combines two values; of a named
    barrier its number and how many units it waits for."""
    if not op.operands:
        return dict(op.attrs)
    t = op.operands[0].type
    facts = {"dtype": element_of(t).name}
    combined = spell.PLANE_COMBINES.get(op.row)
    if combined is not None:
        name = function_of(e, combined, element_of(t))
        if isinstance(t, Line):
            text = f"_tuple(_map({name}, {{0}}, {{1}}))"
            name = e.function(f"{name}_lanes", 2, text)
        facts["combine"] = name
    return facts


def _fence(e: Emitter, op: Op) -> None:
    e.fn.names["_unit"] = None
    e.line("_unit.fence()", op.span)


def _nothing(e: Emitter, op: Op) -> None:
    """A hint."""


def _print(e: Emitter, op: Op) -> None:
    texts = repr(op.attrs["text"]), repr(op.attrs.get("end", "\n"))
    e.line(f"_print({', '.join([*texts, *e.atoms(op)])})", op.span)


def _check(e: Emitter, op: Op) -> None:
    condition, *reported = e.atoms(op)
    site = e.site(op, **op.attrs)
    e.fn.names["_unit"] = None
    arguments = ", ".join(["_unit", str(site), *reported])
    e.line(f"if not {condition}: _fault({arguments})", op.span)


def _breakpoint(e: Emitter, op: Op) -> None:
    """The loop makes Python 3.11 and 3.12 stop on this line; by itself they stop on the next."""
    e.line("for _once in _ONCE: _breakpoint()", op.span)


def _name(e: Emitter, op: Op) -> None:
    """A local of the user has a value from here on."""
    name, kind = e.local(str(op.attrs["text"])), op.attrs["kind"]
    if kind == "comptime":
        e.line(f"{name} = {literal(op.attrs['value'])}", op.span)
    elif kind == "tensor":
        e.line(f"{name} = {_tensor(e, op)}", op.span)
    else:
        atoms = e.atoms(op)
        e.line(f"{name} = {_composed(op, atoms)}", op.span)


def _composed(op: Op, atoms: list[str]) -> str:
    """A number, a tuple, or a record with named fields."""
    fields = op.attrs.get("fields")
    if isinstance(fields, tuple):
        return f"_Record({', '.join(f'{f}={a}' for f, a in zip(fields, atoms, strict=True))})"
    return atoms[0] if op.attrs["kind"] == "number" else f"({''.join(f'{a}, ' for a in atoms)})"


def _tensor(e: Emitter, op: Op) -> str:
    """Buffer, offset, shape and strides as something that shows its elements."""
    buffer, offset, *rest = e.atoms(op)
    rank = len(rest) // 2
    shape, strides = ("".join(f"{a}, " for a in part) for part in (rest[:rank], rest[rank:]))
    return f"_Tensor({buffer}, {offset}, ({shape}), ({strides}))"


HANDLERS: dict[OpDef, Emit] = {
    ops.LOAD: _load,
    ops.STORE: _store,
    ops.GATHER: _gather,
    ops.SCATTER: _scatter,
    ops.ALLOC: _alloc,
    ops.PREFETCH: _nothing,
    ops.MISALIGNMENT: _misalignment,
    **dict.fromkeys(spell.ATOMICS, _update),
    ops.ATOMIC_EXCHANGE: _exchange,
    ops.ATOMIC_CAS: _compare_and_swap,
    ops.ATOMIC_LOAD: _atomic_load,
    **dict.fromkeys(spell.CONVERGENT, _wait),
    ops.SYNC_STORAGE: _fence,
    ops.PRINT: _print,
    ops.CHECK: _check,
    ops.BREAKPOINT: _breakpoint,
    ops.NAME: _name,
}
