"""Which types mutable locals have: what one trace finds out about them, and the types that follow.

A trace begins with what earlier ones found (`Learned`) and goes on with its best guess where that
is wrong. Afterwards `settle` computes the types of all locals at once: types flow from a local to
those that are computed from it, however long the chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from cubepy.frontend.literals import (
    Interval,
    Literal,
    Number,
    computes,
    interval_of,
    kind_of,
    lanes_of,
    locals_in,
    numbers_in,
    own_type,
    union,
    wider_kind,
    zero_of_kind,
)
from cubepy.frontend.promote import (
    INTEGERS,
    NoCommonType,
    fits,
    literal_type,
    promote,
    promote_literal,
    promote_types,
    widen_start,
)
from cubepy.ir.core import Value
from cubepy.ir.numbers import round_to
from cubepy.ir.types import DType, Kind, Line, bool_, element_of, f32, f64, make_line, with_element
from cubepy.record import dataclass
from cubepy.span import Span

Key = tuple[Any, ...]
EITHER = "either arm"
"""What is in the key of a local that only holds what a condition chooses; no name has a space."""


@dataclass(frozen=True, slots=True)
class Typing:
    """The type of a local, and whether it holds literals, which take the types that they meet."""

    type: DType | Line
    is_literal: bool


@dataclass
class Learned:
    """What earlier traces of a kernel found out."""

    types: dict[Key, Typing] = field(default_factory=dict[Key, Typing])
    looping: set[Key] = field(default_factory=set[Key])
    """The unrolled loops that are left, or continued, under runtime control."""
    joining: set[Key] = field(default_factory=set[Key])
    """The names that exits of a loop bind to different locals, and that are read behind it."""
    records: set[Key] = field(default_factory=set[Key])
    """The locals that begin as a comptime record, but change at run time."""

    def copy(self) -> Learned:
        """The same facts, which further traces do not add to."""
        sets = (set(self.looping), set(self.joining), set(self.records))
        return Learned(dict(self.types), *sets)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A typed value that was assigned, and the locals that its type follows from."""

    type: DType | Line
    sources: frozenset[Local]


@dataclass(eq=False)
class Local:
    """A mutable number in one trace: its variable, what was assigned to it, and what it met."""

    key: Key
    name: str
    depth: int
    """The number of open regions where it was declared."""
    span: Span | None
    joins: bool
    """Whether it takes the common type of all that is assigned to it, rather than keeps its own."""
    widens: bool
    """Whether that type has at least 32 bits: it starts as a literal."""
    known: Typing | None = None
    """Its type by earlier traces."""
    typing: Typing = Typing(f32, True)
    used: Typing = Typing(f32, True)
    """The type that the trace began with."""
    interval: Interval | None = None
    """The integers that it holds as a literal."""
    ref: Value = field(default_factory=lambda: Value(f32))
    numbers: set[Number] = field(default_factory=set["Number"])
    """The Python numbers that it holds as a literal."""
    ends: list[Number] = field(default_factory=list["Number"])
    """Of `numbers` assigned as they are: the least and the greatest of each Python type."""
    trees: list[Literal] = field(default_factory=list["Literal"])
    """Its other literals: chosen, computed or held by another local."""
    typed: dict[Assigned, None] = field(default_factory=dict["Assigned", None])
    """The typed values, in order."""
    operand_types: set[tuple[DType, DType]] = field(default_factory=set[tuple[DType, DType]])
    """The types that its literals met, each with the type of the operation."""
    floats: set[DType] = field(default_factory=set[DType])
    """The float types that its literals became."""
    is_wide: bool = False
    """Whether its float literals need f64, for the types that they met."""
    is_computed: bool = False
    """Whether it is computed from itself at run time, so that it is no literal."""
    is_copied: bool = False
    """Whether it was assigned to another local as a literal."""

    def assign_literal(self, tree: Literal) -> None:
        """Note a literal that is assigned; however many numbers there are, `ends` stays short."""
        self.numbers.update(numbers_in(tree))
        if not isinstance(tree, (int, float)):
            self.trees.append(tree)
            return
        alike = [n for n in self.ends if type(n) is type(tree)] + [tree]
        others = [n for n in self.ends if type(n) is not type(tree)]
        self.ends = [*others, *{min(alike), max(alike)}]

    @property
    def literals(self) -> list[Literal]:
        """Literals that say as much of its type as all that were assigned."""
        return [*self.ends, *self.trees]

    @property
    def type(self) -> DType | Line:
        """Its present type."""
        return self.typing.type

    @property
    def kind(self) -> Kind:
        """Whether it holds bools, integers or floats."""
        kind = element_of(self.type).kind
        return Kind.INT if kind is Kind.UINT else kind


def infer(local: Local) -> Typing:
    """The type of a local by all that was assigned; `NoCommonType` where there is none.

    As a literal it is as wide as what it holds.
    """
    typed: DType | Line | None = None
    for part in _typed_parts(local):
        typed = part if typed is None else promote_types(typed, part)
        if not local.joins:
            break
    lanes = max((lanes_of(tree) for tree in local.literals), default=0)
    if typed is None:
        local.interval = _interval(local.literals)
        own = own_type(_kind(local.literals), local.interval)
        if own is None:
            raise NoCommonType
        if local.known is not None and _wider_literal(element_of(local.known.type), own):
            own = element_of(local.known.type)
        own = f64 if own.is_float and local.is_wide else own
        return Typing(make_line(own, lanes) if lanes else own, True)
    element = _with_literals(local, element_of(typed)) if local.joins else element_of(typed)
    if lanes and not isinstance(typed, Line):
        return Typing(make_line(element, lanes), False)
    return Typing(with_element(typed, element), False)


def _typed_parts(local: Local) -> Iterator[DType | Line]:
    """The types that were assigned, with what they follow from."""
    if local.known is not None and not local.known.is_literal:
        yield local.known.type
    for assigned in local.typed:
        t = assigned.type
        for source in assigned.sources:
            if not source.typing.is_literal and source is not local:
                t = _followed(t, source.type)
        yield t
    for tree in local.literals:
        yield from (s.type for s in locals_in(tree) if not s.typing.is_literal and s is not local)
    if local.is_computed:
        yield f32


def _followed(t: DType | Line, source: DType | Line) -> DType | Line:
    """The type of a value computed from a source: its element follows, also where it is a part of
    the source or several of its kind, with lanes of its own."""
    if isinstance(t, Line) and isinstance(source, Line):
        source = with_element(t, source.element)
    return promote_types(t, source)


def _with_literals(local: Local, element: DType) -> DType:
    """The common type of typed values and of the literals that a local holds as well."""
    if not local.literals:
        return element
    kind = _kind(local.literals)
    widened = widen_start(kind, element)
    element = widened if local.widens else promote_literal(zero_of_kind(kind), element)
    for tree in local.literals:
        for number in numbers_in(tree):
            if not isinstance(number, int) or not element.is_integer or not local.widens:
                continue
            if not fits(number, element):
                element = promote(element, literal_type(number))
    return element


def _kind(literals: Sequence[Literal]) -> Kind:
    kind = Kind.BOOL
    for tree in literals:
        kind = wider_kind(kind, kind_of(tree))
    return kind


_LITERALS = (bool_, *INTEGERS, f32, f64)
"""The types of literals, each of which holds the ones before it."""


def _wider_literal(a: DType, b: DType) -> bool:
    return _LITERALS.index(a) > _LITERALS.index(b)


def _interval(literals: Sequence[Literal]) -> Interval | None:
    first, *rest = literals
    found = interval_of(first)
    for tree in rest:
        found = union(found, interval_of(tree))
    return found


# After a trace


def settle(locals_: Sequence[Local]) -> Local | None:
    """Give each local its final type; the one that has none, where that is so."""
    for local in locals_:
        local.is_computed = _depends_on_itself(local)
        local.is_wide |= any(_needs_f64(local, t) for t in local.floats)
    changed = True
    while changed:
        changed = False
        for local in (*locals_, *reversed(locals_)):
            try:
                typing = infer(local)
            except NoCommonType:
                return local
            if typing != local.typing:
                local.typing, changed = typing, True
            if typing.is_literal and element_of(typing.type) is f64:
                _widen_sources(local)
    return None


def _depends_on_itself(local: Local) -> bool:
    """Whether run-time arithmetic on literals leads from a local back to it."""
    if len(local.literals) < 2 or not any(computes(tree) for tree in local.literals):
        return False
    todo, seen = [s for t in local.literals if computes(t) for s in locals_in(t)], set[Local]()
    while todo:
        source = todo.pop()
        if source is local:
            return True
        if source not in seen and len(source.literals) > 1:
            seen.add(source)
            todo += [s for tree in source.literals for s in locals_in(tree)]
    return False


def _needs_f64(local: Local, t: DType) -> bool:
    """Whether literals that go through f32 would become inexact values of `t`."""
    if t in (f32, f64):
        return t is f64
    numbers = map(float, local.numbers)
    return any(_differs(round_to(t, round_to(f32, n)), round_to(t, n)) for n in numbers)


def _differs(a: float, b: float) -> bool:
    return a != b and not (a != a and b != b)


def _widen_sources(local: Local) -> None:
    for tree in local.literals:
        for source in locals_in(tree):
            source.is_wide = True


def is_right(local: Local) -> bool:
    """Whether the trace used the type that `settle` found, or one that made no difference."""
    if not local.joins:
        return True
    if local.type != local.used.type:
        return False
    if local.typing.is_literal or not local.used.is_literal:
        return True
    element = element_of(local.type)
    return not local.is_copied and all(
        _common(element, met) is result for met, result in local.operand_types
    )


def _common(a: DType, b: DType) -> DType | None:
    try:
        return promote(a, b)
    except NoCommonType:
        return None
