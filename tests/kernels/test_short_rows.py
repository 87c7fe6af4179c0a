"""Short rows that groups of units of a plane reduce or search, as on GPUs, by planes of eight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.ir.types import DType, f32, i32
from cubepy.kernels.calls.cubes import units_of_short_row
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.position.kernel import Search, search_short_rows
from cubepy.kernels.reduction.moments import MomentTiling, describe_short_rows
from cubepy.kernels.reduction.problem import Reduction, mean
from cubepy.kernels.reduction.wide_kernel import WideTiling, reduce_short_rows
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded

SHAPES = ((7, 1), (5, 3), (9, 16), (33, 37), (2, 3, 60))
"""Of three axes, the last two are reduced together."""


@pytest.mark.parametrize(
    ("name", "dtype", "line", "across"),  # all pairs
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
def test_reductions(draw: Any, name: str, dtype: str, line: int, across: int):
    for shape in SHAPES:
        x = draw.array(shape, dtype, specials=name == "max")
        out = Guarded((shape[0], 1), dtype)
        tiling = WideTiling(1, line, 16, 1, across)
        cubes = -(-shape[0] * across // 16)
        launch = reduce_short_rows.configure(plane_dim=8)[cubes, 16]
        op = Reduction(name, f32 if dtype == "f4" else i32)
        launch(x, (), out.array, 1, op, tiling)
        axes = tuple(range(1, x.ndim))
        expected = getattr(np, name)(x.astype("f8") if dtype == "f4" else x, axes)
        np.testing.assert_allclose(out.array[:, 0], expected, 1e-5, 1e-5)
        assert out.is_fenced


@pytest.mark.parametrize("across", [1, 2, 8])
@pytest.mark.parametrize("line", [1, 4])
def test_variances(draw: Any, line: int, across: int):
    for shape in SHAPES[:-1]:
        x = draw.numbers.standard_normal(shape).astype("f4") + 1e4
        out = Guarded(shape[:1])
        tiling = MomentTiling(WideTiling(1, line, 16, 1, across), 8)
        launch = describe_short_rows.configure(plane_dim=8)[-(-shape[0] * across // 16), 16]
        launch(x, out.array, shape[1], Reduction("sum", f32, write=mean), tiling)
        np.testing.assert_allclose(out.array, x.astype("f8").var(1), 1e-5, 1e-6)
        assert out.is_fenced


@pytest.mark.parametrize(
    ("name", "dtype", "line", "across"),  # all pairs
    [
        ("max", f32, 1, 1),
        ("max", f32, 4, 2),
        ("max", f32, 1, 8),
        ("min", f32, 4, 1),
        ("min", f32, 1, 2),
        ("min", f32, 4, 8),
        ("max", i32, 1, 1),
        ("max", i32, 4, 2),
        ("max", i32, 1, 8),
    ],
)
def test_searches(draw: Any, name: str, dtype: DType, line: int, across: int):
    for shape in SHAPES[:-1]:
        x = draw.array(shape, "f4" if dtype is f32 else "i4", specials=True)
        x = np.round(x) if dtype is f32 else x % 5  # equal ones, of which the first counts
        x[0] = Reduction(name, dtype).identity
        out = Guarded(shape[:1], np.int64)
        worst = Reduction(name, dtype).identity
        find = Search(name == "max", worst, dtype, i32, line, 1, shape[1], across=across)
        cubes = -(-shape[0] * across // 16)
        search_short_rows.configure(plane_dim=8)[cubes, 16](x, out.array, find)
        out.check(getattr(np, f"arg{name}")(x, 1))


def test_groups_are_chosen_by_the_length_of_rows():
    target = cuda_target("sm_90a")
    assert [units_of_short_row(target, 4, n, 4) for n in (1, 16, 17, 77, 512)] == [1, 1, 2, 8, 32]
    assert [units_of_short_row(target, 1, n, 4) for n in (10, 77, 256)] == [1, 8, 16]
    assert [units_of_short_row(target, 8, n, 2) for n in (32, 33, 1024)] == [1, 2, 32]
    assert units_of_short_row(target, 4, 513, 4) == units_of_short_row(target, 1, 257, 4) == 0
    for function, kernel in (
        (kernels.sum, reduce_short_rows),
        (kernels.argmax, search_short_rows),
        (kernels.var, describe_short_rows),
    ):
        for n, line in ((64, 4), (77, 1)):
            x = spec(f"f32[65536,{n}]")
            (launch,) = record(function, {"x": x}, {"axis": 1}, target)
            assert f"<cube function {kernel.__name__}>" in repr(launch)
            how = launch.arguments.get("tiling") or launch.arguments["find"]
            assert getattr(how, "wide", how).line == line
        (launch,) = record(function, {"x": spec("f32[64]")}, {"axis": 0}, target)
        assert kernel.__name__ not in repr(launch)
