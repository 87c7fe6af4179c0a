"""What prebuilt functions would launch, for targets that need not be here.

A recording is a library whose arrays only describe: the planner asks it for the target and hands it
the launches, and nothing runs. Prebuilt functions know nothing of it.
"""

from __future__ import annotations

import inspect
import mmap
import sys
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from cubepy.array.memory import numpy_dtype
from cubepy.jit.grid import Fixed, Grid
from cubepy.jit.kernel import CubeKernel, Launcher
from cubepy.kernels.calls.libraries import Described, NumpyLibrary, Shape
from cubepy.lang.annotations import Spec
from cubepy.record import dataclass
from cubepy.targets import Target

UNKNOWN = 64
"""The extent of axes that a specification leaves open."""
_LARGE = 1 << 28
"""Bytes of an array from which on a system may refuse what is never touched."""
_MAP_NORESERVE = 0x4000
"""Of Linux: addresses alone. Python names it from 3.13 on."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch that was planned: `launcher.inspect(**arguments)` shows it."""

    kernel: CubeKernel
    grid: Grid
    arguments: Mapping[str, Any]

    @property
    def cubes(self) -> int:
        """How many cubes are launched, where that is known without a device."""
        if isinstance(self.grid, Fixed):
            return prod(self.grid.count)
        what = self.grid.what
        return prod(what) if isinstance(what, tuple) else int(what)

    @property
    def launcher(self) -> Launcher:
        """The kernel over its grid."""
        return Launcher(self.kernel, self.grid)


class Recording(NumpyLibrary):
    """A library that notes launches for `target`."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.launches: list[Launch] = []

    def add(self, kernel: CubeKernel, grid: Grid, arguments: Mapping[str, Any]) -> None:
        """Note one launch."""
        self.launches.append(Launch(kernel, grid, arguments))

    def maker(self, shape: Shape) -> Callable[[], Any]:
        """What makes results and scratch, which are only described too."""
        return partial(_unbacked, list(shape.extents), numpy_dtype(shape.dtype))

    scratch_maker = maker

    def describe(self, spec: Spec) -> Any:
        """An array of the specified layout, or a number for a scalar; memory is not touched."""
        dtype = numpy_dtype(spec.dtype)
        if spec.shape is None:
            return dtype.type(1)
        array = _unbacked([UNKNOWN if n is None else n for n in spec.shape], dtype).view(Described)
        array.library = self
        return array


def _unbacked(shape: list[int], dtype: Any) -> np.ndarray:
    """An array of addresses; of many, those without memory behind them, which nobody touches."""
    nbytes = prod(shape) * np.dtype(dtype).itemsize
    if nbytes < _LARGE or sys.platform == "win32":
        return np.empty(shape, dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    flags |= _MAP_NORESERVE if sys.platform == "linux" else 0
    try:
        places = mmap.mmap(-1, nbytes, flags=flags)
    except (OSError, OverflowError):
        raise MemoryError(f"no {nbytes} addresses for an array") from None
    return np.frombuffer(places, dtype).reshape(shape)


def record(
    function: Callable[..., Any],
    specs: Mapping[str, Spec],
    options: Mapping[str, Any],
    target: Target,
) -> list[Launch]:
    """The launches of `function` for arguments of these layouts, in order.

    Names that are no parameter fill `*arrays` in order. Raises what the function raises.
    """
    recording = Recording(target)
    given = {**{name: recording.describe(spec) for name, spec in specs.items()}, **options}
    positional, named = _arrange(function, given)
    function(*positional, **named)
    return recording.launches


def _arrange(
    function: Callable[..., Any], given: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments; names before `*arrays` go first."""
    parameters = inspect.signature(function).parameters.values()
    if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return [], given
    leading = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keyword = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    first = [given[name] for name in leading if name in given]
    rest = [v for name, v in given.items() if name not in keyword and name not in leading]
    return first + rest, {name: given[name] for name in keyword if name in given}
