"""`python -m bench.tuning`: the pick of a quick search beside the best of an exhaustive one.

Thirty problems of matmul, convolution, pooling and reduction, drawn from a seed. For each, a quick
search runs with a store of its own; then every configuration is measured in full; then the first
guess, the pick, the best, and what the analytic model puts first are measured again, interleaved.
On a CPU kernels have one thread, and `--processes` share the processors; on a GPU (`--device
cuda:0`) calls are replayed from graphs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

import numpy as np

import cubepy as cp
from cubepy import config
from cubepy.autotune import behind, records
from cubepy.autotune.race import interval
from cubepy.autotune.records import IMPORTED, Key, Pick, find_records

SEED = 20260611
PROBLEMS = 30
ROUNDS, MOST_ROUNDS, TAKEN, SAMPLE_S = 15, 75, 3, 1e-3
FAMILIES = ("matmul", "convolution", "pooling", "reduction")
WITHIN, NEAR = 1.05, 1.25
Call = Callable[[], Any]


@dataclass
class Row:
    """One problem: medians of ratios of times to those of the best configuration of an exhaustive
    search, the pick's with its interval of 95 %; `search_s`: for which calls were held up, of these
    `first_s` the first one; `timed`: candidates in a quick search, and at the end of its first
    call; `reason` and `confidence` are what the search says of its pick."""

    problem: str
    configurations: int
    search_s: float
    first_s: float
    timed_at_first: int
    timed: int
    guess: float
    model: float
    pick: float
    low: float
    high: float
    gain: float
    reason: str
    confidence: float


def problems(count: int, device: str) -> list[tuple[str, Call]]:
    """Calls of prebuilt functions, by the seed. Arrays are made when a call is first made."""
    rng = random.Random(SEED)
    makers = _ON_CPU if device == "cpu" else _ON_GPU
    return [makers[FAMILIES[k % len(FAMILIES)]](rng) for k in range(count)]


def _array(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _size(rng: random.Random, low: int, high: int, step: int = 1) -> int:
    """Sizes spread evenly over orders of magnitude."""
    return round(low * (high / low) ** rng.random() / step) * step


def _matmul(rng: random.Random) -> tuple[str, Call]:
    m, n, k = (_size(rng, 16, 768) for _ in range(3))
    a, b = _array((m, k)), _array((k, n))
    return f"matmul {m}x{k} @ {k}x{n}", lambda: cp.kernels.matmul(a, b)


def _convolution(rng: random.Random) -> tuple[str, Call]:
    channels, filters, side = _size(rng, 4, 96), _size(rng, 8, 96), _size(rng, 12, 64)
    x, w = _array((1, channels, side, side)), _array((filters, channels, 3, 3))
    text = f"conv2d {channels} to {filters} channels, {side}x{side}"
    return text, lambda: cp.kernels.conv2d(x, w, padding=1)


def _pooling(rng: random.Random) -> tuple[str, Call]:
    channels, side, size = _size(rng, 4, 128), _size(rng, 16, 160), rng.choice((2, 3))
    x = _array((1, channels, side, side))
    return f"max_pool2d {channels}x{side}x{side} by {size}", lambda: cp.kernels.max_pool2d(x, size)


def _reduction(rng: random.Random) -> tuple[str, Call]:
    rows, columns, axis = _size(rng, 8, 4096), _size(rng, 8, 4096), rng.choice((0, 1))
    x = _array((rows, columns))
    return f"sum {rows}x{columns} along {axis}", lambda: cp.kernels.sum(x, axis=axis)


_ON_CPU = {
    "matmul": _matmul,
    "convolution": _convolution,
    "pooling": _pooling,
    "reduction": _reduction,
}


# On a GPU: torch's tensors, products of bf16


def _tensor(*shape: int, dtype: str = "bfloat16") -> Any:
    import torch

    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def _gpu_matmul(rng: random.Random) -> tuple[str, Call]:
    m, n, k = (_size(rng, 128, 8192, 8) for _ in range(3))
    held: list[Any] = []

    def call() -> Any:
        held[:] = held or [_tensor(m, k), _tensor(k, n)]
        return cp.kernels.matmul(*held)

    return f"matmul bf16 {m}x{k} @ {k}x{n}", call


def _gpu_convolution(rng: random.Random) -> tuple[str, Call]:
    channels, filters = _size(rng, 32, 512, 16), _size(rng, 32, 512, 16)
    batch, side = _size(rng, 4, 32), _size(rng, 7, 64)
    held: list[Any] = []

    def call() -> Any:
        import torch

        last = {"memory_format": torch.channels_last}
        held[:] = held or [
            _tensor(batch, channels, side, side).to(**last),
            _tensor(filters, channels, 3, 3).to(**last),
        ]
        return cp.kernels.conv2d(*held, padding=1)

    return f"conv2d bf16 {batch}x{channels} to {filters} channels, {side}x{side}", call


def _gpu_pooling(rng: random.Random) -> tuple[str, Call]:
    batch, channels = _size(rng, 2, 16), _size(rng, 16, 256)
    side, size = _size(rng, 32, 256), rng.choice((2, 3))
    held: list[Any] = []

    def call() -> Any:
        held[:] = held or [_tensor(batch, channels, side, side, dtype="float32")]
        return cp.kernels.max_pool2d(*held, size)

    return f"max_pool2d {batch}x{channels}x{side}x{side} by {size}", call


def _gpu_reduction(rng: random.Random) -> tuple[str, Call]:
    rows, columns, axis = _size(rng, 64, 16384), _size(rng, 64, 16384), rng.choice((0, 1))
    held: list[Any] = []

    def call() -> Any:
        held[:] = held or [_tensor(rows, columns, dtype="float32")]
        return cp.kernels.sum(*held, axis=axis)

    return f"sum {rows}x{columns} along {axis}", call


_ON_GPU = {
    "matmul": _gpu_matmul,
    "convolution": _gpu_convolution,
    "pooling": _gpu_pooling,
    "reduction": _gpu_reduction,
}


@contextmanager
def own_store() -> Any:
    """Records that nobody else has, by settings of the whole process: calls in a block of others
    than threads take a longer way, which would hide what kernels take."""
    before = {name: config.get(name) for name in ("cache", "cache_dir")}
    with tempfile.TemporaryDirectory() as folder, records.forgotten():
        try:
            config.choose("cache", True)
            config.choose("cache_dir", folder)
            yield
        finally:
            for name, value in before.items():
                config.choose(name, value)


@dataclass
class Found:
    """What a search found at one place of a call: its pick, what it says of that, times, and the
    configuration that the model puts first."""

    config: str
    about: dict[str, Any]
    times: dict[str, float]
    modelled: str


def search(call: Call, **options: Any) -> dict[Key, Found]:
    """The pick of each place that a call tunes, with the times that were measured."""
    with cp.tuning(**options):
        call()
    return found_so_far()


def found_so_far() -> dict[Key, Found]:
    """What searches found at each place."""
    found = {}
    for pick in find_records().picks():
        measured = find_records().measurements(pick.key)
        times = {c: m.seconds for c, m in measured.items() if m.status == "ok" and m.seconds}
        first = _modelled(find_records().searches(pick.key)[-1])
        found[pick.key] = Found(pick.config, json.loads(pick.about), times, first)
    return found


def _modelled(search: dict[str, Any]) -> str:
    """What was predicted to be the fastest of a search; ties go to the preferred ones."""
    predicted = {m["k"]: m["s"] for m in search["log"] if m["do"] == "predicted"}
    return search["texts"][min(predicted, key=lambda k: (predicted[k], k)) if predicted else 0]


Times = dict[str, list[float]]


def measure(
    call: Call,
    picks: dict[str, dict[Key, str]],
    device: str,
    is_clear: Callable[[Times], bool] = lambda times: True,
) -> Times:
    """Times of a call under each set of picks; they take turns, for more rounds where what is found
    is not clear. Equal sets are measured once."""
    samplers: dict[str, Call] = {}
    names: dict[str, str] = {}
    for name, chosen in picks.items():
        text = repr(sorted(map(repr, chosen.items())))
        names[name] = text
        if text not in samplers:
            samplers[text] = _sampler(call, chosen, device)
    times: Times = {text: [] for text in samplers}
    found: Times = {name: times[text] for name, text in names.items()}
    while (count := len(next(iter(times.values())))) < MOST_ROUNDS:
        if count >= ROUNDS and is_clear(found):
            break
        for text, sample in samplers.items():
            times[text].append(sample())
    return found


def _is_clear(times: Times) -> bool:
    """Whether the interval of the pick's ratio to the best lies on one side of what is near."""
    low, high = _beside_best(times)
    return high <= WITHIN or low > WITHIN


def _beside_best(times: Times) -> tuple[float, float]:
    return interval(_ratios(times, "pick", "best"))


def _ratios(times: Times, one: str, other: str) -> list[float]:
    """Of what was sampled in the same round: a machine that slows down for both changes nothing."""
    return [a / b for a, b in zip(times[one], times[other], strict=True)]


def _sampler(call: Call, chosen: dict[Key, str], device: str) -> Call:
    """What takes a sample of a call with these picks."""

    def choose() -> None:
        find_records().clear(IMPORTED)
        find_records().put_picks([Pick(k, c, IMPORTED) for k, c in chosen.items()])

    if device != "cpu":
        from bench.replays import captured, replay_ms

        choose()
        call()
        count = max(1, min(200, int(2.0 / replay_ms(captured([call])))))
        graph = captured([call] * count)
        return lambda: replay_ms(graph) * 1e-3 / count

    def sample() -> float:
        choose()
        return _sample(call)

    return sample


def _sample(call: Call) -> float:
    """The least of a few times of about a millisecond, so that an interruption is not counted."""
    call()
    times: list[float] = []
    for _ in range(TAKEN):
        count, took, began = 0, 0.0, time.perf_counter()
        while took < SAMPLE_S:
            call()
            count, took = count + 1, time.perf_counter() - began
        times.append(took / count)
    return min(times)


@dataclass
class Budgets:
    """Seconds of a quick search and of an exhaustive one; None: what they are by default."""

    quick_s: float | None
    full_s: float


def quick_search(
    call: Call, budget_s: float | None
) -> tuple[dict[Key, Found], tuple[float, float, int]]:
    """What a first call finds and one behind it, when all that compiles behind calls is ready; the
    seconds that both were held up, and the first one, and how many candidates that timed."""
    with cp.tuning(level="quick", budget_s=budget_s):
        began = time.perf_counter()
        call()
        first = time.perf_counter() - began
        timed = sum(len(f.times) for f in found_so_far().values())
        behind.wait(60.0)
        began = time.perf_counter()
        call()
        again = time.perf_counter() - began
    return found_so_far(), (first + again, first, timed)


def row_of(name: str, call: Call, budgets: Budgets, device: str) -> Row:
    """Quick search, exhaustive search, and the three configurations again."""
    call()  # what every first call does is not a part of a search
    with own_store():
        quick, spent = quick_search(call, budgets.quick_s)
    with own_store():
        best = search(call, level="full", budget_s=budgets.full_s, limit_s=20.0)
        chosen = {k: min(f.times, key=f.times.__getitem__) for k, f in best.items() if f.times}
        count = sum(len(f.times) for f in best.values())
        picked = {key: found.config for key, found in quick.items()}
        sets = {"best": chosen, "pick": picked, "guess": dict.fromkeys(chosen, "default")}
        sets["model"] = {key: found.modelled for key, found in best.items()}
        times = measure(call, sets, device, _is_clear)
    found = {n: statistics.median(_ratios(times, n, "best")) for n in times}
    low, high = _beside_best(times)
    abouts = [found.about for found in quick.values()]
    return Row(
        name,
        count,
        *spent,
        sum(len(f.times) for f in quick.values()),
        found["guess"],
        found["model"],
        found["pick"],
        low,
        high,
        statistics.median(_ratios(times, "guess", "pick")),
        ", ".join(a.get("reason", "") for a in abouts),
        min((a.get("confidence", 0.0) for a in abouts), default=1.0),
    )


def share(count: int, total: int) -> str:
    """A share of problems with the interval of 95 % of what it would be over all problems."""
    low = next((p for p in _grid() if _at_least(count, total, p) > 0.025), 0.0)
    high = next((p for p in reversed(_grid()) if _at_least(total - count, total, 1 - p) > 0.025), 1)
    return f"{count} of {total} ({count / total:.0%}, 95 %: {low:.0%} to {high:.0%})"


def _grid() -> list[float]:
    return [k / 200 for k in range(201)]


def _at_least(count: int, total: int, p: float) -> float:
    """The probability of so many successes or more (Clopper and Pearson, 1934)."""
    return sum(comb(total, k) * p**k * (1 - p) ** (total - k) for k in range(count, total + 1))


def shown(row: Row) -> str:
    """A line for a problem."""
    return (
        f"{row.problem:48} {row.configurations:3} {row.search_s:6.2f} s ({row.first_s:.2f})  "
        f"timed {row.timed_at_first}+{row.timed - row.timed_at_first}  guess {row.guess:.3f}  "
        f"model {row.model:.3f}  pick {row.pick:.3f} ({row.low:.3f} to {row.high:.3f})  "
        f"gain {row.gain:.3f}  {row.reason} {row.confidence:.2f}"
    )


def summary(rows: Sequence[Row]) -> str:
    """How many problems reach what a search must reach, of those where anything may be chosen."""
    alone = sum(not r.configurations for r in rows)
    rows = [r for r in rows if r.configurations]
    picks, guesses = sum(r.pick <= WITHIN for r in rows), sum(r.guess <= NEAR for r in rows)
    modelled = sum(r.model <= NEAR for r in rows)
    lines = [f"nothing to choose in {alone}"] if alone else []
    lines += [
        f"picks within 5 % of the best: {share(picks, len(rows))}",
        f"first guesses within 25 %: {share(guesses, len(rows))}",
        f"what the model puts first within 25 %: {share(modelled, len(rows))}",
        f"longest search {max(r.search_s for r in rows):.2f} s",
    ]
    for family in ("matmul", "conv2d", "max_pool2d", "sum"):
        gains = [r.gain for r in rows if r.problem.startswith(family)]
        if gains:
            lines.append(f"gain over the first guess, {family}: {_mean(gains):.3f} (geometric)")
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values)


def rows_of(given: argparse.Namespace, part: int) -> Iterator[Row]:
    """The rows of one process."""
    if given.device == "cpu":
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, set(processors[part :: given.processes]) or {processors[0]})
    budgets = Budgets(given.budget, given.full)
    with cp.settings(num_threads=1):
        for name, call in problems(given.count, given.device)[part :: given.processes]:
            yield row_of(name, call, budgets, given.device)


def _by_processes(given: argparse.Namespace) -> Iterator[Row]:
    command = [sys.executable, "-m", "bench.tuning", *sys.argv[1:]]
    running = [
        subprocess.Popen([*command, "--part", str(k)], stdout=subprocess.PIPE, text=True)
        for k in range(given.processes)
    ]
    for process in running:
        assert process.stdout is not None
        for line in process.stdout:
            yield Row(**json.loads(line))
        process.wait()


def main() -> None:
    """Print a line for each problem, and how many reach what a search must reach."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=PROBLEMS)
    parser.add_argument("--budget", type=float, help="seconds of a quick search")
    parser.add_argument("--full", type=float, default=60.0, help="seconds of an exhaustive one")
    parser.add_argument("--processes", type=int, default=1, help="each on its own processor")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", help="a file for the rows")
    given = parser.parse_args()
    if given.part is not None:
        for row in rows_of(given, given.part):
            print(json.dumps(asdict(row)), flush=True)
        return
    rows: list[Row] = []
    for row in rows_of(given, 0) if given.processes == 1 else _by_processes(given):
        rows.append(row)
        print(shown(row), flush=True)
    print(summary(rows))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump([asdict(r) for r in rows], file, indent=1)


if __name__ == "__main__":
    main()
