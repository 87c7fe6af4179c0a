"""Losses of rows of logits: `cross_entropy`."""

from __future__ import annotations

from operator import index
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.numbers import limits
from cubepy.ir.types import DType, Kind, i32, i64
from cubepy.jit.grid import Over
from cubepy.kernels.calls.arguments import refused, wrong
from cubepy.kernels.calls.axes import Axis, seen
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.calls.tuned import memory_key
from cubepy.kernels.normalisation.loss_kernel import add_losses, entropy_rows
from cubepy.kernels.normalisation.operands import check_floats, computed_in
from cubepy.kernels.normalisation.problem import Normalisation
from cubepy.kernels.normalisation.strategies import loss_tilings, loss_units

_PLANS = Plans()
REDUCTIONS = ("mean", "sum", "none")


def cross_entropy(
    x: Any,
    target: Any,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    out: Any = None,
) -> Any:
    """The cross-entropy of rows of logits and classes, as `torch.nn.functional.cross_entropy`.

    `x`: floats [n, classes] or [classes], of any strides; `target`: i32 or i64 [n], or an array
    without axes, the class of each row. The loss of a row is log(sum(exp(x))) - x[target]; the
    maximum is subtracted before, so that nothing overflows, and cubes of many units read a row
    once. `reduction` "none" gives one loss for each row, "sum" and "mean" one for all; a row whose
    target is `ignore_index` has the loss 0 and does not count in the mean, and the loss of one
    whose target is no class is NaN. Gives an array of the library and dtype of `x`, on its device,
    or `out`. f16 and bf16 are computed in f32 and rounded once; losses are added with their
    rounding errors (TwoSum: Knuth, TAOCP 4.2.2). Raises `LaunchError` for shapes that do not fit or
    another `reduction`, `LaunchTypeError` for other dtypes.
    """
    if reduction not in REDUCTIONS:
        raise wrong("cross_entropy", f"`reduction` is {reduction!r}", "it is mean, sum or none")
    ignored = index(ignore_index)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        x, target = arrays
        _plan(planner, x, target, ignored, reduction)

    key = (ignored, reduction)
    return call(_PLANS, "cross_entropy", ("x", "target"), (x, target), key, make, out)


def _plan(planner: Planner, x: Memory, target: Memory, ignored: int, reduction: str) -> None:
    check_floats("cross_entropy", "x", x)
    if target.dtype.kind is not Kind.INT or target.dtype.bits < 32:
        what = f"has dtype {target.dtype}"
        raise refused("cross_entropy", "target", what, "convert it to i64")
    low, high = limits(target.dtype)
    if not low <= ignored <= high:
        raise wrong("cross_entropy", f"`ignore_index` is {ignored}, which no {target.dtype} is")
    if len(x.shape) not in (1, 2) or not x.shape[-1]:
        raise wrong("cross_entropy", f"`x` has shape {x.shape}; it is [n, classes] or [classes]")
    if target.shape != x.shape[:-1]:
        reason = f"`target` has shape {target.shape}, but `x` has {x.shape}"
        raise wrong("cross_entropy", reason, "one class for each row")
    each = reduction == "none"
    result = planner.result(Shape(target.shape if each else (), x.dtype))
    if len(x.shape) == 1:
        x, target = _as_row(x), _as_row(target)
    written = result if result.shape else _as_row(result)
    dtype = computed_in(x.dtype)
    if not each:
        losses = planner.scratch(target.shape, dtype)
        _launch_rows(planner, x, target, losses, dtype, ignored)
        device, rows = planner.target, target.shape[0]
        line = 1 if is_wide(device) else max(1, device.line_bytes // dtype.itemsize)
        planner.launch(
            add_losses,
            Over(1, "cube", loss_units(device)),
            losses=losses,
            target=target,
            out=written,
            ignored=ignored,
            is_mean=reduction == "mean",
            counts=i32 if rows < 1 << 31 else i64,
            line=line,
        )
    elif x.shape[0]:
        _launch_rows(planner, x, target, written, dtype, ignored)


def _as_row(x: Memory) -> Memory:
    """One row of what there is."""
    return seen(
        x, [Axis(1, (0,)), *(Axis(n, (s,)) for n, s in zip(x.shape, x.strides, strict=True))]
    )


def _launch_rows(
    planner: Planner, x: Memory, target: Memory, out: Memory, dtype: DType, ignored: int
) -> None:
    op = Normalisation("softmax", dtype)
    ways = loss_tilings(planner.target, op, x)
    tiling = planner.pick_among("normalisation", ("cross_entropy", op, memory_key(x)), ways)
    planner.launch(
        entropy_rows,
        Over(-(-x.shape[0] // tiling.band), "cube", tiling.units),
        x=x,
        target=target,
        out=out,
        ignored=ignored,
        op=op,
        tiling=tiling,
    )
