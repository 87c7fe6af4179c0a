"""Convolutions by the copy engine and tensor cores of Hopper, against f64."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.convolution import entry, waves
from cubepy.kernels.convolution.problem import Problem
from cubepy.targets import Target
from tests.kernels import test_phases
from tests.optional import require_package

RNG = np.random.default_rng(12)
DTYPES = {"bf16": (ml_dtypes.bfloat16, 2.0**-8), "f16": (np.float16, 2.0**-10)}
CONVOLUTIONS = {1: cp.kernels.conv1d, 2: cp.kernels.conv2d, 3: cp.kernels.conv3d}
LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def convolved(x: Any, w: Any, stride: int, padding: int, dilation: int) -> Any:
    """[n, channel, ...] by [filter, channel, ...] in f64."""
    axes = x.ndim - 2
    wide = np.pad(x, ((0, 0), (0, 0), *[(padding, padding)] * axes))
    reach = [(k - 1) * dilation for k in w.shape[2:]]
    results = [(n - r - 1) // stride + 1 for n, r in zip(wide.shape[2:], reach, strict=True)]
    found = np.zeros((x.shape[0], w.shape[0], *results))
    for tap in itertools.product(*map(range, w.shape[2:])):
        place = [
            slice(k * dilation, k * dilation + (n - 1) * stride + 1, stride)
            for k, n in zip(tap, results, strict=True)
        ]
        part = wide[(slice(None), slice(None), *place)]
        found += np.einsum("nc...,fc->nf...", part, w[(slice(None), slice(None), *tap)])
    return found


def relu_by_place(v: Any, index: Any, scale: Any) -> Any:
    return max(v, 0.0) * scale[index[1]] + index[-1]


def relu_by_place_last(v: Any, index: Any, scale: Any) -> Any:
    return max(v, 0.0) * scale[index[-1]] + index[-2]


def check(
    device: str,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    *,
    dtype: str = "bf16",
    is_last: bool = True,
    bias: bool = False,
    epilogue: bool = False,
) -> None:
    """`x_shape`: [n, channel, ...]; `is_last`: whether arrays have the channels last."""
    axes, (kind, rounding) = len(x_shape) - 2, DTYPES[dtype]
    x = RNG.standard_normal(x_shape).astype(kind)
    w = RNG.standard_normal(w_shape).astype(kind)
    b, scale = (RNG.standard_normal(w_shape[0]).astype(kind) for _ in range(2))
    x64, w64, b64, scale64 = (v.astype(np.float64) for v in (x, w, b, scale))
    expected = convolved(x64, w64, stride, padding, dilation)
    bound = convolved(abs(x64), abs(w64), stride, padding, dilation)
    wide = (1, -1, *[1] * axes)
    if bias:
        expected = expected + b64.reshape(wide)
    if epilogue:
        columns = np.arange(expected.shape[-1])
        expected = np.maximum(expected, 0) * scale64.reshape(wide) + columns
    order = (0, *range(2, axes + 2), 1) if is_last else tuple(range(axes + 2))
    options: dict[str, Any] = {"layout": LAYOUTS[axes][is_last]}
    if bias:
        options["bias"] = cp.asarray(b, device=device)
    if epilogue:
        finish = relu_by_place_last if is_last else relu_by_place
        options["epilogue"] = (finish, cp.asarray(scale, device=device))
    poison = np.full(expected.transpose(order).shape, np.nan, kind)
    out = cp.asarray(poison, device=device)
    CONVOLUTIONS[axes](
        cp.asarray(np.ascontiguousarray(x.transpose(order)), device=device),
        cp.asarray(w, device=device),
        stride=stride,
        padding=padding,
        dilation=dilation,
        out=out,
        **options,
    )
    found = out.numpy().astype(np.float64)
    largest = max(1.0, float(abs(scale64).max())) if epilogue else 1.0
    error = largest * bound * w[0].size * 2.0**-24 + abs(expected) * rounding
    excess = abs(found - expected.transpose(order)) - error.transpose(order)
    assert not (excess > 0).any()  # NaN is caught below
    assert not np.isnan(found).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((3, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
        ((3, 72, 9, 13), (40, 72, 3, 3), {"padding": 1}),
        ((3, 72, 9, 13), (200, 72, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 136, 17, 12), (200, 136, 3, 3), {"padding": 2, "dilation": 2}),
        ((2, 8, 17, 12), (24, 8, 5, 5), {}),
        ((2, 16, 17, 12), (24, 16, 5, 3), {"padding": 4}),
        ((2, 32, 17, 12), (64, 32, 7, 7), {"padding": 3, "stride": 3}),
        ((1, 64, 20, 20), (64, 64, 1, 1), {"padding": 1, "stride": 3}),
        ((5, 64, 7, 7), (512, 64, 1, 1), {}),
        ((1, 8, 1, 1), (8, 8, 1, 1), {}),
        ((2, 64, 100), (48, 64, 5), {"padding": 2}),
        ((2, 24, 5, 6, 7), (32, 24, 3, 3, 3), {"padding": 1}),
        ((2, 24, 5, 6, 7), (32, 24, 2, 3, 1), {"stride": 2}),
    ],
)
def test_against_f64(hopper: str, dtype: str, x: Any, w: Any, options: Any):
    check(hopper, x, w, dtype=dtype, **options)


NARROW = [
    ((2, 3, 40, 37), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((2, 1, 28, 28), (16, 1, 5, 5), {"padding": 2}),
    ((3, 2, 9, 13), (40, 2, 3, 3), {"padding": 1, "stride": 4}),
    ((1, 4, 33, 21), (24, 4, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 5, 17, 12), (200, 5, 4, 4), {"padding": 2, "stride": 3}),
    ((2, 6, 17, 12), (24, 6, 3, 3), {"padding": 2, "dilation": 2}),
    ((2, 7, 6, 6), (8, 7, 1, 3), {}),
    ((1, 3, 20, 20), (64, 3, 1, 1), {"padding": 1, "stride": 3}),
    ((2, 20, 9, 9), (72, 20, 3, 3), {"padding": 1}),
    ((2, 3, 100), (48, 3, 10), {"padding": 2, "stride": 5}),
    ((2, 3, 5, 6, 7), (32, 3, 3, 3, 3), {"padding": 1}),
]
"""Channels that are filled up."""


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("x", "w", "options"), NARROW)
def test_few_channels(hopper: str, x: Any, w: Any, options: Any, which: int, monkeypatch: Any):
    """Each way to fill channels up, one with channels last and one without."""
    real = waves.fillings_of
    monkeypatch.setattr(waves, "fillings_of", lambda *args: real(*args)[which:] or real(*args))
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    more: dict[str, Any] = {"dtype": tuple(DTYPES)[which], "is_last": bool(which)}
    check(hopper, x, w, bias=True, epilogue=which == 0, **more, **options)


def test_an_infinity_stays_where_it_belongs(hopper: str):
    """What fills a window's row up is not what lies behind it."""
    x = RNG.standard_normal((1, 3, 30, 30)).astype(np.float16)
    x[0, 1, 11, 17], x[0, 2, 20, 3] = np.inf, np.nan
    w = RNG.standard_normal((8, 3, 7, 7)).astype(np.float16)
    found = cp.kernels.conv2d(
        *(cp.asarray(v, device=hopper) for v in (x, w)), stride=2, padding=3
    ).numpy()
    wide = [v.astype(np.float64) for v in (x, w)]
    expected = cp.kernels.conv2d(*wide, stride=2, padding=3)
    assert (np.isfinite(found) == np.isfinite(expected)).all()


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("epilogue", [True, False])
def test_what_is_done_with_sums(hopper: str, is_last: bool, epilogue: bool):
    check(
        *(hopper, (2, 72, 11, 13), (136, 72, 3, 3)),
        **{"padding": 1, "is_last": is_last, "bias": True, "epilogue": epilogue},
    )


@pytest.mark.parametrize("shared", [0, 1, 2])
@pytest.mark.parametrize("stages", [(2, 2), (2, 7), (5, 3)])
def test_all_ways_to_load(hopper: str, shared: int, stages: Any, monkeypatch: Any):
    real = waves.tilings

    def chosen(target: Target, p: Problem, elements: Any) -> Any:
        from dataclasses import replace

        ways = [t for t in real(target, p, elements) if t.shared == shared and t.pixels == 40]
        loads, steps = stages
        return [replace(t, loads=loads, steps=steps, is_resident=False) for t in ways]

    monkeypatch.setattr(waves, "tilings", chosen)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    check(hopper, (3, 136, 9, 13), (136, 136, 3, 3), padding=1)


def test_views(hopper: str):
    """Strides between rows, and an address that no tensor map takes."""
    x = RNG.standard_normal((2, 12, 12, 80)).astype(np.float16)
    w = RNG.standard_normal((16, 64, 3, 3)).astype(np.float16)
    held, weight = cp.asarray(x, device=hopper), cp.asarray(w, device=hopper)
    for begin in (0, 8, 3):
        found = cp.kernels.conv2d(held[:, 1:, :-1, begin : begin + 64], weight, layout="NHWC")
        seen = x[:, 1:, :-1, begin : begin + 64].transpose(0, 3, 1, 2).astype(np.float64)
        expected = convolved(seen, w.astype(np.float64), 1, 0, 1).transpose(0, 2, 3, 1)
        np.testing.assert_allclose(found.numpy().astype(np.float64), expected, atol=0.2, rtol=2e-3)


def test_weights_that_are_packed(hopper: str):
    x, w = (RNG.standard_normal(s).astype(np.float16) for s in ((2, 9, 9, 64), (72, 64, 3, 3)))
    image, weight = cp.asarray(x, device=hopper), cp.asarray(w, device=hopper)
    packed = cp.kernels.prepack(weight)
    assert packed.shape == w.shape
    np.testing.assert_array_equal(packed.numpy(), w)
    assert cp.kernels.prepack(packed) is packed
    found = cp.kernels.conv2d(image, packed, layout="NHWC")
    expected = cp.kernels.conv2d(image, weight, layout="NHWC")
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


GRADIENTS = [
    ((2, 64, 20, 20), (64, 64, 3, 3), {"padding": 1}),
    ((3, 72, 9, 13), (200, 72, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 8, 17, 12), (24, 8, 5, 5), {"padding": 2, "dilation": 2}),
    ((2, 32, 17, 12), (64, 32, 2, 7), {"stride": 3}),
    ((5, 64, 7, 7), (136, 64, 1, 1), {}),
    ((1, 72, 6, 6), (72, 72, 3, 3), {"padding": 1}),  # too few pixels to be divided
    ((2, 64, 100), (48, 64, 5), {"padding": 2}),
    ((2, 24, 5, 6, 7), (32, 24, 3, 3, 3), {"padding": 1}),
    *(case for case in NARROW if min(case[1][2:]) > 1),
]


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(("x_shape", "w_shape", "options"), GRADIENTS)
def test_gradients(hopper: str, x_shape: Any, w_shape: Any, options: Any, is_last: bool):
    """Both against the transposed linear map in f64."""
    axes, kind = len(x_shape) - 2, np.float16
    stride, padding = options.get("stride", 1), options.get("padding", 0)
    dilation = options.get("dilation", 1)
    x, w = (RNG.standard_normal(s).astype(kind) for s in (x_shape, w_shape))
    shape = convolved(np.zeros(x_shape), np.zeros(w_shape), stride, padding, dilation).shape
    grad = RNG.standard_normal(shape).astype(kind)
    by_x, by_w = np.zeros(x_shape), np.zeros(w_shape)
    wide = np.pad(by_x, ((0, 0), (0, 0), *[(padding, padding)] * axes))
    seen = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *[(padding, padding)] * axes))
    g, taps = grad.astype(np.float64), itertools.product(*map(range, w_shape[2:]))
    over = (0, *range(2, axes + 2))
    for tap in taps:
        place = tuple(
            slice(k * dilation, k * dilation + (n - 1) * stride + 1, stride)
            for k, n in zip(tap, shape[2:], strict=True)
        )
        at = (slice(None), slice(None), *place)
        column = w[(slice(None), slice(None), *tap)].astype(np.float64)
        wide[at] += np.einsum("nf...,fc->nc...", g, column)
        by_w[(slice(None), slice(None), *tap)] = np.tensordot(g, seen[at], (over, over))
    inner = tuple(slice(padding, padding + n) for n in x_shape[2:])
    by_x = wide[(slice(None), slice(None), *inner)]

    def on_device(v: Any) -> Any:
        if not is_last:
            return cp.asarray(v, device=hopper)
        last = np.ascontiguousarray(np.moveaxis(v, 1, -1))
        return torch_like(cp.asarray(last, device=hopper))

    def torch_like(v: Any) -> Any:
        """The channels second in shape, and last in memory."""
        return require_package("torch").from_dlpack(v).movedim(-1, 1)

    input_grad, weight_grad = (
        getattr(cp.kernels, f"conv{axes}d_{name}_grad") for name in ("input", "weight")
    )
    ours = input_grad(x_shape, on_device(w), on_device(grad), **options)
    assert_close(ours, by_x, np.prod(shape[1:2]) * np.prod(w_shape[2:]))
    ours = weight_grad(on_device(x), w_shape, on_device(grad), **options)
    assert_close(ours, by_w, shape[0] * np.prod(shape[2:]))


def assert_close(found: Any, expected: Any, length: Any) -> None:
    values = np.asarray(found.numpy() if hasattr(found, "__cubepy_memory__") else found.cpu())
    error = abs(values.astype(np.float64) - expected)
    assert not np.isnan(values).any()
    assert (error <= abs(expected) * 2.0**-10 + 1e-4 * float(length) ** 0.5).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("case", test_phases.CASES, ids=str)
def test_transposed(hopper: str, case: Any, dtype: Any):
    """Phase by phase, of which some see nothing."""
    test_phases.check(case, dtype, False, hopper)
