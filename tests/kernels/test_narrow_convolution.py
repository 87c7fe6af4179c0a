"""Convolutions of few channels, which are filled up for Hopper's tensor cores; no GPU is needed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import cubepy as cp
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution.narrow import fill_rows
from cubepy.targets import cuda_target

HOPPER = cuda_target("sm_90a")
RNG = np.random.default_rng(5)
SPREAD = [
    ((2, 3, 17, 20), (8, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((1, 1, 9, 9), (8, 1, 3, 3), {"padding": 1}),
    ((2, 2, 9, 8), (16, 2, 5, 4), {"stride": 3, "padding": 2}),
    ((1, 4, 9, 12), (8, 4, 3, 3), {"stride": (1, 2), "padding": ((2, 0), (1, 3))}),
    ((1, 5, 14, 13), (8, 5, 4, 4), {"stride": 4, "padding": 1}),
    ((1, 6, 9, 9), (8, 6, 3, 3), {"dilation": 2, "padding": 2}),
    ((1, 7, 9, 9), (8, 7, 1, 3), {}),
    ((1, 20, 7, 7), (8, 20, 3, 2), {"stride": 2, "padding": 1}),
    ((2, 1, 2, 300), (8, 1, 2, 100), {"padding": (1, 50)}),
]


def planned(x: Any, w: Any, options: Any) -> list[Any]:
    specs = {
        name: cp.spec(f"f16[{','.join(map(str, s))}]") for name, s in (("x", x), ("weight", w))
    }
    return record(cp.kernels.conv2d, specs, options, HOPPER)


def as_planned(held: Any, array: Any) -> Any:
    """A view of what was filled, as a tensor map describes it."""
    return as_strided(held, array.shape, array.strides)


def by_taps(x: Any, w: Any, t: Any) -> Any:
    """[n, row, column, channel] by [filter, row, column, channel], as the kernel meets them."""
    found = np.zeros((*x.shape[:1], *t.results, w.shape[0]))
    for tap in itertools.product(*map(range, t.kernel)):
        place = tuple(
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, s, n in zip(tap, t.dilation, t.stride, t.results, strict=True)
        )
        channels = x.shape[-1]
        found += x[(slice(None), *place)] @ w[(slice(None), *tap)][:, :channels].T
    return found


def slow(x: Any, w: Any, options: Any) -> Any:
    """cubepy's own convolution in f64, which has tests of its own."""
    return cp.kernels.conv2d(x, w, **options)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("x_shape", "w_shape", "options"), SPREAD)
def test_what_is_filled(x_shape: Any, w_shape: Any, options: Any, which: int, monkeypatch: Any):
    """Operands made on the CPU, multiplied as the tiles of the plan say."""
    from cubepy.kernels.convolution import entry, waves

    real = waves.fillings_of
    monkeypatch.setattr(waves, "fillings_of", lambda *args: real(*args)[which:] or real(*args))
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    pixels, weights, tiles, *_ = planned(x_shape, w_shape, options)
    assert (pixels.kernel, weights.kernel) == (fill_rows, fill_rows)
    x, w = (RNG.integers(-8, 9, s).astype(np.float64) for s in (x_shape, w_shape))
    operands: list[Any] = []
    for launch, given, name in ((pixels, x, "x"), (weights, w, "weight")):
        extents = launch.arguments["out"].shape
        held = np.full(extents, np.nan, np.float16)
        more = {name: launch.arguments[name] for name in ("before", "f")}
        share = 7  # a part of a row
        stores = extents[3] * extents[4] // more["f"].line
        wide = given.reshape(*given.shape[:2], 1, *given.shape[2:]).astype(np.float16)
        launcher = launch.kernel[int(np.prod(held.shape[:3])) * -(-stores // share), 1]
        launcher(x=wide, out=held, share=share, **more)
        operands.append(as_planned(held, tiles.arguments[name].array).astype(np.float64))
    left, right = operands
    found = by_taps(left, right, tiles.arguments["t"])
    np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), slow(x, w, options))


def test_others_keep_their_way():
    for x, w, options in (
        ((1, 3, 9, 9), (6, 3, 3, 3), {}),  # few filters
        ((1, 6, 9, 9), (16, 3, 3, 3), {"groups": 2}),
        ((1, 3, 40, 40), (8, 3, 3, 3), {"stride": 9, "dilation": 2}),
    ):
        assert all(launch.kernel is not fill_rows for launch in planned(x, w, options))
