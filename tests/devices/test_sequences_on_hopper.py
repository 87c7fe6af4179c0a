"""Ragged and paged attention by `wgmma` on Hopper, against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.devices.test_attention_on_hopper import (
    DTYPES,
    SMALL,
    attended,
    require_small,
    weights_of,
)

RNG = np.random.default_rng(6)
LENGTHS = ((300, 0, 1, 64, 257), (300, 90, 700, 0, 129))
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"causal": True},
    {"window": (100, 30)},
    {"causal": True, "window": (70, None)},
)


def offsets(lengths: Any) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32).astype(DTYPES[dtype][0])


def check(
    out: Any,
    arrays: Any,
    begins: Any,
    dtype: str,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
) -> None:
    """Each sequence of a ragged result; `arrays`: queries, keys and values of all."""
    rounding, found = DTYPES[dtype][1], out.numpy().astype(np.float64)
    for s in range(len(begins[0]) - 1):
        mine, own = (slice(b[s], b[s + 1]) for b in begins)
        q, k, v = (x[p].astype(np.float64) for x, p in zip(arrays, (mine, own, own), strict=True))
        group = q.shape[1] // k.shape[1]
        q, k, v = q.swapaxes(0, 1), *(np.repeat(x.swapaxes(0, 1), group, 0) for x in (k, v))
        if k.shape[1] == 0:
            assert not found[mine].any()
            continue
        ahead = np.arange(k.shape[1]) - np.arange(q.shape[1])[:, None] - (k.shape[1] - q.shape[1])
        before, behind = (np.inf if n is None else n for n in window)
        seen = (ahead >= -before) & (ahead <= (0 if causal else behind))
        if q.shape[1] == 0:
            continue
        expected, bound = attended(q, k, v, False, q.shape[-1] ** -0.5, seen)
        top = q.shape[-1] ** 1.5 * np.abs(k).max() * 2.0**-22
        allowed = (rounding * 1.5 + top) * bound + rounding * np.abs(expected) + 1e-7
        assert np.all(np.abs(found[mine].swapaxes(0, 1) - expected) <= allowed), s


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("heads", "own"), [(8, 2), (3, 3), (6, 2), (8, 1)])
@pytest.mark.parametrize(("size", "width"), [(64, 64), (128, 128), (256, 256), (72, 40)])
def test_ragged(hopper: str, size: int, width: int, heads: int, own: int, options: Any):
    check_ragged(hopper, LENGTHS, size, width, heads, own, "bf16" if heads == 8 else "f16", options)


def check_ragged(
    device: str,
    lengths: Any,
    size: int,
    width: int,
    heads: int,
    own: int,
    dtype: str,
    options: Any,
) -> None:
    """`lengths`: of queries and of keys."""
    queries, keys = lengths
    q = numbers((sum(queries), heads, size), dtype)
    k, v = (numbers((sum(keys), own, n), dtype) for n in (size, width))
    begins = offsets(queries), offsets(keys)
    out = cp.asarray(np.full((*q.shape[:-1], width), np.nan, q.dtype), device=device)
    placed = [cp.asarray(x, device=device) for x in (q, k, v, *begins)]
    cp.kernels.attention_ragged(*placed, out=out, **options)
    check(out, (q, k, v), begins, dtype, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_parts_of_ragged_keys(hopper: str, options: Any):
    """Sequences of few queries, whose keys several cubes share."""
    check_ragged(hopper, ((1, 1, 1), (5000, 3, 1300)), 128, 128, 8, 2, "bf16", options)
    check_ragged(hopper, ((2, 0, 40, 1), (900, 70, 4000, 0)), 64, 128, 6, 2, "f16", options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_parts_of_paged_keys(hopper: str, options: Any):
    check_paged(hopper, (3000, 0, 17, 900), 128, 16, (1, 8), options)
    check_paged(hopper, [100 * n for n in range(40)], 64, 64, (1,), options)


def test_other_sequences_do_not_matter(hopper: str):
    q, k, v = (numbers((400, 2, 64), "f16") for _ in range(3))
    begins = offsets((130, 100, 170))
    for x in (q, k, v):
        x[130:230] = np.nan
    placed = [cp.asarray(x, device=hopper) for x in (q, k, v, begins)]
    found = cp.kernels.attention_ragged(*placed).numpy()
    assert np.isnan(found[130:230]).all()
    assert not np.isnan(np.delete(found, np.s_[130:230], 0)).any()


def paged(rows: Any, keys: Any, page: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows in shuffled pages, whose other rows are NaN, and the table, whose other entries are
    beyond all pages."""
    counts = [-(-n // page) for n in keys]
    order = RNG.permutation(sum(counts) + 3)
    pools = [np.full((len(order), page, *x.shape[1:]), np.nan, x.dtype) for x in rows]
    table = np.full((len(keys), max(counts) + 1), 1 << 24, np.int32)
    taken = iter(order)
    for s, begin in enumerate(offsets(keys)[:-1]):
        for n in range(counts[s]):
            table[s, n] = next(taken)
            count = min(keys[s] - n * page, page)
            for pool, x in zip(pools, rows, strict=True):
                pool[table[s, n], :count] = x[begin + n * page : begin + n * page + count]
    return pools, table


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("page", [8, 16, 64, 256])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_paged(hopper: str, size: int, page: int, options: Any):
    check_paged(hopper, LENGTHS[1], size, page, (None, 1, 5, 100), options)


def check_paged(
    device: str, keys: Any, size: int, page: int, queries: tuple[int | None, ...], options: Any
) -> None:
    """`queries`: of each sequence, None for different ones."""
    k, v = (numbers((sum(keys), 2, size), "bf16") for _ in range(2))
    pools, table = paged((k, v), keys, page)
    lengths = np.array(keys, np.int32)
    held = [cp.asarray(x, device=device) for x in (*pools, table, lengths)]
    for each in queries:
        begins = offsets(LENGTHS[0] if each is None else [each] * len(keys))
        q = numbers((begins[-1], 8, size), "bf16")
        shape = q.shape if each is None else (len(keys), each, 8, size)
        out = cp.asarray(np.full(shape, np.nan, q.dtype), device=device)
        more = dict(options, out=out)
        if each is None:
            more["q_offsets"] = cp.asarray(begins, device=device)
        cp.kernels.attention_paged(cp.asarray(q.reshape(shape), device=device), *held, **more)
        out = cp.asarray(out.numpy().reshape(q.shape), device=device)
        check(out, (q, k, v), (begins, offsets(keys)), "bf16", **options)


def seen_keys(queries: int, keys: int, causal: bool = False, window: Any = (None, None)) -> Any:
    """Which keys each query of a sequence sees."""
    ahead = np.arange(keys) - np.arange(queries)[:, None] - (keys - queries)
    before, behind = (np.inf if n is None else n for n in window)
    return (ahead >= -before) & (ahead <= (0 if causal else behind))


def require_small_sequences(out: Any, arrays: Any, begins: Any, **options: Any) -> None:
    """`require_small` of each sequence."""
    found = out.numpy().astype(np.float64)
    for s in range(len(begins[0]) - 1):
        mine, own = (slice(b[s], b[s + 1]) for b in begins)
        q, k, v = (x[p].astype(np.float64) for x, p in zip(arrays, (mine, own, own), strict=True))
        if 0 in (len(q), len(k)):
            assert not found[mine].any()
            continue
        group = q.shape[1] // k.shape[1]
        q, k, v = q.swapaxes(0, 1), *(np.repeat(x.swapaxes(0, 1), group, 0) for x in (k, v))
        seen = seen_keys(q.shape[1], k.shape[1], **options)
        weights = weights_of(q, k, False, q.shape[-1] ** -0.5, seen)
        eps = float(np.finfo(np.float16).eps)
        require_small(found[mine].swapaxes(0, 1), weights, (q, k, v), eps)


@pytest.mark.parametrize(
    ("dtype", "size", "page", "kind", "options"),
    [
        ("e4m3", 128, 16, np.float32, OPTIONS[0]),
        ("e4m3", 128, 64, np.float16, OPTIONS[1]),
        ("e5m2", 64, 16, np.float16, OPTIONS[2]),
        ("e5m2", 64, 8, np.float32, OPTIONS[3]),
        ("e4m3", 208, 32, np.float16, OPTIONS[1]),
    ],
)
def test_sequences_of_8_bits(
    hopper: str, dtype: str, size: int, page: int, kind: Any, options: Any
):
    queries, keys = LENGTHS
    begins = offsets(queries), offsets(keys)
    q, k, v = (
        RNG.standard_normal((sum(n), heads, size)).astype(SMALL[dtype])
        for n, heads in ((queries, 8), (keys, 2), (keys, 2))
    )
    out = cp.asarray(np.full(q.shape, np.nan, kind), device=hopper)
    placed = [cp.asarray(x, device=hopper) for x in (q, k, v, *begins)]
    cp.kernels.attention_ragged(*placed, out=out, dtype=kind, **options)
    require_small_sequences(out, (q, k, v), begins, **options)
    pools, table = paged((k, v), keys, page)
    held = [cp.asarray(x, device=hopper) for x in (*pools, table, np.array(keys, np.int32))]
    for each in (1, 5):
        begins = offsets([each] * len(keys)), begins[1]
        q = RNG.standard_normal((len(keys), each, 8, size)).astype(SMALL[dtype])
        more = dict(options, dtype=kind)
        found = cp.kernels.attention_paged(cp.asarray(q, device=hopper), *held, **more)
        out = cp.asarray(found.numpy().reshape(-1, 8, size), device=hopper)
        require_small_sequences(out, (q.reshape(-1, 8, size), k, v), begins, **options)
