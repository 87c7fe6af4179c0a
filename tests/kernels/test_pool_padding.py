"""Pooling with other padding before than after, with much of it, and with gaps, against NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.kernels.pooling.problem import Window
from tests.guarded import Guarded

FUNCTIONS = {
    "max": (kernels.max_pool1d, kernels.max_pool2d, kernels.max_pool3d),
    "avg": (kernels.avg_pool1d, kernels.avg_pool2d, kernels.avg_pool3d),
}


def places(n: int, k: int, s: int, d: int, pads: tuple[int, int], ceil: bool) -> list[list[int]]:
    """The taps of each window along an axis, counted in the array, by the definition."""
    before, after = pads
    starts = [-before]
    span = (k - 1) * d + 1
    while True:
        start = starts[-1] + s
        fits = start + span <= n + after
        if not fits and not (ceil and starts[-1] + span < n + after and start < n):
            break
        starts.append(start)
    return [[start + t * d for t in range(k)] for start in starts]


def reference(
    x: np.ndarray,
    taps: list[list[list[int]]],
    pads: list[tuple[int, int]],
    kind: str,
    include: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The results in f64, and the number of the first maximum of each window."""
    extents = x.shape[2:]
    found = np.empty((*x.shape[:2], *map(len, taps)))
    where = np.empty(found.shape, np.int64)
    for place in np.ndindex(*map(len, taps)):
        window = list(product(*(axis[i] for axis, i in zip(taps, place, strict=True))))
        inside = [t for t in window if all(0 <= i < n for i, n in zip(t, extents, strict=True))]
        counted = [
            t
            for t in window
            if all(i < n + after for i, n, (_, after) in zip(t, extents, pads, strict=True))
        ]
        values = np.array([x[(..., *t)] for t in inside]).reshape(-1, *x.shape[:2]).astype("f8")
        at = (..., *place)
        if kind == "max":
            best = values.argmax(0)
            found[at] = values.max(0)
            where[at] = np.array([np.ravel_multi_index(t, extents) for t in inside])[best]
        else:
            count = len(counted) if include else len(inside)
            found[at] = values.sum(0) / count if count else np.nan
    return found, where


@pytest.mark.parametrize("axes", (1, 2, 2, 3))
@pytest.mark.parametrize("kind", ("max", "avg"))
def test_windows_by_definition(draw: Any, axes: int, kind: str):
    pick = draw.pick
    gaps = pick.choice((1, 1, 2, 3))
    kernel = [pick.choice((1, 2, 3, 4)) for _ in range(axes)]
    stride = [pick.choice((1, 2, 3)) for _ in range(axes)]
    spans = [(k - 1) * gaps + 1 for k in kernel]
    pads = [(pick.randrange(n), pick.randrange(n)) for n in spans]
    extents = [pick.randrange(n, n + 20) for n in spans]
    ceil, include = pick.random() < 0.5, pick.random() < 0.5
    x = draw.numbers.standard_normal((2, pick.choice((1, 3, 20)), *extents)).astype("f4")
    sizes = zip(extents, kernel, stride, pads, strict=True)
    taps = [places(n, k, s, gaps, pad, ceil) for n, k, s, pad in sizes]
    expected, where = reference(x, taps, pads, kind, include)
    turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    options: dict[str, Any] = {"stride": stride, "padding": pads, "dilation": gaps}
    options["ceil_mode"] = ceil
    if kind == "avg":
        options["count_include_pad"] = include
    for seen in (x, turned, draw.layout(x)):
        out = Guarded(expected.shape, np.dtype("f4"), pick.randrange(9))
        FUNCTIONS[kind][axes - 1](seen, kernel, **options, out=out.array)
        out.check(expected, rtol=1e-5, atol=1e-5)
    if kind == "max":
        for seen in (x, turned):
            best, at = FUNCTIONS[kind][axes - 1](seen, kernel, **options, return_indices=True)
            np.testing.assert_array_equal(best, expected.astype("f4"))
            np.testing.assert_array_equal(at, where)


def test_windows_that_add_a_column_before_the_array(draw: Any):
    x = draw.numbers.standard_normal((1, 9, 7, 18)).astype("f4")
    x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    expected, _ = reference(
        x, [places(n, 4, 3, 1, (2, 2), False) for n in (7, 18)], [(2, 2)] * 2, "max", True
    )
    np.testing.assert_array_equal(kernels.max_pool2d(x, 4, 3, 2), expected.astype("f4"))


def test_reach_of_windows():
    """How far lines look into their neighbours is known without counting the taps."""
    rng = np.random.default_rng()
    for _ in range(300):
        kernel, stride, dilation = (int(n) for n in rng.integers(1, 9, 3))
        padding = int(rng.integers(0, kernel))
        window = Window(
            (1, 1, kernel), (1, 1, stride), (0, 0, padding), (0, 0, 0), (1, 1, dilation)
        )
        assert window.reach == max(abs(shift) for shift in window.shifts)


def test_windows_as_long_as_a_row():
    x = np.random.default_rng().standard_normal((1, 1, 1 << 22)).astype("f2")
    found, where = kernels.max_pool1d(x, 1 << 22, return_indices=True)
    assert found[0, 0, 0] == x.max() and where[0, 0, 0] == x[0, 0].argmax()
