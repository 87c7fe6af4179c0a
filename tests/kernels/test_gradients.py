"""Transposed convolutions and gradients of convolutions against sums over taps in f64."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution.weight_gradient import sum_each, sum_lines
from cubepy.kernels.convolution.weight_products import multiply_pixels
from cubepy.lang.annotations import spec
from cubepy.targets import parse_target
from tests.guarded import Guarded

EPS = {"f2": 2.0**-10, "f4": 2.0**-23, "f8": 2.0**-52}


@dataclass
class Case:
    """A convolution of `axes` axes; `x` is what it reads, `made` the extents of its result."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    extents: list[int]

    @property
    def made(self) -> list[int]:
        each = zip(self.extents, self.padding, self.dilation, self.kernel, self.stride, strict=True)
        return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in each]

    @property
    def options(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }


def drawn(pick: Any, axes: int) -> Case:
    while True:
        each = [
            [pick.choice(choices) for _ in range(axes)]
            for choices in ((1, 2, 3, 4), (1, 2, 3), (0, 1, 2), (1, 1, 2, 3), (1, 3, 6, 19))
        ]
        kernel, stride, padding, dilation, extents = each
        case = Case(kernel, stride, padding, dilation, pick.choice([1, 1, 2]), extents)
        if min(case.made) > 0:
            return case


def met(case: Case, tap: tuple[int, ...]) -> tuple[slice, ...]:
    """Where the elements that a tap meets lie in the padded array."""
    return tuple(
        slice(t * d, t * d + (n - 1) * s + 1, s)
        for t, d, n, s in zip(tap, case.dilation, case.made, case.stride, strict=True)
    )


def gradients(case: Case, x: np.ndarray, w: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, ...]:
    """The gradients of a convolution by input and weights, in f64: one tap after the other."""
    x, w, g = (v.astype("f8") for v in (x, w, g))
    pads = [(p, p + s) for p, s in zip(case.padding, case.stride, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    by_x, by_w = np.zeros_like(padded), np.zeros_like(w)
    own, each = w.shape[0] // case.groups, w.shape[1]
    for group, tap in product(range(case.groups), product(*map(range, case.kernel))):
        f, c = slice(group * own, group * own + own), slice(group * each, group * each + each)
        place, weights = met(case, tap), (f, slice(None), *tap)
        by_x[(slice(None), c, *place)] += np.einsum("nf...,fc->nc...", g[:, f], w[weights])
        seen = padded[(slice(None), c, *place)]
        flat = [v.reshape(*v.shape[:2], -1) for v in (g[:, f], seen)]
        by_w[weights] = np.einsum("nfi,nci->fc", *flat)
    inner = (slice(p, p + n) for p, n in zip(case.padding, case.extents, strict=True))
    return by_x[(slice(None), slice(None), *inner)], by_w


@pytest.mark.parametrize(
    "axes, dtype, channels",  # all pairs
    [
        (1, "f4", "few"),
        (1, "f2", "many"),
        (1, "f8", "few"),
        (2, "f4", "many"),
        (2, "f2", "few"),
        (2, "f8", "many"),
        (3, "f4", "few"),
        (3, "f2", "many"),
        (3, "f8", "few"),
    ],
)
def test_gradients_of_any_convolution(draw, axes, dtype, channels):
    case = drawn(draw.pick, axes)
    sizes = ([1, 3], [1, 5]) if channels == "few" else ([8, 16, 19, 32], [4, 8, 11, 16])
    each, own, n = (draw.pick.choice(some) for some in (*sizes, [1, 2]))

    def numbers(*shape: int) -> np.ndarray:
        return draw.layout(draw.numbers.standard_normal(shape).astype(dtype))

    x = numbers(n, each * case.groups, *case.extents)
    w = numbers(own * case.groups, each, *case.kernel)
    g = numbers(n, own * case.groups, *case.made)
    expected = gradients(case, x, w, g)
    sizes = gradients(case, *map(np.abs, (x, w, g)))
    kinds = (("input", (x.shape, w, g), x), ("weight", (x, w.shape, g), w))
    for (kind, arguments, like), exact, size in zip(kinds, expected, sizes, strict=True):
        terms = max(w.size, g.size)
        function = getattr(kernels, f"conv{axes}d_{kind}_grad")
        out = np.full(like.shape, np.nan, dtype)
        assert function(*arguments, **case.options, out=out) is out
        bound = terms * EPS["f8" if dtype == "f8" else "f4"] * size + EPS[dtype] * np.abs(exact)
        least = 2.0**-25 if dtype == "f2" else 0  # half of the smallest number
        assert np.all(np.abs(out.astype("f8") - exact) <= bound + least), case


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f2", "i1"])
def test_gradients_by_the_weights_of_points(draw, n, stride, last, dtype):
    """Over all pixels, whether these lie at one distance or are copied."""

    def numbers(*shape: int) -> np.ndarray:
        found = (draw.numbers.standard_normal(shape) * 4).astype(dtype)
        return (
            np.moveaxis(np.ascontiguousarray(np.moveaxis(found, 1, -1)), -1, 1) if last else found
        )

    case = Case([1, 1], [stride] * 2, [0, 0], [1, 1], 1, [9, 7])
    x, g = numbers(n, 21, *case.extents), numbers(n, 34, *case.made)
    arguments = x, (34, 21, 1, 1), g
    found = kernels.conv2d_weight_grad(*arguments, stride)
    exact = gradients(case, x, np.zeros((34, 21, 1, 1)), g)[1]
    if dtype == "i1":
        np.testing.assert_array_equal(found, exact)
    else:
        np.testing.assert_allclose(found, exact, *((1e-5, 1e-3) if dtype == "f4" else (2e-3, 1e-2)))


@pytest.mark.parametrize("target", ["cpu:znver3", "cuda:sm_80", "metal"])
def test_gradients_by_the_weights_of_points_are_products_of_matrices(target):
    specs = {"x": spec("f32[1,64,56,56]"), "grad_output": spec("f32[1,256,56,56]")}
    options = {"weight_size": (256, 64, 1, 1)}
    plan = record(kernels.conv2d_weight_grad, specs, options, parse_target(target))
    kinds = [launch.kernel for launch in plan]
    assert kinds and not {multiply_pixels, sum_each, sum_lines} & set(kinds)


@pytest.mark.parametrize("axes", [1, 2])
def test_transposed_convolution_is_that_gradient_and_more(draw, axes):
    while True:  # until there is a result
        case = drawn(draw.pick, axes)
        spans = zip(case.made, case.stride, case.padding, case.dilation, case.kernel, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in spans]
        more = [s - 1 for s in case.stride]
        case.extents = [n + m for n, m in zip(least, more, strict=True)]
        if min(case.extents) > 0:
            break
    x = draw.numbers.standard_normal((2, 4, *case.made)).astype("f4")
    w = draw.numbers.standard_normal((4, 3, *case.kernel)).astype("f4")
    bias = draw.numbers.standard_normal(3 * case.groups).astype("f4")
    empty = np.zeros((2, 3 * case.groups, *case.extents))
    exact = gradients(case, empty, w, x)[0] + bias.reshape(-1, *[1] * axes)
    options = {**case.options, "output_padding": more}
    transpose = getattr(kernels, f"conv_transpose{axes}d")
    found = transpose(x, w, bias, **options)
    np.testing.assert_allclose(found, exact, 1e-4, 1e-4)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    found = transpose(np.moveaxis(last, -1, 1), w, bias, **options)
    np.testing.assert_allclose(found, exact, 1e-4, 1e-4)
    layout = {1: "NLC", 2: "NHWC"}[axes]
    found = transpose(last, w, bias, **options, layout=layout)
    np.testing.assert_allclose(np.moveaxis(found, -1, 1), exact, 1e-4, 1e-4)
    np.testing.assert_array_equal(transpose(x[0], w, **options), transpose(x[:1], w, **options)[0])


def test_writes_nothing_else(draw):
    x, w = np.ones((2, 3, 5, 5), "f4"), np.ones((3, 4, 3, 3), "f4")
    out = Guarded((2, 4, 11, 11), np.dtype("f4"), draw.pick.randrange(9))
    kernels.conv_transpose2d(x, w, stride=2, out=out.array)
    out.check(out.array)
    out = Guarded((4, 3, 3, 3), np.dtype("f4"), draw.pick.randrange(9))
    kernels.conv2d_weight_grad(x, (4, 3, 3, 3), np.ones((2, 4, 3, 3), "f4"), out=out.array)
    out.check(out.array)
    assert kernels.conv_transpose2d(x[:0], w).shape == (0, 4, 7, 7)


def test_refused():
    x, w = np.zeros((2, 3, 5, 5), "f4"), np.zeros((3, 4, 3, 3), "f4")
    with pytest.raises(LaunchError, match=r"`x` has shape \(2, 3, 5, 5\) and `weight` \(2, 4, 3"):
        kernels.conv_transpose2d(x, w[:2])
    with pytest.raises(LaunchError, match="`output_padding` is 2"):
        kernels.conv_transpose2d(x, w, stride=2, output_padding=2)
    with pytest.raises(LaunchError, match="`groups` is 2"):
        kernels.conv_transpose2d(x, w, groups=2)
    with pytest.raises(LaunchTypeError, match="`weight` is f64"):
        kernels.conv_transpose2d(x, w.astype("f8"))
    with pytest.raises(LaunchError, match=r"`bias` has shape \(3,\)"):
        kernels.conv_transpose2d(x, w, np.zeros(3, "f4"))
    with pytest.raises(LaunchError, match="nothing is left"):
        kernels.conv_transpose2d(x, w, padding=9)
    with pytest.raises(LaunchError, match="`input_size` is .*does not give `grad_output`"):
        kernels.conv2d_input_grad((2, 4, 9, 9), w, x)
    with pytest.raises(LaunchError, match="`x` is .* but `weight` is for 7 channels"):
        kernels.conv2d_weight_grad(x, (4, 7, 3, 3), np.zeros((2, 4, 3, 3), "f4"))
    with pytest.raises(LaunchTypeError, match="`weight_size`"):
        kernels.conv2d_weight_grad(x, 4, x)  # type: ignore[arg-type]


@pytest.mark.optional("torch")
def test_as_torch(require_package):
    torch = require_package("torch")
    x, w, bias = torch.randn(2, 4, 7, 6), torch.randn(4, 3, 3, 3), torch.randn(6)
    options = (2, 1, 1, 2, 2)  # stride, padding, output_padding, groups, dilation
    expected = torch.nn.functional.conv_transpose2d(x, w, bias, *options)
    found = kernels.conv_transpose2d(x, w, bias, *options)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    g = torch.randn(2, 3, 4, 3)
    expected = torch.nn.grad.conv2d_weight(x, (3, 4, 3, 3), g, 2, 1)
    found = kernels.conv2d_weight_grad(x, (3, 4, 3, 3), g, 2, 1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
