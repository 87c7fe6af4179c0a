"""Gradients of attention: `attention_grad`."""

from __future__ import annotations

from math import lcm, prod
from typing import Any

import numpy as np

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import f32
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.attention.boxes import BoxedGradients, boxed_gradients
from cubepy.kernels.attention.gradient_fragments import sum_gradients_by_fragments
from cubepy.kernels.attention.gradient_squares import multiply_rows, sum_gradients
from cubepy.kernels.attention.gradient_strips import add_gradients, sum_gradients_by_strips
from cubepy.kernels.attention.gradient_warpgroups import (
    finish_gradients,
    prepare_gradients,
    sum_gradients_by_warpgroups,
)
from cubepy.kernels.attention.problem import (
    KEYS,
    GradientFragments,
    GradientStrips,
    GradientWarpgroups,
    Problem,
)
from cubepy.kernels.attention.strategies import (
    gradient_fragments,
    gradient_squares,
    gradient_strips,
    gradient_warpgroups,
    keys_of_part,
)
from cubepy.kernels.attention.views import (
    Views,
    checked,
    column,
    computed,
    headed,
    owned,
    pieces,
    scale_of,
    split,
    without_column,
)
from cubepy.kernels.attention.window import Sides, checked_window, reach_of
from cubepy.kernels.calls.arguments import float_of, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.matmul.problem import expanded
from cubepy.lang.pipelines import ROWS, WARPGROUP
from cubepy.record import dataclass

_PLANS = Plans()
PLANES = 8
"""Queries of a cube that prepares their numbers."""


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
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    out: Any = None,
) -> tuple[Any, Any, Any]:
    """The gradients of `attention` by its queries, keys and values.

    `q`, `k`, `v` and the options are those of the call, `result` and `lse` what it gave with
    `return_lse=True`, `grad_output` the gradient by `result`, of its shape and dtype. Gives three
    arrays with the shapes and the dtype of `q`, `k` and `v`, or fills `out`, a tuple of three. Keys
    and values that several heads share, and whatever was broadcast, have the sums of their
    gradients. A query that sees no key has a gradient of 0, and adds nothing to others.

    Weights are made again from `lse` (Dao, "FlashAttention-2", 2023), whose 24 bits bound them: a
    query all of whose keys have masks far below 0 has weights with an error of 2^-24 of its `lse`,
    which from 2^24 on are 1 or 0, as in torch's fused backends. f16 and bf16 are multiplied and
    summed in f32, and rounded once. Where tensor cores are used (from sm_80 on; f16 and bf16 of at
    most 256 elements, a multiple of 8 but on sm_90a, whose rows begin at multiples of 16 bytes,
    without broadcast queries, and with keys and values that heads share alike), weights and
    gradients of scores, before `scale`, are rounded to the dtype before they are multiplied, so
    that those of f16 beyond 65504 are infinite. Sums have a fixed order, so that results repeat,
    but for gradients by queries on tensor cores of sm_90a, where cubes add to them in f32 in any
    order (Shah et al., "FlashAttention-3", 2024). Raises `LaunchError` for shapes that do not fit,
    `LaunchTypeError` for dtypes that do not.
    """
    scale = None if scale is None else float_of("attention_grad", "scale", scale)
    sides = bool(causal), checked_window("attention_grad", window)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, Operands.of(arrays), sides, scale)

    names = ("q", "k", "v", "result", "lse", "grad_output", "mask")
    arrays = (q, k, v, result, lse, grad_output, mask)
    key = *sides, scale
    return call(_PLANS, "attention_grad", names, arrays, key, make, out, 3, optional=("mask",))


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


def _plan(planner: Planner, x: Operands, sides: Sides, scale: float | None) -> None:
    batch, groups = checked("attention_grad", x.q, x.k, x.v, x.masks)
    _check(x, batch)
    dtype = computed(x.q.dtype)
    outs = [planner.result(Shape(m.shape, m.dtype)) for m in (x.q, x.k, x.v)]
    scores = (*batch, x.q.shape[-2], x.k.shape[-2])
    views = Views(
        (split(expanded(x.q, (*batch, *x.q.shape[-2:])), groups), split(x.grad, groups)),
        tuple(headed(m, batch, groups) for m in (x.k, x.v)),
        split(x.result, groups),
        split(column(x.lse), groups),
        tuple(split(expanded(m, scores), groups) for m in x.masks),
        (split(owned(outs[0], batch, 0), groups), *(owned(m, batch, groups) for m in outs[1:])),
    )
    sizes = (prod(batch), *scores[-2:], x.q.shape[-1], x.v.shape[-1])
    number = scale_of(scale, x.q)
    causal, window = reach_of(*sides, *scores[-2:])
    by_k, by_v = (headed(m, batch, groups) for m in outs[1:])
    boxes = boxed_gradients(views, by_k, by_v)
    elements = None if boxes is None else x.q.dtype
    p = Problem(*sizes, dtype, causal, elements)
    if boxes is not None and (passes := gradient_warpgroups(planner.target, p)):
        _launch_warpgroups(planner, boxes, passes, window, number)
    elif boxes is not None and (tiles := gradient_fragments(planner.target, p)):
        _launch_fragments(planner, boxes, tiles, window, number)
    else:
        _launch_plain(planner, views, Problem(*sizes, dtype, causal), window, number)


def _launch_warpgroups(
    planner: Planner,
    x: BoxedGradients,
    passes: tuple[GradientWarpgroups, ...],
    window: tuple[int, ...],
    scale: float,
) -> None:
    """Numbers of queries, the sums of all gradients, and those of queries as results."""
    batches, heads, queries, keys = x.extents
    padded = max(-(-queries // t.rows) * t.rows for t in passes)
    last = passes[-1]
    sums = planner.scratch((batches * heads * padded * last.size,), f32)
    numbers: dict[str, Any] = {"sums": sums, **_numbers(planner, x, padded, (sums,), last.size)}
    kv_batches, kv_heads = x.k.shape[:2]
    for t in passes:
        planner.launch(
            sum_gradients_by_warpgroups,
            Fixed((kv_batches * kv_heads * -(-keys // KEYS), 1, 1), (3 * WARPGROUP, 1, 1)),
            asked=(pieces(x.q, t.rows), pieces(x.grad, t.rows)),
            held=(pieces(x.k, KEYS), pieces(x.v, KEYS)),
            outs=(pieces(x.by_k, ROWS), pieces(x.by_v, ROWS)),
            masks=() if x.mask is None else (x.mask,),
            extents=x.extents,
            shared=x.shared,
            window=tuple(map(np.int32, window)),
            scale=scale,
            **numbers,
            t=t,
        )
    blocks = batches * heads * -(-queries // last.rows) * last.parts * (last.columns // 8)
    grid = Fixed((blocks, 1, 1), (2 * WARPGROUP, 1, 1))
    planner.launch(finish_gradients, grid, sums=sums, out=x.by_q, scale=scale, t=last)


def _numbers(
    planner: Planner, x: BoxedGradients, padded: int, sums: tuple[Memory, ...], size: int
) -> dict[str, Any]:
    """The numbers of queries, of which each head has `padded`, and `size` zeros for each in `sums`,
    if there is one."""
    heads = prod(x.extents[:2])
    logs, deltas = (planner.scratch((heads, padded), f32) for _ in range(2))
    numbers: dict[str, Any] = {"logs": logs, "deltas": deltas}
    planes = Fixed((-(-heads * padded // PLANES), 1, 1), (PLANES * planner.target.plane_dim, 1, 1))
    results: dict[str, Any] = {"result": x.result, "grad": x.grad, "lse": x.log, "sums": sums}
    planner.launch(prepare_gradients, planes, **results, **numbers, size=size)
    return numbers


def _launch_fragments(
    planner: Planner,
    x: BoxedGradients,
    passes: tuple[GradientFragments, ...],
    window: tuple[int, ...],
    scale: float,
) -> None:
    """Numbers of queries, and the sums of all gradients."""
    queries, keys = x.extents[2:]
    step = lcm(*(t.step for t in passes if not t.is_of_queries))
    numbers = _numbers(planner, x, -(-queries // step) * step, (), 0)
    asked, held = (x.q, x.grad), (x.k, x.v)
    for t in passes:
        made = ((x.by_q,), ()) if t.is_of_queries else _given(x, t)
        heads, rows = (x.q, queries) if t.is_of_queries else (x.k, keys)
        planner.launch(
            sum_gradients_by_fragments,
            Fixed((prod(heads.shape[:2]) * -(-rows // t.height), 1, 1), (t.units, 1, 1)),
            own=asked if t.is_of_queries else held,
            others=held if t.is_of_queries else asked,
            outs=made,
            masks=() if x.mask is None else (x.mask,),
            extents=x.extents,
            shared=x.shared,
            window=tuple(map(np.int32, window)),
            scale=scale,
            **numbers,
            t=t,
        )


def _given(x: BoxedGradients, t: GradientFragments) -> tuple[tuple[Memory, ...], ...]:
    """The gradients of keys and of values that a pass sums."""
    return (x.by_k,) if t.is_of_keys else (), (x.by_v,) if t.is_of_values else ()


def _launch_plain(
    planner: Planner, x: Views, p: Problem, window: tuple[int, ...], scale: float
) -> None:
    """The products of results and their gradients, and the sums of all gradients."""
    logs = without_column(x.logs)
    deltas = planner.scratch(logs.shape, p.dtype)
    products: dict[str, Any] = {"x": x.result, "y": x.rows[1], "out": deltas}
    planner.launch(multiply_rows, Over(prod(deltas.shape), "unit", None), **products)
    common: dict[str, Any] = {"logs": logs, "deltas": deltas, "masks": x.masks}
    common |= {"window": window, "scale": scale}
    t = gradient_strips(planner.target, p) if _has_strips(x) else None
    if t is None:
        _launch_squares(planner, x, p, common)
    else:
        _launch_strips(planner, x, p, t, common)


def _has_strips(x: Views) -> bool:
    """Whether there are rows of elements, keys and values are shared alike, and queries are not."""
    by_q, by_k, by_v = x.outs
    extents = (*by_q.shape, *by_k.shape, *by_v.shape)
    shared_alike = by_k.shape[:-1] == by_v.shape[:-1]
    return 0 not in extents and shared_alike and by_q.shape[:-2] == x.result.shape[:-2]


def _launch_strips(
    planner: Planner, x: Views, p: Problem, t: GradientStrips, common: dict[str, Any]
) -> None:
    by_q, by_k, by_v = x.outs
    heads = prod(by_k.shape[:-2])
    length = keys_of_part(planner.target, p, t, heads)
    parts = -(-p.keys // length)
    sums = planner.scratch((parts, *by_q.shape[:-1], t.size), p.dtype)
    planner.launch(
        sum_gradients_by_strips,
        heads * parts,
        rows=x.rows,
        keys=x.keys,
        sums=sums,
        outs=(by_k, by_v),
        length=length,
        **common,
        t=t,
    )
    planner.launch(add_gradients, prod(by_q.shape[:-1]), sums=sums, out=by_q, line=t.line)


def _launch_squares(planner: Planner, x: Views, p: Problem, common: dict[str, Any]) -> None:
    by_q, by_k, by_v = x.outs

    def launch(results: tuple[tuple[Memory, ...], ...], is_of_keys: bool) -> None:
        t = gradient_squares(planner.target, p, is_of_keys)
        own, others = (x.keys, x.rows) if is_of_keys else (x.rows, x.keys)
        made = [m for result in results for m in result]
        tiles = -(-made[0].shape[-2] // t.height) * -(-max(m.shape[-1] for m in made) // t.width)
        grid = Fixed((prod(made[0].shape[:-2]) * tiles, 1, 1), (t.side * t.side, 1, 1))
        planner.launch(sum_gradients, grid, own=own, others=others, outs=results, **common, t=t)

    launch(((by_q,), ()), False)
    if by_k.shape[:-1] == by_v.shape[:-1]:
        launch(((by_k,), (by_v,)), True)
    else:
        launch(((by_k,), ()), True)
        launch(((), (by_v,)), True)


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
