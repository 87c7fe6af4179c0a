"""Convolutions in tiles of pixels by filters, as GPUs make them in ordinary arithmetic: by planes
of eight units on the CPU, and as CUDA's text."""

from __future__ import annotations

import itertools
import re
from math import prod
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.ir.types import f32, f64, i32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution import entry, launches, tile_strategies
from cubepy.kernels.convolution.each import convolve_each
from cubepy.kernels.convolution.problem import Window
from cubepy.kernels.convolution.tiles import Tile, convolve_by_tiles, join_parts
from cubepy.targets import cuda_target
from tests.guarded import Guarded
from tests.optional import require_package

HOPPER = cuda_target("sm_90a")
ONES, NONE = (1, 1, 1), (0, 0, 0)
SQUARE = Window((1, 3, 3), ONES, (0, 1, 1), (0, 1, 1), ONES)
WINDOWS = {
    "square": ((2, 4, 1, 5, 7), (16, 4), SQUARE, 1),
    "odd": ((3, 5, 1, 7, 5), (11, 5), SQUARE, 1),
    "stride": ((1, 6, 1, 9, 11), (9, 6), Window((1, 3, 2), (1, 2, 2), NONE, NONE, ONES), 1),
    "dilation": (
        (1, 3, 1, 9, 9),
        (8, 3),
        Window((1, 3, 3), ONES, (0, 2, 2), (0, 2, 2), (1, 2, 2)),
        1,
    ),
    "asymmetric": ((1, 4, 1, 6, 6), (8, 4), Window((1, 2, 4), ONES, (0, 2, 0), (0, 0, 3), ONES), 1),
    "groups": ((2, 10, 1, 5, 4), (18, 5), SQUARE, 2),
    "few pixels": ((1, 9, 1, 2, 1), (20, 9), SQUARE, 1),
    "point": ((2, 12, 1, 4, 4), (17, 12), Window(ONES, ONES, NONE, NONE, ONES), 1),
    "strided point": ((2, 8, 1, 5, 5), (8, 8), Window(ONES, (1, 2, 2), NONE, NONE, ONES), 1),
    "volume": (
        (1, 3, 4, 5, 6),
        (8, 3),
        Window((2, 3, 3), (2, 1, 1), (1, 1, 1), (0, 1, 1), ONES),
        1,
    ),
}
SHAPES = ((8, 4, 4, 2, 4, 4), (16, 4, 4, 1, 2, 8), (4, 16, 8, 8, 1, 16))
"""Units down, across and beside each other, pixels and filters of each, and channels of a step."""

PARTS = 3
"""Into which k is cut, where it is."""


def by_taps(x: Any, w: Any, window: Window, groups: int) -> Any:
    """[n, channel, ...] by [filter, channel, ...] in f64, one tap after another."""
    pads = list(zip(window.before, window.after, strict=True))
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    extents = [
        (n - span) // step + 1
        for n, span, step in zip(x.shape[2:], window.spans, window.stride, strict=True)
    ]
    found = np.zeros((x.shape[0], w.shape[0], *extents))
    channels, filters = w.shape[1], w.shape[0] // groups
    for tap in itertools.product(*map(range, window.kernel)):
        place = tuple(
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, s, n in zip(tap, window.dilation, window.stride, extents, strict=True)
        )
        for g in range(groups):
            seen = x[(slice(None), slice(g * channels, (g + 1) * channels), *place)]
            mine = slice(g * filters, (g + 1) * filters)
            factors = w[(mine, slice(None), *tap)].astype(np.float64)
            found[:, mine] += np.einsum("nczyi,fc->nfzyi", seen, factors)
    return found


def filled_up(w: Any, groups: int, width: int) -> Any:
    """Weights as the kernel reads them: what no filter has is not a number."""
    filters, channels = w.shape[0] // groups, w.shape[1]
    taps = prod(w.shape[2:])
    shape = (groups, taps, channels, -(-filters // width) * width)
    made = np.full(shape, 9 if w.dtype.kind == "i" else np.nan, w.dtype)
    made[..., :filters] = w.reshape(groups, filters, channels, taps).transpose(0, 3, 2, 1)
    return made


def last(x: Any) -> Any:
    """[n, channel, ...] as [n, ..., channel]."""
    return x.transpose(0, 2, 3, 4, 1)


def as_given(x: Any, is_last: bool) -> Any:
    """The same elements, with channels last in memory where that is asked for."""
    return np.ascontiguousarray(last(x)) if is_last else last(x)


def launch(
    x: Any,
    w: Any,
    out: Any,
    window: Window,
    groups: int,
    t: Tile,
    is_split: bool = False,
    **rest: Any,
) -> None:
    """`out`: [n, filter, ...], or with filters last as `t` says."""
    pixels = out.size // w.shape[0]
    weight = filled_up(w, groups, t.width)
    cubes = -(-pixels // t.height) * groups * (weight.shape[3] // t.width)
    given: dict[str, Any] = {"biases": (), "extras": (), "epilogue": None}
    share, parts, sums = window.taps * -(-w.shape[1] // t.depth), 1, out
    if is_split:
        share = -(-share // PARTS)
        parts = -(-window.taps * -(-w.shape[1] // t.depth) // share)
        sums = np.full((parts, *out.shape), np.nan, np.float32)
    convolve_by_tiles.configure(plane_dim=8)[cubes * parts, t.units](
        x=as_given(x, t.has_channels_last),
        weight=weight,
        out=sums,
        filters=w.shape[0] // groups,
        share=share,
        window=window,
        t=t,
        **(given if is_split else given | rest),
    )
    if is_split:
        cubes = -(-out.size // (t.line * 16))
        join_parts[cubes, 16](sums=sums, out=out, t=t, **(given | rest))


def tile(
    shape: Any, lasts: tuple[bool, bool], channels: int, line: int = 1, sums: Any = f32
) -> Tile:
    down, across, lanes, rows, columns, depth = shape
    is_whole = channels % depth == 0
    return Tile(down, across, lanes, rows, columns, depth, sums, is_whole, *lasts, line)


def check(
    name: str, shape: Any, lasts: Any, draw: Any, line: int = 1, is_split: bool = False
) -> None:
    """A convolution of the table against one in f64."""
    extents, (filters, channels), window, groups = WINDOWS[name]
    x = draw.numbers.standard_normal(extents).astype("f4")
    w = draw.numbers.standard_normal((filters, channels, *window.kernel)).astype("f4")
    expected = by_taps(x, w, window, groups)
    made = last(expected) if lasts[1] else expected
    out = Guarded(made.shape)
    launch(x, w, out.array, window, groups, tile(shape, lasts, channels, line), is_split)
    out.check(made, rtol=1e-4, atol=1e-4)


SAME, MIXED = [(False, False), (True, True)], [(False, True), (True, False)]
"""Layouts of inputs and results: for each window two in `test_windows`, and the other two where k
is cut."""
SOME = [(name, lasts) for k, name in enumerate(WINDOWS) for lasts in (SAME, MIXED)[k % 2]]
OTHERS = [(name, lasts) for k, name in enumerate(WINDOWS) for lasts in (MIXED, SAME)[k % 2]]


@pytest.mark.parametrize("name, lasts", SOME)
def test_windows(draw: Any, name: str, lasts: Any):
    check(name, SHAPES[0], lasts, draw)


@pytest.mark.parametrize(
    "name, shape, lasts",
    [
        *(("odd", SHAPES[1], lasts) for lasts in SAME),
        *(("odd", SHAPES[2], lasts) for lasts in MIXED),
        *(("groups", SHAPES[1], lasts) for lasts in MIXED),
        *(("groups", SHAPES[2], lasts) for lasts in SAME),
        *(("point", SHAPES[1], lasts) for lasts in SAME),
        *(("point", SHAPES[2], lasts) for lasts in MIXED),
    ],
)
def test_shapes_of_tiles(draw: Any, name: str, shape: Any, lasts: Any):
    check(name, shape, lasts, draw)


@pytest.mark.parametrize("name, lasts", OTHERS)
def test_parts_of_k(draw: Any, name: str, lasts: Any):
    check(name, SHAPES[0], lasts, draw, is_split=True)


@pytest.mark.parametrize(("name", "lasts"), [("square", (True, True)), ("point", (False, False))])
def test_lines_of_results(draw: Any, name: str, lasts: Any):
    check(name, (8, 4, 4, 4, 4, 4), lasts, draw, line=4)


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("line", [1, 4])
@pytest.mark.parametrize("is_last", [False, True])
def test_bias_and_an_epilogue_that_reads_its_index(
    draw: Any, is_last: bool, line: int, is_split: bool
):
    window = SQUARE
    x = draw.numbers.integers(-4, 5, (2, 3, 1, 5, 8)).astype("f4")
    w = draw.numbers.integers(-4, 5, (24, 3, 1, 3, 3)).astype("f4")
    bias = draw.numbers.integers(-4, 5, 24).astype("f4")
    scale = draw.numbers.integers(1, 5, 24).astype("f4")

    def finish(v: Any, index: Any, scales: Any) -> Any:
        n, f, _, y, i = index
        return v * scales[f] + cp.f32(1000 * n + 100 * y + i)

    t = tile((8, 4, 4, 4, 4, 4), (is_last, is_last), 3, line)
    n, f, _, y, i = np.indices((2, 24, 1, 5, 8))
    expected = (by_taps(x, w, window, 1) + bias[f]) * scale[f] + 1000 * n + 100 * y + i
    made = last(expected) if is_last else expected
    out = Guarded(made.shape)
    extras = (scale, (2, 24, 1, 5, 8))
    given = {"biases": (bias,), "extras": extras, "epilogue": finish}
    launch(x, w, out.array, window, 1, t, is_split, **given)
    out.check(made)


@pytest.mark.parametrize(("dtype", "sums"), [("f2", f32), ("f8", f64), ("i4", i32)])
@pytest.mark.parametrize("is_last", [False, True])
def test_other_dtypes(draw: Any, dtype: str, sums: Any, is_last: bool):
    x = draw.numbers.integers(-3, 4, (1, 5, 1, 6, 6)).astype(dtype)
    w = draw.numbers.integers(-3, 4, (9, 5, 1, 3, 3)).astype(dtype)
    t = tile((8, 4, 4, 4, 4, 4), (is_last, is_last), 5, sums=sums)
    expected = by_taps(x, w, SQUARE, 1)
    made = last(expected) if is_last else expected
    out = Guarded(made.shape, dtype)
    launch(x, w, out.array, SQUARE, 1, t)
    out.check(made)


@pytest.mark.parametrize("is_last", [False, True])
def test_infinities_stay_where_they_are(draw: Any, is_last: bool):
    """Neither the channels of another group nor what fills steps up may meet a factor."""
    x = draw.numbers.integers(-3, 4, (1, 6, 1, 5, 5)).astype("f4")
    w = draw.numbers.integers(-3, 4, (16, 3, 1, 3, 3)).astype("f4")
    x[:, 3:] = np.inf
    out = Guarded((1, 16, 1, 5, 5))
    launch(x, w, out.array, SQUARE, 2, tile(SHAPES[0], (is_last, False), 3))
    expected = by_taps(x[:, :3], w[:8], SQUARE, 1)
    np.testing.assert_array_equal(out.array[:, :8], expected)
    assert out.is_fenced and not np.isfinite(out.array[:, 8:]).any()


def test_results_at_a_distance(draw: Any):
    """As transposed convolutions have them, whose phases interleave."""
    x = draw.numbers.integers(-3, 4, (1, 4, 1, 5, 6)).astype("f4")
    w = draw.numbers.integers(-3, 4, (8, 4, 1, 3, 3)).astype("f4")
    out = np.zeros((1, 8, 1, 10, 12), "f4")
    launch(x, w, out[:, :, :, 1::2, ::2], SQUARE, 1, tile(SHAPES[0], (False, False), 4))
    np.testing.assert_array_equal(out[:, :, :, 1::2, ::2], by_taps(x, w, SQUARE, 1))
    out[:, :, :, 1::2, ::2] = 0
    assert not out.any()


# Whole calls


@pytest.mark.parametrize(
    ("dtype", "x_shape", "w_shape", "options", "layout"),
    [
        ("f4", (2, 16, 9, 8), (40, 16, 3, 3), {"padding": 1}, "NCHW"),
        ("f4", (2, 16, 9, 8), (40, 16, 3, 3), {"padding": 1}, "NHWC"),
        ("f4", (1, 6, 11, 7), (18, 3, 3, 2), {"padding": ((2, 0), (1, 3)), "groups": 2}, "NCHW"),
        ("f4", (1, 16, 9, 9), (16, 8, 1, 1), {"stride": 2, "groups": 2}, "NHWC"),
        ("f2", (2, 5, 9, 9), (9, 5, 3, 3), {"dilation": 2}, "NCHW"),
        ("f8", (1, 4, 6, 12), (70, 4, 3, 3), {}, "NHWC"),
        ("i2", (1, 4, 6, 7), (12, 4, 3, 3), {}, "NHWC"),
    ],
)
def test_whole_calls_as_a_gpu_makes_them(
    draw: Any, dtype: str, x_shape: Any, w_shape: Any, options: Any, layout: str, monkeypatch: Any
):
    """With the copies of weights, and an epilogue that reads its index."""
    x = draw.numbers.integers(-3, 4, x_shape).astype(dtype)
    w = draw.numbers.integers(-3, 4, w_shape).astype(dtype)
    bias = draw.numbers.integers(-3, 4, w_shape[0]).astype(dtype)
    expected = kernels.conv2d(x.astype("f8"), w.astype("f8"), bias.astype("f8"), **options)
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if layout == "NHWC" else x

    def finish(v: Any, index: Any) -> Any:
        return v + v.dtype(index[3])

    monkeypatch.setattr(launches, "is_cpu", lambda target: False)
    monkeypatch.setattr(tile_strategies, "is_wide", lambda target: True)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    found, changed = (
        kernels.conv2d(given, w, bias, layout=layout, epilogue=e, **options) for e in (None, finish)
    )
    if layout == "NHWC":
        expected = expected.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(changed, expected + np.arange(expected.shape[3]))


# The plan for a GPU

PLANS = [
    ("f32", (32, 64, 56, 56), (128, 64, 3, 3), {"padding": 1}),
    ("f32", (32, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    ("f32", (2, 3, 64, 64), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ("f32", (8, 64, 56, 56), (32, 64, 3, 3), {}),
    ("f32", (8, 60, 55, 55), (12, 60, 3, 3), {}),
    ("f32", (32, 60, 55, 55), (128, 60, 3, 3), {"epilogue": lambda v, index: v * 2}),
    ("f64", (8, 64, 28, 28), (64, 64, 3, 3), {}),
    ("f32", (4, 64, 28, 28), (128, 32, 3, 3), {"groups": 2}),
    ("f32", (4, 64, 28, 28), (128, 32, 1, 1), {"groups": 2}),
    ("f16", (4, 60, 28, 28), (120, 30, 3, 3), {"groups": 2}),
    ("i32", (4, 60, 28, 28), (64, 60, 3, 3), {}),
]


def planned(dtype: str, x: Any, w: Any, options: Any, layout: str = "NCHW") -> Any:
    shape = x if layout == "NCHW" else (x[0], *x[2:], x[1])
    arrays = {"x": shape, "weight": w}
    specs = {k: cp.spec(f"{dtype}[{','.join(map(str, s))}]") for k, s in arrays.items()}
    return record(kernels.conv2d, specs, {"layout": layout, **options}, HOPPER)


def by_tiles(launches: Any) -> Any:
    """The launch that multiplies."""
    (found,) = (n for n in launches if n.launcher.kernel.__name__ == "convolve_by_tiles")
    return found


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("plan", PLANS)
def test_plans_and_their_registers(plan: Any, layout: str):
    require_package("cuda.bindings")
    dtype, x, w, options = plan
    found = by_tiles(planned(dtype, x, w, options, layout))
    text = found.launcher.inspect(**found.arguments, target="cuda:sm_90a")
    assert "convolve_by_tiles" in str(text)
    found.launcher.inspect(**found.arguments, target="cuda:sm_90a", stage="ptx")
    used = found.launcher.inspect(**found.arguments, target="cuda:sm_90a", stage="resources")
    stored = re.search(r"spills +(\d+) bytes stored", str(used))
    assert stored is not None and int(stored.group(1)) == 0, used


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_k_is_cut_where_pixels_are_few(layout: str):
    found = planned("f32", (1, 512, 14, 14), (16, 512, 3, 3), {"padding": 1}, layout)
    *_, made, joined = (launch.launcher.kernel.__name__ for launch in found)
    assert (made, joined) == ("convolve_by_tiles", "join_parts")
    product = found[-2].arguments
    steps = 9 * 512 // product["t"].depth
    parts = product["out"].shape[0]
    assert (parts - 1) * product["share"] < steps <= parts * product["share"] and parts > 8


def test_weights_are_filled_up_for_tiles():
    launches = planned("f32", (8, 64, 28, 28), (60, 64, 3, 3), {})
    found, copy = by_tiles(launches), launches[0]
    weight = found.arguments["weight"]
    assert weight.shape[:3] == (1, 9, 64) and weight.shape[3] % found.arguments["t"].width == 0
    assert copy.launcher.kernel is not found.launcher.kernel


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 5, 9, 9), (4, 5, 3, 3), {}),
        ((2, 16, 9, 9), (1, 16, 3, 3), {}),
        ((2, 2, 9, 9), (64, 2, 1, 3), {}),
    ],
)
def test_few_filters_or_products_are_made_one_by_one(x: Any, w: Any, options: Any):
    (found,) = planned("f32", x, w, options)
    assert found.launcher.kernel is convolve_each


def test_small_problems_have_small_tiles():
    large = planned("f32", (32, 64, 56, 56), (128, 64, 3, 3), {})[-1].arguments["t"]
    small = planned("f32", (1, 64, 14, 14), (128, 64, 3, 3), {})[-1].arguments["t"]
    few = planned("f32", (32, 64, 56, 56), (16, 64, 3, 3), {})[-1].arguments["t"]
    assert large.height * large.width > small.height * small.width
    assert few.width == 16
