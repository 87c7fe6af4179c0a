"""`cp.kernels.conv1d`, `conv2d`, `conv3d` and `prepack` against NumPy in f64, and torch's rules."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.llvm.compiler import LlvmCompiler
from cubepy.errors import LaunchError
from cubepy.ir.types import bf16, f32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution import entry, strategies
from cubepy.kernels.convolution import weights as weights_of
from cubepy.kernels.convolution.packing import Packing
from cubepy.kernels.convolution.problem import Problem, Window
from cubepy.lang.annotations import spec
from cubepy.targets import parse_target

RNG = np.random.default_rng(5)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def channels_last(x: np.ndarray) -> np.ndarray:
    """The same array with its second axis densely in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def each(value: Any, axes: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * axes


def reference(
    x: np.ndarray,
    w: np.ndarray,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> np.ndarray:
    """The convolution in f64, tap by tap."""
    axes = x.ndim - 2
    strides, steps = each(stride, axes), each(dilation, axes)
    pads = [p if isinstance(p, tuple) else (p, p) for p in each(padding, axes)]
    padded = np.pad(x.astype("f8"), [(0, 0), (0, 0), *pads])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], steps, strict=True)]
    extents = [
        (n - span) // s + 1 for n, span, s in zip(padded.shape[2:], spans, strides, strict=True)
    ]
    inputs = np.split(padded, groups, 1)
    filters = np.split(w.astype("f8"), groups)
    found = []
    for one, own in zip(inputs, filters, strict=True):
        total: Any = 0
        for tap in product(*map(range, w.shape[2:])):
            cut = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, steps, extents, strides, strict=True)
            )
            total = total + np.tensordot(own[(..., *tap)], one[(..., *cut)], (1, 1))
        found.append(np.moveaxis(total, 0, 1))
    return np.concatenate(found, 1)


def check(
    found: np.ndarray, x: np.ndarray, w: np.ndarray, bias: Any = None, **options: Any
) -> None:
    """Assert that a convolution errs by no more than its docstring says, and its rounding."""
    shape = (-1, *[1] * (x.ndim - 2))
    more = 0 if bias is None else bias.astype("f8").reshape(shape)
    exact = reference(x, w, **options) + more
    largest = reference(abs(x), abs(w), **options) + abs(more)
    assert found.shape == exact.shape
    unit = 2.0**-53 if x.dtype == "f8" else 2.0**-24
    rounding = np.finfo(found.dtype).eps if found.dtype == "f2" else 0
    bound = (w[0].size + 2) * unit * largest + rounding * abs(exact) + 1e-30
    assert (abs(found - exact) <= bound).all()


CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 16, 9, 15), (33, 16, 3, 3), {"padding": 1}),
    ((1, 3, 21, 24), (20, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((1, 20, 13, 17), (35, 20, 3, 2), {"dilation": (1, 3), "padding": (0, 2)}),
    ((1, 32, 7, 7), (32, 16, 3, 3), {"padding": ((1, 2), (0, 1)), "groups": 2}),
    ((3, 2, 19, 23), (40, 2, 5, 5), {"padding": 2}),
    ((1, 4, 43, 39), (16, 4, 11, 11), {"padding": ((5, 2), (2, 3)), "stride": 4}),
    ((2, 200, 9, 1), (70, 200, 3, 3), {"padding": 1}),
    ((1, 9, 5, 4), (24, 9, 2, 3), {}),
)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_bands(case: Any, last: bool):
    shape, weights, options = case
    x, w, bias = numbers(*shape), numbers(*weights), numbers(weights[0])
    seen = channels_last(x) if last else x
    found = cp.kernels.conv2d(seen, w, bias, **options)
    assert (found.strides[1] == 4) is last
    check(found, x, w, bias, **options)
    packed = cp.kernels.prepack(w, groups=options.get("groups", 1), precision="direct")
    again = cp.kernels.conv2d(seen, packed, bias, **options)
    check(again, x, w, bias, **options)
    if isinstance(packed.packing, Packing):  # else weights that are not packed are not split
        np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_bands_of_pairs(case: Any, last: bool, monkeypatch: Any):
    """As processors multiply bf16 that have the instruction; others do it in f32."""
    shape, weights, options = case
    monkeypatch.setattr(strategies, "has_dots", lambda target, dtype: True)
    monkeypatch.setattr(weights_of, "has_split_units", lambda target: False)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    x, w = (numbers(*extents).astype(ml_dtypes.bfloat16) for extents in (shape, weights))
    exact = reference(x.astype("f8"), w.astype("f8"), **options)
    largest = reference(abs(x.astype("f8")), abs(w.astype("f8")), **options)
    bound = (w[0].size + 2) * 2.0**-24 * largest + 2.0**-8 * abs(exact)
    for seen in (w, channels_last(w)):
        packed = cp.kernels.prepack(seen, groups=options.get("groups", 1))
        assert packed.packing.factors is (f32 if weights[1] == 3 else bf16)
        for weight in (seen, packed):
            given = channels_last(x) if last else x
            found = cp.kernels.conv2d(given, weight, **options).astype("f8")
            assert (abs(found - exact) <= bound).all()


def test_an_odd_channel_has_no_partner(monkeypatch: Any):
    """Of the pairs that a part of the channels ends with, the second is 0, whatever lies there."""
    monkeypatch.setattr(strategies, "has_dots", lambda target, dtype: True)
    monkeypatch.setattr(weights_of, "has_split_units", lambda target: False)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    x = np.ones((1, 18, 5, 9), ml_dtypes.bfloat16)
    x[:, 9:] = np.inf
    w = np.ones((32, 9, 3, 3), x.dtype)
    for given in (x, channels_last(x)):
        found = cp.kernels.conv2d(given, w, groups=2)
        assert (found[:, :16] == 81).all()
        assert np.isinf(found[:, 16:].astype("f4")).all()


def test_last_tile_reads_what_was_brought():
    """Rows so wide that there is room for no more than one band depends on; the pixels that its
    last tile has beyond the end read the same window as the last one."""
    x, weight = numbers(1, 64, 5, 803), numbers(16, 64, 3, 3)
    expected = cp.kernels.conv2d(x, weight, stride=2)
    with cp.settings(checked=True):
        np.testing.assert_array_equal(cp.kernels.conv2d(x, weight, stride=2), expected)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("shape", "weights", "options"),
    [
        ((1, 70, 20000), (40, 70, 5), {"padding": 2, "stride": 2}),
        ((2, 64, 3, 3001), (17, 64, 3, 3), {"padding": (1, 4), "dilation": (1, 3)}),
        ((1, 130, 2, 1500), (34, 65, 2, 2), {"groups": 2}),
    ],
)
def test_rows_that_are_too_long_are_cut(shape: Any, weights: Any, options: Any, last: bool):
    """As those of signals: strips of a row are brought, with what their windows see beside them."""
    x, w = numbers(*shape), numbers(*weights)
    bias = numbers(weights[0])
    function = {3: cp.kernels.conv1d, 4: cp.kernels.conv2d}[x.ndim]
    given = channels_last(x) if last else x
    out = np.full_like(function(given, w, bias, **options), np.nan)
    function(given, w, bias, **options, out=out)
    check(out, x, w, bias, **options)


@pytest.mark.parametrize("columns", [7, 14, 28, 56, 57, 112])
def test_tiles_make_no_pixel_in_vain(columns: int):
    """Short tiles go on in the next row; long ones, whose addresses would fill the registers, are
    as even parts of a row as can be."""
    window = Window((1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    extents = 1, columns, columns
    problem = Problem(window, 1, 64, 64, 1, extents, extents, f32, True, True, True)
    for name, short in (("cpu:znver3", True), ("cpu:sapphirerapids", False)):
        target = parse_target(name)
        packing = strategies.packing(target, 64, 64, 1, 9, f32, f32)
        t = strategies.bands(target, problem, packing)
        assert t.wraps is short
        assert t.pixels == 6 if short else -(-columns // t.pixels) * t.pixels < columns + 7


@pytest.mark.parametrize(
    ("groups", "filters", "channels"),
    [(1, 1, 5), (32, 1, 1), (2, 4, 6), (3, 17, 9), (1, 8, 0), (1, 1, 0)],
)
@pytest.mark.parametrize("precision", [None, "winograd2x2"])
def test_packed_weights_of_any_shape(
    groups: int, filters: int, channels: int, precision: str | None
):
    """Depthwise, single and odd filters, and no channels: kernels that read weights as they are."""
    x, w = numbers(2, channels * groups, 6, 7), numbers(filters * groups, channels, 3, 3)
    bias = numbers(filters * groups)
    found = cp.kernels.conv2d(x, w, bias, groups=groups)
    check(found, x, w, bias, groups=groups)
    packed = cp.kernels.prepack(w, groups=groups, precision=precision)
    found = cp.kernels.conv2d(x, packed, bias, groups=groups)
    np.testing.assert_allclose(found, cp.kernels.conv2d(x, w, bias, groups=groups), 1e-4, 1e-4)


def test_empty_windows_are_refused():
    x, w = numbers(1, 3, 5, 5), numbers(4, 3, 0, 3)
    for call in (lambda: cp.kernels.conv2d(x, w), lambda: cp.kernels.prepack(w)):
        with pytest.raises(cp.LaunchError, match="whose window is empty"):
            call()
    with pytest.raises(cp.LaunchError, match="`precision` is"):
        cp.kernels.prepack(numbers(4, 3, 3, 3), precision=["winograd2x2"])  # type: ignore[arg-type]


def test_many_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(strategies, "part_of", lambda channels, most, line: min(channels, line))
    x, w = numbers(1, 50, 6, 5), numbers(37, 50, 3, 3)
    for seen in (x, channels_last(x)):
        found = cp.kernels.conv2d(seen, cp.kernels.prepack(w), padding=1)
        check(found, x, w, padding=1)


@pytest.mark.parametrize("last", [False, True])
def test_points(last: bool):
    x, w, bias = numbers(2, 19, 7, 9), numbers(21, 19, 1, 1), numbers(21)
    seen = channels_last(x) if last else x
    check(cp.kernels.conv2d(seen, w, bias), x, w, bias)
    packed = cp.kernels.prepack(w)
    check(cp.kernels.conv2d(seen, packed, stride=2), x, w, stride=2)
    check(cp.kernels.conv2d(seen, cp.kernels.prepack(w), padding=1), x, w, padding=1)


@pytest.mark.parametrize("last", [False, True])
def test_points_of_large_weights(last: bool):
    """They are packed into panels, and multiplied as they are when they are not packed."""
    x, w, bias = numbers(2, 500, 5, 7), numbers(531, 500, 1, 1), numbers(531)
    assert w.size > strategies.FEW_PIXELS
    seen, packed = channels_last(x) if last else x, cp.kernels.prepack(w)
    check(cp.kernels.conv2d(seen, w, bias, stride=2), x, w, bias, stride=2)
    check(cp.kernels.conv2d(seen, packed, bias), x, w, bias)
    check(
        cp.kernels.conv2d(seen, packed, bias, stride=2, padding=1), x, w, bias, stride=2, padding=1
    )
    half = cp.kernels.prepack(w.astype(np.float16))
    found = cp.kernels.conv2d(seen.astype(np.float16), half)
    np.testing.assert_allclose(found, cp.kernels.conv2d(x, w), rtol=0.02, atol=0.2)


POINTS_OF_13 = {
    "dense": lambda x: x,
    "reversed": lambda x: x[:, :, ::-1, ::-1],
    "channels apart": lambda x: x[:, ::2],
    "rows apart": lambda x: x[:, :, :, 1:],
    "pixels apart": lambda x: x[:, :, 1:, ::4][:, :, :, :1],
    "all the same": lambda x: np.broadcast_to(x[:, :, :1, :1], x.shape),
    "turned": lambda x: x.swapaxes(2, 3),
}


@pytest.mark.parametrize(
    "view, epilogue",
    [
        *((view, None) for view in POINTS_OF_13),
        ("dense", "negated"),
        ("channels apart", "negated"),
        ("all the same", "negated"),
        ("turned", "negated"),
        ("dense", "placed"),
        ("reversed", "placed"),
        ("rows apart", "placed"),
        ("pixels apart", "placed"),
    ],
)
def test_rows_of_points_are_as_long_as_one_likes(view: str, epilogue: str | None):
    """Pixels at one distance are counted as of longer rows, unless an epilogue asks for places."""
    seen = POINTS_OF_13[view](numbers(2, 540, 13, 13))
    w, bias = numbers(500, seen.shape[1], 1, 1), numbers(500)
    packed = cp.kernels.prepack(w)
    shape = 2, 500, *seen.shape[2:]
    dense, apart = np.full(shape, np.nan, np.float32), np.full((*shape, 2), np.nan, np.float32)
    for out in (dense, apart[..., 0]) if epilogue is None else (dense,):
        function, factor = None, np.float32(1)
        if epilogue == "negated":
            function, factor = lambda v, index: -v, np.float32(-1)
        elif epilogue == "placed":
            function = lambda v, index: v * (index[2] * 16 + index[3] + 1)
            factor = (np.arange(shape[2])[:, None] * 16 + np.arange(shape[3]) + 1).astype("f4")
        cp.kernels.conv2d(seen, packed, bias, epilogue=function, out=out)
        check(out / factor, np.ascontiguousarray(seen), w, bias)


@pytest.mark.parametrize("stride", [(1, 2), (2, 1), (2, 2)])
def test_strides_over_single_columns(stride: tuple[int, int]):
    """They skip no pixel of an axis of one, and would of longer rows."""
    for x in (numbers(1, 540, 13, 1), numbers(1, 540, 1, 13)):
        w = numbers(500, 540, 1, 1)
        found = cp.kernels.conv2d(x, cp.kernels.prepack(w), stride=stride)
        check(found, x, w, stride=stride)


@pytest.mark.parametrize(
    ("rows", "width", "columns"),
    [(14, 14, 98), (7, 7, 49), (13, 13, 169), (56, 56, 112), (1, 251, 251)],
)
def test_rows_of_points_divide_the_pixels(rows: int, width: int, columns: int):
    results = 1, rows, width
    window = Window((1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1))
    problem = Problem(window, 1, 256, 1024, 1, results, results, f32, False, False, False)
    target = parse_target("cpu:znver3")
    packing = strategies.packing(target, 1024, 256, 1, 1, f32, f32)
    assert strategies.point_columns(target, problem, packing) == columns


def test_depthwise():
    x, w = numbers(2, 12, 8, 9), numbers(24, 1, 3, 3)
    check(cp.kernels.conv2d(x, w, padding=1, groups=12), x, w, padding=1, groups=12)


def test_one_and_three_axes():
    x, w = numbers(2, 6, 40), numbers(18, 6, 5)
    check(cp.kernels.conv1d(x, w, stride=2, padding=2), x, w, stride=2, padding=2)
    x, w = numbers(1, 4, 5, 6, 9), numbers(17, 4, 3, 2, 3)
    options = {"stride": (2, 1, 1), "padding": 1, "dilation": (1, 2, 1)}
    check(cp.kernels.conv3d(x, w, **options), x, w, **options)


def test_layouts_by_name():
    x, w = numbers(2, 6, 8, 9), numbers(5, 6, 3, 3)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    found = cp.kernels.conv2d(last, w, layout="NHWC")
    check(np.moveaxis(found, -1, 1), x, w)
    one = cp.kernels.conv2d(x[0], w)
    check(one[None], x[:1], w)


@pytest.mark.parametrize("dtype", ["f8", "f2"])
def test_floats(dtype: str):
    x, w = numbers(1, 9, 8, 8, dtype=dtype), numbers(10, 9, 3, 3, dtype=dtype)
    found = cp.kernels.conv2d(x, w)
    assert found.dtype == dtype
    check(found, x, w)


def test_integers():
    x = RNG.integers(-128, 128, (1, 9, 8, 8)).astype("i1")
    w = RNG.integers(-128, 128, (10, 9, 3, 3)).astype("i1")
    found = cp.kernels.conv2d(x, w)
    assert found.dtype == "i4"
    np.testing.assert_array_equal(found, reference(x, w))


def clipped(v: Any, index: Any, scale: Any) -> Any:
    return max(v, 0) * scale[index[0]]


@pytest.mark.parametrize("last", [False, True])
def test_epilogues(last: bool):
    x, w, scale = numbers(2, 8, 7, 8), numbers(9, 8, 3, 3), numbers(2)
    out = channels_last(np.full((2, 9, 5, 6), np.nan, np.float32))
    out = out if last else np.ascontiguousarray(out)
    found = cp.kernels.conv2d(x, w, epilogue=(clipped, scale), out=out)
    assert found is out
    exact = np.maximum(reference(x, w), 0) * scale[:, None, None, None]
    np.testing.assert_allclose(found, exact, 1e-4, 1e-4)


@pytest.mark.optional("torch")
def test_parameters_are_those_of_torch():
    import torch

    x, w, b = torch.randn(2, 8, 12, 11), torch.randn(6, 4, 3, 3), torch.randn(6)
    given = (x, w, b, (2, 1), (1, 0), (1, 2), 2)
    found = cp.kernels.conv2d(*given)
    expected = torch.nn.functional.conv2d(*given)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-4, 1e-4)
    same = cp.kernels.conv2d(x, w, b, padding="same", groups=2)
    expected = torch.nn.functional.conv2d(x, w, b, padding="same", groups=2)
    np.testing.assert_allclose(same.numpy(), expected.numpy(), 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w: cp.kernels.conv2d(x, w[:, :2]), "`x` has shape (1, 3, 8, 8) and `weight`"),
        (lambda x, w: cp.kernels.conv2d(x, w, w[0, 0, 0]), "`bias` has shape (3,)"),
        (lambda x, w: cp.kernels.conv2d(x, w.astype("f8")), "`x` is f32, `weight` is f64"),
        (lambda x, w: cp.kernels.conv2d(x, w, padding="round"), "`padding` is 'round'"),
        (lambda x, w: cp.kernels.conv2d(x, w, stride=0), "`stride` is 0"),
        (lambda x, w: cp.kernels.conv2d(x, w, groups=5), "`groups` is 5"),
        (lambda x, w: cp.kernels.conv2d(x, w, layout="NWHC"), "`layout` is 'NWHC'"),
        (lambda x, w: cp.kernels.conv2d(x[:, :, :2], w), "does not fit"),
        (lambda x, w: cp.kernels.conv2d(x[0, 0], w), "`x` has shape (8, 8)"),
        (lambda x, w: cp.kernels.conv2d(x, cp.kernels.prepack(w), groups=3), "groups"),
    ],
)
def test_errors(call: Any, words: str):
    with pytest.raises(LaunchError) as raised:
        call(numbers(1, 3, 8, 8), numbers(4, 3, 3, 3))
    assert words in str(raised.value)


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl", "metal", "hip:gfx942", "cpu:apple-m1"])
def test_every_target_has_it(target: str):
    specs = {"x": spec("f32[1,8,14,14]"), "weight": spec("f32[8,8,3,3]")}
    for launch in record(cp.kernels.conv2d, specs, {}, parse_target(target)):
        assert launch.launcher.inspect(**launch.arguments, target=target)


def test_parts_waste_little():
    assert strategies.part_of(3, 200, 16) == 3
    assert strategies.part_of(512, 227, 16) == 128
    assert strategies.part_of(150, 64, 16) == 50
    for channels, most in RNG.integers(1, (3000, 300), (100, 2)).tolist():
        part = strategies.part_of(channels, most, 16)
        assert 1 <= part <= max(most, 16, channels if channels <= most else 0)
        assert -(-channels // part) * part - channels <= max(channels // 16, channels // part + 1)


EDGES = [
    ((3, 3), (1, 1), 1),
    ((3, 3), ((2, 0), (1, 2)), 1),
    ((3, 3), ((1, 1), (2, 1)), 1),
    ((3, 5), (4, 2), 1),
    ((5, 3), (4, 2), 2),
    ((1, 2), (1, 1), 1),
    ((3, 1), (2, 1), 1),
]
"""Windows, their padding and dilation."""


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("number", range(len(EDGES)))
def test_taps_beside_the_array(number: int, last: bool):
    """Tiles that begin and end rows, and rows that see few of the window or nothing, make no
    product with the zeros there; others make all of theirs. Each window sees all images, half of
    them with the channels last."""
    window, padding, dilation = EDGES[number]
    images = [[(7, 7), (6, 15), (2, 33)], [(3, 14), (5, 28), (9, 5)]][(number + last) % 2]
    w, bias = numbers(37, 5, *window), numbers(37)
    packed = cp.kernels.prepack(w)
    options: dict[str, Any] = {"padding": padding, "dilation": dilation}
    for height, width in images:
        x = numbers(2, 5, height, width)
        given = channels_last(x) if last else x
        shape = reference(x, w, **options).shape
        out = np.full(shape, np.nan, "f4")
        out = channels_last(out) if last else out
        cp.kernels.conv2d(given, packed, bias, out=out, **options)
        check(out, x, w, bias, **options)


def test_a_batch_compiles_nothing_new(monkeypatch: pytest.MonkeyPatch):
    w = cp.kernels.prepack(numbers(40, 24, 3, 3), precision="direct")
    cp.kernels.conv2d(numbers(1, 24, 11, 12), w, padding=1)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("other extents compiled a kernel")

    monkeypatch.setattr(LlvmCompiler, "build", refuse)
    for shape in ((2, 24, 11, 12), (9, 24, 11, 12), (1, 24, 28, 36)):
        cp.kernels.conv2d(numbers(*shape), w, padding=1)


@pytest.mark.parametrize("last", [False, True])
def test_parts_see_their_own_channels_alone(last: bool, monkeypatch: pytest.MonkeyPatch):
    """Neither NaN of the next group nor a product of infinity and zero comes into a part."""
    monkeypatch.setattr(strategies, "part_of", lambda channels, most, line: min(channels, line))
    x, w = numbers(1, 40, 6, 7), abs(numbers(32, 20, 3, 3))
    x[0, 19], x[0, 20:] = np.inf, np.nan
    found = cp.kernels.conv2d(channels_last(x) if last else x, w, padding=1, groups=2)
    assert np.isposinf(found[0, :16]).all() and np.isnan(found[0, 16:]).all()


def test_groups_may_be_integers_of_numpy():
    x, w = numbers(1, 4, 8, 8), numbers(4, 2, 3, 3)
    grad = np.ones((1, 4, 6, 6), np.float32)
    for groups in (np.int64(2), np.int32(2)):
        for found, expected in (
            (cp.kernels.conv2d(x, w, groups=groups), cp.kernels.conv2d(x, w, groups=2)),
            (
                cp.kernels.conv_transpose2d(x, w, groups=groups),
                cp.kernels.conv_transpose2d(x, w, groups=2),
            ),
            (
                cp.kernels.conv2d_weight_grad(x, w.shape, grad, groups=groups),
                cp.kernels.conv2d_weight_grad(x, w.shape, grad, groups=2),
            ),
            (
                cp.kernels.conv2d_input_grad(x.shape, w, grad, groups=groups),
                cp.kernels.conv2d_input_grad(x.shape, w, grad, groups=2),
            ),
            (
                cp.kernels.conv2d(x, cp.kernels.prepack(w, groups=groups), groups=groups),
                cp.kernels.conv2d(x, w, groups=2),
            ),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [2.0, "a", None])
def test_groups_that_are_no_integer_are_refused(groups: Any):
    with pytest.raises(TypeError, match="E602: conv2d: `groups` is .*; it takes an integer"):
        cp.kernels.conv2d(numbers(1, 4, 8, 8), numbers(4, 2, 3, 3), groups=groups)


def test_one_axis_takes_one_integer():
    with pytest.raises(LaunchError, match="`stride` is 0; it takes 1 integer, 1 or more"):
        cp.kernels.conv1d(numbers(1, 4, 8), numbers(4, 4, 3), stride=0)
