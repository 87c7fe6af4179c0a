"""The typing rules of the language (docs/guide/numbers.md), written a second time as tables.

A type is a name such as "f32", "index" or "bool"; a literal has the type `Weak`, which lists every
value that it can have at run time. A combination that the language refuses is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Number = int | float | bool

SIGNED = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
UNSIGNED = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
INTEGERS = {**SIGNED, **UNSIGNED}
FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
SMALLEST = ("f8e4m3", "f8e5m2")
"""Floats that are stored and converted; the model does no arithmetic in them."""
MOST_VALUES = 32


@dataclass(frozen=True)
class Weak:
    """A number without a type: a literal, or one of several that is chosen at run time."""

    values: tuple[Number, ...]

    @property
    def is_float(self) -> bool:
        return any(isinstance(v, float) for v in self.values)

    @property
    def alone(self) -> str | None:
        """The type where nothing gives it one."""
        if self.is_float:
            return "f32"
        return next(
            (t for t in ("i32", "i64", "u64") if all(fits(v, t) for v in self.values)), None
        )


Type = str | Weak


def weak(values: Iterable[Number]) -> Weak | None:
    """A number that has one of these values; None where no type holds all, or there are too many.

    0, 0.0 and -0.0 are three values, though they are equal.
    """
    different = {(type(v), str(v)): v for v in values}
    made = Weak(tuple(different.values()))
    return made if len(different) <= MOST_VALUES and made.alone is not None else None


def limits(t: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    if t in UNSIGNED:
        return 0, 2 ** UNSIGNED[t] - 1
    bits = SIGNED[t]
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def fits(v: Number, t: str) -> bool:
    """Whether a type can take a literal: integers must be in range, floats are rounded."""
    if t in INTEGERS:
        low, high = limits(t)
        return isinstance(v, int) and low <= v <= high
    return t in FLOATS


def common(a: Type, b: Type) -> Type | None:
    """The type in which two operands meet."""
    if isinstance(a, Weak) and isinstance(b, Weak):
        return weak((*a.values, *b.values))
    if isinstance(a, Weak):
        return _literal_with(a, str(b))
    return _literal_with(b, a) if isinstance(b, Weak) else _typed(a, b)


def _literal_with(literal: Weak, t: str) -> str | None:
    if literal.is_float:
        return t if t in FLOATS else "f32"
    wanted = "i32" if t == "bool" else "i64" if t == "index" else t
    if not all(fits(v, wanted) for v in literal.values):
        return None
    return "i32" if t == "bool" else t


def _typed(a: str, b: str) -> str | None:
    if a == b:
        return a
    if "bool" in (a, b):
        return b if a == "bool" else a
    if a in FLOATS and b in FLOATS:
        return "f32" if {a, b} == {"f16", "bf16"} else max(a, b, key=FLOATS.__getitem__)
    if a in FLOATS or b in FLOATS:
        return a if a in FLOATS else b
    if "index" in (a, b):
        return None if "u64" in (a, b) else "index"
    for group in (SIGNED, UNSIGNED):
        if a in group and b in group:
            return max(a, b, key=group.__getitem__)
    signed, unsigned = (a, b) if a in SIGNED else (b, a)
    held = _MIXED.get(unsigned)
    return held and max(signed, held, key=SIGNED.__getitem__)


_MIXED = {"u8": "i16", "u16": "i32", "u32": "i64"}
"""The least signed type that holds an unsigned one; u64 has none."""


def joined(literal: Weak, t: str) -> str | None:
    """The type of a local that starts as a literal and is then assigned a `t`."""
    if t not in INTEGERS and t not in FLOATS:
        return None
    if literal.is_float and t in INTEGERS:
        return None  # a float local that is given integers: not modelled
    wide = t if {**INTEGERS, **FLOATS}[t] >= 32 else "f32" if t in FLOATS else "i32"
    return wide if all(fits(v, wide) for v in literal.values) else None
