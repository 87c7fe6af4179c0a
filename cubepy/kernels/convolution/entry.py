"""Convolutions: `conv1d`, `conv2d`, `conv3d`, and weights that are packed once: `prepack`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.config import get
from cubepy.errors import fail
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import DType, Kind
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import frozen, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape, library_of, refused
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.convolution import strategies, waves
from cubepy.kernels.convolution.blocks import Bands, Packing, convolve_bands, pack_weights
from cubepy.kernels.convolution.copies import copy_rows
from cubepy.kernels.convolution.each import convolve_each
from cubepy.kernels.convolution.gathered import copy_taps, has_taps, launch_gathered
from cubepy.kernels.convolution.problem import (
    Problem,
    Triple,
    Window,
    make_window,
    result_extents,
)
from cubepy.kernels.convolution.variants import others, problem_key
from cubepy.kernels.convolution.winograd import Basis, change_weights, convolve_squares
from cubepy.kernels.matmul.entry import multiply
from cubepy.kernels.matmul.problem import BOX_UNIT, Product, result_of, sums_of, turned
from cubepy.record import dataclass

_PLANS = Plans()
PRECISIONS = {None: 0, "winograd2x2": 2, "winograd4x4": 4}
"""What `prepack` takes as `precision`, and the extent of squares that it allows."""
LAYOUTS = {1: ("NCL", "NLC", "NCHW", "NHWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC", "NCHW")}


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights as the kernels of one device read them; `shape` and `dtype` are the weights' own.

    Without a `packing` they are a matrix [channel, filter].
    """

    panels: Any
    shape: tuple[int, ...]
    dtype: DType
    groups: int
    packing: Packing | Basis | None


def prepack(weight: Any, *, groups: int = 1, precision: str | None = None) -> Packed | Any:
    """The weights of a convolution in the order that its kernels read them, for many calls.

    `weight`: [filters, channels / groups, ...], 1 to 3 further axes. Gives what `conv1d`, `conv2d`
    and `conv3d` take for it, with the same `groups`; a copy, which does not follow later changes.
    Where the device's kernels read weights as they are, that is `weight` itself; Hopper's tensor
    cores read an array of the same shape with the channels last in memory.

    `precision`: "winograd2x2" or "winograd4x4" allow Winograd's F(2x2, 3x3) or F(4x4, 3x3), which
    multiply 2.25 or 4 times less. CPUs use them for floats [filters, channels, 3, 3] of one group;
    such weights then serve strides and dilations of 1 alone. The error of a result no longer scales
    with the products that it sums, but with what lies nearby: it is at most 16 (channels + 8)
    2**-24, or 861 (channels + 14) 2**-24, times the sum over channels of the largest absolute
    element of its square's window by the absolute sum of the filter's weights. An infinity or NaN
    may make NaN of all results of the squares that depend on it, and elements beyond a 4th (a
    100th) of the largest number may overflow. docs/accuracy.md derives this.
    """
    library, seen = library_of("prepack", "weight", weight)
    planner = Planner("prepack", library)
    w = planner.array("weight", seen)
    _check_weight("prepack", w, groups)
    if precision not in tuple(PRECISIONS):
        known = ", ".join(map(repr, PRECISIONS))
        raise wrong("prepack", f"`precision` is {precision!r}", f"one of {known}")
    if planner.target.kind not in ("cpu", "interpreter"):
        return _with_channels_last(weight, planner, w) if groups == 1 else weight
    size, sums = PRECISIONS[precision], sums_of(w.dtype)
    p: Packing | Basis | None = None
    if size and strategies.takes_squares(w.shape, groups, sums):
        p = strategies.basis(planner.target, size, w.shape[0], sums)
    elif not _is_matrix(w, groups):
        if not strategies.is_blocked(planner.target, w.shape, groups, sums):
            return weight  # each result is made for itself
        p = _packing(planner, w, groups)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        (w,) = arrays
        if p is None:
            panels = planner.result(Shape((w.shape[1], w.shape[0]), w.dtype))
            copy_dense(planner, turned(_matrix(w)), panels)
        elif isinstance(p, Basis):
            size = p.elements(w.shape[0], w.shape[1])
            panels = planner.result(Shape((size,), p.dtype))
            units = p.panels(w.shape[0]) * p.step * w.shape[1]
            seen = Weights(w, None).volume
            planner.launch(change_weights, Over(units), weight=seen, panels=panels, t=p)
        else:
            size = p.elements(groups, w.shape[0] // groups, w.shape[1], _taps(w))
            _pack(planner, w, planner.result(Shape((size,), p.dtype)), groups, p)

    panels = call(_PLANS, "prepack", ("weight",), (weight,), (groups, precision), make)
    return Packed(panels, w.shape, w.dtype, groups, p)


def _with_channels_last(weight: Any, planner: Planner, w: Memory) -> Any:
    """Weights as tensor cores read them, if there are any and these are read otherwise."""
    seen = Weights(w, None).volume
    if not waves.has_tensor_cores(planner.target, w.shape[:2], w.dtype) or has_taps(seen):
        return weight

    def make(planner: Planner, arrays: list[Memory]) -> None:
        (w,) = arrays
        order = (0, *range(2, len(w.shape)), 1)
        result = planner.result(Shape(w.shape, w.dtype, order))
        copy_taps(planner, Weights(w, None).volume, Weights(result, None).volume)

    return call(_PLANS, "prepack", ("weight",), (weight,), "channels last", make)


def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCL",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """As `conv2d` with one axis less; `layout` is "NCL" or "NLC"."""
    options = (stride, padding, dilation, groups, layout)
    return _convolve("conv1d", 1, x, weight, bias, options, epilogue, out)


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCHW",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """The cross-correlation of images with filters, as `torch.nn.functional.conv2d`.

    `x`: [n, channels, rows, columns], or without n; "NHWC" in `layout` means that channels are the
    last axis, of `x` and the result. `weight`: [filters, channels / groups, rows, columns] in both
    layouts, or what `prepack` gave; `bias`: one number for each filter. `stride`, `padding`,
    `dilation`: ints, or one for each axis; the padding may also be "valid", "same", or a pair
    (before, after) for each axis. `epilogue`: as for `matmul`; its index is that of the first
    element in [n, channel, depth, row, column], and a line runs along channels where these lie
    densely in the result, else along columns. Gives an array of the library of `x`, with channels
    last in memory where `x` has them so; or fills `out`.

    f16 and bf16 are added in f32 and rounded once. The error of a sum is at most its length times
    2**-24 (f64: 2**-53) times the sum of absolute products. Raises `LaunchError` for shapes and
    parameters that do not fit, `LaunchTypeError` for dtypes that do not.
    """
    options = (stride, padding, dilation, groups, layout)
    return _convolve("conv2d", 2, x, weight, bias, options, epilogue, out)


def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCDHW",
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """As `conv2d` with one axis more; `layout` is "NCDHW" or "NDHWC"."""
    options = (stride, padding, dilation, groups, layout)
    return _convolve("conv3d", 3, x, weight, bias, options, epilogue, out)


def _convolve(
    function: str,
    axes: int,
    x: Any,
    weight: Any,
    bias: Any,
    options: tuple[Any, ...],
    epilogue: Any,
    out: Any,
) -> Any:
    packed = weight if isinstance(weight, Packed) else None
    after, *extras = epilogue if isinstance(epilogue, tuple) else (epilogue,)
    names = ("x", "weight", "bias", *(f"epilogue[{k + 1}]" for k in range(len(extras))))

    def make(planner: Planner, arrays: list[Memory]) -> None:
        biases = tuple(arrays[2:3]) if bias is not None else ()
        rest = tuple(arrays[2 + len(biases) :])
        weights = Weights(arrays[1], packed)
        _plan(planner, axes, arrays[0], weights, biases, options, after, rest)

    stride, padding, dilation, groups, layout = options
    about = None if packed is None else (packed.shape, packed.dtype, packed.groups, packed.packing)
    key = (frozen(stride), frozen(padding), frozen(dilation), groups, layout, about)
    parameters = (key, None if after is None else comptime_key(after))
    held = weight if packed is None else packed.panels
    return call(_PLANS, function, names, (x, held, bias, *extras), parameters, make, out)


# What is done for one signature


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a call, as they are or packed."""

    memory: Memory
    packed: Packed | None

    @property
    def packing(self) -> Packing | Basis | None:
        """How panels are packed; None for weights that are not in panels."""
        return None if self.packed is None else self.packed.packing

    @property
    def volume(self) -> Memory:
        """Weights that are not in panels, as [filter, channel, depth, row, column]."""
        w, size = self.memory, self.memory.dtype.itemsize
        if self.packed is not None:
            shape, strides = self.shape[:2], (size, self.shape[0] * size)
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


def _check_weight(function: str, w: Any, groups: int) -> None:
    if not 3 <= len(w.shape) <= 5:
        raise wrong(function, f"`weight` has shape {w.shape}; it has 3 to 5 axes")
    if not isinstance(groups, int) or groups < 1 or w.shape[0] % groups:
        raise wrong(function, f"`groups` is {groups!r}, `weight` has shape {w.shape}")
    if 0 in w.shape[2:]:
        raise wrong(function, f"`weight` has shape {w.shape}, whose window is empty")
    if w.dtype.kind is Kind.BOOL:
        raise refused(function, "weight", "has dtype bool_", "convert it")


def _plan(
    planner: Planner,
    axes: int,
    x: Memory,
    weights: Weights,
    biases: tuple[Memory, ...],
    options: tuple[Any, ...],
    epilogue: Callable[..., Any] | None,
    extras: tuple[Memory, ...],
) -> None:
    name = planner.function
    stride, padding, dilation, groups, layout = options
    _check_weight(name, weights, groups)
    if layout not in LAYOUTS[axes]:
        raise wrong(name, f"`layout` is {layout!r}", f"one of {', '.join(LAYOUTS[axes][:2])}")
    channels_last = layout.endswith("C")
    _check(name, axes, x, weights, biases, groups, channels_last)
    window = make_window(name, axes, weights.shape[2:], stride, padding, dilation)
    seen = as_volumes(x, axes, channels_last)
    results = result_extents(name, window, triple(seen.shape[2:]))
    filters = weights.shape[0]
    inner = results[3 - axes :]
    batch = x.shape[: len(x.shape) - axes - 1]
    extents = (*batch, *inner, filters) if channels_last else (*batch, filters, *inner)
    last = has_channels_last(seen)
    order = None
    if last and not channels_last:
        at = len(batch)
        order = (*(k for k in range(len(extents)) if k != at), at)
    result = planner.result(Shape(extents, result_of(x.dtype), order))
    if 0 in extents:
        return
    out = as_volumes(result, axes, channels_last)
    problem = Problem(
        window,
        seen.shape[0],
        seen.shape[1],
        filters,
        groups,
        triple(seen.shape[2:]),
        results,
        sums_of(x.dtype),
        last,
        has_channels_last(out),
        last and (seen.shape[4] == 1 or seen.strides[4] == seen.shape[1] * x.dtype.itemsize),
    )
    call = Convolution(problem, seen, weights, out, biases, epilogue, extras)
    launch_convolution(planner, call)


def triple(values: tuple[int, ...]) -> Triple:
    """Extents of depth, rows and columns."""
    a, b, c = values
    return a, b, c


def _check(
    name: str,
    axes: int,
    x: Memory,
    weights: Weights,
    biases: tuple[Memory, ...],
    groups: int,
    channels_last: bool,
) -> None:
    """E601 and E602 for arguments that do not fit each other; both are named with their shapes."""
    w = weights.shape
    if len(x.shape) not in (axes + 1, axes + 2) or len(w) != axes + 2:
        reason = f"`x` has shape {x.shape} and `weight` {w}"
        raise wrong(name, reason, f"they have {axes + 1} or {axes + 2}, and {axes + 2} axes")
    channels = x.shape[-1] if channels_last else x.shape[-axes - 1]
    if channels != w[1] * groups:
        reason = f"`x` has shape {x.shape} and `weight` {w}: {channels} channels in {groups} groups"
        raise wrong(name, reason, f"`weight` takes {w[1] * groups} channels")
    if x.dtype is not weights.dtype or any(b.dtype is not x.dtype for b in biases):
        kinds = ", ".join(f"`{n}` is {m.dtype}" for n, m in (("x", x), ("weight", weights)))
        kinds += "".join(f", `bias` is {b.dtype}" for b in biases)
        raise fail("E602", function=name, reason=kinds, suggestion="convert them to one dtype")
    for bias in biases:
        if bias.shape != w[:1]:
            raise wrong(name, f"`bias` has shape {bias.shape}, `weight` {w}", "one for each filter")
    if weights.packed is not None and weights.packed.groups != groups:
        raise wrong(name, f"`weight` was packed for {weights.packed.groups} groups, not {groups}")


def as_volumes(x: Memory, axes: int, channels_last: bool) -> Memory:
    """An array as [n, channel, depth, row, column]."""
    shape, strides = x.shape, x.strides
    if len(shape) == axes + 1:
        shape, strides = (1, *shape), (0, *strides)
    if channels_last:
        shape = (shape[0], shape[-1], *shape[1:-1])
        strides = (strides[0], strides[-1], *strides[1:-1])
    missing = 3 - axes
    shape = (*shape[:2], *[1] * missing, *shape[2:])
    return replace(x, shape=shape, strides=(*strides[:2], *[0] * missing, *strides[2:]))


def has_channels_last(x: Memory) -> bool:
    """Whether channels, and not columns, lie densely in memory."""
    size = x.dtype.itemsize
    dense = x.strides[1] == size or x.shape[1] == 1
    return dense and (x.strides[4] != size or x.shape[4] == 1) and x.shape[1] > 1


def _channels_last(x: Memory) -> Memory:
    order = (0, 2, 3, 4, 1)
    return replace(
        x, shape=tuple(x.shape[k] for k in order), strides=tuple(x.strides[k] for k in order)
    )


@dataclass(frozen=True, slots=True)
class Convolution:
    """The operands of one convolution; `x` and `out` are [n, channel, depth, row, column]."""

    problem: Problem
    x: Memory
    weights: Weights
    out: Memory
    biases: tuple[Memory, ...]
    epilogue: Callable[..., Any] | None
    extras: tuple[Memory, ...]


def launch_convolution(planner: Planner, c: Convolution) -> None:
    """Products of matrices, bands, or each result for itself."""
    problem = c.problem
    tilings = [] if _has_matrices(c) else waves.tilings(planner.target, problem, c.x.dtype)
    if tilings and c.weights.packing is None:
        key = (*problem_key(problem), c.x.dtype)
        t = planner.pick_among("convolution", key, waves.varied(tilings))
        w = c.weights.volume
        launch_gathered(planner, problem, t, c.x, w, c.out, c.biases, c.extras, c.epilogue)
    elif isinstance(c.weights.packing, Basis):
        _launch_squares(planner, c, c.weights.packing)
    elif c.weights.packing is None and _is_product(c):
        _launch_product(planner, replace(c, x=_points(planner, c)))
    elif strategies.is_blocked(planner.target, c.weights.shape, problem.groups, problem.sums):
        _launch_bands(planner, c)
    else:
        launch_each(planner, c)


def _is_product(c: Convolution) -> bool:
    plain = c.problem.window.is_point and c.problem.groups == 1 and c.epilogue is None
    return plain and _is_flat(c.out)


def _has_matrices(c: Convolution) -> bool:
    """Whether it is a product of matrices that tensor maps describe, dense along pixels."""
    rows = prod(c.problem.results) * c.x.dtype.itemsize % BOX_UNIT == 0
    dense = not (c.problem.has_channels_last or c.problem.puts_channels_last)
    return rows and dense and max(c.problem.window.stride) == 1 and _is_product(c)


def _points(planner: Planner, c: Convolution) -> Memory:
    """The elements that windows of one element see, at one distance; a copy where there is none."""
    x, steps = c.x, c.problem.window.stride
    shape = (*x.shape[:2], *c.problem.results)
    strides = tuple(s * step for s, step in zip(x.strides[2:], steps, strict=True))
    seen = replace(x, shape=shape, strides=(*x.strides[:2], *strides))
    if _is_flat(seen):
        return seen
    if not c.problem.has_channels_last:
        made = planner.scratch(shape, x.dtype)
        copy_dense(planner, seen, made)
        return made
    last = _channels_last(seen)
    made = planner.scratch(last.shape, x.dtype)
    copy_dense(planner, last, made)
    order = (0, 4, 1, 2, 3)
    return replace(made, shape=shape, strides=tuple(made.strides[k] for k in order))


def copy_dense(planner: Planner, x: Memory, out: Memory) -> None:
    """A copy along the last axis, row by row."""
    line = max(1, planner.target.line_bytes // x.dtype.itemsize)
    planner.launch(copy_rows, prod(x.shape[:-1]), x=x, out=out, line=line)


def _is_flat(x: Memory) -> bool:
    """Whether all pixels lie at one distance."""
    step, steps = None, zip(reversed(x.shape[2:]), reversed(x.strides[2:]), strict=True)
    for extent, stride in steps:
        if extent > 1:
            if step is not None and stride != step:
                return False
            step = stride * extent
    return True


def _launch_product(planner: Planner, c: Convolution) -> None:
    """A window of one element: pixels by channels times channels by filters, or turned."""
    w = _matrix(c.weights.volume)
    w = replace(w, shape=(c.problem.batch, *w.shape), strides=(0, *w.strides))
    x, out = _flat(c.x), _flat(c.out)
    biases = tuple(replace(b, shape=out.shape, strides=(0, b.strides[0], 0)) for b in c.biases)
    if c.problem.puts_channels_last:
        turned_biases = tuple(map(turned, biases))
        product = Product(turned(x), turned(w), turned(out), turned_biases, None, ())
    else:
        product = Product(w, x, out, biases, None, ())
    multiply(planner, product)


def _matrix(w: Memory) -> Memory:
    """Weights of windows of one element as [filter, channel]."""
    return replace(w, shape=w.shape[:2], strides=w.strides[:2])


def _is_matrix(w: Memory, groups: int) -> bool:
    return groups == 1 and _taps(w) == 1


def _flat(x: Memory) -> Memory:
    """[n, channel, pixel]"""
    count = x.shape[2] * x.shape[3] * x.shape[4]
    steps = [s for n, s in zip(x.shape[2:], x.strides[2:], strict=True) if n > 1]
    step = min(steps) if steps else x.dtype.itemsize
    return replace(x, shape=(*x.shape[:2], count), strides=(*x.strides[:2], step))


def _packing(planner: Planner, w: Any, groups: int) -> Packing:
    taps = _taps(w)
    sums = sums_of(w.dtype)
    target = planner.target
    return strategies.packing(target, w.shape[0], w.shape[1] * groups, groups, taps, sums)


def _taps(w: Any) -> int:
    return prod(w.shape[2:])


def _pack(planner: Planner, w: Memory, panels: Memory, groups: int, p: Packing) -> None:
    cubes = groups * p.panels(w.shape[0] // groups) * p.parts(w.shape[1])
    seen = Weights(w, None).volume
    planner.launch(pack_weights, cubes, weight=seen, panels=panels, groups=groups, t=p)


def _launch_bands(planner: Planner, c: Convolution) -> None:
    problem, weights, p = c.problem, c.weights, c.weights.packing
    panels = weights.memory
    if not isinstance(p, Packing):
        p = _packing(planner, weights, problem.groups)
        size = p.elements(
            problem.groups, problem.group_filters, problem.group_channels, problem.window.taps
        )
        panels = planner.scratch((size,), p.dtype)
        _pack(planner, weights.volume, panels, problem.groups, p)
    rule = strategies.bands(planner.target, problem, p)
    t = planner.pick(
        "convolution",
        problem_key(problem),
        rule,
        lambda: others(rule, problem, get("scratch_bytes")),
    )
    shares = -(-p.panels(problem.group_filters) // t.panels)
    bands = -(-problem.results[1] // t.band)
    planner.launch(
        convolve_bands,
        problem.batch * problem.results[0] * bands * problem.groups * shares,
        x=_source(c.x, t),
        panels=panels,
        out=_channels_last(c.out) if t.puts_channels_last else c.out,
        biases=c.biases,
        extras=c.extras,
        groups=problem.groups,
        band=t.band,
        panels_each=t.panels,
        window=problem.window,
        epilogue=c.epilogue,
        t=t.compiled,
    )


def _launch_squares(planner: Planner, c: Convolution, basis: Basis) -> None:
    problem = c.problem
    window = problem.window
    if window.stride != (1, 1, 1) or window.dilation != (1, 1, 1):
        reason = "`weight` was packed for Winograd's form; `stride` or `dilation` is not 1"
        raise wrong(planner.function, reason, "pack it without `precision`")
    t = strategies.squares(planner.target, problem, basis)
    shares = -(-basis.panels(problem.filters) // t.panels)
    bands, stripes = -(-problem.results[1] // t.bands.band), -(-problem.results[2] // t.width)
    planner.launch(
        convolve_squares,
        problem.batch * bands * stripes * shares,
        x=_source(c.x, t.bands),
        panels=c.weights.memory,
        out=_channels_last(c.out) if t.bands.puts_channels_last else c.out,
        biases=c.biases,
        extras=c.extras,
        panels_each=t.panels,
        window=window,
        epilogue=c.epilogue,
        t=t.compiled,
    )


def _source(x: Memory, t: Bands) -> Memory:
    """The array in the order that the kernel reads."""
    x = _channels_last(x) if t.has_channels_last else x
    if not t.has_whole_rows:
        return x
    shape = (*x.shape[:3], x.shape[3] * x.shape[4])
    return replace(x, shape=shape, strides=(*x.strides[:3], x.strides[4]))


def launch_each(planner: Planner, c: Convolution) -> None:
    """A unit for each result."""
    t = strategies.each(c.problem)
    planner.launch(
        convolve_each,
        Over(prod(c.out.shape), "unit", t.units),
        x=c.x,
        weight=c.weights.volume,
        out=c.out,
        biases=c.biases,
        extras=c.extras,
        groups=c.problem.groups,
        window=c.problem.window,
        epilogue=c.epilogue,
        t=t,
    )


__all__ = ["Packed", "Window", "conv1d", "conv2d", "conv3d", "prepack"]
