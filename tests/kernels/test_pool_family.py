"""Average, adaptive and three-dimensional pooling, against torch in f64 and against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from tests.guarded import Guarded

SIZES = (1, 2, 5, 7, 16, 33, 67)
LAYOUTS = {1: "NLC", 2: "NHWC", 3: "NDHWC"}


def windows_of(x: np.ndarray, starts: Any, ends: Any) -> Any:
    """Each place of the result, and its part of the array."""
    for place in np.ndindex(*(len(s) for s in starts)):
        parts = (slice(s[k], e[k]) for s, e, k in zip(starts, ends, place, strict=True))
        yield place, x[(..., *parts)].reshape(*x.shape[:2], -1)


def adaptive(x: np.ndarray, size: tuple[int, ...], kind: str) -> np.ndarray:
    """The definition, window by window, in f64."""
    starts = [[i * n // m for i in range(m)] for n, m in zip(x.shape[2:], size, strict=True)]
    ends = [
        [-(-(i + 1) * n // m) for i in range(m)] for n, m in zip(x.shape[2:], size, strict=True)
    ]
    found = np.empty((*x.shape[:2], *size))
    for place, part in windows_of(x.astype("f8"), starts, ends):
        found[(..., *place)] = part.max(-1) if kind == "max" else part.mean(-1)
    return found


def averages(x: np.ndarray, k: int, s: int, p: int, inside_only: bool) -> np.ndarray:
    """Means of square windows that fit into the padded array, in f64."""
    sizes = [(n + 2 * p - k) // s + 1 for n in x.shape[2:]]
    starts = [[max(0, i * s - p) for i in range(m)] for m in sizes]
    ends = [[i * s - p + k for i in range(m)] for m in sizes]
    found = np.empty((*x.shape[:2], *sizes))
    for place, part in windows_of(x.astype("f8"), starts, ends):
        found[(..., *place)] = part.mean(-1) if inside_only else part.sum(-1) / k ** len(sizes)
    return found


@pytest.mark.parametrize("dtype", ("f4", "f8", "f2"))
def test_averages_without_torch(draw: Any, dtype: str):
    shape = (2, draw.pick.choice((1, 3, 17)), draw.pick.choice((9, 20)), draw.pick.choice((12, 70)))
    x = draw.numbers.standard_normal(shape).astype(dtype)
    rtol = {"f4": 1e-5, "f8": 1e-13, "f2": 2e-3}[dtype]
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for k, s, p in draw.pick.sample(((3, 1, 1), (3, 2, 1), (2, 2, 0), (5, 3, 2)), 2):
        for inside_only in draw.pick.sample((False, True), 1 if p == 0 else 2):
            expected = averages(x, k, s, p, inside_only)
            for y in (x, turned, draw.layout(x))[: 3 if dtype == "f4" else 2]:
                out = Guarded(expected.shape, np.dtype(dtype), draw.pick.randrange(9))
                options = {"count_include_pad": not inside_only, "out": out.array}
                kernels.avg_pool2d(y, k, s, p, **options)
                out.check(expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kind", ("max", "avg"))
def test_adaptive_without_torch(draw: Any, kind: str):
    function = getattr(kernels, f"adaptive_{kind}_pool2d")
    for channels in (1, 20):
        x = draw.numbers.standard_normal((2, channels, 11, 14)).astype(np.float32)
        turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        for size in ((1, 1), (3, 5), (13, 14)):
            expected = adaptive(x, size, kind)
            for y in (x, turned):
                np.testing.assert_allclose(function(y, size), expected, 1e-5, 1e-5)
        kept = function(x, (None, 2))
        np.testing.assert_allclose(kept, adaptive(x, (11, 2), kind), 1e-5, 1e-5)
        last = function(turned.transpose(0, 2, 3, 1), 3, layout="NHWC")
        np.testing.assert_allclose(
            last.transpose(0, 3, 1, 2), adaptive(x, (3, 3), kind), 1e-5, 1e-5
        )


def test_average_takes_special_numbers(draw: Any):
    x = np.zeros((1, 1, 6, 40), np.float32)
    x[0, 0, 0, 0], x[0, 0, 5, 39], x[0, 0, 2, 20] = np.nan, np.inf, -np.inf
    for turned in (False, True):
        y = np.repeat(x, 16, 1)
        y = np.ascontiguousarray(y.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if turned else y
        found = kernels.avg_pool2d(y, 3, 1, 1)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(averages(y, 3, 1, 1, False)))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(averages(y, 3, 1, 1, False)))


def double(v: Any) -> Any:
    return v * -2.0


def shifted(v: Any, index: Any, factor: Any) -> Any:
    return v + factor[0] * v.dtype(index[0] + 1)


@pytest.mark.parametrize("last", (False, True))
def test_prologue_and_epilogue(draw: Any, last: bool):
    x = draw.numbers.standard_normal((2, 19, 9, 35)).astype(np.float32)
    seen = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if last else x
    factor = np.array([3.0], np.float32)
    by_batch = 3.0 * np.arange(1, 3)[:, None, None, None]
    functions = {"prologue": double, "epilogue": (shifted, factor)}
    found = kernels.avg_pool2d(seen, 3, 2, 1, **functions)
    np.testing.assert_allclose(found, averages(x * -2.0, 3, 2, 1, False) + by_batch, 1e-5, 1e-5)
    expected = kernels.max_pool2d(x * -2, 3, 2, 1) + by_batch
    np.testing.assert_allclose(kernels.max_pool2d(seen, 3, 2, 1, **functions), expected, 1e-5)
    values, where = kernels.max_pool2d(seen, 3, 2, 1, return_indices=True, **functions)
    np.testing.assert_allclose(values, expected, 1e-5)
    np.testing.assert_array_equal(
        where, kernels.max_pool2d(x * -2, 3, 2, 1, return_indices=True)[1]
    )
    found = kernels.adaptive_avg_pool2d(seen, (4, 6), **functions)
    np.testing.assert_allclose(found, adaptive(x * -2.0, (4, 6), "avg") + by_batch, 1e-5, 1e-5)


@pytest.mark.parametrize("step", [3, 5, 6, 7])
def test_prologues_of_lines_of_no_power_of_two(draw: Any, step: int):
    x = draw.numbers.standard_normal((2, 3, 17, 45)).astype(np.float32)
    found = kernels.max_pool2d(x, 3, step, 1, prologue=double)
    np.testing.assert_array_equal(found, kernels.max_pool2d(x * -2, 3, step, 1))
    found = kernels.avg_pool2d(x, 3, step, 1, prologue=double)
    np.testing.assert_allclose(found, averages(x * -2.0, 3, step, 1, False), 1e-5, 1e-5)


def random_options(pick: Any, axes: int) -> dict[str, Any]:
    kernel = tuple(pick.choice((1, 2, 3, 3, 5)) for _ in range(axes))
    return {
        "kernel_size": kernel,
        "stride": tuple(pick.choice((1, 1, 2, 3)) for _ in range(axes)),
        "padding": tuple(pick.randint(0, k // 2) for k in kernel),
        "ceil_mode": pick.random() < 0.5,
    }


@pytest.mark.optional("torch")
@pytest.mark.parametrize("axes", (1, 2, 3))
def test_torch(draw: Any, require_package: Any, axes: int):
    torch = require_package("torch")
    functions = torch.nn.functional
    for _ in range(2 if axes == 2 else 1):
        options = random_options(draw.pick, axes)
        kernel = options["kernel_size"]
        sizes = [max(k, draw.pick.choice(SIZES)) for k in kernel]
        sizes = [min(n, 20) for n in sizes] if axes == 3 else sizes
        shape = (draw.pick.choice((1, 3)), draw.pick.choice((1, 4, 17)), *sizes)
        wide = torch.from_numpy(draw.array(shape, np.float64, specials=draw.pick.random() < 0.3))
        dtype = draw.pick.choice((torch.float32, torch.float64, torch.float16, torch.bfloat16))
        x = wide.to(dtype)
        axes_last = (0, *range(2, axes + 2), 1)
        back = (0, axes + 1, *range(1, axes + 1))
        turned = x.permute(axes_last).contiguous()
        tolerance = {"rtol": max(1e-5, 2 * torch.finfo(dtype).eps), "atol": 1e-6, "equal_nan": True}

        def compare(name: str, *args: Any, **more: Any) -> None:
            expected = getattr(functions, name)(x.double(), *args, **more)
            function = getattr(kernels, name)
            for y in (x, turned.permute(back)):
                close(function(y, *args, **more), expected)
            last = function(turned, *args, **more, layout=LAYOUTS[axes])
            last = last if isinstance(last, tuple) else (last,)
            close(tuple(v.permute(back) for v in last), expected)

        def close(found: Any, expected: Any) -> None:
            found = found if isinstance(found, tuple) else (found,)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for a, b in zip(found, expected, strict=True):
                assert a.dtype is (torch.int64 if b.dtype is torch.int64 else dtype)
                assert a.shape == b.shape
                torch.testing.assert_close(a.double(), b.double(), **tolerance)

        for include in (False, True):
            compare(f"avg_pool{axes}d", **options, count_include_pad=include)
        if axes > 1:
            compare(f"avg_pool{axes}d", **options, divisor_override=-3)
        dilation = draw.pick.choice((1, 1, 2))
        if all(n >= (k - 1) * dilation + 1 for n, k in zip(sizes, kernel, strict=True)):
            more = {"dilation": dilation, "return_indices": draw.pick.random() < 0.5}
            compare(f"max_pool{axes}d", **options, **more)
        size = tuple(draw.pick.choice((1, 2, 3, n, n + 1)) for n in sizes)
        compare(f"adaptive_avg_pool{axes}d", size)
        compare(f"adaptive_max_pool{axes}d", size, return_indices=True)


def test_refusals():
    x = np.zeros((1, 2, 8, 8), np.float32)
    for call, message in (
        (lambda: kernels.avg_pool2d(x, 3, 1, 3), "padding 3 is not less"),
        (lambda: kernels.avg_pool2d(x, 3, layout="NDHWC"), "`layout` is 'NDHWC'"),
        (lambda: kernels.avg_pool2d(x, 3, divisor_override=0), "divisor_override"),
        (lambda: kernels.avg_pool3d(x[0], 3), "`x` has 3 axes, expected 4 or 5"),
        (lambda: kernels.adaptive_avg_pool2d(x, (1, 2, 3)), "output_size"),
        (lambda: kernels.adaptive_max_pool2d(x, 0), "output_size"),
        (lambda: kernels.adaptive_max_pool2d(x[:, :, :0], 1), "no elements"),
    ):
        with pytest.raises(LaunchError, match=message):
            call()
    for dtype in ("i4", "?", "u1"):
        with pytest.raises(LaunchTypeError, match="`x` has dtype"):
            kernels.avg_pool2d(x.astype(dtype), 2)
    with pytest.raises(LaunchTypeError, match="output_size"):
        kernels.adaptive_avg_pool2d(x, 2.5)


def test_empties():
    assert kernels.avg_pool2d(np.zeros((0, 2, 8, 8), np.float32), 2).shape == (0, 2, 4, 4)
    assert kernels.adaptive_avg_pool2d(np.zeros((2, 0, 8, 8), np.float32), 1).shape == (2, 0, 1, 1)
    values, where = kernels.max_pool3d(np.zeros((0, 1, 4, 4, 4), np.int8), 2, return_indices=True)
    assert values.shape == where.shape == (0, 1, 2, 2, 2)
