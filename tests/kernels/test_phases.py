"""Transposed convolutions phase by phase, against the sum of all products in f64."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution.phases import alike, phases
from cubepy.lang.annotations import spec
from cubepy.targets import parse_target
from tests.guarded import Guarded
from tests.kernels.test_convolution import channels_last, each

TRANSPOSED = {
    1: kernels.conv_transpose1d,
    2: kernels.conv_transpose2d,
    3: kernels.conv_transpose3d,
}

CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    # Windows as large as the stride: all phases are one convolution
    ((2, 5, 7, 6), (5, 9, 2, 2), {"stride": 2}),
    ((1, 16, 5, 4), (16, 33, 4, 3), {"stride": (4, 3)}),
    ((2, 3, 9), (3, 17, 5), {"stride": 5}),
    ((1, 4, 3, 4, 2), (4, 6, 2, 3, 2), {"stride": (2, 3, 2)}),
    # Two runs of phases, which begin at neighbouring elements
    ((1, 3, 6, 5), (3, 4, 8, 8), {"stride": 4, "padding": 2}),
    ((2, 6, 10), (6, 40, 16), {"stride": 8, "padding": 4}),
    ((1, 2, 5, 5), (2, 3, 5, 7), {"stride": (4, 5), "padding": (1, 2), "output_padding": 3}),
    # Phases of different counts, that see nothing, and without a tap
    ((2, 24, 1, 3), (24, 16, 6, 6), {"stride": 6, "padding": (1, 0), "output_padding": (2, 5)}),
    ((2, 3, 1, 2), (3, 4, 3, 3), {"stride": 4, "padding": 1, "output_padding": 3}),
    ((1, 3, 4, 3), (3, 5, 2, 3), {"stride": (5, 4), "dilation": (1, 2), "padding": 1}),
    ((1, 4, 5), (4, 3, 4), {"stride": 4, "dilation": 3, "output_padding": 3}),
)


def transposed(
    x: np.ndarray,
    w: np.ndarray,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    output_padding: Any = 0,
) -> np.ndarray:
    """Each element times each tap, added where it belongs, in f64."""
    axes = x.ndim - 2
    s, p, d, more = (each(v, axes) for v in (stride, padding, dilation, output_padding))
    spans = [(k - 1) * step + 1 for k, step in zip(w.shape[2:], d, strict=True)]
    whole = [(n - 1) * k + span for n, k, span in zip(x.shape[2:], s, spans, strict=True)]
    room = [n + e for n, e in zip(whole, more, strict=True)]
    found = np.zeros((x.shape[0], w.shape[1], *room))
    for tap in itertools.product(*map(range, w.shape[2:])):
        place = tuple(
            slice(t * step, t * step + (n - 1) * k + 1, k)
            for t, step, n, k in zip(tap, d, x.shape[2:], s, strict=True)
        )
        part = np.tensordot(x.astype("f8"), w.astype("f8")[(..., *tap)], (1, 0))
        found[(..., *place)] += np.moveaxis(part, -1, 1)
    return found[(..., *(slice(b, n - b) for b, n in zip(p, room, strict=True)))]


def check(case: Any, dtype: Any, last: bool, device: str | None = None) -> None:
    """Into memory between guard bands, of weights in either layout, with biases."""
    shape, weights, options = case
    rng = np.random.default_rng()
    x, w, bias = (rng.standard_normal(s).astype(dtype) for s in (shape, weights, weights[1:2]))
    more = bias.astype("f8").reshape(-1, *[1] * (x.ndim - 2))
    exact = transposed(x, w, **options) + more
    largest = transposed(abs(x), abs(w), **options) + abs(more)
    unit = {2: 2.0**-8 if dtype is ml_dtypes.bfloat16 else 2.0**-11, 4: 0.0}[x.dtype.itemsize]
    bound = (w[:, 0].size + 4) * 2.0**-24 * largest + unit * abs(exact) + 1e-6
    if device is None:
        given = channels_last(x) if last else x
        weight = channels_last(w) if rng.random() < 0.5 else w
        out = Guarded(np.moveaxis(exact, 1, -1).shape if last else exact.shape, x.dtype)
        found = np.moveaxis(out.array, -1, 1) if last else out.array
        TRANSPOSED[x.ndim - 2](given, weight, bias, out=found, **options)
        assert out.is_fenced
    else:
        arrays = (cp.asarray(np.ascontiguousarray(v), device=device) for v in (x, w, bias))
        first, second, third = arrays
        found = TRANSPOSED[x.ndim - 2](first, second, third, **options).numpy()
    assert (abs(found.astype("f8") - exact) <= bound).all()


# One layout of each case, and both of one of each kind.
@pytest.mark.parametrize(
    "number, last",
    [
        *((k, False) for k in (0, 2, 4, 7, 9, 10)),
        *((k, True) for k in (0, 1, 3, 4, 5, 6, 7, 8, 10)),
    ],
)
def test_phases(number: int, last: bool):
    check(CASES[number], np.float32, last)


@pytest.mark.parametrize("number", [0, 3, 4, 5, 7, 8, 10])
def test_phases_of_halves(number: int):
    check(CASES[number], ml_dtypes.bfloat16, number % 2 == 0)


@pytest.mark.parametrize(
    ("axis", "runs"),
    [
        ((20, 4, 4, 0, 1), [4]),
        ((20, 8, 4, 2, 1), [2, 2]),
        ((21, 4, 4, 0, 1), [1, 3]),
        ((20, 3, 1, 1, 1), [1]),
        ((20, 4, 2, 1, 1), [1, 1]),
        ((3, 8, 8, 0, 1), [3]),
        ((20, 3, 5, 0, 1), [3, 2]),
    ],
)
def test_runs_of_phases(axis: tuple[int, int, int, int, int], runs: list[int]):
    """By extent of the result, taps, stride, padding before, and dilation."""
    found = alike(phases(*axis))
    assert [len(run) for run in found] == runs
    assert [p for run in found for p in run] == phases(*axis)


@pytest.mark.parametrize("target", ["cpu:znver4", "cuda:sm_90a", "cuda:sm_80"])
def test_windows_of_a_stride_are_one_convolution(target: str):
    specs = {"x": spec("f32[1,64,20,20]"), "weight": spec("f32[64,32,4,4]")}
    launches = record(kernels.conv_transpose2d, specs, {"stride": 4}, parse_target(target))
    assert len(launches) <= 4, [each.kernel.__name__ for each in launches]
