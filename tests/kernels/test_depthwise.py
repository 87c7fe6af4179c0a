"""Convolutions of few channels a group, and of few filters, against NumPy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution.lanes import Lanes
from cubepy.kernels.convolution.planes import Planes
from cubepy.lang.annotations import spec
from cubepy.targets import parse_target
from tests.guarded import Guarded
from tests.kernels.test_convolution import channels_last, check, numbers, reference

CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 64, 9, 56), (3, 3), {"padding": 1}),
    ((1, 33, 7, 7), (3, 3), {"padding": 1, "stride": 2}),
    ((2, 16, 14, 31), (5, 5), {"padding": 2}),
    ((1, 3, 12, 40), (3, 2), {"dilation": (2, 3), "padding": ((1, 0), (2, 3))}),
    ((1, 20, 15, 15), (7, 7), {"padding": 3, "stride": (1, 3)}),
    ((2, 5, 4, 3), (2, 3), {}),
    ((1, 17, 6, 50), (1, 8), {"padding": (0, 7)}),
    ((1, 2, 3, 1), (3, 1), {"padding": (1, 0)}),
    ((1, 4, 30, 30), (9, 9), {"padding": 4}),  # more taps than kernels name
)


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("last", [False, True])
def test_every_window(number: int, last: bool):
    """Each window in both layouts, and with one filter and several of each channel."""
    shape, kernel, options = CASES[number]
    channels, times = shape[1], 3 if (number % 2 == 0) == last else 1
    has_bias = (times == 3) == last
    x, bias = numbers(*shape), numbers(channels * times) if has_bias else None
    w = numbers(channels * times, 1, *kernel)
    seen = channels_last(x) if last else x
    found = kernels.conv2d(seen, w, bias, groups=channels, **options)
    check(found, x, w, bias, groups=channels, **options)


GROUPS = {
    "fours": (9, 4, 4),
    "more filters": (3, 2, 5),
    "more channels": (5, 8, 3),
    "a line": (2, 16, 16),
    "a part of a line": (4, 12, 6),
    "more than a line": (3, 20, 24),
    "few of many": (2, 40, 3),
    "two lines": (2, 3, 32),
}
"""Groups, and channels and filters of each."""


@pytest.mark.parametrize("of", GROUPS)
@pytest.mark.parametrize("last", [False, True])
def test_groups(draw: Any, of: str, last: bool):
    """Half of the groups are packed when channels are last, the others when they are not."""
    groups, channels, filters = GROUPS[of]
    packs = (list(GROUPS).index(of) % 2 == 0) == last
    ways: tuple[dict[str, Any], ...] = (
        {"padding": 1},
        {"stride": (2, 1), "padding": ((0, 2), (1, 0))},
    )
    shapes = (2, groups * channels, 7, 7), (1, groups * channels, 6, 33)
    for options, shape in zip(ways if packs else reversed(ways), shapes, strict=True):
        x, w = draw.array(shape, "f4"), draw.array((groups * filters, channels, 3, 3), "f4")
        weight = kernels.prepack(w, groups=groups) if packs else w
        expected = reference(x, w, groups=groups, **options)
        out = Guarded(np.moveaxis(expected, 1, -1).shape if last else expected.shape)
        result = np.moveaxis(out.array, -1, 1) if last else out.array
        seen = channels_last(x) if last else x
        kernels.conv2d(seen, weight, groups=groups, out=result, **options)
        check(result, x, w, groups=groups, **options)
        assert out.is_fenced
        by = draw.array(expected.shape, "f4")
        changed = kernels.conv2d(seen, weight, groups=groups, epilogue=(moved, by), **options)
        np.testing.assert_allclose(changed, expected * 2 + by, 1e-4, 1e-4)


def test_long_rows_are_cut_into_strips():
    x, w = numbers(1, 40, 2, 9001), numbers(40, 4, 2, 11)
    for seen in (x, channels_last(x)):
        options = {"groups": 10, "padding": (1, 5), "dilation": (1, 2)}
        check(kernels.conv2d(seen, w, **options), x, w, **options)


@pytest.mark.parametrize("channels", [1, 2, 3, 40])
@pytest.mark.parametrize("filters", [1, 3, 4])
def test_few_filters(channels: int, filters: int):
    x, bias = numbers(2, channels, 9, 37), numbers(filters)
    w = numbers(filters, channels, 3, 3)
    check(
        kernels.conv2d(x, w, bias, padding=1, stride=(2, 1)), x, w, bias, padding=1, stride=(2, 1)
    )
    x, w = numbers(1, 2 * channels, 7, 20), numbers(2 * filters, channels, 2, 3)
    check(kernels.conv2d(x, w, groups=2), x, w, groups=2)


@pytest.mark.parametrize("dtype", ["f2", "f8"])
@pytest.mark.parametrize("last", [False, True])
def test_other_dtypes(dtype: str, last: bool):
    x, w = numbers(2, 20, 9, 23, dtype=dtype), numbers(20, 1, 3, 3, dtype=dtype)
    seen = channels_last(x) if last else x
    check(kernels.conv2d(seen, w, groups=20, padding=1), x, w, groups=20, padding=1)


@pytest.mark.parametrize("columns", [3, 40])
def test_padding_is_not_multiplied_by_few_filters(columns: int):
    """By an infinite weight it would give NaN."""
    x, w = np.ones((1, 3, 4, columns), "f4"), np.ones((3, 3, 3, 3), "f4")
    w[:, :, 0, 0] = np.inf
    found = kernels.conv2d(x, w, padding=1)
    assert not np.isnan(found).any()
    assert (found[:, :, 0] < 30).all() and (found[:, :, :, 0] < 30).all()
    assert np.isinf(found[:, :, 1:, 1:]).all()


@pytest.mark.parametrize(("stride", "kernel"), [(3, 5), (5, 3), (100, 10)])
def test_long_strides(stride: int, kernel: int):
    x = numbers(2, 3, stride * 37 + kernel)
    for w, groups in ((numbers(3, 1, kernel), 3), (numbers(2, 3, kernel), 1)):
        found = kernels.conv1d(x, w, stride=stride, groups=groups)
        check(found, x, w, stride=stride, groups=groups)


def test_few_filters_go_by_lines_where_rows_are_long():
    target = parse_target("cpu:sapphirerapids")
    for x, w, options, by_lines in (
        ("32,512,7,7", "4,512,3,3", {}, False),
        ("1,64,224,224", "4,64,3,3", {}, True),
        ("1,3,30,30", "3,3,3,3", {}, True),
        ("1,3,4000,1", "3,3,3,1", {}, False),
        ("2,32,7,7", "32,4,3,3", {"groups": 8}, False),
        ("2,3,224,224", "3,1,3,3", {"groups": 3}, True),
        ("1,1,160000,1", "4,1,64,1", {"stride": (320, 1)}, False),
        ("1,1,1,160000", "4,1,1,64", {"stride": (1, 320)}, False),
    ):
        given = {"x": spec(f"f32[{x}]"), "weight": spec(f"f32[{w}]")}
        launch = record(kernels.conv2d, given, options, target)[-1]
        assert isinstance(launch.arguments["t"], Planes) is by_lines


def test_integers():
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-9, 9, shape).astype("i4") for shape in ((2, 6, 9, 23), (6, 1, 3, 3)))
    for seen in (x, channels_last(x)):
        found = kernels.conv2d(seen, w, groups=6)
        np.testing.assert_array_equal(found, reference(x, w, groups=6))


@pytest.mark.parametrize("last", [False, True])
def test_volumes_and_rows(last: bool):
    x, w = numbers(2, 9, 5, 6, 20), numbers(9, 1, 2, 3, 3)
    seen = channels_last(x) if last else x
    found = kernels.conv3d(seen, w, groups=9, padding=(1, 0, 1))
    check(found, x, w, groups=9, padding=(1, 0, 1))
    x, w = numbers(2, 9, 40), numbers(9, 1, 4)
    found = kernels.conv1d(channels_last(x) if last else x, w, groups=9, stride=3)
    check(found, x, w, groups=9, stride=3)


def moved(v: Any, index: Any, by: Any) -> Any:
    return v * 2 + by[index]


@pytest.mark.parametrize("last", [False, True])
def test_results_are_written_where_they_belong(draw: Any, last: bool):
    x, w = numbers(2, 21, 8, 19), numbers(21, 1, 3, 3)
    by = numbers(2, 21, 8, 19)
    expected = reference(x, w, padding=1, groups=21) * 2 + by
    shape = (2, 8, 19, 21) if last else expected.shape
    out = Guarded(shape, offset=draw.pick.randrange(20))
    result = np.moveaxis(out.array, -1, 1) if last else out.array
    seen = channels_last(x) if last else x
    kernels.conv2d(seen, w, groups=21, padding=1, epilogue=(moved, by), out=result)
    np.testing.assert_allclose(result, expected, 1e-4, 1e-4)
    assert out.is_fenced


def test_a_view_of_rows_that_are_not_dense():
    wide, w = numbers(2, 6, 9, 46), numbers(6, 1, 3, 3)
    x = wide[..., ::2]
    check(kernels.conv2d(x, w, groups=6), x, w, groups=6)
    check(kernels.conv2d(wide[:, :, ::2, 3:], w, groups=6), wide[:, :, ::2, 3:], w, groups=6)


def test_they_are_chosen_on_cpus():
    given = {"x": spec("f32[8,64,56,56]"), "weight": spec("f32[64,1,3,3]")}
    options = {"padding": 1, "groups": 64}
    launches = record(kernels.conv2d, given, options, parse_target("cpu:znver3"))
    assert isinstance(launches[-1].arguments["t"], Lanes)
    with cp.settings(checked=True):
        x, w = numbers(1, 20, 5, 18), numbers(20, 1, 3, 3)
        for seen in (x, channels_last(x)):
            check(kernels.conv2d(seen, w, groups=20, padding=1), x, w, groups=20, padding=1)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("shape", "weights", "options"),
    [
        ((1, 16, 900, 900), (16, 1, 3, 3), {"groups": 16, "dilation": 420}),
        ((1, 48, 1, 250000), (16, 3, 1, 3), {"groups": 16, "dilation": (1, 100000)}),
        ((1, 16, 1, 40000), (16, 1, 1, 3), {"groups": 16, "stride": (1, 5000)}),
        ((1, 32, 65, 65), (32, 1, 3, 3), {"groups": 32, "dilation": 36, "padding": 36}),
    ],
)
def test_windows_with_wide_gaps(shape: Any, weights: Any, options: Any, last: bool):
    x, w = numbers(*shape), numbers(*weights)
    check(kernels.conv2d(channels_last(x) if last else x, w, **options), x, w, **options)


@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_windows_with_gaps(last: bool):
    """Of which the first pixels of rows are no part."""
    g, w = numbers(2, 10, 6, 21), numbers(10, 3, 3, 1)
    given = (2, 6, 19, 19), w, channels_last(g) if last else g
    found = kernels.conv2d_input_grad(*given, (3, 1), (2, 1), (3, 3), 2)
    expected = np.zeros((2, 6, 25, 21))
    for group in range(2):
        some = slice(5 * group, 5 * group + 5)
        for tap in range(3):
            part = np.einsum("nfyx,fc->ncyx", g[:, some], w[some, :, tap, 0], dtype="f8")
            expected[:, 3 * group : 3 * group + 3, 3 * tap : 3 * tap + 16 : 3] += part
    np.testing.assert_allclose(found, expected[:, :, 2:21, 1:20], 1e-4, 1e-4)
