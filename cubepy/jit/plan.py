"""The launch plan: what a launch must be like for compiled code, and how it is filled in.

Plain data, made here from what one launch was found to be. Extents, strides, addresses and numbers
are read at each launch: every launch that a plan holds for runs its code, whatever the sizes.
`launch.prepare` counts cubes and fills the block by it, `encoding` writes it down for native code.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

from cubepy.artifact import Slot
from cubepy.frontend.facts import Facts
from cubepy.frontend.signature import (
    Arg,
    ScalarArg,
    Signature,
    StructArg,
    TensorArg,
    TensorMapArg,
)
from cubepy.ir.core import NARROW_LIMIT, UNLIMITED
from cubepy.ir.types import i64
from cubepy.jit.arguments import Layout, Matcher
from cubepy.jit.classes import is_small
from cubepy.jit.grid import Dim3, Fixed, Grid, whole_clusters
from cubepy.record import dataclass
from cubepy.targets import CHECKED_LIMIT, Target

if TYPE_CHECKING:
    from cubepy.lang.annotations import TensorAnnotation


@dataclass(frozen=True, slots=True)
class ArrayRule:
    """An array of a class of layouts. `axis`: the last of stride one; `is_linear`: row-major
    without gaps; `is_aligned`: rows begin at multiples of `alignment` bytes; `is_whole`: the extent
    along the axis is a multiple of the line size. None: either will do."""

    path: str
    dtype: str
    rank: int
    axis: int | None
    is_linear: bool
    is_aligned: bool | None
    is_whole: bool | None
    is_line: bool
    is_written: bool
    alignment: int


@dataclass(frozen=True, slots=True)
class NumberRule:
    """A number of a Python or NumPy type, passed as `dtype`. `is_small`: it lies between 0 and
    `NARROW_LIMIT`; None: any will do."""

    path: str
    type: str
    dtype: str
    is_small: bool | None


@dataclass(frozen=True, slots=True)
class ComptimeRule:
    """A value of this type that is part of the code."""

    path: str
    type: str


@dataclass(frozen=True, slots=True)
class StructRule:
    """A tuple, NamedTuple or dataclass; the rules of its fields follow."""

    path: str
    type: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MapRule:
    """A tensor map of a type, with this box and swizzle; `axes` as in `TensorMapArg`."""

    path: str
    dtype: str
    box: tuple[int, ...]
    swizzle: int
    axes: int
    is_written: bool


Rule: TypeAlias = ArrayRule | NumberRule | ComptimeRule | StructRule | MapRule


@dataclass(frozen=True, slots=True)
class GridRule:
    """How many cubes there are: `kind` is "fixed" (the launcher says so), "shape" (they cover a
    shape that the launcher names), "argument" (they cover the array at the path `argument`) or
    "array" (they cover one that is no argument).

    `divisors`: items that a cube serves along x, y and z; not `by_axes`: all along x. `cluster`:
    what covers something is rounded up to whole ones. `most`: the device's limits.
    """

    kind: str
    argument: str
    by_axes: bool
    divisors: Dim3
    cluster: Dim3
    most: Dim3

    def cover(self, shape: tuple[int, ...]) -> Dim3:
        """The cube count for `shape` items: the last axis on X, leading ones together on Z.

        Kernels that ask for no axis are covered by their number of items alone.
        """
        if not self.by_axes or not shape:
            shape = (prod(shape),)
        items = shape[-1], shape[-2] if len(shape) > 1 else 1, prod(shape[:-2])
        x, y, z = (-(-n // by) for n, by in zip(items, self.divisors, strict=True))
        return whole_clusters((x, y, z), self.cluster)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A launch without addresses, sizes and numbers.

    `noalias`: no written array shares memory with another argument; else they are the same array
    or apart. `above`, `limit`: the largest of all extents, strides and numbers of units is above
    the one and at most the other. `is_flat`: the grid has one axis. `collapses`: all line tensors
    have one shape and are contiguous, and are passed as if they had one axis; None: does not
    matter. `width`: the line size. `slots`: the argument block, which the cube counts follow.
    """

    kernel: str
    rules: tuple[Rule, ...]
    slots: tuple[Slot, ...]
    grid: GridRule
    cube_dim: Dim3
    width: int
    noalias: bool
    above: int
    limit: int
    is_flat: bool
    collapses: bool | None

    @property
    def written(self) -> tuple[str, ...]:
        """The paths of the arrays that the kernel writes, those of tensor maps too."""
        rules = (rule for rule in self.rules if isinstance(rule, ArrayRule | MapRule))
        return tuple([rule.path for rule in rules if rule.is_written])


_LIMITS = (-1, NARROW_LIMIT, CHECKED_LIMIT, UNLIMITED)


def plan_of(
    matcher: Matcher,
    signature: Signature,
    facts: Facts,
    slots: tuple[Slot, ...],
    grid: GridRule,
    width: int,
    is_collapsed: bool | None,
) -> LaunchPlan:
    """The plan of a launch whose arguments were matched and whose code was compiled.

    `is_collapsed`: whether line tensors were passed as if they had one axis; None: they could have
    been, but where lines begin matters to the kernel.
    """
    how = matcher, facts, width, signature.alignment
    rules = [rule for name, arg in signature.args for rule in _rules(name, arg, *how)]
    return LaunchPlan(
        matcher.kernel,
        tuple(rules),
        slots,
        grid,
        signature.cube_dim,
        width,
        signature.noalias,
        _LIMITS[_LIMITS.index(signature.limit) - 1],
        signature.limit,
        signature.flat,
        _collapses(matcher, facts, width, is_collapsed),
    )


def _rules(
    name: str, arg: Arg, matcher: Matcher, facts: Facts, width: int, alignment: int
) -> list[Rule]:
    if isinstance(arg, StructArg):
        rules: list[Rule] = [StructRule(name, arg.cls.__qualname__, arg.names)]
        for field, item in zip(arg.names, arg.items, strict=True):
            rules += _rules(f"{name}.{field}", item, matcher, facts, width, alignment)
        return rules
    if isinstance(arg, TensorArg):
        return [_array_rule(name, arg, *matcher.tensors[name], facts, width, alignment)]
    if isinstance(arg, ScalarArg):
        value = matcher.given[name]
        small = is_small(matcher.scalars[name]) if arg.dtype is i64 else None
        return [NumberRule(name, type(value).__name__, arg.dtype.name, small)]
    if isinstance(arg, TensorMapArg):
        return [
            MapRule(name, arg.dtype.name, arg.box, arg.swizzle, arg.axes, name in facts.written)
        ]
    return [ComptimeRule(name, type(matcher.given[name]).__name__)]


def _array_rule(
    name: str,
    arg: TensorArg,
    layout: Layout,
    annotation: TensorAnnotation,
    facts: Facts,
    width: int,
    alignment: int,
) -> ArrayRule:
    is_line = annotation.is_line
    return ArrayRule(
        name,
        layout.dtype.name,
        len(layout.shape),
        layout.axis,
        layout.is_linear,
        layout.begins_at(alignment) if is_line or name in facts.lined else None,
        arg.is_divisible if is_line and width > 1 else None,
        is_line,
        name in facts.written,
        alignment,
    )


def _collapses(
    matcher: Matcher, facts: Facts, width: int, is_collapsed: bool | None
) -> bool | None:
    lines = [layout for layout, annotation in matcher.tensors.values() if annotation.is_line]
    if is_collapsed is None or width == 1 or not lines or len(lines[0].shape) < 2:
        return None
    return is_collapsed if is_collapsed or not (facts.shaped or facts.uses_axes) else None


def grid_rule(
    grid: Grid,
    signature: Signature,
    facts: Facts,
    matcher: Matcher,
    target: Target,
    cluster: Dim3,
) -> GridRule:
    """How the cubes of a launch are counted."""
    most = target.max_cube_counts
    if isinstance(grid, Fixed):
        return GridRule("fixed", "", False, (1, 1, 1), cluster, most)
    by_axes, divisors = facts.uses_axes, (1, 1, 1)
    if grid.per != "cube":
        by = signature.plane_dim if grid.per == "plane" else 1
        x, y, z = signature.cube_dim
        divisors = (max(1, x // by), y, z) if by_axes else (max(1, prod((x, y, z)) // by), 1, 1)
    if isinstance(grid.what, int | tuple):
        return GridRule("shape", "", by_axes, divisors, cluster, most)
    name = matcher.name_of(grid.what)
    kind = "argument" if name else "array"
    return GridRule(kind, name or "", by_axes, divisors, cluster, most)
