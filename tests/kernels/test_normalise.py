"""Softmax and the norms of rows against f64, with the error of their formulas as the bound."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.ir.types import f32, f64
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.normalisation.kernel import SHORT, normalise_rows
from cubepy.kernels.normalisation.problem import Normalisation, Passing, Places, RowTiling
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target, parse_target
from tests.guarded import Guarded
from tests.optional import require_package

EPS = {"f2": 2.0**-10, "f4": 2.0**-23, "f8": 2.0**-52}
SHAPES = ((6, 1), (3, 4, 33), (2, 1025))


def soft(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def assert_soft(x: np.ndarray, axis: int, eps: float) -> None:
    """exp is within 4 ULP of an argument that is rounded once; a row's sum adds its length."""
    wide = x.astype("f8")
    expected = soft(wide, axis)
    bound = eps * (8 + np.ptp(wide, axis, keepdims=True)) * expected + 2 * eps**2
    assert np.all(np.abs(kernels.softmax(x, axis).astype("f8") - expected) <= bound + 6e-8 * eps)
    found = kernels.log_softmax(x, axis).astype("f8")
    error = np.abs(found - np.log(expected))
    assert np.all(error <= eps * (8 + 2 * np.ptp(wide, axis, keepdims=True)))


@pytest.mark.parametrize("dtype", EPS)
def test_softmax_of_any_axis_and_strides(draw, dtype):
    for shape in SHAPES:
        x = draw.layout((draw.numbers.standard_normal(shape) * 3).astype(dtype))
        for axis in range(-x.ndim, x.ndim):
            assert_soft(x, axis, EPS[dtype])
    assert_soft(x.astype(ml_dtypes.bfloat16), 1, 2.0**-7)


def test_softmax_of_special_rows():
    x = np.array([[-np.inf, 0, 1], [-np.inf] * 3, [np.inf, 0, 1], [np.nan, 0, 1]], np.float32)
    with np.errstate(invalid="ignore"):
        expected = soft(x.astype("f8"), 1)
    for y in (x, np.ascontiguousarray(x.T).T):
        np.testing.assert_allclose(kernels.softmax(y, 1), expected, 1e-6)


def norm_of_rows(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


@pytest.mark.parametrize("dtype", EPS)
def test_norms_of_rows(draw, dtype):
    for shape in SHAPES:
        x = draw.layout((draw.numbers.standard_normal(shape) * 3 + 5).astype(dtype))
        n = shape[-1]
        weight, bias = draw.numbers.standard_normal((2, n)).astype(dtype)
        wide = [v.astype("f8") for v in (x, weight, bias)]
        tolerance = 64 * EPS[dtype]
        found = kernels.layer_norm(x, n, weight, bias[::-1][::-1])
        np.testing.assert_allclose(
            found, norm_of_rows(wide[0], wide[1], wide[2], 1e-5), tolerance, tolerance
        )
        found = kernels.layer_norm(x, (n,), eps=0.5)
        np.testing.assert_allclose(
            found, norm_of_rows(wide[0], 1.0, 0.0, 0.5), tolerance, tolerance
        )
        found = kernels.rms_norm(x, n, weight, 0.25)
        expected = wide[0] / np.sqrt((wide[0] ** 2).mean(-1, keepdims=True) + 0.25) * wide[1]
        np.testing.assert_allclose(found, expected, tolerance, tolerance)


def test_norms_of_several_axes(draw):
    x = draw.numbers.standard_normal((3, 4, 5)).astype(np.float32)
    found = kernels.layer_norm(x, (4, 5))
    expected = norm_of_rows(x.reshape(3, 20).astype("f8"), 1.0, 0.0, 1e-5)
    np.testing.assert_allclose(found.reshape(3, 20), expected, 1e-5, 1e-5)


def test_results_are_written_where_they_belong(draw):
    x = draw.numbers.standard_normal((5, 37)).astype(np.float32)
    for function in (kernels.softmax, lambda v, out: kernels.layer_norm(v, 37, out=out)):
        out = Guarded(x.shape, x.dtype, draw.pick.randrange(9))
        assert function(x, out=out.array) is out.array
        out.check(out.array)
    assert kernels.softmax(np.empty((0, 3), np.float32)).shape == (0, 3)
    assert kernels.softmax(np.full((), 3.0, np.float32)) == 1


@pytest.mark.parametrize("is_sum", [False, True])
def test_one_array_twice_and_as_a_result(draw, is_sum: bool):
    x, other = draw.array((7, 133), np.float32), np.empty((7, 133), np.float32)
    twice = x.astype("f8") * 2
    kernels.layer_norm(x, 133, residual=x, out=(other, x) if is_sum else (x, other))
    norms, sums = (other, x) if is_sum else (x, other)
    np.testing.assert_array_equal(sums, twice)
    np.testing.assert_allclose(norms, norm_of_rows(twice, 1, 0, 2.0**-23), 1e-4, 1e-5)
    with pytest.raises(LaunchError, match="overlaps"):
        kernels.layer_norm(x[0], 133, weight=x[0], out=x[0])


def test_refused():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(LaunchTypeError, match="i64.*\n.*f32 and f64 are supported"):
        kernels.softmax(np.arange(3))
    with pytest.raises(LaunchError, match="axis 2 is out of bounds"):
        kernels.softmax(x, 2)
    with pytest.raises(LaunchError, match=r"`weight` has shape \(2,\).*is \(3,\)"):
        kernels.layer_norm(x, 3, np.zeros(2, np.float32))
    with pytest.raises(LaunchTypeError, match="`weight` has dtype f64, but `x` has f32"):
        kernels.rms_norm(x, 3, np.zeros(3))
    with pytest.raises(LaunchError, match=r"last axes are not \(2,\)"):
        kernels.layer_norm(x, 2)


@pytest.mark.optional("torch")
def test_as_torch(draw, require_package):
    torch = require_package("torch")
    x = torch.randn(4, 6, 50)
    for dim in range(-3, 3):
        torch.testing.assert_close(kernels.softmax(x, dim=dim), torch.softmax(x, dim))
    weight, bias = torch.randn(2, 50)
    expected = torch.nn.functional.layer_norm(x, (50,), weight, bias)
    torch.testing.assert_close(kernels.layer_norm(x, (50,), weight, bias), expected)
    half = x.to(torch.bfloat16)
    expected = torch.nn.functional.rms_norm(half.float(), (50,)).to(torch.bfloat16)
    torch.testing.assert_close(kernels.rms_norm(half, 50), expected)


def moved(v: Any, index: Any, by: Any) -> Any:
    return v * 2 + cp.load(by[index[:-1]], index[-1], line=v.line_size)


def twice_and_one(v: Any) -> Any:
    return v * 2 + 1


def test_functions_of_the_caller(draw):
    shape = draw.pick.choice([(3, 4, 33), (2, 5, 1025), (1, 2, 3)])
    x = draw.numbers.standard_normal(shape).astype("f4")
    by = draw.numbers.standard_normal(shape).astype("f4")
    wide, n = x.astype("f8") * 2 + 1, shape[-1]
    options = {"prologue": twice_and_one, "epilogue": (moved, by)}
    found = kernels.softmax(x, **options)
    np.testing.assert_allclose(found, soft(wide, 2) * 2 + by, 1e-5, 1e-5)
    found = kernels.layer_norm(x, n, **options)
    np.testing.assert_allclose(found, norm_of_rows(wide, 1, 0, 1e-5) * 2 + by, 1e-4, 1e-4)
    found = kernels.layer_norm(x, shape[1:], **options)
    flat = norm_of_rows(wide.reshape(shape[0], -1), 1, 0, 1e-5).reshape(shape)
    np.testing.assert_allclose(found, flat * 2 + by, 1e-4, 1e-4)
    found = kernels.rms_norm(x, n, eps=0.5, prologue=twice_and_one)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 0.5)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    for axis in (0, 1):
        found = kernels.softmax(x, axis, prologue=twice_and_one)
        np.testing.assert_allclose(found, soft(wide, axis), 1e-5, 1e-6)
        found = kernels.log_softmax(x, axis, epilogue=lambda v, index: v + index[1] * 0)
        np.testing.assert_allclose(found, np.log(soft(x.astype("f8"), axis)), 1e-4, 1e-5)
    found = kernels.batch_norm(x, training=True, prologue=twice_and_one)
    centred = wide - wide.mean((0, 2), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((0, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("shape", "dtype", "passes"),
    [
        ((4096, 16384), "f32", True),
        ((40, 200, 15004), "f32", True),
        ((4096, 8192), "f32", False),
        ((4096, 16388), "f32", False),  # weights do not fit into registers
        ((4096, 12285), "f32", False),  # rows begin anywhere
        ((100, 16384), "f32", False),
        ((4096, 16384), "bf16", False),
    ],
)
def test_long_rows_pass_through_cubes_that_stay(shape: tuple[int, ...], dtype: str, passes: bool):
    n = shape[-1]
    weight, x = spec(f"{dtype}[{n}]"), spec(f"{dtype}[{','.join(map(str, shape))}]")
    for function, names in (
        (kernels.layer_norm, ("weight", "bias")),
        (kernels.rms_norm, ("weight",)),
    ):
        given = {"x": x, **dict.fromkeys(names, weight)}
        for target, is_there in ((cuda_target("sm_90a"), True), (cuda_target("sm_80"), False)):
            launches = record(function, given, {"normalized_shape": n}, target)
            launch = launches[-1]
            assert isinstance(launch.arguments.get("t"), Passing) == (passes and is_there)
            if passes and is_there:
                assert len(launches) == 2
                text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a")
                assert "cp.async.bulk" in text


@pytest.mark.parametrize("n", [1, 3, 37, 61, 64, 100, 128])
@pytest.mark.parametrize(
    ("name", "is_turned"),
    [("softmax", False), ("log_softmax", True), ("layer_norm", False), ("rms_norm", True)],
)
def test_rows_that_units_hold(n: int, name: str, is_turned: bool):
    """As on GPUs, by planes of eight units: lines of four elements, of which a unit's last may be
    cut off or missing. Each length and each function by planes and by pairs of them."""
    across = 16 if (n in (1, 37, 64, 128)) == is_turned else 8
    rng = np.random.default_rng([n, across])
    x, residual = rng.normal(size=(2, 5, n)).astype("f4")
    weight, bias = rng.normal(size=(2, n)).astype("f4")
    out, total = (Guarded((5, n), np.float32) for _ in range(2))
    held = -(-n // (4 * across))
    tiling = RowTiling(4, 16, 16 // across, 1, held, n % (4 * across) == 0, across)
    is_soft = name.endswith("softmax")
    added = () if is_soft else (residual, total.array)
    given = ((), ()) if is_soft else ((weight,), (bias,) if name == "layer_norm" else ())
    launcher = normalise_rows.configure(plane_dim=8)[-(-5 // tiling.band), 16]
    op = Normalisation(name, f32)
    launcher(x, added, *given, out.array, (), 1e-5, None, Places(), op, tiling)
    wide = (x if is_soft else x + residual).astype("f8")
    if is_soft:
        expected = soft(wide, 1) if name == "softmax" else np.log(soft(wide, 1))
    elif name == "layer_norm":
        expected = norm_of_rows(wide, weight, bias, 1e-5)
    else:
        expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(out.array, expected, 1e-5, 1e-5)
    out.check(out.array)
    if not is_soft:
        np.testing.assert_array_equal(total.array, x + residual)
        total.check(total.array)


ROW_PLACES = Places((((0, 1),), ((1, 1),)))
"""The index of a result of two axes is that of the view."""


@pytest.mark.parametrize(
    "name, dtype, has_epilogue",  # all pairs
    [
        ("softmax", "f4", False),
        ("softmax", "bf16", True),
        ("softmax", "f8", False),
        ("log_softmax", "f4", True),
        ("log_softmax", "bf16", False),
        ("log_softmax", "f8", True),
        ("layer_norm", "f4", False),
        ("layer_norm", "bf16", True),
        ("layer_norm", "f8", True),
    ],
)
def test_results_that_go_past_the_caches(draw, name: str, dtype: str, has_epilogue: bool):
    """By one unit, whose lines lie where they are aligned in the result: the first may begin before
    a row, unless an epilogue asks for its place."""
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else dtype)
    op, line = Normalisation(name, f64 if dtype == "f8" else f32), 8 if dtype == "f8" else 16
    eps = 2e-2 if dtype == "bf16" else 2e-5
    for n in (1, 15, 16, 17, 33, 511, 512, 1000):
        x, by = draw.numbers.standard_normal((2, 3, n)).astype(kind)
        wide = x.astype("f8")
        expected = norm_of_rows(wide, 1, 0, 1e-5) if name == "layer_norm" else soft(wide, 1)
        expected = np.log(expected) if name == "log_softmax" else expected
        expected = expected * 2 + by.astype("f8") if has_epilogue else expected
        weights = (np.ones(n, "f4"),) if name == "layer_norm" else ()
        end = ((by,), 1e-5, moved, ROW_PLACES) if has_epilogue else ((), 1e-5, None, Places())
        for unroll in draw.pick.sample((1, 2, 8), 2):
            out = Guarded((3, n), kind, draw.pick.randrange(line))
            kept = 1024 if name == "softmax" else 0
            is_ahead = draw.pick.random() < 0.5
            tiling = RowTiling(line, 1, 2, unroll, stream=True, kept=kept, is_ahead=is_ahead)
            normalise_rows[2, 1](x, (), weights, (), out.array, *end, op, tiling)
            np.testing.assert_allclose(out.array.astype("f8"), expected, eps, eps)
            assert out.is_fenced


def test_large_results_go_past_the_caches_of_a_cpu():
    for shape, stream, kept, held, is_ahead in (
        ((4096, 4096), True, 8192, 0, True),
        ((512, 50_000), True, 65536, 0, True),
        ((400, 100_000), False, 0, 0, False),  # exponentials are kept in the result
        ((400_000, 60), False, 0, 4, False),
        ((64, 4096), False, 8192, 0, False),
    ):
        x = spec(f"f32[{shape[0]},{shape[1]}]")
        (launch,) = record(kernels.softmax, {"x": x}, {}, parse_target("cpu:sapphirerapids"))
        tiling = launch.arguments["tiling"]
        assert (tiling.stream, tiling.kept, tiling.held) == (stream, kept, held)
        assert tiling.is_ahead == is_ahead


def test_only_the_last_line_of_a_unit_is_asked_where_it_ends():
    (launch,) = record(kernels.softmax, {"x": spec("f32[4096,32000]")}, {}, cuda_target("sm_90a"))
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="source")
    assert launch.arguments["tiling"].held == 8
    calls = text[text.index("normalise_rows(") :]
    assert calls.count("load_masked_f32x4(") == calls.count("store_masked_f32x4(") == 1


@pytest.mark.parametrize(
    ("x", "line", "units"),
    [
        ("f32[4096,1024]", 4, 64),
        ("bf16[4096,1024]", 8, 128),
        ("f32[4096,1003]", 1, 64),
        ("bf16[4096,1003]", 1, 64),
        ("bf16[4096,77]", 1, 128),
        ("bf16[4096,4097]", 1, 256),
        ("f32[4096,131071]", 1, 1024),
    ],
)
def test_rows_that_begin_anywhere_are_read_by_element(x: str, line: int, units: int):
    """Lines of several elements would be moved one by one there, none beside its neighbour's."""
    require_package("cuda.bindings")
    n = int(x[:-1].split(",")[1])
    for function, given, more in (
        (kernels.softmax, {}, {}),
        (kernels.layer_norm, {"weight": spec(f"{x.split('[')[0]}[{n}]")}, {"normalized_shape": n}),
    ):
        launch = record(function, {"x": spec(x), **given}, more, cuda_target("sm_90a"))[-1]
        tiling = launch.arguments["tiling"]
        assert (tiling.line, tiling.units) == (line, units)
        text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
        assert bool(re.search(r"global\S*\.v4", text)) == (line > 1)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize("n", [1, 37, 1000, 70_001])
def test_rows_of_one_number_are_near_zero(draw, dtype, n):
    """The mean is off by a rounding of it, and by what sums of its own error round."""
    rows = (draw.numbers.standard_normal((3, 1)) * 10).astype(dtype)
    found = kernels.layer_norm(np.repeat(rows, n, 1), n)
    roundings = 2 + min(n, SHORT) / 8 + n / 1000  # of eight lanes at least
    off = np.abs(rows) * roundings * EPS["f8" if dtype == "f8" else "f4"] / np.sqrt(1e-5)
    assert np.all(np.abs(found) <= off + EPS[dtype])


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_number_unlike_the_rest_leaves_the_rest_right(draw, place):
    x = draw.numbers.standard_normal((2, 1 << 18)).astype("f4")
    x[:, place] = 1e6
    wide = x.astype("f8")
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    error = np.abs(kernels.layer_norm(x, 1 << 18) - expected)
    assert np.delete(error, place, 1).max() < 1e-6


def test_a_row_whose_distances_reach_beyond_all_numbers_has_a_mean():
    x = np.array([[2e38, -2e38, 0, 0]], "f4")
    np.testing.assert_array_equal(kernels.layer_norm(x, 4), np.zeros((1, 4)))  # the variance: inf


def test_numbers_far_from_zero_lose_nothing(draw):
    x = (draw.numbers.standard_normal((2, 1 << 18)) + 1e4).astype("f4")
    wide = x.astype("f8")
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    # A mean between two numbers of f32 near 1e4, which lie 2**-10 apart; then sums of 1024 parts.
    assert np.abs(kernels.layer_norm(x, 1 << 18) - expected).max() < 2.0**-10
