"""Literals that are chosen or held at run time: they have no type until they meet one.

Such a literal is a small tree over Python numbers. The tracer keeps the tree beside the value that
the literal has where nothing gives it a type, and emits it anew at each type that it meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from cubepy.frontend.promote import INTEGERS, fits, zero_of
from cubepy.ir.core import Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, Line, bool_, f32, i32
from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.frontend.joins import Local

Number: TypeAlias = bool | int | float
Interval: TypeAlias = tuple[int, int]

_MOST_LEAVES = 64
"""Arithmetic on choices is done on each of so many literals in Python; beyond, at run time."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """`a` where the condition (a bool, or a line of them) is true, else `b`."""

    condition: Value
    a: Literal
    b: Literal


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What a local that only literals are assigned to held when it was read as `value`."""

    value: Value
    local: Local


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """Float arithmetic on literals of which a local holds one."""

    row: OpDef
    args: tuple[Literal, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The entry of a table of literals at an index."""

    index: Value
    table: tuple[Number, ...]


Literal: TypeAlias = bool | int | float | Choice | Held | Apply | Look


def _leaves(tree: Literal) -> Iterator[Number | Held | Look]:
    """What a tree chooses from and computes with, from left to right."""
    if isinstance(tree, Choice):
        yield from _leaves(tree.a)
        yield from _leaves(tree.b)
    elif isinstance(tree, Apply):
        for arg in tree.args:
            yield from _leaves(arg)
    else:
        yield tree


def numbers_in(tree: Literal) -> Iterator[Number]:
    """The Python numbers of a tree, not those that its locals hold."""
    for leaf in _leaves(tree):
        if isinstance(leaf, Look):
            yield from leaf.table
        elif not isinstance(leaf, Held):
            yield leaf


def locals_in(tree: Literal) -> Iterator[Local]:
    """The locals that a tree reads."""
    return (leaf.local for leaf in _leaves(tree) if isinstance(leaf, Held))


def lanes_of(tree: Literal) -> int:
    """The number of lanes of a literal that is chosen for each lane; 0 for others."""
    if isinstance(tree, Choice):
        t = tree.condition.type
        return t.width if isinstance(t, Line) else max(lanes_of(tree.a), lanes_of(tree.b))
    if isinstance(tree, Apply):
        return max(lanes_of(arg) for arg in tree.args)
    t = tree.local.type if isinstance(tree, Held) else None
    return t.width if isinstance(t, Line) else 0


def computes(tree: Literal) -> bool:
    """Whether a tree has arithmetic that happens at run time."""
    if isinstance(tree, Choice):
        return computes(tree.a) or computes(tree.b)
    return isinstance(tree, Apply)


def kind_of(tree: Literal) -> Kind:
    """Whether a literal is a bool, an integer or a float: the widest of its leaves."""
    if isinstance(tree, Choice):
        return wider_kind(kind_of(tree.a), kind_of(tree.b))
    if isinstance(tree, Held):
        return tree.local.kind
    if isinstance(tree, Look):
        return reduce(wider_kind, {kind_of(number) for number in tree.table})
    if isinstance(tree, bool):
        return Kind.BOOL
    return Kind.INT if isinstance(tree, int) else Kind.FLOAT


def wider_kind(a: Kind, b: Kind) -> Kind:
    """The kind that holds both: bools count as integers, integers as floats."""
    return next(k for k in (Kind.FLOAT, Kind.INT, Kind.BOOL) if k in (a, b))


def zero_of_kind(kind: Kind) -> Number:
    """A literal that stands for all of its kind in promotions."""
    return zero_of({Kind.FLOAT: f32, Kind.INT: i32}.get(kind, bool_))


def interval_of(tree: Literal) -> Interval | None:
    """The least and the greatest integer that a tree may be; None if it is a float."""
    if isinstance(tree, Choice):
        return union(interval_of(tree.a), interval_of(tree.b))
    if isinstance(tree, Held):
        return tree.local.interval
    if isinstance(tree, Look):
        numbers = [int(n) for n in tree.table if isinstance(n, int)]
        return (min(numbers), max(numbers)) if len(numbers) == len(tree.table) else None
    return (int(tree), int(tree)) if isinstance(tree, int) else None


def union(a: Interval | None, b: Interval | None) -> Interval | None:
    """The interval around two; None where one is a float."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def own_type(kind: Kind, interval: Interval | None) -> DType | None:
    """The type of a literal that nothing else gives a type; None where no integer type holds it."""
    if kind is Kind.FLOAT or interval is None:
        return f32
    if kind is Kind.BOOL:
        return bool_
    return next((t for t in INTEGERS if fits(interval[0], t) and fits(interval[1], t)), None)


def distribute(function: Callable[..., Any], *args: Literal) -> Literal | None:
    """Python's `function` of choices, done on each of their literals at full precision.

    None where an argument is held by a local, where there are too many choices, or where Python
    raises or gives no number.
    """
    tables = {arg for arg in args if isinstance(arg, Look)}
    if tables:
        return _map_table(function, *tables, args=args) if len(tables) == 1 else None
    count = 1
    for arg in args:
        count *= _choices(arg)
    return _distribute(function, (), args, {}) if 0 < count <= _MOST_LEAVES else None


def _map_table(
    function: Callable[..., Any], look: Look, args: tuple[Literal, ...]
) -> Literal | None:
    """The table of `function` of each entry; None unless all else are Python numbers."""
    others = [arg for arg in args if arg is not look]
    if len(look.table) > _MOST_LEAVES or not all(isinstance(a, int | float) for a in others):
        return None
    found: list[Number] = []
    for entry in look.table:
        number = _number(function, tuple([entry if a is look else a for a in args]))  # type: ignore[misc]
        if number is None:
            return None
        found.append(number)
    return Look(look.index, tuple(found))


def _choices(tree: Literal) -> int:
    """How many numbers a tree chooses from; 0 where it has other leaves or arithmetic."""
    if computes(tree):
        return 0
    leaves = list(_leaves(tree))
    return 0 if any(isinstance(leaf, Held | Look) for leaf in leaves) else len(leaves)


def _distribute(
    function: Callable[..., Any],
    done: tuple[Number, ...],
    args: tuple[Literal, ...],
    decided: dict[Value, bool],
) -> Literal | None:
    if not args:
        return _number(function, done)
    first, *rest = args
    if not isinstance(first, Choice):
        assert isinstance(first, int | float)
        return _distribute(function, (*done, first), tuple(rest), decided)
    if first.condition in decided:
        arm = first.a if decided[first.condition] else first.b
        return _distribute(function, done, (arm, *rest), decided)
    condition = first.condition
    a = _distribute(function, done, (first.a, *rest), {**decided, condition: True})
    b = _distribute(function, done, (first.b, *rest), {**decided, condition: False})
    return None if a is None or b is None else Choice(condition, a, b)


def _number(function: Callable[..., Any], args: tuple[Number, ...]) -> Number | None:
    try:
        result = function(*args)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return result if isinstance(result, (int, float)) else None
