"""Mutants of both compilers and of folding: each is one small change that makes code wrong.

They are made from the tables: every spelling is exchanged for another one of its table, and every
rewrite of the folding pass gives a wrong value, or is lost where losing it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.python import ops as python
from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.passes import emulate_planes, identities


@dataclass(frozen=True)
class Mutant:
    """`plant()` changes the compiler of this process for good; run it in a child."""

    name: str
    plant: Callable[[], None]


def all_mutants() -> list[Mutant]:
    """Every mutant, in a fixed order."""
    return [*spellings(), *python_spellings(), *handlers(), *rewrites(), *plane_forms()]


EQUIVALENT: dict[str, str] = {
    "cubepy.passes.fission: `Op(ops.LT, (lane, units)` becomes `Op(ops.LE, (lane, units)`": (
        "it makes the first lane of a plane's padding count as active; only plane_elect reads that "
        "entry, for the first unit that is left: padding comes after all units, and where none of "
        "these is left nobody asks"
    ),
}
"""Mutants that compute the same, each with the argument; they do not count when they survive."""


_TABLES: dict[str, dict[OpDef, Any]] = {
    "FLOAT_BINARY": spell.FLOAT_BINARY,
    "INTEGER_BINARY": spell.INTEGER_BINARY,
    "FLOAT_COMPARE": spell.FLOAT_COMPARE,
    "SIGNED_COMPARE": spell.SIGNED_COMPARE,
    "UNSIGNED_COMPARE": spell.UNSIGNED_COMPARE,
    "SIGNED_INTRINSICS": spell.SIGNED_INTRINSICS,
    "UNSIGNED_INTRINSICS": spell.UNSIGNED_INTRINSICS,
    "COUNTING": spell.COUNTING,
    "REDUCTIONS": spell.REDUCTIONS,
}
_UNARY = (ops.SQRT, ops.FLOOR, ops.CEIL, ops.TRUNC, ops.RINT, ops.ABS)
_BINARY = (ops.MIN, ops.MAX, ops.COPYSIGN)
_BITS = (ops.REDUCE_AND, ops.REDUCE_OR)


def spellings() -> Iterator[Mutant]:
    """Each entry of a table takes the spelling of the next one."""
    for name, table in _TABLES.items():
        rows = [row for row in table if row not in _BITS]
        yield from (_exchange(name, table, rows, k) for k in range(len(rows)))
    for group in (_UNARY, _BINARY):
        rows = list(group)
        table = spell.FLOAT_INTRINSICS
        yield from (_exchange("FLOAT_INTRINSICS", table, rows, k) for k in range(len(rows)))


_PYTHON_TABLES = ("_ROUNDED_ARITHMETIC", "_WRAPPED", "_INTEGER", "_BOOL", "_COMPARISONS")
_PYTHON_NAMES = {"REDUCTIONS": python.REDUCTIONS, "ATOMICS": python.ATOMICS}


def python_spellings() -> Iterator[Mutant]:
    """The same for the backend of the interpreter; forms of one operand change among themselves."""
    tables: dict[str, dict[OpDef, Any]] = {name: getattr(python, name) for name in _PYTHON_TABLES}
    for name, table in (tables | _PYTHON_NAMES).items():
        for count in (1, 2):
            rows = [row for row in table if (2 if "{1}" in str(table[row]) else 1) == count]
            if len(rows) > 1:
                yield from (_exchange(f"python {name}", table, rows, k) for k in range(len(rows)))


def _exchange(name: str, table: dict[OpDef, Any], rows: list[OpDef], k: int) -> Mutant:
    row, other = rows[k], rows[(k + 1) % len(rows)]

    def plant() -> None:
        table[row] = table[other]

    return Mutant(f"{name}: {row.name} spelled as {other.name}", plant)


def handlers() -> Iterator[Mutant]:
    """Operations that are emitted as a sibling of theirs, or with operands in another order."""
    pairs = [
        (ops.FLOORDIV, ops.DIV_TRUNC),
        (ops.DIV_TRUNC, ops.FLOORDIV),
        (ops.MOD, ops.REM_TRUNC),
        (ops.REM_TRUNC, ops.MOD),
        (ops.SHL, ops.SHR),
        (ops.SHR, ops.SHL),
        (ops.NEG, ops.ABS),
        (ops.ATOMIC_ADD, ops.ATOMIC_MAX),
        (ops.ATOMIC_MAX, ops.ATOMIC_ADD),
        (ops.ATOMIC_XOR, ops.ATOMIC_OR),
    ]
    for row, other in pairs:
        yield Mutant(f"emit {row.name} as {other.name}", _emit_as(row, other))
    swapped = (ops.SUB, ops.DIV, ops.LT, ops.LE, ops.FLOORDIV, ops.MOD, ops.SHL, ops.COPYSIGN)
    for row in swapped:
        yield Mutant(f"emit {row.name} with operands exchanged", _emit_swapped(row))


def _emitters() -> dict[OpDef, Any]:
    from cubepy.compilers.llvm import emit

    return emit._EMITTERS  # pyright: ignore[reportPrivateUsage]


def _emit_as(row: OpDef, other: OpDef) -> Callable[[], None]:
    def plant() -> None:
        table = _emitters()
        handler = table[other]
        table[row] = lambda e, op: handler(
            e, Op(other, op.operands, op.attrs, op.results, op.regions, op.span)
        )

    return plant


def _emit_swapped(row: OpDef) -> Callable[[], None]:
    def plant() -> None:
        table = _emitters()
        handler = table[row]
        table[row] = lambda e, op: handler(
            e, Op(row, tuple(reversed(op.operands)), op.attrs, op.results, op.regions, op.span)
        )

    return plant


def rewrites() -> Iterator[Mutant]:
    """Each rule of folding, where it applies to an operation of a row, gives another operand."""
    for row, rules in identities.RULES.items():
        for position, rule in enumerate(rules):
            name = f"fold {row.name} by {rule.__name__}: the wrong operand"
            yield Mutant(name, _wrong_rule(row, position))


def _wrong_rule(row: OpDef, position: int) -> Callable[[], None]:
    def plant() -> None:
        rules = list(identities.RULES[row])
        right = rules[position]

        def wrong(facts: Any, op: Op) -> Any:
            found = right(facts, op)
            if found is None:
                return None
            same = (
                [v for v in op.operands if v is not found and v.type == op.results[0].type]
                if (op.results)
                else []
            )
            if isinstance(found, Value):
                return same[-1] if same else facts.constant(op.results[0], 1)
            return facts.constant(op.results[0], 1) if op.results else found[:0]

        rules[position] = wrong
        identities.RULES[row] = tuple(rules)

    return plant


def plane_forms() -> Iterator[Mutant]:
    """Emulated plane operations that reduce or scan with another operation."""
    reductions = emulate_planes._OF_LINES  # pyright: ignore[reportPrivateUsage]
    for row, other in (
        (ops.ADD, ops.MAX),
        (ops.MIN, ops.MAX),
        (ops.MAX, ops.ADD),
        (ops.MUL, ops.ADD),
    ):
        yield Mutant(f"planes: {row.name} as {other.name}", _set(reductions, row, other))


def _set(table: dict[Any, Any], row: OpDef, other: OpDef) -> Callable[[], None]:
    def plant() -> None:
        table[row] = table[other]

    return plant
