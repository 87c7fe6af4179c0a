"""Attention: `attention`."""

from __future__ import annotations

from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import DType
from cubepy.kernels.attention.boxes import boxed, gathered, with_values
from cubepy.kernels.attention.on_cpus import attend_strips
from cubepy.kernels.attention.problem import (
    Configuration,
    Problem,
    Squares,
    Strips,
    UnitStrips,
)
from cubepy.kernels.attention.strategies import (
    choose,
    fragments,
    heads_together,
    launches,
    order,
    order_of_fragments,
)
from cubepy.kernels.attention.views import (
    checked,
    column,
    computed,
    headed,
    heads_of_one,
    result_of,
    result_type,
    scale_of,
    split,
    with_fewer_heads,
    with_queries,
    without_column,
)
from cubepy.kernels.attention.window import Sides, checked_window, reach_of
from cubepy.kernels.calls.arguments import float_of, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.matmul.problem import expanded, is_dense

_PLANS = Plans()
SCALES = 2.0**-96, 2.0**96
"""Within these the order of scores is that of their products, and -inf stays what it is."""


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    mask: Any = None,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """softmax(q @ k.T * scale + mask) @ v, as torch's `scaled_dot_product_attention`.

    `q`: [..., queries, size], `k`: [..., keys, size], `v`: [..., keys, width], floats of one dtype
    and any strides; the axes before are broadcast. Before the last two axes, `q` may have a
    multiple of the heads of `k` and `v`, of which each serves as many neighbours (grouped queries).
    `causal`: a query sees no keys behind its own position, both counted from 0. `mask`: broadcasts
    to [..., queries, keys]; bools that are true where a query sees a key, or floats that are added
    to scores. `window`: (before, behind), how many keys before and behind its own position a query
    sees, None for all of a side; with `causal` none behind. `scale`: default 1 / sqrt(size).
    `dtype`: of the result, a float; default that of `q`, of 8-bit floats f32. Gives an array of the
    library of `q`, or fills `out`. A query that sees no key gives zeros.
    With `return_lse` also the logarithms of the sums of exponentials of scores, [..., queries],
    -inf where a query sees no key, in f32 (f64 of f64), for `attention_grad`; `out` is a tuple
    then.

    Scores are never stored as a whole (online softmax; Dao, "FlashAttention-2", 2023). f16 and bf16
    are summed in f32 and rounded once. Where tensor cores multiply them (sm_80 on; at most 256
    elements, whose rows begin at multiples of 16 bytes; before and after sm_90a a multiple of 8),
    weights are rounded to the dtype too, and exponentials have an error of 2 ULP (on sm_90a: Shah
    et al., "FlashAttention-3", 2024). 8-bit floats are
    summed in f32; where tensor cores multiply them (sm_90a; at most 256 elements), weights are
    rounded to f8e4m3, and docs/accuracy.md bounds the error. Processors with AMX round weights of
    bf16 to it too, make exponentials with an error of 2**-12, and take factors and sums below
    2**-126 for 0. Raises `LaunchError` for shapes that do not fit, `LaunchTypeError` for dtypes
    that do not.
    """
    scale = None if scale is None else float_of("attention", "scale", scale)
    sides = bool(causal), checked_window("attention", window)
    kind = result_type("attention", dtype)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        options = sides, scale, bool(return_lse), kind
        _plan(planner, arrays[0], arrays[1], arrays[2], tuple(arrays[3:]), options)

    names = ("q", "k", "v", "mask")
    key = *sides, scale, bool(return_lse), kind
    count = 2 if return_lse else 1
    return call(
        _PLANS, "attention", names, (q, k, v, mask), key, make, out, count, optional=("mask",)
    )


# What is done for one signature


def _plan(
    planner: Planner,
    q: Memory,
    k: Memory,
    v: Memory,
    masks: tuple[Memory, ...],
    options: tuple[Sides, float | None, bool, DType | None],
) -> None:
    sides, scale, has_log, kind = options
    batch, groups = checked("attention", q, k, v, masks)
    extents, dtype = (*batch, q.shape[-2], v.shape[-1]), computed(q.dtype)
    result = planner.result(Shape(extents, kind or result_of(q.dtype)))
    logs: tuple[Memory, ...] = ()
    if has_log:
        if not v.shape[-1]:
            raise wrong("attention", "`v` has rows without elements", "leave `return_lse` out")
        logs = (split(column(planner.result(Shape(extents[:-1], dtype))), groups),)
    if 0 in extents:
        return
    views = [headed(m, batch, groups) for m in (k, v)]
    views = [split(expanded(q, (*batch, *q.shape[-2:])), groups), *views, split(result, groups)]
    seen = tuple(split(expanded(m, (*batch, q.shape[-2], k.shape[-2])), groups) for m in masks)
    number = scale_of(scale, q)
    causal, window = reach_of(*sides, q.shape[-2], k.shape[-2])
    is_plain = 0 not in (*k.shape, *v.shape) and SCALES[0] <= number <= SCALES[1]
    boxes = boxed([*views, *logs, *seen], has_log) if is_plain else None
    heads, queries, elements = prod(batch), q.shape[-2], None
    if boxes is not None:
        boxes = boxes if causal or window else gathered(boxes)
        heads, queries, elements = prod(boxes.extents[:2]), boxes.extents[2], q.dtype
    sizes = (queries, k.shape[-2], q.shape[-1], v.shape[-1])
    p = Problem(heads, *sizes, dtype, causal, elements, bool(window), result.dtype)
    if boxes is not None and (parts := launches(planner.target, p)):
        from cubepy.kernels.attention import on_gpus

        for first, x, t in parts:
            own = with_values(boxes, first, x.width)
            on_gpus.launch_boxes(planner, own, t, order(planner.target, x, t), window, number)
        return
    if boxes is not None and (wide := fragments(planner.target, p)) is not None:
        from cubepy.kernels.attention import on_gpus

        dealt = order_of_fragments(planner.target, p, wide)
        on_gpus.launch_fragments(planner, boxes, wide, dealt, window, number)
        return
    factors = q.dtype if all(is_dense(m, -1) for m in (q, k, v)) else None
    heads, queries = prod(batch), q.shape[-2]
    shared = groups or heads_of_one(batch, k, v)
    if shared > 1 and queries == 1 and not (causal or window):
        queries = heads_together(planner.target, heads, shared)
        heads //= queries
        views = [with_queries(views[0], queries), *views[1:3], with_queries(views[3], queries)]
        views[1:3] = [with_fewer_heads(m, queries) for m in views[1:3]]
        logs, seen = (tuple(with_queries(m, queries) for m in some) for some in (logs, seen))
    p = Problem(heads, queries, *sizes[1:], dtype, causal, factors=factors)
    shown = tuple(without_column(m) for m in logs)
    _launch(planner, p, choose(planner.target, p), views, (shown, seen), window, number)


def _launch(
    planner: Planner,
    p: Problem,
    t: Configuration,
    views: list[Memory],
    beside: tuple[tuple[Memory, ...], tuple[Memory, ...]],
    window: tuple[int, ...],
    scale: float,
) -> None:
    """`beside`: logarithms and masks, if there are any."""
    q, k, v, out = views
    logs, masks = beside
    common = {"q": q, "k": k, "v": v, "out": out, "logs": logs, "masks": masks, "window": window}
    common |= {"scale": scale, "t": t}
    bands = -(-p.queries // t.height)
    if isinstance(t, Strips):
        planner.launch(attend_strips, p.heads * bands, **common)
    elif isinstance(t, UnitStrips):
        from cubepy.kernels.attention.unit_strips import attend_unit_strips

        planner.launch(attend_unit_strips, p.heads * bands, **common)
    elif isinstance(t, Squares):
        from cubepy.kernels.attention.on_gpus import launch_squares

        launch_squares(planner, p.heads * bands * -(-p.width // t.width), common, t)
