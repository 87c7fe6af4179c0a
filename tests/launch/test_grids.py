"""Grids: which units run, for every way to write one, and what is refused."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.guarded import Guarded

SHAPES = [(), (1,), (5,), (256,), (257,), (3, 70), (2, 3, 40), (2, 2, 3, 5), (0,), (4, 0)]


@cp.cube
def count(out):
    """Every unit adds one to the element of its position."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = out.flat[i] + 1


@cp.cube
def count_axes(out):
    x, y, z = cp.ABSOLUTE_POS_X, cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_Z
    if x < out.shape[2] and y < out.shape[1] and z < out.shape[0]:
        out[z, y, x] = out[z, y, x] + 1


@cp.cube
def positions(out):
    """Everything that a unit knows of its place, at its absolute position."""
    i = cp.ABSOLUTE_POS
    out[i, 0], out[i, 1], out[i, 2] = cp.UNIT_POS_X, cp.UNIT_POS_Y, cp.UNIT_POS_Z
    out[i, 3], out[i, 4], out[i, 5] = cp.CUBE_POS_X, cp.CUBE_POS_Y, cp.CUBE_POS_Z
    out[i, 6], out[i, 7], out[i, 8] = cp.ABSOLUTE_POS_X, cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_Z
    out[i, 9], out[i, 10], out[i, 11] = cp.UNIT_POS, cp.CUBE_POS, cp.CUBE_COUNT
    out[i, 12], out[i, 13], out[i, 14] = cp.CUBE_COUNT_X, cp.CUBE_COUNT_Y, cp.CUBE_COUNT_Z
    out[i, 15], out[i, 16], out[i, 17] = cp.CUBE_DIM_X, cp.CUBE_DIM_Y, cp.CUBE_DIM_Z
    out[i, 18], out[i, 19], out[i, 20] = cp.CUBE_DIM, cp.PLANE_DIM, cp.PLANE_COUNT
    out[i, 21], out[i, 22] = cp.PLANE_POS, cp.UNIT_POS_PLANE


def expected_positions(grid: tuple[int, ...], dim: tuple[int, ...], plane: int) -> np.ndarray:
    rows = []
    for cube in range(prod(grid)):
        c = (cube % grid[0], cube // grid[0] % grid[1], cube // (grid[0] * grid[1]))
        for unit in range(prod(dim)):
            u = (unit % dim[0], unit // dim[0] % dim[1], unit // (dim[0] * dim[1]))
            absolute = [ck * d + uk for ck, d, uk in zip(c, dim, u, strict=True)]
            rows.append(
                [
                    *u,
                    *c,
                    *absolute,
                    unit,
                    cube,
                    prod(grid),
                    *grid,
                    *dim,
                    prod(dim),
                    plane,
                    -(-prod(dim) // plane),
                    unit // plane,
                    unit % plane,
                ]
            )
    return np.array(rows)


@pytest.mark.parametrize(
    ("grid", "dim"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((3, 1, 1), (4, 1, 1)),
        ((2, 3, 2), (4, 2, 3)),
        ((1, 5, 1), (1, 7, 1)),
        ((1, 1, 4), (2, 1, 5)),
    ],
)
@pytest.mark.parametrize("plane", [1, 2])
def test_positions(grid: Any, dim: Any, plane: int):
    out = Guarded((prod(grid) * prod(dim), 23), np.int64)
    positions.configure(plane_dim=plane)[grid, dim](out.array)
    out.check(expected_positions(grid, dim, plane))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("cube_dim", [None, 1, 7, (8,), (4, 2), [2, 3, 2], np.int64(64)], ids=repr)
def test_over_runs_every_item_once(shape: Any, cube_dim: Any):
    for what in (None, shape, list(shape), prod(shape), np.int64(prod(shape))):
        out = Guarded(shape, np.int32)
        out.array[...] = 0
        count.over(out.array if what is None else what, cube_dim=cube_dim)(out.array)
        out.check(np.ones(shape, np.int32))


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 3, 5), (7, 1, 300), (3, 20, 33), (2, 0, 3)], ids=str
)
@pytest.mark.parametrize("cube_dim", [None, 16, (8, 4), (4, 2, 3)], ids=repr)
def test_over_with_axes(shape: Any, cube_dim: Any):
    for what in (None, shape):
        out = Guarded(shape, np.int32)
        out.array[...] = 0
        count_axes.over(out.array if what is None else what, cube_dim=cube_dim)(out.array)
        out.check(np.ones(shape, np.int32))


@cp.cube
def rows(x, out):
    row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    if row < x.shape[0] and cp.UNIT_POS_PLANE == 0:
        total = 0.0
        for k in range(x.shape[1]):
            total += x[row, k]
        out[row] = total


@cp.cube
def cubes(x, out):
    row = cp.CUBE_POS
    if cp.UNIT_POS == 0:
        total = 0.0
        for k in range(x.shape[1]):
            total += x[row, k]
        out[row] = total


@pytest.mark.parametrize("plane", [1, 32])
@pytest.mark.parametrize("count", [1, 8, 9, 300])
def test_per_plane_and_per_cube(plane: int, count: int):
    x = np.random.default_rng(count).integers(0, 9, (count, 33)).astype(np.float32)
    for kernel, per in ((rows, "plane"), (cubes, "cube")):
        out = Guarded(count)
        kernel.configure(plane_dim=plane).over(count, per=per)(x, out.array)
        out.check(x.sum(axis=1))


@cp.cube
def cube_sizes(out):
    out[cp.CUBE_POS] = cp.CUBE_DIM


@pytest.mark.parametrize("plane", [1, 32])
@pytest.mark.parametrize("per", ["unit", "plane", "cube"])
def test_cubes_have_256_units_by_default(plane: int, per: str):
    """Whatever serves an item."""
    sizes = np.zeros(1, np.int32)
    cube_sizes.configure(plane_dim=plane).over(1, per=per)(sizes)
    assert sizes[0] == 256


@cp.cube
def lines_by_row(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] * 2


@cp.cube
def lines_by_position(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32], height: int, width: int):
    """Flat indices from axes: the lines of a matrix whose rows are whole lines, or not."""
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < height and j < width:
        out.flat[i * width + j] = x.flat[i * width + j] * 2


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (16, 16), (3, 129), (40, 64)], ids=str)
@pytest.mark.parametrize("line_size", ["auto", 1, 3, 4, 16])
def test_lines_over_two_axes(shape: Any, line_size: Any):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    out = Guarded(shape)
    lines_by_row.configure(line_size=line_size).over(out.array)(x, out.array)
    out.check(x * 2)
    width = -(-shape[1] // (16 if line_size == "auto" else line_size))
    if line_size != "auto":
        out = Guarded(shape)
        kernel = lines_by_position.configure(line_size=line_size)
        kernel.over(out.array)(x, out.array, shape[0], width)
        out.check(x * 2)


def test_more_units_than_items_do_nothing():
    out = Guarded(5, np.int32)
    out.array[...] = 0
    count[100, 256](out.array)
    out.check(np.ones(5, np.int32))


@pytest.mark.parametrize("grid", [0, (0,), (3, 0), (1, 1, 0)], ids=str)
def test_zero_cubes_run_nothing(grid: Any):
    out = Guarded(5, np.int32)
    count[grid, 4](out.array)
    assert out.is_untouched


@pytest.mark.parametrize(
    "item",
    [
        4,
        (4,),
        (1, 2, 3),
        ((1, 2, 3, 4), 1),
        (1, 0),
        (1, -2),
        (-1, 4),
        (1.0, 4),
        (4, 2.5),
        ("4", 4),
        (None, 4),
        ((), 4),
        (4, ()),
    ],
    ids=repr,
)
def test_bad_grids(item: Any):
    with pytest.raises(cp.LaunchError, match="E416"):
        count[item](np.zeros(4, np.int32))


@pytest.mark.parametrize(
    ("what", "options"),
    [
        (-1, {}),
        ((2, -3), {}),
        (2.5, {}),
        ("4", {}),
        (None, {}),
        ((1, 2.0), {}),
        (4, {"per": "warp"}),
        (4, {"cube_dim": 0}),
        (4, {"cube_dim": -4}),
        (4, {"cube_dim": 2.0}),
        (4, {"cube_dim": (1, 2, 3, 4)}),
    ],
    ids=repr,
)
def test_bad_over(what: Any, options: Any):
    with pytest.raises(cp.LaunchError, match="E416"):
        count.over(what, **options)(np.zeros(4, np.int32))


def test_limits_name_both_numbers():
    out = Guarded(4, np.int32)
    with pytest.raises(cp.LaunchError, match=r"E408.*count.*65537.*65536"):
        count[1, 65537](out.array)
    with pytest.raises(cp.LaunchError, match=r"E408.*cube count"):
        count[(2**40, 2**40), 4](out.array)
    assert out.is_untouched


def test_a_launcher_serves_arguments_of_other_sizes():
    launcher = count.over(6)
    for n in (6, 3, 6):
        out = np.zeros(n, np.int32)
        launcher(out)
        assert (out == 1).all()


@pytest.mark.parametrize("units", [2**63, 2**64, 2**64 + 5, 2**70])
def test_more_units_than_positions_count(units: int):
    @cp.cube
    def kernel(out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = 1

    with pytest.raises(cp.LaunchError, match="E408: kernel: the number of units is"):
        kernel.over(units)(np.zeros(3))
