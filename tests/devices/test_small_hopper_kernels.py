"""Small launches of each family that has kernels for Hopper.

They are quick enough for compute-sanitizer, and together go through all kinds of cooperation: rings
of tensor maps, clusters, tiles that are stored by the copy engine, asynchronous copies, queues of
work. `python -m tests.device_report` runs them under each tool.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.devices import test_attention_grad_on_hopper as gradients
from tests.devices import test_attention_on_hopper as attention
from tests.devices import test_gathered_convolution as convolution
from tests.devices import test_matmul_on_gpus as tiles
from tests.devices import test_pipelined_matmul as pipelined
from tests.devices import test_sequences_on_hopper as sequences
from tests.devices import test_skinny_matmul as skinny

RNG = np.random.default_rng()


@pytest.mark.parametrize("dense", [(False, True), (True, False)])
def test_matmul(hopper: str, dense: tuple[bool, bool]):
    pipelined.check(hopper, (200, 264, 200), dense=dense)


def test_matmul_of_stacks_with_what_follows(hopper: str):
    extents = (130, 72, 72)
    pipelined.check(hopper, extents, batch=(3,), bias=True, epilogue=pipelined.relu)


@pytest.mark.parametrize("name", ["f8e4m3", "i8", "f32"])
def test_matmul_of_other_elements(hopper: str, name: str):
    pipelined.test_other_elements(hopper, name, (130, 136, 144))


@pytest.mark.parametrize("is_turned", [False, True])
def test_groups_of_rows(hopper: str, is_turned: bool):
    pipelined.test_groups(hopper, is_turned, [0, 70, 131])


@pytest.mark.parametrize("m", [1, 5, 40])
@pytest.mark.parametrize("turned", [True, False])
def test_matmul_of_few_rows(hopper: str, m: int, turned: bool):
    skinny.check(hopper, (m, 136, 520), turned=turned, bias=True, epilogue=skinny.relu)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_matmul_in_ordinary_arithmetic(hopper: str, layout: str):
    tiles.product(hopper, (140, 264, 40), layout, "f4", None)
    tiles.product(hopper, (70, 65, 33), layout, "f4", None)


def test_matmul_by_fragments(hopper: str):
    for dtype, precision in (("f2", None), ("f4", "tf32")):
        tiles.product(hopper, (131, 77, 45), "NT", dtype, precision)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128])
def test_attention(hopper: str, size: int, causal: bool):
    attention.check(hopper, (2, 2, 200, size), (2, 1, 136, size), causal=causal)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_attention_of_8_bits(hopper: str, dtype: str):
    attention.check_small(hopper, (2, 2, 200, 64), (2, 1, 136, 64), dtype=dtype)
    attention.check_small(hopper, (4, 1, 64), (2, 700, 64), dtype=dtype, kind=np.float16)


def test_attention_of_few_queries(hopper: str):
    attention.check(hopper, (1, 4, 1, 128), (1, 2, 700, 128))
    attention.check(hopper, (8, 1, 64), (8, 1100, 64))  # joined by clusters


def test_attention_with_a_mask(hopper: str):
    mask = RNG.random((70, 136)) < 0.5
    attention.check(hopper, (2, 70, 64), (2, 136, 64), mask=mask)


def test_attention_within_a_window(hopper: str):
    attention.check(hopper, (2, 200, 64), (2, 136, 64), window=(50, 20))


def test_attention_of_sequences(hopper: str):
    sequences.test_ragged(hopper, 64, 64, 8, 2, {"causal": True})
    sequences.test_paged(hopper, 64, 16, {"window": (100, 30)})
    sequences.check_paged(hopper, (700, 0, 300), 64, 8, (1,), {})


def test_sequences_of_8_bits(hopper: str):
    sequences.test_sequences_of_8_bits(hopper, "e4m3", 64, 16, np.float16, {"causal": True})


@pytest.mark.parametrize("size", [64, 128, 256])
def test_gradients_of_attention(hopper: str, size: int):
    gradients.check(hopper, (2, 2, 200, size), (2, 1, 136, size), causal=True)
    gradients.check(hopper, (2, 200, size), (2, 136, size), window=(50, 20))
    gradients.check(hopper, (2, 70, size), (2, 136, size), mask=RNG.random((70, 136)) < 0.5)


@pytest.mark.parametrize("is_last", [True, False])
def test_convolution(hopper: str, is_last: bool):
    options: Any = {"padding": 1, "is_last": is_last, "bias": True, "epilogue": True}
    convolution.check(hopper, (2, 72, 9, 13), (40, 72, 3, 3), **options)


def test_convolution_in_strides(hopper: str):
    convolution.check(hopper, (2, 16, 9, 13), (72, 16, 3, 3), stride=2, dilation=2, padding=2)


def test_gradients_of_convolution(hopper: str):
    convolution.test_gradients(hopper, (2, 72, 9, 13), (40, 72, 3, 3), {"padding": 1}, True)


ROWS = [(3, 7), (5, 1000), (2, 16384), (2, 33001)]


@pytest.mark.parametrize("shape", ROWS)
def test_rows(hopper: str, shape: tuple[int, int]):
    x = RNG.standard_normal(shape).astype(np.float32)
    placed, wide = cp.asarray(x, device=hopper), x.astype(np.float64)
    shifted = np.exp(wide - wide.max(1, keepdims=True))
    total = shifted.sum(1, keepdims=True)
    close(cp.kernels.softmax(placed), shifted / total)
    close(cp.kernels.log_softmax(placed), np.log(shifted / total))
    centred = wide - wide.mean(1, keepdims=True)
    close(cp.kernels.layer_norm(placed, shape[1]), centred / np.sqrt(wide.var(1)[:, None] + 1e-5))
    power = (wide * wide).mean(1, keepdims=True)
    close(cp.kernels.rms_norm(placed, shape[1], eps=1e-5), wide / np.sqrt(power + 1e-5))
    for axis in (0, 1, None):
        close(cp.kernels.sum(placed, axis), wide.sum(axis))
    np.testing.assert_array_equal(cp.kernels.argmax(placed, 1).numpy(), x.argmax(1))


def test_rows_of_halves_and_losses(hopper: str):
    x = RNG.standard_normal((5, 4104)).astype(ml_dtypes.bfloat16)
    placed, wide = cp.asarray(x, device=hopper), x.astype(np.float64)
    logarithms = np.log(np.exp(wide).sum(1))
    target = RNG.integers(0, 4104, 5)
    loss = cp.kernels.cross_entropy(
        placed, cp.asarray(target, device=hopper), reduction="none"
    ).numpy()
    np.testing.assert_allclose(
        loss.astype(np.float64), logarithms - wide[np.arange(5), target], rtol=2.0**-7
    )
    values, _ = cp.kernels.topk(placed, 8)
    expected = np.sort(wide, axis=1)[:, :-9:-1]
    np.testing.assert_array_equal(values.numpy().astype(np.float64), expected)


def close(found: Any, expected: Any) -> None:
    """Whether the error is small beside the largest value."""
    error = np.abs(np.asarray(found.numpy(), np.float64) - expected).max()
    assert error <= 5e-6 * max(1.0, np.abs(expected).max())
