"""The ways of prebuilt functions that rules give to GPUs, chosen on every device, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import f32
from cubepy.kernels.calls.plans import Plans
from cubepy.kernels.indexing import entry as indexing
from cubepy.kernels.indexing.kernel import SliceTiling
from cubepy.kernels.normalisation import channels as norms
from cubepy.kernels.normalisation import launches
from cubepy.kernels.normalisation.beside import Beside
from cubepy.kernels.pooling import entry as pooling
from cubepy.kernels.pooling.lines import LineTiling
from cubepy.kernels.sorting import entry as sorting
from cubepy.kernels.sorting.digits import DigitTiling
from tests.conformance.test_kernels import On, updated_by_batch_norm

RNG = np.random.default_rng()


@pytest.fixture
def on(device: str) -> On:
    return On(device)


@pytest.fixture
def has_many(device: str) -> bool:
    """Whether cubes have many units."""
    return cp.device(device).target.kind not in ("cpu", "interpreter")


def choose(monkeypatch: Any, module: Any, name: str, *ways: Any) -> None:
    """Plans of a family are made with these ways alone."""
    monkeypatch.setattr(module, name, lambda *arguments: ways)
    monkeypatch.setattr(norms if module is launches else module, "_PLANS", Plans())


def integers(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.integers(-9, 10, shape).astype(dtype)


@pytest.mark.parametrize(("dtype", "is_whole"), [("f4", False), ("f4", True), ("i1", False)])
def test_sorting_by_digits(on: On, has_many: bool, dtype: str, is_whole: bool, monkeypatch: Any):
    units, held = (64, 2) if has_many else (1, 8)
    if has_many and cp.device(on.device).target.plane_dim == 1:  # each unit counts for itself
        units, held = 16, 8
    way = DigitTiling(units, 4 * held, True) if is_whole else DigitTiling(units, held)
    choose(monkeypatch, sorting, "tilings", way)
    n = 30 if on.device == "interpreter" or is_whole else 700
    n = 500 if is_whole and has_many else 150 if units == 16 else n
    rows = (1, 2) if units == 16 else (2, 3)
    raw = RNG.integers(0, 256, (*rows, n * np.dtype(dtype).itemsize), "u1").view(dtype)
    raw[..., ::3] = raw[..., :1]
    if dtype == "f4":
        raw[..., 5::7], raw[..., 6::7] = 0.0, -0.0
        raw[np.isnan(raw)] = np.inf
    bits, wanted = f"u{raw.itemsize}", raw
    for descending in (False, True):
        values, indices = on(cp.kernels.sort, raw, 2, descending)
        ranks = np.unique(raw, return_inverse=True)[1].reshape(raw.shape)
        expected = np.argsort(-ranks if descending else ranks, 2, kind="stable")
        np.testing.assert_array_equal(indices, expected)
        wanted = np.take_along_axis(raw, expected, 2)
        np.testing.assert_array_equal(values.view(bits), wanted.view(bits))
    values, _ = on(cp.kernels.topk, raw, 5)  # the last were of the greatest
    np.testing.assert_array_equal(values.view(bits), wanted.view(bits)[..., :5])


@pytest.mark.parametrize("columns", [1, 6, 37])
def test_updates_by_sorted_indices(on: On, has_many: bool, columns: int, monkeypatch: Any):
    line = 4 if columns > 4 else 1
    way = SliceTiling(line, 8, 4, 2, True) if has_many else SliceTiling(line, 1, 1, 2, True)
    choose(monkeypatch, indexing, "sorted_tilings", way)
    x, index = integers(2, 7, columns), RNG.integers(-9, 9, (3, 20))
    index[:, 5:] = index[0, 0]
    values = RNG.standard_normal((2, 3, 20, columns)).astype("f4")
    inside = (index >= -7) & (index < 7)
    for update in ("assign", "add", "max"):
        found = on(cp.kernels.scatter, x, index, values, 1, update, mode="slices")
        expected = x.copy()
        for place in np.argwhere(inside):
            i, v = index[tuple(place)], values[(slice(None), *place)]
            old = expected[:, i]
            news = {"assign": v, "add": old + v, "max": np.maximum(old, v)}
            expected[:, i] = news[update]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("columns", [8, 29])
def test_gathering_slices(on: On, has_many: bool, columns: int, monkeypatch: Any):
    way = SliceTiling(4, 4, 8, 2, True) if has_many else SliceTiling(4, 1, 1, 3, True)
    choose(monkeypatch, indexing, "slice_tilings", way)
    x, index = integers(2, 9, columns), RNG.integers(-12, 12, (5, 7))
    found = on(cp.kernels.gather, x, index, 1, mode="slices")
    inside = (index >= -9) & (index < 9)
    expected = np.where(inside[..., None], x[:, np.where(inside, index, 0)], 0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("channels", [8, 11])
@pytest.mark.parametrize("name", ["max", "average"])
def test_pooling_by_lines(on: On, has_many: bool, name: str, channels: int, monkeypatch: Any):
    way = LineTiling(4, 32 if has_many else 1, channels % 4 == 0)
    choose(monkeypatch, pooling, "tilings", way)
    x = integers(2, 7, 6, channels)
    function = cp.kernels.max_pool2d if name == "max" else cp.kernels.avg_pool2d
    found = on(function, x, 3, 2, 1, layout="NHWC")
    nothing = -np.inf if name == "max" else 0
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=nothing)
    seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))[:, ::2, ::2]
    expected = seen.max((-2, -1)) if name == "max" else seen.sum((-2, -1)) / np.float32(9)
    np.testing.assert_allclose(found, expected, 1e-6, 1e-6)


@pytest.mark.parametrize("channels", [3, 21])
def test_norms_of_channels_beside_each_other(
    on: On, has_many: bool, channels: int, monkeypatch: Any
):
    across, down = (2, 16) if has_many else (1, 1)
    choose(monkeypatch, launches, "beside", Beside(f32, 4, across, down, 19, 2))
    monkeypatch.setattr(launches, "is_wide", lambda target: True)
    if not has_many:
        monkeypatch.setattr(launches, "JOINING", 1)
    x = RNG.standard_normal((3, 5, 7, channels)).astype("f4") + 1000
    x[..., 0] = 1000  # no variance
    seen = x.transpose(0, 3, 1, 2)
    w, b = (RNG.standard_normal(channels).astype("f4") for _ in range(2))
    found = on(cp.kernels.batch_norm, seen, weight=w, bias=b, training=True)
    mean, var = x.mean((0, 1, 2), dtype="f8"), x.var((0, 1, 2), dtype="f8")
    expected = (x - mean) / np.sqrt(var + 1e-5) * w + b
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), 1e-3, 1e-3)
    infinite = seen.copy("K")
    infinite[0, 0, 0, 0], infinite[1, 1, 4, 2], infinite[2, 2, 4, 6] = np.inf, -np.inf, np.inf
    running = updated_by_batch_norm(on, infinite, b, b)
    np.testing.assert_array_equal(running[0][:3], [np.inf, -np.inf, np.inf])
    means, variances = mean.astype("f4"), var.astype("f4")
    found = on(cp.kernels.batch_norm, seen, means, variances, w, b)
    expected = (x - means.astype("f8")) / np.sqrt(variances.astype("f8") + 1e-5) * w + b
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), 1e-4, 1e-4)


def test_devices_whose_cubes_have_few_units(on: On, has_many: bool, monkeypatch: Any):
    if not has_many:
        pytest.skip("cubes have one unit")
    device, most = cp.device(on.device), 256
    monkeypatch.setitem(vars(device), "target", replace(device.target, max_cube_dim=most))
    for module in (indexing, norms, sorting):
        monkeypatch.setattr(module, "_PLANS", Plans())
    x = RNG.permutation(16400).astype("i4")
    np.testing.assert_array_equal(on(cp.kernels.sort, x[:700])[0], np.sort(x[:700]))
    np.testing.assert_array_equal(on(cp.kernels.topk, x, 9)[0], np.arange(16399, 16390, -1))
    index, values = RNG.integers(0, 7, 700), integers(700, 3)
    sums = np.zeros((7, 3), "f4")
    np.add.at(sums, index, values)
    found = on(cp.kernels.scatter, np.zeros((7, 3), "f4"), index, values, 0, "add", mode="slices")
    np.testing.assert_array_equal(found, sums)
    x = RNG.standard_normal((2, 3, 31, 17)).astype("f4")
    mean, var = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    found = on(cp.kernels.instance_norm, x)
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(var + 1e-5), 1e-4, 1e-4)
