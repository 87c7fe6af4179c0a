"""`python -m bench.tuning`: the pick of a quick search beside the best of an exhaustive one.

Thirty problems of matmul, convolution, pooling and reduction, drawn from a seed. For each, every
configuration is measured in full; then a quick search runs with a store of its own; then the
preferred configuration (the first guess), the pick and the best are measured again, interleaved.
One thread, so that other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.autotune import records
from cubepy.autotune.records import IMPORTED, Key, Pick, find_records

SEED = 20260611
PROBLEMS = 30
ROUNDS = 15
FAMILIES = ("matmul", "convolution", "pooling", "reduction")


@dataclass
class Row:
    """One problem: ratios of times to the best configuration's."""

    problem: str
    configurations: int
    search_s: float
    guess: float
    pick: float
    gain: float


def problems(count: int) -> list[tuple[str, Callable[[], Any]]]:
    """Calls of prebuilt functions, by the seed."""
    rng = random.Random(SEED)
    made = [_MAKERS[FAMILIES[k % len(FAMILIES)]](rng) for k in range(count)]
    return made


def _array(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _size(rng: random.Random, low: int, high: int) -> int:
    """Sizes spread evenly over orders of magnitude."""
    return round(low * (high / low) ** rng.random())


def _matmul(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    m, n, k = (_size(rng, 16, 768) for _ in range(3))
    a, b = _array((m, k)), _array((k, n))
    return f"matmul {m}x{k} @ {k}x{n}", lambda: cp.kernels.matmul(a, b)


def _convolution(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    channels, filters, side = _size(rng, 4, 96), _size(rng, 8, 96), _size(rng, 12, 64)
    x, w = _array((1, channels, side, side)), _array((filters, channels, 3, 3))
    text = f"conv2d {channels} to {filters} channels, {side}x{side}"
    return text, lambda: cp.kernels.conv2d(x, w, padding=1)


def _pooling(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    channels, side, size = _size(rng, 4, 128), _size(rng, 16, 160), rng.choice((2, 3))
    x = _array((1, channels, side, side))
    return f"max_pool2d {channels}x{side}x{side} by {size}", lambda: cp.kernels.max_pool2d(x, size)


def _reduction(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    rows, columns, axis = _size(rng, 8, 4096), _size(rng, 8, 4096), rng.choice((0, 1))
    x = _array((rows, columns))
    return f"sum {rows}x{columns} along {axis}", lambda: cp.kernels.sum(x, axis=axis)


_MAKERS = {
    "matmul": _matmul,
    "convolution": _convolution,
    "pooling": _pooling,
    "reduction": _reduction,
}


@contextmanager
def own_store() -> Any:
    """Records that nobody else has."""
    with (
        tempfile.TemporaryDirectory() as folder,
        records.forgotten(),
        cp.settings(cache=True, cache_dir=folder),
    ):
        yield


def search(call: Callable[[], Any], **options: Any) -> dict[Key, tuple[str, dict[str, float]]]:
    """The pick of each place that a call tunes, with the times that were measured."""
    with cp.tuning(**options):
        call()
    found = {}
    for pick in find_records().picks():
        measured = find_records().measurements(pick.key)
        times = {c: m.seconds for c, m in measured.items() if m.status == "ok" and m.seconds}
        found[pick.key] = pick.config, times
    return found


def measure(call: Callable[[], Any], picks: dict[str, dict[Key, str]]) -> dict[str, float]:
    """The median time of a call under each set of picks; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in picks}
    for _ in range(ROUNDS):
        for name, chosen in picks.items():
            find_records().clear(IMPORTED)
            find_records().put_picks([Pick(k, c, IMPORTED) for k, c in chosen.items()])
            times[name].append(_sample(call))
    return {name: statistics.median(t) for name, t in times.items()}


def _sample(call: Callable[[], Any]) -> float:
    call()
    count, began = 0, time.process_time()
    while True:
        call()
        count += 1
        took = time.process_time() - began
        if took > 2e-3:
            return took / count


def row_of(name: str, call: Callable[[], Any], budget_s: float, full_s: float) -> Row:
    """Exhaustive search, quick search, and the three configurations again."""
    with own_store():
        best = search(call, level="full", budget_s=full_s, limit_s=20.0)
        chosen = {key: min(times, key=times.__getitem__) for key, (_, times) in best.items()}
        count = sum(len(times) for _, times in best.values())
        with own_store():
            began = time.perf_counter()
            quick = search(call, level="quick", budget_s=budget_s)
            took = time.perf_counter() - began
        picked = {key: config for key, (config, _) in quick.items()}
        guess = dict.fromkeys(chosen, "default")
        found = measure(call, {"best": chosen, "pick": picked, "guess": guess})
    least = min(found.values())
    ratios = {n: s / least for n, s in found.items()}
    gain = found["guess"] / found["pick"]
    return Row(name, count, took, ratios["guess"], ratios["pick"], gain)


def main() -> None:
    """Print a line for each problem, and how many reach what a search must reach."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=PROBLEMS)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of a quick search")
    parser.add_argument("--full", type=float, default=60.0, help="seconds of an exhaustive one")
    parser.add_argument("--json", help="a file for the rows")
    given = parser.parse_args()
    rows: list[Row] = []
    with cp.settings(num_threads=1):
        for name, call in problems(given.count):
            rows.append(row_of(name, call, given.budget, given.full))
            r = rows[-1]
            print(
                f"{r.problem:44} {r.configurations:3} configurations, search {r.search_s:5.2f} s, "
                f"first guess {r.guess:.3f}, pick {r.pick:.3f} of the best, gain {r.gain:.3f}",
                flush=True,
            )
    picks = sum(r.pick <= 1.05 for r in rows) / len(rows)
    guesses = sum(r.guess <= 1.25 for r in rows) / len(rows)
    gain = statistics.geometric_mean(r.gain for r in rows)
    print(
        f"picks within 5 %: {picks:.0%}; first guesses within 25 %: {guesses:.0%}; gain {gain:.3f}"
    )
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump([asdict(r) for r in rows], file, indent=1)


if __name__ == "__main__":
    main()
