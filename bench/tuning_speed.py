"""`python -m bench.tuning_speed`: how long a full tuning of 100 products of matrices takes.

Compiling is part of it: code and measurements are kept in a new folder. On a CPU (`--cores 2`) a
kernel of 100 tiles is tuned; on a GPU (`--device cuda:0`) all variants of `cp.kernels.matmul` of
bf16.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.autotune.records import find_records, forgotten

SIZE, LINE = 512, 16
SPACE = {"rows": (4, 1, 2, 6, 8), "lines": (2, 1, 3, 4), "steps": (1, 2, 4, 8, 16)}


@cp.autotuned(space=SPACE)
def multiply(a, b, out, *, config):
    height, width = config["rows"], config["lines"] * LINE
    m, n = out.shape
    tile.over(-(-m // height) * -(-n // width), per="cube", cube_dim=1)(a, b, out, **config)


@cp.cube
def tile(a, b, out, rows: cp.Comptime, lines: cp.Comptime, steps: cp.Comptime):
    across = (out.shape[1] + lines * LINE - 1) // (lines * LINE)
    i, j = cp.CUBE_POS // across * rows, cp.CUBE_POS % across * (lines * LINE)
    sums = cp.local((rows, lines), cp.Line[cp.f32, LINE], fill=0)
    for k in range(0, a.shape[1] // steps * steps, steps):
        for u in cp.unroll(range(steps)):
            for c in cp.unroll(range(lines)):
                right = cp.load(b[k + u], j + c * LINE, line=LINE)
                for r in cp.unroll(range(rows)):
                    sums[r, c] = sums[r, c] + right * a[min(i + r, a.shape[0] - 1), k + u]
    for r in cp.unroll(range(rows)):
        if i + r < out.shape[0]:
            for c in cp.unroll(range(lines)):
                cp.store(out[i + r], j + c * LINE, sums[r, c])


def call_on(device: str) -> Callable[[], Any]:
    """The call that is tuned."""
    if device == "cpu":
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
        out = np.zeros((SIZE, SIZE), np.float32)
        return lambda: multiply(a, b, out)
    import torch

    x, y = (torch.randn(4096, 4096, device=device).bfloat16() for _ in range(2))
    return lambda: cp.kernels.matmul(x, y)


def main() -> None:
    """Print how long a search took, what became of the configurations, and the pick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--budget", type=float, help="seconds of the search")
    given = parser.parse_args()
    if given.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    call = call_on(given.device)
    with tempfile.TemporaryDirectory() as folder, forgotten(), cp.settings(cache_dir=folder):
        began = time.perf_counter()
        with cp.tuning(level="full", budget_s=given.budget):
            call()
        took = time.perf_counter() - began
        for key in find_records().measured_keys():
            measured = list(find_records().measurements(key).values())
            counts = Counter(m.status for m in measured)
            print(f"{len(measured)} configurations in {took:.1f} s: {dict(counts)}")
        for pick in find_records().picks():
            print(f"{pick.config}: {pick.about}")


if __name__ == "__main__":
    main()
