"""Attention by the tensor cores of planes, as GPUs of NVIDIA before and after Hopper make it,
against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.attention import entry, sequences
from cubepy.kernels.calls.plans import Plans
from tests.devices.test_attention_on_hopper import DTYPES, RNG, attended, check, check_unseen
from tests.devices.test_sequences_on_hopper import LENGTHS, OPTIONS, check_paged, check_ragged

SIZES = (8, 40, 64, 72, 128, 136, 256)
ODD_LENGTHS = ((1, 1), (1, 300), (16, 17), (17, 65), (65, 64), (129, 127), (300, 2))
"""Numbers of queries and of keys."""


@pytest.fixture
def gpu(cuda: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A GPU with `mma`, whose attention is not made by `wgmma`."""
    if cp.device(cuda).target.version < 80:
        pytest.skip("no GPU with asynchronous copies here")
    for module, names in ((entry, ("_PLANS",)), (sequences, ("_RAGGED", "_PAGED"))):
        monkeypatch.setattr(module, "launches", lambda *_: [])
        for name in names:
            monkeypatch.setattr(module, name, Plans())
    return cuda


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_sizes(gpu: str, size: int, causal: bool):
    dtype = "f16" if size % 16 else "bf16"
    check(gpu, (2, 3, 330, size), (2, 3, 330, size), causal=causal, dtype=dtype)


@pytest.mark.parametrize("width", [8, 24, 64, 200])
def test_values_of_another_width(gpu: str, width: int):
    check(gpu, (2, 200, 64), (2, 200, 64), width=width)
    check(gpu, (2, 3, 128), (2, 1200, 128), width=width)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), ODD_LENGTHS)
def test_odd_lengths(gpu: str, queries: int, keys: int, causal: bool):
    for size in (64, 128):
        check(gpu, (2, queries, size), (2, keys, size), causal=causal)


def test_parts_of_keys(gpu: str):
    check(gpu, (2, 8, 1, 128), (2, 2, 5000, 128))
    check(gpu, (2, 8, 3, 64), (2, 2, 1001, 64), width=128)
    check(gpu, (1, 3, 40, 256), (1, 3, 700, 256), dtype="f16")
    check(gpu, (1, 3, 5, 256), (1, 3, 900, 256))
    check(gpu, (2, 2, 200, 128), (2, 1, 3000, 128))


def test_heads(gpu: str):
    check(gpu, (2, 8, 200, 128), (2, 2, 200, 128), causal=True)
    check(gpu, (3, 8, 200, 64), (8, 264, 64))
    check(gpu, (2, 3, 4, 70, 64), (90, 64))
    check(gpu, (2, 6, 200, 128), (2, 6, 200, 128), order=(0, 2, 1, 3), causal=True, dtype="f16")
    check(gpu, (4, 6, 2, 128), (4, 2, 900, 128), order=(0, 2, 1, 3), dtype="f16")


def test_scales(gpu: str):
    check(gpu, (2, 200, 64), (2, 200, 64), scale=0.0)
    check(gpu, (2, 200, 64), (2, 200, 64), scale=-0.3)
    check(gpu, (2, 200, 128), (2, 500, 128), size=30.0, causal=True)


@pytest.mark.parametrize("size", [64, 256])
def test_masks(gpu: str, size: int):
    shape = (2, 3, 233, size)
    for extents in ((233, 233), (2, 1, 1, 233), (233, 1)):
        check(gpu, shape, shape, mask=RNG.random(extents) < 0.6)
        added = RNG.standard_normal(extents).astype(np.float32)
        added[RNG.random(extents) < 0.1] = -np.inf
        check(gpu, shape, shape, causal=True, mask=added)
    few = RNG.random((3, 700)) < 0.5
    check(gpu, (2, 2, 3, size), (2, 2, 700, size), mask=few)


def test_masks_of_the_least_floats_give_means(gpu: str):
    """Parts of the keys of a row weigh as many as they are."""
    least = np.finfo(np.float32).min
    for queries, keys in ((3, 300), (1, 3001), (130, 2000)):
        mask = np.where(RNG.random((queries, keys)) < 0.5, least, np.float32(0))
        mask[queries // 2] = least
        check(gpu, (2, queries, 128), (2, keys, 128), mask=mask)


@pytest.mark.parametrize("window", [(0, 0), (70, None), (None, 5), (100, 200)], ids=str)
def test_windows(gpu: str, window: tuple[int | None, int | None]):
    check(gpu, (2, 300, 64), (2, 400, 64), window=window)
    check(gpu, (2, 400, 128), (2, 130, 128), window=window)
    check(gpu, (2, 5, 128), (2, 300, 128), window=window)


@pytest.mark.parametrize(("queries", "keys"), [(1, 3000), (9, 500), (50, 60), (200, 300)])
def test_logarithms(gpu: str, queries: int, keys: int):
    kind = DTYPES["bf16"][0]
    q, k, v = (RNG.standard_normal((2, n, 64)).astype(kind) for n in (queries, keys, keys))
    mask = RNG.random((queries, keys)) < 0.5
    mask[queries // 2] = False
    arrays = [cp.asarray(x, device=gpu) for x in (q, k, v)]
    _, found = cp.kernels.attention(*arrays, mask=cp.asarray(mask, device=gpu), return_lse=True)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / 8
    with np.errstate(divide="ignore"):
        wanted = np.log(np.where(mask, np.exp(scores), 0).sum(-1))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_nothing_is_left_of_a_row_of_nan(gpu: str):
    q, k = (RNG.standard_normal((n, 64)).astype(np.float16) for n in (200, 300))
    q[77, 3] = np.nan
    held = [cp.asarray(x, device=gpu) for x in (q, k, k)]
    found = cp.kernels.attention(*held).numpy()
    assert np.isnan(found[77]).all()
    assert not np.isnan(np.delete(found, 77, 0)).any()


@pytest.mark.parametrize(("queries", "keys"), [(3, 2000), (200, 70), (200, 3000)])
def test_queries_that_see_nothing(gpu: str, queries: int, keys: int):
    check_unseen(gpu, queries, keys, "f16")


def test_other_types_of_results(gpu: str):
    q, k, v = (RNG.standard_normal((2, 90, 64)).astype(np.float16) for _ in range(3))
    found = cp.kernels.attention(*(cp.asarray(x, device=gpu) for x in (q, k, v)), dtype="f32")
    exact = [x.astype(np.float64) for x in (q, k, v)]
    expected, bound = attended(exact[0], exact[1], exact[2], False, 0.125)
    assert found.dtype == cp.f32
    assert np.all(np.abs(found.numpy() - expected) <= 2.0**-10 * bound)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("heads", "own"), [(8, 2), (3, 3), (6, 2)])
def test_ragged(gpu: str, heads: int, own: int, options: Any):
    check_ragged(gpu, LENGTHS, 128, 128, heads, own, "bf16", options)
    check_ragged(gpu, LENGTHS, 72, 40, heads, own, "f16", options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_parts_of_ragged_keys(gpu: str, options: Any):
    check_ragged(gpu, ((1, 1, 1), (5000, 3, 1300)), 128, 128, 8, 2, "bf16", options)
    check_ragged(gpu, ((2, 0, 40, 1), (900, 70, 4000, 0)), 64, 128, 6, 2, "f16", options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("page", [1, 8, 12, 256])
def test_paged(gpu: str, page: int, options: Any):
    check_paged(gpu, LENGTHS[1], 128, page, (None, 1, 5, 100), options)
    check_paged(gpu, (3000, 0, 17, 900), 64, page, (1, 8), options)
