"""Gradients of attention by the tensor cores of planes, as GPUs of NVIDIA before and after Hopper
make them, against f64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.attention import gradients
from cubepy.kernels.calls.plans import Plans
from tests.devices.test_attention_by_fragments import ODD_LENGTHS, SIZES
from tests.devices.test_attention_grad_on_hopper import check, exact
from tests.devices.test_attention_on_hopper import DTYPES

RNG = np.random.default_rng(9)


@pytest.fixture
def gpu(cuda: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A GPU with `mma`, whose gradients are not made by `wgmma`."""
    if cp.device(cuda).target.version < 80:
        pytest.skip("no GPU with asynchronous copies here")
    launched: list[Any] = []

    def launch(*args: Any) -> None:
        launched.append(args)
        real(*args)

    real = vars(gradients)["_launch_fragments"]
    monkeypatch.setattr(gradients, "_launch_fragments", launch)
    monkeypatch.setattr(gradients, "gradient_warpgroups", lambda *_: ())
    monkeypatch.setattr(gradients, "_PLANS", Plans())
    yield cuda
    assert launched


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_sizes(gpu: str, size: int, causal: bool):
    dtype = list(DTYPES)[size // 8 % len(DTYPES)]
    check(gpu, (2, 3, 330, size), (2, 3, 330, size), causal=causal, dtype=dtype)


@pytest.mark.parametrize("width", [8, 24, 64, 200])
def test_values_of_another_width(gpu: str, width: int):
    check(gpu, (2, 200, 64), (2, 200, 64), width=width)
    check(gpu, (2, 3, 128), (2, 300, 128), width=width)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), ODD_LENGTHS)
def test_odd_lengths(gpu: str, queries: int, keys: int, causal: bool):
    for size in (64, 128):
        check(gpu, (2, queries, size), (2, keys, size), causal=causal)


def test_heads(gpu: str):
    check(gpu, (2, 8, 200, 128), (2, 2, 200, 128), causal=True)
    check(gpu, (3, 8, 130, 64), (3, 1, 264, 64))
    check(gpu, (2, 3, 4, 70, 64), (2, 3, 1, 90, 64))
    check(gpu, (2, 6, 200, 128), (2, 6, 200, 128), order=(0, 2, 1, 3), causal=True, dtype="f16")


def test_batches_that_share_keys(gpu: str):
    q, grad = (RNG.standard_normal((4, 6, 70, 64)).astype(np.float16) for _ in range(2))
    k, v = (RNG.standard_normal((1, 2, 90, 64)).astype(np.float16) for _ in range(2))
    a, b, c, d = (cp.asarray(x, device=gpu) for x in (q, k, v, grad))
    result, lse = cp.kernels.attention(a, b, c, return_lse=True)
    found = cp.kernels.attention_grad(a, b, c, result, lse, d)
    keys, values = (np.repeat(np.repeat(x.astype("f8"), 3, 1), 4, 0) for x in (k, v))
    rounding = DTYPES["f16"][1]
    wanted = exact(q.astype("f8"), keys, values, grad.astype("f8"), False, 64**-0.5, rounding)
    for n, (got, (value, bound)) in enumerate(zip(found, wanted, strict=True)):
        if n:
            value, bound = (x.sum(0).reshape(1, 2, 3, 90, 64).sum(2) for x in (value, bound))
        error = np.abs(got.numpy().astype("f8") - value)
        assert np.all(error <= bound + rounding * np.abs(value) + 1e-7)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128, 136, 256])
def test_less_shared_memory(gpu: str, monkeypatch: pytest.MonkeyPatch, size: int, causal: bool):
    """As sm_86 has it: steps are not copied ahead, and cubes have fewer planes."""
    real, stages = gradients.gradient_fragments, []

    def small(target: Any, p: Any) -> Any:
        found = real(replace(target, shared_bytes=99 << 10), p)
        stages.extend(t.stages for t in found)
        return found

    monkeypatch.setattr(gradients, "gradient_fragments", small)
    check(gpu, (2, 4, 330, size), (2, 2, 300, size), causal=causal)
    assert (1 in stages) == (size > 64)


def test_scales(gpu: str):
    check(gpu, (2, 200, 64), (2, 200, 64), scale=0.0)
    check(gpu, (2, 200, 64), (2, 200, 64), scale=-0.3)


@pytest.mark.parametrize("size", [64, 128, 256])
def test_masks(gpu: str, size: int):
    shape = (2, 3, 133, size)
    for extents in ((133, 133), (2, 1, 1, 133), (133, 1)):
        check(gpu, shape, shape, mask=RNG.random(extents) < 0.6)
        added = RNG.standard_normal(extents).astype(np.float32)
        added[RNG.random(extents) < 0.1] = -np.inf
        check(gpu, shape, shape, mask=added, causal=extents == (133, 133))


@pytest.mark.parametrize("window", [(5, 0), (0, 70), (100, 3), (None, 40), (31, None)])
@pytest.mark.parametrize("size", [64, 128])
def test_windows(gpu: str, size: int, window: Any):
    check(gpu, (2, 2, 301, size), (2, 2, 260, size), window=window)
    check(gpu, (2, 2, 301, size), (2, 1, 301, size), window=window, causal=True)


def test_they_repeat(gpu: str):
    """Nothing is added by several cubes."""
    arrays = RNG.standard_normal((4, 2, 3, 700, 128)).astype(np.float16)
    q, k, v, grad = (cp.asarray(x, device=gpu) for x in arrays)
    result, lse = cp.kernels.attention(q, k, v, return_lse=True)
    made = [cp.kernels.attention_grad(q, k, v, result, lse, grad) for _ in range(2)]
    for first, second in zip(*made, strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())
