"""`gather` and `scatter` against NumPy's indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError, OutOfBoundsError
from cubepy.kernels.indexing.problem import UPDATES
from tests.guarded import Guarded

SHAPES = ((7,), (5, 70), (4, 3, 19), (2, 3, 4, 5))
AT = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def places(draw: Any, n: int, shape: tuple[int, ...], dtype: str = "i8") -> np.ndarray:
    """Indices into n elements, some of them from the end."""
    return draw.numbers.integers(-n, n, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "i1", "f8", "?"])
def test_gather_takes_slices_and_elements(draw: Any, dtype: str):
    for shape in SHAPES:
        x = draw.layout(draw.array(shape, dtype, specials=True))
        axis = draw.pick.randrange(-x.ndim, x.ndim)
        n = x.shape[axis]
        for size in draw.pick.sample(((), (6,), (2, 3), (0,)), 2):
            index = places(draw, n, size, draw.pick.choice(("i1", "i4", "i8")))
            found = kernels.gather(x, index, axis, mode="slices")
            np.testing.assert_array_equal(found, np.take(x, index, axis))
        own = [draw.pick.choice((1, m)) for m in x.shape]
        own[axis] = 9
        index = draw.layout(places(draw, n, tuple(own)))
        found = kernels.gather(x, index, axis)
        np.testing.assert_array_equal(found, np.take_along_axis(x, index, axis))


def expected_scatter(x: Any, index: Any, values: Any, axis: int, update: str) -> np.ndarray:
    """One update after the other, along the first axis."""
    out = np.moveaxis(np.array(x, "f8" if x.dtype.kind == "f" else x.dtype), axis, 0)
    if update == "assign":
        out[index] = values
    else:
        AT[update].at(out, index, values)
    return np.moveaxis(out, 0, axis)


@pytest.mark.parametrize("update", UPDATES)
def test_scatter_of_slices(draw: Any, update: str):
    for shape, dtype in zip(SHAPES, ("f4", "u1", "i4", "f4")):
        x = draw.layout(draw.array(shape, dtype))
        axis = draw.pick.randrange(x.ndim)
        for size in (draw.pick.choice(((11,), (2, 3), ())),):
            index = places(draw, x.shape[axis], size)
            around = np.moveaxis(x, axis, 0).shape[1:]
            values = draw.layout(draw.array((*size, *around), dtype))
            moved = np.moveaxis(values, range(len(size)), range(axis, axis + len(size)))
            found = kernels.scatter(x, index, moved, axis, update, mode="slices")
            assert found.dtype == x.dtype
            expected = expected_scatter(x, index, values, axis, update)
            np.testing.assert_array_equal(found, expected.astype(dtype))


@pytest.mark.parametrize("update", UPDATES)
def test_scatter_of_elements(draw: Any, update: str):
    for shape in SHAPES[1:]:
        x = draw.array(shape, "f4")
        axis = draw.pick.randrange(x.ndim)
        own = [*shape]
        own[axis] = 8
        index, values = places(draw, shape[axis], tuple(own)), draw.array(tuple(own), "f4")
        expected = x.astype("f8")
        for at in np.ndindex(*own):
            to = (*at[:axis], index[at], *at[axis + 1 :])
            v = values[at].astype("f8")
            expected[to] = v if update == "assign" else AT[update](expected[to], v)
        found = kernels.scatter(x, draw.layout(index), draw.layout(values), axis, update)
        np.testing.assert_allclose(found, expected, 1e-6)


def test_scatter_in_place_touches_what_is_named(draw: Any):
    out = Guarded((9, 33))
    out.array[:] = 1
    values = draw.array((33,), "f4")
    index = np.array([2, -1, 2])
    assert kernels.scatter(out.array, index, values, update="add", out=out.array) is out.array
    expected = np.ones((9, 33), "f4")
    np.add.at(expected, index, values)
    out.check(expected)
    assert kernels.scatter(np.zeros(4, "i4"), np.array([1, 1]), 7).tolist() == [0, 7, 0, 0]


def test_small_floats_are_summed_in_f32():
    x = np.full(3, 2048, np.float16)
    found = kernels.scatter(x, np.zeros(64, "i8"), np.float16(1), update="add")
    assert found.tolist() == [2112, 2048, 2048]


@pytest.mark.parametrize("bad", [7, -8, 2**40])
def test_indices_out_of_bounds(bad: int):
    x, index = np.arange(1.0, 8.0), np.array([1, bad])
    wide, ones = np.repeat(x[:, None], 40, 1), np.ones((2, 40))
    assert kernels.gather(x, index).tolist() == [2, 0]
    assert kernels.gather(wide, index)[1].tolist() == [0] * 40
    found = kernels.scatter(x, index, 9.0)
    assert found.tolist() == [1, 9, 3, 4, 5, 6, 7]
    assert kernels.scatter(wide, index, ones, update="add").sum() == wide.sum() + 40
    with cp.settings(checked=True):
        for call in (
            lambda: kernels.gather(x, index),
            lambda: kernels.gather(wide, index),
            lambda: kernels.scatter(x, index, 9.0),
            lambda: kernels.scatter(wide, index, ones, update="add"),
        ):
            with pytest.raises(OutOfBoundsError):
                call()


def test_refusals(draw: Any):
    x = draw.array((4, 5), "f4")
    k = np.zeros((3, 2), "i8")
    for match, call in (
        (r"`index` has shape \(3, 2\) and `x` \(4, 5\)", lambda: kernels.gather(x, k)),
        ("`mode` is 'all'", lambda: kernels.gather(x, k, mode="all")),
        ("axis 2 is out of bounds", lambda: kernels.gather(x, k, 2)),
        ("no axes", lambda: kernels.gather(np.array(1.0), k)),
        ("`update` is 'sub'", lambda: kernels.scatter(x, k, x, update="sub")),
        (r"`values` has shape \(4,\)", lambda: kernels.scatter(x, k[:, 0], x[:, 0])),
        ("overlaps", lambda: kernels.gather(x, np.arange(4), out=x)),
    ):
        with pytest.raises(LaunchError, match=match):
            call()
    for match, call in (
        ("`index` has dtype f32", lambda: kernels.gather(x, x)),
        ("`values` has dtype f64", lambda: kernels.scatter(x, k[:, 0], np.zeros(5))),
        ("`index` is a list", lambda: kernels.gather(x, [1])),
    ):
        with pytest.raises(LaunchTypeError, match=match):
            call()


def test_empties():
    x = np.zeros((0, 3), "f4")
    assert kernels.gather(x, np.zeros(0, "i8")).shape == (0, 3)
    assert kernels.gather(x, np.zeros(2, "i8")).tolist() == [[0] * 3] * 2
    assert kernels.scatter(x, np.zeros(2, "i8"), 1.0).shape == (0, 3)
