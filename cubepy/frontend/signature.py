"""What a kernel is specialised on: one frozen description for each argument.

Equal signatures give equal kernels. Data only; `jit` makes them from real arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from cubepy.ir.types import DType
from cubepy.lang.function import unwrap


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A tensor. Extents of `shape` that are None are only known at launch.

    `width` is the line size (1 for scalar tensors); `axis` the axis of stride one (None: there is
    none); `is_linear`: row-major without gaps; `is_divisible`: the extent along `axis` is a multiple
    of `width`; `alignment`: bytes that the base address and every other stride are multiples of.
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


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A number that is passed at launch."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class ComptimeArg:
    """A Python value; `type_` keeps 1, 1.0 and True apart, nested values too."""

    value: Any
    type_: Any


@dataclass(frozen=True, slots=True)
class StructArg:
    """A tuple, NamedTuple or dataclass of arguments; `names` are its fields."""

    cls: type
    names: tuple[str, ...]
    items: tuple[Arg, ...]


Arg: TypeAlias = TensorArg | ScalarArg | ComptimeArg | StructArg


@dataclass(frozen=True, slots=True)
class Signature:
    """All arguments of a kernel by name, and the comptime facts of the launch."""

    args: tuple[tuple[str, Arg], ...]
    cube_dim: tuple[int, int, int]
    plane_dim: int
    noalias: bool
    checked: bool = False


def comptime_type(value: Any) -> Any:
    """The types inside a comptime value, as part of its identity."""
    if isinstance(value, tuple):
        return (tuple, *(comptime_type(v) for v in value))
    return type(value)


@dataclass(frozen=True, slots=True)
class FunctionValue:
    """A comptime function, equal to another of the same code and captured values."""

    code: Any
    captured: Any
    function: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionValue) and (self.code, self.captured) == (
            other.code,
            other.captured,
        )

    def __hash__(self) -> int:
        return hash((self.code, self.captured))


def comptime_key(value: Any) -> Any:
    """A hashable stand-in for a comptime value: itself, or its code and captures."""
    function = unwrap(value)
    if function is not None:
        cells = function.__closure__ or ()
        captured = tuple(
            (comptime_key(c.cell_contents), comptime_type(c.cell_contents)) for c in cells
        )
        defaults = tuple(comptime_key(d) for d in function.__defaults__ or ())
        return FunctionValue(function.__code__, (captured, defaults), value)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(comptime_key(v) for v in value)
    return value


def comptime_value(key: Any) -> Any:
    """The value behind a `comptime_key`."""
    if isinstance(key, FunctionValue):
        return key.function
    if isinstance(key, tuple) and type(key) is tuple:
        return tuple(comptime_value(k) for k in key)
    return key
