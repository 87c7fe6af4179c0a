"""Convolutions of bf16 by matrix units of processors, against NumPy in f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.compilers.llvm.compiler import LlvmCompiler
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution.unit_runs import UnitRunPacking
from cubepy.lang.annotations import spec
from cubepy.runtimes.cpu.device import cpu_device
from cubepy.targets import parse_target
from tests.guarded import Guarded
from tests.kernels.test_convolution import channels_last, reference

HAS_UNIT = {"amx-tile", "amx-bf16"} <= cpu_device().target.features
needs_unit = pytest.mark.skipif(not HAS_UNIT, reason="no AMX here")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(ml_dtypes.bfloat16)


def takes_unit(packed: Any) -> bool:
    """Whether a matrix unit multiplies weights."""
    return isinstance(packed.packing, UnitRunPacking) or packed.packing.has_unit


def check(x: np.ndarray, w: np.ndarray, last: bool, bias: Any = None, **options: Any) -> None:
    """Results of weights as they are and packed, into memory between guard bands."""
    function = {3: kernels.conv1d, 4: kernels.conv2d, 5: kernels.conv3d}[x.ndim]
    axes, (a, b) = x.ndim - 2, (v.astype("f8") for v in (x, w))
    more = 0 if bias is None else bias.astype("f8").reshape(-1, *[1] * axes)
    exact = reference(a, b, **options) + more
    largest = reference(abs(a), abs(b), **options) + abs(more)
    bound = (w[0].size + 4) * 2.0**-24 * largest + 2.0**-8 * abs(exact) + 1e-30
    given = channels_last(x) if last else x
    packed = kernels.prepack(w, groups=options.get("groups", 1))
    assert w[0, 0].size == 1 or takes_unit(packed)
    for weight in (w, channels_last(w), packed):
        out = Guarded(np.moveaxis(exact, 1, -1).shape if last else exact.shape, x.dtype)
        found = np.moveaxis(out.array, -1, 1) if last else out.array
        function(given, weight, bias, out=found, **options)
        assert out.is_fenced
        assert (abs(found.astype("f8") - exact) <= bound).all()


CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 40, 9, 15), (33, 40, 3, 3), {"padding": 1}),
    ((1, 16, 7, 7), (16, 16, 3, 3), {"padding": 1}),
    ((1, 64, 21, 24), (70, 64, 7, 7), {"padding": 3, "stride": 2}),
    ((1, 33, 13, 37), (35, 33, 3, 2), {"dilation": (1, 3), "padding": (0, 2)}),
    ((3, 32, 19, 23), (32, 32, 5, 5), {"padding": ((1, 2), (0, 4)), "stride": (2, 1)}),
    ((1, 290, 7, 7), (64, 290, 3, 3), {"padding": 1}),
    ((2, 150, 9, 1), (40, 150, 3, 3), {"padding": 1}),
    ((1, 35, 5, 50), (96, 35, 2, 2), {"stride": (1, 3)}),
    ((2, 60, 12, 13), (51, 20, 3, 3), {"groups": 3, "padding": 1}),
    ((1, 66, 8, 9), (34, 33, 3, 3), {"groups": 2, "stride": 2}),
    ((1, 32, 6, 5), (32, 32, 1, 1), {"padding": 2}),
    ((1, 20, 40, 3), (20, 20, 9, 9), {"padding": 8, "dilation": 2}),
    ((1, 64, 70), (32, 64, 9), {"padding": 4}),
    ((1, 40, 6, 7, 8), (36, 40, 3, 3, 3), {"padding": 1}),
    ((1, 140, 5, 7, 9), (33, 140, 2, 2, 3), {"stride": (2, 1, 2), "dilation": (2, 1, 1)}),
    ((1, 70, 30000), (40, 70, 5), {"padding": 2, "stride": 2}),
    ((1, 64, 3, 9000), (16, 64, 3, 3), {"padding": 1}),
    # Few channels, whose runs are elements of k
    ((2, 3, 33, 41), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((1, 16, 9, 7), (16, 16, 3, 3), {"padding": 1}),
    ((2, 16, 9, 70), (33, 16, 3, 3), {"padding": ((0, 2), (3, 1))}),
    ((1, 5, 20, 33), (40, 5, 3, 11), {"padding": (0, 4), "stride": (1, 3), "dilation": 2}),
    ((1, 1, 20, 70), (33, 1, 4, 24), {"padding": (0, 4), "stride": (3, 1)}),
    ((1, 7, 5, 9, 40), (33, 7, 3, 3, 5), {"padding": 1, "stride": (1, 2, 1)}),
    ((1, 16, 30, 31), (70, 16, 11, 11), {"padding": 5}),
    ((2, 4, 3, 300), (9, 4, 2, 40), {"stride": (1, 7)}),
    ((1, 2, 5, 4), (8, 2, 4, 4), {"padding": 5, "stride": 3}),
)


@needs_unit
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows(case: Any, last: bool):
    shape, weights, options = case
    check(numbers(*shape), numbers(*weights), last, numbers(weights[0]), **options)


@needs_unit
@pytest.mark.parametrize("last", [False, True])
def test_random_windows(last: bool):
    rng = np.random.default_rng()
    for _ in range(12):
        kernel, stride, dilation = (rng.integers(1, top, 2) for top in (6, 4, 3))
        kernel[1] += kernel.prod() == 1
        groups, channels, filters = (
            int(rng.integers(*span)) for span in ((1, 3), (16, 90), (16, 90))
        )
        if groups == 1 and rng.random() < 0.5:
            channels, kernel[0], kernel[1] = int(rng.integers(1, 17)), 2, 8
        padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 4, (2, 2)))
        extents = (kernel - 1) * dilation + rng.integers(1, 30, 2)
        x = numbers(int(rng.integers(1, 3)), groups * channels, *extents)
        options = {"stride": tuple(stride), "dilation": tuple(dilation), "padding": padding}
        check(x, numbers(groups * filters, channels, *kernel), last, groups=groups, **options)


@needs_unit
def test_arrays_larger_than_a_cache_go_in_rounds():
    """So many channels that a band of one row is brought in several."""
    for last in (False, True):
        check(numbers(1, 1100, 3, 300), numbers(40, 1100, 3, 3), last, padding=1)


@needs_unit
def test_what_is_not_there_is_not_read():
    """Channels of the next group and pixels behind a row are not multiplied by zeros."""
    x = np.full((1, 40, 9, 40), np.inf, ml_dtypes.bfloat16)
    x[:, :20, :, :17] = 1
    w = np.ones((40, 20, 3, 3), x.dtype)
    for seen in (x, channels_last(x)):
        found = kernels.conv2d(seen[..., :17], w, groups=2).astype("f4")
        assert (found[:, :20] == 180).all()
        assert np.isposinf(found[:, 20:]).all()


@needs_unit
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_an_infinity_beside_a_run_is_not_seen(number: float, last: bool):
    """What a tile reads behind a run of few channels is multiplied by zeros."""
    x, w = numbers(2, 3, 12, 40), numbers(33, 3, 3, 3)
    expected = reference(x.astype("f8"), w.astype("f8"), padding=1)
    x[1, 2, 5, 20] = number
    given = channels_last(x) if last else x
    found = kernels.conv2d(given, w, padding=1).astype("f8")
    sees = np.zeros(found.shape, bool)
    sees[1, :, 4:7, 19:22] = True
    assert not np.isfinite(found[sees]).any()
    np.testing.assert_allclose(found[~sees], expected[~sees], 2.0**-7, 0.05)


@needs_unit
def test_other_extents_compile_nothing_new(monkeypatch: pytest.MonkeyPatch):
    """Not even other numbers of channels and filters, of weights that are packed."""
    packs = [kernels.prepack(numbers(40, n, 3, 3)) for n in (40, 100)]
    kernels.conv2d(numbers(1, 40, 11, 12), packs[0], padding=1)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("other extents compiled a kernel")

    monkeypatch.setattr(LlvmCompiler, "build", refuse)
    for n, rows, columns in ((2, 11, 12), (9, 11, 12), (1, 28, 36)):
        for packed in packs:
            kernels.conv2d(numbers(n, packed.shape[1], rows, columns), packed, padding=1)


@cp.cube
def clipped(v: Any, index: Any, scale: Any) -> Any:
    return cp.maximum(v, 0) * scale[index[1]]


@needs_unit
@pytest.mark.parametrize("last", [False, True])
def test_epilogues(last: bool):
    x, w = numbers(2, 40, 9, 11), numbers(70, 40, 3, 3)
    scale = np.random.default_rng().standard_normal(70).astype("f4")
    given = channels_last(x) if last else x
    found = kernels.conv2d(given, w, padding=1, epilogue=(clipped, scale)).astype("f8")
    exact = reference(x.astype("f8"), w.astype("f8"), padding=1)
    factors = scale.reshape(-1, 1, 1)
    largest = reference(abs(x.astype("f8")), abs(w.astype("f8")), padding=1) * abs(factors)
    exact = np.maximum(exact, 0) * factors
    assert (abs(found - exact) <= 370 * 2.0**-24 * largest + 2.0**-8 * abs(exact)).all()


@pytest.mark.parametrize(
    ("weights", "groups", "target", "used"),
    [
        ((64, 64, 3, 3), 1, "cpu:sapphirerapids", True),
        ((64, 64, 3, 3), 1, "cpu:znver4", False),
        ((64, 32, 3, 3), 2, "cpu:sapphirerapids", True),
        ((64, 8, 3, 3), 8, "cpu:sapphirerapids", False),
        ((8, 64, 3, 3), 1, "cpu:sapphirerapids", False),
        ((64, 3, 7, 7), 1, "cpu:sapphirerapids", True),
        ((64, 3, 7, 7), 1, "cpu:znver4", False),
        ((64, 1, 2, 2), 1, "cpu:sapphirerapids", False),
        ((64, 3, 1, 9), 1, "cpu:sapphirerapids", False),
    ],
)
def test_units_are_used_where_they_are(
    weights: tuple[int, ...], groups: int, target: str, used: bool
):
    w = ",".join(map(str, weights))
    channels = weights[1] * groups
    specs = {"x": spec(f"bf16[1,{channels},9,9]"), "weight": spec(f"bf16[{w}]")}
    launches = record(kernels.conv2d, specs, {"groups": groups}, parse_target(target))
    names = ("convolve_units", "convolve_unit_runs")
    assert (launches[-1].kernel.__name__ in names) == used
