"""Tiles of products on GPUs: which are chosen, what portable ones compute, what NVRTC makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import DType, bf16, f16, f32, f64, i8, i32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.matmul import variants
from cubepy.kernels.matmul.fragments import Fragments
from cubepy.kernels.matmul.grids import adders_for, copied_first, fragments, tiles
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem, result_of, sums_of
from cubepy.kernels.matmul.steps import add_many_parts
from cubepy.kernels.matmul.strategies import choose, parts_of_k
from cubepy.kernels.matmul.tiles import Tiles, multiply_tiles
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target, parse_target
from tests.optional import require_package

AMPERE = cuda_target("sm_80")
HOPPER = cuda_target("sm_90a")
OLD = cuda_target("sm_75")
LAYOUTS = [(left, right) for left in (ROWS, COLUMNS) for right in (ROWS, COLUMNS)]


def problem(m: int, n: int, k: int, dtype: DType = f32, **changes: Any) -> Problem:
    sums = sums_of(dtype)
    runs = 16 // dtype.itemsize, 16 // dtype.itemsize
    made = Problem(m, n, k, (), sums, sums, result_of(dtype), ROWS, ROWS, dtype=dtype, runs=runs)
    return replace(made, elements=dtype, **changes)


# What is computed

SMALL = Tiles(1, 1, 2, 4, 8, 2, ROWS, ROWS, 1, 1, f32, f32, unrolled=2)


def product(t: Tiles, m: int, k: int, n: int, device: str, dtype: str = "f4") -> None:
    """A stack of two products with a bias, against NumPy in f64."""
    rng = np.random.default_rng()
    a, b = (
        rng.standard_normal((2, m, k)).astype(dtype),
        rng.standard_normal((2, k, n)).astype(dtype),
    )
    bias = np.broadcast_to(rng.standard_normal(n).astype(dtype), (2, m, n))
    x = a if t.left == ROWS else np.ascontiguousarray(a.swapaxes(1, 2))
    y = b if t.right == ROWS else np.ascontiguousarray(b.swapaxes(1, 2))
    out = np.full((2, m, n), np.nan, dtype)
    count = 2 * -(-m // t.height) * -(-n // t.width)
    launcher = multiply_tiles.configure(device=device)[count, t.units]
    launcher(x, y, out, (bias,), (), None, t)
    exact = a.astype("f8") @ b.astype("f8") + bias
    largest = abs(a).astype("f8") @ abs(b).astype("f8") + abs(bias)
    assert (abs(out - exact) <= (k + 2) * np.finfo(dtype).eps * largest).all()


@pytest.mark.parametrize(("left", "right"), LAYOUTS)
def test_products_in_all_layouts(left: str, right: str):
    t = replace(SMALL, left=left, right=right)
    product(t, 11, 19, 37, "interpreter")
    product(replace(t, down=2, rows=4, depth=16, unrolled=4), 45, 33, 30, "cpu")


@pytest.mark.parametrize(("left", "right"), LAYOUTS)
def test_products_of_runs(left: str, right: str):
    t = replace(SMALL, rows=4, left=left, right=right, left_copy=4, right_copy=2)
    product(t, 20, 24, 36, "cpu")


def test_products_of_other_extents():
    product(SMALL, 1, 1, 1, "cpu")
    product(replace(SMALL, rows=1, across=2), 3, 40, 70, "cpu")
    product(replace(SMALL, factors=f64, sums=f64, rows=4), 21, 30, 41, "cpu", "f8")


@pytest.mark.parametrize("share", [1, 2, 8, 16])
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_sums_of_parts(device: str, share: int):
    rng = np.random.default_rng()
    parts, bias = rng.standard_normal((19, 5, 21)), rng.standard_normal((5, 21))
    out = np.full((5, 21), np.nan)
    kernel = add_many_parts.configure(plane_dim=32, device=device)
    kernel.over(-(-30 // (32 // share)) * 32)(parts, out, (bias,), (), None, 4, share)
    np.testing.assert_allclose(out, parts.sum(0) + bias, 1e-13, 1e-13)


def test_few_results_are_added_by_many_units():
    target = cuda_target("sm_90a")
    assert adders_for(target, 128 * 128 // 4, 256) == 16
    assert adders_for(target, 128 * 4096 // 4, 4) == 1
    assert adders_for(target, 1 << 20, 256) == 1


# What is chosen


def test_tensor_cores_take_what_they_can():
    for dtype in (f16, bf16, i8, f64):
        assert isinstance(choose(AMPERE, problem(512, 512, 512, dtype)), Fragments)
        assert isinstance(choose(OLD, problem(512, 512, 512, dtype)), Tiles)
    for dtype in (f32, i32):
        assert isinstance(choose(AMPERE, problem(512, 512, 512, dtype)), Tiles)
    rounded = choose(AMPERE, problem(512, 512, 512, precision="tf32"))
    assert isinstance(rounded, Fragments) and rounded.elements == "tf32"
    for dtype, kind in ((f16, Tiles), (f64, Fragments)):
        exact = replace(problem(512, 512, 512, dtype), elements=None)
        assert isinstance(choose(AMPERE, exact), kind)


@pytest.mark.parametrize("target", [AMPERE, OLD, parse_target("opencl"), cuda_target("sm_90a")])
@pytest.mark.parametrize("dtype", [f16, f32, f64, i8])
@pytest.mark.parametrize(("left", "right"), LAYOUTS)
@pytest.mark.parametrize("runs", [(1, 1), (2, 16)])  # of one byte each
def test_all_tiles_fit_and_can_be_copied(
    target: Any, dtype: DType, left: str, right: str, runs: tuple[int, int]
):
    seen = tuple(max(1, run // dtype.itemsize) for run in runs)
    p = problem(512, 512, 512, dtype, left=left, right=right, runs=seen)
    found = [*tiles(target, p), *fragments(target, p)]
    assert found
    for t in found:
        assert t.shared_bytes <= target.shared_bytes
        assert t.parts % t.unrolled == t.unrolled % 2 == 0
        for tile, run in ((t.left_tile, p.runs[0]), (t.right_tile, p.runs[1])):
            assert run % tile.copy == 0 and tile.copy * dtype.itemsize <= 16
            assert tile.seen[1] % (tile.copy * tile.lanes) == 0 and t.units % tile.lanes == 0
            assert not tile.is_async or tile.copy * dtype.itemsize >= 4
            assert not (tile.is_async and tile.turns) or tile.copy == 1


def test_small_products_are_cut_for_all_multiprocessors():
    large, small = choose(AMPERE, problem(8192, 8192, 8192)), choose(AMPERE, problem(512, 512, 512))
    assert isinstance(large, Tiles) and isinstance(small, Tiles)
    assert (large.height, large.width) == (128, 256)
    assert small.height * small.width <= 64 * 64
    low = choose(AMPERE, problem(16, 4096, 4096))
    assert isinstance(low, Tiles) and low.height <= 16


def test_large_factors_are_transposed_first():
    for m, n, right, turns in (
        (4096, 4096, COLUMNS, (True, True)),
        (4096, 4096, ROWS, (True, False)),
        (8192, 2048, COLUMNS, (False, True)),
        (512, 4096, COLUMNS, (True, False)),
        (512, 512, COLUMNS, (False, False)),
    ):
        p = problem(m, n, 4096, right=right)
        assert copied_first(p, choose(AMPERE, p)) == turns
    p = problem(4096, 4096, 4096, left=COLUMNS)
    assert not any(copied_first(p, choose(AMPERE, p)))
    for p, target in (
        (problem(4096, 4096, 4096, f16, right=COLUMNS), AMPERE),
        (problem(4096, 4096, 4096, right=COLUMNS), OLD),
        (problem(4096, 4096, 4096, right=COLUMNS, batch=(2,)), AMPERE),
    ):
        assert not any(copied_first(p, choose(target, p)))


def test_factors_whose_rows_are_no_whole_lines_are_copied_first():
    for runs, copies in (((1, 1), (True, True)), ((4, 2), (False, True)), ((4, 4), (False, False))):
        p = problem(4095, 4097, 4096, left=COLUMNS, runs=runs)
        assert copied_first(p, choose(AMPERE, p)) == copies
        doubles = replace(
            problem(4095, 4097, 4096, f64), left=COLUMNS, runs=tuple(r // 2 or 1 for r in runs)
        )
        assert copied_first(doubles, choose(AMPERE, doubles)) == copies
    small = problem(4096, 512, 4096, left=COLUMNS, runs=(1, 1))
    assert copied_first(small, choose(AMPERE, small)) == (False, True)


@pytest.mark.parametrize(
    ("extent", "options", "expected"),
    [
        (3201, {}, ["transpose_shared", "align", "multiply_tiles"]),
        (3204, {}, ["transpose_shared", "multiply_tiles"]),
        (3001, {"precision": "tf32"}, ["align", "transpose_shared", "multiply_by_elements"]),
        (3004, {"precision": "tf32"}, ["transpose_shared", "multiply_pipelined"]),
        (1001, {"precision": "tf32"}, ["multiply_fragments"]),
    ],
)
def test_copies_and_what_multiplies_them(extent: int, options: dict[str, Any], expected: list[str]):
    text = spec(f"f32[{extent},{extent}]")
    launches = record(cp.kernels.matmul, {"a": text, "b": text}, options, cuda_target("sm_90a"))
    assert [launch.launcher.kernel.__name__ for launch in launches] == expected
    t = launches[-1].arguments["t"]
    if isinstance(t, Tiles):
        assert (t.left_copy, t.right_copy) == (4, 4)


def test_what_is_transposed_first_is_not_transposed_again():
    a, b = spec("f32[4096,4096]"), spec("f32[4096,4096]")
    launches = record(cp.kernels.matmul, {"a": a, "b": b}, {}, AMPERE)
    assert [launch.launcher.kernel.__name__ for launch in launches][1:] == ["multiply_tiles"]


def test_few_results_are_sums_of_parts():
    assert parts_of_k(AMPERE, problem(4096, 4096, 4096)) == 1
    assert parts_of_k(AMPERE, problem(1, 4096, 4096)) == 1  # no tiles
    assert parts_of_k(AMPERE, problem(64, 64, 1 << 14)) >= 16
    assert parts_of_k(AMPERE, problem(64, 64, (1 << 14) + 1)) == 1
    assert parts_of_k(AMPERE, problem(64, 64, 64)) == 1
    a, b = spec("f32[64,4096]"), spec("f32[4096,64]")
    launches = record(cp.kernels.matmul, {"a": a, "b": b, "bias": spec("f32[64]")}, {}, AMPERE)
    assert len(launches) == 2
    for launch in launches:
        assert launch.launcher.inspect(**launch.arguments, target="cuda:sm_80")


def test_the_autotuner_may_try_other_tiles():
    for dtype in (f32, f16):
        p = problem(1024, 1024, 1024, dtype)
        first = choose(AMPERE, p)
        others = variants.others(AMPERE, first, p)
        assert len(others) >= 4 and first not in others.values()


# What becomes of it


@pytest.mark.parametrize(
    ("dtype", "extent", "words"),
    [
        ("f32", 64, ("cp.async.cg", "fma.rn.f32")),
        ("bf16", 64, ("cp.async.cg", "ldmatrix", "mma.sync.aligned.m16n8k16.row.col.f32.bf16")),
        ("f16", 63, ("ldmatrix", "mma.sync.aligned.m16n8k16.row.col.f32.f16")),
        ("i8", 64, ("ldmatrix", "mma.sync.aligned.m16n8k32.row.col.s32.s8")),
        ("f64", 64, ("cp.async.cg", "mma.sync.aligned.m8n8k4.row.col.f64")),
    ],
)
def test_machine_code(dtype: str, extent: int, words: tuple[str, ...]):
    require_package("cuda.bindings")
    text = spec(f"{dtype}[{extent},{extent}]")
    (launch,) = record(cp.kernels.matmul, {"a": text, "b": text}, {}, AMPERE)
    ptx = launch.launcher.inspect(**launch.arguments, target="cuda:sm_80", stage="ptx")
    assert all(word in ptx for word in words)


def test_rounded_factors_are_taken_as_tf32():
    text = spec("f32[64,64]")
    options = {"precision": "tf32"}
    (launch,) = record(cp.kernels.matmul, {"a": text, "b": text}, options, AMPERE)
    source = launch.launcher.inspect(**launch.arguments, target="cuda:sm_80")
    assert "tf32.tf32.f32" in source


def test_a_long_k_of_few_columns_is_cut():
    """Where most multiprocessors would have none; lengths are whole lines."""
    for t in (f32, bf16):
        row = problem(1, 1, 1 << 20, t, right=COLUMNS)
        assert parts_of_k(HOPPER, row) == 1 << 8
        assert parts_of_k(HOPPER, replace(row, k=(1 << 20) - 64)) == 1
        assert parts_of_k(HOPPER, replace(row, n=4096)) == 1
        assert parts_of_k(HOPPER, replace(row, k=4096)) == 1
        few = replace(row, m=4, n=16)
        parts = parts_of_k(HOPPER, few)
        assert parts > 8 and few.k % (parts * 64) == 0
