"""Kernels as people write them, on a CPU: what the compiler must make of plain code.

A histogram in shared memory, all pairs of shortest ways in place, and a 5-point average, beside
numba's loops; an elementary function of scalars beside the same of lines.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import cubepy as cp
from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.stencils import flat_stencil, flat_stencil_of_numbers
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "core"
BINS, UNITS = 256, 256


def rows() -> Iterator[Row]:
    """The floors: 0.7 and 0.9 of numba, 0.9 of lines; 0.8 of numba, also over a flat array."""
    yield Row(GROUP, "histogram 1 M", _make_histogram, threads=1)
    yield Row(GROUP, "shortest ways 512", _make_ways, threads=1)
    yield Row(GROUP, "sin 1 M of scalars", _make_sine, threads=1)
    yield Row(GROUP, "flat stencil 1024", _make_stencil, threads=1)


@cp.cube
def histogram(x: cp.Tensor[cp.u8], out: cp.Tensor[cp.i32]) -> None:
    """Each cube counts in shared memory, then adds its counts to the result."""
    held = cp.shared(BINS, cp.i32)
    for k in range(cp.UNIT_POS, BINS, cp.CUBE_DIM):
        held[k] = 0
    cp.sync_cube()
    for k in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM):
        cp.atomic.add(held, cp.i32(x[k]), 1)
    cp.sync_cube()
    for k in range(cp.UNIT_POS, BINS, cp.CUBE_DIM):
        cp.atomic.add(out, k, held[k])


@cp.cube
def ways(d: cp.Tensor[cp.f32], k: int) -> None:
    """A step of Floyd and Warshall: by way of node k."""
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < d.shape[0] and j < d.shape[1]:
        d[i, j] = min(d[i, j], d[i, k] + d[k, j])


@cp.cube
def sine_of_scalars(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = cp.sin(x[i])


@cp.cube
def sine_of_lines(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]) -> None:
    i = cp.ABSOLUTE_POS
    if i < x.size:
        out[i] = cp.sin(x[i])


def _numba(name: str) -> Callable[..., Any] | None:
    if not peers.find("numba"):
        return None
    from bench import numba_kernels

    return getattr(numba_kernels, name)


def _make_histogram(small: bool) -> Case:
    x = np.random.default_rng(1).integers(0, 256, 1 << 14 if small else 1 << 20).astype(np.uint8)
    out, theirs_out = np.zeros(BINS, np.int32), np.zeros(BINS, np.int32)
    launch = histogram[16, UNITS].bind(x, out)

    def ours() -> None:
        out.fill(0)
        launch()

    contenders: list[Contender | None] = [
        Contender(OURS, ours, "out", x.nbytes, result=lambda: out)
    ]
    loop = _numba("histogram")
    if loop is not None:
        call = partial(loop, x, theirs_out)
        contenders.append(Contender("numba", call, "out", x.nbytes, result=lambda: theirs_out))
    claims = [Claim("speed", f"{OURS} out", ("numba out",), 0.7)]
    return Case(only_present(contenders), claims, lambda: np.bincount(x, minlength=BINS))


def _make_ways(small: bool) -> Case:
    """Distances that are already shortest: each call does the same work and changes nothing."""
    n = 40 if small else 512
    rng = np.random.default_rng(2)
    points = rng.uniform(0, 1, (n, 2)).astype(np.float32)
    start = np.abs(points[:, None] - points[None]).sum(-1).astype(np.float32)
    d, e = start.copy(), start.copy()
    steps = [ways[(-(-n // 256), n), (256, 1)].bind(d, k) for k in range(n)]

    def ours() -> None:
        for step in steps:
            step()

    contenders: list[Contender | None] = [
        Contender(OURS, ours, "in place", n * d.nbytes, result=lambda: d)
    ]
    loop = _numba("shortest_ways")
    if loop is not None:
        call = partial(loop, e)
        contenders.append(Contender("numba", call, "in place", n * d.nbytes, result=lambda: e))
    claims = [Claim("speed", f"{OURS} in place", ("numba in place",), 0.9)]
    return Case(only_present(contenders), claims, lambda: start, rtol=1e-5, atol=1e-6)


def _make_sine(small: bool) -> Case:
    n = 1 << 10 if small else 1 << 20
    x, out, lines_out = make_random((n,)), make_empty((n,)), make_empty((n,))
    one = sine_of_scalars[-(-n // 256), 256].bind(x, out)
    width = 16
    many = sine_of_lines.configure(line_size=width)[-(-n // (256 * width)), 256].bind(x, lines_out)
    contenders = [
        Contender(OURS, one, "scalars", 2 * x.nbytes, result=lambda: out),
        Contender(OURS, many, "lines", 2 * x.nbytes, result=lambda: lines_out),
    ]
    claims = [Claim("speed", f"{OURS} scalars", (f"{OURS} lines",), 0.9)]
    return Case(contenders, claims, lambda: np.sin(to_f64(x)), rtol=1e-6, atol=1e-6)


def _make_stencil(small: bool) -> Case:
    n = 64 if small else 1024
    x = make_random((n, n))
    mine, flat, theirs = (make_empty((n, n)) for _ in range(3))
    by_shape = flat_stencil.over(x).bind(x, mine)
    numbers = flat_stencil_of_numbers.over(x.size)
    by_numbers = numbers.bind(x.reshape(-1), flat.reshape(-1), n, n)
    contenders = [
        Contender(OURS, by_shape, result=lambda: mine),
        Contender(OURS, by_numbers, "numbers", result=lambda: flat),
    ]
    loop = _numba("stencil")
    if loop is not None:
        contenders.append(Contender("numba", partial(loop, x, theirs), result=lambda: theirs))
    claims = [
        Claim("2-D", "cubepy out", ("numba out",), floor=0.8),
        Claim("numbers", "cubepy numbers", ("numba out",), floor=0.8),
    ]
    return Case(contenders, claims, lambda: _by_numpy(x), atol=1e-5)


def _by_numpy(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), 1)
    sides = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return 4 * x.astype(np.float64) - sides
