"""Few large slabs that several cubes normalise, as on GPUs: by planes of eight units on the CPU."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.ir.types import f32, f64
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.normalisation.problem import Places
from cubepy.kernels.normalisation.shared_slabs import (
    SharedSlabs,
    describe_slabs,
    normalise_shared,
)
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded

HOPPER = cuda_target("sm_90a")
EPS = 1e-5


@pytest.mark.parametrize(("rows", "span"), [(1, 16), (2, 100), (5, 32), (3, 8)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_parts_of_slabs(draw: Any, rows: int, span: int, dtype: str):
    shape = (2, 3, 5, 37)
    x = (draw.numbers.standard_normal(shape) * 3 + 100).astype(dtype)
    weight, bias = (draw.array((5, 1), dtype) for _ in range(2))
    means, spreads = (Guarded((2, 3, -(-5 // rows) * -(-37 // span)), dtype) for _ in range(2))
    running = np.zeros((2, 3), dtype), np.ones((2, 3), dtype)
    out = Guarded(shape, dtype)
    unroll, stream = 1 + rows % 3, rows % 2 == 0
    t = SharedSlabs(f64 if dtype == "f8" else f32, 2, 4, 16, 4, unroll, rows, span, stream)
    cubes = means.array.size
    describe_slabs.configure(plane_dim=8)[cubes, 16](x, means.array, spreads.array, t)
    beside = tuple((np.broadcast_to(v, shape),) for v in (weight, bias))
    normalise_shared.configure(plane_dim=8)[cubes, 16](
        *(x, means.array, spreads.array, *beside, running, out.array, ()),
        *(EPS, 0.25, None, Places(), t),
    )
    wide = x.astype("f8")
    mean, var = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
    tolerance = 1e-12 if dtype == "f8" else 2e-5
    expected = (wide - mean) / np.sqrt(var + EPS) * weight + bias
    np.testing.assert_allclose(out.array, expected, tolerance, 100 * tolerance)
    np.testing.assert_allclose(running[0], 0.25 * mean[..., 0, 0], tolerance)
    count = 5 * 37
    unbiased = 0.75 + 0.25 * var[..., 0, 0] * count / (count - 1)
    np.testing.assert_allclose(running[1], unbiased, 10 * tolerance)
    assert out.is_fenced and means.is_fenced and spreads.is_fenced


def test_an_infinity_is_reported_as_by_one_cube(draw: Any):
    x = draw.numbers.standard_normal((2, 4, 40)).astype("f4")
    x[0, 1, 3], x[1, 2, 5] = np.inf, np.nan
    means, spreads = (np.empty((2, 4), "f4") for _ in range(2))
    out = np.zeros_like(x)
    t = SharedSlabs(f32, 1, 4, 16, 4, 4, 1, 40, False)
    describe_slabs[8, 16](x, means, spreads, t)
    normalise_shared[8, 16](x, means, spreads, (), (), (), out, (), EPS, 0.0, None, Places(), t)
    assert np.isnan(out).all()


def test_few_large_groups_are_shared():
    def planned(shape: str, groups: int) -> list[str]:
        given = {"x": spec(f"f32[{shape}]")}
        launches = record(kernels.group_norm, given, {"num_groups": groups}, HOPPER)
        return [launch.kernel.__name__ for launch in launches]

    assert planned("4,16,300,301", 4) == ["describe_slabs", "normalise_shared"]
    assert planned("64,320,64,64", 32) == ["normalise_slabs"]
    assert planned("4,16,5,5", 4) == ["normalise_slabs"]


def test_launches_cover_all_parts():
    given = {"x": spec("bf16[1,8,1000,33]")}
    describe, normalise = record(kernels.instance_norm, given, {}, HOPPER)
    t, x = describe.arguments["t"], describe.arguments["x"]
    parts = describe.arguments["means"].shape[-1]
    assert parts == -(-prod(x.shape[t.items : -1]) // t.rows) * -(-x.shape[-1] // t.span) > 1
    assert describe.cubes == normalise.cubes == 8 * parts
    assert replace(t, prologue=None) == normalise.arguments["t"]
