"""Functions of the user: of no element, whose number is that of all lanes; of one; and of lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.kernels.calls.epilogues import takes_elements
from cubepy.kernels.matmul.scaling import scaled

T = np.array([3], np.float32)
EPILOGUES: tuple[Any, ...] = (
    lambda v, i: 3,
    lambda v, i: cp.sqrt(cp.f32(9)),
    (lambda v, i, t: t[0], T),
)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


CALLS: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda e: kernels.matmul(ones(19, 23), ones(23, 29), epilogue=e),
    "matmul of a row": lambda e: kernels.matmul(ones(1, 23), ones(23, 29), epilogue=e),
    "conv2d": lambda e: kernels.conv2d(ones(1, 8, 9, 9), ones(8, 8, 3, 3), epilogue=e),
    "one channel": lambda e: kernels.conv2d(ones(1, 1, 5, 7), ones(1, 1, 3, 3), epilogue=e),
    "max_pool2d": lambda e: kernels.max_pool2d(ones(1, 3, 9, 37), 2, epilogue=e),
    "avg_pool1d": lambda e: kernels.avg_pool1d(ones(1, 3, 41), 3, epilogue=e),
}


@pytest.mark.parametrize("name", CALLS)
def test_constant_epilogues(name: str):
    for epilogue in EPILOGUES:
        found = CALLS[name](epilogue)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.full(found.shape, 3))


def test_constant_prologues():
    for prologue in (lambda v: 3, lambda v: cp.f32(3)):
        found = kernels.max_pool2d(ones(1, 3, 9, 37), 2, prologue=prologue)
        np.testing.assert_array_equal(found, np.full(found.shape, 3))


# Epilogues that read the index of an element


def residual(v: Any, index: Any, more: Any) -> Any:
    return v + more[index]


def by_lines(v: Any, index: Any, more: Any) -> Any:
    return v + cp.load(more[index[:-1]], index[-1], line=v.line_size)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


SHAPES = ((5, 6, 7), (1, 6, 70), (64, 64, 64), (40, 37, 129), (8, 512, 100))


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_elements_of_products(m: int, k: int, n: int):
    a, b, more = random(m, k), random(k, n), random(m, n)
    expected = kernels.matmul(a, b) + more
    for epilogue in ((residual, more), (by_lines, more)):
        np.testing.assert_allclose(kernels.matmul(a, b, epilogue=epilogue), expected, 1e-5, 1e-5)
    columns = (lambda v, i, c: max(v + c[i[1]], 0), more[0].copy())
    expected = np.maximum(kernels.matmul(a, b) + more[0], 0)
    np.testing.assert_allclose(kernels.matmul(a, b, epilogue=columns), expected, 1e-5, 1e-5)
    found = kernels.matmul(a, b, epilogue=lambda v, i: v * 0 + cp.f32(i[0] * 1000 + i[1]))
    np.testing.assert_array_equal(found, np.add.outer(np.arange(m) * 1000.0, np.arange(n)))


def test_elements_are_numbers():
    def clipped(v: Any, index: Any, more: Any) -> Any:
        if v > more[index]:
            return v
        return 0

    a, b, more = random(9, 5), random(5, 23), random(9, 23)
    expected = kernels.matmul(a, b)
    found = kernels.matmul(a, b, epilogue=(clipped, more))
    np.testing.assert_array_equal(found, np.where(expected > more, expected, 0))


def test_elements_of_quantised_products():
    a, weights, more = random(3, 64), random(24, 64), random(3, 24)
    scale = np.full(24, 0.05, np.float32)
    b = kernels.Quantised(kernels.quantize(weights, scale, axis=0), scale, axis=0).T
    expected, found = kernels.matmul(a, b), kernels.matmul(a, b, epilogue=(residual, more))
    np.testing.assert_allclose(found, expected + more, 1e-5, 1e-5)


def test_elements_on_a_device(device: str = "opencl:0"):
    if device not in cp.devices():
        pytest.skip(f"no device {device} here")
    a, b, more = (cp.asarray(random(*s), device=device) for s in ((3, 5), (5, 7), (3, 7)))
    found = kernels.matmul(a, b, epilogue=(residual, more)).numpy()
    np.testing.assert_allclose(found, kernels.matmul(a, b).numpy() + more.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(
    "shape, filters", [((2, 4, 9, 8), (6, 4, 3, 3)), ((1, 16, 13, 13), (24, 16, 3, 3))]
)
def test_elements_of_images(shape: Any, filters: Any, is_last: bool):
    """The index is one of the result, of as many axes; each call sees both shapes and layouts."""
    x, weight = random(*shape), random(*filters)
    if is_last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    calls: tuple[Any, ...] = (
        lambda e: kernels.conv2d(x, weight, epilogue=e),
        lambda e: kernels.max_pool2d(x, 2, epilogue=e),
    )
    if is_last == (shape[0] == 1):
        calls = (
            lambda e: kernels.conv2d(x, weight, padding=1, stride=2, epilogue=e),
            lambda e: kernels.avg_pool2d(x, 3, 1, 1, epilogue=e),
        )
    for call in calls:
        expected = call(None)
        more = random(*expected.shape)
        found = call((residual, more))
        np.testing.assert_allclose(found, expected + more, 1e-5, 1e-5)


@pytest.mark.parametrize("shape", [(2, 4, 9, 8), (5, 129), (3, 7, 33)])
def test_elements_of_norms(shape: Any):
    x, more, mean = random(*shape), random(*shape), random(shape[1])
    calls: list[Any] = [
        lambda e, axis=axis: kernels.softmax(x, axis, epilogue=e) for axis in range(x.ndim)
    ]
    calls += [
        lambda e: kernels.layer_norm(x, shape[-2:], epilogue=e),
        lambda e: kernels.rms_norm(x, shape[-1], epilogue=e),
        lambda e: kernels.batch_norm(x, training=True, epilogue=e),
        lambda e: kernels.batch_norm(x, mean, mean**2, epilogue=e),
    ]
    if shape[1] % 2 == 0:
        calls.append(lambda e: kernels.group_norm(x, 2, epilogue=e))
    for call in calls:
        found, expected = call((residual, more)), call(None) + more
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


class lines:
    by_lines = staticmethod(by_lines)


def through_a_helper(v: Any, index: Any, c: Any) -> Any:
    return by_lines(v, index, c)


def test_what_is_called_for_elements():
    assert takes_elements(residual) and takes_elements(cp.cube(residual))
    assert takes_elements(lambda v, i, c: (lambda: c[i])())
    assert not takes_elements(by_lines) and not takes_elements(through_a_helper)
    scaled_sums = scaled((False,), 0, None)
    assert not takes_elements(scaled_sums) and not takes_elements(scaled_sums.inside)  # type: ignore[attr-defined]
    assert not takes_elements(lambda v, i: v * 2) and not takes_elements(lambda v, i, c: v + c[0])


def test_nothing_is_read_behind_the_arrays():
    """Lines have lanes beyond the result, whose elements do not exist."""
    with cp.settings(checked=True):
        a, b, more = random(3, 5), random(5, 7), random(3, 7)
        found = kernels.matmul(a, b, epilogue=(residual, more))
    np.testing.assert_allclose(found, a @ b + more, 1e-5, 1e-5)


class Weighted:
    @cp.cube
    def marked(self, v: Any, index: Any, c: Any) -> Any:
        return v + c[index]

    def plain(self, v: Any, index: Any, c: Any) -> Any:
        return v + c[index]

    def __call__(self, v: Any, index: Any, c: Any) -> Any:
        return v + c[index]


def scaled_residual(factor: float, v: Any, index: Any, c: Any) -> Any:
    return v + factor * c[index]


def of_any_number(v: Any, *rest: Any) -> Any:
    return v + rest[1][rest[0]]


OF_ELEMENTS = (partial(scaled_residual, 1.0), Weighted().plain, Weighted(), of_any_number)


@pytest.mark.parametrize("function", [*OF_ELEMENTS, Weighted().marked])
def test_whatever_reads_its_index_is_called_for_elements(function: Any):
    assert takes_elements(function)
    a, b, more = random(5, 7), random(7, 13), random(5, 13)
    found = kernels.matmul(a, b, epilogue=(function, more))
    np.testing.assert_allclose(found, a @ b + more, 1e-5, 1e-5)


def test_names_that_are_never_assigned():
    def epilogue(v: Any, index: Any, c: Any) -> Any:
        return v + c[index] if index[0] >= 0 else absent(v)  # pyright: ignore[reportUnboundVariable]

    assert takes_elements(epilogue)
    if not epilogue:
        absent = abs


def test_what_is_captured_is_not_read_behind_its_end():
    columns = np.arange(13, dtype=np.float32)
    a, b = random(5, 7), random(7, 13)
    with cp.settings(checked=True):
        found = kernels.matmul(a, b, epilogue=lambda v, index: v + columns[index[1]])
    np.testing.assert_allclose(found, a @ b + columns, 1e-5, 1e-5)


def test_epilogues_may_count():
    def count(v: Any, index: Any, counts: Any) -> Any:
        cp.atomic.add(counts, index[0], 1)
        return v

    a, b, counts = random(5, 7), random(7, 13), np.zeros(5, np.int32)
    kernels.matmul(a, b, epilogue=(count, counts))
    assert (counts == 13).all()


LAYOUTS: dict[int, tuple[Any, Any, tuple[str, str]]] = {
    1: (kernels.conv1d, kernels.max_pool1d, ("NCL", "NLC")),
    2: (kernels.conv2d, kernels.max_pool2d, ("NCHW", "NHWC")),
    3: (kernels.conv3d, kernels.max_pool3d, ("NCDHW", "NDHWC")),
}


@pytest.mark.parametrize(
    "axes, has_batch, is_last",  # all pairs
    [
        (1, False, False),
        (1, True, True),
        (2, False, True),
        (2, True, False),
        (3, False, False),
        (3, True, True),
    ],
)
def test_indices_are_those_of_the_result(axes: int, has_batch: bool, is_last: bool):
    """For elements and for lines, of any rank and layout."""
    convolve, pool, names = LAYOUTS[axes]
    extents = (5, 6, 7)[3 - axes :]
    shape = (*((2,) if has_batch else ()), *((*extents, 8) if is_last else (8, *extents)))
    x, weight = random(*shape), random(6, 8, *(3,) * axes)

    def numbered(v: Any, index: Any, more: Any) -> Any:
        return v + more[index] + 100 * len(index)

    def first(v: Any, index: Any, more: Any) -> Any:
        return v * 0 + more[index] * (v.line_size > 0)

    calls: tuple[Any, ...] = (
        lambda e: convolve(x, weight, layout=names[is_last], epilogue=e),
        lambda e: pool(x, 2, layout=names[is_last], epilogue=e),
    )
    for call in calls:
        expected = call(None)
        more = random(*expected.shape)
        found = call((numbered, more))
        np.testing.assert_allclose(found, expected + more + 100 * x.ndim, 1e-5, 1e-4)
        found = call((first, more)).ravel()
        assert found[0] == more.ravel()[0] and np.isin(found, more).all()


@pytest.mark.parametrize("function", [lambda v, i, c: v[0] + c[i], lambda v, i, c: v.sum() + c[i]])
def test_numbers_that_are_taken_for_lines(function: Any):
    with pytest.raises(cp.CompileError, match="that read `index` get numbers"):
        kernels.matmul(random(3, 5), random(5, 7), epilogue=(function, random(3, 7)))


def test_what_is_read_is_decided_by_the_source():
    """Not by what Python makes of it: a module's helper may ask, a name may hide the index."""
    assert takes_elements(lambda v, i, c: v + (lambda k: c[k])(i))
    assert takes_elements(lambda v, i, c: sum(v + c[i] for _ in (0,)))
    assert not takes_elements(lambda v, i, c: lines.by_lines(v, i, c))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (7,)),
        ((7,), (7, 37)),
        ((2, 3, 5, 7), (7,)),
        ((7,), (3, 7, 5)),
        ((300, 257), (257,)),
        ((7,), (7,)),
    ],
)
def test_products_of_vectors_give_the_index_in_their_result(a: Any, b: Any):
    one, two = random(*a), random(*b)
    wanted = np.matmul(one.astype("f8"), two.astype("f8"))
    more = random(*wanted.shape)
    found = kernels.matmul(one, two, epilogue=(residual, more))
    np.testing.assert_allclose(found, wanted + more, 1e-4, 1e-4)
    bias = random(*wanted.shape[-1:])
    found = kernels.matmul(one, two, bias=bias, epilogue=lambda v, index: v + len(index))
    np.testing.assert_allclose(found, wanted + bias + wanted.ndim, 1e-4, 1e-4)


def test_a_quantised_factor_by_a_vector_gives_the_index_in_their_result():
    a, q, more = random(7), np.arange(-10, 11, dtype=np.int8).reshape(7, 3), random(3)
    found = kernels.matmul(a, kernels.Quantised(q, 0.5), epilogue=(residual, more))
    np.testing.assert_allclose(found, a @ (q * 0.5) + more, 1e-4, 1e-4)


def test_extras_that_are_written_share_no_memory():
    def kept(v: Any, i: Any, e: Any) -> Any:
        e[i[0], i[1]] = v
        return v

    a, b = np.random.default_rng().standard_normal((2, 40, 40)).astype("f4")
    right, softmaxes = a @ b, kernels.softmax(a, 0)
    for _ in range(3):  # the short way, too
        copy = np.full((40, 40), np.nan, np.float32)
        found = kernels.matmul(a, b, epilogue=(kept, copy))
        np.testing.assert_allclose(found, right, 1e-4, 1e-4)
        np.testing.assert_array_equal(copy, found)
        np.testing.assert_array_equal(kernels.softmax(a, 0, out=a.copy()), softmaxes)
        for view in (a, a[::-1], a.T, b[:, ::-1]):
            with pytest.raises(cp.LaunchError, match="updated overlaps another argument"):
                kernels.matmul(a, b, epilogue=(kept, view))
        with pytest.raises(cp.LaunchError, match="updated overlaps another argument"):
            kernels.softmax(a, 0, epilogue=(kept, a[:, ::-1]))
