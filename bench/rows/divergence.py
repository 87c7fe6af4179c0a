"""Units whose control flow differs, as lanes of lines, beside numba's loops; one thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cp
from bench import divergence as kernels
from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "divergence"
LANES, UNITS, CHOSEN = "units as lanes", "unit by unit", "as chosen"


def rows() -> Iterator[Row]:
    """The floors of units that become lanes, as times of a numba loop."""
    yield Row(GROUP, "Mandelbrot 256x256, limit 300", _make_mandelbrot, threads=1)
    yield Row(GROUP, "Collatz 64 Ki", _make_collatz, threads=1)
    yield Row(GROUP, "ray marcher 360x640", _make_raymarch, threads=1)
    yield Row(GROUP, "search 512 Ki of 64 Ki", _make_search, threads=1)
    yield Row(GROUP, "row sums 1024x1024", _make_rows, threads=1)
    yield Row(GROUP, "rows written 2001x257", _make_written_rows, threads=1)
    yield Row(GROUP, "rows counted 2001x257", _make_counted_rows, threads=1)
    yield Row(GROUP, "series warped 64x256", _make_warped, threads=1)
    yield Row(GROUP, "moving sum of 16, 400 K", _make_moving_sum, threads=1)
    yield Row(GROUP, "sums of squares 7x7, 300x701", _make_box_sum, threads=1)
    yield Row(GROUP, "binomial options 8 Ki", _make_binomial, threads=1)
    yield Row(GROUP, "ambient occlusion 256x256", _make_aobench, threads=1)
    yield Row(GROUP, "sums by planes 4096x4096", _make_planes, threads=1)
    yield Row(GROUP, "matmul of tiles 1024", _make_tiles, threads=1)


def _contenders(
    kernel: Any,
    over: np.ndarray,
    args: tuple[Any, ...],
    theirs: Callable[..., Any] | None,
    judged: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> list[Contender]:
    """Our kernel both ways, and numba's; the last array is the output of all."""
    out = [a for a in args if isinstance(a, np.ndarray)][-1]

    def ours(way: str, vectorise: bool) -> Contender:
        call = kernel.configure(vectorise=vectorise).over(over).bind(*args)
        return Contender(OURS, call, way, result=lambda: judged(out))

    found = [ours(LANES, True), ours(UNITS, False)]
    if theirs is not None:
        found.append(Contender("numba", theirs, "loop", result=lambda: judged(out)))
    return found


def _case(contenders: list[Contender], floor: float, reference: Any, **tolerance: Any) -> Case:
    claims = [
        Claim("speed", f"{OURS} {LANES}", ("numba loop",), floor),
        Claim("unit by unit", f"{OURS} {LANES}", (f"{OURS} {UNITS}",)),
    ]
    return Case(only_present(contenders), claims, reference, **tolerance)


def _numba(name: str, *args: Any) -> Callable[..., Any] | None:
    if not peers.find("numba"):
        return None
    from bench import numba_kernels

    return partial(getattr(numba_kernels, name), *args)


def _make_mandelbrot(small: bool) -> Case:
    n = 64 if small else 256
    out = make_empty((n, n))
    theirs = _numba("mandelbrot", out, 300)
    made = _contenders(kernels.mandelbrot, out, (out, 300), theirs, _mean_of_rows)

    def reference() -> np.ndarray:
        return _mean_of_rows(_escape_times(n, 300))

    return _case(made, 6.0, reference, rtol=0.02, atol=2.0)  # near the edge f32 escapes elsewhen


def _escape_times(n: int, limit: int) -> np.ndarray:
    """In f64."""
    i, j = np.mgrid[:n, :n]
    c = (j * (3 / n) - 2) + 1j * (i * (3 / n) - 1.5)
    z, count = np.zeros_like(c), np.zeros((n, n))
    for _ in range(limit):
        alive = np.abs(z) < 2
        z[alive] = z[alive] ** 2 + c[alive]
        count += alive
    return count


def _make_collatz(small: bool) -> Case:
    x = np.random.default_rng(2).integers(1, 30_000, 1 << 10 if small else 1 << 16)
    x, out = x.astype(np.int32), np.zeros(x.size, np.int32)
    made = _contenders(kernels.collatz, x, (x, out), _numba("collatz", x, out))
    return _case(made, 3.0, lambda: np.array([_steps(int(v)) for v in x]), rtol=0.0, atol=0.0)


def _steps(v: int) -> int:
    n = 0
    while v != 1:
        v, n = (v // 2 if v % 2 == 0 else 3 * v + 1), n + 1
    return n


def _make_raymarch(small: bool) -> Case:
    scene = _example("raymarch")
    height, width = (36, 64) if small else (360, 640)
    out = make_empty((height, width))
    f32 = np.float32
    spheres = np.array(scene.SPHERES, f32)
    eye, light = (tuple(f32(v) for v in (p.x, p.y, p.z)) for p in (scene.EYE, scene.LIGHT))
    theirs = _numba("raymarch", out, spheres, f32(scene.FAR), eye, light)
    made = _contenders(scene.render_kernel, out, (out,), theirs, _mean_of_rows)

    def reference() -> np.ndarray:
        return _mean_of_rows(scene.reference(height, width))

    return _case(made, 4.0, reference, rtol=0.0, atol=0.05)


def _mean_of_rows(picture: np.ndarray) -> np.ndarray:
    """Single pixels at edges of shadows and of the chequered floor differ by a rounding."""
    return picture.mean(axis=1)


def _make_search(small: bool) -> Case:
    keys, table = make_random((1 << 10 if small else 1 << 19,), 1), make_random((1 << 16,), 2)
    table.sort()
    out = np.zeros(keys.size, np.int32)
    made = _contenders(kernels.search, out, (keys, table, out), _numba("search", keys, table, out))
    return _case(made, 2.0, lambda: np.searchsorted(table, keys), rtol=0.0, atol=0.0)


def _make_rows(small: bool) -> Case:
    n = 64 if small else 1024
    x, out = make_random((n, n)), make_empty((n,))
    made = _contenders(kernels.sum_rows, out, (x, out), _numba("sum_rows", x, out))
    return _case(made, 1.2, lambda: to_f64(x).sum(axis=1), rtol=1e-4, atol=1e-3)


def _make_written_rows(small: bool) -> Case:
    shape = (33, 65) if small else (2001, 257)
    x, out = make_random(shape), make_empty(shape)
    return _chosen("relu_rows", (x, out), lambda: np.maximum(to_f64(x), 0))


def _make_counted_rows(small: bool) -> Case:
    shape = (33, 65) if small else (2001, 257)
    x = (make_random(shape) * 100).astype(np.int32)
    given = x, np.int32(20), np.empty(len(x), np.int32)
    return _chosen("count_rows", given, lambda: (x > 20).sum(axis=1))


def _make_warped(small: bool) -> Case:
    """Each step waits for the one before it; lanes have several series, whose rows they gather."""
    x, y = (make_random((9, 40) if small else (64, 256), seed) for seed in (1, 2))
    kept, out = np.empty_like(y), np.empty(len(x), np.float32)
    made = _contenders(kernels.warp, out, (x, y, kept, out), _numba("warp", x, y, kept, out))
    claims = [
        Claim("unit by unit", f"{OURS} {UNITS}", ("numba loop",), 0.7),
        Claim("lanes", f"{OURS} {LANES}", (f"{OURS} {UNITS}",)),
    ]
    return Case(only_present(made), claims, lambda: _warped(to_f64(x), to_f64(y)))


def _warped(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    apart = np.abs(x[:, :, None] - y[:, None])
    sums = np.full((len(x), x.shape[1] + 1, y.shape[1] + 1), np.inf)
    sums[:, 0, 0] = 0
    for j, k in np.ndindex(apart.shape[1:]):
        before = np.minimum(np.minimum(sums[:, j, k], sums[:, j, k + 1]), sums[:, j + 1, k])
        sums[:, j + 1, k + 1] = apart[:, j, k] + before
    return sums[:, -1, -1]


def _make_moving_sum(small: bool) -> Case:
    n, width = 1001 if small else 400_000, 16
    x, out = make_random((n,)), make_empty((n,))
    theirs = _numba("moving_sum", x, width, out)

    def reference() -> np.ndarray:
        before = np.concatenate([np.zeros(width - 1), to_f64(x)])
        return np.lib.stride_tricks.sliding_window_view(before, width).sum(axis=1)

    made = _contenders(kernels.moving_sum, out, (x, width, out), theirs)
    return _case(made, 4.0, reference, rtol=1e-4, atol=1e-4)


def _make_box_sum(small: bool) -> Case:
    shape, radius = (20, 45) if small else (300, 701), 3
    x, out = make_random(shape), make_empty(shape)
    theirs = _numba("box_sum", x, radius, out)

    def reference() -> np.ndarray:
        wide, side = np.pad(to_f64(x), radius, "edge"), 2 * radius + 1
        return np.lib.stride_tricks.sliding_window_view(wide, (side, side)).sum(axis=(2, 3))

    made = _contenders(kernels.box_sum, out, (x, radius, out), theirs)
    return _case(made, 4.0, reference, rtol=1e-4, atol=1e-3)


def _chosen(name: str, args: tuple[Any, ...], reference: Any) -> Case:
    """A kernel with a unit for each row, as `vectorise="auto"` has it."""
    out = args[-1]
    made: list[Contender] = []
    for way, choice in ((CHOSEN, "auto"), (LANES, True)):
        call = getattr(kernels, name).configure(vectorise=choice).over(len(out)).bind(*args)
        made.append(Contender(OURS, call, way, result=lambda: out))
    theirs = _numba(name, *args)
    if theirs is not None:
        made.append(Contender("numba", theirs, "loop", result=lambda: out))
    claims = [
        Claim("speed", f"{OURS} {CHOSEN}", ("numba loop",), 0.9),
        Claim("lanes", f"{OURS} {CHOSEN}", (f"{OURS} {LANES}",)),
    ]
    return Case(only_present(made), claims, reference)


def _make_binomial(small: bool) -> Case:
    tree = _example("binomial")
    given = tree.options(64 if small else 1 << 13)
    out = np.empty_like(given[0])
    numbers = tree.STEPS, np.float32(tree.RATE), np.float32(tree.VOLATILITY)
    theirs = _numba("binomial", *given, out, *numbers)
    made = _contenders(tree.put_kernel, out, (*given, out), theirs)
    return _case(made, 8.0, lambda: tree.reference(*given), rtol=1e-3, atol=1e-2)


def _make_aobench(small: bool) -> Case:
    scene = _example("aobench")
    out = make_empty((32, 32) if small else (256, 256))
    f32 = np.float32
    numbers = f32(scene.FLOOR), scene.SAMPLES, f32(scene.FAR), f32(scene.LIFT)
    theirs = _numba("aobench", out, np.array(scene.SPHERES, f32), *numbers)
    made = _contenders(scene.render_kernel, out, (out,), theirs, _mean_of_rows)

    def reference() -> np.ndarray:
        return _mean_of_rows(scene.reference(*out.shape))

    return _case(made, 6.0, reference, rtol=0.0, atol=0.01)


def _make_planes(small: bool) -> Case:
    """A plane for each row, as wide as a line; beside the library's sums of rows."""
    n = 256 if small else 4096
    x, out, theirs = make_random((n, n)), make_empty((n,)), make_empty((n,))
    plane = cp.device("cpu").target.line_bytes // 4
    kernel = _example("reduction").row_sums_kernel.configure(vectorise=True, plane_dim=plane)
    made = [
        Contender(OURS, kernel.over(n, per="plane").bind(x, out), LANES, result=lambda: out),
        Contender(OURS, partial(cp.kernels.sum, x, axis=1, out=theirs), "kernels.sum"),
    ]
    claims = [Claim("speed", f"{OURS} {LANES}", (f"{OURS} kernels.sum",), 0.8)]
    return Case(made, claims, lambda: to_f64(x).sum(axis=1), rtol=1e-4, atol=1e-3)


def _make_tiles(small: bool) -> Case:
    """The product of `examples/matmul.py`, beside itself unit by unit."""
    n = 64 if small else 1024
    a, b, c = make_random((n, n), 1), make_random((n, n), 2), make_empty((n, n))
    kernel = _example("matmul").matmul_kernel

    def ours(way: str, vectorise: bool) -> Contender:
        call = kernel.configure(vectorise=vectorise).over(c, cube_dim=(16, 16)).bind(a, b, c, 16)
        return Contender(OURS, call, way, result=lambda: c)

    claims = [Claim("speed", f"{OURS} {LANES}", (f"{OURS} {UNITS}",), 3.0)]
    made = [ours(LANES, True), ours(UNITS, False)]
    return Case(made, claims, lambda: to_f64(a) @ to_f64(b), rtol=1e-4, atol=1e-3)


def _example(name: str) -> Any:
    """A module of `examples/`."""
    folder = str(Path(__file__).parents[2] / "examples")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module(name)
