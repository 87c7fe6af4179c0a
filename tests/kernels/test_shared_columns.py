"""Columns whose rows units of a cube share, as on GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.ir.types import DType, f32, i32
from cubepy.kernels.calls.cubes import units_above_each_other
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.position.kernel import Search, search_columns, search_shared_columns
from cubepy.kernels.reduction.problem import Reduction
from cubepy.kernels.reduction.wide_kernel import (
    WideTiling,
    reduce_shared_columns,
    reduce_wide_columns,
)
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded

SHAPES = ((1, 1, 1), (1, 2, 5), (2, 33, 3), (3, 40, 17), (5, 9, 4))
"""The middle axis is reduced."""
BESIDE = 4
"""Lines of columns of a cube."""


def cubes_of(shape: tuple[int, ...], line: int) -> int:
    lines = shape[0] * -(-shape[-1] // line)
    return -(-lines // BESIDE)


@pytest.mark.parametrize(
    ("name", "dtype", "line", "down"),  # all pairs
    [
        ("sum", "f4", 1, 1),
        ("sum", "f4", 4, 2),
        ("sum", "f4", 1, 8),
        ("max", "f4", 4, 1),
        ("max", "f4", 1, 2),
        ("max", "f4", 4, 8),
        ("min", "i4", 1, 1),
        ("min", "i4", 4, 2),
        ("min", "i4", 1, 8),
    ],
)
def test_reductions(draw: Any, name: str, dtype: str, line: int, down: int):
    for shape in draw.pick.sample(SHAPES, 3):
        x = draw.array(shape, dtype, specials=name == "max")
        out = Guarded((shape[0], 1, shape[2]), dtype)
        tiling = WideTiling(1, line, BESIDE * down, shape[1], down=down)
        launch = reduce_shared_columns[cubes_of(shape, line), BESIDE * down]
        launch(x, (), out.array, 1, Reduction(name, f32 if dtype == "f4" else i32), tiling)
        expected = getattr(np, name)(x.astype("f8") if dtype == "f4" else x, 1)
        np.testing.assert_allclose(out.array[:, 0], expected, 1e-5, 1e-5)
        assert out.is_fenced


@pytest.mark.parametrize("down", [2, 8])
def test_axes_below_the_first_are_not_shared(draw: Any, down: int):
    x = draw.array((2, 9, 3, 7), "f4")
    out = Guarded((2, 1, 7))
    tiling = WideTiling(1, 4, BESIDE * down, 9, down=down)
    launch = reduce_shared_columns[cubes_of((2, 27, 7), 4), BESIDE * down]
    launch(x, (), out.array, 1, Reduction("sum", f32), tiling)
    np.testing.assert_allclose(out.array[:, 0], x.astype("f8").sum((1, 2)), 1e-5, 1e-5)
    assert out.is_fenced


@pytest.mark.parametrize("down", [1, 2, 8])
@pytest.mark.parametrize("line", [1, 4])
@pytest.mark.parametrize(("name", "dtype"), [("max", f32), ("min", f32), ("max", i32)])
def test_searches(draw: Any, name: str, dtype: DType, line: int, down: int):
    for shape in SHAPES:
        x = draw.array(shape, "f4" if dtype is f32 else "i4", specials=True)
        x = np.round(x) if dtype is f32 else x % 5  # equal ones, of which the first counts
        worst = Reduction(name, dtype).identity
        x[0, :, 0] = worst
        out = Guarded((shape[0], shape[2]), np.int64)
        find = Search(name == "max", worst, dtype, i32, line, 2, 0, down=down)
        search_shared_columns[cubes_of(shape, line), BESIDE * down](x, out.array, find)
        out.check(getattr(np, f"arg{name}")(x, 1))


def test_units_are_chosen_by_the_columns_and_the_rows():
    target = cuda_target("sm_90a")
    assert units_above_each_other(target, 1 << 20, 256, 1, 16) == (32, 16)
    assert units_above_each_other(target, 100, 256, 1, 16) == (8, 64)
    assert units_above_each_other(target, 100, 5000, 1, 16) == (8, 128)
    assert units_above_each_other(target, 100, 5000, 1, 64) == (0, 0), "too much shared memory"
    assert units_above_each_other(target, 100, 9000, 1, 16) == (0, 0)
    assert units_above_each_other(target, 100, 900, 20, 16) == (0, 0)
    few = replace(target, max_cube_dim=256)
    assert units_above_each_other(few, 100, 256, 1, 16) == (0, 0)
    for function, kernel, other in (
        (kernels.sum, reduce_shared_columns, reduce_wide_columns),
        (kernels.argmax, search_shared_columns, search_columns),
    ):
        for found, shape in ((kernel, "32,256,49"), (other, "2,40,1048576")):
            (launch,) = record(function, {"x": spec(f"f32[{shape}]")}, {"axis": 1}, target)
            assert f"<cube function {found.__name__}>" in repr(launch)
