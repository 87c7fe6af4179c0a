"""Reductions over any axes: sums and products, extremes, means, norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from math import prod as product
from typing import Any

from cubepy.array.memory import Memory
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import DType, bool_, u8
from cubepy.kernels.calls.arguments import axis_or_dim, normal_axes, number_of, refused, wrong
from cubepy.kernels.calls.axes import Axis
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.hooks import check_function, check_prologue
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.reduction import problem
from cubepy.kernels.reduction.launches import Reducer
from cubepy.kernels.reduction.problem import Reduction, real_type, running_type
from cubepy.kernels.reduction.spreads import launch_spread
from cubepy.record import dataclass

_PLANS = Plans()


def sum(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """The sum over some axes, or all; as `numpy.sum`.

    `x`: any shape, strides and dtype but 8-bit floats; `axis`: an int, a tuple of ints or None for
    all; `dim` is the same. Sums of bools and integers are i64, of unsigned integers u64, and wrap;
    others keep the dtype. Gives an array of the library of `x`, on its device (a NumPy scalar where
    no axis is left), or `out`, of exactly this dtype and shape. The sum of nothing is 0.

    `prologue`: a cube function f(v) that elements go through first, `epilogue`: one that results go
    through, both in lines of the type that is added in, or single numbers of it; dtypes stay.

    f16 and bf16 are added in f32 and rounded once. Floats are added by halves of short blocks,
    whose sums are added with their rounding errors (TwoSum: Knuth, TAOCP 4.2.2), so that the error
    is that of a short sum whatever the length; on GPUs each unit adds a share, and the shares are
    added by halves. Raises `LaunchError` for axes that are not there and for a tensor that requires
    grad outside of `torch.no_grad()`; `LaunchTypeError` for what is no array.
    """
    functions = prologue, epilogue
    return _reduce("sum", x, axis, keepdims, out, dim, functions=functions)


def prod(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """The product over some axes, or all; as `numpy.prod`.

    Parameters, results and errors are those of `sum`; the product of nothing is 1.
    """
    functions = prologue, epilogue
    return _reduce("prod", x, axis, keepdims, out, dim, functions=functions)


def max(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """The maximum over some axes, or all; as `numpy.max`.

    Parameters and results are those of `sum`; the dtype is that of `x`. Exact; NaN if any element
    is NaN; which of equal zeros it is, is not specified. Raises `LaunchError` for the maximum of
    nothing, and as `sum` does.
    """
    functions = prologue, epilogue
    return _reduce("max", x, axis, keepdims, out, dim, functions=functions)


def min(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """The minimum over some axes, or all; as `numpy.min`. See `max`."""
    functions = prologue, epilogue
    return _reduce("min", x, axis, keepdims, out, dim, functions=functions)


def any(
    x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None, dim: Any = None
) -> Any:
    """Whether an element is not zero, over some axes, or all; as `numpy.any`.

    Parameters are those of `sum`; gives bools. NaN is not zero; of nothing it is False.
    """
    return _reduce("any", x, axis, keepdims, out, dim)


def all(
    x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None, dim: Any = None
) -> Any:
    """Whether no element is zero, over some axes, or all; as `numpy.all`. See `any`."""
    return _reduce("all", x, axis, keepdims, out, dim)


def mean(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """The mean over some axes, or all; as `numpy.mean`.

    Parameters and errors are those of `sum`. Floats keep their dtype, integers give f64 (which not
    every device has). The sum is rounded as by `sum`, in f32 for narrow floats, and divided once.
    The mean of nothing is NaN.
    """
    functions = prologue, epilogue
    return _reduce("mean", x, axis, keepdims, out, dim, functions=functions)


def var(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    correction: int = 0,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
    ddof: int | None = None,
) -> Any:
    """The variance over some axes, or all; as `numpy.var`; `ddof` is the same as `correction`.

    Dtypes are those of `mean`. The mean squared distance from the mean, which is computed before,
    so that nothing cancels; the sum is divided by the number of elements less `correction`, or 0 if
    that is negative. Errors are those of `sum`.
    """
    functions = prologue, epilogue
    less = _correction("var", correction, ddof)
    return _reduce("var", x, axis, keepdims, out, dim, less, functions)


def std(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    correction: int = 0,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
    ddof: int | None = None,
) -> Any:
    """The square root of `var`."""
    functions = prologue, epilogue
    less = _correction("std", correction, ddof)
    return _reduce("std", x, axis, keepdims, out, dim, less, functions)


def logsumexp(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """log(sum(exp(x))) over some axes, or all; as `torch.logsumexp`.

    Dtypes are those of `mean`. The maximum is subtracted before, so that nothing overflows; of
    nothing it is -inf. Errors are those of `sum`.
    """
    functions = prologue, epilogue
    return _reduce("logsumexp", x, axis, keepdims, out, dim, functions=functions)


def norm(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    *,
    ord: float = 2,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
    dim: Any = None,
) -> Any:
    """The vector norm over some axes, or all; as `numpy.linalg.vector_norm`.

    `ord`: 1, 2, or plus or minus infinity. Dtypes are those of `mean`. Squares are not scaled: the
    2-norm overflows where they do. Errors are those of `sum`; `LaunchError` also for another `ord`,
    and for an infinity of no elements.
    """
    if ord not in (1, 2, inf, -inf):
        raise wrong("norm", f"`ord` is {ord!r}", "it is 1, 2 or an infinity")
    functions = prologue, epilogue
    return _reduce("norm", x, axis, keepdims, out, dim, float(ord), functions)


def _correction(function: str, correction: int, ddof: int | None) -> int:
    """`correction`, which NumPy's users know as `ddof`; E601 where both are given."""
    if ddof is None:
        return number_of(function, "correction", correction)
    if correction:
        raise wrong(function, "both `correction` and `ddof` are given", "they mean the same")
    return number_of(function, "ddof", ddof)


def _reduce(
    function: str,
    x: Any,
    axis: Any,
    keepdims: bool,
    out: Any,
    dim: Any,
    option: Any = None,
    functions: tuple[Any, Any] = (None, None),
) -> Any:
    if dim is not None:
        axis = axis_or_dim(function, axis, dim)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, arrays[0], axis, keepdims, option, functions)

    key = axis, keepdims, option
    if functions != (None, None):
        key = *key, *(None if f is None else comptime_key(f) for f in functions)
    return call(_PLANS, function, ("x",), (x,), key, make, out)


# What is done for one signature


@dataclass(frozen=True, slots=True)
class _Work:
    """What a function computes: the dtype of its results, and the reduction."""

    dtype: DType
    op: Reduction


def _work(function: str, dtype: DType, option: Any) -> _Work:
    """The reduction of a function for elements of a dtype."""
    if function in ("sum", "prod"):
        found = running_type(function, dtype)
        return _Work(dtype if dtype.is_float else found, Reduction(function, found))
    if function in ("max", "min"):
        return _Work(dtype, Reduction(function, running_type(function, dtype)))
    if function in ("any", "all"):
        name = "max" if function == "any" else "min"
        return _Work(bool_, Reduction(name, u8, read=problem.is_true))
    running = real_type(dtype)
    result = dtype if dtype.is_float else running
    if function == "norm" and abs(option) == inf:
        name = "max" if option > 0 else "min"
        return _Work(result, Reduction(name, running, read=problem.absolute))
    read, write = _FUNCTIONS["norm1" if option == 1 and function == "norm" else function]
    return _Work(result, Reduction("sum", running, read=read, write=write))


Hook = Callable[..., Any] | None
_FUNCTIONS: dict[str, tuple[Hook, Hook]] = {
    "mean": (None, problem.mean),
    "var": (problem.squared_distance, problem.mean),
    "std": (problem.squared_distance, problem.root_of_mean),
    "logsumexp": (problem.exp_of_distance, problem.log_and_centre),
    "norm": (problem.square, problem.root),
    "norm1": (problem.absolute, None),
}
"""Functions on read and on write of sums."""
_CENTRES = {"var": "mean", "std": "mean", "logsumexp": "max"}
"""What is computed first, as the centre."""


def _plan(
    planner: Planner,
    x: Memory,
    axis: Any,
    keepdims: bool,
    option: Any,
    functions: tuple[Any, Any],
) -> None:
    name, rank = planner.function, len(x.shape)
    check_prologue(name, functions[0])
    if functions[1] is not None:
        about = f"an epilogue of {name} takes the result alone"
        check_function(name, "epilogue", functions[1], ("v",), about)
    if x.dtype.is_float and x.dtype.bits == 8:
        raise refused(name, "x", f"has dtype {x.dtype}", "convert it to f16")
    axes = normal_axes(name, rank, axis)
    kept = [k for k in range(rank) if k not in axes]
    size = product(x.shape[k] for k in axes)
    work = _work(name, x.dtype, option)
    op = replace(work.op, prologue=functions[0], epilogue=functions[1])
    if size == 0 and work.op.name in ("max", "min") and work.op.read is not problem.is_true:
        raise wrong(name, f"an array of shape {x.shape} has no {name}")
    shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    extents = tuple(x.shape[k] for k in kept)
    result = planner.result(Shape(shape if keepdims else extents, work.dtype))
    if not product(extents):
        return
    if keepdims:
        result = replace(result, shape=extents, strides=tuple(result.strides[k] for k in kept))
    reduced = [Axis(x.shape[k], (x.strides[k],)) for k in axes]
    is_spread = name in ("var", "std")
    count = size - option if is_spread else size
    count = count if count > 0 else 0
    pairs = zip(_kept_strides(x, kept, True), result.strides, strict=True)
    rest = [Axis(n, pair) for n, pair in zip(extents, pairs, strict=True)]
    if is_spread and size and launch_spread(planner, op, count, x, result, rest, reduced):
        return
    centre = _centre(planner, name, x, op, kept, reduced)
    if centre:
        rest = [
            replace(axis, strides=(*axis.strides, stride))
            for axis, stride in zip(rest, centre.strides, strict=True)
        ]
    Reducer(planner, op, count, centre).launch(x, result, rest, reduced)


def _kept_strides(m: Memory, kept: list[int], is_whole: bool) -> tuple[int, ...]:
    return tuple(m.strides[k] for k in kept) if is_whole else m.strides


def _centre(
    planner: Planner, name: str, x: Memory, op: Reduction, kept: list[int], reduced: list[Axis]
) -> Memory | None:
    """Launches what computes the centre of each result, if the function has one."""
    what = _CENTRES.get(name)
    if what is None:
        return None
    extents = tuple(x.shape[k] for k in kept)
    centre = planner.scratch(extents, op.dtype)
    first = Reduction("max", op.dtype, prologue=op.prologue)
    if what == "mean":
        first = Reduction("sum", op.dtype, write=problem.mean, prologue=op.prologue)
    pairs = zip(_kept_strides(x, kept, True), centre.strides, strict=True)
    axes = [Axis(n, pair) for n, pair in zip(extents, pairs, strict=True)]
    size = product(a.extent for a in reduced)
    Reducer(planner, first, size).launch(x, centre, axes, reduced)
    return centre
