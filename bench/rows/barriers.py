"""GPU-shaped kernels on a CPU: cubes of 256 units with shared memory and barriers.

A transpose through tiles beside torch, a tree reduction beside the sum without barriers, a tiled
product beside numba's loops.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import cubepy as cp
from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "barriers"
TILE, UNITS = 64, 256
MATMUL_TILE = 16


def rows() -> Iterator[Row]:
    """The floors: 3 times torch, 0.8 of the sum, as fast as numba."""
    yield Row(GROUP, "tiled transpose 4096", _make_transpose)
    yield Row(GROUP, "tree reduction 64 M", _make_tree)
    yield Row(GROUP, "tiled matmul 1024", _make_matmul)


@cp.cube
def transpose(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """A tile of TILE x TILE for a cube of UNITS; rows are read and written along memory.

    Whole tiles need no test for each element. On a GPU a column of padding spreads the banks.
    """
    tile = cp.shared((TILE, TILE + (1 if cp.PLANE_DIM > 1 else 0)), cp.f32)
    tx, ty, step = cp.UNIT_POS_X, cp.UNIT_POS_Y, UNITS // TILE
    row, column = cp.CUBE_POS_Y * TILE, cp.CUBE_POS_X * TILE
    if (row + TILE <= x.shape[0]) & (column + TILE <= x.shape[1]):
        for k in range(0, TILE, step):
            tile[ty + k, tx] = x[row + ty + k, column + tx]
        cp.sync_cube()
        for k in range(0, TILE, step):
            out[column + ty + k, row + tx] = tile[tx, ty + k]
    else:
        for k in range(ty, TILE, step):
            if row + k < x.shape[0] and column + tx < x.shape[1]:
                tile[k, tx] = x[row + k, column + tx]
        cp.sync_cube()
        for k in range(ty, TILE, step):
            if column + k < x.shape[1] and row + tx < x.shape[0]:
                out[column + k, row + tx] = tile[tx, k]


@cp.cube
def tree_sum(x: cp.Lines[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """Each plane adds a stretch of lines; then a tree halves 256 numbers with barriers between.

    With planes of one unit a stretch is read in order; units of a larger plane read neighbours.
    """
    held = cp.shared(UNITS, cp.f32)
    planes = cp.CUBE_COUNT * cp.PLANE_COUNT
    stretch = (x.size + planes - 1) // planes
    first = (cp.CUBE_POS * cp.PLANE_COUNT + cp.UNIT_POS // cp.PLANE_DIM) * stretch
    line = cp.Line[cp.f32, x.line_size](0.0)
    for i in range(first + cp.UNIT_POS_PLANE, min(x.size, first + stretch), cp.PLANE_DIM):
        line += x[i]
    total = line.sum()
    held[cp.UNIT_POS] = total
    cp.sync_cube()
    width = UNITS // 2
    while width > 0:
        if width > cp.UNIT_POS:
            held[cp.UNIT_POS] += held[cp.UNIT_POS + width]
        cp.sync_cube()
        width = width // 2
    if cp.UNIT_POS == 0:
        out[cp.CUBE_POS] = held[0]


@cp.cube
def matmul(a: cp.Tensor[cp.f32], b: cp.Tensor[cp.f32], c: cp.Tensor[cp.f32]) -> None:
    """A unit for each result; tiles of both operands pass through shared memory."""
    t = MATMUL_TILE
    tile_a, tile_b = cp.shared((t, t), cp.f32), cp.shared((t, t), cp.f32)
    tx, ty = cp.UNIT_POS_X, cp.UNIT_POS_Y
    row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    total = cp.f32(0)
    for k in range(0, a.shape[1], t):
        tile_a[ty, tx] = a[row, k + tx]
        tile_b[ty, tx] = b[k + ty, column]
        cp.sync_cube()
        for j in cp.unroll(range(t)):
            total += tile_a[ty, j] * tile_b[j, tx]
        cp.sync_cube()
    c[row, column] = total


def _make_transpose(small: bool) -> Case:
    n = 200 if small else 4096
    x, out = make_random((n, n)), make_empty((n, n))
    grid = (-(-n // TILE), -(-n // TILE)), (TILE, UNITS // TILE)
    contenders = [
        Contender(OURS, transpose[grid].bind(x, out), "out", 2 * x.nbytes, result=lambda: out),
        _torch_transpose(x),
    ]
    claims = [Claim("speed", f"{OURS} out", ("torch out",), 3.0)]
    return Case(only_present(contenders), claims, lambda: x.T)


def _torch_transpose(x: np.ndarray) -> Contender | None:
    if not peers.find("torch"):
        return None
    tensor = peers.as_torch(x)
    return Contender("torch", lambda: tensor.t().contiguous(), "out", 2 * x.nbytes)


def _make_tree(small: bool) -> Case:
    x = make_random((1 << 16 if small else 1 << 26,))
    parts, total = make_empty((256,)), make_empty(())
    launch = tree_sum[256, UNITS].bind(x, parts)

    def tree() -> Any:
        launch()
        return parts.sum(dtype=np.float64)

    contenders = [
        Contender(OURS, tree, "tree", x.nbytes),
        Contender(OURS, partial(cp.kernels.sum, x, out=total), "sum", x.nbytes),
    ]
    claims = [Claim("speed", f"{OURS} tree", (f"{OURS} sum",), 0.8)]
    return Case(contenders, claims, lambda: to_f64(x).sum(), rtol=1e-4, atol=1e-2 * x.size**0.5)


def _make_matmul(small: bool) -> Case:
    n = 64 if small else 1024
    a, b, c = make_random((n, n)), make_random((n, n)), make_empty((n, n))
    d = make_empty((n, n))
    grid = (n // MATMUL_TILE, n // MATMUL_TILE), (MATMUL_TILE, MATMUL_TILE)
    ours = Contender(OURS, matmul[grid].bind(a, b, c), "out", c.nbytes, result=lambda: c)
    theirs = None
    if peers.find("numba"):
        from bench import numba_kernels

        call = partial(numba_kernels.matmul, a, b, d)
        theirs = Contender("numba", call, "out", c.nbytes, result=lambda: d)
    claims = [Claim("speed", f"{OURS} out", ("numba out",), 1.0)]
    reference = to_f64(a) @ to_f64(b)
    return Case(only_present([ours, theirs]), claims, lambda: reference, rtol=1e-3, atol=1e-2)
