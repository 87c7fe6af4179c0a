"""The weights of convolutions: as they are given, or packed once for many calls by `prepack`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import DType, Kind
from cubepy.kernels.calls.arguments import number_of, refused, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape, library_of
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.convolution import lane_strategies, strategies
from cubepy.kernels.convolution.packing import (
    CHANNEL_AXIS,
    NO_AXIS,
    TAP_AXIS,
    Packing,
    pack_filters,
    pack_weights,
)
from cubepy.kernels.convolution.volumes import channels_last, has_channels_last, permuted
from cubepy.kernels.matmul.problem import is_dense, sums_of
from cubepy.kernels.matmul.strategies import has_split_units
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.record import dataclass
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.kernels.convolution.split import SplitPacking
    from cubepy.kernels.convolution.split_runs import RunPacking
    from cubepy.kernels.convolution.unit_runs import UnitRunPacking

    Panels = Packing | SplitPacking | RunPacking | UnitRunPacking

_PLANS = Plans()
PRECISIONS = {None: None, "direct": 0, "winograd2x2": 2, "winograd4x4": 4}
"""What `prepack` takes as `precision`, and the extent of Winograd's squares: 0 for none of them,
None for those that are faster."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights as the kernels of one device read them; `shape` and `dtype` are the weights' own.

    Without a `packing` they are a matrix [filter, channel].
    """

    panels: Any
    shape: tuple[int, ...]
    dtype: DType
    groups: int
    packing: Panels | None
    precision: str | None

    @property
    def about(self) -> tuple[Any, ...]:
        """All but the panels, which a plan depends on."""
        return self.shape, self.dtype, self.groups, self.packing, self.precision


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a call, as they are or packed."""

    memory: Memory
    packed: Packed | None

    @property
    def packing(self) -> Panels | None:
        """How panels are packed; None for weights that are not in panels."""
        return None if self.packed is None else self.packed.packing

    @property
    def volume(self) -> Memory:
        """Weights that are not in panels, as [filter, channel, depth, row, column]."""
        w, size = self.memory, self.memory.dtype.itemsize
        if self.packed is not None:
            shape, strides = self.shape[:2], (self.shape[1] * size, size)
            return replace(w, shape=(*shape, 1, 1, 1), strides=(*strides, 0, 0, 0))
        missing = 5 - len(w.shape)
        shape = (*w.shape[:2], *[1] * missing, *w.shape[2:])
        return replace(w, shape=shape, strides=(*w.strides[:2], *[0] * missing, *w.strides[2:]))

    @property
    def shape(self) -> tuple[int, ...]:
        """[filters, channels of a group, ...]"""
        return self.memory.shape if self.packed is None else self.packed.shape

    @property
    def dtype(self) -> DType:
        """The type of the weights as they were given."""
        return self.memory.dtype if self.packed is None else self.packed.dtype


def prepack(weight: Any, *, groups: int = 1, precision: str | None = None) -> Packed | Any:
    """The weights of a convolution in the order that its kernels read them, for many calls.

    `weight`: [filters, channels / groups, ...], 1 to 3 further axes. Gives what `conv1d`, `conv2d`
    and `conv3d` take for it, with the same `groups`; a copy, which does not follow later changes.
    Where the device's kernels read weights as they are, that is `weight` itself; Hopper's tensor
    cores read an array of the same shape with the channels last in memory. Processors with AMX have
    larger weights of f32 as three bf16 each, in 1.5 times the memory, with smaller errors of
    results than multiply-adds make (docs/accuracy.md).

    On CPUs weights [filters, channels, 3, 3] of floats of one group serve Winograd's F(2x2, 3x3),
    which multiplies 2.25 times less, where strides and dilations are 1 and it is faster.
    `precision`: "direct" forgoes it, "winograd2x2" and "winograd4x4" (4 times less) take it where
    they can; other weights and devices do without. The error of a result then scales not with the
    products that it sums, but with what lies nearby: it is at most 16 (channels + 11) 2**-24, or
    861 (channels + 21) 2**-24, times the sum over channels of the largest absolute element of its
    square's window by the absolute sum of the filter's weights. Where a result of a square sees
    less than a sixteenth of the square's elements (as sums of absolute values), or one is not
    finite, products are summed as they are defined: no infinity, NaN, or large number reaches a
    result that does not see it. What sees zeros alone is 0.
    docs/accuracy.md derives this.
    """
    library, seen = library_of("prepack", "weight", weight)
    planner = Planner("prepack", library)
    w = planner.array("weight", seen)
    groups = number_of("prepack", "groups", groups)
    check_weight("prepack", w, groups)
    if precision not in tuple(PRECISIONS):
        known = ", ".join(map(repr, PRECISIONS))
        raise wrong("prepack", f"`precision` is {precision!r}", f"one of {known}")
    if planner.target.kind not in ("cpu", "interpreter"):
        if groups > 1:
            return weight
        from cubepy.kernels.convolution.on_gpus import prepack as prepack_on_gpus

        return prepack_on_gpus(planner, weight, w)
    p: Panels | None = None
    if not strategies.stays_matrix(planner.target, w.shape, groups, w.dtype, sums_of(w.dtype)):
        if lane_strategies.takes_lanes(planner.target, w.shape, groups, sums_of(w.dtype)):
            return weight
        if not strategies.is_blocked(w.shape, groups):
            return weight  # each result is made for itself
        if PRECISIONS[precision]:
            p = _line_packing(planner.target, w, groups)
        else:
            p = packing_of(planner.target, w, groups, is_kept=True)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        (w,) = arrays
        if p is None:
            copy_transposed(planner, matrix_of(w), planner.result(Shape(w.shape[:2], w.dtype)))
        else:
            size = p.elements(groups, w.shape[0] // groups, w.shape[1], _taps(w))
            pack_panels(planner, w, planner.result(Shape((size,), p.stored)), groups, p)

    panels = call(_PLANS, "prepack", ("weight",), (weight,), (groups, precision), make)
    return Packed(panels, w.shape, w.dtype, groups, p, precision)


def check_weight(function: str, w: Any, groups: int) -> None:
    """E601 and E602 for weights that no convolution of so many groups has."""
    if not 3 <= len(w.shape) <= 5:
        raise wrong(function, f"`weight` has shape {w.shape}; it has 3 to 5 axes")
    if groups < 1 or w.shape[0] % groups:
        raise wrong(function, f"`groups` is {groups!r}, `weight` has shape {w.shape}")
    if 0 in w.shape[2:]:
        raise wrong(function, f"`weight` has shape {w.shape}, whose window is empty")
    if w.dtype.kind is Kind.BOOL:
        raise refused(function, "weight", "has dtype bool_", "convert it")


def check_dtypes(function: str, name: str, x: DType, w: DType, biases: Sequence[Memory]) -> None:
    """E602 unless weights have the dtype of the array called `name`, and biases that or the one of
    sums."""
    if x is w and all(b.dtype in (x, sums_of(x)) for b in biases):
        return
    kinds = f"`{name}` is {x}, `weight` is {w}"
    kinds += "".join(f", `bias` is {b.dtype}" for b in biases)
    wanted = "convert them to one dtype"
    if x is w and sums_of(x) is not x:
        wanted = f"convert `bias` to {x} or {sums_of(x)}"
    raise fail("E602", function=function, reason=kinds, suggestion=wanted)


def matrix_of(w: Memory) -> Memory:
    """Weights of windows of one element as [filter, channel]."""
    return replace(w, shape=w.shape[:2], strides=w.strides[:2])


def packing_of(target: Target, w: Any, groups: int, is_kept: bool = False) -> Panels:
    """How weights of that shape and type are packed, for one call or to be kept."""
    if has_split_units(target):
        from cubepy.kernels.convolution import on_units

        found = on_units.packing_of(target, w.shape, groups, w.dtype, is_kept)
        if found is not None:
            return found
    return _line_packing(target, w, groups)


def _line_packing(target: Target, w: Any, groups: int) -> Packing:
    sums, channels = sums_of(w.dtype), w.shape[1] * groups
    return strategies.packing(target, w.shape[0], channels, groups, _taps(w), w.dtype, sums)


def _taps(w: Any) -> int:
    return prod(w.shape[2:])


def pack_panels(planner: Planner, w: Memory, panels: Memory, groups: int, p: Panels) -> None:
    """Fill the panels."""
    seen = Weights(w, None).volume
    if not isinstance(p, Packing):
        from cubepy.kernels.convolution import on_units

        on_units.pack(planner, seen, panels, p)
        return
    if seen.shape[0] > 1 and is_dense(seen, 0):
        cubes = groups * p.panels(seen.shape[0] // groups) * p.parts(seen.shape[1])
        filters_last = permuted(seen, (1, 2, 3, 4, 0))
        planner.launch(pack_filters, cubes, weight=filters_last, panels=panels, groups=groups, t=p)
        return
    last, seen = has_channels_last(seen), in_one_row(seen)
    has_taps = seen.shape[4] > 1 and seen.strides[4] == seen.dtype.itemsize
    dense = CHANNEL_AXIS if last else TAP_AXIS if has_taps else NO_AXIS
    pack_lines(planner, channels_last(seen) if last else seen, panels, groups, dense, p)


def pack_lines(
    planner: Planner, w: Memory, panels: Memory, groups: int, dense: int, p: Packing
) -> None:
    """Fill panels of lines of filters; see `pack_weights`."""
    parts = p.parts(w.shape[4 if dense == CHANNEL_AXIS else 1])
    cubes = groups * p.panels(w.shape[0] // groups) * parts
    planner.launch(pack_weights, cubes, weight=w, panels=panels, groups=groups, dense=dense, t=p)


def in_one_row(w: Memory) -> Memory:
    """Weights [filter, channel, depth, row, column] with all taps as one row of columns, where they
    follow each other in memory."""
    size, (_, _, deep, rows, columns) = w.dtype.itemsize, w.shape
    strides = columns * rows * size, columns * size, size
    if any(n > 1 and s != e for n, s, e in zip(w.shape[2:], w.strides[2:], strides, strict=True)):
        return w
    shape = (*w.shape[:2], 1, 1, deep * rows * columns)
    return replace(w, shape=shape, strides=(*w.strides[:2], 0, 0, size))
