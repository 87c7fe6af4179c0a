"""Products of groups of rows, against NumPy in f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import LaunchTypeError
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.calls.libraries import serving
from cubepy.targets import cuda_target
from tests.optional import require_package

RNG = np.random.default_rng(5)
ENDS = {
    "even": [8, 16, 24],
    "uneven and empty": [0, 17, 17],
    "rows without a group": [3, 9, 11],
    "none": [0, 0, 0],
    "out of order and behind": [20, 4, 1000],
}


def expected(x: Any, weights: Any, ends: Any) -> np.ndarray:
    """Row by row, as the documentation says."""
    found = np.zeros((x.shape[0], weights.shape[2]))
    begin = 0
    for group, end in enumerate(ends):
        stop = max(begin, min(end, x.shape[0]))
        found[begin:stop] = x[begin:stop].astype(float) @ weights[group].astype(float)
        begin = stop
    return found


@pytest.mark.parametrize("ends", ENDS.values(), ids=list(ENDS))
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_groups(ends: list[int], device: str, dtype: Any):
    x = RNG.standard_normal((24, 10)).astype(dtype)
    weights = RNG.standard_normal((3, 10, 21)).astype(dtype)
    out = np.full((24, 21), np.nan, dtype)
    with serving(device):
        found = cp.kernels.grouped_matmul(x, weights, np.array(ends, np.int32), out=out)
    assert found is out
    rounding = 2.0**-8 if dtype is ml_dtypes.bfloat16 else 2.0**-20
    np.testing.assert_allclose(
        out.astype(float), expected(x, weights, ends), rtol=rounding, atol=1e-5
    )


@pytest.mark.parametrize("k", [1, 2, 6, 40])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("n", [1, 9])
def test_strides_and_wide_ends(k: int, step: int, n: int):
    x = RNG.standard_normal((7, k * step)).astype(np.float32)[:, ::step]
    weights = RNG.standard_normal((2, n, k)).astype(np.float32).transpose(0, 2, 1)
    found = cp.kernels.grouped_matmul(x, weights, np.array([2, 7], np.int64))
    np.testing.assert_allclose(found, expected(x, weights, [2, 7]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("k", "n"), [(1, 5), (6, 1), (6, 21)])
def test_lines_run_along_columns_whatever_axis_is_dense(order: Any, k: int, n: int):
    x = np.asarray(RNG.standard_normal((7, k)), np.float32, order=order)
    weights = np.asarray(RNG.standard_normal((3, k, n)), np.float32, order="F")
    out = np.full((7, n), np.nan, np.float32, order=order)
    cp.kernels.grouped_matmul(x, weights, np.array([2, 3, 7]), out=out)
    np.testing.assert_allclose(out, expected(x, weights, [2, 3, 7]), rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused():
    x, weights = np.zeros((4, 3), np.float32), np.zeros((2, 3, 5), np.float32)
    ends = np.array([2, 4], np.int32)
    for wrong in (
        (x, weights, ends[:1]),
        (x, weights, ends.astype(np.float32)),
        (x[:, :2], weights, ends),
        (x, weights[0], ends),
    ):
        with pytest.raises(cp.LaunchError):
            cp.kernels.grouped_matmul(*wrong)
    with pytest.raises(LaunchTypeError):
        cp.kernels.grouped_matmul(x, weights.astype(np.float64), ends)


@pytest.mark.parametrize("weights", ["bf16[8,1024,512]", "f16[3,64,264]"])
def test_tiles_of_hopper(weights: str):
    require_package("cuda.bindings")
    dtype, _, rest = weights.partition("[")
    groups, k, _ = (int(n) for n in rest.rstrip("]").split(","))
    specs = {"x": f"{dtype}[300,{k}]", "weights": weights, "ends": f"i32[{groups}]"}
    specs = {name: cp.spec(text) for name, text in specs.items()}
    (launch,) = record(cp.kernels.grouped_matmul, specs, {}, cuda_target("sm_90a"))
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    assert text.count("wgmma.mma_async") == 4 * len(launch.arguments["t"].widths)
