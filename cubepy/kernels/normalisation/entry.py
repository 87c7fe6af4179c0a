"""Normalisation of rows: `softmax`, `log_softmax`, `layer_norm`, `rms_norm`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from operator import index
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import i32
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.calls.arguments import axis_or_dim, float_of, normal_axis, refused, shown, wrong
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.cubes import add
from cubepy.kernels.calls.epilogues import with_bounds
from cubepy.kernels.calls.hooks import Functions
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.elementwise.launches import launch_each
from cubepy.kernels.matmul.problem import expanded
from cubepy.kernels.normalisation.kernel import normalise_rows, soften_columns
from cubepy.kernels.normalisation.launches import Norm, launch_norm
from cubepy.kernels.normalisation.operands import check_floats, check_weights, computed_in
from cubepy.kernels.normalisation.passing import begin_passing, normalise_passing
from cubepy.kernels.normalisation.problem import Normalisation, Places, RowTiling
from cubepy.kernels.normalisation.strategies import column_tilings, passing, row_tilings
from cubepy.kernels.normalisation.tall import is_tall, launch_tall_columns

_PLANS = Plans()


def softmax(
    x: Any,
    axis: int = -1,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """exp(x) over its sum along an axis, as `torch.softmax`.

    `x`: floats of any shape and strides; `dim` is the same as `axis`. Gives an array of the
    library and dtype of `x`, on its device, or `out`, which may be `x`. f16 and bf16 are computed
    in f32 and rounded once. The maximum is subtracted before, so that nothing overflows; a row of
    which all is -inf is NaN, and so is one with +inf or NaN. Raises `LaunchError` for an axis that
    is not there, `LaunchTypeError` for what is no array of floats.

    `prologue`: a cube function f(v) that lines of elements go through first, in the type that they
    are computed in. `epilogue`: a cube function `f(v, index, *extras)`, or `(f, *extras)` with
    further arrays, for lines of results; `index` is that of the first element, and lines run along
    the axis.
    """
    return _soften("softmax", x, axis, Functions.of(prologue, epilogue), out, dim)


def log_softmax(
    x: Any,
    axis: int = -1,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """The logarithm of `softmax`, as `torch.log_softmax`: x - max - log(sum(exp(x - max)))."""
    return _soften("log_softmax", x, axis, Functions.of(prologue, epilogue), out, dim)


def _soften(function: str, x: Any, axis: Any, functions: Functions, out: Any, dim: Any) -> Any:
    if dim is not None:
        axis = axis_or_dim(function, axis, dim, -1)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        x, extras = arrays[0], tuple(arrays[1:])
        check_floats(function, "x", x)
        which = normal_axis(function, max(1, len(x.shape)), axis)
        result = planner.joined(planner.result(Shape(x.shape, x.dtype)), (x,))
        axes = (which,) if x.shape else ()
        _launch(planner, x, result, axes, (), (), 0.0, functions, extras)

    names, arrays = ("x", *functions.names), (x, *functions.arrays)
    return call(_PLANS, function, names, arrays, (axis, functions.key), make, out)


def layer_norm(
    x: Any,
    normalized_shape: int | Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes, as torch's `layer_norm`.

    `x`: floats of any shape and strides whose last axes are `normalized_shape`; `weight` and
    `bias`: None, or arrays of that shape and the dtype of `x`, or the one it is computed in. Gives
    an array of the library and dtype of `x`, on its device, or `out`, which may be `x`. f16 and
    bf16 are computed in f32 and rounded once; the variance is the mean squared distance from the
    mean, computed before, so that nothing cancels. Raises `LaunchError` for shapes that do not fit,
    `LaunchTypeError` for other dtypes.

    `residual`: None, or an array of the shape and dtype of `x`. Then x + residual, rounded to that
    dtype, is what is normalised, and the function gives the pair of the result and this sum, or
    fills `out`, a pair, each of which may be `x` or `residual`.

    `prologue`, `epilogue`: as for `softmax`; lines run along the densest of the last axes.
    """
    shape = _shape("layer_norm", normalized_shape)
    functions = Functions.of(prologue, epilogue)
    return _normalise("layer_norm", x, residual, shape, weight, bias, eps, functions, out)


def rms_norm(
    x: Any,
    normalized_shape: int | Sequence[int],
    weight: Any = None,
    eps: float | None = None,
    *,
    residual: Any = None,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """x / sqrt(mean(x * x) + eps) * weight over the last axes, as torch's `rms_norm`.

    See `layer_norm`; `eps` None is the distance from 1 to the next number of the dtype that it is
    computed in. `residual`: as for `layer_norm`.
    """
    shape = _shape("rms_norm", normalized_shape)
    functions = Functions.of(prologue, epilogue)
    return _normalise("rms_norm", x, residual, shape, weight, None, eps, functions, out)


def _shape(function: str, given: Any) -> tuple[int, ...]:
    if type(given) is int:
        return (given,)
    try:
        values = given if isinstance(given, Sequence) else (given,)
        return tuple(index(n) for n in values)
    except TypeError:
        what = f"is {shown(given)}; it takes integers"
        raise refused(function, "normalized_shape", what, "") from None


def _normalise(
    function: str,
    x: Any,
    residual: Any,
    shape: tuple[int, ...],
    weight: Any,
    bias: Any,
    eps: Any,
    functions: Functions,
    out: Any,
) -> Any:
    has = residual is not None, weight is not None, bias is not None
    eps = None if eps is None else float_of(function, "eps", eps)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        x, rest = arrays[0], iter(arrays[1:])
        check_floats(function, "x", x)
        first = len(x.shape) - len(shape)
        if not shape or first < 0 or x.shape[first:] != shape:
            raise wrong(function, f"`x` has shape {x.shape}, whose last axes are not {shape}")
        summands = [x, _residual(function, x, next(rest))] if has[0] else [x]
        x, *residual = read = planner.merged(summands)
        weights = _weights(function, "weight", x, shape, next(rest) if has[1] else None)
        biases = _weights(function, "bias", x, shape, next(rest) if has[2] else None)
        result = planner.joined(planner.result(Shape(x.shape, x.dtype)), read)
        added = [*residual, *(_sum(planner, x, read, result) for _ in residual)]
        axes = tuple(range(first, len(x.shape)))
        least = 2.0**-23 if x.dtype.bits <= 32 else 2.0**-52
        number = least if eps is None else eps
        extras = tuple(rest)
        _launch(planner, x, result, axes, weights, biases, number, functions, extras, added)

    names = ("x", "residual", "weight", "bias", *functions.names)
    arrays = (x, residual, weight, bias, *functions.arrays)
    key = (eps, *has, functions.key, *shape)
    return call(_PLANS, function, names, arrays, key, make, out, 1 + has[0], optional=names[1:4])


def _residual(function: str, x: Memory, given: Memory) -> Memory:
    """What is added to `x`; E601 unless it has its shape and dtype."""
    if given.shape != x.shape or given.dtype is not x.dtype:
        what = f"`residual` is {given.dtype} of shape {given.shape}, but `x` is {x.dtype} of"
        raise wrong(function, f"{what} {x.shape}")
    return given


def _sum(planner: Planner, x: Memory, read: Sequence[Memory], other: Memory) -> Memory:
    """The result for the sum of `x` and the residual; E601 if it is the `other` result."""
    found = planner.joined(planner.result(Shape(x.shape, x.dtype)), read)
    if found.address == other.address and 0 not in x.shape:
        raise wrong(planner.function, "`out` is one array twice", "pass two arrays")
    return found


def _weights(
    function: str, name: str, x: Memory, shape: tuple[int, ...], given: Memory | None
) -> tuple[Memory, ...]:
    """Weights along a row, if there are any, as one axis."""
    if given is None:
        return ()
    check_weights(function, name, x, shape, given, "`normalized_shape`")
    return (given,)


def _launch(
    planner: Planner,
    x: Memory,
    out: Memory,
    axes: tuple[int, ...],
    weight: tuple[Memory, ...],
    bias: tuple[Memory, ...],
    eps: float,
    functions: Functions,
    extras: tuple[Memory, ...],
    added: Sequence[Memory] = (),
) -> None:
    """Rows as the last axis of views; across memory, for softmax, where columns are dense."""
    functions.check(planner.function)
    if not prod(x.shape):
        return
    extras = with_bounds(functions.epilogue, extras, out.shape)
    has_index = functions.epilogue is not None
    operands = (x, out, *added, *weight, *bias)
    row = _row(operands, axes)
    if row is None or (has_index and len(axes) != 1 and not planner.function.endswith("softmax")):
        x = _added(planner, x, added)
        _launch_slabs(planner, x, out, axes, weight, bias, eps, functions, extras)
        return
    others = [k for k in range(len(x.shape)) if k not in axes]
    whole = operands[: 2 + len(added)]
    kept = [Axis(x.shape[k], tuple(m.strides[k] for m in whole)) for k in others]
    rows = kept if has_index else merged(kept)
    one = [Axis(row.extent, row.strides[: len(whole)])]
    op = Normalisation(planner.function, computed_in(x.dtype), functions.prologue)
    if op.is_softmax and not has_index and _is_across(rows, row, x.dtype.itemsize):
        order = [*rows[:-1], *one, rows[-1]]
        _launch_columns(planner, op, seen(x, order), seen(out, order, 1))
        return
    views = [seen(m, [*rows, *one], k) for k, m in enumerate(whole)]
    along = [seen(m, [row], k + len(whole)) for k, m in enumerate((*weight, *bias))]
    walked = [*others, *axes]
    terms = tuple(((walked.index(k), 1),) for k in range(len(walked))) if has_index else ()
    rest = {
        "weight": tuple(along[: len(weight)]),
        "bias": tuple(along[len(weight) :]),
        "extras": extras,
        "eps": eps,
        "epilogue": functions.epilogue,
        "places": Places(terms),
        "op": op,
    }
    _launch_rows(planner, op, views, len(along), rest)


def _launch_rows(
    planner: Planner, op: Normalisation, views: list[Memory], weights: int, rest: dict[str, Any]
) -> None:
    """Rows that pass, or that cubes take in bands. `views`: what is normalised and the result, and
    what is added and the sum, if there is something."""
    x, out, *added = views
    t = None if added else passing(planner.target, op, x, out, weights)
    if t is not None:
        grid = Fixed((planner.target.multiprocessors, 1, 1), (t.units, 1, 1))
        ticket = planner.scratch((1,), i32)
        planner.launch(begin_passing, 1, ticket=ticket)
        planner.launch(normalise_passing, grid, x=x, out=out, ticket=ticket, t=t, **rest)
        return
    count = prod(x.shape[:-1])
    shared = 0 if added else weights  # rows with a residual are held
    ways = row_tilings(planner.target, op, views, x.shape[-1], count, shared)
    tiling = planner.pick_among("normalisation", (op.key, *map(memory_key, views)), ways)
    if added and not tiling.held:
        x, added = _added(planner, x, added), []
    planner.launch(
        normalise_rows,
        Over(-(-count // tiling.band), "cube", tiling.units),
        x=x,
        added=tuple(added),
        out=out,
        tiling=tiling,
        **rest,
    )


def _added(planner: Planner, x: Memory, added: Sequence[Memory]) -> Memory:
    """What is normalised: `x`, or its sum with the residual, which a launch of its own makes."""
    if not added:
        return x
    launch_each(planner, add, (x, added[0]), added[1])
    return added[1]


def _is_across(rows: list[Axis], row: Axis, size: int) -> bool:
    """Whether columns lie side by side, and the elements of a row do not."""
    return bool(rows) and row.strides[0] != size and rows[-1].strides[0] == size


def _column_units(x: Memory, tiling: RowTiling) -> int:
    """Units that have whole columns, some lines of them each."""
    return prod(x.shape[:-2]) * -(-x.shape[-1] // (tiling.line * tiling.unroll))


def _launch_columns(planner: Planner, op: Normalisation, x: Memory, out: Memory) -> None:
    ways = column_tilings(planner.target, op, x, out)
    if is_tall(planner.target, x.shape[-2], _column_units(x, ways[0])):
        launch_tall_columns(planner, op, x, out)
        return
    tiling = planner.pick_among("normalisation", (op.key, memory_key(x), memory_key(out)), ways)
    units = _column_units(x, tiling)
    planner.launch(
        soften_columns,
        Over(-(-units // tiling.units), "cube", tiling.units),
        x=x,
        out=out,
        op=op,
        tiling=tiling,
    )


def _launch_slabs(
    planner: Planner,
    x: Memory,
    out: Memory,
    axes: tuple[int, ...],
    weight: tuple[Memory, ...],
    bias: tuple[Memory, ...],
    eps: float,
    functions: Functions,
    extras: tuple[Memory, ...],
) -> None:
    """Axes that do not follow each other in memory."""
    weights, biases = (tuple(expanded(m, x.shape) for m in given) for given in (weight, bias))
    centred = planner.function == "layer_norm"
    dtype = computed_in(x.dtype)
    places = Places(tuple(((k, 1),) for k in range(len(x.shape))))
    after = functions.epilogue, extras, functions.prologue
    norm = Norm(x, out, weights, biases, dtype, eps, places, *after, is_centred=centred)
    launch_norm(planner, norm, axes)


def _row(operands: Sequence[Memory], axes: tuple[int, ...]) -> Axis | None:
    """The normalised axes as one; None where they do not lie behind each other."""
    own = [
        Axis(operands[0].shape[k], tuple(_stride(m, k, len(operands[0].shape)) for m in operands))
        for k in axes
    ]
    found = Axis(1, tuple(m.dtype.itemsize for m in operands))
    for axis in own:
        if axis.extent == 1:
            continue
        if found.extent == 1:
            found = axis
        elif axis.ends_on(found):
            found = replace(axis, extent=found.extent * axis.extent)
        else:
            return None
    return found


def _stride(m: Memory, axis: int, rank: int) -> int:
    """The stride of an axis of `x`, which weights have counted from the end."""
    return m.strides[axis - rank]
