"""What a row of the op table is, and the typing rules that rows are made of.

Rules map operand types and attributes to result types, or raise `TypingError` with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from cubepy.ir.core import Attr, Op
from cubepy.ir.meaning import Meaning
from cubepy.ir.numbers import Number, limits
from cubepy.ir.types import (
    INDICES,
    Buffer,
    DType,
    Kind,
    Line,
    Ref,
    Space,
    Type,
    bool_,
    element_of,
    index,
    make_line,
    u64,
    width_of,
    with_element,
)
from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.ir.build import Builder
    from cubepy.ir.core import Value


class TypingError(Exception):
    """Operands that a rule does not accept; the message is a sentence for people."""


class Resource(Enum):
    """What an operation may read or change besides its operands and results."""

    GLOBAL = "global memory"
    SHARED = "shared memory"
    LOCAL = "local memory"
    VARIABLE = "mutable locals"
    CONTROL = "control flow"
    DIAGNOSIS = "diagnosis"
    MACHINE = "machine state"
    """Caches, groups of asynchronous copies and products, the registers of a unit."""


class Group(Enum):
    """The units that execute a convergent operation together."""

    PLANE = "plane"
    WARPGROUP = "warpgroup"
    CUBE = "cube"
    CLUSTER = "cluster"


class Uniformity(Enum):
    """Whether all units of a cube, or at least of a plane, get the same result."""

    OPERANDS = "if the operands are"
    ALWAYS = "always"
    PLANE = "in a plane"
    NEVER = "never"


class Scan(Enum):
    """Which lanes the result of a scan combines."""

    INCLUSIVE = "up to the own one"
    EXCLUSIVE = "before the own one"


NOTHING: frozenset[Resource] = frozenset()
MEMORY = frozenset((Resource.GLOBAL, Resource.SHARED, Resource.LOCAL))
"""Memory of any space: that of the buffer among the operands, see `effects`."""

Attrs = Mapping[str, Attr]
Rule = Callable[[Sequence[Type], Attrs], tuple[Type, ...]]
Element = Callable[[DType], Number | None]
"""A distinguished number of a scalar type, such as the identity of a sum; None if it has none."""
Lanes = tuple[Number, ...]
"""A value that is known: a number for each lane; scalars have one."""
Evaluation = Callable[[Attrs, Sequence[Type], Sequence[Lanes]], "Lanes | None"]
Derivative = Callable[["Builder", "Op", "Value"], Sequence["Value | None"]]
"""The adjoints of the operands from that of the result; None for operands without one."""


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """One row: everything that the rest of the system knows about an operation.

    `surface`: how users write it, or which part of CubePy makes it.
    `meaning`: its value on the numbers of one lane; `evaluation`: on whole lines and attributes,
    where lanes alone do not suffice; `unknown`: why it has neither.
    `reads`, `writes`: its effects by resource; `allocates`: each execution gives something new.
    `convergent`: the units that must execute it together; results may depend on all of them.
    `needs`: an attribute without which it is not total, so that it must not run speculatively.
    `identity`: e with x op e == x; `absorbing`: c with x op c == c.
    `step`: the row that a reduction, a scan or an atomic combines two values with.
    `kind`: the only kind of target that has it; empty for operations that all have.
    """

    name: str
    doc: str
    rule: Rule
    surface: str = ""
    meaning: Meaning | None = None
    evaluation: Evaluation | None = None
    unknown: str = ""
    exact: bool = True
    ulp: float = 0.0
    reads: frozenset[Resource] = NOTHING
    writes: frozenset[Resource] = NOTHING
    allocates: bool = False
    convergent: Group | None = None
    needs: str = ""
    uniformity: Uniformity = Uniformity.OPERANDS
    identity: Element | None = None
    absorbing: Element | None = None
    step: OpDef | None = None
    scan: Scan | None = None
    derivative: Derivative | None = None
    attrs: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    is_terminator: bool = False
    is_commutative: bool = False
    kind: str = ""
    is_removable: bool = False
    """Whether it may be left out where its results are unused."""
    is_readonly: bool = False
    """Whether it only reads: it may be repeated and moved as far as nobody writes what it reads."""
    is_pure: bool = False
    """Whether its results depend on its operands alone: it may be removed, repeated and moved."""

    def __post_init__(self) -> None:
        private = self.convergent is None and not self.allocates
        object.__setattr__(self, "is_removable", not self.writes)
        object.__setattr__(self, "is_readonly", not self.writes and private)
        object.__setattr__(self, "is_pure", not self.writes and not self.reads and private)

    def start(self, dtype: DType) -> Number | None:
        """What a reduction or scan starts from, and units that have returned contribute."""
        element = self.identity or (self.step and self.step.identity)
        return element(dtype) if element else None

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def is_speculatable(op: Op) -> bool:
    """Whether `op` may run where the program would not run it: it is pure and total.

    What was proved of a divisor or an index is so only where it was, unless it says `everywhere`.
    """
    proved = op.attrs.get("nonzero") or op.attrs.get("inside")
    if not op.row.is_pure or (proved and not op.attrs.get("everywhere")):
        return False
    return not op.row.needs or op.row.needs in op.attrs


def effects(op: Op) -> tuple[frozenset[Resource], frozenset[Resource]]:
    """What `op` itself reads and writes: of memory, the space of the buffer that it accesses."""
    space = op.operands[0].type if op.operands else None
    if not isinstance(space, Buffer) or space.space is Space.TENSOR_MAP:
        return op.row.reads, op.row.writes
    accessed = frozenset((Resource[space.space.name],))
    row = op.row
    reads = row.reads - MEMORY | accessed if row.reads >= MEMORY else row.reads
    writes = row.writes - MEMORY | accessed if row.writes >= MEMORY else row.writes
    return reads, writes


CLASSES: dict[str, tuple[Kind, ...]] = {
    "number": (Kind.INT, Kind.UINT, Kind.FLOAT),
    "integer": (Kind.INT, Kind.UINT),
    "float": (Kind.FLOAT,),
    "bits": (Kind.BOOL, Kind.INT, Kind.UINT),
    "any": tuple(Kind),
    "bool": (Kind.BOOL,),
    "signed": (Kind.INT, Kind.FLOAT),
}


def require(condition: object, message: str, *shown: object) -> None:
    """Raise `TypingError` unless `condition` holds; `message % shown` is made only then."""
    if not condition:
        raise TypingError(message % shown if shown else message)


def require_count(types: Sequence[Type], count: int) -> None:
    """Exactly `count` operands."""
    require(len(types) == count, "takes %s operands, got %s", count, len(types))


def require_plain(t: Type, what: str = "operand") -> None:
    """A scalar or a line."""
    require(isinstance(t, (DType, Line)), "%s is %r, not a scalar or a line", what, t)


def same(class_name: str, count: int) -> Rule:
    """`count` operands of one type, whose scalar type is in the class; the result has that type."""
    kinds = CLASSES[class_name]

    def rule(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
        require_count(types, count)
        first = types[0]
        for t in types:
            require_plain(t)
            require(t is first or t == first, "operands differ: %r and %r", first, t)
        require(element_of(first).kind in kinds, "takes %s types, got %r", class_name, first)
        return (first,)

    return rule


def comparison(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Two operands of one type; the result is a bool per lane."""
    (t,) = same("any", 2)(types, attrs)
    return (with_element(t, bool_),)


def selection(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A mask (a scalar, or one bool per lane) and two operands of one type."""
    require_count(types, 3)
    mask, a, b = types
    require_plain(a)
    require(a == b, "branches differ: %r and %r", a, b)
    require(mask in (bool_, with_element(a, bool_)), "%r is no mask for %r", mask, a)
    return (a,)


def given(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; the result type is the attribute `type`."""
    require_count(types, 0)
    return (_type_attr(attrs),)


def _type_attr(attrs: Attrs) -> Type:
    t = attrs.get("type")
    if isinstance(t, (DType, Line)):
        return t
    raise TypingError("needs an attribute `type`")


def literal(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; `value` is a number of `type`: a float, a bool, or an integer in its range."""
    (t,) = given(types, attrs)
    value = attrs.get("value")
    if not isinstance(t, DType):
        raise TypingError(f"{t!r} is a line: splat a scalar")
    python = int if t.is_integer else float if t.is_float else bool
    if not isinstance(value, python) or (python is int and isinstance(value, bool)):
        raise TypingError(f"{value!r} is no {t!r}")
    fits = python is not int or limits(t)[0] <= value <= limits(t)[1]
    require(fits, "%s is out of range for %r", value, t)
    return (t,)


def casting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """One operand; the result is `type`, with the same number of lanes."""
    require_count(types, 1)
    t = _type_attr(attrs)
    require_plain(types[0])
    require(width_of(t) == width_of(types[0]), "cannot turn %r into %r", types[0], t)
    return (t,)


def bit_casting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """As casting, between scalars of one size."""
    (t,) = casting(types, attrs)
    same_size = element_of(t).bits == element_of(types[0]).bits
    require(same_size, "%r and %r differ in size", types[0], t)
    return (t,)


def int_attr(attrs: Attrs, name: str) -> int:
    """An integer attribute."""
    value = attrs.get(name)
    require(isinstance(value, int), "needs an integer attribute `%s`", name)
    assert isinstance(value, int)
    return value


def splatting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A scalar, repeated in `lanes` lanes."""
    require_count(types, 1)
    scalar = types[0]
    require(isinstance(scalar, DType), "%r is not a scalar", scalar)
    return (make_line(element_of(scalar), _lane_count(attrs)),)


def _lane_count(attrs: Attrs) -> int:
    count = int_attr(attrs, "lanes")
    require(count > 0, "needs at least one lane")
    return count


def _line(t: Type) -> Line:
    require(isinstance(t, Line), "%r is not a line", t)
    assert isinstance(t, Line)
    return t


def extracting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A line and a lane (an attribute, or an index operand); the result is a scalar."""
    require(len(types) in (1, 2), "takes a line and perhaps a lane")
    line = _line(types[0])
    if "lane" in attrs:
        require_count(types, 1)
        require(0 <= int_attr(attrs, "lane") < line.width, "no such lane in %r", line)
    else:
        require_count(types, 2)
        require(types[1] is index, "the lane must be an index")
    return (line.element,)


def inserting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A line, a scalar of its element, and a lane attribute; the result is the line."""
    require_count(types, 2)
    line = _line(types[0])
    require(types[1] == line.element, "cannot insert %r into %r", types[1], line)
    require(0 <= int_attr(attrs, "lane") < line.width, "no such lane in %r", line)
    return (line,)


def shuffling(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Two lines of one type; the result takes `lanes` of their concatenation."""
    require_count(types, 2)
    line = _line(types[0])
    require(types[1] == line, "lines differ: %r and %r", line, types[1])
    lanes = attrs.get("lanes")
    require(isinstance(lanes, tuple) and len(lanes) > 0, "needs a tuple attribute `lanes`")
    assert isinstance(lanes, tuple)
    valid = all(isinstance(k, int) and 0 <= k < 2 * line.width for k in lanes)
    require(valid, "a lane is outside %r", line)
    return (make_line(line.element, len(lanes)),)


def reducing(class_name: str) -> Rule:
    """A line; the result is its scalar type."""

    def rule(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
        require_count(types, 1)
        line = _line(types[0])
        is_fit = line.element.kind in CLASSES[class_name]
        require(is_fit, "takes %s types, got %r", class_name, line)
        return (line.element,)

    return rule


def looking_up(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """An index, or a line; the result is `type`, of which `table` has numbers, or a line."""
    require_count(types, 1)
    require(element_of(types[0]) in INDICES, "the position is %r, not an index", types[0])
    t, table = attrs.get("type"), attrs.get("table")
    require(isinstance(t, DType) and t not in INDICES, "needs a scalar attribute `type`")
    require(isinstance(table, tuple) and len(table) > 0, "needs a tuple attribute `table`")
    assert isinstance(t, DType) and isinstance(table, tuple)
    for number in set(table):
        literal((), {"type": t, "value": number})
    return (with_element(types[0], t),)


def masking(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """First and end lane (indices); the result is a line of bools."""
    require_count(types, 2)
    require(types[0] is index and types[1] is index, "lanes are counted with indices")
    return (make_line(bool_, _lane_count(attrs)),)


def positioning(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands, an attribute `axis`; the result is an index, or what `type` says."""
    require_count(types, 0)
    require(attrs.get("axis") in ("x", "y", "z", "all"), "needs an axis: x, y, z or all")
    t = attrs.get("type", index)
    require(t in INDICES, "%r is not an index", t)
    assert isinstance(t, DType)
    return (t,)


def allocating(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """`size` elements of `type` in `space`."""
    require_count(types, 0)
    element, space = attrs.get("type"), attrs.get("space")
    require(isinstance(element, DType), "needs a scalar attribute `type`")
    require(int_attr(attrs, "size") >= 0, "has a negative size")
    require(space in ("shared", "local"), "lives in shared or local space")
    assert isinstance(element, DType)
    return (Buffer(element, Space(space)),)


def _address(types: Sequence[Type]) -> Buffer:
    require(len(types) >= 2, "needs a buffer and an index")
    buffer = types[0]
    require(isinstance(buffer, Buffer), "%r is not a buffer", buffer)
    require(types[1] in INDICES, "the offset is %r, not an index", types[1])
    assert isinstance(buffer, Buffer)
    return buffer


def loading(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """buffer, offset [, mask, fill]; reads `type`, a scalar or consecutive lanes of the element."""
    buffer = _address(types)
    t = _type_attr(attrs)
    require(element_of(t) is buffer.element, "cannot read %r from %r", t, buffer)
    if len(types) > 2:
        require_count(types, 4)
        require(types[2] == with_element(t, bool_), "%r is no mask for %r", types[2], t)
        require(types[3] == t, "the fill is %r, not %r", types[3], t)
    return (t,)


def storing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """buffer, offset, value [, mask]."""
    buffer = _address(types)
    require(len(types) in (3, 4), "takes a buffer, an index, a value and perhaps a mask")
    require_plain(types[2], "the value")
    require(element_of(types[2]) is buffer.element, "cannot store %r into %r", types[2], buffer)
    if len(types) == 4:
        require(types[3] == with_element(types[2], bool_), "%r is no mask", types[3])
    return ()


def _lanes_apart(types: Sequence[Type], mask: int) -> tuple[Buffer, Line]:
    buffer = _address(types)
    require_count(types, 5)
    lanes = _line(types[2])
    require(lanes.element is index, "the distances are %r, not indices", lanes)
    require(types[mask] == with_element(lanes, bool_), "%r is no mask", types[mask])
    return buffer, lanes


def gathering(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """buffer, offset, distances, mask, fill; the result is a line of the element."""
    buffer, lanes = _lanes_apart(types, 3)
    require(types[4] == with_element(lanes, buffer.element), "the fill is %r", types[4])
    return (types[4],)


def scattering(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """buffer, offset, distances, line, mask; no result."""
    buffer, lanes = _lanes_apart(types, 4)
    require(types[3] == make_line(buffer.element, lanes.width), "cannot store %r", types[3])
    return ()


def updating(count: int, step: OpDef | None = None) -> Rule:
    """buffer, offset and `count` values (cas: the expected one first); gives the old value.

    The elements have a type that `step`, which combines the old and the new value, takes.
    """

    def rule(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
        buffer = _address(types)
        require_count(types, 2 + count)
        for t in types[2:]:
            require(t is buffer.element, "cannot combine %r with %r", t, buffer)
        if step is not None:
            step.rule((buffer.element, buffer.element), {})
        return (buffer.element,)

    return rule


def addressing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """buffer, offset; no result."""
    _address(types)
    require_count(types, 2)
    return ()


def aligning(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """buffer, offset; the result is an index."""
    addressing(types, attrs)
    require(int_attr(attrs, "bytes") > 0, "needs a positive size")
    return (index,)


def declaring(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; a reference to `type`."""
    (t,) = given(types, attrs)
    assert isinstance(t, DType | Line)
    return (Ref(t),)


def getting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A reference; the result is what it refers to."""
    require_count(types, 1)
    ref = types[0]
    require(isinstance(ref, Ref), "%r is not a reference", ref)
    assert isinstance(ref, Ref)
    return (ref.of,)


def setting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A reference and a value of its type; no result."""
    require_count(types, 2)
    require(isinstance(types[0], Ref) and types[0].of == types[1], "reference and value differ")
    return ()


def leaving(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Any operands; no result. What a terminator carries is checked by the verifier."""
    return ()


def one_index(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; the result is an index."""
    require_count(types, 0)
    return (index,)


def voting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A scalar bool; the result is a u64 with a bit for each lane."""
    require_count(types, 1)
    require(types[0] is bool_, "the vote is %r, not a bool", types[0])
    return (u64,)


def electing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; the result is a bool."""
    require_count(types, 0)
    return (bool_,)


def shuffling_units(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A value and a lane, mask or distance (an index); the result is a value of the same type."""
    require_count(types, 2)
    require_plain(types[0])
    require(types[1] is index, "the lane is %r, not an index", types[1])
    return (types[0],)


def nothing_of_anything(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Scalars and lines; no result."""
    for t in types:
        require_plain(t)
    return ()


def checking(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A scalar bool, then indices; no result."""
    require(len(types) > 0 and types[0] is bool_, "needs a condition")
    require(all(t is index for t in types[1:]), "reports indices")
    return ()


def reporting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Up to four indices (and, with `lanes`, a lane), and a number; no result."""
    most = 4 + ("lanes" in attrs)
    require(len(types) <= most and all(t is index for t in types), "reports up to four indices")
    int_attr(attrs, "code")
    return ()


def nothing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; no result."""
    require_count(types, 0)
    return ()


NAMED_BARRIERS = range(1, 16)
"""The numbers of barriers of some units of a cube; the hardware's barrier 0 is that of all."""


def synchronising(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """No operands; `barrier` and `count` are attributes; no result."""
    require_count(types, 0)
    require(int_attr(attrs, "barrier") in NAMED_BARRIERS, "has no such barrier")
    require(int_attr(attrs, "count") > 0, "needs at least one unit")
    return ()


def branching(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A scalar bool; result types are those that the regions yield, checked by the verifier."""
    require_count(types, 1)
    require(types[0] is bool_, "the condition is %r, not a bool", types[0])
    return ()


def counting(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """start, stop, step (indices of one type) and carried values, whose types are the results'."""
    require(len(types) >= 3, "needs start, stop and step")
    same_type = types[0] in INDICES and all(t is types[0] for t in types[:3])
    require(same_type, "the range is not made of indices")
    return tuple(types[3:])


def carrying(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Carried values, whose types are the results'."""
    return tuple(types)
