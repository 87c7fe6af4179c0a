"""Random numbers: the words of Philox, what is made of them, and their statistics."""

from __future__ import annotations

from collections.abc import Iterator
from math import erf, sqrt
from typing import Any, cast

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels import random
from cubepy.kernels.random.philox import philox
from cubepy.kernels.random.state import DEFAULT
from tests.guarded import Guarded

KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
"""Counters, keys and words of philox4x32 with 10 rounds, from the kat_vectors of Random123."""


@cp.cube
def block_words(counter: cp.Tensor[cp.u32], key: cp.Tensor[cp.u32], out: cp.Tensor[cp.u32]):
    words = philox((counter[0], counter[1], counter[2], counter[3]), (key[0], key[1]))
    for k in cp.unroll(range(4)):
        out[k] = words[k]


@pytest.mark.parametrize("known", KNOWN)
def test_known_answers(known: Any):
    counter, key, expected = (np.array(v, np.uint32) for v in known)
    out = np.zeros(4, np.uint32)
    block_words[1, 1](counter, key, out)
    np.testing.assert_array_equal(out, expected)


def words(count: int, seed: int, block: int = 0) -> np.ndarray:
    """The first words of a stream, in Python's own integers, from a block on."""
    return np.fromiter(_words(count, seed, block), np.uint32, count)


def _words(count: int, seed: int, block: int) -> Iterator[int]:
    mask = 2**32 - 1
    for k in range(-(-count // 4)):
        c, key = [(block + k) & mask, (block + k) >> 32, 0, 0], [seed & mask, seed >> 32]
        for _ in range(10):
            one, two = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [two >> 32 ^ c[1] ^ key[0], two & mask, one >> 32 ^ c[3] ^ key[1], one & mask]
            key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
        yield from c[: count - 4 * k]


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 3, 0x123456789ABCDEF])
def test_bits_are_the_words(seed: int):
    expected = words(1001, seed)
    np.testing.assert_array_equal(random.bits((7, 143), seed=seed).reshape(-1), expected)
    np.testing.assert_array_equal(random.bits(9, dtype="uint8", seed=seed), expected[:9] >> 24)
    long = random.bits(500, dtype="int64", seed=seed)
    np.testing.assert_array_equal(long, expected[:1000].view(np.int64))


@pytest.mark.parametrize("offset", [0, 1, 6, 250, 2**34 - 5, 2**61 + 3])
def test_a_stream_is_drawn_in_parts(offset: int):
    for dtype, per in (("uint32", 4), ("uint64", 2)):
        block, skip = divmod(offset, per)
        stream = words(4 * 200, 7, block).view(dtype)[skip:]
        found = Guarded((333,), dtype)
        random.bits(seed=7, offset=offset, out=found.array)
        found.check(stream[:333])


def test_uniform_numbers_are_multiples():
    w = words(1000, 5)
    expected = (w >> 8) * np.float32(2.0**-24)
    np.testing.assert_array_equal(random.uniform(1000, seed=5), expected.astype("f4"))
    wide = (w.view(np.uint64) >> np.uint64(11)) * 2.0**-53
    np.testing.assert_array_equal(random.uniform(500, seed=5, dtype="float64"), wide)
    half = (w >> 21) * 2.0**-11
    np.testing.assert_array_equal(random.uniform(1000, seed=5, dtype="float16"), half.astype("f2"))
    brain = random.uniform(1000, seed=5, dtype="bfloat16").astype("f8")
    np.testing.assert_array_equal(brain, (w >> 24) * 2.0**-8)
    scaled = random.uniform(1000, -3, 5, seed=5)
    np.testing.assert_array_equal(scaled, (expected.astype("f8") * 8 - 3).astype("f4"))


def test_trials_are_uniform_numbers_below():
    u = random.uniform(4000, seed=9)
    for p in (0.0, 0.25, 0.3, 1.0):
        np.testing.assert_array_equal(random.bernoulli(4000, p, seed=9), u < p)
    ones = random.bernoulli((40, 100), 0.3, seed=9, dtype="int64")
    np.testing.assert_array_equal(ones.reshape(-1), u < 0.3)


def test_normal_numbers_are_box_and_mullers():
    w = words(4000, 11).astype("f8")
    radius = np.sqrt(-2 * np.log((w[::2] + 0.5) / 2**32))
    turn = 2 * np.pi * w[1::2] / 2**32
    expected = np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1).reshape(-1)
    error = np.abs(random.normal(4000, seed=11) - expected)
    assert (error < 1e-6 * np.abs(expected) + 2.0**-24 / np.repeat(radius, 2)).all()
    found = random.normal(4000, 2, 0.5, seed=11, dtype="float16")
    np.testing.assert_allclose(found, 2 + 0.5 * expected, 1e-3)
    pairs = words(8000, 11).view(np.uint64)
    radius = np.sqrt(-2 * np.log(((pairs[::2] >> np.uint64(11)) + 0.5) * 2.0**-53))
    turn = 2 * np.pi * (pairs[1::2] / 2.0**64)
    expected = np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1).reshape(-1)
    found = random.normal(4000, seed=11, dtype="float64")
    np.testing.assert_allclose(found, expected, 1e-13, 3e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_statistics(dtype: str):
    """Moments and Kolmogorov and Smirnov's distance within five standard errors."""
    n = 200_000
    z = np.sort(random.normal(n, seed=1, dtype=dtype).astype("f8"))
    u = np.sort(random.uniform(n, seed=2, dtype=dtype).astype("f8"))
    assert abs(z.mean()) < 5 / sqrt(n)
    assert abs(z.var() - 1) < 5 * sqrt(2 / n)
    assert abs((z**3).mean()) < 5 * sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 5 * sqrt(96 / n)
    steps = np.arange(n) / n
    assert np.abs(u - steps).max() < 2.5 / sqrt(n)
    phi = np.array([0.5 * (1 + erf(v / sqrt(2))) for v in z[::100]])
    assert np.abs(phi - steps[::100]).max() < 2.5 / sqrt(n)
    pairs = random.uniform((n, 2), seed=3, dtype=dtype)
    counts = np.histogram2d(pairs[:, 0], pairs[:, 1], 16)[0]
    chi = ((counts - n / 256) ** 2 / (n / 256)).sum()
    assert abs(chi - 255) < 5 * sqrt(2 * 255)


def test_draws_without_a_seed_follow_each_other():
    before = DEFAULT.take(0)
    try:
        random.seed(33)
        parts = [random.uniform(6), random.normal((2, 3)), random.uniform(5)]
        np.testing.assert_array_equal(parts[0], random.uniform(6, seed=33))
        np.testing.assert_array_equal(parts[1].reshape(-1), random.normal(6, seed=33, offset=8))
        np.testing.assert_array_equal(parts[2], random.uniform(5, seed=33, offset=16))
        random.seed(33)
        np.testing.assert_array_equal(random.uniform(6), parts[0])
    finally:
        random.seed(before[0])


def test_where_results_go():
    expected = random.uniform((5, 6), seed=4)
    strided = np.full((6, 10), np.nan, np.float32)[:, ::2].T
    assert random.uniform(out=strided, seed=4) is strided
    np.testing.assert_array_equal(strided, expected)
    array = random.uniform((5, 6), seed=4, device="cpu")
    assert isinstance(array, cp.Array)
    np.testing.assert_array_equal(array.numpy(), expected)
    assert isinstance(random.uniform(3, like=array, seed=4), cp.Array)
    assert random.uniform((3, 0), seed=4).shape == (3, 0)
    assert random.uniform((), seed=4) == expected[0, 0]


@pytest.mark.optional("torch")
def test_tensors_of_torch():
    import torch

    out = torch.empty((4, 5), dtype=torch.bfloat16)
    assert random.normal(out=out, seed=3) is out
    expected = random.normal((4, 5), seed=3, dtype="bfloat16")
    np.testing.assert_array_equal(out.float().numpy(), expected.astype("f4"))
    assert random.bits(3, like=out, dtype=torch.int64, seed=2).dtype is torch.int64


def test_refusals():
    for match, error, call in (
        ("`dtype` is i32", LaunchTypeError, lambda: random.uniform(3, dtype="int32")),
        ("`dtype` is f32", LaunchTypeError, lambda: random.bits(3, dtype="float32")),
        ("`shape` is not given", LaunchTypeError, random.normal),
        ("negative extent", LaunchError, lambda: random.normal((3, -1))),
        ("`std` is -1", LaunchError, lambda: random.normal(3, 0, -1)),
        ("`p` is 1.5", LaunchError, lambda: random.bernoulli(3, 1.5)),
        ("`low` is nan", LaunchError, lambda: random.uniform(3, float("nan"))),
        (
            "difference is finite",
            LaunchError,
            lambda: random.uniform(3, -1e308, 1e308, dtype="f64"),
        ),
        ("`offset` is -1", LaunchError, lambda: random.uniform(3, seed=1, offset=-1)),
        ("without `seed`", LaunchError, lambda: random.uniform(3, offset=4)),
        ("`seed` is 'a'", LaunchTypeError, lambda: random.uniform(3, seed=cast(Any, "a"))),
        ("shape", LaunchError, lambda: random.uniform(3, out=np.zeros(4, np.float32))),
        ("does not fit f32", LaunchError, lambda: random.uniform(3, 0, 1e300)),
        ("more than one", LaunchError, lambda: random.uniform(3, device="cpu", like=np.zeros(1))),
    ):
        with pytest.raises(error, match=match):
            call()
