"""Few long columns, which wide devices cut into parts; here the parts run on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.ir.types import f32, i32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.calls.plans import Plans
from cubepy.kernels.normalisation import entry as normalisation
from cubepy.kernels.normalisation.tall import is_tall
from cubepy.kernels.position import entry as position
from cubepy.kernels.position.kernel import Search, pick_among_chunks
from cubepy.kernels.reduction.moments import MomentTiling, join_rows
from cubepy.kernels.reduction.problem import Reduction, mean
from cubepy.kernels.reduction.wide_kernel import WideTiling
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded

SHAPES = ((200, 1), (130, 37), (2, 65, 20))


def doubled(v: Any) -> Any:
    return v * 2


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_softmax(draw: Any, monkeypatch: Any, dtype: str):
    monkeypatch.setattr(normalisation, "is_tall", lambda *_: True)
    monkeypatch.setattr(normalisation, "_PLANS", Plans())
    for shape in SHAPES:
        x = draw.numbers.standard_normal(shape).astype(dtype)
        wide = x.astype("f8") * 2
        powers = np.exp(wide - wide.max(-2, keepdims=True))
        expected = powers / powers.sum(-2, keepdims=True)
        out, eps = Guarded(shape, dtype), 3e-3 if dtype == "f2" else 1e-5
        kernels.softmax(x, -2, prologue=doubled, out=out.array)
        np.testing.assert_allclose(out.array, expected, eps, eps)
        assert out.is_fenced
        found = kernels.log_softmax(x, -2, prologue=doubled)
        np.testing.assert_allclose(found, np.log(expected), eps, 3 * eps)


def test_softmax_of_special_columns(monkeypatch: Any):
    monkeypatch.setattr(normalisation, "is_tall", lambda *_: True)
    monkeypatch.setattr(normalisation, "_PLANS", Plans())
    rows = [[-np.inf, 0, 1], [-np.inf] * 3, [np.inf, 0, 1], [np.nan, 0, 1], [3e38, -3e38, 0]]
    x = np.ascontiguousarray(np.array(rows, "f4").T)
    with np.errstate(invalid="ignore"):
        powers = np.exp(x.astype("f8") - x.max(0))
        np.testing.assert_allclose(kernels.softmax(x, 0), powers / powers.sum(0), 1e-6)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_searches(draw: Any, monkeypatch: Any, name: str):
    monkeypatch.setattr(position, "_rows_each", lambda target, rows, lines: 7)
    monkeypatch.setattr(position, "_PLANS", Plans())
    for shape in SHAPES:
        for dtype in ("f4", "i4", "f8", "u1"):
            x = draw.array(shape, dtype, specials=True)
            x = np.round(x) if x.dtype.kind == "f" else x % 5  # the first of equal ones counts
            x[..., 0] = -np.inf if dtype.startswith("f") else 0
            expected = getattr(np, name)(x, -2)
            np.testing.assert_array_equal(getattr(kernels, name)(x, -2), expected)


@pytest.mark.parametrize("is_max", [True, False])
def test_many_chunks_are_picked_from_by_a_cube(draw: Any, is_max: bool):
    values = np.round(draw.array((5, 40), "f4", specials=True))
    worst = -np.inf if is_max else np.inf
    values[0], values[1, 7], values[2] = worst, np.nan, np.nan
    indices = np.arange(200).reshape(5, 40) % 40 * 3
    find = Search(is_max, worst, f32, i32, 1, 1, 3)
    out = Guarded((5,), np.int64)
    pick_among_chunks.configure(plane_dim=8)[5, 16](values, indices, out.array, find)
    expected = (np.argmax if is_max else np.argmin)(values, 1) * 3
    out.check(expected)


def test_chunks_of_a_column_are_joined_by_a_cube(draw: Any):
    parts = draw.numbers.standard_normal((3, 40, 16)) + 1e3
    means, spreads = (f(parts, -1).astype("f4") for f in (np.mean, lambda x, k: x.var(k) * 16))
    out, tiling = Guarded((3,)), MomentTiling(WideTiling(1, 1, 16, 16), 8)
    launch = join_rows.configure(plane_dim=8)[3, 16]
    launch(means, spreads, out.array, 640, 640, Reduction("sum", f32, write=mean), tiling)
    np.testing.assert_allclose(out.array, parts.reshape(3, -1).var(1), 1e-3)


def test_parts_are_chosen_where_a_device_would_be_idle():
    target = cuda_target("sm_90a")
    assert is_tall(target, 65536, 20) and not is_tall(target, 63, 20)
    assert not is_tall(target, 65536, 1 << 17)
    for function, many in ((kernels.softmax, 4), (kernels.argmax, 2), (kernels.var, 2)):
        tall = record(function, {"x": spec("f32[65536,77]")}, {"axis": 0}, target)
        assert len(tall) >= many
        wide = record(function, {"x": spec("f32[100,1000000]")}, {"axis": 0}, target)
        assert len(wide) <= 2
