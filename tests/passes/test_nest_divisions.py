"""Divisions of positions in a nest, and the loops over rows that they make possible.

Programs are made at random, of the ways in which users find the place of a unit in an array; Python
computes what they give. `CUBEPY_SOAK=2000 pytest tests/passes/test_nest_divisions.py` makes more.
"""

from __future__ import annotations

import linecache
import os
import random
from typing import Any

import numpy as np
import pytest

import cubepy as cp

PROGRAMS = int(os.environ.get("CUBEPY_SOAK", "28"))
POSITIONS = (
    *("cp.ABSOLUTE_POS",) * 3,
    "cp.ABSOLUTE_POS_X",
    "cp.i32(cp.ABSOLUTE_POS)",
    "cp.i64(cp.u32(cp.ABSOLUTE_POS_X))",
    "cp.CUBE_POS_X * cp.CUBE_DIM_X + cp.UNIT_POS_X",
    "cp.UNIT_POS + cp.CUBE_DIM * cp.CUBE_POS",
)
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 14, 16, 20, 56, 64, 65)


class _Program:
    """A kernel that computes parts of its position, and stores them all."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lines: list[str] = []
        self._given = [self._random.choice(("shape", "number", "argument")) for _ in range(3)]
        """Where the kernel has each extent from."""
        self.extents = [self._random.choice(EXTENTS) for _ in range(3)]
        self.position = self._random.choice(POSITIONS)
        self.argument_type = self._random.choice(("cp.i64", "cp.i32"))
        self.count = 0
        self._names = ["i"]
        for _ in range(self._random.randint(2, 7)):
            self._step()
        self.shown = self._names[1:]

    def _extent(self, k: int) -> str:
        how = self._given[k]
        return str(self.extents[k]) if how == "number" else f"{how[0]}{k}"

    def _divisor(self) -> str:
        """A product of extents: mostly of the inner ones."""
        choice = self._random.random()
        a, b, c = (self._extent(k) for k in (2, 1, 0))
        if choice < 0.35:
            return a
        if choice < 0.55:
            return b
        if choice < 0.8:
            return f"({a} * {b})" if self._random.random() < 0.5 else f"({b} * {a})"
        if choice < 0.9:
            return f"({a} * {b} * {c})"
        return str(self._random.choice((2, 3, 4, 6, 8, 12, 64)))

    def _step(self) -> None:
        """One more name, which holds a part of one before."""
        recent = self._random.choice(self._names[-3:])
        d, n = self._divisor(), f"v{len(self._names)}"
        form = self._random.choice((*("//", "%") * 2, "minus", "divmod", "if", "plus", "moved"))
        if form in ("//", "%"):
            self._lines.append(f"{n} = {recent} {form} {d}")
        elif form == "minus":
            self._lines.append(f"{n} = {recent} - {recent} // {d} * {d}")
        elif form == "divmod":
            self._lines.append(f"{n}, r{n} = divmod({recent}, {d})")
            self._names.append(f"r{n}")
        elif form == "moved":
            c = self._random.choice((0, 1, 1, 2, 5, 60))
            how = self._random.choice((f"+ {c}", f"- {c}", f"+ {c} + {d}", f"- {c} + {d}"))
            self._lines.append(f"{n} = ({recent} % {d} {how}) % {d}")
        elif form == "plus":
            self._lines.append(f"{n} = {recent} + {self._random.randint(-2, 2)}")
        else:
            self._lines += [f"{n} = {recent} % {d}", f"if {n} > {self._random.randint(0, 9)}:"]
            self._lines += [f"    {n} = {recent} // {d} + {recent} % {self._divisor()}"]
        self._names.append(n)

    @property
    def text(self) -> str:
        """The kernel, as Python also runs it with a position."""
        arguments = ", ".join(f"a{k}: {self.argument_type}" for k in range(3))
        lines = [f"def kernel(x, {arguments}, o):", "    s0, s1, s2 = x.shape"]
        lines += ["    i = position()", "    if i < o.shape[0]:"]
        lines += [f"        {line}" for line in self._lines]
        lines += [f"        o[i, {k}] = {name}" for k, name in enumerate(self.shown)]
        return "\n".join(lines) + "\n"

    def kernel(self, position: str, **names: Any) -> Any:
        """The function, with the position that a unit has."""
        text = self.text.replace("position()", position)
        file = f"<nest {id(self)} {position}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        namespace = {"cp": cp, **names}
        exec(compile(text, file, "exec"), namespace)
        return namespace["kernel"]


def _expected(program: _Program, x: Any, units: int) -> Any:
    places: Any = iter(range(units))
    function = program.kernel("next(places)", places=places)
    expected = np.zeros((units, len(program.shown)), np.int64)
    for _ in range(units):
        function(x, *program.extents, expected)
    return expected


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_parts_of_positions(seed: int):
    program = _Program(seed)
    x = np.zeros(program.extents, np.float32)
    units = min(x.size, 700) + seed % 40
    expected = _expected(program, x, units)
    kernel = cp.cube(program.kernel(program.position))
    ways: list[dict[str, Any]] = [{}, {"vectorise": True}, {"device": "interpreter"}]
    for way in ways[: 2 if seed % 4 else 3]:
        found = np.full_like(expected, -77)
        kernel.configure(**way).over(units)(x, *program.extents, found)
        assert (found == expected).all(), f"{way}\n{program.text}"


@cp.cube
def directly(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        c, h, w = i // (x.shape[1] * x.shape[2]), i // x.shape[2] % x.shape[1], i % x.shape[2]
        o[c, h, w] = x[c, h, w] * 2


@cp.cube
def by_remainders(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        c, rest = divmod(i, x.shape[1] * x.shape[2])
        h, w = divmod(rest, x.shape[2])
        o[c, h, w] = x[c, h, w] * 2


@cp.cube
def by_differences(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        c = i // (x.shape[1] * x.shape[2])
        rest = i - c * x.shape[1] * x.shape[2]
        h = rest // x.shape[2]
        w = rest - h * x.shape[2]
        o[c, h, w] = x[c, h, w] * 2


@cp.cube
def from_the_inside(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        rest, w = divmod(i, x.shape[2])
        c, h = divmod(rest, x.shape[1])
        o[c, h, w] = x[c, h, w] * 2


@cp.cube
def on_a_torus(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        h, w = o.shape
        r, c = divmod(i, w)
        sides = x[r, (c - 1) % w] + x[r, (c + 1) % w]
        o[r, c] = x[(r - 1 + h) % h, c] + x[(r + 1) % h, (c + 2 + w) % w] + sides


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (4, 2), (6, 3), (7, 40), (3, 130)], ids=str)
@pytest.mark.parametrize("way", [{}, {"vectorise": True}, {"checked": True}], ids=str)
def test_periodic_boundaries(shape: tuple[int, int], way: dict[str, Any]):
    x = np.random.default_rng().integers(0, 99, shape).astype(np.float32)
    o = np.full_like(x, np.nan)
    on_a_torus.configure(**way).over(o.size)(x, o)
    sides = np.roll(x, 1, 1) + np.roll(x, -1, 1)
    assert (o == np.roll(x, 1, 0) + np.roll(np.roll(x, -1, 0), -2, 1) + sides).all()


@cp.cube
def on_a_torus_of_axes(x: Any, o: Any):
    h, w = o.shape
    r, c = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    below = (c - 5) % w
    if r < h and c < w:
        far = x[(r + 4) % h, below] if c > 2 and r != 1 else x[r, (c + 1 + w) % w]
        o[r, c] = x[(r - 1) % h, (c + 2) % w] + 100 * far


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (4, 2), (6, 3), (7, 40), (33, 300)], ids=str)
@pytest.mark.parametrize("cube", [(64, 4), (16, 16), (256, 1), (5, 3)], ids=str)
@pytest.mark.parametrize("way", [{}, {"vectorise": True}, {"checked": True}], ids=str)
def test_periodic_boundaries_along_axes(
    shape: tuple[int, int], cube: tuple[int, int], way: dict[str, Any]
):
    x = np.random.default_rng().integers(0, 99, shape).astype(np.float32)
    o, (h, w) = np.full_like(x, np.nan), shape
    grid = -(-w // cube[0]), -(-h // cube[1])
    on_a_torus_of_axes.configure(**way)[grid, cube](x, o)
    rows, columns = np.indices(shape)
    far = np.roll(np.roll(x, -4, 0), 5, 1)
    far = np.where((columns > 2) & (rows != 1), far, np.roll(x, -1, 1))
    assert (o == np.roll(np.roll(x, 1, 0), -2, 1) + 100 * far).all()


@cp.cube
def on_a_torus_of_known_size(x: Any, o: Any):
    r, c = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if r < 6 and c < 70:
        o[r, c] = x[(r + 7) % 6, (c + 69) % 70] - 2 * x[r, (c - 75) % 70]


@pytest.mark.parametrize("cube", [(64, 4), (16, 16), (5, 3)], ids=str)
def test_periodic_boundaries_of_known_sizes(cube: tuple[int, int]):
    x = np.random.default_rng().integers(0, 99, (6, 70)).astype(np.float32)
    o = np.full_like(x, np.nan)
    on_a_torus_of_known_size[(-(-70 // cube[0]), -(-6 // cube[1])), cube](x, o)
    assert (o == np.roll(np.roll(x, -1, 0), 1, 1) - 2 * np.roll(x, 5, 1)).all()


@pytest.mark.parametrize("kernel", [on_a_torus, on_a_torus_of_axes])
def test_periodic_boundaries_are_loops_over_rows(kernel: Any):
    x = np.ones((5, 70), np.float32)
    o = np.ones_like(x)
    over = o if kernel is on_a_torus_of_axes else o.size
    text = kernel.over(over).inspect(x, o, target="cpu:x86-64-v3", stage="remarks")
    assert "LLVM vectorised no loop" not in text, text


WAYS = (directly, by_remainders, by_differences, from_the_inside)


@pytest.mark.parametrize("kernel", WAYS, ids=lambda k: k.__name__)
def test_ways_to_find_a_place_are_loops_over_rows(kernel: Any):
    x = np.random.default_rng().random((3, 5, 70)).astype(np.float32)
    o = np.zeros_like(x)
    launcher = kernel.over(x.size)
    launcher(x, o)
    assert (o == x * 2).all()
    text = launcher.inspect(x, o, target="cpu:x86-64-v3", stage="remarks")
    assert "LLVM vectorised no loop" not in text, text


@pytest.mark.parametrize("shape", [(0, 5, 7), (3, 0, 7), (3, 5, 0), (1, 1, 1), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("kernel", WAYS, ids=lambda k: k.__name__)
def test_extents_of_none_or_one(kernel: Any, shape: tuple[int, int, int]):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    o = np.full(shape, 7, np.float32)
    kernel.over(8)(x, o)
    assert (o == x * 2).all()


@cp.cube
def waves(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        row, k = divmod(i, o.shape[1])
        o[row, k] = cp.sin(x[row] * (k + 1))


@pytest.mark.parametrize("columns", [5, 64, 100])
def test_expensive_branches_in_rows(columns: int):
    """Arguments of a sine that are large in some rows alone."""
    x = np.array([1.0, 1e7, 0.5, -3e9, np.inf, 2.0, 1e4], np.float32)
    o = np.zeros((len(x), columns), np.float32)
    waves.over(o)(x, o)
    with np.errstate(invalid="ignore"):
        scaled = x[:, None] * np.arange(1, columns + 1, dtype=np.float32)
        expected = np.sin(scaled.astype(np.float64))
    assert np.allclose(o, expected, rtol=0, atol=3e-7, equal_nan=True)


@cp.cube
def by_arguments(h: cp.i64, w: cp.i64, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.shape[0]:
        o[i, 0], o[i, 1], o[i, 2] = i // (h * w), i // w % h, i % w
        o[i, 3], o[i, 4] = i % (h * w) // w, (i % w + 3) % w


@cp.cube
def by_narrow_arguments(h: cp.i32, w: cp.i32, o: Any):
    i = cp.i32(cp.ABSOLUTE_POS)
    if i < o.shape[0]:
        o[i, 0], o[i, 1], o[i, 2] = i // (h * w), i // w % h, i % w
        o[i, 3], o[i, 4] = i % (h * w) // w, (i % w - 2) % w


@cp.cube
def by_one_narrow_argument(h: cp.i32, w: cp.i32, o: Any):
    i = cp.i32(cp.ABSOLUTE_POS)
    if i < o.shape[0]:
        o[i, 0], o[i, 1], o[i, 2] = i // w, i % w, (i % w + 1) % w
        o[i, 3], o[i, 4] = i + h, i % w // 1


@cp.cube
def by_unsigned_arguments(h: cp.u32, w: cp.u32, o: Any):
    i = cp.u32(cp.ABSOLUTE_POS)
    if i < o.shape[0]:
        o[i, 0], o[i, 1], o[i, 2] = i // w, i % w, i // w % h
        o[i, 3], o[i, 4] = i // (w * h), i % (w * h)


NUMBERS = (-(2**31), -7, -1, 0, 1, 3, 40, 2**15, 2**16, 2**30, 2**31 - 1)
WIDE = (2**31, 2**32, 2**33, 2**62, 2**63 - 1, -(2**63))


@pytest.mark.parametrize(
    ("kernel", "numbers"),
    [
        (by_arguments, NUMBERS + WIDE),
        (by_narrow_arguments, NUMBERS),
        (by_one_narrow_argument, NUMBERS),
        (by_unsigned_arguments, (0, 1, 3, 40, 2**15, 2**16, 2**31, 2**32 - 1)),
    ],
    ids=("i64", "i32", "one i32", "u32"),
)
def test_extents_that_are_none(kernel: Any, numbers: tuple[int, ...]):
    """Zero, below zero, and such that products wrap: as without the pass, which takes others."""
    for h in numbers:
        for w in numbers:
            expected, found = np.full((2, 300, 5), -7)
            kernel.configure(device="interpreter").over(12)(h, w, expected[:12])
            kernel.over(300)(h, w, found)
            assert (found[:12] == expected[:12]).all(), (h, w)


@cp.cube
def by_a_product_that_wraps(w: cp.i64, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.shape[0]:
        o[i, 0], o[i, 1] = i // (w * 2**40 * w * 2**40), i % w


@pytest.mark.parametrize("number", NUMBERS)
def test_constants_whose_product_wraps(number: int):
    expected, found = np.full((2, 40, 2), -7)
    by_a_product_that_wraps.configure(device="interpreter").over(40)(number, expected)
    by_a_product_that_wraps.over(40)(number, found)
    assert (found == expected).all()


@cp.cube
def guarded_by_another(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.shape[0]:
        o[i, 0], o[i, 1] = i // (x.shape[0] * x.shape[1]), i // x.shape[1] % x.shape[0]
        o[i, 2] = i % x.shape[1]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (3, 5), (1, 1)], ids=str)
def test_extents_that_no_guard_knows(shape: tuple[int, int]):
    h, w = shape
    found = np.full((40, 3), -7)
    guarded_by_another.over(40)(np.zeros(shape, np.float32), found)
    for i, (c, row, k) in enumerate(found):
        assert c == (i // (h * w) if h * w else 0)
        assert row == (i // w % h if h * w else 0)
        assert k == (i % w if w else 0)
