"""KernelIR's data: values, operations, regions and kernels. Frozen; passes build new ones.

An operation is a row of the op table (`ops`) applied to values; regions hold structured control
flow; a kernel is a list of parameters and one region. Identity is object identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cubepy.ir.types import Type

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
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter: its value and its role in the launch.

    `role` is "data", "shape", "stride", "value" or "tensor_map"; `axis` counts for shapes and
    strides.
    """

    value: Value
    argument: str
    role: str
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A specialised kernel. `cube_dim` is comptime; `written` names the tensors that are stored to.

    `noalias` promises that written tensors overlap no other argument. `cluster`: cubes along each
    axis that run together.
    """

    name: str
    params: tuple[Param, ...]
    body: Region
    cube_dim: tuple[int, int, int] = (1, 1, 1)
    plane_dim: int = 1
    written: frozenset[str] = frozenset()
    noalias: bool = False
    cluster: tuple[int, int, int] = (1, 1, 1)
