"""What becomes of the sums of a transposed convolution: bias and epilogue, phase by phase.

A phase is a convolution whose results lie apart, and phases that are one convolution have their
filters beside each other. So the kernels know other indices than those of the result, which an
epilogue is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.kernels.calls.epilogues import (
    IMAGE_AXES,
    may_read_index,
    placed,
    takes_elements,
    with_bounds,
)
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Finish:
    """Biases of the filters, and an epilogue with its arrays, if there are some."""

    biases: tuple[Memory, ...] = ()
    epilogue: Callable[..., Any] | None = None
    extras: tuple[Memory, ...] = ()

    def placed(self, axes: tuple[int, ...]) -> Finish:
        """For results whose axes are these of [n, filter, depth, row, column]."""
        return replace(self, epilogue=placed(self.epilogue, axes, IMAGE_AXES))

    def of_phases(
        self,
        places: Places,
        firsts: Sequence[int],
        extents: tuple[int, ...],
    ) -> tuple[Callable[..., Any] | None, tuple[Any, ...]]:
        """The epilogue of a convolution whose results begin at `firsts` of each axis of space, and
        its arrays; `extents`: those of its result."""
        if self.epilogue is None or not may_read_index(self.epilogue):
            return self.epilogue, self.extras
        function = by_places(self.epilogue, places)
        return function, with_bounds(function, (*self.extras, tuple(firsts)), extents)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the results of phases lie: `stride` apart. Of `numbers` phases of each axis a
    convolution has the filters, `filters` of each: phase by phase, or where filters are `last`,
    filter by filter."""

    stride: tuple[int, ...]
    numbers: tuple[int, ...] = (1, 1, 1)
    filters: int = 0
    last: bool = False


def by_places(function: Callable[..., Any], places: Places) -> Callable[..., Any]:
    """An epilogue of [n, filter, depth, row, column] for the results of phases, whose arrays are
    followed by the first place of each axis; it is given one element at a time, as a line if it
    asks for `line_size`."""
    takes_line = not takes_elements(function)

    def finish(v: Any, index: Any, *rest: Any) -> Any:
        place = place_of(index, rest[len(rest) - 1], places)
        given = cp.Line[v.dtype, 1](v) if takes_line else v
        return function(given, place, *rest[: len(rest) - 1])

    finish.__dict__["placed"] = function
    finish.__dict__["by_element"] = True
    return finish


def place_of(index: Any, firsts: Any, places: Any) -> Any:
    """The index in the result of an element of a phase."""
    count = prod(places.numbers)
    if count == 1:
        filter, phase = index[1], 0
    elif places.last:
        filter, phase = index[1] % places.filters, index[1] // places.filters
    else:
        filter, phase = index[1] // count, index[1] % count
    rows, columns = places.numbers[1:]
    shifts = (phase // (rows * columns), phase // columns % rows, phase % columns)
    space = [firsts[a] + shifts[a] + index[2 + a] * places.stride[a] for a in range(3)]
    return (index[0], filter, *space)
