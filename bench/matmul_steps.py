"""What each step of the guide's product gains: `python -m bench.matmul_steps [--json FILE]`.

A step and cuBLAS (through torch) are timed in turns as replays of graphs, on random data of one
process; results begin as NaN, and a sample of their rows is compared with f64.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cubepy as cp
from bench import hopper_matmul as kernels
from bench.replays import medians, torch

SIZES = (4096, 8192)
SAMPLE = 64
"""Rows of a result that are compared, from all over it."""
Launch = Callable[[], Any]


@dataclass
class Row:
    """TFLOP/s of a step and of cuBLAS, their ratio, and the largest error as a share of the largest
    value."""

    step: str
    size: int
    microseconds: float
    ours: float
    cublas: float
    ratio: float
    error: float


def fragments(a: Any, b: Any, out: Any) -> Launch:
    """Step 1, which takes b as (k, n)."""
    grid = -(-out.shape[1] // 16), -(-out.shape[0] // 16)
    return lambda: kernels.by_fragments[grid, 32](a, b.T, out)


def planes(stages: int, a: Any, b: Any, out: Any) -> Launch:
    """Step 2, which stores pairs."""
    return kernels.with_planes(a, b, pairs(out), stages)


def maps(kernel: Any, units: int, a: Any, b: Any, out: Any) -> Launch:
    """Steps 3 to 5, which store pairs."""
    return kernels.with_maps(kernel, units, a, b, pairs(out))


def pairs(out: Any) -> Any:
    """The memory of pairs of bf16, as words."""
    return out.view(torch().uint32)


def staying(a: Any, b: Any, out: Any) -> Launch:
    """Step 6, by a cube for each multiprocessor."""
    cubes = torch().cuda.get_device_properties(0).multi_processor_count
    return kernels.staying(cubes, a, b, out)


def prebuilt(a: Any, b: Any, out: Any) -> Launch:
    """The function of the library."""
    return lambda: cp.kernels.matmul(a, b.T, out=out)


STEPS: dict[str, Callable[[Any, Any, Any], Launch]] = {
    "1 fragments from global memory": fragments,
    "2 tiles in shared memory, planes": partial(planes, 1),
    "2 with four stages": partial(planes, 4),
    "3 copy engine and warpgroups": partial(maps, kernels.by_warpgroups, 256),
    "4 a ring of four stages": partial(maps, kernels.by_ring, 256),
    "5 a warp that only copies": partial(maps, kernels.by_roles, 384),
    "6 cubes that stay": staying,
    "cp.kernels.matmul": prebuilt,
}


@dataclass
class Work:
    """A launch of a step, of cuBLAS for the same factors, and the error of the step's result."""

    step: str
    size: int
    ours: Launch
    cublas: Launch
    error: float


def prepared(size: int) -> list[Work]:
    """The launches of all steps, whose results have been compared."""
    a, b = (torch().randn(size, size, device="cuda").bfloat16() for _ in range(2))
    theirs, found = torch().empty_like(a), []
    for step, make in STEPS.items():
        out = torch().full_like(a, float("nan"))
        ours = make(a, b, out)
        ours()
        error = largest_error(a, b, out)
        found.append(Work(step, size, ours, lambda: torch().matmul(a, b.T, out=theirs), error))
    return found


def timed(work: Work) -> Row:
    """One row."""
    times = medians({"ours": work.ours, "cublas": work.cublas})
    ours, cublas = (2e-9 * work.size**3 / times[name] for name in ("ours", "cublas"))
    return Row(work.step, work.size, times["ours"] * 1e3, ours, cublas, ours / cublas, work.error)


def largest_error(a: Any, b: Any, out: Any) -> float:
    """Of a sample, beside f64; NaN where an element was not written."""
    rows = torch().randperm(a.shape[0], device="cuda")[:SAMPLE]
    expected = a[rows].double() @ b.double().T
    error = float((out[rows].double() - expected).abs().max() / expected.abs().max())
    return error if bool(torch().isfinite(out).all()) else float("nan")


def main() -> None:
    """Print the table; optionally write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.matmul_steps")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    machine = f"{torch().cuda.get_device_name()}, torch {torch().__version__}"
    print(f"{machine}; TFLOP/s", flush=True)
    for size in SIZES:
        for row in map(timed, prepared(size)):
            show(row)
            rows.append(row)
    if options.json:
        text = json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


def show(row: Row) -> None:
    numbers = f"{row.microseconds:9.1f} us {row.ours:6.0f} cuBLAS {row.cublas:5.0f}"
    print(
        f"{row.step:34} {row.size} {numbers}  x{row.ratio:.3f}  error {row.error:.1e}", flush=True
    )


if __name__ == "__main__":
    main()
