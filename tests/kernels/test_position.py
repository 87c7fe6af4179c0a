"""Indices of extremes against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError
from cubepy.jit.grid import Over
from cubepy.kernels.calls.inspection import record
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u2", "i8", "?"])
def test_any_axis_and_strides(draw: Any, dtype: str):
    for shape in draw.pick.sample(((4, 5, 70), (33, 1025)), 1):
        x = draw.array(shape, dtype, specials=draw.pick.random() < 0.5)
        for y in (x, draw.layout(x)):
            for name in ("argmax", "argmin"):
                for axis in range(-1, y.ndim):
                    found = getattr(kernels, name)(y, axis)
                    assert found.dtype == np.int64
                    np.testing.assert_array_equal(found, getattr(np, name)(y, axis))
            np.testing.assert_array_equal(kernels.argmax(y), np.argmax(y))
            np.testing.assert_array_equal(
                kernels.argmin(y.T, keepdims=True), np.argmin(y.T, keepdims=True)
            )


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u8"])
def test_columns_are_cut_in_bands_and_chunks(draw: Any, dtype: str):
    shapes = ((20_011, 37), (301, 5003), (3, 2003, 70), (2, 9, 4099), (40_000, 2, 3))
    for shape in draw.pick.sample(shapes, 2):
        x = draw.array(shape, dtype, specials=draw.pick.random() < 0.5)
        for y in (x, x[..., ::-1], x[:, 1:]):
            for name in ("argmax", "argmin"):
                out = Guarded((*y.shape[:-2], y.shape[-1]), np.dtype(np.int64))
                getattr(kernels, name)(y, -2, out=out.array)
                out.check(out.array)
                np.testing.assert_array_equal(out.array, getattr(np, name)(y, -2))
                wide = np.full((*y.shape[:-2], 2 * y.shape[-1]), -7)
                getattr(kernels, name)(y, -2, out=wide[..., ::2])
                np.testing.assert_array_equal(wide[..., ::2], out.array)
                assert np.all(wide[..., 1::2] == -7)


def test_long_rows_are_cut(draw: Any):
    x = draw.numbers.standard_normal((2, 300_001)).astype(np.float32)
    for y in (x, x.reshape(-1)):
        assert np.array_equal(kernels.argmax(y, -1), np.argmax(y, -1))
        assert np.array_equal(kernels.argmin(y), np.argmin(y))
    x[1, 200_000] = x[0, 77] = np.nan
    assert kernels.argmax(x) == 77
    assert kernels.argmin(x, 1).tolist() == [77, 200_000]
    assert kernels.argmax(np.full(300_000, -np.inf, np.float32)) == 0


def test_options_and_refusals(draw: Any):
    x = draw.numbers.standard_normal((6, 70)).astype(np.float32)
    assert kernels.argmax(x, 1, keepdims=True).shape == (6, 1)
    out = Guarded((70,), np.dtype(np.int64))
    assert kernels.argmin(x, dim=0, out=out.array) is out.array
    out.check(out.array)
    np.testing.assert_array_equal(out.array, x.argmin(0))
    assert kernels.argmax(x[:0], 1).shape == (0,)
    with pytest.raises(LaunchError, match="has no argmax"):
        kernels.argmax(x[:0], 0)


@pytest.mark.parametrize(
    ("shape", "units"),
    [
        ("65536,77", 128),  # of several rows
        ("16384,1003", 64),
        ("8192,4097", 128),
        ("16384,16384", 256),
        ("100,1003", 256),  # few rows
    ],
)
def test_cubes_have_as_many_units_as_rows_have_lines_for(shape: str, units: int):
    x = spec(f"f32[{shape}]")
    (launch,) = record(kernels.argmax, {"x": x}, {"axis": 1}, cuda_target("sm_90a"))
    assert isinstance(launch.grid, Over) and launch.grid.cube_dim == units
