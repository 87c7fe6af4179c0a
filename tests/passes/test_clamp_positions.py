"""Clamped positions against Python's own minima and maxima; `clamp_positions`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.passes.clamp_positions import clamp_positions

PLACES = (
    "max({i} - {d}, 0)",
    "min({i} + {d}, {n} - 1)",
    "min(max({i} + {s}, 0), {n} - 1)",
    "max(min({i} + {s}, {n} - 1), 0)",
    "max(0, min({n} - 1, {i} + {s}))",
    "{i} - {d} if {i} >= {d} else 0",
    "{i} + {d} if {i} + {d} < {n} else {n} - 1",
    "min(max({i} + {s}, {c}), {n} - 1)",
    "min(abs({i} - {d}), {n} - 1)",
    "max(min({i} + {s}, {n} - 1), 0) if {i} > {c} else max({i} - 1, 0)",
    "({i} + {d}) % {n}",
)


def made_place(chance: random.Random, i: str, n: str) -> str:
    d = chance.randrange(4)
    numbers = {"d": d, "s": chance.choice((-d, d)), "c": chance.randrange(3)}
    return chance.choice(PLACES).format(i=i, n=n, **numbers).replace("+ -", "- ")


def made_terms(chance: random.Random, axes: tuple[tuple[str, str], ...]) -> str:
    terms: list[str] = []
    for _ in range(chance.randrange(1, 5)):
        places = [made_place(chance, *a) if chance.random() < 0.8 else a[0] for a in axes]
        terms.append(f"{chance.randrange(1, 9)} * x[{', '.join(places)}]")
    return " + ".join(terms)


def compiled(text: str, name: str, tmp_path: Any) -> Any:
    """A function of a file, whose source kernels are made from."""
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    space: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), space)
    return space[name]


def reference(terms: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for at in np.ndindex(x.shape):
        numbers = dict(zip("ij" if x.ndim == 2 else "j", at, strict=True))
        extents = dict(zip("hw" if x.ndim == 2 else "w", x.shape, strict=True))
        # A place where the limits cross, as 1 > w - 1, is beyond the array.
        out[at] = eval(terms, {"x": x, **numbers, **extents})
    return out


TWO = """import cubepy as cp
@cp.cube
def kernel(x, out):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    h, w = x.shape
    if i < h and j < w:
        out[i, j] = {terms}
"""
LATE = """import cubepy as cp
@cp.cube
def kernel(x, out):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    h, w = x.shape
    if i >= h or j >= w:
        return
    if i > 0 and j < w - 1:
        out[i, j] = {terms}
    else:
        out[i, j] = {terms}
"""
FLAT = """import cubepy as cp
@cp.cube
def kernel(x, out):
    j, w = cp.ABSOLUTE_POS, x.shape[0]
    if j < w:
        out[j] = {terms}
"""
DIVIDED = """import cubepy as cp
@cp.cube
def kernel(x, out):
    h, w = x.shape
    if cp.ABSOLUTE_POS < h * w:
        i, j = divmod(cp.ABSOLUTE_POS, w)
        out[i, j] = {terms}
"""


@pytest.mark.parametrize("seed", range(48))
def test_random_places(seed: int, tmp_path: Any) -> None:
    chance = random.Random(seed)
    form = (TWO, LATE, FLAT, DIVIDED)[seed % 4]
    axes = (("j", "w"),) if form is FLAT else (("i", "h"), ("j", "w"))
    terms = made_terms(chance, axes)
    kernel = compiled(form.format(terms=terms), "kernel", tmp_path)
    for extents in ((3, 3), (5, 4), (4, 70), (3, 300), (33, 7)):
        x = np.random.default_rng(seed).integers(0, 99, extents[2 - len(axes) :], dtype=np.int32)
        wanted = reference(terms, x)
        for choice in ("auto", True, False):
            out = np.full_like(x, -1)
            kernel.configure(vectorise=choice).over(x)(x, out)
            np.testing.assert_array_equal(out, wanted, terms)


def test_loops_are_cut_where_a_place_is_chosen() -> None:
    @cp.cube
    def smoothed(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
        h, w = x.shape
        if i < h and j < w:
            out[i, j] = x[i, max(j - 1, 0)] + x[i, min(j + 1, w - 1)]

    @cp.cube
    def row(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        j, w = cp.ABSOLUTE_POS, x.shape[0]
        if j < w:
            out[j] = x[min(max(j - 1, 0), w - 1)] + x[j + 1 if j + 1 < w else w - 1]

    for kernel, shape in ((smoothed, "f32[40,500]"), (row, "f32[5000]")):
        text = kernel.over(64).inspect(shape, shape, target="cpu:x86-64-v4", stage="llvm")
        assert "middle" in text and "smin.i64" not in text.partition("middle:")[2]


def test_kernels_without_clamps_stay_as_they_are() -> None:
    @cp.cube
    def other(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = min(x[i], 3) + x[min(x.size - 1, 7)]

    kernel = cp.from_ir(other.over(9).inspect("i32[9]", "i32[9]", stage="ir")).ir
    assert clamp_positions(kernel, "all") is kernel
