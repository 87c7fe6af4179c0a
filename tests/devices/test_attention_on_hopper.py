"""Attention by `wgmma` on Hopper, against f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp

RNG = np.random.default_rng(5)
DTYPES = {"bf16": (ml_dtypes.bfloat16, 2.0**-8), "f16": (np.float16, 2.0**-11)}
SMALL = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def attended(
    q: Any, k: Any, v: Any, causal: bool, scale: float, mask: Any = None, window: Any = None
) -> tuple[Any, Any]:
    """The result in f64, and the size of what was added for it."""
    weights = weights_of(q, k, causal, scale, mask, window)
    return weights @ v, weights @ np.abs(v)


def weights_of(
    q: Any, k: Any, causal: bool, scale: float, mask: Any = None, window: Any = None
) -> Any:
    """What values are multiplied by, in f64."""
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    ahead = np.subtract.outer(-np.arange(q.shape[-2]), -np.arange(k.shape[-2]))
    for n, sign in zip(window or (None, None), (-1, 1), strict=True):
        scores = np.where(ahead * sign > (np.inf if n is None else n), -np.inf, scores)
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def check(
    device: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    *,
    width: int = 0,
    causal: bool = False,
    dtype: str = "bf16",
    scale: float | None = None,
    size: float = 1.0,
    order: tuple[int, ...] = (),
    mask: Any = None,
    window: tuple[int | None, int | None] | None = None,
) -> None:
    """`order`: how axes lie in memory, the outermost first; `size`: of queries."""
    kind, rounding = DTYPES[dtype]
    shapes = [q, k, (*k[:-1], width or k[-1])]
    values = [RNG.standard_normal(s).astype(np.float32) for s in shapes]
    values[0] *= size
    halves = [x.astype(kind) for x in values]
    placed = [cp.asarray(_ordered(x, order), device=device) for x in halves]
    if order:
        placed = [Turned(x, tuple(np.argsort(order).tolist())) for x in placed]
    options: Any = {"causal": causal, "scale": scale, "window": window}
    if mask is not None:
        options["mask"] = cp.asarray(mask, device=device)
    out = cp.asarray(np.full((*q[:-1], width or k[-1]), np.nan, kind), device=device)
    if order:
        out = cp.kernels.attention(*placed, **options)
    else:
        cp.kernels.attention(*placed, out=out, **options)
    exact: list[Any] = [x.astype(np.float64) for x in halves]
    heads, kept = q[-3:-2], k[-3:-2]
    if heads and kept and heads != kept:
        exact[1:] = [np.repeat(x, heads[0] // kept[0], -3) for x in exact[1:]]
    number = scale if scale is not None else q[-1] ** -0.5
    expected, bound = attended(exact[0], exact[1], exact[2], causal, number, mask, window)
    # A weight is rounded once; scores are sums of products in f32, whose exponentials are near.
    top = np.abs(number) * size * (np.abs(exact[1]).max() * q[-1]) * q[-1] * 2.0**-22
    allowed = (rounding * 1.5 + top) * bound + rounding * np.abs(expected) + 1e-7
    found = out.numpy().astype(np.float64)
    assert found.shape == expected.shape
    assert np.all(np.abs(found - expected) <= allowed)


def check_small(
    device: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    *,
    width: int = 0,
    dtype: str = "e4m3",
    kind: Any = np.float32,
    causal: bool = False,
    mask: Any = None,
    window: tuple[int | None, int | None] | None = None,
    size: float = 1.0,
) -> None:
    """Floats of 8 bits, and results of another `kind`."""
    shapes = [q, k, (*k[:-1], width or k[-1])]
    arrays = [(RNG.standard_normal(s) * size).astype(SMALL[dtype]) for s in shapes]
    options: Any = {"causal": causal, "window": window, "dtype": kind}
    if mask is not None:
        options["mask"] = cp.asarray(mask, device=device)
    out = cp.asarray(np.full((*q[:-1], shapes[2][-1]), np.nan, kind), device=device)
    cp.kernels.attention(*(cp.asarray(x, device=device) for x in arrays), out=out, **options)
    exact: list[Any] = [x.astype(np.float64) for x in arrays]
    heads, kept = q[-3:-2], k[-3:-2]
    if heads and kept and heads != kept:
        exact[1:] = [np.repeat(x, heads[0] // kept[0], -3) for x in exact[1:]]
    weights = weights_of(exact[0], exact[1], causal, q[-1] ** -0.5, mask, window)
    require_small(out.numpy().astype(np.float64), weights, exact, float(ml_dtypes.finfo(kind).eps))


def require_small(found: Any, weights: Any, exact: Any, rounding: float) -> None:
    """What docs/accuracy.md says of attention of 8-bit floats. A weight has an error of a 16th, at
    random: results are far nearer than these could add up to."""
    q, k, v = exact
    expected, bound = weights @ v, weights @ np.abs(v)
    top = np.abs(q).max() * np.abs(k).max() * q.shape[-1] ** 0.5 * 2.0**-12
    least = weights.max(-1, keepdims=True) * 2.0**-17 * np.abs(v).sum(-2, keepdims=True)
    errors = np.abs(found - expected)
    assert np.all(
        errors <= (2.0**-4 + 2.0**-11 + 2 * top) * bound + least + rounding * bound + 1e-7
    )
    spread = np.sqrt(weights**2 @ v**2) * (0.04 + rounding) + top * bound + least + 1e-7
    assert np.sqrt(np.mean((errors / spread) ** 2)) <= 1


class Turned:
    """An array with its axes in another order, by CUDA's interface."""

    def __init__(self, x: Any, order: tuple[int, ...]) -> None:
        self.kept = x
        found = dict(x.__cuda_array_interface__)
        shape, strides = found["shape"], x.strides
        found["shape"] = tuple(shape[n] for n in order)
        found["strides"] = tuple(strides[n] for n in order)
        self.__cuda_array_interface__ = found


def _ordered(x: Any, order: tuple[int, ...]) -> Any:
    return np.ascontiguousarray(x.transpose(order)) if order else x


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [64, 128, 192, 256])
def test_head_sizes(hopper: str, size: int, dtype: str, causal: bool):
    check(hopper, (2, 3, 520, size), (2, 3, 520, size), causal=causal, dtype=dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [8, 40, 80, 96, 136])
def test_sizes_within_pieces(hopper: str, size: int, causal: bool):
    check(hopper, (3, 300, size), (3, 200, size), causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(1, 1), (1, 300), (129, 127), (64, 1000), (1000, 64), (777, 2), (383, 641)],
)
def test_odd_lengths(hopper: str, queries: int, keys: int, causal: bool):
    for size in (64, 128):
        check(hopper, (2, queries, size), (2, keys, size), causal=causal)


def test_more_tiles_than_cubes(hopper: str):
    check(hopper, (4, 40, 300, 128), (4, 40, 300, 128), causal=True)
    check(hopper, (4, 40, 300, 64), (4, 40, 300, 64))


def test_heads_that_share_keys(hopper: str):
    check(hopper, (2, 8, 200, 128), (2, 2, 200, 128), causal=True)
    check(hopper, (2, 8, 200, 64), (2, 1, 264, 64))
    check(hopper, (3, 8, 200, 64), (8, 264, 64))
    check(hopper, (2, 3, 4, 70, 64), (90, 64))


def test_values_of_another_width(hopper: str):
    check(hopper, (2, 200, 64), (2, 200, 64), width=128)
    check(hopper, (2, 200, 128), (2, 200, 128), width=40, causal=True)


def test_heads_between_rows_and_elements(hopper: str):
    check(hopper, (2, 6, 200, 128), (2, 6, 200, 128), order=(0, 2, 1, 3), causal=True, dtype="f16")
    check(hopper, (2, 6, 200, 64), (2, 3, 333, 64), order=(2, 0, 1, 3), dtype="f16")


def test_scales(hopper: str):
    check(hopper, (2, 200, 64), (2, 200, 64), scale=0.0)
    check(hopper, (2, 200, 64), (2, 200, 64), scale=-0.3)
    check(hopper, (2, 200, 128), (2, 500, 128), size=30.0, causal=True)


def test_nothing_is_left_of_a_row_of_nan(hopper: str):
    q = RNG.standard_normal((200, 64)).astype(np.float16)
    q[77, 3] = np.nan
    placed = cp.asarray(q, device=hopper)
    found = cp.kernels.attention(placed, placed, placed).numpy()
    assert np.isnan(found).all()  # each query meets the key of that row
    k = cp.asarray(RNG.standard_normal((300, 64)).astype(np.float16), device=hopper)
    found = cp.kernels.attention(placed, k, k).numpy()
    assert np.isnan(found[77]).all()
    assert not np.isnan(np.delete(found, 77, 0)).any()


def check_unseen(device: str, queries: int, keys: int, dtype: str) -> None:
    """Zeros are what queries give that see no key, whatever values are."""
    kind = DTYPES[dtype][0]
    q, k = (RNG.standard_normal((2, 3, n, 64)).astype(kind) for n in (queries, keys))
    sees = (np.arange(queries) % 2 == 1)[:, None] & np.ones(keys, bool)
    for value in (np.nan, np.inf):
        given = [cp.asarray(x, device=device) for x in (q, k, np.full_like(k, value), sees)]
        found = cp.kernels.attention(*given[:3], mask=given[3]).numpy().astype("f4")
        assert (found[:, :, ::2] == 0).all()
        assert not np.isfinite(found[:, :, 1::2]).any()


@pytest.mark.parametrize(("queries", "keys"), [(3, 2000), (200, 70), (200, 3000)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_that_see_nothing(hopper: str, queries: int, keys: int, dtype: str):
    check_unseen(hopper, queries, keys, dtype)


def test_parts_of_keys(hopper: str):
    check(hopper, (2, 8, 1, 128), (2, 2, 5000, 128))
    check(hopper, (2, 8, 3, 64), (2, 2, 1001, 64), width=128)
    check(hopper, (1, 3, 40, 256), (1, 3, 700, 256), dtype="f16")
    check(hopper, (2, 2, 200, 128), (2, 1, 3000, 128))
    check(hopper, (4, 6, 2, 128), (4, 2, 900, 128), order=(0, 2, 1, 3), dtype="f16")


def test_tiles_around_a_whole_turn(hopper: str):
    check(hopper, (134, 150, 64), (134, 2000, 64))
    check(hopper, (67, 200, 128), (67, 1999, 128), dtype="f16")
    check(hopper, (140, 60, 128), (140, 1500, 128))
    check(hopper, (67, 200, 256), (67, 801, 256), width=64)
    check(hopper, (1, 300, 128), (1, 1500, 128), mask=RNG.random((300, 1500)) < 0.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_masks(hopper: str, size: int, causal: bool):
    shape = (2, 3, 333, size)
    for extents in ((333, 333), (2, 1, 1, 333), (3, 1, 333), (2, 3, 333, 333), (333, 1)):
        seen = RNG.random(extents) < 0.6
        check(hopper, shape, shape, causal=causal, mask=seen)
        added = RNG.standard_normal(extents).astype(np.float32)
        added[RNG.random(extents) < 0.1] = -np.inf
        check(hopper, shape, shape, causal=causal, mask=added)
        check(hopper, shape, shape, causal=causal, mask=added.astype(np.float16), dtype="f16")


@pytest.mark.parametrize("causal", [False, True])
def test_masks_of_the_least_floats_give_means(hopper: str, causal: bool):
    least = np.finfo(np.float32).min
    mask = np.where(RNG.random((2, 3001)) < 0.5, least, np.float32(0))
    mask[1] = least
    check(hopper, (2, 2, 128), (2, 3001, 128), mask=mask)  # keys that several cubes share
    for size, queries in ((64, 200), (128, 3)):
        mask = np.where(RNG.random((queries, 300)) < 0.5, least, np.float32(0))
        mask[1] = least
        mask[queries // 2] = np.where(RNG.random(300) < 0.5, least, np.float32(-np.inf))
        check(hopper, (2, queries, size), (2, 300, size), causal=causal, mask=mask)
        check(hopper, (2, queries, size), (2, 300, size), mask=mask, scale=37.5)
        mask[1] = -1e30
        check(hopper, (2, queries, size), (2, 300, size), causal=causal, mask=mask)


@pytest.mark.parametrize("width", [20, 36, 100])
def test_results_of_f32_end_with_their_rows(hopper: str, width: int):
    """Rows of results are dense; those of values have room behind them."""
    q, k, wide = (RNG.standard_normal((2, 130, 128)).astype(ml_dtypes.bfloat16) for _ in range(3))
    a, b, c = (cp.asarray(x, device=hopper) for x in (q, k, wide))
    kept = cp.asarray(np.full((3, 130, width), np.nan, np.float32), device=hopper)
    cp.kernels.attention(a, b, c[..., :width], dtype="f32", out=kept[:2])
    found = kept.numpy()
    exact = [x.astype(np.float64) for x in (q, k, wide[..., :width])]
    expected, bound = attended(exact[0], exact[1], exact[2], False, 128**-0.5)
    assert np.all(np.abs(found[:2] - expected) <= 2.0**-7 * bound)
    assert np.isnan(found[2]).all()


def test_clusters_on_few_and_many_heads(hopper: str):
    for heads in (1, 7, 15, 16, 17):
        check(hopper, (heads, 1, 128), (heads, 2000, 128))
        check(hopper, (heads, 33, 64), (heads, 1111, 64), dtype="f16")


def test_masks_of_few_queries(hopper: str):
    check(hopper, (2, 8, 1, 128), (2, 2, 3000, 128), mask=RNG.random((2, 1, 1, 3000)) < 0.5)
    check(hopper, (2, 8, 5, 64), (2, 2, 3000, 64), mask=RNG.random((8, 5, 3000)) < 0.5)
    check(hopper, (2, 8, 5, 64), (2, 2, 300, 64), mask=np.zeros((5, 1), bool))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_windows(hopper: str, size: int, causal: bool):
    shape = (2, 3, 777, size)
    for window in ((0, 0), (5, 3), (100, None), (None, 60), (128, 127), (300, 500), (776, 1)):
        check(hopper, shape, shape, causal=causal, window=window)
    check(hopper, (2, 900, size), (2, 300, size), causal=causal, window=(40, 40))
    check(hopper, (2, 1, size), (2, 300, size), causal=causal, window=(40, 40))
    seen = RNG.random((777, 777)) < 0.6
    check(hopper, shape, shape, causal=causal, window=(200, 90), mask=seen, dtype="f16")
    check(hopper, (2, 6, 500, size), (2, 2, 500, size), causal=causal, window=(128, 0))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("size", [16, 64, 80, 128, 144, 256])
def test_floats_of_8_bits(hopper: str, size: int, dtype: str, causal: bool):
    kind = (np.float32, ml_dtypes.bfloat16, np.float16)[(size // 16 + causal) % 3]
    shapes = (2, 3, 520, size), (2, 3, 460, size)
    check_small(hopper, *shapes, dtype=dtype, kind=kind, causal=causal)


def test_forms_of_8_bits(hopper: str):
    check_small(hopper, (2, 8, 1, 128), (2, 2, 5000, 128))
    check_small(hopper, (2, 8, 200, 64), (2, 2, 333, 64), width=128, kind=ml_dtypes.bfloat16)
    check_small(hopper, (2, 200, 128), (2, 200, 128), width=48, causal=True)
    check_small(hopper, (2, 8, 1, 192), (2, 2, 3000, 192), width=208, kind=np.float16)
    check_small(hopper, (2, 200, 64), (2, 333, 64), width=400, kind=np.float16)
    check_small(hopper, (2, 333, 256), (2, 333, 256), mask=RNG.random((333, 333)) < 0.6)
    check_small(hopper, (4, 40, 300, 128), (4, 10, 300, 128), causal=True, kind=np.float16)
    check_small(hopper, (2, 3, 333, 64), (2, 3, 333, 64), mask=RNG.random((333, 333)) < 0.6)
    check_small(hopper, (2, 3, 333, 128), (2, 3, 333, 128), window=(100, 20))
    check_small(hopper, (2, 300, 128), (2, 700, 128), size=3.0, dtype="e5m2")
    for queries, keys in ((1, 1), (129, 127), (1000, 64), (3, 129)):
        check_small(hopper, (queries, 128), (keys, 128))
