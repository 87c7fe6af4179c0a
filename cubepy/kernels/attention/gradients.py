"""Gradients of attention: `attention_grad`."""

from __future__ import annotations

from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.attention.gradient_squares import multiply_rows, sum_gradients
from cubepy.kernels.attention.problem import Problem
from cubepy.kernels.attention.strategies import gradient_squares
from cubepy.kernels.attention.views import (
    checked,
    column,
    computed,
    headed,
    owned,
    scale_of,
    split,
    without_column,
)
from cubepy.kernels.calls.arguments import refused, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.matmul.problem import expanded
from cubepy.record import dataclass

_PLANS = Plans()


def attention_grad(
    q: Any,
    k: Any,
    v: Any,
    result: Any,
    lse: Any,
    grad_output: Any,
    *,
    causal: bool = False,
    mask: Any = None,
    scale: float | None = None,
    out: Any = None,
) -> tuple[Any, Any, Any]:
    """The gradients of `attention` by its queries, keys and values.

    `q`, `k`, `v` and the options are those of the call, `result` and `lse` what it gave with
    `return_lse=True`, `grad_output` the gradient by `result`, of its shape and dtype. Gives three
    arrays with the shapes and the dtype of `q`, `k` and `v`, or fills `out`, a tuple of three.
    Keys and values that several heads share, and whatever was broadcast, have the sums of their
    gradients. A query that sees no key has a gradient of 0, and adds nothing to others.

    Weights are made again from `lse` (Dao, "FlashAttention-2", 2023). f16 and bf16 are multiplied
    and summed in f32, and rounded once. Sums have a fixed order, so that results repeat. Raises
    `LaunchError` for shapes that do not fit, `LaunchTypeError` for dtypes that do not.
    """
    if scale is not None and not isinstance(scale, int | float):
        raise refused("attention_grad", "scale", f"is {scale!r}; it takes a number", "")

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, Operands.of(arrays), bool(causal), scale)

    names = ("q", "k", "v", "result", "lse", "grad_output", "mask")
    arrays = (q, k, v, result, lse, grad_output, mask)
    key = bool(causal), None if scale is None else float(scale)
    return call(_PLANS, "attention_grad", names, arrays, key, make, out, 3)


@dataclass(frozen=True, slots=True)
class Operands:
    """The arguments of one call."""

    q: Memory
    k: Memory
    v: Memory
    result: Memory
    lse: Memory
    grad: Memory
    masks: tuple[Memory, ...]

    @classmethod
    def of(cls, arrays: list[Memory]) -> Operands:
        """The arguments in their order, the last of which may be a mask."""
        q, k, v, result, lse, grad, *masks = arrays
        return cls(q, k, v, result, lse, grad, tuple(masks))


def _plan(planner: Planner, x: Operands, causal: bool, scale: float | None) -> None:
    batch, groups = checked("attention_grad", x.q, x.k, x.v, x.masks)
    _check(x, batch)
    dtype = computed(x.q.dtype)
    outs = [planner.result(Shape(m.shape, m.dtype)) for m in (x.q, x.k, x.v)]
    rows = split(expanded(x.q, (*batch, *x.q.shape[-2:])), groups), split(x.grad, groups)
    keys = tuple(headed(m, batch, groups) for m in (x.k, x.v))
    logs = without_column(split(column(x.lse), groups))
    scores = (*batch, x.q.shape[-2], x.k.shape[-2])
    masks = tuple(split(expanded(m, scores), groups) for m in x.masks)
    deltas = planner.scratch(logs.shape, dtype)
    products: dict[str, Any] = {"x": split(x.result, groups), "y": rows[1], "out": deltas}
    planner.launch(multiply_rows, Over(prod(deltas.shape), "unit", None), **products)
    sizes = (prod(batch), *scores[-2:], x.q.shape[-1], x.v.shape[-1])
    p = Problem(*sizes, dtype, causal)
    common: dict[str, Any] = {
        "logs": logs,
        "deltas": deltas,
        "masks": masks,
        "scale": scale_of(scale, x.q),
    }

    def launch(own: Any, others: Any, results: tuple[tuple[Memory, ...], ...], of: bool) -> None:
        t = gradient_squares(planner.target, p, of)
        made = [m for result in results for m in result]
        tiles = -(-made[0].shape[-2] // t.height) * -(-max(m.shape[-1] for m in made) // t.width)
        grid = Fixed((prod(made[0].shape[:-2]) * tiles, 1, 1), (t.side * t.side, 1, 1))
        planner.launch(sum_gradients, grid, own=own, others=others, outs=results, **common, t=t)

    of_queries = _queries_owned(outs[0], batch, groups)
    launch(rows, keys, ((of_queries,), ()), False)
    of_keys, of_values = (owned(m, batch, groups) for m in outs[1:])
    if of_keys.shape[:-1] == of_values.shape[:-1]:
        launch(keys, rows, ((of_keys,), (of_values,)), True)
    else:
        launch(keys, rows, ((of_keys,), ()), True)
        launch(keys, rows, ((), (of_values,)), True)


def _queries_owned(out: Memory, batch: tuple[int, ...], groups: int) -> Memory:
    """The gradient of queries with all axes, of one element where they were broadcast."""
    return split(owned(out, batch, 0), groups)


def _check(x: Operands, batch: tuple[int, ...]) -> None:
    """E601 or E602 unless result, logarithms and gradient are those of such a call."""
    rows = (*batch, x.q.shape[-2])
    extents = (*rows, x.v.shape[-1])
    dtype = computed(x.q.dtype)
    wanted = (
        ("result", x.result, extents, x.q.dtype),
        ("lse", x.lse, rows, dtype),
        ("grad_output", x.grad, extents, x.q.dtype),
    )
    for name, found, shape, kind in wanted:
        if found.shape != shape:
            reason = f"`{name}` has shape {found.shape}, attention gives {shape}"
            raise wrong("attention_grad", reason, "")
        if found.dtype is not kind:
            reason = f"`{name}` is {found.dtype}, attention gives {kind}"
            raise fail(
                "E602", function="attention_grad", reason=reason, suggestion=f"convert it to {kind}"
            )
