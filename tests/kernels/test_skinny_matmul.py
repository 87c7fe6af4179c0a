"""Products of few rows on GPUs: the rule, the texts, and the portable kernel on this processor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.ir.types import bf16, f32, f64, i32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem
from cubepy.kernels.matmul.skinny import skinny, thin
from cubepy.kernels.matmul.strategies import choose
from cubepy.kernels.matmul.thin import Thin
from cubepy.kernels.matmul.variants import others
from cubepy.kernels.matmul.vectors import Vectors, multiply_vectors
from cubepy.targets import cuda_target, parse_target
from tests.guarded import Guarded
from tests.optional import require_package

RNG = np.random.default_rng(5)
HOPPER = cuda_target("sm_90a")
LAYERS = [(6144, 4096), (4096, 4096), (28672, 4096), (128256, 4096), (57344, 8192), (8192, 28672)]


def problem(m: int, n: int, k: int, **changes: Any) -> Problem:
    made = Problem(m, n, k, (), f32, f32, bf16, ROWS, COLUMNS, elements=bf16, has_factor_boxes=True)
    return replace(made, **changes)


# The rule


@pytest.mark.parametrize("right", [ROWS, COLUMNS])
@pytest.mark.parametrize("m", [1, 2, 8, 9, 17, 40, 64])
def test_hopper_has_room_for_what_is_chosen(m: int, right: str):
    for n, k in [*LAYERS, (8, 64), (1000, 72)]:
        t = thin(HOPPER, problem(m, n, k, right=right))
        assert isinstance(t, Thin)
        assert m <= t.rows < m + 8
        assert t.columns % 8 == 0
        assert t.columns == 64 or right == COLUMNS
        assert 2 <= t.stages
        assert t.shared_bytes <= HOPPER.shared_bytes


def test_hopper_uses_tensor_cores_unless_for_one_row():
    assert isinstance(choose(HOPPER, problem(2, 4096, 4096)), Thin)
    assert isinstance(choose(HOPPER, problem(1, 4096, 4096, right=ROWS)), Thin)
    assert isinstance(choose(HOPPER, problem(1, 4096, 4096)), Vectors)


def test_all_multiprocessors_read_the_weights():
    for n, k in LAYERS:
        t = choose(HOPPER, problem(8, n, k))
        assert isinstance(t, Thin)
        assert -(-n // t.width) * t.parts >= 0.9 * HOPPER.multiprocessors


@pytest.mark.parametrize("right", [ROWS, COLUMNS])
def test_what_may_be_tried_has_room(right: str):
    for m, (n, k) in ((8, LAYERS[0]), (64, LAYERS[3]), (33, (8, 64))):
        p = problem(m, n, k, right=right)
        found = others(HOPPER, choose(HOPPER, p), p)
        assert len(found) > 2
        for t in found.values():
            assert isinstance(t, Thin)
            assert t.shared_bytes <= HOPPER.shared_bytes


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl", "metal", "hip:gfx942"])
def test_other_gpus_read_lines(target: str):
    for m in (1, 8):
        assert isinstance(choose(parse_target(target), problem(m, 4096, 4096)), Vectors)
    assert skinny(parse_target(target), problem(9, 4096, 4096)) is None


def test_what_tensor_cores_do_not_take():
    for changed in ({"elements": None}, {"elements": f32}, {"has_factor_boxes": False}):
        assert isinstance(skinny(HOPPER, problem(2, 4096, 4096, **changed)), Vectors)
    assert skinny(HOPPER, problem(65, 4096, 4096)) is None
    assert skinny(HOPPER, problem(2, 4096, 4096, left=COLUMNS)) is None


# The texts


def relu(v: Any, index: Any) -> Any:
    return max(v, 0.0)


def launches(a: str, b: str, target: Any, **options: Any) -> Any:
    biases = {"bias": cp.spec(options.pop("bias"))} if "bias" in options else {}
    specs = {"a": cp.spec(a), "b": cp.spec(b), **biases}
    return record(cp.kernels.matmul, specs, options, target)


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ("bf16[1,4096]", "bf16[4096,4096]", {}),
        ("f16[3,20,128]", "f16[3,128,264]", {"epilogue": relu}),
        ("bf16[61,128]", "bf16[128,264]", {"bias": "bf16[264]"}),
        ("bf16[7,128]", "bf16[128,264]", {"dtype": "f8e4m3"}),
    ],
)
def test_the_text_for_hopper_is_compiled(a: str, b: str, options: dict[str, Any]):
    require_package("cuda.bindings")
    (launch,) = launches(a, b, HOPPER, **options)
    assert launch.kernel.__name__ == "multiply_thin"
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    assert text.count("wgmma.mma_async") == 4 * launch.arguments["t"].pieces


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl", "metal"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "i8"])
def test_the_text_for_others_is_written(target: str, dtype: str):
    (launch,) = launches(f"{dtype}[2,300]", f"{dtype}[300,70]", parse_target(target))
    assert launch.kernel.__name__ == "multiply_vectors"
    text = launch.launcher.inspect(**launch.arguments, target=target, stage="source")
    assert "multiply_vectors" in text


# The portable kernel


VECTORS = ((1, 37, 1111), (3, 70, 515), (2, 9, 5))
KINDS = (("f4", "f4", f32), ("f2", "f2", f32), ("f8", "f8", f64), ("i1", "i4", i32))


@pytest.mark.parametrize(
    ("extents", "kind", "right"),  # all pairs
    [
        (extents, kind, (ROWS, COLUMNS)[(i + k) % 2])
        for i, extents in enumerate(VECTORS)
        for k, kind in enumerate(KINDS)
    ],
)
def test_vectors(extents: tuple[int, int, int], kind: Any, right: str):
    (m, n, k), (dtype, result, sums) = extents, kind
    numbers = RNG.integers(-7, 8, (m + n, k)).astype(dtype)
    a, b = numbers[:m], numbers[m:].T
    line = 16 // a.itemsize
    t = Vectors(m, 4 if right == COLUMNS else 2 * line, 64, line, 2, right, sums)
    out = np.full((m, n), 77, result)
    kernel = multiply_vectors.configure(plane_dim=32)[-(-n // t.columns), t.units]
    given = b.T if right == COLUMNS else np.ascontiguousarray(b)
    kernel(a=a, b=given, out=out, biases=(), extras=(), epilogue=None, t=t)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(out, exact.astype(result))


def test_vectors_in_stacks_with_what_follows():
    m, n, k = 2, 21, 100
    a, b = RNG.standard_normal((3, m, k)), RNG.standard_normal((3, n, k))
    bias, out = RNG.standard_normal((3, m, n)), np.full((3, m, n), np.nan)
    t = Vectors(m, 4, 64, 2, 2, COLUMNS, f64)
    kernel = multiply_vectors.configure(plane_dim=32)[3 * -(-n // t.columns), t.units]
    kernel(a=a, b=b, out=out, biases=(bias,), extras=(), epilogue=relu, t=t)
    expected = np.maximum(a @ b.swapaxes(-1, -2) + bias, 0)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


def test_f16_is_summed_in_f32():
    (launch,) = launches("f16[4,512]", "f16[512,64]", parse_target("opencl"))
    assert launch.arguments["t"].sums is f32
    assert launch.arguments["t"].line == 8


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", ml_dtypes.bfloat16, "i4"])
@pytest.mark.parametrize("layout", ["rows", "columns", "apart"])
def test_few_columns_of_long_rows(dtype: Any, layout: str):
    """Rows are multiplied as they lie; columns are copied where they are not dense."""
    rng = np.random.default_rng()
    for m, k, n in ((17, 128, 1), (100, 300, 3), (1000, 131, 8), (33, 2048, 5)):
        a = (8 * rng.standard_normal((m, k))).astype(dtype)
        b = (8 * rng.standard_normal((k, n))).astype(dtype)
        bias = (8 * rng.standard_normal(n)).astype(dtype)
        if layout == "columns":
            b = np.ascontiguousarray(b.T).T
        elif layout == "apart":
            b = np.repeat(b, 2, 1)[:, ::2]
        exact = a.astype("f8") @ b.astype("f8") + bias.astype("f8")
        largest = abs(a.astype("f8")) @ abs(b.astype("f8")) + abs(bias.astype("f8"))
        rounding = {2: 2.0**-8 if a.dtype.itemsize == 2 and dtype != "f2" else 2.0**-11}
        bound = (k + 4) * (2.0**-53 if dtype == "f8" else 2.0**-24) * largest
        bound = bound + rounding.get(a.dtype.itemsize, 0.0) * abs(exact)
        out = Guarded((m, n), a.dtype)
        kernels.matmul(a, b, bias=bias, out=out.array)
        assert out.is_fenced
        assert (abs(out.array.astype("f8") - exact) <= bound).all()
