"""`python -m bench.tuned_launch`: what a tuned launch costs beside an untuned one.

Microseconds of this process's time for a call on arrays of 64 elements with a signature that was
seen before: medians of interleaved rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cp
from cubepy import config

CALLS, ROUNDS = 20_000, 15
SPACE = {"n": (1, 2, 4)}


@cp.cube
def scale(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * 2


@cp.autotuned(space=SPACE, key=lambda x, out: (cp.anchor(out.size), out.dtype))
def double(x, out, *, config):
    n = config["n"]
    scale.over(-(-out.size // n))(x, out, n)


tuned = cp.autotuned(scale, space=SPACE)


def grid(config: Any) -> int:
    """Units for 64 elements."""
    return 64 // config["n"]


def main() -> None:
    """Print a line for each kind of call."""
    x, out = np.ones(64, np.float32), np.empty(64, np.float32)
    with tempfile.TemporaryDirectory() as folder, cp.settings(cache_dir=folder):
        tuned.over(grid)(x, out)
        double(x, out)
    config = double.pick(x, out)
    n = tuned.over(grid).pick(x, out)["n"]
    launcher = scale.over(64 // n)
    calls: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "an untuned launcher, `n` given": (launcher, {"n": n}),
        "a tuned launcher": (tuned.over(grid), {}),
        "a function, `config` given": (double.function, {"config": config}),
        "a tuned function": (double, {}),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (call, added) in calls.items():
            times[name].append(_sample(call, added, x, out))
    prebuilt = _prebuilt(x)
    found = {name: statistics.median(t) for name, t in times.items()}
    for name, seconds in found.items():
        print(f"{name:34} {seconds * 1e6:6.2f} us")
    rows = list(found.values())
    print(f"tuned launches cost {(rows[1] - rows[0]) * 1e6:+.2f} us more, ", end="")
    print(f"tuned functions {(rows[3] - rows[2]) * 1e6:+.2f} us")
    plain, tuned_s = map(statistics.median, prebuilt)
    print(f"{'a prebuilt function':34} {plain * 1e6:6.2f} us")
    print(f"{'the same under cp.tuning':34} {tuned_s * 1e6:6.2f} us")
    print(f"prebuilt functions cost {(tuned_s - plain) * 1e6:+.2f} us more")


def _prebuilt(x: np.ndarray) -> tuple[list[float], list[float]]:
    """Times of a prebuilt function: as it is, and where it may be tuned."""
    plain: list[float] = []
    tuned: list[float] = []

    def total(x: np.ndarray, out: np.ndarray) -> None:
        cp.kernels.sum(x, axis=0, out=out)

    rows, out = np.tile(x, (4, 1)), np.empty_like(x)
    with tempfile.TemporaryDirectory() as folder:
        config.choose("cache_dir", folder)  # a block of `settings` has no short way
        for _ in range(ROUNDS):
            plain.append(_sample(total, {}, rows, out))
            with cp.tuning(level="quick"):
                tuned.append(_sample(total, {}, rows, out))
    return plain, tuned


def _sample(
    call: Callable[..., Any], added: dict[str, Any], x: np.ndarray, out: np.ndarray
) -> float:
    call(x, out, **added)
    began = time.process_time()
    for _ in range(CALLS):
        call(x, out, **added)
    return (time.process_time() - began) / CALLS


if __name__ == "__main__":
    main()
