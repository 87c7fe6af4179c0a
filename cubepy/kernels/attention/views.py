"""The operands of attention as kernels see them: checked, with the axes of the queries."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.ir.types import DType, Kind, f32, find_dtype
from cubepy.kernels.calls.arguments import refused, wrong
from cubepy.kernels.matmul.problem import broadcast, expanded
from cubepy.lang.cuda import TensorMap, tensor_map
from cubepy.lang.pipelines import ROW_BYTES
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Views:
    """The operands with equal axes before the last two: `rows` are queries and gradients of
    results, `keys` also values, `outs` the gradients of queries, keys and values, which have one
    element along axes that they are summed over."""

    rows: tuple[Memory, Memory]
    keys: tuple[Memory, ...]
    result: Memory
    logs: Memory
    masks: tuple[Memory, ...]
    outs: tuple[Memory, ...]


def checked(
    function: str, q: Memory, k: Memory, v: Memory, masks: tuple[Memory, ...]
) -> tuple[tuple[int, ...], int]:
    """The axes before the last two, and how many neighbouring heads share keys, 0 for none; E601
    or E602 where the operands do not fit."""
    _check_types(function, q, k, v, masks)
    _check_shapes(function, q, k, v)
    batch, groups = _batch(function, q, k, v)
    whole = (*batch, q.shape[-2], k.shape[-2])
    for mask in masks:
        if broadcast(mask.shape, whole) != whole:
            reason = f"`mask` has shape {mask.shape}, the scores {whole}"
            raise wrong(function, reason, "mask broadcasts to the scores")
    return batch, groups


def computed(dtype: DType) -> DType:
    """The type that scores and sums have."""
    return dtype if dtype.bits >= 32 else f32


def result_of(dtype: DType) -> DType:
    """The type of results, unless the caller names one."""
    return f32 if dtype.bits == 8 else dtype


def result_type(function: str, dtype: Any) -> DType | None:
    """The type that the caller names; E602 for what is no float."""
    kind = None if dtype is None else find_dtype(dtype)
    if dtype is not None and (kind is None or not kind.is_float):
        raise refused(function, "dtype", f"is {dtype!r}", "name a float")
    return kind


def scale_of(scale: float | None, q: Memory) -> float:
    """What scores are multiplied by."""
    if scale is not None:
        return float(scale)
    return 1 / sqrt(q.shape[-1]) if q.shape[-1] else 1.0


def _check_types(function: str, q: Memory, k: Memory, v: Memory, masks: tuple[Memory, ...]) -> None:
    if not q.dtype.is_float:
        raise refused(function, "q", f"has dtype {q.dtype}", "convert it to a float")
    if k.dtype is not q.dtype or v.dtype is not q.dtype:
        reason = f"`q` is {q.dtype}, `k` is {k.dtype}, `v` is {v.dtype}"
        raise fail("E602", function=function, reason=reason, suggestion="convert to one dtype")
    for mask in masks:
        if mask.dtype.kind is not Kind.BOOL and mask.dtype not in (q.dtype, f32):
            what = f"has dtype {mask.dtype}, but `q` has {q.dtype}"
            raise refused(function, "mask", what, "it is bool_, f32, or of the dtype of `q`")


def _check_shapes(function: str, q: Memory, k: Memory, v: Memory) -> None:
    shown = f"`q` has shape {q.shape}, `k` {k.shape} and `v` {v.shape}"
    if min(len(m.shape) for m in (q, k, v)) < 2:
        raise wrong(function, shown, "each has two axes at least")
    if q.shape[-1] != k.shape[-1]:
        raise wrong(function, shown, "the last axes of `q` and `k` are equally long")
    if k.shape[-2] != v.shape[-2]:
        raise wrong(function, shown, "`k` and `v` have equally many keys")


def _batch(function: str, q: Memory, k: Memory, v: Memory) -> tuple[tuple[int, ...], int]:
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
    raise wrong(function, reason, "the heads of `q` are a multiple of those of `k` and `v`")


def heads_of_one(batch: tuple[int, ...], k: Memory, v: Memory) -> int:
    """How many heads broadcasting gives the same keys and values; 0 where it does not."""
    is_one = all(m.shape[-3:-2] in ((), (1,)) for m in (k, v))
    return batch[-1] if batch and is_one else 0


def split(x: Memory, groups: int) -> Memory:
    """Heads as those of the keys by those that share them."""
    if not groups:
        return x
    shape, strides = list(x.shape), list(x.strides)
    shape[-3:-2] = [shape[-3] // groups, groups]
    strides[-3:-2] = [strides[-3] * groups, strides[-3]]
    return replace(x, shape=tuple(shape), strides=tuple(strides))


def headed(x: Memory, batch: tuple[int, ...], groups: int) -> Memory:
    """Keys or values with the axes of the queries."""
    if not groups:
        return expanded(x, (*batch, *x.shape[-2:]))
    heads = batch[-1] // groups
    found = expanded(x, (*batch[:-1], heads, *x.shape[-2:]))
    shape, strides = list(found.shape), list(found.strides)
    shape.insert(-2, groups)
    strides.insert(-2, 0)
    return replace(found, shape=tuple(shape), strides=tuple(strides))


def owned(x: Memory, batch: tuple[int, ...], groups: int) -> Memory:
    """The gradient of keys or values with the axes of the queries, of one element where they are
    shared."""
    missing = len(batch) + 2 - len(x.shape)
    shape, strides = [1] * missing + list(x.shape), [0] * missing + list(x.strides)
    if groups:
        shape.insert(-2, 1)
        strides.insert(-2, 0)
    return replace(x, shape=tuple(shape), strides=tuple(strides))


def column(x: Memory) -> Memory:
    """Numbers of queries as rows of one element."""
    return replace(x, shape=(*x.shape, 1), strides=(*x.strides, x.dtype.itemsize))


def without_column(x: Memory) -> Memory:
    """The way back."""
    return replace(x, shape=x.shape[:-1], strides=x.strides[:-1])


def with_queries(x: Memory, rows: int) -> Memory:
    """Heads that share keys, of one query each, as heads of so many: [..., groups, 1, n] as [...,
    groups / rows, rows, n]."""
    shape = *x.shape[:-3], x.shape[-3] // rows, rows, x.shape[-1]
    strides = *x.strides[:-3], x.strides[-3] * rows, x.strides[-3], x.strides[-1]
    return replace(x, shape=shape, strides=strides)


def with_fewer_heads(x: Memory, rows: int) -> Memory:
    """Keys or values for these: [..., groups, keys, n], the same for all of a group."""
    return replace(x, shape=(*x.shape[:-3], x.shape[-3] // rows, *x.shape[-2:]))


def pieces(x: Memory, rows: int) -> TensorMap:
    """A tensor map of rows of 128 bytes."""
    return tensor_map(x, (1, 1, rows, ROW_BYTES // x.dtype.itemsize), swizzle=ROW_BYTES)
