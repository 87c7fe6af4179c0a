"""What a kernel is specialised on: one frozen description for each argument.

Equal signatures give equal kernels. Data only; `jit` makes them from real arguments.
"""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from math import copysign
from typing import Any, TypeAlias

from cubepy.frontend.values import is_frozenset, is_slice, is_tuple, type_of
from cubepy.ir.core import ALIGNMENT, UNLIMITED, Kernel
from cubepy.ir.types import DType
from cubepy.lang.arrays import content, is_numpy
from cubepy.lang.function import read_source, unwrap
from cubepy.lang.objects import held_by, is_computed, is_fixed_class, is_generated
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A tensor. Extents of `shape` that are None are only known at launch.

    `width` is the line size (1 for scalar tensors); `axis` the axis of stride one (None: there is
    none); `is_linear`: row-major without gaps; `is_divisible`: the extent along `axis` is a
    multiple of `width`; `alignment`: bytes that the base address and every other stride are
    multiples of.
    """

    dtype: DType
    rank: int
    is_line: bool = False
    width: int = 1
    axis: int | None = None
    is_linear: bool = False
    is_divisible: bool = True
    alignment: int = 0
    shape: tuple[int | None, ...] | None = None

    @property
    def is_collapsible(self) -> bool:
        """Whether it may be several axes of a contiguous line tensor, taken for one."""
        return self.is_line and self.rank == 1 and self.width > 1


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A number that is passed at launch."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class TensorMapArg:
    """A tensor map: of elements of a type, with a box of which the last axis is the innermost.

    In im2col mode the box is pixels by channels, and `axes` those of the array; else 0.
    """

    dtype: DType
    box: tuple[int, ...]
    swizzle: int
    axes: int


@dataclass(frozen=True, slots=True)
class ComptimeArg:
    """A Python value; `type_` keeps 1, 1.0 and True apart, nested values too."""

    value: Any
    type_: Any


@dataclass(frozen=True, slots=True)
class StructArg:
    """A tuple, NamedTuple or dataclass of arguments; `names` are its fields."""

    cls: type[Any]
    names: tuple[str, ...]
    items: tuple[Arg, ...]


Arg: TypeAlias = TensorArg | ScalarArg | TensorMapArg | ComptimeArg | StructArg


@dataclass(frozen=True, slots=True)
class Signature:
    """All arguments of a kernel by name, and the comptime facts of the launch.

    `limit`, `flat`, `aligned`, `small` and `alignment`: see `ir.core.Kernel`; traces do not depend
    on them.
    """

    args: tuple[tuple[str, Arg], ...]
    cube_dim: tuple[int, int, int]
    plane_dim: int
    noalias: bool
    checked: bool = False
    attributes: tuple[tuple[str, Any], ...] = ()
    limit: int = UNLIMITED
    flat: bool = False
    aligned: frozenset[str] = frozenset()
    small: frozenset[str] = frozenset()
    alignment: int = ALIGNMENT

    def traced(self) -> Signature:
        """The signature of the trace: without what only passes look at."""
        none: frozenset[str] = frozenset()
        facts = {"limit": UNLIMITED, "flat": False, "aligned": none, "small": none}
        return replace(self, noalias=True, alignment=ALIGNMENT, **facts)

    def states(self, kernel: Kernel) -> Kernel:
        """A kernel with what this launch promises, besides what it was made for."""
        return replace(
            kernel,
            noalias=kernel.noalias and self.noalias,
            limit=min(kernel.limit, self.limit),
            flat=kernel.flat or self.flat,
            aligned=kernel.aligned | self.aligned,
            small=kernel.small | self.small,
            alignment=self.alignment,
        )


_PLAIN = frozenset({type(None), bool, int, str, DType})


def comptime_type(value: Any) -> Any:
    """What a comptime value's identity has besides equality: types inside it, signs of zero, and
    what else equal objects may differ in."""
    cls = type_of(value)
    if cls in _PLAIN:
        return cls
    if isinstance(value, type):
        return cls
    beyond = _beyond_equality(value, cls)
    if is_tuple(value):
        return (cls, *[comptime_type(v) for v in value], *beyond)
    if is_dataclass(value):
        return (cls, *[comptime_type(getattr(value, f.name)) for f in fields(value)], *beyond)
    found = (*_parts(value, cls), *beyond)
    return (cls, *found) if found else cls


_LENIENT = frozenset({"datetime", "decimal"})
"""Modules of Python whose objects are equal also where they show other digits, zones or folds."""


def _parts(value: Any, cls: type[Any]) -> tuple[Any, ...]:
    """What equal objects of a class of Python or NumPy may differ in."""
    if isinstance(value, float):
        return (copysign(1.0, value),)
    if isinstance(value, complex):
        return copysign(1.0, value.real), copysign(1.0, value.imag)
    if is_frozenset(value):
        return (frozenset((v, comptime_type(v)) for v in value),)
    if hasattr(cls, "tobytes"):  # a NumPy scalar
        return (value.tobytes(),)
    if isinstance(value, range) or is_slice(value):  # equal ranges count the same numbers
        return tuple([_hashable(v) for v in (value.start, value.stop, value.step)])
    return (repr(value),) if any(c.__module__ in _LENIENT for c in cls.__mro__) else ()


def _beyond_equality(value: Any, cls: type[Any]) -> tuple[Any, ...]:
    """What an object holds that its class may leave out when it compares: the fields that a
    dataclass does not, and all where the user wrote `__eq__` or the class is one of numbers."""
    if cls.__eq__ is object.__eq__ or is_fixed_class(cls) or isinstance(value, Enum):
        return ()
    held = held_by(value)
    names = set(held)
    if is_dataclass(value) and is_generated(cls.__eq__):
        names -= {f.name for f in fields(value) if f.compare}
    return tuple([(n, *_identity(held[n])) for n in sorted(names) if not is_computed(cls, n)])


def _identity(value: Any) -> tuple[Any, ...]:
    """What distinguishes a value; of what cannot be hashed or leads further, its identity."""
    params = getattr(type_of(value), "__dataclass_params__", None)
    if is_fixed_class(type_of(value)) or (params is not None and params.frozen):
        return _hashable(value)
    return (Itself(value),)


@dataclass(frozen=True, slots=True, eq=False)
class Itself:
    """An object that equals itself alone."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class FunctionValue:
    """A comptime function, equal to another of the same text, globals and captured values."""

    code: Any
    captured: Any
    function: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionValue):
            return False
        return (self.code, self.captured) == (other.code, other.captured) and (
            self.code is other.code or _text(self.code) == _text(other.code)
        )

    def __hash__(self) -> int:
        return hash((self.code, self.captured))


@dataclass(frozen=True, slots=True, eq=False)
class PartialValue:
    """A `functools.partial`, equal to another of an equal function and equal arguments."""

    held: tuple[Any, ...]
    function: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartialValue) and self.held == other.held

    def __hash__(self) -> int:
        return hash(self.held)


def _text(code: Any) -> str:
    """The source of a function; equal code may come from different annotations of locals."""
    return ast.dump(read_source(code).node)


def comptime_key(value: Any, outer: tuple[Any, ...] = ()) -> Any:
    """A hashable stand-in for a comptime value: itself, or its code and captures.

    `outer`: the functions around it, which a recursive function captures.
    """
    function = unwrap(value)
    if hasattr(function, "__cubepy_builtin__"):
        return value  # a word of the language is its own identity
    if function is not None and function not in outer:
        captured = _captured(function, (*outer, function))
        return FunctionValue(function.__code__, captured, value)
    if function is not None:
        return ("recursive", len(outer) - outer.index(function))
    if type_of(value) is partial:
        held = (value.func, *value.args, *value.keywords.values())
        names = len(value.args), tuple(value.keywords)
        return PartialValue((names, *[_hashable(v, outer) for v in held]), value)
    if is_tuple(value) and type(value) is tuple:
        return tuple(comptime_key(v, outer) for v in value)
    return value


def _captured(function: Any, outer: tuple[Any, ...]) -> Any:
    values = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    values += function.__defaults__ or ()
    values += (function.__kwdefaults__ or {}).values()
    values = [content(v) if is_numpy(v) else v for v in values]
    return id(function.__globals__), tuple([_hashable(v, outer) for v in values])


def _hashable(value: Any, outer: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """The key of what a function holds: a list counts as itself, and is compared at each launch as
    all captured values are."""
    found = comptime_key(value, outer), comptime_type(value)
    try:
        hash(found)
    except TypeError:
        return (Itself(value),)
    return found


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return True
    return False


def comptime_value(key: Any) -> Any:
    """The value behind a `comptime_key`."""
    if isinstance(key, FunctionValue | PartialValue):
        return key.function
    if is_tuple(key) and type(key) is tuple:
        return tuple(comptime_value(k) for k in key)
    return key
