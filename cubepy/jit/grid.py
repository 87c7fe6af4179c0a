"""Grids: cube counts and cube dims from what users write, with the device's limits."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from cubepy.errors import fail
from cubepy.record import dataclass
from cubepy.targets import Target

Dim3 = tuple[int, int, int]
MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fixed:
    """`kernel[count, dim]`."""

    count: Dim3
    dim: Dim3


@dataclass(frozen=True, slots=True)
class Over:
    """`kernel.over(what)`: enough cubes for `what`, an array, an int or a shape."""

    what: Any
    per: str = "unit"
    cube_dim: Any = None


Grid = Fixed | Over


def dim3(value: Any, what: str, least: int) -> Dim3:
    """An int or a tuple of up to three as three ints; `LaunchError` E416 for anything else."""
    parts = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(parts) <= 3:
        raise fail("E416", given=shown(value), reason=f"{what} has 1 to 3 axes", suggestion="")
    try:
        numbers = tuple(operator.index(p) for p in parts)
    except TypeError:
        raise fail(
            "E416",
            given=shown(value),
            reason=f"{what} is made of integers",
            suggestion="use // for the division",
        ) from None
    if any(n < least for n in numbers):
        raise fail("E416", given=shown(value), reason=f"{what} is at least {least}", suggestion="")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def shown(value: Any) -> str:
    """What was given for a grid, in one short line."""
    text = repr(value)
    return text if len(text) < 60 and "\n" not in text else f"a {type(value).__name__}"


def fixed(item: Any) -> Fixed:
    """The grid of `kernel[cube_count, cube_dim]`."""
    if not isinstance(item, tuple) or len(item) != 2:
        raise fail(
            "E416",
            given=shown(item),
            reason="it takes a cube count and a cube dim",
            suggestion="write kernel[cube_count, cube_dim], ints or tuples of up to 3",
        )
    return Fixed(dim3(item[0], "the cube count", 0), dim3(item[1], "the cube dim", 1))


def check_limits(kernel: str, grid: Fixed, target: Target) -> None:
    """`LaunchError` E408 where the target does not take the grid; names both numbers."""
    units = prod(grid.dim)
    if units > target.max_cube_dim:
        raise fail(
            "E408",
            kernel=kernel,
            what="the cube dim",
            given=f"{grid.dim} = {units} units",
            target=target.kind,
            limit=f"at most {target.max_cube_dim}",
            suggestion="use more cubes",
        )
    _check_axes(kernel, "the cube dim", grid.dim, target.max_cube_dims, target)
    _check_axes(kernel, "the cube count", grid.count, target.max_cube_counts, target)
    if prod(grid.count) > 2**62:
        raise _beyond(kernel, "the cube count", grid.count, target, "at most 2**62 cubes")
    if prod(grid.count) * units >= 2**63:  # positions are of 64 bits
        given = prod(grid.count) * units
        raise _beyond(kernel, "the number of units", given, target, "less than 2**63")


def checked_amount(name: str, least: int, most: int) -> Callable[[Any], int]:
    """What checks a setting that is a number; E420 for what is out of range."""

    def checked(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise fail("E420", name=name, value=value, reason=f"it is from {least} to {most}")
        return value

    return checked


def check_clusters(kernel: str, count: Dim3, cluster: Dim3, target: Target) -> None:
    """`LaunchError` E408 for a grid that is not made of whole clusters."""
    if whole_clusters(count, cluster) != count:
        raise fail(
            "E408",
            kernel=kernel,
            what="the cube count",
            given=count,
            target=target.kind,
            limit=f"multiples of the cluster, {cluster}",
            suggestion="use more cubes, which do nothing",
        )


def whole_clusters(count: Dim3, cluster: Dim3) -> Dim3:
    """The cube count rounded up to clusters."""
    x, y, z = (-(-n // by) * by for n, by in zip(count, cluster, strict=True))
    return x, y, z


MAX_CLUSTER = 8
"""Cubes that all devices which have clusters can run together."""


def checked_cluster(cluster: Any) -> Dim3:
    """A cluster as users write it; E416 for what is none."""
    found = dim3(cluster, "the cluster", 1)
    if prod(found) > MAX_CLUSTER:
        reason = f"a cluster has at most {MAX_CLUSTER} cubes"
        raise fail("E416", given=shown(cluster), reason=reason, suggestion="")
    return found


def _check_axes(kernel: str, what: str, given: Dim3, limit: Dim3, target: Target) -> None:
    if any(n > most for n, most in zip(given, limit, strict=True)):
        raise _beyond(kernel, what, given, target, f"at most {limit}")


def _beyond(kernel: str, what: str, given: Dim3 | int, target: Target, limit: str) -> Exception:
    return fail(
        "E408",
        kernel=kernel,
        what=what,
        given=given,
        target=target.kind,
        limit=limit,
        suggestion="use fewer, larger cubes, or a loop in the kernel",
    )


def default_cube_dim(grid: Grid | None, plane_dim: int) -> Dim3:
    """The cube dim where the user gave none: 256 units, a multiple of the plane."""
    if isinstance(grid, Fixed):
        return grid.dim
    if isinstance(grid, Over) and grid.cube_dim is not None:
        return dim3(grid.cube_dim, "the cube dim", 1)
    return -(-256 // plane_dim) * plane_dim, 1, 1
