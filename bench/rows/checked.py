"""What checked mode costs: the same call with and without it, in turns."""

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cp
from bench.arrays import make_empty, make_random, to_f64
from bench.rows.pooling import WINDOWS, Problem
from bench.suite import OURS, Case, Claim, Contender, Row

GROUP = "checked"
LEAST = 1 / 1.5
"""Checked mode may take 1.5 times as long."""
MATMUL = Path(__file__).parents[2] / "examples" / "matmul.py"


def rows() -> Iterator[Row]:
    """A tiled product, pooling, and sums over each axis."""
    yield Row(GROUP, "tiled matmul 1024", _make_matmul)
    for window in WINDOWS:
        yield Row(GROUP, f"max_pool2d {window}", partial(_make_pool, window))
    for label, axis in (("all", None), ("last axis", 1), ("first axis", 0)):
        yield Row(GROUP, f"sum 4096x4096 {label}", partial(_make_sum, axis))


def _case(call: Callable[[bool], Any], out: np.ndarray, reference: Callable[[], Any]) -> Case:
    """`call(checked)` fills `out`."""
    contenders = [
        Contender(OURS, partial(call, checked), way, out.nbytes, result=lambda: out)
        for way, checked in (("checked", True), ("unchecked", False))
    ]
    claims = [Claim("speed", f"{OURS} checked", (f"{OURS} unchecked",), LEAST)]
    return Case(contenders, claims, reference, rtol=1e-4, atol=1e-2)


def _make_matmul(small: bool) -> Case:
    spec = importlib.util.spec_from_file_location("examples_matmul", MATMUL)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    n = 100 if small else 1024
    a, b, c = make_random((n, n)), make_random((n, n)), make_empty((n, n))
    launchers = {
        checked: example.matmul_kernel.configure(checked=checked).over(c, cube_dim=(16, 16))
        for checked in (True, False)
    }
    return _case(lambda checked: launchers[checked](a, b, c, 16), c, lambda: to_f64(a) @ to_f64(b))


def _make_pool(window: Any, small: bool) -> Case:
    problem = Problem((2, 32, 512, 512), window)
    x, out = problem.make_arrays(small)

    def call(checked: bool) -> None:
        with cp.settings(checked=checked):
            cp.kernels.max_pool2d(x, *window.sizes, out=out)

    return _case(call, out, lambda: _pooled(x, window, out.shape))


def _pooled(x: np.ndarray, window: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Maxima of shifted copies."""
    kernel, stride, pad = window.sizes
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    rows, columns = (stride * (n - 1) + 1 for n in shape[2:])
    taps = [
        padded[:, :, i : i + rows : stride, j : j + columns : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return np.maximum.reduce(taps)


def _make_sum(axis: int | None, small: bool) -> Case:
    x = make_random((300, 1031) if small else (4096, 4096))
    out = make_empty(() if axis is None else (x.shape[1 - axis],))

    def call(checked: bool) -> None:
        with cp.settings(checked=checked):
            cp.kernels.sum(x, axis=axis, out=out)

    return _case(call, out, lambda: to_f64(x).sum(axis))
