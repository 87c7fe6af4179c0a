"""Attention: `attention`."""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import Kind, f32
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.attention.boxes import Boxed, boxed, gathered
from cubepy.kernels.attention.problem import (
    Configuration,
    Order,
    Problem,
    Squares,
    Strips,
    Warpgroups,
)
from cubepy.kernels.attention.squares import attend_squares
from cubepy.kernels.attention.strategies import choose, order
from cubepy.kernels.attention.strips import attend_strips
from cubepy.kernels.attention.warpgroups import PIECE, attend_warpgroups, join_parts
from cubepy.kernels.calls.arguments import refused, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.matmul.problem import broadcast, expanded
from cubepy.lang.cuda import TensorMap, tensor_map
from cubepy.lang.pipelines import ROW_BYTES, ROWS, WARPGROUP

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
    scale: float | None = None,
    out: Any = None,
) -> Any:
    """softmax(q @ k.T * scale + mask) @ v, as torch's `scaled_dot_product_attention`.

    `q`: [..., queries, size], `k`: [..., keys, size], `v`: [..., keys, width], floats of one dtype
    and any strides; the axes before are broadcast. Before the last two axes, `q` may have a
    multiple of the heads of `k` and `v`, of which each serves as many neighbours (grouped queries).
    `causal`: a query sees no keys behind its own position, both counted from 0. `mask`: broadcasts
    to [..., queries, keys]; bools that are true where a query sees a key, or floats that are added
    to scores. `scale`: default 1 / sqrt(size). Gives an array of the library and dtype of `q`, or
    fills `out`. A query that sees no key gives zeros.

    Scores are never stored as a whole (online softmax; Dao, "FlashAttention-2", 2023). f16 and bf16
    are summed in f32 and rounded once. Where tensor cores multiply them (sm_90a; at most 256
    elements, whose rows begin at multiples of 16 bytes), weights are rounded to the dtype too, and
    exponentials have an error of 2 ULP (Shah et al., "FlashAttention-3", 2024). Raises
    `LaunchError` for shapes that do not fit, `LaunchTypeError` for dtypes that do not.
    """
    if scale is not None and not isinstance(scale, int | float):
        raise refused("attention", "scale", f"is {scale!r}; it takes a number", "")

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan(planner, arrays[0], arrays[1], arrays[2], tuple(arrays[3:]), bool(causal), scale)

    names = ("q", "k", "v", "mask")
    key = bool(causal), None if scale is None else float(scale)
    return call(_PLANS, "attention", names, (q, k, v, mask), key, make, out)


# What is done for one signature


def _plan(
    planner: Planner,
    q: Memory,
    k: Memory,
    v: Memory,
    masks: tuple[Memory, ...],
    causal: bool,
    scale: float | None,
) -> None:
    _check_types(q, k, v, masks)
    _check_shapes(q, k, v)
    batch, groups = _batch(q, k, v)
    extents = (*batch, q.shape[-2], v.shape[-1])
    for mask in masks:
        whole = (*batch, q.shape[-2], k.shape[-2])
        if broadcast(mask.shape, whole) != whole:
            reason = f"`mask` has shape {mask.shape}, the scores {whole}"
            raise wrong("attention", reason, "mask broadcasts to the scores")
    result = planner.result(Shape(extents, q.dtype))
    if 0 in extents:
        return
    views = [_headed(m, batch, groups) for m in (k, v)]
    views = [_split(expanded(q, (*batch, *q.shape[-2:])), groups), *views, _split(result, groups)]
    seen = tuple(_split(expanded(m, (*batch, q.shape[-2], k.shape[-2])), groups) for m in masks)
    dtype = q.dtype if q.dtype.bits >= 32 else f32
    number = scale if scale is not None else 1 / sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    is_plain = 0 not in (*k.shape, *v.shape) and SCALES[0] <= number <= SCALES[1]
    boxes = boxed([*views, *seen]) if is_plain else None
    heads, queries, elements = prod(batch), q.shape[-2], None
    if boxes is not None:
        boxes = boxes if causal else gathered(boxes)
        heads, queries, elements = prod(boxes.extents[:2]), boxes.extents[2], q.dtype
    sizes = (queries, k.shape[-2], q.shape[-1], v.shape[-1])
    p = Problem(heads, *sizes, dtype, causal, elements)
    t = choose(planner.target, p)
    if isinstance(t, Warpgroups) and boxes is not None:
        _launch_boxes(planner, boxes, t, order(planner.target, p, t), float(number))
        return
    p = Problem(prod(batch), q.shape[-2], *sizes[1:], dtype, causal)  # as the views have them
    _launch(planner, p, choose(planner.target, p), views, seen, float(number))


def _check_types(q: Memory, k: Memory, v: Memory, masks: tuple[Memory, ...]) -> None:
    if not q.dtype.is_float or q.dtype.bits == 8:
        supported = "convert it to f32; f16, bf16, f32 and f64 are supported"
        raise refused("attention", "q", f"has dtype {q.dtype}", supported)
    if k.dtype is not q.dtype or v.dtype is not q.dtype:
        reason = f"`q` is {q.dtype}, `k` is {k.dtype}, `v` is {v.dtype}"
        raise fail("E602", function="attention", reason=reason, suggestion="convert to one dtype")
    for mask in masks:
        if mask.dtype.kind is not Kind.BOOL and mask.dtype not in (q.dtype, f32):
            what = f"has dtype {mask.dtype}, but `q` has {q.dtype}"
            raise refused("attention", "mask", what, "it is bool_, f32, or of the dtype of `q`")


def _check_shapes(q: Memory, k: Memory, v: Memory) -> None:
    shown = f"`q` has shape {q.shape}, `k` {k.shape} and `v` {v.shape}"
    if min(len(m.shape) for m in (q, k, v)) < 2:
        raise wrong("attention", shown, "each has two axes at least")
    if q.shape[-1] != k.shape[-1]:
        raise wrong("attention", shown, "the last axes of `q` and `k` are equally long")
    if k.shape[-2] != v.shape[-2]:
        raise wrong("attention", shown, "`k` and `v` have equally many keys")


def _batch(q: Memory, k: Memory, v: Memory) -> tuple[tuple[int, ...], int]:
    """The axes before the last two, and how many neighbouring heads share keys, 0 for none."""
    own = broadcast(k.shape[:-2], v.shape[:-2])
    if own is not None:
        batch = broadcast(q.shape[:-2], own)
        if batch is not None:
            return batch, 0
        if own and len(q.shape) > 2 and own[-1] and q.shape[-3] % own[-1] == 0:
            batch = broadcast(q.shape[:-3], own[:-1])
            if batch is not None:
                return (*batch, q.shape[-3]), q.shape[-3] // own[-1]
    shown = f"`q` has shape {q.shape}, `k` {k.shape} and `v` {v.shape}"
    reason = f"{shown}, whose first axes do not broadcast"
    raise wrong("attention", reason, "the heads of `q` are a multiple of those of `k` and `v`")


def _split(x: Memory, groups: int) -> Memory:
    """Heads as those of the keys by those that share them."""
    if not groups:
        return x
    shape, strides = list(x.shape), list(x.strides)
    shape[-3:-2] = [shape[-3] // groups, groups]
    strides[-3:-2] = [strides[-3] * groups, strides[-3]]
    return replace(x, shape=tuple(shape), strides=tuple(strides))


def _headed(x: Memory, batch: tuple[int, ...], groups: int) -> Memory:
    """Keys or values with the axes of the queries."""
    if not groups:
        return expanded(x, (*batch, *x.shape[-2:]))
    heads = batch[-1] // groups
    found = expanded(x, (*batch[:-1], heads, *x.shape[-2:]))
    shape, strides = list(found.shape), list(found.strides)
    shape.insert(-2, groups)
    strides.insert(-2, 0)
    return replace(found, shape=tuple(shape), strides=tuple(strides))


def _launch_boxes(
    planner: Planner, boxes: Boxed, t: Warpgroups, dealt: Order, scale: float
) -> None:
    """One cube for each multiprocessor, if there are as many tiles or parts."""
    cubes = min(planner.target.multiprocessors, max(dealt.whole, dealt.sharers))
    parts: tuple[Memory, ...] = ()
    if t.is_split:
        rows = dealt.parts, dealt.rest, t.height
        parts = planner.scratch((*rows, t.width), f32), planner.scratch(rows, f32)
    planner.launch(
        attend_warpgroups,
        Fixed((cubes, 1, 1), ((t.consumers + 1) * WARPGROUP, 1, 1)),
        q=_pieces(boxes.q, t.height),
        k=_pieces(boxes.k, t.keys),
        v=_pieces(boxes.v, t.keys),
        out=_pieces(boxes.out, ROWS),
        masks=() if boxes.mask is None else (boxes.mask,),
        parts=parts,
        extents=boxes.extents,
        shared=boxes.shared,
        order=dealt.numbers,
        scale=scale,
        t=t,
    )
    if parts:
        results, sizes = parts
        grid = Over(prod(results.shape[1:]), "unit", None)
        common = {"results": results, "sizes": sizes, "out": boxes.out}
        planner.launch(join_parts, grid, line_size=None, **common, order=dealt.numbers)


def _pieces(x: Memory, rows: int) -> TensorMap:
    """A tensor map of rows of 128 bytes."""
    return tensor_map(x, (1, 1, rows, PIECE), swizzle=ROW_BYTES)


def _launch(
    planner: Planner,
    p: Problem,
    t: Configuration,
    views: list[Memory],
    masks: tuple[Memory, ...],
    scale: float,
) -> None:
    q, k, v, out = views
    common = {"q": q, "k": k, "v": v, "out": out, "masks": masks, "scale": scale, "t": t}
    bands = -(-p.queries // t.height)
    if isinstance(t, Strips):
        planner.launch(attend_strips, p.heads * bands, **common)
    elif isinstance(t, Squares):
        cubes = p.heads * bands * -(-p.width // t.width)
        grid = Fixed((cubes, 1, 1), (t.side * t.side, 1, 1))
        planner.launch(attend_squares, grid, **common)
