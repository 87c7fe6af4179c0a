"""Convolutions of few channels a group in strips and in columns of pixels, as GPUs make them: by
planes of eight units on the CPU, and as CUDA's text."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.ir.types import f32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution.columns import Columns, convolve_columns
from cubepy.kernels.convolution.groups import Strips, convolve_groups
from cubepy.kernels.convolution.problem import Window
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded
from tests.kernels.test_tiled_convolution import NONE, ONES, SQUARE, by_taps
from tests.optional import require_package

HOPPER = cuda_target("sm_90a")
WINDOWS = {
    "square": SQUARE,
    "stride": Window((1, 3, 2), (1, 2, 2), NONE, (0, 1, 1), ONES),
    "far apart": Window((1, 3, 3), ONES, (0, 2, 2), (0, 2, 2), (1, 2, 3)),
    "all outside": Window((1, 2, 4), (1, 1, 3), (0, 3, 5), (0, 1, 5), ONES),
    "point": Window(ONES, ONES, NONE, NONE, ONES),
    "volume": Window((2, 3, 3), (2, 1, 1), (1, 1, 1), (0, 1, 1), ONES),
}
GROUPS = {"each": (6, 1, 1), "several filters": (3, 1, 4), "fours": (3, 4, 4), "pairs": (5, 2, 2)}
"""Groups, channels and filters of each."""


def moved(v: Any, index: Any, by: Any) -> Any:
    """Indices are numbers that may be subtracted from."""
    return v * 2 + by[index] + max(cp.f32(sum(index[k] - 9 for k in range(5))), -99.0)


def shifted(shape: tuple[int, ...]) -> np.ndarray:
    """What `moved` adds besides."""
    return np.maximum(np.indices(shape).sum(0) - 45.0, -99.0)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("of", GROUPS)
def test_against_sums_in_f64(draw: Any, window: str, of: str):
    """Each window and each kind of groups in both layouts."""
    (groups, channels, filters), w = GROUPS[of], WINDOWS[window]
    last = (list(WINDOWS).index(window) + list(GROUPS).index(of)) % 2 == 1
    x = draw.array((2, groups * channels, 3 if window == "volume" else 1, 7, 9), "f4")
    weight = draw.array((groups * filters, channels, *w.kernel), "f4")
    bias = draw.array((groups * filters,), "f4")
    expected = by_taps(x, weight, w, groups) + bias.astype("f8")[:, None, None, None]
    by = draw.array(expected.shape, "f4")
    shape = np.moveaxis(expected, 1, -1).shape if last else expected.shape
    out = Guarded(shape)
    (kernel, t, cubes) = (
        in_strips(expected.shape, groups, channels)
        if last
        else in_columns(expected.shape, groups, channels)
    )
    seen = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    launch = kernel.configure(plane_dim=8)[cubes, t.units]
    launch(seen, weight, out.array, (bias,), (by, expected.shape), w, moved, t)
    found = np.moveaxis(out.array, -1, 1) if last else out.array
    np.testing.assert_allclose(found, expected * 2 + by + shifted(by.shape), 1e-4, 1e-4)
    assert out.is_fenced


def in_strips(shape: tuple[int, ...], groups: int, channels: int) -> tuple[Any, Strips, int]:
    n, filters, *extents, columns = shape
    is_depthwise = channels == 1 and filters == groups
    line = 2 if is_depthwise or filters // groups % 4 else 4
    pixels = min(3, columns)
    t = Strips(line, pixels, 2, 8, channels, is_depthwise, f32)
    places = n * prod(extents) * -(-columns // pixels)
    return convolve_groups, t, -(-places // t.down) * -(-filters // t.filters)


def in_columns(shape: tuple[int, ...], groups: int, channels: int) -> tuple[Any, Columns, int]:
    n, filters, depth, height, columns = shape
    mine = 2 if filters // groups % 2 == 0 else 1
    rows = min(3, height)
    t = Columns(rows, mine, channels, 16, f32)
    units = n * filters // mine * depth * -(-height // rows) * columns
    return convolve_columns, t, -(-units // t.units)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("channels", "size"), [(1, 3), (1, 7), (4, 3), (16, 3)])
def test_texts_hold_their_sums_in_registers(dtype: str, layout: str, channels: int, size: int):
    require_package("cuda.bindings")
    extents = "8,56,56,64" if layout == "NHWC" else "8,64,56,56"
    given = {
        "x": spec(f"{dtype}[{extents}]"),
        "weight": spec(f"{dtype}[64,{channels},{size},{size}]"),
    }
    options = {"padding": size // 2, "groups": 64 // channels, "layout": layout}
    (launch,) = record(kernels.conv2d, given, options, HOPPER)
    name = "convolve_groups" if layout == "NHWC" else "convolve_columns"
    assert launch.kernel.__name__ == name
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    assert "st.local" not in text


def test_few_results_are_shared_out_among_more_units():
    def planned(batch: int) -> Strips:
        given = {"x": spec(f"bf16[{batch},14,14,64]"), "weight": spec("bf16[64,1,3,3]")}
        options = {"padding": 1, "groups": 64, "layout": "NHWC"}
        (launch,) = record(kernels.conv2d, given, options, HOPPER)
        t = launch.arguments["t"]
        assert launch.cubes * t.down >= batch * 14 * -(-14 // t.pixels)
        return t

    few, many = planned(1), planned(512)
    assert few.pixels * few.line < many.pixels * many.line


def test_others_keep_their_way():
    for channels, groups, layout in ((3, 2, "NHWC"), (32, 2, "NHWC"), (64, 1, "NCHW")):
        shape = f"4,9,9,{channels * groups}" if layout == "NHWC" else f"4,{channels * groups},9,9"
        given = {"x": spec(f"f32[{shape}]"), "weight": spec(f"f32[32,{channels},3,3]")}
        launches = record(kernels.conv2d, given, {"groups": groups, "layout": layout}, HOPPER)
        names = {launch.kernel.__name__ for launch in launches}
        assert not names & {"convolve_groups", "convolve_columns"}
