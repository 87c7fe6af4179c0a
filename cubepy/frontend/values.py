"""What expressions of the kernel language evaluate to while a kernel is traced.

A comptime value is any Python object; a runtime number is an IR `Value`; the classes here are the
rest: tensors and views, their flat form, methods, and mutable locals.
"""

from __future__ import annotations

import ast
from collections.abc import ItemsView, Iterable, Iterator, Mapping, MappingView, ValuesView
from dataclasses import fields, is_dataclass
from inspect import Signature
from math import prod
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from cubepy.ir.core import Value
from cubepy.ir.types import DType, Line, find_dtype, make_line
from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.frontend.joins import Local

Index: TypeAlias = int | Value


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor or view: `offset`, `shape` and `strides` count elements of `buffer`.

    A line tensor is counted in lines of `width` elements along `axis`, whose stride is one.
    `is_linear`: elements lie in row-major order without gaps. `is_divisible`: the extent along
    `axis` is a multiple of the width, so that no line has missing lanes.
    """

    name: str
    buffer: Value
    element: DType
    offset: Index
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    is_line: bool = False
    width: int = 1
    axis: int = 0
    is_linear: bool = False
    is_divisible: bool = True
    alignment: int = 0
    is_argument: bool = False
    axes: tuple[int, ...] = ()
    """Which axes of the tensor of that name a view has; empty for all, in order."""

    def named_axis(self, axis: int) -> int:
        """The axis that errors name: of the tensor whose name they give."""
        return self.axes[axis] if self.axes else axis

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def value_type(self) -> DType | Line:
        """The type of one counted element: a scalar, or a line."""
        return make_line(self.element, self.width) if self.is_line else self.element


@dataclass(frozen=True, slots=True, eq=False)
class FlatRef:
    """`x.flat`: the elements (or lines) of a tensor in row-major order."""

    tensor: TensorRef


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A constant table, or one of its parts of `shape`: that at `position` among all of them.

    `numbers` are those of all parts, in row-major order. `dtype` None: literals, which take the
    type that they meet.
    """

    name: str
    numbers: tuple[int | float, ...]
    dtype: DType | None
    shape: tuple[int, ...]
    position: Index = 0


class Row(tuple[Any, ...]):
    """A row of a table: its entries, as a tuple; `table` is what a further index looks into."""

    table: Table | None

    def __new__(cls, items: Iterable[Any], table: Table | None = None) -> Row:
        row = super().__new__(cls, items)
        row.table = table
        return row


class TensorMapRef:
    """A parameter that is a tensor map, and what kernels may know of it at comptime."""

    __slots__ = ("axes", "box", "dtype", "name", "nbytes", "swizzle", "value")

    def __init__(
        self, name: str, value: Value, dtype: DType, box: tuple[int, ...], swizzle: int, axes: int
    ) -> None:
        self.name = name
        self.value = value
        self.dtype = dtype
        self.box = box
        self.swizzle = swizzle
        self.axes = axes
        self.nbytes = prod(box) * dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A method of a runtime value, not yet called."""

    owner: Any
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class LocalFunction:
    """A function or lambda defined inside a kernel: its source and the frame that it captures."""

    source: Any
    frame: Any
    signature: Signature


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A dataclass instance with runtime fields; `cls` gives methods and the order of fields."""

    cls: type[Any]
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unset:
    """A name that some path to this point has not set."""


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class Unroll:
    """`cp.unroll(sequence)`."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """`range(...)` with a runtime bound."""

    start: Index
    stop: Index
    step: Index


@dataclass(frozen=True, slots=True, eq=False)
class Iterated:
    """`zip`, `enumerate`, `map` or `reversed` of `parts`, some of which have items at run time.

    `other`: what `map` calls, and where `enumerate` starts.
    """

    function: str
    parts: tuple[Any, ...]
    other: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """A generator expression that becomes a loop, in a call that takes its items; `first` is what
    its first `for` runs over."""

    node: ast.GeneratorExp
    first: Any


@dataclass(frozen=True, slots=True, eq=False)
class NumberSlot:
    """A mutable local that holds a number."""

    local: Local


@dataclass(frozen=True, slots=True, eq=False)
class Flag:
    """A variable that the compiler adds: its reference in the IR."""

    ref: Value


@dataclass(frozen=True, slots=True, eq=False)
class TupleSlot:
    """A mutable local that holds a tuple (or NamedTuple): one slot for each item."""

    items: tuple[Any, ...]
    cls: type[Any] = tuple


@dataclass(frozen=True, slots=True, eq=False)
class RecordSlot:
    """A mutable local that holds a record."""

    cls: type[Any]
    items: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ViewSlot:
    """A mutable local that holds a view: equal base, dtype and rank; moving offset and shape."""

    like: TensorRef
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ComptimeSlot:
    """A mutable local that holds something that is not a number (a function, a dtype, None)."""

    value: Any
    key: tuple[Any, ...] = ()
    depth: int = 0
    """The number of open regions where it was declared."""


class Formatted:
    """An f-string with runtime values: `text` has `{}` for each of `operands`."""

    def __init__(self, text: str, operands: list[Value]) -> None:
        self.text, self.operands = text, operands


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """A name that two paths to this point bound to slots of different types."""

    old: Any
    new: Any


SLOTS = (NumberSlot, TupleSlot, RecordSlot, ViewSlot, ComptimeSlot)
READ = frozenset({*SLOTS, Unset, Conflict})
"""What a name may be bound to that is not its value."""


PARTS: dict[type[Any], tuple[str, ...]] = {
    ComptimeSlot: ("value",),
    FlatRef: ("tensor",),
    Iterated: ("parts", "other"),
    Method: ("owner",),
    Range: ("start", "stop", "step"),
    Record: ("values",),
    Table: ("position",),
    TensorRef: ("offset", "shape", "strides"),
    Unroll: ("items",),
}
"""The fields of what is bound to names that may hold values."""
_EMPTY: dict[Any, Any] = {}
VIEWS: dict[type[Any], str] = {type(_EMPTY.values()): "values", type(_EMPTY.items()): "items"}
"""The methods of dictionaries that give views of what they hold."""


def memory_of(bound: Any) -> Iterator[Value]:
    """The buffers of the tensors that a name is bound to."""
    match bound:
        case TensorRef(buffer=buffer) | ViewSlot(like=TensorRef(buffer=buffer)):
            yield buffer
        case RecordSlot(items=items):
            yield from memory_of(items)
        case TupleSlot(items=parts):
            yield from memory_of(parts)
        case _ if type_of(bound) in PARTS:
            for name in PARTS[type_of(bound)]:
                yield from memory_of(getattr(bound, name))
        case _ if is_sequence(bound):
            for item in bound:
                yield from memory_of(item)
        case _ if is_mapping(bound):
            views: Any = bound
            yield from memory_of(tuple(getattr(views, "values", views.__iter__)()))
        case _:
            pass


def values_in(bound: Any) -> Iterator[Value]:
    """The values of run time that comptime slots, containers, functions and what is in `PARTS`
    hold; those of other slots are in locals."""
    if isinstance(bound, Value):
        yield bound
    elif isinstance(bound, LocalFunction):
        for parameter in bound.signature.parameters.values():
            yield from values_in(parameter.default)
    elif isinstance(bound, TupleSlot | RecordSlot):
        yield from values_in(bound.items)
    elif type_of(bound) in PARTS:
        for name in PARTS[type_of(bound)]:
            yield from values_in(getattr(bound, name))
    elif is_sequence(bound):
        for item in bound:
            yield from values_in(item)
    elif is_mapping(bound):
        views: Any = bound
        yield from values_in(tuple(getattr(views, "values", views.__iter__)()))


def holds_values(bound: Any) -> bool:
    """Whether something holds values of run time that are in no local."""
    return any(True for _ in values_in(bound))


def make_tuple(cls: type[Any], items: list[Any]) -> Any:
    """A tuple, list or NamedTuple of `items`."""
    return cls(*items) if hasattr(cls, "_fields") else cls(items)


def is_tuple(value: Any) -> TypeGuard[tuple[Any, ...]]:
    """Whether `value` is a tuple, of anything."""
    return isinstance(value, tuple)


def is_sequence(value: Any) -> TypeGuard[tuple[Any, ...] | list[Any]]:
    """Whether `value` is a tuple or list, of anything."""
    return isinstance(value, (tuple, list))


def is_dict(value: Any) -> TypeGuard[dict[Any, Any]]:
    """Whether `value` is a dict, of anything."""
    return isinstance(value, dict)


def is_frozenset(value: Any) -> TypeGuard[frozenset[Any]]:
    """Whether `value` is a frozenset, of anything."""
    return isinstance(value, frozenset)


def is_mapping(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether `value` is a mapping, or its keys, values or items."""
    return isinstance(value, (Mapping, MappingView))


def is_slice(value: Any) -> TypeGuard[slice[Any, Any, Any]]:
    """Whether `value` is a slice, of anything."""
    return isinstance(value, slice)


def type_of(value: object) -> type[Any]:
    """The type of `value`; type checkers know nothing of what it holds."""
    return type(value)


def is_tuple_type(cls: type[Any]) -> bool:
    """Whether instances of `cls` are tuples, perhaps with names."""
    return issubclass(cls, tuple)


def as_items(index: Any) -> tuple[Any, ...]:
    """What stands in brackets or as a shape: the items of a tuple, or the one item."""
    return index if is_tuple(index) else (index,)


_RUNTIME = (
    *(Value, TensorRef, FlatRef, Table, TensorMapRef),
    *(Method, Record, LocalFunction, Range, Unroll, Iterated, Generated),
)


_NO_RECORDS = (*_RUNTIME, type, DType, Line)
"""Dataclasses of the compiler, which are one thing, and classes, which are no instances."""


_ATOMS = frozenset({int, float, bool, str, type(None), FunctionType, type, DType, Line})
"""Types of most comptime values, which hold nothing else."""


def is_comptime(value: Any) -> bool:
    """Whether `value` is an ordinary Python object through and through."""
    if type(value) in _ATOMS:
        return True
    if type(value) is Value or isinstance(value, _RUNTIME):
        return False
    if is_sequence(value):
        return all(is_comptime(item) for item in value)
    if isinstance(value, (dict, ValuesView, ItemsView)):
        return all(is_comptime(item) for item in _held_in(value))
    return True


def _held_in(value: Any) -> Iterable[Any]:
    return value.values() if is_dict(value) else value


def is_number(value: Any) -> bool:
    """A comptime Python number; these are weakly typed."""
    return isinstance(value, (int, float))  # a bool is an int


def as_record(value: Any) -> Record | None:
    """A frozen dataclass instance (comptime or runtime) as a record; None for anything else."""
    if isinstance(value, Record):
        return value
    if is_dataclass(value) and not isinstance(value, _NO_RECORDS):
        return Record(type_of(value), {f.name: getattr(value, f.name) for f in fields(value)})
    return None


def as_integer(x: Any) -> Any:
    """An integer of NumPy as Python's; anything else as it is."""
    if isinstance(x, (int, Value)):
        return x
    typed = typed_scalar(x)
    return int(typed[1]) if typed is not None and typed[0].is_integer else x


def typed_scalar(x: Any) -> tuple[DType, int | float | bool] | None:
    """A NumPy scalar as its type and a Python number."""
    dtype = find_dtype(getattr(x, "dtype", None)) if hasattr(x, "item") else None
    if dtype is None or getattr(x, "ndim", 1) != 0:
        return None
    return dtype, x.item()
