"""`python -m bench.launch`: what one launch costs, beside its peers and in all its forms.

Sixteen elements, so that next to nothing is computed. All calls take turns in one process; figures
are medians of their rounds, ratios medians of the ratios within a round. Prebuilt functions are
called with a thousand numbers.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

import cubepy as cp

Call = Callable[[], Any]
SIZE = 16
MANY = 3000
"""Shapes that take turns."""


@cp.cube
def axpy(x, y, out, a=2.0):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


@cp.cube
def of_pair(pair, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = pair.x.flat[i] * a + pair.y.flat[i]


@cp.cube
def applied(x, y, out, f: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = f(x.flat[i], y.flat[i])


@dataclass(frozen=True)
class Factors:
    x: float
    y: float


@cp.cube
def weighted(x, y, out, by: cp.Comptime[Factors]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * by.x + y.flat[i] * by.y


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Arrays:
    x: Any
    y: Any


@cp.cube
def axpy_two(x, y):
    return x * 2.0 + y


class Empty:
    def call(self) -> None:
        """Nothing."""


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ones(SIZE, np.float32), np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)


def ways() -> dict[str, Call]:
    """The launch that others are compared with, and the others."""
    x, y, out = arrays()
    launch = axpy[1, SIZE]
    of_x, of_pairs, of_function = axpy[1, SIZE], of_pair[1, SIZE], applied[1, SIZE]
    of_factors, factors = weighted[1, SIZE], Factors(2.0, 1.0)
    pair, held, two = Pair(x, y), Arrays(x, y), np.float32(2)
    bound, empty = launch.bind(x, y, out, 2.0), Empty().call
    return {
        "L(x, y, out, 2.0)": lambda: launch(x, y, out, 2.0),
        "keyword": lambda: launch(x, y, out, a=2.0),
        "default": lambda: launch(x, y, out),
        "NumPy scalar": lambda: launch(x, y, out, two),
        "NamedTuple": lambda: of_pairs(pair, out, 2.0),
        "dataclass": lambda: of_pairs(held, out, 2.0),
        "comptime function": lambda: of_function(x, y, out, axpy_two),
        "comptime dataclass": lambda: of_factors(x, y, out, factors),
        "in place": lambda: of_x(x, out, out, 0.0),
        "k[c, d](...)": lambda: axpy[1, SIZE](x, y, out, 2.0),
        "k.over(out)(...)": lambda: axpy.over(out)(x, y, out, 2.0),
        "k.over(n)(...)": lambda: axpy.over(SIZE)(x, y, out, 2.0),
        "bound": lambda: bound(),
        "empty method": lambda: empty(),
    }


def peers() -> dict[str, Call]:
    """The same work by others."""
    x, y, out = arrays()
    found: dict[str, Call] = {"np.add(x, y, out=out)": lambda: np.add(x, y, out=out)}
    try:
        import numba
    except ImportError:
        return found

    @numba.njit
    def numba_axpy(x: Any, y: Any, out: Any, a: Any) -> None:
        for i in range(out.size):
            out[i] = x[i] * a + y[i]

    return found | {"numba njit": lambda: numba_axpy(x, y, out, 2.0)}


def tensors() -> dict[str, Call]:
    """On torch's CPU tensors."""
    try:
        import torch
    except ImportError:
        return {}
    x, y, out = torch.ones(SIZE), torch.ones(SIZE), torch.zeros(SIZE)
    launch = axpy[1, SIZE]
    return {
        "torch: L(x, y, out, 2.0)": lambda: launch(x, y, out, 2.0),
        "torch.add(x, y, out=out)": lambda: torch.add(x, y, out=out),
    }


def prebuilt() -> dict[str, Call]:
    """Prebuilt functions of a few numbers."""
    x, y, out = np.ones(1000, np.float32), np.ones((10, 100), np.float32), np.zeros(10, np.float32)
    a, b, c = (np.ones((4, 4), np.float32) for _ in range(3))
    small, ones = arrays()[:2], np.ones(SIZE, np.float32)
    return {
        "kernels.sum(x)": lambda: cp.kernels.sum(x),
        "np.sum(x)": lambda: np.sum(x),
        "kernels.max(y, 1, out=out)": lambda: cp.kernels.max(y, 1, out=out),
        "np.max(y, 1, out=out)": lambda: np.max(y, 1, out=out),
        "kernels.matmul(a, b, out=c)": lambda: cp.kernels.matmul(a, b, out=c),
        "np.matmul(a, b, out=c)": lambda: np.matmul(a, b, out=c),
        "kernels.map(f, x, y)": lambda: cp.kernels.map(axpy_two, *small),
        "kernels.where(x, x, y)": lambda: cp.kernels.where(small[0], *small),
        "np.where(x, x, y)": lambda: np.where(small[0], *small),
        "kernels.layer_norm": lambda: cp.kernels.layer_norm(small[0], SIZE, ones, ones),
    }


class Shapes:
    """Launches on arrays of so many shapes, one after the other; or of one, which has as many
    elements as they have on average."""

    def __init__(self, is_one: bool) -> None:
        shapes = [(a, b, c, d, e) for a, b, c, d, e in product(range(1, 6), repeat=5)][:MANY]
        np.random.default_rng(0).shuffle(shapes)
        size = sum(map(prod, shapes)) // len(shapes)
        self._arrays = [
            tuple(np.zeros((1, 1, 1, 1, size) if is_one else shape, np.float32) for _ in range(3))
            for shape in shapes
        ]
        self._at = 0

    def __call__(self) -> None:
        x, y, out = self._arrays[self._at]
        self._at = (self._at + 1) % MANY
        axpy.over(out)(x, y, out, 2.0)


def measured(calls: dict[str, Call], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of a call, by round."""
    counts: dict[str, int] = {}
    for name, call in calls.items():
        for _ in range(4):
            call()
        began = time.perf_counter()
        for _ in range(2000):
            call()
        counts[name] = max(100, round(seconds * 2000 / (time.perf_counter() - began)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    gc.disable()
    for _ in range(rounds):
        for name, call in calls.items():
            count = range(counts[name])
            began = time.perf_counter()
            for _ in count:
                call()
            found[name].append((time.perf_counter() - began) / len(count) * 1e6)
    gc.enable()
    return found


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a call in a round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shapes: dict[str, Call] = {"3,000 shapes in turn": Shapes(False), "one shape": Shapes(True)}
    calls = ways() | peers() | tensors() | prebuilt() | shapes
    for _ in range(3):
        for _ in range(MANY):
            shapes["3,000 shapes in turn"]()
    found = measured(calls, options.rounds, options.seconds)
    base = "L(x, y, out, 2.0)"
    against = {
        "torch: L(x, y, out, 2.0)": "torch.add(x, y, out=out)",
        "bound": "empty method",
        "kernels.sum(x)": "np.sum(x)",
        "kernels.max(y, 1, out=out)": "np.max(y, 1, out=out)",
        "kernels.matmul(a, b, out=c)": "np.matmul(a, b, out=c)",
        "kernels.map(f, x, y)": "np.add(x, y, out=out)",
        "kernels.where(x, x, y)": "np.where(x, x, y)",
        "3,000 shapes in turn": "one shape",
    }
    rows = []
    for name, times in found.items():
        other = against.get(name, base)
        ratio = statistics.median(a / b for a, b in zip(times, found[other], strict=True))
        rows.append({"call": name, "us": statistics.median(times), "ratio": ratio, "to": other})
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(f"{row['call']:28} {row['us']:8.3f} us {row['ratio']:7.2f} x {row['to']}")


if __name__ == "__main__":
    main()
