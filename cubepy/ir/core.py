"""KernelIR's data: values, operations, regions and kernels. Frozen; passes build new ones.

An operation is a row of the op table (`ops`) applied to values; regions hold structured control
flow; a kernel is a list of parameters and one region. Identity is object identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from cubepy.artifact import ParamKind
from cubepy.ir.types import Type
from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.ir.opdef import OpDef
    from cubepy.span import Span

Attr: TypeAlias = "int | float | bool | str | Type | tuple[int, ...] | tuple[Attr, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA value; `name` is a hint from the source, not an identity."""

    type: Type
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operation: a table row, operands, attributes, results and nested regions."""

    row: OpDef
    operands: tuple[Value, ...] = ()
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
    results: tuple[Value, ...] = ()
    regions: tuple[Region, ...] = ()
    span: Span | None = None

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A list of operations with arguments; the last one is a terminator."""

    args: tuple[Value, ...]
    ops: tuple[Op, ...]

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    def walk(self) -> Iterator[Op]:
        """Every operation here and in nested regions, in order."""
        waiting = [iter(self.ops)]
        while waiting:
            for op in waiting[-1]:
                yield op
                if op.regions:
                    waiting += [iter(region.ops) for region in reversed(op.regions)]
                    break
            else:
                waiting.pop()


UNLIMITED = (1 << 63) - 1
"""The limit of every launch: all that an index can be."""
NARROW_LIMIT = 1 << 30
"""Two numbers up to here have a sum of 32 bits."""
ALIGNMENT = 64
"""Bytes that rows of aligned tensors begin at multiples of, unless the target needs less."""
FIRST_ADDRESS = 1 << 22
"""No array lies below it: programs that are not position independent begin there."""
SHARED_ALIGNMENT = 16
"""Bytes that every target aligns shared arrays to."""


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter: its value, and what of which argument a launch passes for it."""

    value: Value
    argument: str
    kind: ParamKind


@dataclass(frozen=True, slots=True)
class Kernel:
    """A specialised kernel. `cube_dim` is comptime; `written` names the tensors that are stored to.

    `noalias` promises that written tensors overlap no other argument. `attributes`: settings
    of the launch that code is compiled for, by the names in `targets.LAUNCH_ATTRIBUTES`, sorted.
    `limit`: no extent, size, stride or offset of an element of an argument and no number of units
    is larger. `flat`: the grid has one axis, x. `aligned`: tensors of which the base and all
    strides but those of one element are multiples of `alignment` bytes. `small`: numbers of 64
    bits that lie between 0 and `NARROW_LIMIT`.
    """

    name: str
    params: tuple[Param, ...]
    body: Region
    cube_dim: tuple[int, int, int] = (1, 1, 1)
    plane_dim: int = 1
    written: frozenset[str] = frozenset()
    noalias: bool = False
    attributes: tuple[tuple[str, Attr], ...] = ()
    limit: int = UNLIMITED
    flat: bool = False
    aligned: frozenset[str] = frozenset()
    small: frozenset[str] = frozenset()
    alignment: int = ALIGNMENT

    def attribute(self, name: str, default: Any) -> Any:
        """The value of a setting, `default` where it was not given."""
        return dict(self.attributes).get(name, default)
