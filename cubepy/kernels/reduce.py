"""Reductions over any axes: `sum`, `max`, `min`."""

from __future__ import annotations

from typing import Any

from cubepy.errors import fail
from cubepy.kernels.hosts import frozen, host_of
from cubepy.kernels.plans import Planner, Plans
from cubepy.kernels.reduce_plans import make_plan

_PLANS = Plans()


def sum(
    x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None, dim: Any = None
) -> Any:
    """The sum over some axes, or all; as `numpy.sum`.

    `x`: any shape, strides and dtype; `axis`: an int, a tuple of ints or None for all; `dim` is the
    same. Sums of bools and integers are i64, of unsigned integers u64, and wrap; others keep the
    dtype. Gives an array of the library of `x` (a NumPy scalar where no axis is left), or `out`, of
    exactly this dtype and shape. The sum of nothing is 0.

    f16 and bf16 are added in f32 and rounded once. Floats are added by halves of short blocks,
    whose sums are added with their rounding errors (TwoSum: Knuth, TAOCP 4.2.2), so that the error
    is that of a short sum whatever the length. Raises `LaunchError` for axes that are not there and
    for a tensor that requires grad outside of `torch.no_grad()`; `LaunchTypeError` for what is no
    array.
    """
    return _reduce("sum", x, axis, keepdims, out, dim)


def max(
    x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None, dim: Any = None
) -> Any:
    """The maximum over some axes, or all; as `numpy.max`.

    Parameters and results are those of `sum`; the dtype is that of `x`. Exact; NaN if any element
    is NaN; which of equal zeros it is, is not specified. Raises `LaunchError` for the maximum of
    nothing, and as `sum` does.
    """
    return _reduce("max", x, axis, keepdims, out, dim)


def min(
    x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None, dim: Any = None
) -> Any:
    """The minimum over some axes, or all; as `numpy.min`. See `max`."""
    return _reduce("min", x, axis, keepdims, out, dim)


def _reduce(function: str, x: Any, axis: Any, keepdims: bool, out: Any, dim: Any) -> Any:
    host, x = host_of(function, "x", x)
    given = None
    if out is not None:
        host_of(function, "out", out)
        given = (out,)
    if dim is not None:
        if axis is not None:
            raise fail(
                "E601",
                function=function,
                reason="both `axis` and `dim` are given",
                suggestion="they mean the same",
            )
        axis = dim
    key = (
        function,
        host,
        host.key(x),
        frozen(axis),
        keepdims,
        None if given is None else host.key(out),
    )
    plan = _PLANS.find(key)
    if plan is None:
        plan = _PLANS.keep(key, make_plan(Planner(function, host), x, axis, keepdims, out))
    (result,) = plan.run(host, (x,), given)
    return host.scalar(result) if out is None and not plan.results[0].extents else result
