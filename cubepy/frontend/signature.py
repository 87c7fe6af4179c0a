"""What a kernel is specialised on: one frozen description for each argument.

Equal signatures give equal kernels. Data only; `jit` makes them from real arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from cubepy.ir.types import DType


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


def comptime_type(value: Any) -> Any:
    """The types inside a comptime value, as part of its identity."""
    if isinstance(value, tuple):
        return (tuple, *(comptime_type(v) for v in value))
    return type(value)
