"""Running sums and products against NumPy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels import cumprod, cumsum
from cubepy.kernels.calls.plans import Plans
from cubepy.kernels.scan import entry, strategies
from tests.guarded import Guarded


def exact(name: str, x: np.ndarray, axis: Any) -> np.ndarray:
    return getattr(np, name)(x.astype("f8") if x.dtype.kind == "f" else x, axis)


def compare(found: np.ndarray, name: str, x: np.ndarray, axis: Any) -> None:
    expected = exact(name, x, axis)
    assert found.shape == expected.shape
    if x.dtype.kind != "f":
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        return
    assert found.dtype == x.dtype
    half = np.finfo(x.dtype).eps * 0.5001
    total = getattr(np, name)(np.abs(x.astype("f8")), axis)
    bound = half * np.abs(expected) + 2**-52 * x.size * total + np.finfo(x.dtype).tiny
    with np.errstate(invalid="ignore"):
        assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u2", "i8", "?"])
def test_any_axis_and_strides(draw: Any, dtype: str):
    shape = draw.pick.choice(((3, 4, 37), (2, 65, 9), (70, 1, 8)))
    x = draw.array(shape, dtype)
    for y in (x, draw.layout(x), x.transpose(2, 0, 1)):
        for axis in draw.pick.sample((None, 0, 1, -1), 2):
            compare(cumsum(y, axis), "cumsum", y, axis)
            signs = np.sign(y.astype("i1")).astype(dtype) if dtype != "?" else y
            compare(cumprod(signs, axis), "cumprod", signs, axis)


def test_long_rows_are_cut(draw: Any, monkeypatch: Any):
    ways = (strategies.Division(chunk=1 << 12),)
    monkeypatch.setattr(strategies, "divisions", lambda target: ways)
    monkeypatch.setattr(entry, "_PLANS", Plans())
    for dtype in ("f4", "i4", "f8"):
        x = draw.array((3, 40_003), dtype)
        compare(cumsum(x, 1), "cumsum", x, 1)
        compare(cumsum(x), "cumsum", x, None)


def test_columns_in_bands(draw: Any):
    x = draw.numbers.standard_normal((9, 5003)).astype(np.float32)
    out = Guarded(x.shape)
    cumsum(x, 0, out=out.array)
    assert out.is_fenced
    compare(out.array, "cumsum", x, 0)
    compare(cumprod(x, 0), "cumprod", x, 0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u4", "i8", "?"])
def test_lines_of_several_rows(draw: Any, monkeypatch: Any, dtype: str):
    """Few columns whose rows follow each other, whole and in chunks."""
    ways = (strategies.Division(chunk=1 << 9),)
    monkeypatch.setattr(strategies, "divisions", lambda target: ways)
    monkeypatch.setattr(entry, "_PLANS", Plans())
    for columns in draw.pick.sample((2, 3, 5, 8, 10, 15, 16, 17), 2):
        rows = draw.pick.choice((2, 3, 7, 67, 1001))
        x = draw.array((rows, columns), dtype)
        compare(cumsum(x, 0), "cumsum", x, 0)
        signs = np.sign(x.astype("i1")).astype(dtype) if dtype != "?" else x
        compare(cumprod(signs, 0), "cumprod", signs, 0)
        several = draw.array((3, rows, columns), dtype)
        for y in (several, several[::-1, 1:], several[..., 1:], several[:, ::-1]):
            compare(cumsum(y, 1), "cumsum", y, 1)


def test_few_columns_in_place_and_fenced(draw: Any, monkeypatch: Any):
    ways = (strategies.Division(chunk=1 << 9),)
    monkeypatch.setattr(strategies, "divisions", lambda target: ways)
    monkeypatch.setattr(entry, "_PLANS", Plans())
    for shape in ((2, 3), (401, 3), (901, 10), (5, 16)):
        x = draw.numbers.standard_normal(shape).astype("f4")
        out = Guarded(shape, offset=draw.pick.randrange(16))
        cumsum(x, 0, out=out.array)
        assert out.is_fenced
        compare(out.array, "cumsum", x, 0)
        before = x.copy()
        assert cumsum(x, 0, out=x) is x
        compare(x, "cumsum", before, 0)


def test_few_columns_keep_apart(draw: Any):
    """NaN and infinities stay in their columns, and f64 is added row by row."""
    for dtype in ("f4", "f8"):
        x = draw.array((101, 5), dtype)
        x[7, 0], x[9, 1], x[3, 2], x[30, 2], x[:, 3] = np.nan, np.inf, -np.inf, np.inf, -0.0
        with np.errstate(invalid="ignore"):
            expected = np.cumsum(x.astype("f8"), 0).astype(dtype)
        np.testing.assert_array_equal(cumsum(x, 0), expected)
    for columns in (2, 3, 7, 10, 16):
        wide = np.array([-3e38, 1, 3e38, 3e38, -3e38, 0, 0, 0, 1e38]) * 5e269
        wide = np.repeat(wide[:, None], columns, 1)
        np.testing.assert_array_equal(cumsum(wide, 0), np.cumsum(wide, 0))
        uneven = draw.numbers.standard_normal((1003, columns))
        np.testing.assert_array_equal(cumsum(uneven, 0), np.cumsum(uneven, 0))


def test_results_that_go_past_the_caches(draw: Any, monkeypatch: Any):
    """Rows and chunks of them begin anywhere in the lines that are stored."""
    ways = (strategies.Division(chunk=1 << 12, streamed=0, lines=1),)
    monkeypatch.setattr(strategies, "divisions", lambda target: ways)
    monkeypatch.setattr(entry, "_PLANS", Plans())
    for shape in ((5, 8), (5, 9), (3, 1003), (1, 40_003)):
        x = draw.numbers.standard_normal(shape).astype("f4")
        out = Guarded(shape, offset=draw.pick.randrange(16))
        cumsum(x, 1, out=out.array)
        assert out.is_fenced
        compare(out.array, "cumsum", x, 1)
        whole = (x * 100).astype("i4")
        compare(cumsum(whole, 1), "cumsum", whole, 1)
        compare(cumsum(x[:, 1:], 1), "cumsum", x[:, 1:], 1)


def test_sums_do_not_overflow_by_the_way():
    x = np.array([-3e38, 1, 3e38, 3e38, -3e38, 0, 0, 0, 1e38], np.float32)
    np.testing.assert_array_equal(cumsum(x), np.cumsum(x.astype("f8")).astype("f4"))
    wide = x.astype("f8") * 5e269
    np.testing.assert_array_equal(cumsum(wide), np.cumsum(wide))
    tiny = np.array([1e-30, 1e-30, 1e30, 1e30, 1e30, 1e-30, 2, 2, 1e-9], np.float32)
    np.testing.assert_array_equal(cumprod(tiny), np.cumprod(tiny.astype("f8")).astype("f4"))


def test_special_numbers(draw: Any):
    x = draw.array((4, 50), np.float32)
    x[0, 7], x[1, 9], x[2, 3], x[2, 30] = np.nan, np.inf, -np.inf, np.inf
    for axis in (0, 1):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(cumsum(x, axis), np.cumsum(x, axis))
    zeros = np.array([-0.0, -0.0, 0.0, -0.0] * 9, np.float32)
    assert not np.signbit(cumsum(zeros)[2:]).any()


def test_results(draw: Any):
    x = draw.array((6, 70), np.float32)
    expected = np.cumsum(x, 1)
    out = Guarded((6, 70))
    assert cumsum(x, dim=1, out=out.array) is out.array
    out.check(expected)
    assert cumsum(x, 1, out=x) is x
    np.testing.assert_array_equal(x, expected)
    turned = np.asfortranarray(x)
    assert cumsum(turned, 0).flags.f_contiguous
    assert cumsum(x[:0]).shape == (0,) and cumsum(x[:, :0], 1).shape == (6, 0)
    assert cumsum(np.array(3, np.int8)).tolist() == [3]


def test_refusals():
    x = np.zeros((4, 6), np.float32)
    odd: tuple[Any, Any] = (1.5, [0])
    for call, kind, message in (
        (lambda: cumsum(x, 2), LaunchError, "axis 2"),
        (lambda: cumsum(x, odd[0]), LaunchTypeError, "`axis` is 1.5"),
        (lambda: cumsum(x, odd[1]), LaunchTypeError, "`axis`"),
        (lambda: cumprod(x, 0, dim=1), LaunchError, "both `axis` and `dim`"),
        (lambda: cumsum(x, 0, out=np.zeros((4, 6))), LaunchError, "`out`"),
        (lambda: cumsum([1.0]), LaunchTypeError, "`x`"),
    ):
        with pytest.raises(kind, match=message):
            call()


@pytest.mark.optional("torch")
def test_torch(require_package: Any):
    torch = require_package("torch")
    for dtype in (torch.bfloat16, torch.float32, torch.int16):
        x = (torch.randn(5, 70) * 4).to(dtype)
        for axis in (0, 1):
            found, expected = cumsum(x, axis), torch.cumsum(x.double(), axis)
            assert found.dtype == torch.cumsum(x, axis).dtype
            torch.testing.assert_close(found, expected.to(found.dtype))
