"""What is normalised: rows and slabs of an array, with weights along them or for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.ir.types import DType
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Normalisation:
    """One way to normalise rows: `name` is softmax, log_softmax, layer_norm or rms_norm.

    `dtype` is what it is computed in. `prologue(v)` is what elements go through first.
    """

    name: str
    dtype: DType
    prologue: Callable[..., Any] | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What picks depend on: not which function the caller gave, but whether there is one."""
        return self.name, self.dtype, self.prologue is not None

    @property
    def is_softmax(self) -> bool:
        """Whether rows are normalised by their maximum and the sum of exponentials."""
        return self.name.endswith("softmax")


@dataclass(frozen=True, slots=True)
class RowTiling:
    """How a kernel goes through rows: `line` elements at a time, `units` units in a cube, `band`
    rows for a cube.

    `across` units share a row: all of a cube, or a group of a plane. `unroll`: lines side by side,
    to hide the time that one operation takes. `held`: lines of a row that each unit keeps in
    registers, 0 to read the row again; `is_whole`: these are all lines, and whole. `together`: rows
    that a cube normalises at the same time, which share their weights. `stream`: results are too
    large for the caches; `kept`: elements of a row whose exponentials one unit keeps beside it;
    `is_ahead`: it prefetches the next row while it makes them.
    """

    line: int
    units: int
    band: int
    unroll: int = 1
    held: int = 0
    is_whole: bool = False
    across: int = 1
    together: int = 1
    stream: bool = False
    kept: int = 0
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Passing:
    """How rows pass through cubes that stay.

    A cube has `units`, each of which takes `held` lines of `line` elements of a row; `stages` rows
    are in shared memory. `is_whole`: all these lines are there.
    """

    line: int
    units: int
    held: int
    stages: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Slabs:
    """How a kernel goes through slabs, in `dtype`.

    The first `items` axes count slabs. A line has `line` elements; `across` units stand side by
    side along a row, the others of a cube take other rows; `unroll` lines are added side by side.
    `rows`: those whose statistics are made at a time. `is_along`: weights lie along rows, else
    there is one for a row. `is_centred`: the mean is subtracted.
    """

    dtype: DType
    items: int
    line: int
    units: int
    across: int
    unroll: int
    rows: int
    is_along: bool
    is_centred: bool = True
    prologue: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Where an index of the result comes from: for each axis, axes of the view and factors."""

    terms: tuple[tuple[tuple[int, int], ...], ...] = ()
