"""Skinny products on a GPU beside cuBLAS: `python -m bench.gpu_decode [--json FILE] [--layout kn]`.

The shapes are those of the linear layers of Llama-3 8B and 70B when few tokens are decoded: a few
rows by weights that are read once. Times are medians of replayed graphs on random data; each graph
goes through several weights in turn, more than the last cache holds, and the two sides take turns.
The bandwidth counts the weights alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.replays import captured, replay_ms, torch

LAYERS = {
    "8B qkv": (6144, 4096),
    "8B o": (4096, 4096),
    "8B gate, up": (28672, 4096),
    "8B down": (4096, 14336),
    "8B head": (128256, 4096),
    "70B qkv": (10240, 8192),
    "70B o": (8192, 8192),
    "70B gate, up": (57344, 8192),
    "70B down": (8192, 28672),
}
ROWS = (1, 2, 4, 8, 16, 32, 64)
COLD_BYTES = 300 << 20
"""Weights that a graph goes through, at least: several times the last cache of an H200."""
ROUNDS = 7
TOLERANCE = 0.01


@dataclass
class Row:
    """One line of the table; `ratio` is how many times as fast ours is."""

    layer: str
    m: int
    n: int
    k: int
    us: float
    cublas_us: float
    tbps: float
    ratio: float
    error: float


def medians(graphs: Sequence[Any], count: int) -> list[float]:
    """Median microseconds of one of `count` calls of each graph; graphs take turns."""
    times = [[replay_ms(graph) for graph in graphs] for _ in range(ROUNDS)]
    return [1e3 * statistics.median(each) / count for each in zip(*times, strict=True)]


def weights(n: int, k: int, dtype: Any, layout: str) -> list[Any]:
    """As many right factors [k, n] as do not stay in the cache; "nk" is what `linear` has."""
    count = max(1, -(-COLD_BYTES // (2 * n * k)))
    stored = (n, k) if layout == "nk" else (k, n)
    made = [torch().randn(stored, device="cuda", dtype=dtype) for _ in range(count)]
    return [w.T for w in made] if layout == "nk" else made


def row(layer: str, m: int, factors: list[Any]) -> Row:
    """Ours and cuBLAS for one product, interleaved."""
    (k, n), dtype = factors[0].shape, factors[0].dtype
    x = torch().randn(m, k, device="cuda", dtype=dtype)
    ours, theirs = (x.new_full((m, n), float("nan")) for _ in range(2))
    repeats = max(1, 10 // len(factors))
    graphs = (
        captured([lambda w=w: cp.kernels.matmul(x, w, out=ours) for w in factors] * repeats),
        captured([lambda w=w: torch().mm(x, w, out=theirs) for w in factors] * repeats),
    )
    us, cublas_us = medians(graphs, repeats * len(factors))
    tbps = 2 * n * k / us / 1e6
    return Row(layer, m, n, k, us, cublas_us, tbps, cublas_us / us, worst(ours, x, factors[-1]))


def worst(found: Any, x: Any, w: Any) -> float:
    """The largest difference from the product in f64 over its largest element, for some columns."""
    some = w[:, -4096:].double()
    exact = x.double() @ some
    return float((found[:, -4096:].double() - exact).abs().max() / exact.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--layout", choices=("nk", "kn"), default="nk", help="of the weights")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--only", default="", help="layers whose name has this")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    options = parser.parse_args()
    rows: list[Row] = []
    for layer, (n, k) in LAYERS.items():
        if options.only in layer:
            factors = weights(n, k, getattr(torch(), options.dtype), options.layout)
            for m in options.rows:
                rows.append(row(layer, m, factors))
                show(rows[-1])
            del factors
    ratios = [each.ratio for each in rows]
    print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")
    if options.json:
        report = {"device": torch().cuda.get_device_name(), "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def show(found: Row) -> None:
    if not found.error < TOLERANCE:
        raise SystemExit(f"{found.layer}, {found.m} rows: off by {found.error}")
    print(
        f"{found.layer:13} {found.m:3} x {found.n:6} x {found.k:5} {found.us:8.2f} us "
        f"{found.tbps:6.3f} TB/s, cuBLAS {found.cublas_us:8.2f} us: {found.ratio:.3f}x",
        flush=True,
    )


if __name__ == "__main__":
    main()
