"""Max pooling against windows that NumPy cuts out one tap at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.ir.types import DType, f32, u8
from cubepy.kernels import avg_pool2d, max_pool1d, max_pool2d
from cubepy.kernels.calls.libraries import Shape, contiguous
from cubepy.kernels.calls.plans import Plans
from cubepy.kernels.pooling import entry, strategies
from cubepy.kernels.pooling.problem import make_window, maximum
from cubepy.kernels.pooling.rows import RowTiling
from cubepy.targets import cpu_target
from tests.guarded import Guarded

FLOATS = (np.float16, np.float32, np.float64)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64)
SIZES = (1, 2, 3, 7, 13, 16, 17, 31, 33, 64, 67, 130)


def pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def extent(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """torch's rule: count the windows by trying them."""
    count = 0
    while True:
        start, end = count * s - p, count * s - p + d * (k - 1)
        fits = end < n + p or (ceil_mode and end - s + 1 <= n + p - 1 and start < n)
        if not fits:
            return count
        count += 1


def reference(
    x: np.ndarray,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Maxima and their indices, window row by window row; the first of equal ones, the last NaN."""
    kernel, padding, dilation = pair(kernel), pair(padding), pair(dilation)
    stride = kernel if stride is None else pair(stride)
    height, width = x.shape[2:]
    sizes = [
        extent(*v, ceil_mode)
        for v in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    tops = np.arange(sizes[0]) * stride[0] - padding[0]
    lefts = np.arange(sizes[1]) * stride[1] - padding[1]
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    best = np.full((*x.shape[:2], *sizes), low, x.dtype)
    first = [np.where(a < 0, a % d, a) for a, d in zip((tops, lefts), dilation, strict=True)]
    index = np.broadcast_to(first[0][:, None] * width + first[1], best.shape).copy()
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            rows, columns = tops + ky * dilation[0], lefts + kx * dilation[1]
            there = ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))
            v = x[:, :, rows.clip(0, height - 1)][:, :, :, columns.clip(0, width - 1)]
            better = there & ((v > best) | (v != v))
            best = np.where(better, v, best)
            index = np.where(better, rows[:, None] * width + columns, index)
    return best, index


def random_window(pick: Any) -> dict[str, Any]:
    kernel = (pick.choice((1, 2, 3, 3, 5, 7)), pick.choice((1, 2, 3, 3, 4, 5, 7)))
    return {
        "kernel_size": kernel,
        "stride": (pick.choice((1, 1, 2, 3, 5)), pick.choice((1, 1, 2, 2, 3, 4, 5))),
        "padding": tuple(pick.randint(0, k // 2) for k in kernel),
        "dilation": (pick.choice((1, 1, 2, 3)), pick.choice((1, 1, 2, 3))),
        "ceil_mode": pick.random() < 0.4,
    }


def fits(shape: tuple[int, ...], window: dict[str, Any]) -> bool:
    *parameters, ceil_mode = window.values()
    sizes: Any = list(zip(shape[2:], *parameters, strict=True))
    return all(extent(n, k, s, p, d, ceil_mode) > 0 for n, k, s, p, d in sizes)


@pytest.mark.parametrize("round_", range(2))
def test_all_parameters(draw, round_):
    for _ in range(10):
        window = random_window(draw.pick)
        shape = (
            draw.pick.choice((1, 2)),
            draw.pick.choice((1, 2, 3, 17)),
            draw.pick.choice(SIZES),
            draw.pick.choice(SIZES),
        )
        if not fits(shape, window):
            with pytest.raises(LaunchError, match="no window"):
                max_pool2d(np.zeros(shape, np.float32), **window)
            continue
        dtype = draw.pick.choice((np.float32, *FLOATS, *INTEGERS))
        x = draw.layout(draw.array(shape, dtype, draw.pick.random() < 0.5))
        values, indices = reference(x, *window.values())
        found = max_pool2d(x, **window)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, values, err_msg=str((shape, dtype, window)))
        found, where = max_pool2d(x, **window, return_indices=True)
        np.testing.assert_array_equal(found, values, err_msg=str((shape, dtype, window)))
        assert where.dtype == np.int64
        np.testing.assert_array_equal(where, indices, err_msg=str((shape, dtype, window)))


@pytest.mark.parametrize("width", (1, 5, 16, 63, 509, 511, 512, 513))
@pytest.mark.parametrize("window", ((3, 1, 1), (3, 2, 1), (2, 2, 0)))
def test_widths_and_starts(draw, width, window):
    kernel, stride, padding = window
    height = draw.pick.choice((3, 4, 37))
    if width + 2 * padding < kernel:
        width += 1
    x = Guarded((2, 3, height, width), offset=draw.pick.randrange(20)).array
    x[...] = draw.array(x.shape, np.float32, specials=True)
    values, _ = reference(x, kernel, stride, padding)
    out = Guarded(values.shape, offset=draw.pick.randrange(20))
    assert max_pool2d(x, kernel, stride, padding, out=out.array) is out.array
    out.check(out.array)
    np.testing.assert_array_equal(out.array, values)


@pytest.mark.parametrize("width", (160, 157))
def test_streamed_results_are_the_same(draw, monkeypatch, width):
    monkeypatch.setattr(strategies, "divisions", lambda target: (strategies.Division(streamed=0),))
    monkeypatch.setattr(entry, "_PLANS", Plans())
    x = draw.array((2, 32, 130, width), np.float32)
    window = draw.pick.choice(((3, 1, 1), (3, 2, 1), (2, 2, 0)))
    for y in (x, x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)):
        values, _ = reference(x, *window)
        out = Guarded(values.shape, offset=draw.pick.randrange(20))
        max_pool2d(y, *window, out=out.array)
        out.check(out.array)
        np.testing.assert_array_equal(out.array, values)
        np.testing.assert_array_equal(max_pool2d(y, *window), values)


@pytest.mark.parametrize("dtype", (np.uint8, np.float32))
def test_every_division_gives_the_same(draw, monkeypatch, dtype):
    """Those that the autotuner chooses among, with lines that are shorter or longer."""
    for kernel, stride, padding, dilation in ((3, 3, 1, 1), (3, 2, 1, 1), (3, 1, 1, 4)):
        x = Guarded((2, 3, 14, 71), dtype, offset=draw.pick.randrange(20)).array
        x[...] = draw.array(x.shape, dtype)
        values, _ = reference(x, kernel, stride, padding, dilation)
        for way in strategies.divisions(cp.device("cpu").target):
            monkeypatch.setattr(strategies, "divisions", lambda target, way=way: (way,))
            monkeypatch.setattr(entry, "_PLANS", Plans())
            out = Guarded(values.shape, dtype, offset=draw.pick.randrange(20))
            max_pool2d(x, kernel, stride, padding, dilation, out=out.array)
            out.check(out.array)
            np.testing.assert_array_equal(out.array, values)
        monkeypatch.undo()


def test_lines_are_short_where_their_ends_and_strides_are_slow():
    def lines(target: str, dtype: DType, stride: int) -> list[int]:
        window = make_window("f", 2, 3, stride, 0, 1)
        x, out = (contiguous(Shape((1, 4, 1, 60, n), dtype)) for n in (600, 600 // stride - 2))
        how = maximum(window, (1, 60, 600))
        found = strategies.tilings(cpu_target(target), how, x, [out])
        return list(dict.fromkeys(t.line for t in found if isinstance(t, RowTiling)))

    assert lines("x86-64-v3", u8, 2) == lines("x86-64-v3", f32, 1) == [8, 4, 16, 2]
    assert lines("x86-64-v3", u8, 3) == [4, 2, 8]
    assert lines("x86-64-v4", u8, 2) == [64, 32, 16]
    assert lines("x86-64-v4", f32, 3) == [16, 8, 32, 4]


def test_channels_last(draw):
    for channels in (2, 16, 33, 128):
        x = draw.array((2, 9, 11, channels), np.float32, specials=True).transpose(0, 3, 1, 2)
        windows: list[dict[str, Any]] = [
            {"kernel_size": 3, "stride": 2, "padding": 1},
            {"kernel_size": 5},
        ]
        for window in windows:
            found = max_pool2d(x, **window)
            np.testing.assert_array_equal(found, reference(x, *list(window.values()))[0])
            assert found.transpose(0, 2, 3, 1).flags.c_contiguous
            values, indices = max_pool2d(x, **window, return_indices=True)
            np.testing.assert_array_equal(values, found)
            np.testing.assert_array_equal(indices, reference(x, *list(window.values()))[1])


@pytest.mark.parametrize("strip_bytes", (1, 1 << 9, 1 << 11))
def test_strips_of_columns(draw, monkeypatch, strip_bytes):
    """Strips of one output and more, some of which are over an edge as a whole."""
    way = strategies.Division(strip_bytes=strip_bytes, streamed=0, band_bytes=1 << 12)
    monkeypatch.setattr(strategies, "divisions", lambda target: (way,))
    monkeypatch.setattr(entry, "_PLANS", Plans())
    for channels, windows, average in (
        (16, ((3, 1, 1), (4, 1, 2), (3, 3, 0), ((2, 3), (3, 2), 1)), (3, 1, 1)),
        (33, ((3, 1, 1), (3, 2, 1), (2, 2, 0), (2, 3, 0)), (3, 2, 1)),
    ):
        shape = (2, draw.pick.choice((5, 13)), draw.pick.choice((4, 9, 30)), channels)
        x = draw.array(shape, np.float32, specials=True).transpose(0, 3, 1, 2)
        for window in windows:
            expected = reference(x, *window)[0]
            out = Guarded(np.moveaxis(expected, 1, -1).shape, offset=draw.pick.randrange(20))
            max_pool2d(x, *window, out=np.moveaxis(out.array, -1, 1))
            out.check(np.moveaxis(expected, 1, -1))
        y = draw.numbers.standard_normal(shape).astype("f4").transpose(0, 3, 1, 2)
        kernel, stride, padding = average
        found = avg_pool2d(y, kernel, stride, padding)
        wide = np.pad(y.astype("f8"), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
        seen = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))
        expected = seen[:, :, ::stride, ::stride].mean((-2, -1))
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def test_one_dimension(draw):
    for shape in ((3, 50), (2, 3, 517)):
        x = draw.array(shape, np.float32, specials=True)
        values, indices = reference(x.reshape(1, -1, 1, shape[-1]), (1, 3), (1, 2), (0, 1), (1, 1))
        found = max_pool1d(x, 3, 2, 1, return_indices=True)
        np.testing.assert_array_equal(found[0], values.reshape(found[0].shape))
        np.testing.assert_array_equal(found[1], indices.reshape(found[1].shape))
        assert found[0].shape == (*shape[:-1], values.shape[-1])


def test_without_a_batch(draw):
    x = draw.array((3, 20, 21), np.float32)
    np.testing.assert_array_equal(max_pool2d(x, 3), reference(x[None], 3)[0][0])


@pytest.mark.parametrize("layout", ("rows", "channels last", "columns"))
def test_large_windows(draw, layout):
    x = draw.array((2, 3, 70, 45), np.float32, specials=True)
    if layout == "channels last":
        x = x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    elif layout == "columns":
        x = x.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)
    for window in ((70, 45), (19, 3), (3, 33), (40, 40)):
        values, indices = reference(x, window, 3, 1)
        found = max_pool2d(x, window, 3, 1, return_indices=True)
        np.testing.assert_array_equal(found[0], values)
        np.testing.assert_array_equal(found[1], indices)
        np.testing.assert_array_equal(max_pool2d(x, window, 3, 1), values)


def test_bf16(draw):
    import ml_dtypes

    x = draw.array((1, 2, 9, 40), np.float32).astype(ml_dtypes.bfloat16)
    found = max_pool2d(x, 3, 1, 1)
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(
        found.astype(np.float32), reference(x.astype(np.float32), 3, 1, 1)[0]
    )


def test_an_empty_batch():
    assert max_pool2d(np.zeros((0, 3, 8, 8), np.float32), 2).shape == (0, 3, 4, 4)


def test_a_given_pair(draw):
    x = draw.array((1, 2, 9, 9), np.float32)
    out = np.empty((1, 2, 9, 9), np.float32), np.empty((1, 2, 9, 9), np.int64)
    found = max_pool2d(x, 3, 1, 1, return_indices=True, out=out)
    assert found[0] is out[0] and found[1] is out[1]
    np.testing.assert_array_equal(out[1], reference(x, 3, 1, 1)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "kernel_size"),
        ((2, 0), "stride"),
        ((3, 1, 3), "padding 3 is not less"),
        ((3, 1, ((0, 1), (2, 3))), "padding 3 is not less"),
        ((3, 1, ((0, 1), (2,))), "pairs"),
        ((3, 1, -1), "padding"),
        (((2, 2, 2),), "kernel_size"),
        ((2.5,), "kernel_size"),
        ((9,), "no window"),
    ],
)
def test_refused_parameters(arguments, message):
    with pytest.raises(LaunchError, match=message):
        max_pool2d(np.zeros((1, 1, 8, 8), np.float32), *arguments)


def test_refused_arrays():
    x = np.zeros((1, 1, 8, 8), np.float32)
    for bad, kind in (
        ([[1.0]], LaunchTypeError),
        (x[0, 0], LaunchError),
        (x > 0, LaunchTypeError),
        (x.astype(">f4"), LaunchTypeError),
        (x.astype(complex), LaunchTypeError),
        (np.zeros((1, 1, 0, 8), np.float32), LaunchError),
    ):
        with pytest.raises(kind):
            max_pool2d(bad, 2)


def test_refused_results():
    x = np.zeros((1, 1, 8, 8), np.float32)
    good = np.zeros((1, 1, 4, 4), np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    for bad in (
        good[0],
        good.astype(np.float64),
        frozen,
        x[:, :, ::2, ::2],
        x[:, :, :4, :4],
        np.broadcast_to(good[..., :1], good.shape),
        3,
    ):
        with pytest.raises(LaunchError):
            max_pool2d(x, 2, out=bad)
    with pytest.raises(LaunchTypeError, match="tuple of 2"):
        max_pool2d(x, 2, return_indices=True, out=good)
    max_pool2d(x, 2, out=good)


def test_is_found_from_the_package():
    assert cp.kernels.max_pool2d is max_pool2d


@pytest.mark.optional("torch")
def test_torch(draw, require_package):
    torch = require_package("torch")
    functions = torch.nn.functional
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64):
        window = random_window(draw.pick)
        shape = (2, 3, draw.pick.choice((19, 33)), draw.pick.choice((23, 64)))
        x = torch.from_numpy(draw.array(shape, np.float32)).to(dtype)
        expected = functions.max_pool2d(x, **window, return_indices=True)
        for y in (x, x.contiguous(memory_format=torch.channels_last)):
            found = max_pool2d(y, **window, return_indices=True)
            for a, b in zip(found, expected, strict=True):
                assert isinstance(a, torch.Tensor) and torch.equal(a, b)
            assert found[0].is_contiguous(memory_format=torch.channels_last) == (y is not x)
    x = torch.randn(1, 2, 8, 8)
    out = torch.empty(1, 2, 4, 4)
    assert max_pool2d(x, 2, out=out) is out and torch.equal(out, functions.max_pool2d(x, 2))
    y = torch.randn(3, 40)
    assert torch.equal(max_pool1d(y, 4, 2), functions.max_pool1d(y, 4, 2))


@pytest.mark.optional("torch")
def test_torch_tensors_without_plain_memory_are_refused(require_package):
    torch = require_package("torch")
    x = torch.ones(1, 1, 4, 4)
    max_pool2d(x, 2)
    negated = torch.conj(torch.ones(1, 1, 4, 4, dtype=torch.complex64)).imag
    for bad in (x.to("meta"), x.to_sparse(), negated):
        with pytest.raises(LaunchTypeError):
            max_pool2d(bad, 2)


def test_arrays_off_their_alignment_are_refused():
    memory = np.zeros(65, np.uint8)
    good, bad = (memory[k : k + 64].view(np.float32).reshape(1, 1, 4, 4) for k in (0, 1))
    max_pool2d(good, 2)
    with pytest.raises(LaunchTypeError, match="aligned"):
        max_pool2d(bad, 2)


@pytest.mark.optional("torch")
def test_torch_gradients_are_refused(require_package):
    torch = require_package("torch")
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    with torch.no_grad():
        max_pool2d(x, 2)
    with pytest.raises(LaunchError, match="grad"):
        max_pool2d(x, 2)
    max_pool2d(x.detach(), 2)
