"""Products of few rows on CPUs, by strips and by streams, against f64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels
from cubepy.ir.types import f32, f64, i8, i32
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem
from cubepy.kernels.matmul.strategies import choose, strip_cut
from cubepy.kernels.matmul.streams import Streams, multiply_streams
from cubepy.kernels.matmul.strips import Strips, multiply_strips
from cubepy.kernels.matmul.variants import others
from cubepy.targets import parse_target
from tests.guarded import Guarded

EXTENTS = ((1, 1, 1), (2, 0, 5), (3, 7, 16), (5, 40, 33), (16, 9, 70), (17, 130, 48), (8, 33, 129))
"""Rows, elements of k, columns."""
TARGET = parse_target("cpu:znver4")


def moved(v: Any, index: Any, by: Any) -> Any:
    return v * 2 + by[index]


def laid(x: np.ndarray, dense: str) -> np.ndarray:
    """The factor, or its transpose, as a kernel takes one that is dense along `dense`."""
    return x if dense == ROWS else np.ascontiguousarray(x.T)


def near(found: np.ndarray, a: np.ndarray, b: np.ndarray, more: Any = 0, times: Any = 1) -> None:
    """Assert that sums of f32, which may be added in any order, lie where they can."""
    exact = (a.astype("f8") @ b.astype("f8")) * times + more
    largest = (abs(a).astype("f8") @ abs(b).astype("f8")) * times + abs(more)
    assert (abs(found - exact) <= (a.shape[-1] + 4) * 2.0**-24 * largest).all()


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("left", [ROWS, COLUMNS])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_strips(draw: Any, extents: tuple[int, int, int], left: str, device: str):
    m, k, n = extents
    a, b, by = (draw.array(shape, "f4") for shape in ((m, k), (k, n), (m, n)))
    bias = draw.array((1, n), "f4")
    biases = (np.broadcast_to(bias, (m, n)),)
    for rows, lines, line, down, across in ((1, 4, 16, 1, 1), (8, 2, 16, 2, 1), (3, 3, 8, 1, 2)):
        t = Strips(rows, lines, line, left, f32)
        out, (height, width) = Guarded((m, n)), (down * rows, across * t.step)
        cubes = -(-m // height) * -(-n // width)
        launch = multiply_strips.configure(device=device)[cubes, 1]
        launch(laid(a, left), b, out.array, biases, (by, (m, n)), height, width, moved, t)
        assert out.is_fenced
        near(out.array, a, b, 2 * bias.astype("f8") + by, 2)


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_streams(draw: Any, extents: tuple[int, int, int]):
    m, k, n = extents
    a, b = draw.array((m, k), "f4"), draw.array((k, n), "f4")
    for rows, lines, steps, width, ahead in ((1, 1, 8, 64, 0), (8, 2, 8, 32, 8), (3, 4, 4, 64, 0)):
        t = Streams(rows, -(-m // rows), 16, lines, steps, width, ahead, f32)
        out = Guarded((m, n))
        multiply_streams[-(-n // width), 1](a, b, out.array, (), (), None, t)
        assert out.is_fenced
        near(out.array, a, b)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i1", "u1", "bfloat16"])
@pytest.mark.parametrize("layouts", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("extents", [(3, 50, 20), (13, 200, 16), (40, 150, 40), (200, 300, 7)])
def test_layouts_and_dtypes(draw: Any, extents: tuple[int, int, int], layouts: str, dtype: str):
    m, k, n = extents
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    a, b = (abs(draw.array((2, *shape), "f4")).astype(kind) for shape in ((m, k), (k, n)))
    seen = [
        x if layout == "r" else np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
        for x, layout in zip((a, b), layouts, strict=True)
    ]
    expected = a.astype("f8") @ b.astype("f8")
    for one, two, exact in ((*seen, expected), (seen[0][0], seen[1][1], a[0].astype("f8") @ b[1])):
        found = kernels.matmul(one, two).astype("f8")
        tolerance = {"f2": 2e-3, "bfloat16": 1e-2}.get(dtype, 1e-6)
        np.testing.assert_allclose(found, exact.astype("f8"), tolerance, 1e-6)


def problem(m: int, k: int, n: int, kind: Any = f32, left: str = ROWS, right: str = ROWS) -> Any:
    return Problem(m, n, k, (), kind, kind, kind, left, right, elements=kind, dtype=kind)


@pytest.mark.parametrize(
    ("given", "is_strips"),
    [
        (problem(1, 4096, 16), False),
        (problem(8, 4096, 64), True),
        (problem(16, 4096, 256, left=COLUMNS), True),
        (problem(16, 4096, 4096), False),
        (problem(4, 10**6, 32), True),
        (problem(4, 100, 32, right=COLUMNS), False),
        (problem(200, 2000, 32), True),
        (problem(200, 2000, 64, f64), False),
        (problem(200, 10**6, 32), False),
        (problem(200, 2000, 100), False),
        (problem(7, 300, 40, i32), True),
        (replace(problem(200, 2000, 32), lies_apart=True), False),
        (replace(problem(7, 300, 40), lies_apart=True), True),
        (problem(7, 300, 40, i8), True),
        (problem(7, 300, 40, i8, left=COLUMNS), False),
    ],
    ids=str,
)
def test_strips_are_chosen_where_a_cache_holds_the_right_factor(given: Problem, is_strips: bool):
    assert isinstance(choose(TARGET, given), Strips) is is_strips


def test_matrix_units_keep_what_they_took():
    target = parse_target("cpu:sapphirerapids")
    for given in (problem(2000, 512, 64), problem(16, 512, 64, left=COLUMNS)):
        assert not isinstance(choose(target, given), Strips)
    assert isinstance(choose(target, problem(16, 512, 64)), Strips)


@pytest.mark.parametrize("target", ["cpu:znver4", "cpu:x86-64-v3", "cpu:apple-m1"])
@pytest.mark.parametrize("m", [2, 5, 8, 13, 16])
def test_registers_hold_the_sums(target: str, m: int):
    t = choose(parse_target(target), problem(m, 512, 64))
    assert isinstance(t, Strips)
    assert t.rows * t.lines + t.lines < (24 if target != "cpu:x86-64-v3" else 16)
    assert all(isinstance(x, Strips) for x in others(TARGET, t, problem(m, 512, 64)).values())


def test_cubes_are_worth_their_start(draw: Any):
    target, pick = replace(TARGET, cores=4), draw.pick.randint
    for _ in range(50):
        p = problem(pick(2, 16), pick(1, 5000), pick(1, 200))
        t = choose(target, p)
        assert isinstance(t, Strips)
        height, width = strip_cut(target, p, t)
        assert height % t.rows == 0 and width % t.step == 0
        cubes = -(-p.m // height) * -(-p.n // width)
        assert cubes == 1 or (cubes <= 8 and p.work >= 1 << 17)
