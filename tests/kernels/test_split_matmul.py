"""Products of f32 by matrix units for bf16: bounds of errors, and numbers that have no parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.matmul import strategies
from cubepy.kernels.matmul.problem import Problem
from cubepy.kernels.matmul.split import Split
from cubepy.lang.annotations import spec
from cubepy.runtimes.cpu.device import cpu_device
from cubepy.targets import parse_target

UNIT = 2.0**-24
LEAST = 2.0**-149
HAS_UNIT = {"amx-tile", "amx-bf16"} <= cpu_device().target.features
needs_unit = pytest.mark.skipif(not HAS_UNIT, reason="no AMX here")


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> list[Split]:
    """All products of f32 are split, in several steps along k and with several cubes."""
    made: list[Split] = []

    def choose(target: Any, problem: Problem) -> Split:
        made.append(Split(64, 64, problem.left, problem.right, problem.is_finished))
        return made[-1]

    monkeypatch.setattr(strategies, "_faster", choose)
    return made


def matrix(*shape: int, layout: str = "rows", scale: int = 0) -> np.ndarray:
    """Random numbers times a power of 2, that lie in memory as asked."""
    if layout == "columns":
        return matrix(*shape[:-2], shape[-1], shape[-2], scale=scale).swapaxes(-1, -2)
    if layout == "steps":
        return matrix(*shape[:-1], 2 * shape[-1], scale=scale)[..., ::2]
    with np.errstate(over="ignore"):
        return np.ldexp(np.random.default_rng().standard_normal(shape), scale).astype(np.float32)


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Assert the bound of `matmul`, and that what is not finite is what multiply-adds make."""
    with np.errstate(all="ignore"):
        exact = np.matmul(a.astype("f8"), b.astype("f8"))
        largest = np.matmul(abs(a).astype("f8"), abs(b).astype("f8"))
    k = a.shape[-1]
    finite = largest < 2.0**127
    error = abs(found[finite] - exact[finite])
    assert (error <= k * UNIT * largest[finite] + k * LEAST).all()
    special = ~np.isfinite(largest)
    assert np.array_equal(found[special], exact[special].astype("f4"), equal_nan=True)


@needs_unit
@pytest.mark.parametrize("left", ["rows", "columns", "steps"])
@pytest.mark.parametrize("right", ["rows", "columns", "steps"])
def test_layouts_and_odd_extents(left: str, right: str, splits: list[Split]):
    for m, k, n in ((17, 32, 33), (61, 350, 143), (96, 128, 64), (130, 65, 31), (33, 257, 1)):
        a, b = matrix(m, k, layout=left), matrix(k, n, layout=right)
        out = np.full((m, n), np.nan, np.float32)
        check(cp.kernels.matmul(a, b, out=out), a, b)
    assert splits


@needs_unit
def test_stacks_biases_and_epilogues(splits: list[Split]):
    a, b, bias = matrix(3, 40, 150), matrix(150, 70), matrix(70)
    check(np.asarray(cp.kernels.matmul(a, b)), a, b)
    found = cp.kernels.matmul(a, b, bias=bias, epilogue=lambda v, index: v * 2)
    exact = 2 * (a.astype("f8") @ b + bias)
    assert (abs(found - exact) <= 400 * UNIT * (abs(a) @ abs(b) + abs(bias))).all()
    assert all(t.is_finished for t in splits[-1:])


@needs_unit
@pytest.mark.parametrize("layouts", ["rows rows", "columns columns"])
@pytest.mark.parametrize("total", [-290, -200, -140, -120, -100, -80, 0, 60, 100, 115, 130, 240])
def test_the_bound_holds_near_the_ends_of_the_range(total: int, layouts: str, splits: list[Split]):
    """Products of about 2**total; the unit alone would lose digits or make infinities."""
    left, right = layouts.split()
    for first in {max(-145, total - 124), total // 2, min(124, total + 145)}:
        a = matrix(40, 100, layout=left, scale=first)
        b = matrix(100, 50, layout=right, scale=total - first)
        check(cp.kernels.matmul(a, b), a, b)


@needs_unit
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-45, -1e-38, 3.4028235e38, -0.0])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_one_number_is_special(value: float, layout: str, splits: list[Split]):
    rng = np.random.default_rng()
    for m, k, n in ((40, 70, 100), (33, 200, 130)):
        for where in range(2):
            factors = matrix(m, k, layout=layout), matrix(k, n, layout=layout)
            x = factors[where]
            x[rng.integers(x.shape[0]), rng.integers(x.shape[1])] = value
            check(cp.kernels.matmul(*factors), *factors)
    a, b = np.full((40, 70), value, np.float32), np.zeros((70, 40), np.float32)
    check(cp.kernels.matmul(a, b), a, b)


@needs_unit
def test_numbers_of_very_different_size(splits: list[Split]):
    """Each in the range of its own, some rows out of it."""
    rng = np.random.default_rng()
    for spread in (10, 40, 60, 120):
        a, b = (
            np.ldexp(matrix(70, 70), rng.integers(-spread, spread, (70, 70))).astype("f4")
            for _ in range(2)
        )
        check(cp.kernels.matmul(a, b), a, b)


@needs_unit
@pytest.mark.parametrize(("left", "right"), [(24, 0), (20, 3), (16, 7), (12, 11), (8, 8), (1, 23)])
def test_integers_are_exact(left: int, right: int, splits: list[Split]):
    """While a product has no more than 24 bits, one at a time."""
    rng = np.random.default_rng()
    k = 64
    a = np.zeros((50, k), np.float32)
    where = rng.integers(k, size=50)
    a[np.arange(50), where] = rng.integers(-(2**left), 2**left + 1, 50)
    b = rng.integers(-(2**right), 2**right + 1, (k, 60)).astype(np.float32)
    assert (cp.kernels.matmul(a, b) == (a.astype("i8") @ b.astype("i8"))).all()


@needs_unit
def test_errors_are_no_larger_than_those_of_multiply_adds(splits: list[Split]):
    a, b = matrix(300, 1000), matrix(1000, 200)
    exact = a.astype("f8") @ b.astype("f8")
    errors = [abs(cp.kernels.matmul(a, b, precision=p) - exact).mean() for p in (None, "exact")]
    assert errors[0] <= errors[1]


@needs_unit
def test_random_extents(splits: list[Split]):
    rng = np.random.default_rng()
    for _ in range(30):
        m, k, n = (int(e) for e in rng.integers((17, 32, 1), (150, 300, 150)))
        layouts = rng.choice(["rows", "columns", "steps"], 2)
        a, b = matrix(m, k, layout=layouts[0]), matrix(k, n, layout=layouts[1])
        if rng.random() < 0.3:
            a[rng.integers(m)] *= np.float32(1e-36)
        out = np.full((m, n), np.nan, np.float32)
        check(cp.kernels.matmul(a, b, out=out), a, b)


def test_split_where_it_pays():
    for extents, precision, is_split in (
        ((512, 512, 512), None, True),
        ((512, 512, 512), "exact", False),
        ((64, 64, 64), None, False),
        ((4096, 16, 4096), None, False),
    ):
        m, k, n = extents
        specs = {"a": spec(f"f32[{m},{k}]"), "b": spec(f"f32[{k},{n}]")}
        for name, has_unit in (("sapphirerapids", True), ("x86-64-v4", False)):
            target = parse_target(f"cpu:{name}")
            (launch,) = record(cp.kernels.matmul, specs, {"precision": precision}, target)
            text = launch.launcher.inspect(**launch.arguments, target=f"cpu:{name}")
            assert ("tdpbf16ps" in text) == (has_unit and is_split)
