"""Convolutions of f32 by matrix units for bf16, against NumPy in f64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.llvm.compiler import LlvmCompiler
from cubepy.kernels.convolution import unit_strategies
from cubepy.kernels.convolution.split import SplitPacking
from cubepy.kernels.convolution.split_runs import RunPacking
from cubepy.runtimes.cpu.device import cpu_device
from tests.kernels.test_convolution import channels_last, check, reference

HAS_UNIT = {"amx-tile", "amx-bf16"} <= cpu_device().target.features
pytestmark = pytest.mark.skipif(not HAS_UNIT, reason="no AMX here")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float32)


def packed(w: np.ndarray) -> Any:
    """Weights, which are split."""
    found = cp.kernels.prepack(w)
    assert isinstance(found.packing, RunPacking if w.shape[1] <= 16 else SplitPacking)
    return found


def convolved(x: np.ndarray, w: np.ndarray, last: bool, bias: Any = None, **options: Any) -> Any:
    """The result in memory that held NaN."""
    function = {3: cp.kernels.conv1d, 4: cp.kernels.conv2d, 5: cp.kernels.conv3d}[x.ndim]
    x = channels_last(x) if last else x
    made = function(x, packed(w), bias, **options)
    out = np.full_like(made, np.nan)
    function(x, packed(w), bias, **options, out=out)
    assert np.array_equal(made, out, equal_nan=True)
    return out


CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 40, 9, 15), (33, 40, 3, 3), {"padding": 1}),
    ((1, 64, 21, 24), (70, 64, 7, 7), {"padding": 3, "stride": 2}),
    ((1, 33, 13, 37), (35, 33, 3, 2), {"dilation": (1, 3), "padding": (0, 2)}),
    ((3, 32, 19, 23), (32, 32, 5, 5), {"padding": ((1, 2), (0, 4)), "stride": (2, 1)}),
    ((1, 290, 7, 7), (64, 290, 3, 3), {"padding": 1}),
    ((2, 150, 9, 1), (40, 150, 3, 3), {"padding": 1}),
    ((1, 35, 5, 50), (96, 35, 2, 2), {"stride": (1, 3)}),
    ((1, 64, 70), (32, 64, 9), {"padding": 4}),
    ((1, 70, 30000), (40, 70, 5), {"padding": 2, "stride": 2}),
    ((1, 64, 3, 9000), (33, 64, 3, 3), {"padding": 1}),
    ((1, 40, 6, 7, 8), (36, 40, 3, 3, 3), {"padding": 1}),
    ((1, 140, 5, 7, 9), (33, 140, 2, 2, 3), {"stride": (2, 1, 2), "dilation": (2, 1, 1)}),
    ((2, 3, 33, 41), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((1, 16, 9, 7), (33, 16, 3, 3), {"padding": 1}),
    ((1, 5, 20, 33), (40, 5, 3, 11), {"padding": (0, 4), "stride": (1, 3), "dilation": 2}),
    ((1, 1, 20, 70), (33, 1, 4, 24), {"padding": (0, 4), "stride": (3, 1)}),
    ((1, 7, 5, 9, 40), (33, 7, 3, 3, 5), {"padding": 1, "stride": (1, 2, 1)}),
    ((2, 4, 2, 300), (32, 4, 2, 40), {"stride": (1, 7)}),
)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows(case: Any, last: bool):
    shape, weights, options = case
    x, w, bias = numbers(*shape), numbers(*weights), numbers(weights[0])
    check(convolved(x, w, last, bias, **options), x, w, bias, **options)


@pytest.mark.parametrize("last", [False, True])
def test_random_windows(last: bool):
    rng = np.random.default_rng()
    for _ in range(12):
        kernel, stride, dilation = (rng.integers(1, top, 2) for top in (6, 4, 3))
        kernel[0] += 4 if kernel.prod() < 4 else 0
        channels, filters = (int(n) for n in rng.integers(32, 170, 2))
        if rng.random() < 0.5:
            channels = int(rng.integers(1, 17))
            kernel = np.array((5, -(-32 // channels)))
        extents = (kernel - 1) * dilation + 1 + rng.integers(0, 40, 2)
        padding = tuple((int(rng.integers(k)), int(rng.integers(k))) for k in kernel)
        options = {
            "stride": tuple(map(int, stride)),
            "dilation": tuple(map(int, dilation)),
            "padding": padding,
        }
        x = numbers(int(rng.integers(1, 3)), channels, *map(int, extents))
        w = numbers(filters, channels, *map(int, kernel))
        if rng.random() < 0.3:
            x[0, rng.integers(channels)] *= np.float32(1e-37)
        check(convolved(x, w, last, **options), x, w, **options)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("rule", "channels"), [("split_bands", 40), ("split_runs", 8)])
def test_bands_and_shares_of_any_extent(
    rule: str, channels: int, stride: int, last: bool, monkeypatch: pytest.MonkeyPatch
):
    x, w = numbers(2, channels, 9, 11), numbers(100, channels, 3, 3)
    chosen, made = getattr(unit_strategies, rule), []
    for band, panels in ((1, 1), (1, 4), (2, 3), (5, 2), (9, 1), (9, 4)):

        def divided(*args: Any, band: int = band, panels: int = panels) -> Any:
            made.append(replace(chosen(*args), band=band, panels=panels))
            return made[-1]

        monkeypatch.setattr(unit_strategies, rule, divided)
        shift = ((1, 1 + band), (1, panels))  # so that each is planned
        options = {"padding": shift, "stride": stride}
        check(convolved(x, w, last, **options), x, w, **options)
    assert len(made) >= 6


@pytest.mark.parametrize("shape", [(40, 40, 3, 3), (64, 3, 7, 7)])
def test_other_extents_compile_nothing_new(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch):
    w, channels = packed(numbers(*shape)), shape[1]
    cp.kernels.conv2d(numbers(1, channels, 11, 12), w, padding=1)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("other extents compiled a kernel")

    monkeypatch.setattr(LlvmCompiler, "build", refuse)
    for extents in ((2, 11, 12), (9, 11, 12), (1, 28, 36)):
        cp.kernels.conv2d(numbers(extents[0], channels, *extents[1:]), w, padding=1)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("scales", [(-120, 0), (0, -120), (-70, -70), (60, 60), (-140, 100)])
@pytest.mark.parametrize("channels", [40, 12])
def test_numbers_near_the_ends_of_the_range(channels: int, scales: tuple[int, int], last: bool):
    x, w = numbers(1, channels, 9, 11), numbers(40, channels, 3, 3)
    x, w = (np.ldexp(v, scale) for v, scale in zip((x, w), scales, strict=True))
    check(convolved(x, w, last, padding=1), x, w, padding=1)
    check(convolved(x, w, last, padding=1, stride=2), x, w, padding=1, stride=2)


@pytest.mark.parametrize("channels", [40, 12])
@pytest.mark.parametrize("scale", [-149, -140, -130, -119, -112, -104, -103, -102, 126])
def test_weights_are_what_their_parts_say(scale: int, channels: int):
    """All of them alike and of all bits, so that no errors cancel."""
    w = np.full((40, channels, 3, 3), np.ldexp(1.99999, scale), np.float32)
    x = np.ldexp(abs(numbers(1, channels, 9, 11)) + 1, min(100, -scale)).astype(np.float32)
    for last in (False, True):
        check(convolved(x, w, last), x, w)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 40, 3, 9, 11), (40, 40, 2, 3, 3)),
        ((1, 8, 3, 9, 11), (40, 8, 2, 3, 3)),
        ((1, 256, 9, 11), (40, 256, 3, 3)),
    ],
)
def test_sums_below_the_least_normal_number_are_kept(shapes: Any):
    """From round to round, also where the numbers of the next are all 0."""
    x, w = (np.ldexp(numbers(*shape), -66).astype(np.float32) for shape in shapes)
    x[:, 128:] = 0
    options: dict[str, Any] = {"padding": (1, 0, 0)} if x.ndim == 5 else {}
    exact, largest = reference(x, w, **options), reference(abs(x), abs(w), **options)
    for last in (False, True):
        error = abs(convolved(x, w, last, **options) - exact)
        assert (error <= 2500 * 2.0**-24 * largest + 2500 * 2.0**-149).all()


def test_long_rows_and_wide_windows_find_room():
    for shape, weights, options in (
        ((1, 128, 49, 700), (32, 128, 3, 3), {"dilation": 24}),
        ((1, 128, 90000), (32, 128, 9), {"padding": 4}),
        ((1, 200, 3000), (300, 200, 5), {"stride": 1}),
    ):
        x, w = numbers(*shape), numbers(*weights)
        check(convolved(x, w, False, **options), x, w, **options)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-45, -1e-39, 3.4028235e38])
@pytest.mark.parametrize("channels", [40, 12])
def test_one_number_is_special(channels: int, value: float, last: bool):
    """In the array, and in the weights, whose parts have to add up to it."""
    for where in range(2):
        x, w = numbers(1, channels, 9, 11), numbers(70, channels, 3, 3)
        x *= np.float32(0.01)
        w *= np.float32(0.01)
        (x if where == 0 else w)[0, 7, 1, 1] = value
        found = convolved(x, w, last)
        with np.errstate(all="ignore"):
            exact, largest = reference(x, w), reference(abs(x), abs(w))
        finite = np.isfinite(exact)
        error = abs(found[finite] - exact[finite])
        assert (error <= 362 * 2.0**-24 * largest[finite] + 1e-42).all()
        assert np.array_equal(found[~finite], exact[~finite].astype("f4"), equal_nan=True)


def clipped(v: Any, index: Any, scale: Any) -> Any:
    return cp.maximum(v, 0) * scale[index[1]]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels", [40, 12])
def test_epilogues(channels: int, last: bool):
    x, w, scale = numbers(2, channels, 9, 11), numbers(70, channels, 3, 3), numbers(70)
    found = convolved(x, w, last, padding=1, epilogue=(clipped, scale))
    exact = np.maximum(reference(x, w, padding=1), 0) * scale.reshape(-1, 1, 1)
    largest = reference(abs(x), abs(w), padding=1) * abs(scale.reshape(-1, 1, 1))
    assert (abs(found - exact) <= 370 * 2.0**-24 * largest).all()


def test_other_weights_are_not_split():
    for shape, groups in (((64, 32, 3, 3), 2), ((16, 64, 3, 3), 1), ((64, 20, 3, 3), 1)):
        found = cp.kernels.prepack(numbers(*shape), groups=groups)
        assert not isinstance(found.packing, SplitPacking | RunPacking)
    half = cp.kernels.prepack(numbers(64, 64, 3, 3).astype("f2"))
    assert not isinstance(half.packing, SplitPacking)
