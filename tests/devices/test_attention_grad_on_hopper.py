"""Gradients of attention by `wgmma` on Hopper, against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.devices.test_attention_on_hopper import DTYPES, Turned

RNG = np.random.default_rng(6)


def exact(
    q: Any,
    k: Any,
    v: Any,
    grad: Any,
    causal: bool,
    scale: float,
    rounding: float,
    mask: Any = None,
    window: Any = None,
) -> list[tuple[Any, Any]]:
    """The gradients by q, k and v in f64, and how far they may be off.

    Weights and gradients of scores are rounded once before they are multiplied; what is subtracted
    has the rounding of the result; scores are sums in f32, whose exponentials are near.
    """
    scores = q @ k.swapaxes(-1, -2) * scale
    size = np.abs(q) @ np.abs(k).swapaxes(-1, -2) * abs(scale)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    ahead = np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None]
    for n, sign in zip(window or (None, None), (-1, 1), strict=True):
        scores = np.where(ahead * sign > (np.inf if n is None else n), -np.inf, scores)
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores, size = scores + mask.astype("f8"), size + np.abs(mask.astype("f8"))
        size = np.where(np.isinf(size), 0, size)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    near = size.max(-1, keepdims=True) * q.shape[-1] * 2.0**-21 + 2.0**-19
    delta = (grad * (weights @ v)).sum(-1, keepdims=True)
    slopes = weights * (grad @ v.swapaxes(-1, -2) - delta) * scale
    known = (np.abs(grad) * (weights @ np.abs(v))).sum(-1, keepdims=True)
    steep = weights * (np.abs(grad) @ np.abs(v).swapaxes(-1, -2) + known) * abs(scale)
    off = 2 * rounding * np.abs(slopes) + near * steep
    off += 2 * rounding * weights * known * abs(scale)
    flat = (weights * (rounding * 1.5 + near)).swapaxes(-1, -2)
    return [
        (slopes @ k, off @ np.abs(k)),
        (slopes.swapaxes(-1, -2) @ q, off.swapaxes(-1, -2) @ np.abs(q)),
        (weights.swapaxes(-1, -2) @ grad, flat @ np.abs(grad)),
    ]


def check(
    device: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    *,
    width: int = 0,
    causal: bool = False,
    dtype: str = "bf16",
    scale: float | None = None,
    order: tuple[int, ...] = (),
    mask: Any = None,
    window: tuple[int | None, int | None] | None = None,
) -> None:
    """`order`: how axes lie in memory, the outermost first."""
    kind, rounding = DTYPES[dtype]
    width = width or k[-1]
    shapes = q, k, (*k[:-1], width), (*q[:-1], width)
    halves = [RNG.standard_normal(s).astype(np.float32).astype(kind) for s in shapes]

    def placed(x: Any) -> Any:
        if not order:
            return cp.asarray(x, device=device)
        kept = cp.asarray(np.ascontiguousarray(x.transpose(order)), device=device)
        return Turned(kept, _turned(order))

    a, b, c, grad = map(placed, halves)
    options: Any = {"causal": causal, "scale": scale, "window": window}
    if mask is not None:
        options["mask"] = cp.asarray(mask, device=device)
    if order:  # all arrays of one call are of one library
        found = cp.kernels.attention(a, b, c, return_lse=True, **options)
        result, lse = (Turned(x, tuple(range(len(x.shape)))) for x in found)
        out = cp.kernels.attention_grad(a, b, c, result, lse, grad, **options)
    else:
        result, lse = _poisoned(device, (*q[:-1], width), kind), _poisoned(device, q[:-1], "f4")
        cp.kernels.attention(a, b, c, return_lse=True, out=(result, lse), **options)
        out = tuple(_poisoned(device, x.shape, kind) for x in halves[:3])
        cp.kernels.attention_grad(a, b, c, result, lse, grad, out=out, **options)
    wide: list[Any] = [x.astype(np.float64) for x in halves]
    heads, kept = q[-3:-2], k[-3:-2]
    group = heads[0] // kept[0] if heads else 1
    if group > 1:
        wide[1:3] = [np.repeat(x, group, -3) for x in wide[1:3]]
    number = scale if scale is not None else q[-1] ** -0.5
    sees: tuple[Any, Any] = mask, window
    wanted = exact(wide[0], wide[1], wide[2], wide[3], causal, number, rounding, *sees)
    for n, (found, (value, bound)) in enumerate(zip(out, wanted, strict=True)):
        if group > 1 and n:
            split = (*k[:-2], group, *value.shape[-2:])
            value, bound = value.reshape(split).sum(-3), bound.reshape(split).sum(-3)
        got = found.numpy().astype(np.float64)
        assert got.shape == value.shape
        assert np.all(np.abs(got - value) <= bound + rounding * np.abs(value) + 1e-7)


def _poisoned(device: str, shape: tuple[int, ...], kind: Any) -> Any:
    return cp.asarray(np.full(shape, np.nan, kind), device=device)


def _turned(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(n) for n in range(len(order)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [64, 128, 192, 256])
def test_head_sizes(hopper: str, size: int, dtype: str, causal: bool):
    check(hopper, (2, 3, 520, size), (2, 3, 520, size), causal=causal, dtype=dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [8, 40, 80, 96, 136, 248])
def test_sizes_within_pieces(hopper: str, size: int, causal: bool):
    check(hopper, (3, 300, size), (3, 200, size), causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(1, 1), (1, 300), (129, 127), (64, 1000), (1000, 64), (777, 2), (383, 641), (160, 128)],
)
def test_odd_lengths(hopper: str, queries: int, keys: int, causal: bool):
    for size in (64, 128, 256):
        check(hopper, (2, queries, size), (2, keys, size), causal=causal)


def test_heads_that_share_keys(hopper: str):
    check(hopper, (2, 8, 200, 128), (2, 2, 200, 128), causal=True)
    check(hopper, (2, 8, 200, 64), (2, 1, 264, 64))
    check(hopper, (2, 8, 200, 256), (2, 2, 264, 256), dtype="f16")


def test_more_cubes_than_multiprocessors(hopper: str):
    check(hopper, (2, 40, 300, 128), (2, 40, 300, 128), causal=True)
    check(hopper, (2, 40, 300, 64), (2, 40, 300, 64))
    check(hopper, (2, 40, 300, 256), (2, 40, 300, 256), causal=True)


def test_values_of_another_width(hopper: str):
    check(hopper, (2, 200, 64), (2, 200, 64), width=128)
    check(hopper, (2, 200, 128), (2, 200, 128), width=40, causal=True)
    check(hopper, (2, 200, 192), (2, 200, 192), width=128, causal=True)


def test_heads_between_rows_and_elements(hopper: str):
    check(hopper, (2, 6, 200, 128), (2, 6, 200, 128), order=(0, 2, 1, 3), causal=True, dtype="f16")
    check(hopper, (2, 6, 200, 64), (2, 3, 333, 64), order=(2, 0, 1, 3), dtype="f16")


def test_scales_and_large_scores(hopper: str):
    check(hopper, (2, 200, 64), (2, 200, 64), scale=0.0)
    check(hopper, (2, 200, 128), (2, 500, 128), scale=-0.3, causal=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_masks(hopper: str, size: int, causal: bool):
    shape = (2, 3, 300, size)
    seen = RNG.random((2, 1, 300, 333)) < 0.6
    seen[0, 0, 7] = False
    check(hopper, shape, (2, 3, 333, size), causal=causal, mask=seen)
    check(hopper, shape, (2, 1, 333, size), causal=causal, mask=seen[1, 0, :1])
    added = RNG.standard_normal((3, 300, 300)).astype(np.float32)
    added[:, 5, ::3] = -np.inf
    check(hopper, shape, shape, causal=causal, mask=added)
    check(hopper, shape, shape, causal=causal, mask=added.astype(np.float16), dtype="f16")


@pytest.mark.parametrize("low", [-1e4, -1e9, -1e30, float(np.finfo(np.float32).min)])
def test_masks_of_low_numbers(hopper: str, low: float):
    """Of queries that see all keys so, gradients are finite; those of others are what they are."""
    mask = np.where(RNG.random((130, 200)) < 0.5, np.float32(low), np.float32(0))
    check(hopper, (2, 130, 64), (2, 200, 64), mask=mask)
    mask[77] = low
    q, k, v = (
        cp.asarray(RNG.standard_normal((n, 64)).astype(np.float16), device=hopper)
        for n in (130, 200, 200)
    )
    seen = cp.asarray(mask, device=hopper)
    result, lse = cp.kernels.attention(q, k, v, mask=seen, return_lse=True)
    for found in cp.kernels.attention_grad(q, k, v, result, lse, result, mask=seen):
        assert np.isfinite(found.numpy().astype(np.float32)).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_windows(hopper: str, size: int, causal: bool):
    shape = (2, 777, size)
    for window in ((0, 0), (5, 3), (100, None), (None, 60), (128, 127), (300, 500), (776, 1)):
        check(hopper, shape, shape, causal=causal, window=window)
    check(hopper, (2, 900, size), (2, 300, size), causal=causal, window=(40, 40))
    check(hopper, (2, 70, size), (2, 900, size), causal=causal, window=(400, 40))
    check(hopper, (2, 6, 300, size), (2, 2, 300, size), causal=causal, window=(128, 0))
    seen = RNG.random((777, 777)) < 0.7
    check(hopper, shape, shape, causal=causal, window=(200, 90), mask=seen, dtype="f16")
